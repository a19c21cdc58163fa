//! The work caused by little input from a peer: bounded in proportion.
//!
//! A script is a list of attacks with their sizes. The receiving half counts its steps; the fuzzer looks for scripts
//! with many steps for each byte. `crates/codec/tests/replay.rs` replays the corpus with this code, and
//! `crates/lab/benches/hostile` times it.

use std::collections::BTreeMap;

use bytes::Bytes;
use oncewire_codec::contract::{Decoder, Encoder, Parts, Payload, PeerSender};
use oncewire_codec::endre::matcher::{Copy, MatchParams};
use oncewire_codec::endre::tokens;
use oncewire_codec::entropy::Entropy;
use oncewire_codec::log::LogOffset;
use oncewire_codec::stream::{Receiver, ReceiverConfig, Sender, SenderConfig};
use oncewire_codec::wire::{Block, BlockBody, Body, Digest, FlowId, Frame, LaneId, take_frame};
use oncewire_codec::{Now, Plan, StrongKind};

use super::script::Script;

/// Runs a script, and fails if it took more steps than its bytes allow.
pub(crate) fn steps(data: &[u8]) {
    let mut peer = Hostile::new();
    let mut script = Script::new(data);
    for _ in 0..MOST_ATTACKS {
        let Some(what) = script.next() else { break };
        let attack = Attack::read(what, &mut script);
        peer.run(&attack, &mut |_| ());
    }
    let (taken, bytes) = (peer.steps(), peer.bytes);
    reach(taken / bytes.max(1000));
    assert!(
        taken <= STEPS_OF_A_BYTE * bytes + FREE_STEPS,
        "{taken} steps for {bytes} bytes, at most {STEPS_OF_A_BYTE} for each"
    );
}

/// An attack of the peer, so many times.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Attack {
    /// Blocks in the log, as short as coded ones are, the first at `from`; each leaves `stride` less one byte to the
    /// one before, or behind it.
    Fill { count: u64, from: u64, stride: u64, down: bool },
    /// Blocks of one copy each.
    Copies { count: u64, from: u64, len: u64 },
    /// Blocks of so many copies of a byte each, all in different blocks of [`Self::Fill`].
    Scattered { count: u64, from: u64, copies: u64 },
    /// Blocks of different flows, with wrong digests.
    Wrong { count: u64 },
    /// Lookups of anything of those flows, as made by each pending reset.
    Resets { count: u64 },
    /// One block with so many copied bytes and a wrong digest, again and again.
    Again { count: u64, copies: u64 },
    /// Time, a fifth of a second each; due work is done, and frames leave.
    Wait { count: u64 },
    /// A lane is lost, and everything asked for again.
    Restate,
}

impl Attack {
    fn read(what: u8, script: &mut Script<'_>) -> Self {
        let count = script.wide() as u64;
        match what % 8 {
            0 | 1 => {
                let (from, stride) = (script.wide() as u64, 1 + script.below(8) as u64);
                Self::Fill { count, from, stride, down: what % 8 == 1 }
            }
            2 => Self::Copies { count, from: script.wide() as u64, len: script.wide() as u64 },
            3 => {
                let (from, copies) = (script.wide() as u64, script.wide() as u64 % 16_384);
                Self::Scattered { count: count % 256, from, copies }
            }
            4 => Self::Wrong { count },
            5 => Self::Resets { count },
            6 => Self::Again { count: count % 64, copies: script.wide() as u64 % 32_768 },
            _ if count == 0 => Self::Restate,
            _ => Self::Wait { count: count % 64 },
        }
    }
}

/// A receiving half, and a peer without rules.
pub(crate) struct Hostile {
    pub(crate) receiver: Receiver,
    /// Bytes on the link.
    pub(crate) bytes: u64,
    now: Now,
    next: u64,
    ended: bool,
    digests: BTreeMap<usize, Digest>,
    asked: u64,
}

impl Hostile {
    pub(crate) fn new() -> Self {
        let (capacity, max_in_flight) = (CAPACITY, CAPACITY / 4);
        let mut receiver = Receiver::new(ReceiverConfig {
            capacity,
            max_in_flight,
            contexts: 1,
            digest_seed: SEED,
            persist: false,
            store: false,
        });
        receiver.handle_peer(PeerSender {
            capacity,
            max_in_flight,
            digest_seed: SEED,
            names: None,
            strong: StrongKind::default(),
            continues: false,
            probe: None,
        });
        let digests = BTreeMap::new();
        Self { receiver, bytes: 0, now: Now::ZERO, next: 0, ended: false, digests, asked: 0 }
    }

    /// Steps taken, one for each lookup among them.
    pub(crate) fn steps(&self) -> u64 {
        self.receiver.stats().steps + self.asked
    }

    /// Executes an attack, and calls `each` behind each of its steps.
    pub(crate) fn run(&mut self, attack: &Attack, each: &mut dyn FnMut(&Receiver)) {
        match *attack {
            Attack::Fill { count, from, stride, down } => {
                for number in 0..count {
                    let number = if down { count - 1 - number } else { number };
                    let start = from + number * (SHORTEST.len() as u64 + stride - 1);
                    self.send(self.next, Some(start), &[], SHORTEST, false);
                    each(&self.receiver);
                }
            }
            Attack::Copies { count, from, len } => {
                let len = len.clamp(1, 1 << 16) as u32;
                for _ in 0..count {
                    let copies = [Copy { at: 0, len, source: LogOffset(from) }];
                    self.send(self.next, None, &copies, b"", false);
                    each(&self.receiver);
                }
            }
            Attack::Scattered { count, from, copies } => {
                let source = |at: u64| LogOffset(from + (SHORTEST.len() as u64 + 1) * at);
                let copies: Vec<Copy> =
                    (0..copies.max(1)).map(|at| Copy { at: at as u32, len: 1, source: source(at) }).collect();
                for _ in 0..count {
                    self.send(self.next, None, &copies, b"", false);
                    each(&self.receiver);
                }
            }
            Attack::Wrong { count } => {
                for _ in 0..count {
                    self.send(self.next, Some(0), &[], WRONG, false);
                    each(&self.receiver);
                }
            }
            Attack::Resets { count } => {
                for flow in 0..count {
                    // A pending reset came as a frame once; it is looked at again each second.
                    (self.bytes, self.asked) = (self.bytes + 10, self.asked + 1);
                    self.receiver.holds(FlowId(flow as u32), u64::MAX);
                    each(&self.receiver);
                }
            }
            Attack::Again { count, copies } => {
                let copy = |at: u64| Copy { at: at as u32, len: 1, source: LogOffset(at % 2) };
                let copies: Vec<Copy> = (0..copies.max(1)).map(copy).collect();
                for _ in 0..count {
                    self.send(self.next, None, &copies, b"y", true);
                    each(&self.receiver);
                }
            }
            Attack::Wait { count } => {
                for _ in 0..count {
                    self.wait(each);
                }
            }
            Attack::Restate => self.receiver.resend_control_state(self.now),
        }
    }

    fn wait(&mut self, each: &mut dyn FnMut(&Receiver)) {
        self.now += Now::from_millis(200);
        // It does so much at a time.
        for _ in 0..MOST_GOES {
            if self.receiver.poll_timeout().is_none_or(|due| due > self.now) {
                break;
            }
            self.receiver.handle_timeout(self.now);
            each(&self.receiver);
            self.receiver.poll_frame(true, &mut Vec::new());
            while self.receiver.poll_payload().is_some() {}
        }
    }

    /// Sends a block: copies, and literals behind them.
    fn send(&mut self, seq: u64, start: Option<u64>, copies: &[Copy], literals: &[u8], resent: bool) {
        if self.ended {
            return;
        }
        let copied: usize = copies.iter().map(|copy| copy.len as usize).sum();
        let plain_len = copied + literals.len();
        let start_at = start.unwrap_or(CAPACITY / 2);
        let mut raw = Vec::new();
        tokens::encode(copies, LogOffset(start_at), &mut raw);
        let tokens = (!copies.is_empty()).then_some(raw.len());
        raw.extend_from_slice(literals);
        // Shorter blocks are never coded, and match nothing.
        let known = plain_len.max(SHORTEST.len());
        let digest = *self.digests.entry(known).or_insert_with(|| digest(known));
        let body = BlockBody::Coded(Body {
            epoch: 1,
            start: start_at,
            remembered: start.is_some(),
            keep: false,
            names: Vec::new(),
            digest,
            tokens,
            literals: literals.len(),
            entropy: None,
            bytes: &raw,
        });
        let block = Block { seq, flow: FlowId(seq as u32), offset: 0, plain_len, fin: false, resent, body };
        let mut frame = Vec::new();
        Frame::Block(block).encode(&mut frame);
        self.bytes += frame.len() as u64;
        let Ok(Some((kind, body, _))) = take_frame(&frame) else { return };
        let Ok(Frame::Block(block)) = Frame::decode(kind, body) else { return };
        self.ended = self.receiver.handle_block(block, LaneId(1), self.now).is_err();
        self.next += u64::from(!resent);
        while self.receiver.poll_payload().is_some() {}
        if self.receiver.has_urgent_frame() {
            self.receiver.poll_frame(false, &mut Vec::new());
        }
    }
}

/// Returns the digest of a block of so many bytes `x`, as from a sending half.
fn digest(plain_len: usize) -> Digest {
    let mut sender = Sender::new(SenderConfig {
        capacity: 1 << 20,
        max_in_flight: None,
        entropy: Entropy::None,
        contexts: 0,
        params: MatchParams::default(),
        keeps_bytes: true,
        digest_seed: SEED,
        persist: false,
        names: None,
    });
    let plan = Some(Plan { entropy: Entropy::None, ..Plan::default() });
    let (plain, mut out) = (Bytes::from(vec![b'x'; plain_len]), Vec::new());
    let payload = Payload { flow: FlowId(1), offset: 0, plain, fin: false, plan, parts: Parts::default() };
    sender.handle_payload(payload, LaneId(1), Now::ZERO, &mut out);
    match take_frame(&out).map(|frame| frame.map(|(kind, body, _)| Frame::decode(kind, body))) {
        Ok(Some(Ok(Frame::Block(Block { body: BlockBody::Coded(body), .. })))) => body.digest,
        other => panic!("not a block: {other:?}"),
    }
}

/// Leads a coverage-guided fuzzer to more steps: each amount has a branch of its own.
fn reach(steps_of_a_byte: u64) {
    macro_rules! rungs {
        ($($rung:literal)*) => { $(if steps_of_a_byte >= $rung { std::hint::black_box($rung); })* };
    }
    rungs!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 18 20 22 24 26 28 30 32 35 38 41 44 48 52 56 60 64);
}

const SHORTEST: &[u8] = &[b'x'; 48];
const WRONG: &[u8] = &[b'y'; 48];
const SEED: u64 = 1;
const CAPACITY: u64 = 1 << 30;
const MOST_ATTACKS: usize = 12;
/// The limit for all pending blocks together.
const MOST_GOES: usize = 5000;
const STEPS_OF_A_BYTE: u64 = 64;
/// The steps of a pending block or two: as much as is examined in one go.
const FREE_STEPS: u64 = 1 << 17;
