//! A transfer's plan, from its number alone: client and origin agree without a word.

use oncewire_testnet::Family;

use super::super::data::{self, Rng};

/// One end of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Origin,
}

impl Side {
    /// The end at the other side.
    pub(super) fn other(self) -> Self {
        match self {
            Self::Client => Self::Origin,
            Self::Origin => Self::Client,
        }
    }
}

/// The order of the directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Both at once.
    Together,
    /// The origin answers after the client's end of stream.
    UpFirst,
    /// The client sends after the origin's end of stream.
    DownFirst,
    /// Requests and answers of so many bytes in turn.
    Rounds(usize),
}

/// How the client reaches the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Forward,
    Socks,
    Http,
    Tproxy,
    /// Redirected as it passes the branch.
    Redirect,
    /// Redirected as a program on the branch itself makes it.
    Own,
}

/// One transfer.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) up: Content,
    pub(super) down: Content,
    pub(super) order: Order,
    pub(super) way: Way,
    pub(super) family: Family,
    /// The slow reader.
    pub(super) slow: Option<Side>,
    pub(super) reset: Option<Reset>,
}

/// A reset in mid-transfer: the side only sends, or only reads, some bytes, and then resets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reset {
    pub(super) by: Side,
    pub(super) sends: bool,
    pub(super) after: usize,
}

/// Bytes from seeds.
#[derive(Clone, Debug)]
pub(super) struct Content {
    base: u64,
    len: usize,
    edits: usize,
    edit_seed: u64,
}

impl Plan {
    /// The plan of transfer `id` in the run of `seed`.
    pub(super) fn of(seed: u64, id: u64) -> Self {
        let mut rng = Rng::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ id);
        let order = match rng.below(10) {
            0..=4 => Order::Together,
            5..=6 => Order::UpFirst,
            7 => Order::DownFirst,
            8 => Order::Rounds(700),
            _ => Order::Rounds(1),
        };
        let most = match order {
            Order::Rounds(piece) => piece * MOST_ROUNDS,
            _ => MOST_LEN,
        };
        let up = Content::draw(&mut rng, id, most);
        let down = Content::draw(&mut rng, id.wrapping_add(1 << 40), most);
        let ways = [Way::Forward, Way::Socks, Way::Http, Way::Tproxy, Way::Redirect, Way::Own];
        let (way, family) = (ways[rng.below(ways.len())], Family::BOTH[rng.below(2)]);
        let side = |rng: &mut Rng| [Side::Client, Side::Origin][rng.below(2)];
        let slow = (rng.below(6) == 0).then(|| side(&mut rng));
        let reset = (rng.below(8) == 0).then(|| Reset {
            by: side(&mut rng),
            sends: rng.below(2) == 0,
            after: rng.below(1 << 20),
        });
        let order = if reset.is_some() { Order::Together } else { order };
        Self { up, down, order, way, family, slow, reset }
    }

    /// Bytes both ways.
    pub(super) fn len(&self) -> u64 {
        (self.up.len + self.down.len) as u64
    }

    /// The bytes from `side`.
    pub(super) fn sends(&self, side: Side) -> Vec<u8> {
        match side {
            Side::Client => self.up.bytes(),
            Side::Origin => self.down.bytes(),
        }
    }

    /// The bytes for `side`.
    pub(super) fn gets(&self, side: Side) -> Vec<u8> {
        match side {
            Side::Client => self.down.bytes(),
            Side::Origin => self.up.bytes(),
        }
    }
}

impl Content {
    /// New content, or an edited copy of a recent transfer's; small ones are as frequent.
    fn draw(rng: &mut Rng, id: u64, most: usize) -> Self {
        let back = if rng.below(2) == 0 { 0 } else { rng.below(REPEATS_WITHIN) as u64 };
        let base = id.saturating_sub(back);
        let bits = rng.below(most.ilog2() as usize + 1);
        let len = if rng.below(8) == 0 { 0 } else { rng.below(2 << bits) };
        let edits = if back == 0 { 0 } else { rng.below(20) };
        Self { base, len, edits, edit_seed: rng.next() }
    }

    fn bytes(&self) -> Vec<u8> {
        let plain = if self.base.is_multiple_of(2) {
            data::random(self.base, self.len)
        } else {
            data::text(self.base, self.len)
        };
        if self.len == 0 { plain } else { data::edited(&plain, self.edit_seed, self.edits) }
    }
}

const MOST_LEN: usize = 2 << 20;
const MOST_ROUNDS: usize = 32;
const REPEATS_WITHIN: usize = 60;
