//! A peer's abuse of a log: endless gaps, given-up references, logs of other peers.

use bytes::Bytes;

use super::verify::{CAPACITY, Halves, LANE, SEED, noise};
use crate::contract::{
    Decoder, DecoderLog as _, Delivery, Encoder, Feedback, Parts, Payload, PeerState, SavedLog,
};
use crate::entropy::Entropy;
use crate::log::{Log, LogOffset, RangeSet};
use crate::stream::{Receiver, ReceiverConfig, Sender};
use crate::transfer::MAX_UNACKED;
use crate::verify::digest::block_digest;
use crate::wire::{
    Ack, Block, BlockBody, Body, Digest, FlowId, Frame, LaneId, LogHeld, Refetch, SavingsCurve, take_frame,
};
use crate::{Matching, Now, Plan};

fn receiver() -> Receiver {
    Receiver::new(ReceiverConfig {
        capacity: CAPACITY,
        max_in_flight: CAPACITY / 4,
        contexts: 1,
        digest_seed: SEED,
        persist: false,
        store: false,
    })
}

/// What the receiving half has to say.
fn frames(receiver: &mut Receiver) -> Vec<Frame<'static>> {
    let (mut bytes, mut frames) = (Vec::new(), Vec::new());
    receiver.poll_frame(true, &mut bytes);
    let mut rest = &bytes[..];
    while let Some((kind, body, used)) = take_frame(rest).unwrap() {
        frames.push(match Frame::decode(kind, body).unwrap() {
            Frame::Ack(ack) => Frame::Ack(ack),
            Frame::Need(ranges) => Frame::Need(ranges),
            Frame::Refetch(refetch) => Frame::Refetch(refetch),
            Frame::LogHeld(held) => Frame::LogHeld(held),
            other => panic!("{other:?}"),
        });
        rest = &rest[used..];
    }
    frames
}

fn oldest_held(frames: &[Frame<'_>]) -> Option<u64> {
    frames.iter().find_map(|frame| match frame {
        Frame::LogHeld(LogHeld { oldest, .. }) => Some(*oldest),
        _ => None,
    })
}

#[test]
fn gaps_left_by_a_peer_are_bounded() {
    let mut receiver = receiver();
    let (digest, surplus) = (Digest::Fast(block_digest(SEED, 1, b"x")), 1000);
    for seq in 0..MAX_UNACKED + surplus {
        let body = BlockBody::Coded(Body {
            epoch: 1,
            start: 2 * seq,
            remembered: true,
            keep: false,
            names: Vec::new(),
            digest,
            tokens: None,
            literals: 1,
            entropy: None,
            bytes: b"x",
        });
        let block =
            Block { seq, flow: FlowId(1), offset: seq, plain_len: 1, fin: false, resent: false, body };
        receiver.handle_block(block, LANE, Now::ZERO).unwrap();
        assert!(receiver.poll_payload().is_some());
    }
    assert_eq!(receiver.stats().log_used, MAX_UNACKED, "each range has one byte");
    assert_eq!(oldest_held(&frames(&mut receiver)), Some(2 * surplus - 1));
    assert!(receiver.claim().is_some());
}

/// A flow's blocks from a sender to a receiver by two lanes, one of them forwarded.
struct TwoLanes {
    sender: Sender,
    receiver: Receiver,
    offset: u64,
}

fn plan() -> Plan {
    Plan { entropy: Entropy::None, ..Plan::default() }
}

impl TwoLanes {
    fn new() -> Self {
        let halves = Halves::with(plan(), CAPACITY);
        Self { sender: halves.sender, receiver: halves.receiver, offset: 0 }
    }

    fn send(&mut self, plain: &[u8], lane: LaneId) -> Vec<u8> {
        let (flow, plan) = (FlowId(1), Some(plan()));
        let payload = Payload {
            flow,
            offset: self.offset,
            plain: Bytes::copy_from_slice(plain),
            fin: false,
            plan,
            parts: Parts::default(),
        };
        self.offset += plain.len() as u64;
        let mut out = Vec::new();
        self.sender.handle_payload(payload, lane, Now::ZERO, &mut out);
        out
    }

    /// Brings frames to the receiver; returns how many blocks it delivers.
    fn deliver(&mut self, mut bytes: &[u8], lane: LaneId) -> usize {
        while let Some((kind, body, used)) = take_frame(bytes).unwrap() {
            let Frame::Block(block) = Frame::decode(kind, body).unwrap() else { panic!("not a block") };
            self.receiver.handle_block(block, lane, Now::ZERO).unwrap();
            bytes = &bytes[used..];
        }
        let delivered = std::iter::from_fn(|| self.receiver.poll_payload());
        delivered.filter(|delivery| matches!(delivery, Delivery::Data { .. })).count()
    }
}

#[test]
fn block_with_a_given_up_source_is_requested_at_once() {
    type GiveUp = fn(&mut TwoLanes);
    let ways: [(&str, GiveUp); 4] = [
        ("a lower limit", |lanes| lanes.receiver.set_limit(100_000)),
        ("the peer's lower limit", |lanes| {
            let worth = SavingsCurve { serial: 1, limit: 100_000, curve: Vec::new() };
            lanes.receiver.handle_savings(&worth);
        }),
        ("everything", |lanes| lanes.receiver.clear_log()),
        ("what comes", |lanes| {
            lanes.receiver.set_limit(255_000);
            assert_eq!(lanes.receiver.stats().given_up, 0);
            let block = lanes.send(&noise(9, 12_000), LaneId(2));
            assert_eq!(lanes.deliver(&block, LaneId(2)), 1);
        }),
    ];
    for (way, give_up) in ways {
        let mut lanes = TwoLanes::new();
        let (a, b) = (LaneId(1), LaneId(2));
        let first = noise(1, 50_000);
        // Its lane stands still, and what copies from it overtakes it.
        let late = lanes.send(&first, a);
        let repeat = lanes.send(&first, b);
        assert_eq!(lanes.deliver(&repeat, b), 0, "{way}");
        for seed in 2..6 {
            let block = lanes.send(&noise(seed, 50_000), b);
            assert_eq!(lanes.deliver(&block, b), 1, "{way}");
        }
        give_up(&mut lanes);
        let said = frames(&mut lanes.receiver);
        let again = |frame: &Frame<'_>| matches!(frame, Frame::Refetch(Refetch { seqs, .. }) if *seqs == [1]);
        assert!(said.iter().any(again), "{way}: {said:?}");
        assert!(oldest_held(&said) > Some(0), "{way}: {said:?}");
        assert_eq!(lanes.receiver.stats().given_up, 1, "{way}");
        assert_eq!(lanes.deliver(&late, a), 1, "{way}: what is given up is still delivered");
    }
}

/// A log of the epoch with some blocks at offsets.
fn saved(epoch: u64, blocks: &[(u64, &[u8])]) -> SavedLog {
    let mut saved = SavedLog { epoch, log: Log::new(CAPACITY as usize), ranges: RangeSet::default() };
    for (start, bytes) in blocks {
        saved.log.write(LogOffset(*start), bytes);
        saved.ranges.insert(*start..start + bytes.len() as u64);
    }
    saved
}

#[test]
fn released_log_takes_back_only_its_own_content() {
    let mut lanes = TwoLanes::new();
    let blocks: Vec<Vec<u8>> = (1..4).map(|seed| noise(seed, 50_000)).collect();
    for (number, block) in blocks.iter().enumerate() {
        let frames = lanes.send(block, LANE);
        // The second is still under way.
        assert!(number == 1 || lanes.deliver(&frames, LANE) == 1);
    }
    assert!(lanes.receiver.release_log());
    // At its place the disk still has the content of another log of the same number.
    let all = [(0, &blocks[0][..]), (50_000, &noise(9, 50_000)), (100_000, &blocks[2])];
    lanes.receiver.restore_log(Some(saved(1, &all)), Now::ZERO);
    assert_eq!(lanes.receiver.stats().log_used, 100_000);
}

#[test]
fn released_log_takes_nothing_back_of_a_longer_one() {
    // Behind it, near or far, the disk still has what another log of the same number had there.
    for (far, says_so) in [(50_000, true), (5 << 20, true), (5 << 20, false)] {
        let mut halves = Halves::new(Matching::Max);
        let (block, other) = (noise(1, 50_000), noise(2, 50_000));
        halves.cross(&block);
        assert!(halves.receiver.release_log());
        let mut found = saved(halves.receiver.stats().epoch, &[(0, &block), (far, &other)]);
        if !says_so {
            found.ranges = RangeSet::default();
            found.ranges.insert(0..50_000);
        }
        halves.receiver.restore_log(Some(found), halves.now);
        assert_eq!(halves.receiver.stats().log_used, 0);
        for seed in 10..16 {
            let news = noise(seed, 30_000);
            for _ in 0..2 {
                assert_eq!(halves.cross(&news), [&news[..]]);
            }
        }
        let stats = halves.receiver.stats();
        assert_eq!((stats.mismatches, stats.copied, halves.sender.stats().epoch), (0, 180_000, 1));
    }
}

#[test]
fn number_of_an_empty_epoch_does_not_come_again() {
    let mut halves = Halves::new(Matching::Max);
    assert_eq!(halves.receiver.claim(), None, "no epoch has begun");
    let block = noise(1, 50_000);
    halves.cross(&block);
    halves.receiver.clear_log();
    let claim = halves.receiver.claim().unwrap();
    assert_eq!((claim.epoch, claim.start, claim.end, claim.highest), (1, 50_000, 50_000, 50_000));
    assert!(claim.samples.is_empty());
    halves.sender = Halves::new(Matching::Max).sender;
    let held = frames(&mut halves.receiver);
    assert!(oldest_held(&held).is_some());
    assert_eq!(halves.reconnect(Some(claim)), None);
    halves.offset = 0;
    for _ in 0..2 {
        assert_eq!(halves.cross(&block), [&block[..]]);
    }
    assert_eq!((halves.receiver.stats().epoch, halves.receiver.stats().copied), (2, 50_000));
}

#[test]
fn blocks_to_a_restarted_peer_are_remembered_as_before() {
    let mut sender = TwoLanes::new().sender;
    /// Sends a block as number `seq`, acknowledged at once.
    fn send(sender: &mut Sender, flow: FlowId, seq: u64, plain: Vec<u8>) {
        let offset = seq * plain.len() as u64;
        let payload = Payload {
            flow,
            offset,
            plain: plain.into(),
            fin: false,
            plan: Some(plan()),
            parts: Parts::default(),
        };
        sender.handle_payload(payload, LANE, Now::ZERO, &mut Vec::new());
        let ack = Feedback::Ack(Ack { next: seq + 1, ranges: Vec::new() });
        sender.handle_feedback(ack, Now::ZERO).unwrap();
    }
    for seq in 0..80 {
        let seed = if seq % 2 == 0 { 1 } else { 2 + seq };
        send(&mut sender, FlowId(1), seq, noise(seed, 50_000));
    }
    let before = sender.stats();
    assert!(before.copied > 1_000_000 && before.not_remembered == 0, "{before:?}");
    sender.handle_peer(PeerState { capacity: CAPACITY, contexts: 2, ..PeerState::default() });
    for seq in 0..60 {
        send(&mut sender, FlowId(3), seq, noise(100 + seq, 50_000));
    }
    assert_eq!(sender.stats().not_remembered, 0);
}
