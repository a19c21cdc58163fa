//! Many mistaken blocks: their cost, and the content not relied on any more.

use super::*;
use crate::wire::MAX_RANGES;

/// Halves with so many blocks under way that name chunks by short tags and copy from a dozen places of the log.
fn under_way(blocks: usize) -> (Halves, Vec<u64>) {
    let (old, new) = (noise(4, 200_000), noise(6, 100_000));
    let mut halves = Halves::new(SHORT_BELOW);
    halves.plan.layers = Layers::Both;
    halves.cross(&old);
    halves.cross(&noise(5, 1 << 20));
    halves.cross(&new);
    let first = halves.sender.stats().blocks;
    for number in 0..blocks {
        let from = number * 131 % 190_000;
        let mut plain = old[from..from + 5000].to_vec();
        (0..12)
            .for_each(|piece| plain.extend_from_slice(&new[(piece * 7919 + number * 17) % 99_000..][..300]));
        halves.send(plain);
    }
    let seqs = first..halves.sender.stats().blocks;
    (halves, seqs.collect())
}

#[test]
fn mistaken_blocks_with_tags_and_copies_begin_one_epoch() {
    for blocks in [600, 6000] {
        let (mut halves, seqs) = under_way(blocks);
        assert_eq!(halves.epochs(), 0);
        let (before, mut bytes) = (halves.sender.stats(), Vec::new());
        for seqs in seqs.chunks(MAX_RANGES) {
            let refetch = Refetch { reason: RefetchReason::Mismatch, seqs: seqs.to_vec() };
            Frame::Refetch(refetch.clone()).encode(&mut bytes);
            halves.sender.handle_feedback(Feedback::Refetch(refetch), halves.now).unwrap();
        }
        let after = halves.sender.stats();
        assert_eq!(after.mismatches - before.mismatches, blocks as u64);
        assert_eq!((halves.epochs(), halves.sender.holes().len()), (1, 0), "{blocks} blocks");
        let steps = after.steps - before.steps;
        assert!(steps <= 64 * bytes.len() as u64, "{steps} steps for {} bytes", bytes.len());
    }
}

#[test]
fn few_mistaken_blocks_lose_their_sources_not_the_epoch() {
    let (mut halves, seqs) = under_way(2);
    for seq in seqs {
        let refetch = Refetch { reason: RefetchReason::Mismatch, seqs: vec![seq] };
        halves.sender.handle_feedback(Feedback::Refetch(refetch), halves.now).unwrap();
    }
    assert_eq!(halves.epochs(), 0);
    let holes = halves.sender.holes();
    assert!((2..=32).contains(&holes.len()), "{holes:?}");
}

#[test]
fn needed_range_is_looked_up_once_for_many_requests() {
    for times in [100, 1000] {
        let mut halves = Halves::new(0);
        halves.plan.layers = Layers::Log;
        let blocks = 2000;
        (0..blocks).for_each(|seed| drop(halves.send(noise(seed, 60))));
        let before = halves.sender.stats().steps;
        for _ in 0..times {
            let all = std::iter::once(0..1 << 40).collect();
            halves.sender.handle_feedback(Feedback::Need(all), halves.now).unwrap();
        }
        assert!(halves.sender.load().has_repairs);
        let mut out = Vec::new();
        let repairs =
            std::iter::from_fn(|| halves.sender.poll_repair(Repair::Block, &mut out).then_some(())).count();
        assert_eq!(repairs as u64, blocks);
        let steps = halves.sender.stats().steps - before;
        assert!(steps <= times + blocks + 30, "{steps} steps for {times} frames");
    }
}
