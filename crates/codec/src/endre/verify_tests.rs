//! The verify gate: what is rebuilt wrongly is counted, fetched again, and never delivered.

use bytes::Bytes;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

use super::{Receiver, ReceiverConfig, Sender, SenderConfig};
use crate::contract::{Delivery, Feedback, Payload, ReceivingHalf, SendEvent, SendingHalf};
use crate::entropy::Entropy;
use crate::wire::{FlowId, Frame, LaneId, take_frame};
use crate::{Now, Plan};

const CAPACITY: u64 = 1 << 20;
const LANE: LaneId = LaneId(1);

struct Halves {
    sender: Sender,
    receiver: Receiver,
    offset: u64,
    now: Now,
}

impl Halves {
    fn new() -> Self {
        let params = Default::default();
        let (capacity, contexts, digest_seed, persist) = (CAPACITY, 2, 5, false);
        let entropy = Entropy::Zstd(1);
        let max_in_flight = None;
        Self {
            sender: Sender::new(SenderConfig {
                capacity,
                max_in_flight,
                entropy,
                contexts,
                params,
                digest_seed,
                persist,
            }),
            receiver: Receiver::new(ReceiverConfig {
                capacity,
                max_in_flight: CAPACITY / 4,
                contexts,
                digest_seed,
                persist,
            }),
            offset: 0,
            now: Now::from_secs(1),
        }
    }

    /// Sends a block and lets both sides say all they have to; returns what was delivered.
    fn cross(&mut self, plain: &[u8]) -> Vec<Bytes> {
        let payload = Payload {
            flow: FlowId(1),
            offset: self.offset,
            plain: Bytes::copy_from_slice(plain),
            fin: false,
            plan: Some(Plan { entropy: Entropy::Zstd(1), ..Plan::default() }),
        };
        self.offset += plain.len() as u64;
        let mut out = Vec::new();
        self.sender.handle_payload(payload, LANE, self.now, &mut out);
        let mut delivered = Vec::new();
        while !out.is_empty() {
            self.receive(&out, &mut delivered);
            out.clear();
            let mut feedback = Vec::new();
            self.receiver.poll_frame(true, &mut feedback);
            self.answer(&feedback, &mut out);
        }
        delivered
    }

    fn receive(&mut self, mut frames: &[u8], delivered: &mut Vec<Bytes>) {
        while let Some((kind, body, used)) = take_frame(frames).unwrap() {
            let Frame::Block(block) = Frame::decode(kind, body).unwrap() else { panic!("not a block") };
            self.receiver.handle_block(block, LANE, self.now).unwrap();
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
                Frame::Refetch(refetch) => Feedback::Refetch(refetch),
                other => panic!("unexpected {other:?}"),
            };
            self.sender.handle_frame(feedback, self.now).unwrap();
            frames = &frames[used..];
        }
        while self.sender.poll_repair(out) {}
    }
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    (0..len).map(|_| (rng.next_u64() >> 9) as u8).collect()
}

#[test]
fn a_damaged_log_costs_a_refetch_and_never_a_wrong_byte() {
    let mut halves = Halves::new();
    let plain = noise(1, 30_000);
    assert_eq!(halves.cross(&plain), [&plain[..]]);
    halves.receiver.damage(12_345);
    assert_eq!(halves.cross(&plain), [&plain[..]]);
    assert_eq!((halves.receiver.stats().mismatches, halves.sender.stats().mismatches), (1, 1));
    assert_eq!(halves.sender.stats().resent, 1);
    // What the wrong block referred to is forgotten, and was learnt anew from the block that was sent again.
    assert_eq!(halves.cross(&plain), [&plain[..]]);
    assert_eq!(halves.receiver.stats().mismatches, 1);
}

#[test]
fn repeated_mismatches_start_a_new_epoch() {
    let mut halves = Halves::new();
    let blocks: Vec<Vec<u8>> = (0..6).map(|seed| noise(seed, 20_000)).collect();
    blocks.iter().for_each(|block| drop(halves.cross(block)));
    let epoch = halves.sender.stats().epoch;
    for (n, block) in blocks.iter().enumerate().take(4) {
        halves.receiver.damage(n as u64 * 20_000 + 77);
        assert_eq!(halves.cross(block), [&block[..]]);
    }
    let started = std::iter::from_fn(|| halves.sender.poll_event())
        .filter(|event| matches!(event, SendEvent::NewEpoch { .. }))
        .count();
    assert_eq!((halves.sender.stats().epoch, started), (epoch + 1, 1));
    // References never cross epochs: what was in the old log comes as literals, once.
    let copied = halves.receiver.stats().copied;
    assert_eq!(halves.cross(&blocks[5]), [&blocks[5][..]]);
    assert_eq!(halves.receiver.stats().copied, copied);
    assert_eq!(halves.cross(&blocks[5]), [&blocks[5][..]]);
    assert!(halves.receiver.stats().copied > copied);
}
