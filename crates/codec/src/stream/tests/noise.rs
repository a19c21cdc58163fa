//! Content pushed out of a log by noise, and content kept.

use bytes::Bytes;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

use crate::contract::{Encoder, Feedback, Parts, Payload, SavedLog};
use crate::entropy::Entropy;
use crate::log::{Log, LogOffset, RangeSet};
use crate::stream::{Sender, SenderConfig};
use crate::wire::{Ack, FlowId, LaneId, MAX_BLOCK};
use crate::{Matching, Now, Plan};

const CAPACITY: usize = 4 << 20;

fn config() -> SenderConfig {
    SenderConfig {
        capacity: CAPACITY as u64,
        max_in_flight: None,
        entropy: Entropy::None,
        contexts: 1,
        params: Default::default(),
        keeps_bytes: true,
        digest_seed: 5,
        persist: false,
        names: None,
    }
}

/// As a log of 64 MiB, with a sixteenth as headroom.
fn scaled(mut sender: Sender) -> Sender {
    sender.set_least_in_flight(CAPACITY as u64 / 16);
    sender
}

fn plan(matching: Matching) -> Plan {
    Plan { entropy: Entropy::None, matching, ..Plan::default() }
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Pcg64Mcg::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}

/// Words in random order, of which no two lines are equal.
fn text(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let mut bytes = Vec::with_capacity(len + 16);
    while bytes.len() < len {
        let word = rng.next_u64() % 50_000;
        bytes.extend(
            (0..4 + word % 5).map(|n| b'a' + (word.wrapping_mul(2_654_435_761) >> (5 * n)) as u8 % 26),
        );
        bytes.push(b' ');
    }
    bytes.truncate(len);
    bytes
}

/// Sends bytes as a flow of their own, each block acknowledged at once; returns the part of them copied, in
/// thousandths.
fn send(sender: &mut Sender, bytes: &[u8], matching: Matching) -> u64 {
    let before = sender.stats();
    let flow = FlowId(before.blocks as u32);
    for block in bytes.chunks(MAX_BLOCK) {
        let plain = Bytes::copy_from_slice(block);
        let payload = Payload {
            flow,
            offset: 0,
            plain,
            fin: false,
            plan: Some(plan(matching)),
            parts: Parts::default(),
        };
        sender.handle_payload(payload, LaneId(1), Now::ZERO, &mut Vec::new());
        let ack = Ack { next: sender.stats().blocks, ranges: Vec::new() };
        sender.handle_feedback(Feedback::Ack(ack), Now::ZERO).unwrap();
    }
    (sender.stats().copied - before.copied) * 1000 / bytes.len() as u64
}

/// A part of the log's capacity, in hundredths.
fn part(hundredths: usize) -> usize {
    CAPACITY / 100 * hundredths
}

#[test]
fn text_outlives_noise_of_one_and_a_half_logs() {
    for matching in [Matching::Max, Matching::Chunk] {
        let mut sender = scaled(Sender::new(config()));
        let page = text(1, part(22));
        send(&mut sender, &page, matching);
        send(&mut sender, &noise(2, part(150)), matching);
        let copied = send(&mut sender, &page, matching);
        assert!(copied > 950, "{copied} with {matching}");
        // What was copied holds back noise without end, if it is copied now and then.
        for seed in 3..9 {
            send(&mut sender, &noise(seed, part(150)), matching);
            let copied = send(&mut sender, &page, matching);
            assert!(copied > 900, "{copied} with {matching}, seed {seed}");
        }
        assert!(sender.stats().noise_left_out > 5 * CAPACITY as u64);
    }
}

#[test]
fn archive_or_film_is_saved_whole_at_its_second_crossing() {
    for matching in [Matching::Max, Matching::Chunk] {
        for size in [80, 90] {
            let mut sender = scaled(Sender::new(config()));
            // What was there before was noise, too.
            send(&mut sender, &noise(1, part(130)), matching);
            let film = noise(2, part(size));
            send(&mut sender, &film, matching);
            let copied = send(&mut sender, &film, matching);
            assert!(copied > 990, "{copied} of {size} hundredths with {matching}");
            assert_eq!(sender.stats().noise_left_out, 0);
        }
    }
}

#[test]
fn film_in_a_log_of_text_is_mostly_saved() {
    for matching in [Matching::Max, Matching::Chunk] {
        let mut sender = scaled(Sender::new(config()));
        send(&mut sender, &text(1, part(130)), matching);
        let film = noise(2, part(90));
        send(&mut sender, &film, matching);
        let second = send(&mut sender, &film, matching);
        assert!((750..900).contains(&second), "{second} with {matching}");
        let third = send(&mut sender, &film, matching);
        assert!(third > 990, "{third} with {matching}");
    }
}

#[test]
fn text_found_on_disk_outlives_noise() {
    let page = text(1, part(22));
    let mut log = Log::new(CAPACITY);
    let mut ranges = RangeSet::default();
    log.write(LogOffset(0), &page);
    ranges.insert(0..page.len() as u64);
    let saved = SavedLog { epoch: 3, log, ranges };
    let mut sender = scaled(Sender::with_log(config(), saved, &plan(Matching::Max)));
    send(&mut sender, &noise(2, part(150)), Matching::Max);
    let copied = send(&mut sender, &page, Matching::Max);
    assert!(copied > 950, "{copied}");
}

#[test]
fn mix_below_three_quarters_of_noise_is_remembered_whole() {
    let mut sender = scaled(Sender::new(config()));
    for n in 0..60 {
        send(&mut sender, &noise(n, part(7)), Matching::Max);
        send(&mut sender, &text(n, part(3)), Matching::Max);
    }
    assert_eq!(sender.stats().noise_left_out, 0);
}
