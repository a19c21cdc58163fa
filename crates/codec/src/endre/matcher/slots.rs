//! The fingerprint table: a log position and a few tag bits in 32 bits a slot.
//!
//! The index holds the fingerprint's upper bits implicitly and the slot some of its lower ones, in the bits a position
//! does not need [EndRE §5.2.2, Table 1]: 4 for a log of 1 GiB, 8 for 64 MiB. The index is the fingerprint times the
//! number of pairs, over 2⁶⁴ (*multiply-shift*), so the table may have any size; there are no more than 2³² pairs, so
//! the lower half of a fingerprint takes every value within each of them. Positions are of *grains* of four bytes, and
//! a look-up tries all four: another two bits, and a fingerprint never seen is all but always dismissed without
//! touching the log. Entries are overwritten, never deleted; content decides.

use std::ops::Range;

use oncewire_fingerprint::prefetch_read;
use oncewire_sys::Pages;

use crate::log::LogOffset;

/// A table from fingerprints to the log offsets where they occurred last, and once before.
pub(super) struct Slots {
    /// Pairs of slots, the newer one first. A slot is a tag above, and a grain modulo `positions + 1` below. A grain
    /// of zero is an empty slot; those that would look so are not inserted.
    pairs: Pages<[u32; 2]>,
    /// The bits of a slot holding the grain.
    positions: u32,
}

/// How far back sources may be copied from, in grains.
#[derive(Clone, Copy)]
pub(super) struct Reach {
    /// The least distance, at least 1.
    nearest: u32,
    /// By how much the greatest is more.
    span: u32,
}

impl Reach {
    /// From `nearest` to `farthest` bytes and no fewer, to a grain; nothing is in reach if there are none.
    pub(super) fn new(nearest: u64, farthest: u64) -> Self {
        let nearest = nearest.div_ceil(GRAIN) + 1;
        let span = (farthest / GRAIN).checked_sub(nearest + 1);
        match (u32::try_from(nearest), span) {
            (Ok(nearest), Some(span)) => Self { nearest, span: u32::try_from(span).unwrap_or(u32::MAX) },
            _ => Self { nearest: u32::MAX, span: 0 },
        }
    }
}

impl Slots {
    /// Creates an empty table for a log of `capacity` bytes with a marker each `period` bytes.
    pub(super) fn new(capacity: u64, period: usize, slots_per_marker: u32) -> Self {
        Self {
            pairs: Pages::zeroed(pairs(capacity, period, slots_per_marker) as usize),
            positions: (found(capacity).next_power_of_two() / GRAIN).saturating_sub(1) as u32,
        }
    }

    /// Returns the bytes of memory the table of such a log takes.
    pub(super) fn memory_for(capacity: u64, period: usize, slots_per_marker: u32) -> u64 {
        pairs(capacity, period, slots_per_marker) * size_of::<[u32; 2]>() as u64
    }

    /// Asks for the memory of the slots that will soon be looked up.
    #[inline]
    pub(super) fn prefetch(&self, fingerprint: u64) {
        prefetch_read(&self.pairs, self.index(fingerprint));
    }

    /// Returns by how many grains before `head`'s `fingerprint` occurred, the last time first, as far as the table
    /// still knows; it may be wrong. 0 stands for a time it does not know, or that is not in `reach`.
    #[inline]
    pub(super) fn look_up(&self, fingerprint: u64, head: LogOffset, reach: &Reach) -> [u32; 2] {
        let pair = self.pairs.get(self.index(fingerprint)).copied().unwrap_or_default();
        pair.map(|slot| {
            let distance = distance(slot, fingerprint, head, self.positions);
            if distance.wrapping_sub(reach.nearest) <= reach.span { distance } else { 0 }
        })
    }

    /// Lets `fingerprint` point to the position `marker` of the block lying at `start`.
    ///
    /// The first occurrence within a block stays: in a run repeating itself, most follows behind it.
    #[inline]
    pub(super) fn insert(&mut self, fingerprint: u64, start: LogOffset, marker: u32) {
        let offset = start.plus(u64::from(marker));
        let (index, positions) = (self.index(fingerprint), self.positions);
        let Some(pair) = self.pairs.get_mut(index) else { return };
        let [newer, _] = *pair;
        let since = distance(newer, fingerprint, offset, positions);
        let grain = grain(offset) & positions;
        if grain == 0 || since.wrapping_sub(1) <= marker / GRAIN as u32 {
            return;
        }
        *pair = [(fingerprint as u32 & !positions) | grain, newer];
    }

    /// Empties the slots that point into any of a few `ranges`.
    pub(super) fn remove(&mut self, ranges: &[Range<LogOffset>]) {
        let positions = self.positions;
        if ranges.iter().any(|range| range.end.since(range.start) / GRAIN >= u64::from(positions)) {
            return self.clear();
        }
        let of = |range: &Range<LogOffset>| {
            let start = grain(range.start);
            (start, grain(range.end).wrapping_sub(start) & positions)
        };
        let ranges: Vec<(u32, u32)> = ranges.iter().map(of).collect();
        // Most slots point into none, and their part of the log says so.
        let shift = u32::BITS.saturating_sub(positions.leading_zeros() + PARTS_LOG2);
        let mut touched = [false; 1 << PARTS_LOG2];
        for &(start, last) in &ranges {
            let first = (start & positions) >> shift;
            let parts = ((start & positions & ((1 << shift) - 1)) + last) >> shift;
            for part in first..=first + parts {
                touched[part as usize & (positions >> shift) as usize] = true;
            }
        }
        for slot in self.pairs.as_flattened_mut() {
            let is_within = |&(start, last): &(u32, u32)| slot.wrapping_sub(start) & positions <= last;
            if touched[((*slot & positions) >> shift) as usize] && ranges.iter().any(is_within) {
                *slot = 0;
            }
        }
    }

    /// Empties all slots and gives their memory back to the system.
    pub(super) fn clear(&mut self) {
        self.pairs = Pages::zeroed(self.pairs.len());
    }

    /// Returns the bytes of memory the table takes.
    pub(super) fn memory(&self) -> usize {
        self.pairs.len() * size_of::<[u32; 2]>()
    }

    #[inline]
    fn index(&self, fingerprint: u64) -> usize {
        ((u128::from(fingerprint) * self.pairs.len() as u128) >> u64::BITS) as usize
    }
}

/// Returns how much of a log of `capacity` bytes the table's positions tell apart.
fn found(capacity: u64) -> u64 {
    capacity.clamp(1, 1 << 32)
}

/// Returns the pairs of slots of a log's table.
fn pairs(capacity: u64, period: usize, slots_per_marker: u32) -> u64 {
    let slots = found(capacity) / period.max(1) as u64 * u64::from(slots_per_marker);
    slots.max(MIN_SLOTS) / 2
}

/// Returns the first of the offsets that are `distance` grains before `head`'s.
#[inline]
pub(super) fn source(head: LogOffset, distance: u32) -> LogOffset {
    LogOffset((head.0 / GRAIN).saturating_sub(u64::from(distance)) * GRAIN)
}

/// Returns the number of an offset's grain, without its upper bits.
#[inline]
fn grain(offset: LogOffset) -> u32 {
    (offset.0 / GRAIN) as u32
}

/// Returns by how many grains before `head`'s a slot may say that `fingerprint` occurred, 0 if it does not.
#[inline]
fn distance(slot: u32, fingerprint: u64, head: LogOffset, positions: u32) -> u32 {
    let same_tag = (slot ^ fingerprint as u32) & !positions == 0;
    // The same position as the head's is a whole turn away, and out of the log.
    let distance = grain(head).wrapping_sub(slot) & positions;
    if same_tag && slot & positions != 0 { distance } else { 0 }
}

/// Slots say where a fingerprint occurred to this many bytes: the bits this saves are worth more in the tag.
pub(super) const GRAIN: u64 = 4;

/// The log's parts of which it is noted whether anything in them is to be removed, as a power of two.
const PARTS_LOG2: u32 = 10;

/// The smallest table.
const MIN_SLOTS: u64 = 1024;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// So many fingerprints, spread evenly.
    fn fingerprints(count: u64) -> impl Iterator<Item = u64> {
        (0..count).map(move |number| (u128::from(number) << 64).div_ceil(u128::from(count)) as u64)
    }

    #[test]
    fn every_pair_has_its_equal_share_of_all_fingerprints() {
        for capacity in [1, 64 << 10, 100_000, 96 << 10, 1 << 20, 1_234_567] {
            for slots_per_marker in [1, 2] {
                let slots = Slots::new(capacity, 64, slots_per_marker);
                let mut shares = vec![0; slots.pairs.len()];
                fingerprints(8 * shares.len() as u64)
                    .for_each(|fingerprint| shares[slots.index(fingerprint)] += 1);
                assert!(shares.iter().all(|share| *share == 8), "{capacity} {slots_per_marker}");
                assert_eq!(slots.index(u64::MAX), shares.len() - 1);
            }
        }
    }

    proptest! {
        #[test]
        fn table_takes_an_eighth_or_sixteenth_of_any_log(capacity in (64u64 << 10)..(5 << 30)) {
            for (slots_per_marker, share) in [(2, 8), (1, 16)] {
                let memory = Slots::memory_for(capacity, 64, slots_per_marker);
                prop_assert!(memory <= capacity / share, "{memory}");
                let expected = capacity.min(1 << 32) / share;
                prop_assert!(memory + 8 > expected, "{memory} of {expected}");
            }
        }

        #[test]
        fn last_insertion_is_found_at_any_size(
            capacity in 1u64..(3 << 20),
            period in 1usize..600,
            fingerprint: u64,
            before in 8u64..(1 << 20),
        ) {
            let mut slots = Slots::new(capacity, period, 2);
            prop_assert_eq!(slots.memory() as u64, Slots::memory_for(capacity, period, 2));
            let (start, head) = (LogOffset(1 << 40 | 4), LogOffset((1 << 40 | 4) + before));
            slots.insert(fingerprint, start, 0);
            let [newer, _] = slots.look_up(fingerprint, head, &Reach::new(1, 4 << 20));
            let is_in_log = before + 4 * GRAIN < capacity;
            prop_assert!(!is_in_log || source(head, newer) == start, "{newer}");
        }

        #[test]
        fn only_entries_within_the_ranges_are_removed(
            capacity in prop::sample::select(vec![1u64, 900, 5000, 1 << 20, 1 << 32]),
            grains in prop::collection::vec(any::<u32>(), 1..400),
            ranges in prop::collection::vec((any::<u64>(), 0u64..6000), 0..8),
        ) {
            let mut slots = Slots::new(capacity, 64, 1);
            let positions = slots.positions;
            let places = slots.pairs.as_flattened_mut().iter_mut();
            places.zip(grains.iter().cycle()).for_each(|(slot, grain)| *slot = *grain);
            let before = slots.pairs.clone();
            let ranges: Vec<Range<LogOffset>> = ranges
                .into_iter()
                .map(|(start, len)| (LogOffset(start % (4 * capacity)), len))
                .map(|(start, len)| start..start.plus(len))
                .collect();
            slots.remove(&ranges);
            let is_all = ranges
                .iter()
                .any(|range| range.end.since(range.start) / GRAIN >= u64::from(positions));
            let is_within = |slot: u32| ranges.iter().any(|range| {
                (range.start.0 / GRAIN..=range.end.0 / GRAIN)
                    .any(|grain| grain as u32 & positions == slot & positions)
            });
            for (&now, &was) in slots.pairs.as_flattened().iter().zip(before.as_flattened()).take(400) {
                prop_assert_eq!(now, if is_all || is_within(was) { 0 } else { was });
            }
        }
    }
}
