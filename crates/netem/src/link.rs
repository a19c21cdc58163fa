//! One direction of a link.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::time::Duration;

use crate::chance::Chance;
use crate::{Gilbert, LinkCounters, LinkParams, Now, ParamsError, Queue};

/// The most packets held by a link, waiting and on the way; further ones are dropped as if the queue were full.
///
/// Only a link without a rate, or with an absurd product of rate and delay, ever reaches it.
pub const MAX_PACKETS_HELD: usize = 1 << 20;

/// One direction of an emulated link; its packets stand for `P`.
///
/// What happens to a packet, in this order: a bounded queue; serialisation at the rate; loss, behind the queue, so a
/// lost packet has used the rate; delay and jitter, never with reordering by themselves; reordering (the packet gets
/// half the delay); duplication.
///
/// Call [`send`](Self::send) with times in order. After `next_due` has passed, drain [`poll`](Self::poll) until it
/// returns `None`.
#[derive(Debug)]
pub struct Link<P> {
    params: LinkParams,
    dice: Dice,
    gilbert_bad: bool,
    /// When the last packet accepted so far is serialised entirely.
    free_at: Now,
    /// The latest due time of a packet without reordering.
    latest_due: Now,
    on_the_way: BinaryHeap<OnTheWay<P>>,
    sequence: u64,
    counters: LinkCounters,
}

/// The fate of a packet offered to a [`Link`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It will arrive.
    Carried,
    /// It uses the rate and will be lost.
    Lost,
    /// The queue was full.
    QueueFull,
    /// It exceeds the MTU.
    TooBig,
}

/// The independent decisions made for each packet.
#[derive(Debug)]
struct Dice {
    loss: Chance,
    gilbert: Chance,
    jitter: Chance,
    reorder: Chance,
    duplicate: Chance,
}

#[derive(Debug)]
struct OnTheWay<P> {
    due: Now,
    sequence: u64,
    len: u32,
    packet: P,
}

impl<P: Clone> Link<P> {
    /// Makes an idle link.
    ///
    /// # Errors
    ///
    /// Settings out of range; see [`LinkParams::validate`].
    pub fn new(params: LinkParams) -> Result<Self, ParamsError> {
        params.validate()?;
        Ok(Self {
            dice: Dice::new(params.seed),
            params,
            gilbert_bad: false,
            free_at: Now::ZERO,
            latest_due: Now::ZERO,
            on_the_way: BinaryHeap::new(),
            sequence: 0,
            counters: LinkCounters::default(),
        })
    }

    /// Offers a packet of `len` bytes, headers included.
    pub fn send(&mut self, now: Now, len: u32, packet: P) -> Fate {
        self.counters.packets += 1;
        if len > self.params.mtu {
            self.counters.too_big += 1;
            return Fate::TooBig;
        }
        if self.is_full(now, len) {
            self.counters.queue_full += 1;
            return Fate::QueueFull;
        }
        self.counters.carried += 1;
        self.counters.carried_bytes += u64::from(len);
        self.free_at = self.free_at.max(now).saturating_add(self.serialisation(u64::from(len)));
        if self.is_lost() {
            self.counters.lost += 1;
            return Fate::Lost;
        }
        let due = self.arrival();
        if self.dice.duplicate.decide(self.params.duplicate) {
            self.counters.duplicated += 1;
            self.put(due, len, packet.clone());
        }
        self.put(due, len, packet);
        Fate::Carried
    }

    /// Returns the next packet with arrival by `now`.
    ///
    /// Packets come by due time, and in the order of sending if that is equal. `None` holds until
    /// [`next_due`](Self::next_due).
    pub fn poll(&mut self, now: Now) -> Option<P> {
        if self.on_the_way.peek()?.due > now {
            return None;
        }
        let arrived = self.on_the_way.pop()?;
        self.counters.delivered += 1;
        self.counters.delivered_bytes += u64::from(arrived.len);
        Some(arrived.packet)
    }
}

impl<P> Link<P> {
    /// Returns when the next packet arrives; `None` while nothing is on the way.
    pub fn next_due(&self) -> Option<Now> {
        self.on_the_way.peek().map(|next| next.due)
    }

    /// Changes the settings for later packets.
    ///
    /// Packets waiting or on their way keep their arrival; a shorter delay lets none overtake them. Another seed
    /// starts all decisions anew, the same seed goes on with them.
    ///
    /// # Errors
    ///
    /// Settings out of range; the old ones stay then. See [`LinkParams::validate`].
    pub fn set_params(&mut self, params: LinkParams) -> Result<(), ParamsError> {
        params.validate()?;
        if params.seed != self.params.seed {
            self.dice = Dice::new(params.seed);
        }
        self.gilbert_bad &= params.gilbert.is_some();
        self.params = params;
        Ok(())
    }

    /// Returns the settings.
    pub fn params(&self) -> &LinkParams {
        &self.params
    }

    /// Returns the counters since the link's creation.
    pub fn counters(&self) -> LinkCounters {
        self.counters
    }

    /// Returns how many packets wait or are on the way.
    pub fn held(&self) -> usize {
        self.on_the_way.len()
    }

    fn is_full(&self, now: Now, len: u32) -> bool {
        if self.on_the_way.len() >= MAX_PACKETS_HELD {
            return true;
        }
        let Some(rate) = self.params.rate_bits_per_s else { return false };
        let wait = self.free_at.saturating_sub(now);
        match self.params.queue {
            Queue::Time(most) => wait > most,
            Queue::Bytes(most) => {
                let waiting = wait.as_nanos() * u128::from(rate) / (8 * NANOS_PER_S);
                waiting + u128::from(len) > u128::from(most)
            }
        }
    }

    fn serialisation(&self, len: u64) -> Duration {
        match self.params.rate_bits_per_s {
            // Rounded up: emulated links are never faster than asked.
            Some(rate) => Duration::from_nanos((len * 8 * 1_000_000_000).div_ceil(rate)),
            None => Duration::ZERO,
        }
    }

    fn is_lost(&mut self) -> bool {
        if let Some(Gilbert { p13, p31 }) = self.params.gilbert {
            let turn = if self.gilbert_bad { p31 } else { p13 };
            self.gilbert_bad ^= self.dice.gilbert.decide(turn);
        }
        // Both are always asked, so that bursts do not shift the independent losses.
        let lost = self.dice.loss.decide(self.params.loss);
        lost || self.gilbert_bad
    }

    fn arrival(&mut self) -> Now {
        if self.dice.reorder.decide(self.params.reorder) {
            self.counters.reordered += 1;
            return self.free_at.saturating_add(self.params.delay / 2);
        }
        let mut due = self.free_at.saturating_add(self.params.delay);
        if !self.params.jitter.is_zero() {
            // Jitter is at most the delay, so this cannot precede the packet's departure.
            due = due - self.params.jitter + self.params.jitter.mul_f64(2.0 * self.dice.jitter.unit());
        }
        self.latest_due = self.latest_due.max(due);
        self.latest_due
    }

    fn put(&mut self, due: Now, len: u32, packet: P) {
        let sequence = self.sequence;
        self.sequence += 1;
        self.on_the_way.push(OnTheWay { due, sequence, len, packet });
    }
}

impl Dice {
    fn new(seed: u64) -> Self {
        Self {
            loss: Chance::new(seed, 1),
            gilbert: Chance::new(seed, 2),
            jitter: Chance::new(seed, 3),
            reorder: Chance::new(seed, 4),
            duplicate: Chance::new(seed, 5),
        }
    }
}

/// Earliest first, as the heap's greatest.
impl<P> Ord for OnTheWay<P> {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.due, other.sequence).cmp(&(self.due, self.sequence))
    }
}

impl<P> PartialOrd for OnTheWay<P> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<P> PartialEq for OnTheWay<P> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<P> Eq for OnTheWay<P> {}

const NANOS_PER_S: u128 = 1_000_000_000;

#[cfg(test)]
mod tests;
