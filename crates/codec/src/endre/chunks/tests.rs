//! What chunks find, miss and cost.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

use super::*;
use crate::{Matching, Plan};

/// A log, the table of it, and where its head is.
struct World {
    log: Log,
    chunks: ChunkMatch,
    head: LogOffset,
}

impl World {
    fn new(capacity: u64, period: usize) -> Self {
        let params = MatchParams { period, ..MatchParams::default() };
        let mut chunks = ChunkMatch::new(capacity, params, 7);
        let plan = Plan { matching: Matching::Chunk, period: period as u32, ..Plan::default() };
        chunks.set_markers(plan.effective_markers(), period, params.sample);
        Self { log: Log::new(capacity as usize), chunks, head: LogOffset(1000) }
    }

    /// Finds what it can of a block; every copy is checked against the log.
    fn find(&mut self, block: &[u8], floor: LogOffset) -> Vec<Copy> {
        let mut copies = Vec::new();
        self.chunks.find(&Search { block, at: self.head, floor, lasting: floor, hint: None }, &mut copies);
        let mut end = 0;
        for copy in &copies {
            assert!(copy.at as usize >= end && copy.source >= floor && copy.source_end() <= self.head);
            end = copy.end();
            let mut bytes = Vec::new();
            self.log.copy_to(copy.source, copy.len as usize, &mut bytes);
            assert_eq!(bytes, block[copy.at as usize..end]);
        }
        copies
    }

    /// Sends a block and returns how many bytes of it were copied, in how many copies.
    fn send(&mut self, block: &[u8]) -> (usize, usize) {
        let copies = self.find(block, LogOffset::ZERO);
        self.log.write(self.head, block);
        self.chunks.remember(self.head);
        self.head = self.head.plus(block.len() as u64);
        (copies.iter().map(|copy| copy.len as usize).sum(), copies.len())
    }

    fn send_all(&mut self, bytes: &[u8]) -> (usize, usize) {
        let parts = bytes.chunks(65_536).map(|block| self.send(block));
        parts.fold((0, 0), |sum, part| (sum.0 + part.0, sum.1 + part.1))
    }
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    (0..len).map(|_| (rng.next_u64() >> 11) as u8).collect()
}

#[test]
fn an_equal_block_is_one_copy() {
    for len in [16, 100, 1500, 65_536] {
        let mut world = World::new(1 << 20, 64);
        let block = noise(1, len);
        assert_eq!(world.send(&block), (0, 0));
        assert_eq!(world.send(&block), (len, 1), "{len} bytes");
    }
}

#[test]
fn shifted_repeat_is_found_but_for_block_ends() {
    for period in [32, 64, 128] {
        let mut world = World::new(4 << 20, period);
        let bytes = noise(2, 1_000_000);
        world.send_all(&bytes);
        let shifted = [&noise(3, 1234), &bytes[..]].concat();
        let (copied, _) = world.send_all(&shifted);
        let blocks = shifted.len().div_ceil(65_536);
        // At either end of each block of either sending, a chunk of a few periods is cut elsewhere.
        let lost = 4 * blocks * 3 * period;
        assert!(copied > bytes.len() - lost, "p = {period}: {copied} of {}", bytes.len());
    }
}

#[test]
fn edit_costs_the_touched_chunks() {
    let mut world = World::new(1 << 20, 64);
    let mut block = noise(4, 60_000);
    world.send(&block);
    block[30_000] ^= 1;
    let (copied, copies) = world.send(&block);
    assert!(copied > 60_000 - 600 && copied < 60_000, "{copied}");
    assert_eq!(copies, 2);
}

#[test]
fn nothing_is_copied_from_outside_the_window() {
    let mut world = World::new(1 << 20, 64);
    let block = noise(5, 40_000);
    let start = world.head;
    world.send(&block);
    let floor = start.plus(10_000);
    let copies = world.find(&block, floor);
    assert!(copies.first().is_some_and(|copy| (10_000..10_700).contains(&copy.at)));
    assert_eq!(world.find(&block, world.head), []);
}

#[test]
fn only_forgotten_ranges_are_not_copied_from() {
    let mut world = World::new(1 << 20, 64);
    let block = noise(6, 60_000);
    let start = world.head;
    world.send(&block);
    let gone = start.0 + 20_000..start.0 + 20_100;
    world.chunks.forget(std::slice::from_ref(&gone), world.head);
    let copies = world.find(&block, LogOffset::ZERO);
    assert!(copies.iter().all(|copy| copy.source_end().0 <= gone.start || copy.source.0 >= gone.end));
    assert!(copies.iter().map(|copy| copy.len).sum::<u32>() > 58_000);
}

#[test]
fn indexed_log_is_found_like_a_sent_one() {
    let (mut sent, mut indexed) = (World::new(1 << 20, 64), World::new(1 << 20, 64));
    let bytes = noise(7, 300_000);
    sent.send_all(&bytes);
    let mut pieces = Vec::new();
    indexed.chunks.index(&sent.log, LogOffset(1000)..sent.head, |_, piece| pieces.extend_from_slice(piece));
    assert_eq!(pieces, bytes);
    (indexed.log, indexed.head) = (sent.log, sent.head);
    assert!(indexed.send(&bytes[..65_536]).0 > 65_000);
}

/// Runs of one value, of 31 values, and of what makes every position look alike must not make more work than noise.
#[test]
fn hostile_content_has_no_more_than_four_chunks_a_period() {
    let unit = noise(8, 31);
    let hostile = [vec![0; 65_536], unit.repeat(2115), b"ab".repeat(32_768), vec![255; 65_536]];
    for kind in MarkerKind::ALL {
        for block in &hostile {
            for period in [16, 64, 512] {
                let mut world = World::new(1 << 20, period);
                world.chunks.set_markers(kind, period, SampleTable::PAPER);
                world.send(block);
                let chunks = world.chunks.chunks.len();
                assert!(chunks <= 4 * block.len() / period + 1, "{kind}, p = {period}: {chunks}");
                let (copied, _) = world.send(block);
                assert!(copied * 10 > block.len() * 9, "{kind}, p = {period}: {copied}");
            }
        }
    }
}

#[test]
fn chunks_have_about_the_length_of_the_period() {
    let block = noise(9, 65_536);
    for period in [32, 64, 128, 256] {
        let mut world = World::new(1 << 20, period);
        world.send(&block);
        let mean = block.len() / world.chunks.chunks.len();
        assert!((period * 9 / 10..period * 5 / 4).contains(&mean), "p = {period}: {mean}");
    }
}

#[test]
fn a_repeat_is_followed_without_the_index() {
    let mut world = World::new(1 << 20, 64);
    let bytes = noise(10, 200_000);
    let start = world.head;
    world.send_all(&bytes);
    world.chunks.index = Index::new(world.chunks.ring.capacity());
    let mut find = |block: &[u8], hint| {
        let mut copies = Vec::new();
        let (at, floor) = (world.head, LogOffset::ZERO);
        world.chunks.find(&Search { block, at, floor, lasting: floor, hint }, &mut copies);
        copies
    };
    // From one block of the log to the next, and from the middle of a chunk on.
    let expected = Copy { at: 0, len: 65_536, source: start.plus(65_536) };
    assert_eq!(find(&bytes[65_536..131_072], Some(expected.source)), [expected]);
    let copies = find(&bytes[30_000..90_000], Some(start.plus(30_000)));
    let copied: u32 = copies.iter().map(|copy| copy.len).sum();
    assert!(copied > 59_000 && copies.len() == 1, "{copies:?}");
    assert_eq!(find(&bytes[30_000..90_000], None), []);
    assert_eq!(find(&noise(11, 60_000), Some(start)), []);
}

/// The copy found must not be the only one that can be, or it takes the others with it when it goes.
#[test]
fn repeated_content_stays_known() {
    let mut world = World::new(1 << 20, 64);
    let repeated = noise(12, 65_536);
    world.send(&repeated);
    for round in 0..60 {
        world.send(&noise(100 + round, 65_536));
        if round % 2 == 0 {
            let (copied, _) = world.send(&repeated);
            assert!(copied > 65_000, "{copied} in round {round}");
        }
    }
}

#[test]
fn content_four_gibibytes_ago_is_not_found() {
    let capacity = 64 << 20;
    let mut chunks = ChunkMatch::new(capacity, MatchParams::default(), 3);
    let (block, mut copies) = (noise(1, 60_000), Vec::new());
    let start = LogOffset(1 << 20);
    chunks.find(&Search { block: &block, at: start, floor: start, lasting: start, hint: None }, &mut copies);
    chunks.remember(start);
    // Other flows of the link are Max-Match's, and write to the same log.
    for (written, found) in [(10 << 20, 60_000), (4 << 30, 0)] {
        let at = start.plus(written + (10 << 20));
        let floor = at.minus(capacity * 3 / 4);
        chunks.find(&Search { block: &block, at, floor, lasting: floor, hint: None }, &mut copies);
        let copied: u32 = copies.iter().map(|copy| copy.len).sum();
        assert_eq!(copied, found, "behind {written} bytes");
    }
}
