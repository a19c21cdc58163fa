//! Blocks that wait for a range of the log which has not arrived yet.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::Head;
use crate::Now;
use crate::cache::RangeSet;
use crate::endre::matcher::Copy;
use crate::wire::Range64;

/// A block that waits.
pub(super) struct Parked {
    pub(super) head: Head,
    pub(super) copies: Vec<Copy>,
    pub(super) literals: Vec<u8>,
    /// Chunks that the block names, and where they stand.
    pub(super) named: Vec<(u32, Bytes)>,
    /// The first range that it lacks; nothing else is looked at until that is there.
    pub(super) lacks: Range64,
    pub(super) deadline: Now,
    /// Whether what it lacks was asked for.
    pub(super) asked: bool,
}

/// All blocks that wait, by sequence number.
#[derive(Default)]
pub(super) struct Parking {
    blocks: BTreeMap<u64, Parked>,
    bytes: usize,
}

const MAX_PARKED: usize = 4096;
const MAX_PARKED_BYTES: usize = 32 << 20;

impl Parking {
    /// Parks a block; returns false if there is no room.
    pub(super) fn park(&mut self, parked: Parked) -> bool {
        let bytes = size(&parked);
        if self.blocks.len() >= MAX_PARKED || self.bytes + bytes > MAX_PARKED_BYTES {
            return false;
        }
        self.bytes += bytes;
        self.blocks.insert(parked.head.seq, parked);
        true
    }

    pub(super) fn contains(&self, seq: u64) -> bool {
        self.blocks.contains_key(&seq)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Returns the blocks that wait for something below an offset.
    pub(super) fn lacking_below(&self, offset: u64) -> Vec<u64> {
        let lacking = self.blocks.iter().filter(|(_, parked)| parked.lacks.start < offset);
        lacking.map(|(&seq, _)| seq).collect()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn take(&mut self, seq: u64) -> Option<Parked> {
        let parked = self.blocks.remove(&seq)?;
        self.bytes -= size(&parked);
        Some(parked)
    }

    /// Takes a block that has what it lacked.
    pub(super) fn take_ready(&mut self, written: &RangeSet) -> Option<Parked> {
        let (&seq, _) = self.blocks.iter().find(|(_, parked)| written.contains(&parked.lacks))?;
        self.take(seq)
    }

    /// The log ranges that blocks will fill which wait.
    pub(super) fn ranges(&self) -> impl Iterator<Item = Range64> {
        self.blocks.values().filter_map(|parked| parked.head.range())
    }

    /// Gives up all blocks and returns their sequence numbers.
    pub(super) fn clear(&mut self) -> Vec<u64> {
        self.bytes = 0;
        std::mem::take(&mut self.blocks).into_keys().collect()
    }

    /// When [`Self::overdue`] has something to say.
    pub(super) fn deadline(&self) -> Option<Now> {
        self.blocks.values().map(|parked| parked.deadline).min()
    }

    /// Returns the ranges to ask for now, and the blocks for which that was done before and did not help. `written`
    /// is what is there or will be: a block that lacks nothing else waits on.
    pub(super) fn overdue(&mut self, now: Now, patience: Now, written: &RangeSet) -> (RangeSet, Vec<u64>) {
        let (mut ranges, mut hopeless) = (RangeSet::default(), Vec::new());
        let mut missing = Vec::new();
        for (&seq, parked) in self.blocks.iter_mut().filter(|(_, parked)| parked.deadline <= now) {
            if parked.asked {
                hopeless.push(seq);
                continue;
            }
            parked.deadline = now + patience;
            for copy in &parked.copies {
                written.missing(&copy.range(), &mut missing);
            }
            parked.asked = !missing.is_empty();
            missing.drain(..).for_each(|range| ranges.insert(range));
        }
        (ranges, hopeless)
    }
}

fn size(parked: &Parked) -> usize {
    let named: usize = parked.named.iter().map(|(_, chunk)| chunk.len()).sum();
    named
        + size_of_val(&parked.named[..])
        + parked.literals.len()
        + size_of_val(&parked.copies[..])
        + size_of::<Parked>()
}
