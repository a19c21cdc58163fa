//! The use of a log back from disk, also with markers not of its bytes alone.

use super::verify::{CAPACITY, Halves, noise, sender_config};
use crate::contract::{Decoder, DecoderLog as _, EncoderLog as _, LogWrite, SavedLog};
use crate::endre::matcher::MatchParams;
use crate::entropy::Entropy;
use crate::log::{Log, LogOffset, RangeSet};
use crate::stream::{PreparedLog, Sender, SenderConfig};
use crate::{MarkerKind, Matching, Plan};

/// Two halves, and what the sending one wrote to the disk.
struct Kept {
    halves: Halves,
    plan: Plan,
    writes: Vec<LogWrite>,
}

impl Kept {
    fn new(markers: MarkerKind, matching: Matching) -> Self {
        let plan = Plan { entropy: Entropy::None, markers, matching, ..Plan::default() };
        let mut halves = Halves::with(plan, CAPACITY);
        halves.sender = Sender::new(config(plan));
        Self { halves, plan, writes: Vec::new() }
    }

    /// Sends bytes in blocks of this length, and returns which share of them was copied.
    fn send(&mut self, bytes: &[u8], block_len: usize) -> f64 {
        let before = self.halves.receiver.stats().copied;
        for block in bytes.chunks(block_len) {
            assert_eq!(self.halves.cross(block), [block]);
            self.writes.extend(std::iter::from_fn(|| self.halves.sender.poll_log_write()));
        }
        let stats = self.halves.receiver.stats();
        assert_eq!((stats.mismatches, stats.refetched), (0, 0));
        (stats.copied - before) as f64 / bytes.len() as f64
    }

    fn saved(&self) -> SavedLog {
        let mut saved = SavedLog { epoch: 1, log: Log::new(CAPACITY as usize), ranges: RangeSet::default() };
        let mut end = 0;
        for write in &self.writes {
            end = write.start + write.plain.len() as u64;
            saved.log.write(LogOffset(write.start), &write.plain);
            saved.ranges.insert(write.start..end);
        }
        saved.ranges.remove_below(end.saturating_sub(CAPACITY));
        saved
    }

    fn restart(&mut self) {
        self.halves.sender = Sender::with_log(config(self.plan), self.saved(), &self.plan);
        let claim = self.halves.receiver.claim();
        assert!(self.halves.reconnect(claim).is_some());
    }

    fn release(&mut self) {
        assert!(self.halves.sender.release_log());
    }

    fn take_back(&mut self) {
        let prepared = PreparedLog::new(&config(self.plan), self.saved(), &self.plan);
        self.halves.sender.restore_log(Some(prepared));
    }
}

fn config(plan: Plan) -> SenderConfig {
    let params = MatchParams { sample_adapts: true, ..MatchParams::default() };
    SenderConfig { params, persist: true, ..sender_config(plan, CAPACITY) }
}

/// Four letters in an order without a pattern, none of them in the paper's table.
fn dna() -> Vec<u8> {
    noise(3, 400_000).iter().map(|byte| b"ACGT"[usize::from(byte % 4)]).collect()
}

/// Halves that have learnt from [`dna`], and have it in their logs.
fn learnt(matching: Matching) -> Kept {
    let mut kept = Kept::new(MarkerKind::SampleByte, matching);
    assert_eq!(kept.send(&dna(), BLOCK), 0.0);
    for _ in 0..3 {
        kept.send(&dna()[1000..], BLOCK);
    }
    kept
}

#[test]
fn adapting_table_finds_repeats_invisible_to_the_papers_table() {
    for matching in [Matching::Max, Matching::Chunk] {
        let found = learnt(matching).send(&dna()[2000..], BLOCK);
        assert!(found > 0.9, "{found} with {matching}");
    }
}

#[test]
fn table_learns_again_from_the_log_after_a_restart() {
    for matching in [Matching::Max, Matching::Chunk] {
        let mut kept = learnt(matching);
        kept.restart();
        let found = kept.send(&dna()[2000..], BLOCK);
        assert!(found > 0.9, "{found} with {matching}");
    }
}

#[test]
fn learnt_table_outlives_the_memory_of_its_log() {
    let mut kept = learnt(Matching::Max);
    kept.release();
    // None of it can be referred to, and later traffic is found by the learnt table.
    let other: Vec<u8> = dna().into_iter().rev().take(100_000).collect();
    assert!(kept.send(&other, BLOCK) < 0.1);
    let found = kept.send(&other[1000..], BLOCK);
    assert!(found > 0.9, "{found} while it is released");
    kept.take_back();
    for part in [&other[2000..], &dna()[2000..]] {
        let found = kept.send(part, BLOCK);
        assert!(found > 0.9, "{found} of {}", part.len());
    }
}

#[test]
fn returned_log_is_found_on_a_fixed_grid() {
    let bytes = noise(4, 1_500_000);
    let comes_back: [fn(&mut Kept); 2] = [Kept::restart, |kept| {
        kept.release();
        kept.take_back();
    }];
    for comes_back in comes_back {
        let mut kept = Kept::new(MarkerKind::Fixed, Matching::Max);
        kept.send(&bytes, 10_007);
        comes_back(&mut kept);
        // Each block is found by itself.
        for (number, block) in bytes.chunks(10_007).enumerate().skip(80).step_by(7) {
            let found = kept.send(block, block.len());
            assert!(found > 0.99, "{found} of block {number}");
        }
    }
}

#[test]
fn memory_beyond_the_capacity_never_overwrites_newest_bytes() {
    let mut kept = Kept::new(MarkerKind::default(), Matching::Max);
    let bytes = noise(5, CAPACITY as usize + (64 << 10));
    kept.send(&bytes, 64 << 10);
    let piece = kept.halves.sender.log_piece(0).unwrap();
    assert_eq!(piece.start, 64 << 10);
    assert_eq!(piece.plain, bytes[64 << 10..128 << 10]);
    assert!(kept.halves.receiver.log_piece(0).is_some_and(|piece| piece.start >= 64 << 10));
}

const BLOCK: usize = 50_000;
