//! The fingerprint table: a log position and a few tag bits in 32 bits a slot.
//!
//! The index holds the fingerprint's upper bits implicitly and the slot some of its lower ones, in the bits
//! that a position does not need [EndRE §5.2.2, Table 1]: 4 for a log of 256 MiB, 6 for 64 MiB. Most
//! fingerprints that were never seen are thus dismissed without touching the log. Entries are overwritten, never
//! deleted; content decides.

use std::ops::Range;

use oncewire_fingerprint::prefetch_read;
use oncewire_pages::prefer_large;

use crate::cache::LogOffset;

/// A table from fingerprints to the log offsets where they occurred last, and once before.
pub(super) struct Slots {
    /// Pairs of slots, the newer one first. A slot is a tag above, and an offset modulo `positions + 1` below. An
    /// offset part of zero is an empty slot; offsets that would look so are not inserted.
    pairs: Vec<[u32; 2]>,
    /// How far right a fingerprint is shifted to be an index.
    shift: u32,
    /// The bits of a slot that hold the offset.
    positions: u32,
}

impl Slots {
    /// Creates an empty table for a log of `capacity` bytes with a marker each `period` bytes.
    pub(super) fn new(capacity: u64, period: usize, slots_per_marker: u32) -> Self {
        let found = capacity.clamp(1, 1 << 32);
        let slots =
            (found / period.max(1) as u64 * u64::from(slots_per_marker)).max(MIN_SLOTS).next_power_of_two();
        Self {
            pairs: empty(slots as usize / 2),
            shift: 65 - slots.trailing_zeros(),
            positions: (found.next_power_of_two() - 1) as u32,
        }
    }

    /// Asks for the memory of the slots that will soon be looked up.
    #[inline]
    pub(super) fn prefetch(&self, fingerprint: u64) {
        prefetch_read(&self.pairs, self.index(fingerprint));
    }

    /// Returns where `fingerprint` occurred before `head`, the last time first, as far as the table still knows; it
    /// may be wrong.
    #[inline]
    pub(super) fn look_up(&self, fingerprint: u64, head: LogOffset) -> [Option<LogOffset>; 2] {
        let pair = self.pairs.get(self.index(fingerprint)).copied().unwrap_or_default();
        pair.map(|slot| source(slot, fingerprint, head, self.positions))
    }

    /// Lets `fingerprint` point to the position `marker` of the block that lies at `start`.
    ///
    /// The first occurrence within a block stays: in a run that repeats itself, most follows behind it.
    #[inline]
    pub(super) fn insert(&mut self, fingerprint: u64, start: LogOffset, marker: u64) {
        let offset = start.plus(marker);
        let (index, positions) = (self.index(fingerprint), self.positions);
        let Some(pair) = self.pairs.get_mut(index) else { return };
        let [newer, _] = *pair;
        if offset.0 as u32 & positions == 0 || source(newer, fingerprint, offset, positions) >= Some(start) {
            return;
        }
        *pair = [(fingerprint as u32 & !positions) | (offset.0 as u32 & positions), newer];
    }

    /// Empties the slots that point into `range`.
    pub(super) fn remove(&mut self, range: Range<LogOffset>) {
        let len = range.end.since(range.start);
        if len > u64::from(self.positions) {
            return self.clear();
        }
        let (start, positions) = (range.start.0 as u32, self.positions);
        for slot in self.pairs.as_flattened_mut() {
            if u64::from(slot.wrapping_sub(start) & positions) < len {
                *slot = 0;
            }
        }
    }

    /// Empties all slots and gives their memory back to the system.
    pub(super) fn clear(&mut self) {
        self.pairs = empty(self.pairs.len());
    }

    /// Returns the bytes of memory that the table takes.
    pub(super) fn memory(&self) -> usize {
        self.pairs.len() * size_of::<[u32; 2]>()
    }

    #[inline]
    fn index(&self, fingerprint: u64) -> usize {
        (fingerprint >> self.shift) as usize
    }
}

/// Returns the last offset before `head` at which a slot may say that `fingerprint` occurred.
#[inline]
fn source(slot: u32, fingerprint: u64, head: LogOffset, positions: u32) -> Option<LogOffset> {
    let same_tag = (slot ^ fingerprint as u32) & !positions == 0;
    let distance = (head.0 as u32).wrapping_sub(slot) & positions;
    // The same position as the head's is a whole turn away, and out of the log.
    if !same_tag || slot & positions == 0 || distance == 0 {
        return None;
    }
    head.checked_minus(u64::from(distance))
}

/// Returns `len` empty pairs, in large pages where the system has them: every access is to another page.
fn empty(len: usize) -> Vec<[u32; 2]> {
    let mut pairs = vec![[0; 2]; len];
    prefer_large(&mut pairs);
    pairs
}

/// The smallest table.
const MIN_SLOTS: u64 = 1024;
