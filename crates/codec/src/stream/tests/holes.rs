//! What one end lost of a log is not referred to, and costs no more than itself.

use super::verify::{CAPACITY, Halves, SEED, noise, sender_config};
use crate::contract::{Decoder, DecoderLog as _, EncoderLog as _, SavedLog};
use crate::entropy::Entropy;
use crate::log::{Log, LogOffset, RangeSet};
use crate::stream::{PreparedLog, Receiver, ReceiverConfig, Sender};
use crate::verify::digest::block_digest;
use crate::wire::{Block, BlockBody, Body, Digest, FlowId, LaneId, MAX_CLAIMED, MAX_LOG_NUMBER};
use crate::{Matching, Now, Plan};

fn plan() -> Plan {
    Plan { entropy: Entropy::None, matching: Matching::Max, ..Plan::default() }
}

/// What the disk has of a log of these blocks, but for those skipped.
fn saved(blocks: &[Vec<u8>], is_skipped: impl Fn(usize) -> bool) -> SavedLog {
    let mut saved = SavedLog { epoch: 1, log: Log::new(CAPACITY as usize), ranges: RangeSet::default() };
    let mut start = 0;
    for (number, block) in blocks.iter().enumerate() {
        let end = start + block.len() as u64;
        if !is_skipped(number) {
            saved.log.write(LogOffset(start), block);
            saved.ranges.insert(start..end);
        }
        start = end;
    }
    saved
}

/// Two halves that have these blocks in their logs.
fn halves(blocks: &[Vec<u8>]) -> Halves {
    let mut halves = Halves::with(plan(), CAPACITY);
    for block in blocks {
        assert_eq!(halves.cross(block), [&block[..]]);
    }
    halves
}

fn blocks() -> Vec<Vec<u8>> {
    (0..8).map(|seed| noise(seed, 50_000)).collect()
}

fn restart_sender(halves: &mut Halves, saved: SavedLog) -> Option<u64> {
    halves.sender = Sender::with_log(sender_config(plan(), CAPACITY), saved, &plan());
    let claim = halves.receiver.claim();
    halves.reconnect(claim)
}

fn receiver_config() -> ReceiverConfig {
    ReceiverConfig {
        capacity: CAPACITY,
        max_in_flight: CAPACITY / 4,
        contexts: 2,
        digest_seed: SEED,
        persist: false,
        store: false,
    }
}

#[test]
fn hole_at_the_receiver_outlives_released_logs() {
    let blocks = blocks();
    let mut halves = halves(&blocks);
    halves.receiver = Receiver::with_log(receiver_config(), saved(&blocks, |number| number >= 6));
    let claim = halves.receiver.claim();
    assert_eq!(halves.reconnect(claim), Some(300_000));
    assert!(halves.sender.release_log());
    let news = noise(50, 40_000);
    assert_eq!(halves.cross(&news), [&news[..]]);
    let saved = saved(&blocks, |_| false);
    halves.sender.restore_log(Some(PreparedLog::new(&sender_config(plan(), CAPACITY), saved, &plan())));
    // Neither is it referred to nor asked for, and what is remembered anew is found.
    for block in [&blocks[7], &blocks[6], &blocks[7]] {
        assert_eq!(halves.cross(block), [&block[..]]);
    }
    let stats = halves.receiver.stats();
    assert_eq!((stats.waited, stats.refetched, stats.copied), (0, 0, 50_000));
}

#[test]
fn lower_memory_for_a_while_keeps_the_log_at_restart() {
    let blocks = blocks();
    let mut halves = halves(&blocks);
    // The receiver hears of the last word only.
    [100_000, CAPACITY].into_iter().for_each(|limit| halves.sender.set_limit(limit, halves.now));
    let claim = halves.receiver.claim();
    let warm = halves.reconnect(claim);
    assert!(warm.is_some_and(|bytes| (100_000..400_000).contains(&bytes)), "{warm:?}");
    for block in blocks.iter().rev() {
        assert_eq!(halves.cross(block), [&block[..]]);
    }
    let stats = halves.receiver.stats();
    assert_eq!((stats.waited, stats.refetched, stats.mismatches), (0, 0, 0));
    assert!(stats.copied >= 99_000, "{}", stats.copied);
}

#[test]
fn gaps_on_disk_stay_each_time_a_log_returns() {
    let blocks = blocks();
    let mut halves = halves(&blocks);
    for _ in 0..10 {
        assert!(halves.sender.release_log());
        let saved = saved(&blocks, |number| number % 2 == 1);
        halves.sender.restore_log(Some(PreparedLog::new(&sender_config(plan(), CAPACITY), saved, &plan())));
    }
    assert_eq!(halves.sender.holes(), [1, 3, 5, 7].map(|number| number * 50_000..(number + 1) * 50_000));
    for (number, block) in blocks.iter().enumerate() {
        let before = halves.receiver.stats().copied;
        assert_eq!(halves.cross(block), [&block[..]]);
        let copied = halves.receiver.stats().copied - before;
        assert!(if number % 2 == 1 { copied == 0 } else { copied > 49_000 }, "block {number}: {copied}");
    }
}

#[test]
fn hole_in_the_senders_saved_log_costs_itself_only() {
    let blocks = blocks();
    let mut halves = halves(&blocks);
    assert_eq!(restart_sender(&mut halves, saved(&blocks, |number| number == 4)), Some(400_000));
    for block in &blocks {
        assert_eq!(halves.cross(block), [&block[..]]);
    }
    let stats = halves.receiver.stats();
    assert_eq!((stats.waited, stats.refetched, stats.mismatches), (0, 0, 0));
    assert!((349_000..=350_000).contains(&stats.copied), "{}", stats.copied);
}

#[test]
fn hole_in_the_receivers_saved_log_leaves_the_longest_piece() {
    let blocks = blocks();
    let mut halves = halves(&blocks);
    halves.receiver = Receiver::with_log(receiver_config(), saved(&blocks, |number| number == 2));
    let claim = halves.receiver.claim();
    assert_eq!(halves.reconnect(claim), Some(250_000));
    for (number, block) in blocks.iter().enumerate().rev() {
        let before = halves.receiver.stats().copied;
        assert_eq!(halves.cross(block), [&block[..]]);
        let copied = halves.receiver.stats().copied - before;
        assert!(if number < 3 { copied == 0 } else { copied > 49_000 }, "block {number}: {copied}");
    }
    let stats = halves.receiver.stats();
    assert_eq!((stats.waited, stats.refetched, stats.mismatches), (0, 0, 0));
}

#[test]
fn range_lacking_unknown_to_the_sender_is_waited_for_once() {
    let blocks = blocks();
    let mut halves = halves(&blocks);
    let claim = halves.receiver.claim();
    halves.receiver = Receiver::with_log(receiver_config(), saved(&blocks, |number| number == 3));
    assert_eq!(halves.reconnect(claim), Some(400_000));
    // The second one waits for the same, and is not the oldest that does.
    let shorter = &blocks[3][..40_000];
    assert!(halves.cross(&blocks[3]).is_empty() && halves.cross(shorter).is_empty());
    let came = halves.pass(Now::from_secs(1));
    assert!(came == [&blocks[3], shorter], "{} of two came", came.len());
    assert_eq!(halves.receiver.stats().refetched, 2);
    // What lies below it was given up with it, and is found again once it was remembered anew.
    for block in [&blocks[3], &blocks[3], &blocks[6], &blocks[2], &blocks[2]] {
        assert_eq!(halves.cross(block), [&block[..]]);
    }
    let stats = halves.receiver.stats();
    assert_eq!((stats.waited, stats.refetched), (2, 2));
    assert!(stats.copied >= 149_000, "{}", stats.copied);
}

#[test]
fn range_under_way_is_not_given_up() {
    let blocks = blocks();
    let mut halves = halves(&blocks);
    let news = noise(70, 50_000);
    halves.send(&news);
    assert!(halves.cross(&news).is_empty());
    assert!(halves.pass(Now::from_secs(1)) == [&news, &news]);
    assert_eq!(halves.cross(&blocks[0]), [&blocks[0][..]]);
    let stats = halves.receiver.stats();
    assert_eq!((stats.given_up, stats.refetched), (0, 0));
    assert!(stats.copied >= 99_000, "{}", stats.copied);
}

#[test]
fn loss_at_one_end_outlives_the_others_restart() {
    let blocks = blocks();
    let mut halves = halves(&blocks);
    assert_eq!(restart_sender(&mut halves, saved(&blocks, |number| number >= 6)), Some(300_000));
    for seed in 20..24 {
        let block = noise(seed, 50_000);
        assert_eq!(halves.cross(&block), [&block[..]]);
    }
    let claim = halves.receiver.claim();
    assert_eq!(halves.reconnect(claim), Some(600_000));
    let copied = halves.receiver.stats().copied;
    assert_eq!(halves.cross(&blocks[7]), [&blocks[7][..]]);
    assert_eq!(halves.receiver.stats().copied, copied, "a hole is still one");
}

#[test]
fn later_bytes_are_not_of_a_new_peers_equal_epoch() {
    let mut halves = halves(&(0..40).map(|seed| noise(seed, 50_000)).collect::<Vec<_>>());
    // Behind the claim the peer begins anew, at an offset far ahead, and restarts with nothing.
    let claim = halves.receiver.claim();
    halves.sender.clear_log();
    let straggler = halves.send(&noise(99, 50_000));
    halves.receive(&straggler, &mut Vec::new());
    halves.sender = Sender::new(sender_config(plan(), CAPACITY));
    assert_eq!(halves.reconnect(claim), None);
    let block = noise(100, 50_000);
    for _ in 0..10 {
        assert_eq!(halves.cross(&block), [&block[..]]);
    }
    let stats = halves.receiver.stats();
    assert_eq!((stats.overwritten, stats.waited, stats.mismatches), (0, 0, 0));
    assert_eq!(stats.copied, 9 * 50_000);
}

#[test]
fn claim_without_comparable_samples_is_not_believed() {
    // Samples are 4 KiB at each 64 KiB: the whole loss.
    let blocks: Vec<Vec<u8>> =
        (0..12).map(|seed| noise(seed, if seed % 2 == 0 { 4 << 10 } else { 60 << 10 })).collect();
    let mut halves = halves(&blocks);
    assert_eq!(restart_sender(&mut halves, saved(&blocks, |number| number % 2 == 0)), None);
    assert_eq!(halves.cross(&blocks[1]), [&blocks[1][..]]);
}

#[test]
fn log_without_room_to_go_on_is_not_claimed() {
    for (epoch, start, is_claimed) in [
        (1, 0, true),
        (MAX_CLAIMED, MAX_CLAIMED - 1000, true),
        (MAX_CLAIMED + 1, 0, false),
        (1, MAX_CLAIMED - 999, false),
        (MAX_LOG_NUMBER, MAX_LOG_NUMBER, false),
    ] {
        let mut receiver = Receiver::new(receiver_config());
        let plain = noise(1, 1000);
        let body = Body {
            epoch,
            start,
            remembered: true,
            keep: false,
            names: Vec::new(),
            digest: Digest::Fast(block_digest(SEED, epoch, &plain)),
            tokens: None,
            literals: plain.len(),
            entropy: None,
            bytes: &plain,
        };
        let (flow, plain_len, body) = (FlowId(1), plain.len(), BlockBody::Coded(body));
        let block = Block { seq: 0, flow, offset: 0, plain_len, fin: false, resent: false, body };
        receiver.handle_block(block, LaneId(1), Now::ZERO).unwrap();
        assert_eq!(receiver.claim().is_some(), is_claimed, "epoch {epoch}, start {start}");
    }
}
