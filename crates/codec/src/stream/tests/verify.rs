//! The verify gate: what is rebuilt wrongly is counted, fetched again, and never delivered.

use std::collections::BTreeSet;

use bytes::Bytes;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

use crate::contract::{
    Decoder, DecoderLog as _, Delivery, Encoder, EncoderLog as _, Feedback, LogStart, Parts, Payload,
    PeerSender, PeerState, Repair, SavedLog, SendEvent, Tail,
};
use crate::entropy::Entropy;
use crate::log::{Log, LogOffset, RangeSet};
use crate::stream::{PreparedLog, Receiver, ReceiverConfig, Sender, SenderConfig};
use crate::wire::{FlowId, Frame, LaneId, LogClaim, Refetch, RefetchReason, take_frame};
use crate::{Matching, Now, Plan, StrongKind};

pub(crate) const CAPACITY: u64 = 1 << 20;
pub(crate) const LANE: LaneId = LaneId(1);

pub(crate) const SEED: u64 = 5;

pub(crate) fn sender_config(plan: Plan, capacity: u64) -> SenderConfig {
    SenderConfig {
        capacity,
        max_in_flight: None,
        entropy: plan.entropy,
        contexts: 2,
        params: Default::default(),
        keeps_bytes: plan.matching == Matching::Max,
        digest_seed: SEED,
        persist: false,
        names: None,
    }
}

pub(crate) struct Halves {
    pub(crate) sender: Sender,
    pub(crate) receiver: Receiver,
    plan: Plan,
    pub(crate) offset: u64,
    pub(crate) now: Now,
}

impl Halves {
    pub(crate) fn new(matching: Matching) -> Self {
        Self::with(Plan { entropy: Entropy::Zstd(1), matching, ..Plan::default() }, CAPACITY)
    }

    pub(crate) fn with(plan: Plan, capacity: u64) -> Self {
        Self {
            sender: Sender::new(sender_config(plan, capacity)),
            receiver: Receiver::new(ReceiverConfig {
                capacity,
                max_in_flight: capacity / 4,
                contexts: 2,
                digest_seed: SEED,
                persist: false,
                store: false,
            }),
            plan,
            offset: 0,
            now: Now::from_secs(1),
        }
    }

    /// Sends a block; returns its frame.
    pub(crate) fn send(&mut self, plain: &[u8]) -> Vec<u8> {
        let payload = Payload {
            flow: FlowId(1),
            offset: self.offset,
            plain: Bytes::copy_from_slice(plain),
            fin: false,
            plan: Some(self.plan),
            parts: Parts::default(),
        };
        self.offset += plain.len() as u64;
        let mut out = Vec::new();
        self.sender.handle_payload(payload, LANE, self.now, &mut out);
        out
    }

    /// Sends a block and lets both sides say all they have to; returns what was delivered.
    pub(crate) fn cross(&mut self, plain: &[u8]) -> Vec<Bytes> {
        let out = self.send(plain);
        self.talk(out)
    }

    /// Lets time pass the receiver may have waited for, and both sides say all they have to; returns what was
    /// delivered.
    pub(crate) fn pass(&mut self, time: Now) -> Vec<Bytes> {
        self.now += time;
        self.receiver.handle_timeout(self.now);
        let out = self.hear();
        self.talk(out)
    }

    pub(crate) fn talk(&mut self, mut out: Vec<u8>) -> Vec<Bytes> {
        let mut delivered = Vec::new();
        while !out.is_empty() {
            self.receive(&out, &mut delivered);
            out = self.hear();
        }
        delivered
    }

    /// Has the sender hear what the receiver says; returns its answer.
    fn hear(&mut self) -> Vec<u8> {
        let (mut feedback, mut out) = (Vec::new(), Vec::new());
        self.receiver.poll_frame(true, &mut feedback);
        self.answer(&feedback, &mut out);
        out
    }

    /// Brings the link up with a new instance of the peer that claims this; returns how many bytes are warm.
    pub(crate) fn reconnect(&mut self, claim: Option<LogClaim>) -> Option<u64> {
        self.receiver.handle_peer(PeerSender {
            capacity: CAPACITY,
            max_in_flight: CAPACITY / 4,
            digest_seed: SEED,
            names: None,
            strong: StrongKind::default(),
            continues: false,
            probe: None,
        });
        self.sender.handle_peer(PeerState { capacity: CAPACITY, contexts: 2, claim, ..PeerState::default() });
        std::iter::from_fn(|| self.sender.poll_event()).find_map(|event| match event {
            SendEvent::LogStarts { start: LogStart::Resumed { bytes }, .. } => Some(bytes),
            _ => None,
        })
    }

    pub(crate) fn receive(&mut self, frames: &[u8], delivered: &mut Vec<Bytes>) {
        self.receive_on(LANE, frames, delivered);
    }

    fn receive_on(&mut self, lane: LaneId, mut frames: &[u8], delivered: &mut Vec<Bytes>) {
        while let Some((kind, body, used)) = take_frame(frames).unwrap() {
            let Frame::Block(block) = Frame::decode(kind, body).unwrap() else { panic!("not a block") };
            self.receiver.handle_block(block, lane, self.now).unwrap();
            frames = &frames[used..];
        }
        while let Some(Delivery::Data { plain, .. }) = self.receiver.poll_payload() {
            delivered.push(plain);
        }
    }

    fn answer(&mut self, mut frames: &[u8], out: &mut Vec<u8>) {
        while let Some((kind, body, used)) = take_frame(frames).unwrap() {
            let feedback = match Frame::decode(kind, body).unwrap() {
                Frame::Ack(ack) => Feedback::Ack(ack),
                Frame::Need(ranges) => Feedback::Need(ranges),
                Frame::Refetch(refetch) => Feedback::Refetch(refetch),
                Frame::LogHeld(held) => Feedback::Held(held),
                other => panic!("unexpected {other:?}"),
            };
            self.sender.handle_feedback(feedback, self.now).unwrap();
            frames = &frames[used..];
        }
        while self.sender.poll_repair(Repair::Chunks(None), out)
            || self.sender.poll_repair(Repair::Block, out)
        {}
    }
}

pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    (0..len).map(|_| (rng.next_u64() >> 9) as u8).collect()
}

#[test]
fn damaged_log_costs_a_refetch_and_never_a_byte() {
    [Matching::Max, Matching::Chunk].into_iter().for_each(damage_one_byte);
}

fn damage_one_byte(matching: Matching) {
    let mut halves = Halves::new(matching);
    let plain = noise(1, 30_000);
    assert_eq!(halves.cross(&plain), [&plain[..]]);
    halves.receiver.damage(12_345);
    assert_eq!(halves.cross(&plain), [&plain[..]]);
    assert_eq!((halves.receiver.stats().mismatches, halves.sender.stats().mismatches), (1, 1));
    assert_eq!(halves.sender.stats().resent, 1);
    // What the wrong block referred to is forgotten, and was learnt anew from the block sent again.
    assert_eq!(halves.cross(&plain), [&plain[..]]);
    assert_eq!(halves.receiver.stats().mismatches, 1);
}

#[test]
fn repeated_mismatches_start_a_new_epoch() {
    let mut halves = Halves::new(Matching::Max);
    let blocks: Vec<Vec<u8>> = (0..6).map(|seed| noise(seed, 20_000)).collect();
    blocks.iter().for_each(|block| drop(halves.cross(block)));
    let epoch = halves.sender.stats().epoch;
    for (n, block) in blocks.iter().enumerate().take(4) {
        halves.receiver.damage(n as u64 * 20_000 + 77);
        assert_eq!(halves.cross(block), [&block[..]]);
    }
    let started = std::iter::from_fn(|| halves.sender.poll_event())
        .filter(|event| matches!(event, SendEvent::LogStarts { start: LogStart::Anew { .. }, .. }))
        .count();
    assert_eq!((halves.sender.stats().epoch, started), (epoch + 1, 1));
    // References never cross epochs: what was in the old log comes as literals, once.
    let copied = halves.receiver.stats().copied;
    assert_eq!(halves.cross(&blocks[5]), [&blocks[5][..]]);
    assert_eq!(halves.receiver.stats().copied, copied);
    assert_eq!(halves.cross(&blocks[5]), [&blocks[5][..]]);
    assert!(halves.receiver.stats().copied > copied);
}

#[test]
fn wrong_blocks_of_a_past_epoch_start_no_other() {
    let mut halves = Halves::new(Matching::Max);
    let known = noise(1, 20_000);
    assert_eq!(halves.cross(&known), [&known[..]]);
    // Each copies from more places than are forgotten one by one.
    let block = |number: u64| {
        let pieces = known.chunks(1000).zip(0_u64..);
        pieces.flat_map(|(piece, at)| [&piece[..500], &noise(100 + 20 * number + at, 100)].concat()).collect()
    };
    let blocks: Vec<Vec<u8>> = (0..8).map(block).collect();
    let frames = blocks.iter().flat_map(|block| halves.send(block)).collect();
    (0..20).for_each(|piece| halves.receiver.damage(piece * 1000 + 250));
    let epoch = halves.sender.stats().epoch;
    assert_eq!(halves.talk(frames).len(), 8);
    assert_eq!(halves.receiver.stats().mismatches, 8);
    assert_eq!(halves.sender.stats().epoch, epoch + 1);
}

#[test]
fn failed_stream_begins_afresh_with_the_next_block() {
    let mut halves = Halves::new(Matching::Max);
    let mut on_the_wire = |seed, fails| {
        if fails {
            halves.sender.fail_stream(0);
        }
        // Half of each byte is always the same.
        let plain: Vec<u8> = noise(seed, 8000).into_iter().map(|byte| b'a' + byte % 16).collect();
        let (frame, mut delivered) = (halves.send(&plain), Vec::new());
        halves.receive(&frame, &mut delivered);
        assert_eq!(delivered, [&plain[..]]);
        frame.len()
    };
    let sent = [(1, false), (2, true), (3, false), (4, false)].map(|(seed, fails)| on_the_wire(seed, fails));
    assert_eq!(sent.map(|bytes| bytes < 5000), [true, false, true, true], "{sent:?}");
}

#[test]
fn chunks_with_equal_hashes_cost_one_repair_per_block() {
    for bits in [0, 4, 8, 12, 16] {
        let mut halves = Halves::new(Matching::Chunk);
        halves.sender.plant_collisions(bits);
        let blocks: Vec<Vec<u8>> = (0..60).map(|seed| noise(seed, 20_000)).collect();
        for block in blocks.iter().chain(&blocks) {
            assert_eq!(halves.cross(block), [&block[..]], "{bits} bits");
            halves.now += Now::from_secs(7);
        }
        let (sent, received) = (halves.sender.stats(), halves.receiver.stats());
        assert_eq!((sent.mismatches, sent.resent), (received.mismatches, received.mismatches), "{bits} bits");
        assert!((1..=120).contains(&sent.mismatches), "{} mismatches with {bits} bits", sent.mismatches);
    }
}

#[test]
fn mistaken_block_is_not_mistaken_again() {
    // With so many bits, some chunk of the short block looks like one of the long, and none like its neighbours.
    let mut halves = Halves::new(Matching::Chunk);
    halves.sender.plant_collisions(13);
    let (one, other) = (noise(1, 60_000), noise(2, 3_000));
    halves.cross(&one);
    assert_eq!(halves.cross(&other), [&other[..]]);
    assert_eq!(halves.sender.stats().mismatches, 1);
    let copied = halves.receiver.stats().copied;
    assert_eq!(halves.cross(&other), [&other[..]]);
    assert_eq!(halves.sender.stats().mismatches, 1);
    assert!(halves.receiver.stats().copied > copied + 2_900);
}

#[test]
fn sender_without_bytes_takes_below_a_quarter_of_memory() {
    let capacity = 8 << 20;
    let plan = Plan { matching: Matching::Chunk, entropy: Entropy::None, ..Plan::default() };
    let mut halves = Halves::with(plan, capacity);
    for seed in 0..140 {
        let block = noise(seed, 64 << 10);
        assert_eq!(halves.cross(&block), [&block[..]]);
    }
    let (sent, received) = (halves.sender.stats(), halves.receiver.stats());
    assert_eq!(received.log_used, capacity);
    let memory = sent.memory - sent.kept;
    assert!(memory <= received.log_used / 4, "{memory} of {}", received.log_used);
}

#[test]
fn max_match_without_bytes_is_done_by_chunk_match() {
    let mut halves = Halves::new(Matching::Chunk);
    halves.plan.matching = Matching::Max;
    let plain = noise(3, 30_000);
    halves.cross(&plain);
    assert_eq!(halves.cross(&plain), [&plain[..]]);
    assert_eq!(halves.receiver.stats().copied, 30_000);
}

#[test]
fn a_sender_without_bytes_judges_a_claim_by_its_samples() {
    let mut halves = Halves::new(Matching::Chunk);
    let blocks: Vec<Vec<u8>> = (0..6).map(|seed| noise(seed, 50_000)).collect();
    blocks.iter().for_each(|block| drop(halves.cross(block)));
    let claim = halves.receiver.claim().unwrap();
    assert!(claim.samples.len() > 3, "{claim:?}");
    assert_eq!(halves.reconnect(Some(claim.clone())), Some(300_000));
    let copied = halves.receiver.stats().copied;
    assert_eq!(halves.cross(&blocks[2]), [&blocks[2][..]]);
    assert_eq!(halves.receiver.stats().copied, copied + 50_000);
    // One sample that differs is enough, and so is one nobody could compare.
    let mut wrong = claim.clone();
    wrong.samples[1].digest ^= 1;
    assert_eq!(halves.reconnect(Some(wrong)), None);
    let mut halves = Halves::new(Matching::Chunk);
    blocks.iter().for_each(|block| drop(halves.cross(block)));
    let mut elsewhere = claim;
    elsewhere.samples.iter_mut().for_each(|sample| sample.start += 1);
    assert_eq!(halves.reconnect(Some(elsewhere)), None);
}

#[test]
fn sender_without_bytes_finds_its_saved_log() {
    let plan = Plan { matching: Matching::Chunk, entropy: Entropy::None, ..Plan::default() };
    let mut halves = Halves::with(plan, CAPACITY);
    let blocks: Vec<Vec<u8>> = (0..6).map(|seed| noise(seed, 50_000)).collect();
    let mut saved = SavedLog { epoch: 1, log: Log::new(CAPACITY as usize), ranges: RangeSet::default() };
    for (number, block) in blocks.iter().enumerate() {
        let start = number as u64 * 50_000;
        saved.log.write(LogOffset(start), block);
        saved.ranges.insert(start..start + 50_000);
        halves.cross(block);
    }
    halves.sender = Sender::with_log(sender_config(plan, CAPACITY), saved, &plan);
    let claim = halves.receiver.claim();
    assert_eq!(halves.reconnect(claim), Some(300_000));
    let copied = halves.receiver.stats().copied;
    for block in &blocks {
        assert_eq!(halves.cross(block), [&block[..]]);
    }
    // Saved bytes are cut into chunks anew from the beginning of each piece, not of each block.
    let copied = halves.receiver.stats().copied - copied;
    assert!(copied > 290_000, "{copied}");
    let memory = halves.sender.stats().memory - halves.sender.stats().kept;
    assert!(memory < CAPACITY / 3, "{memory}");
}

/// A block of flow 2 beginning at `offset`.
fn payload(plan: Plan, offset: u64, plain: &[u8]) -> Payload {
    Payload {
        flow: FlowId(2),
        offset,
        plain: Bytes::copy_from_slice(plain),
        fin: false,
        plan: Some(plan),
        parts: Parts::default(),
    }
}

#[test]
fn repeat_from_a_lost_lane_crosses_again_as_small() {
    for matching in [Matching::Max, Matching::Chunk] {
        let mut halves = Halves::new(matching);
        let (plain, lane) = (noise(4, 60_000), LaneId(2));
        halves.cross(&plain);
        let (mut lost, mut again) = (Vec::new(), Vec::new());
        halves.sender.handle_payload(payload(halves.plan, 0, &plain), lane, halves.now, &mut lost);
        halves.sender.handle_lane_lost(lane);
        assert!(halves.sender.pending(FlowId(2)).lost);
        assert!(halves.sender.poll_repair(Repair::Lost(FlowId(2), LANE), &mut again));
        // Chunk-Match has a token for each chunk, and the ends of a block are in none.
        assert!(again.len() < 4_000 && again.len() < lost.len() + 30, "{} after {}", again.len(), lost.len());
        let mut delivered = Vec::new();
        halves.receive(&again, &mut delivered);
        // What was on the lost lane comes late.
        halves.receive(&lost, &mut delivered);
        assert_eq!(delivered, [&plain[..]]);
        assert_eq!((halves.sender.stats().resent, halves.receiver.stats().duplicates), (1, 1));
    }
}

#[test]
fn continued_repeat_is_one_block_under_any_limit() {
    let mut halves = Halves::new(Matching::Max);
    let (plan, now, most) = (halves.plan, halves.now, 4096);
    let mut plain = noise(5, 60_000);
    halves.cross(&plain);
    plain[40_000] ^= 1;
    let end = |sender: &mut Sender, from: usize| {
        from + sender.cut(FlowId(2), &plan, &plain[from..], Tail::EndOfStream, most, now).len
    };
    assert_eq!(end(&mut halves.sender, 0), most, "nothing is known of the flow");
    halves.sender.handle_payload(payload(plan, 0, &plain[..most]), LANE, now, &mut Vec::new());
    assert_eq!(end(&mut halves.sender, most), 40_000);
    let repeat = payload(plan, most as u64, &plain[most..40_000]);
    halves.sender.handle_payload(repeat, LANE, now, &mut Vec::new());
    assert_eq!(end(&mut halves.sender, 40_000), 40_000 + most, "an edit");
}

#[test]
fn bytes_in_a_released_shrunk_log_are_not_sources() {
    let mut halves = Halves::new(Matching::Max);
    let blocks: Vec<Vec<u8>> = (0..8).map(|seed| noise(seed, 50_000)).collect();
    let mut saved = SavedLog { epoch: 1, log: Log::new(CAPACITY as usize), ranges: RangeSet::default() };
    for (number, block) in blocks.iter().enumerate() {
        if number == 3 {
            assert!(halves.sender.release_log());
        }
        if number < 3 {
            let start = number as u64 * 50_000;
            saved.log.write(LogOffset(start), block);
            saved.ranges.insert(start..start + 50_000);
        }
        halves.cross(block);
    }
    [20_000, CAPACITY].into_iter().for_each(|limit| halves.sender.set_limit(limit, halves.now));
    let config = sender_config(halves.plan, CAPACITY);
    halves.sender.restore_log(Some(PreparedLog::new(&config, saved, &halves.plan)));
    for block in blocks.iter().rev() {
        assert_eq!(halves.cross(block), [&block[..]]);
    }
    let stats = halves.receiver.stats();
    assert_eq!(stats.mismatches, 0);
    assert!(stats.copied > 160_000, "{}", stats.copied);
}

#[test]
fn requests_for_wrong_blocks_are_bounded_until_they_leave() {
    let mut halves = Halves::new(Matching::Max);
    let wrong = PeerSender {
        capacity: CAPACITY,
        max_in_flight: CAPACITY,
        digest_seed: SEED + 1,
        names: None,
        strong: StrongKind::default(),
        continues: false,
        probe: None,
    };
    halves.receiver.handle_peer(wrong);
    let (blocks, mut out, mut delivered) = (5000_u64, Vec::new(), Vec::new());
    for number in 0..blocks {
        // Longer than what crosses uncoded, and without repeats.
        let plain: Vec<u8> = (1..=8_u64)
            .flat_map(|n| (number + n).wrapping_mul(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(n)).to_le_bytes())
            .collect();
        let offset = number * plain.len() as u64;
        halves.sender.handle_payload(payload(halves.plan, offset, &plain), LANE, halves.now, &mut out);
    }
    halves.receive(&out, &mut delivered);
    assert!(delivered.is_empty());
    let mut asked = BTreeSet::new();
    let mut first = 0;
    while (asked.len() as u64) < blocks {
        let (mut feedback, mut count) = (Vec::new(), 0);
        halves.receiver.poll_frame(true, &mut feedback);
        let mut rest = &feedback[..];
        while let Some((kind, body, used)) = take_frame(rest).unwrap() {
            if let Frame::Refetch(refetch) = Frame::decode(kind, body).unwrap() {
                count += refetch.seqs.len();
                asked.extend(refetch.seqs);
            }
            rest = &rest[used..];
        }
        first = if first == 0 { count } else { first };
        let next = halves.receiver.poll_timeout().expect("what found no room is asked for later");
        halves.receiver.handle_timeout(next.max(halves.now));
    }
    assert!((1..=4096).contains(&first), "{first} at once");
}

#[test]
fn flow_back_on_its_lane_is_compressed_again() {
    let mut halves = Halves::new(Matching::Max);
    let text = |number: u32| -> Vec<u8> {
        (0..1500u32).flat_map(|i| format!("{:x} ", i.wrapping_mul(number * 7919)).into_bytes()).collect()
    };
    let mut send = |plain: &[u8], lane| {
        let mut out = Vec::new();
        halves.sender.handle_payload(payload(halves.plan, halves.offset, plain), lane, halves.now, &mut out);
        halves.offset += plain.len() as u64;
        out.len()
    };
    send(&text(1), LANE);
    // Too short to be compressed, where the context would begin afresh.
    send(b"a key", LaneId(2));
    for number in 2..5 {
        let plain = text(number);
        let sent = send(&plain, LANE);
        assert!(sent * 4 < plain.len() * 3, "{sent} of {}", plain.len());
    }
}

#[test]
fn mismatch_resent_after_a_lost_lane_counts_once() {
    let mut halves = Halves::new(Matching::Max);
    let plain = noise(1, 20_000);
    halves.cross(&plain);
    halves.receiver.damage(5000);
    let (mut out, mut delivered) = (Vec::new(), Vec::new());
    halves.sender.handle_payload(payload(halves.plan, halves.offset, &plain), LANE, halves.now, &mut out);
    halves.receive(&out, &mut delivered);
    assert!(delivered.is_empty());
    for _ in 0..2 {
        // It leaves, and is lost as far as the receiving half knows; so is the block.
        let mut feedback = Vec::new();
        halves.receiver.poll_frame(true, &mut feedback);
        halves.receiver.resend_control_state(halves.now);
        halves.receiver.handle_timeout(halves.now);
        feedback.clear();
        halves.receiver.poll_frame(true, &mut feedback);
        halves.answer(&feedback, &mut Vec::new());
    }
    assert_eq!(halves.sender.stats().mismatches, 1);
    halves.sender.handle_lane_lost(LANE);
    // What was copied wrongly is not sent in the same words.
    let mut out = Vec::new();
    assert!(halves.sender.poll_repair(Repair::Lost(FlowId(2), LANE), &mut out));
    assert!(out.len() > 20_000, "{}", out.len());
    halves.receive(&out, &mut delivered);
    assert_eq!(delivered, [plain]);
}

#[test]
fn late_block_leaves_the_context_to_its_new_flow() {
    let mut halves = Halves::new(Matching::Max);
    let text = |number: u32| -> Vec<u8> {
        (0..1500u32).flat_map(|i| format!("{:x} ", i.wrapping_mul(number * 7919)).into_bytes()).collect()
    };
    let send = |halves: &mut Halves, flow: u32, offset: usize, plain: &[u8], lane| {
        let block = payload(halves.plan, offset as u64, plain);
        let mut out = Vec::new();
        let block = Payload { flow: FlowId(flow), ..block };
        halves.sender.handle_payload(block, lane, halves.now, &mut out);
        out
    };
    let [slow, fast, other] = [1, 2, 3].map(LaneId);
    // There are two contexts; each flow starts one.
    let late = send(&mut halves, 1, 0, &text(1), slow);
    let second = send(&mut halves, 2, 0, &text(2), other);
    let mut delivered = Vec::new();
    halves.receive_on(other, &second, &mut delivered);
    // The first flow's block is asked for, and its repair is there before it.
    let refetch = Refetch { reason: RefetchReason::Missing, seqs: vec![0] };
    halves.sender.handle_feedback(Feedback::Refetch(refetch), halves.now).unwrap();
    let mut repair = Vec::new();
    assert!(halves.sender.poll_repair(Repair::Block, &mut repair));
    halves.receive_on(other, &repair, &mut delivered);
    let mut feedback = Vec::new();
    halves.receiver.poll_frame(true, &mut feedback);
    halves.answer(&feedback, &mut Vec::new());
    // A third one has its context from now on.
    halves.sender.finish_flow(FlowId(1));
    let begun = send(&mut halves, 3, 0, &text(3), fast);
    halves.receive_on(fast, &begun, &mut delivered);
    halves.receive_on(slow, &late, &mut delivered);
    let next = send(&mut halves, 3, text(3).len(), &text(4), fast);
    assert!(next.len() * 4 < text(4).len() * 3, "{}", next.len());
    halves.receive_on(fast, &next, &mut delivered);
    assert_eq!(delivered, [text(2), text(1), text(3), text(4)]);
    assert_eq!(halves.receiver.stats().refetched, 0);
}
