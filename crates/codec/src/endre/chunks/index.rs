//! From hashes to chunks: sixteen slots in each line of the cache.

use oncewire_fingerprint::prefetch_read;
use oncewire_sys::Pages;

use super::ring::{Ring, Seq, Tag};

/// A set-associative table from chunk hashes to the chunks of a [`Ring`], which alone says whether a chunk has a hash.
pub(super) struct Index {
    /// Sets of [`SLOTS`]: a few bits of the hash above, the lower bits of the chunk's number below. What precedes the
    /// first set is there to let it begin on a line of the cache.
    slots: Pages<u32>,
    skip: usize,
    sets: u64,
    /// The bits of a slot holding the chunk's number: one more than the ring needs, so a chunk displaced is not taken
    /// for the one in its place.
    bits: u32,
}

/// The place of a hash, and its mark there and in the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    set: u32,
    mark: u32,
    pub(super) tag: Tag,
}

impl Place {
    /// Returns bits of the hash that are as good as random anywhere.
    pub(super) fn fingerprint(self) -> u64 {
        u64::from(self.set ^ self.mark.rotate_left(16)) << 32 | u64::from(self.mark)
    }
}

impl Index {
    /// Creates an empty table for the chunks of a ring of `chunks`.
    ///
    /// Its memory is taken from the system as it is used.
    pub(super) fn new(chunks: usize) -> Self {
        let sets = (chunks as u64 * 2).div_ceil(TWICE_THE_LOAD);
        let slots = Pages::<u32>::zeroed(sets as usize * SLOTS + SLOTS - 1);
        let skip = slots.as_ptr().align_offset(SLOTS * size_of::<u32>()).min(SLOTS - 1);
        Self { slots, skip, sets, bits: (chunks.ilog2() + 2).min(MAX_BITS) }
    }

    /// Returns where a hash belongs.
    #[inline]
    pub(super) fn place(&self, hash: u128) -> Place {
        let upper = (hash >> 64) as u64;
        let product = u128::from(upper) * u128::from(self.sets);
        // The product's lower half is as good as new.
        Place { set: (product >> 64) as u32, mark: (product as u64 >> 32) as u32, tag: Tag::new(hash as u64) }
    }

    /// Begins to bring the place's set into the processor's cache.
    #[inline]
    pub(super) fn prefetch(&self, place: Place) {
        prefetch_read(&self.slots, self.start(place.set));
    }

    /// Begins to bring what the place's slots point to into the processor's cache.
    #[inline]
    pub(super) fn prefetch_chunks(&self, place: Place, ring: &Ring) {
        for (_, seq) in self.candidates(place, ring.next()) {
            ring.prefetch(seq);
        }
    }

    /// Returns the chunk with this hash, as far as the tag tells.
    #[inline]
    pub(super) fn look_up(&self, place: Place, ring: &Ring) -> Option<Seq> {
        self.candidates(place, ring.next()).map(|(_, seq)| seq).find(|&seq| ring.has(seq, place.tag))
    }

    /// Lets the hash lead to the next chunk of the ring; one of the same hash and not older than `block` stays. If the
    /// set is full, the oldest is displaced.
    #[inline]
    pub(super) fn insert(&mut self, place: Place, ring: &Ring, block: Seq) {
        let next = ring.next();
        let known = self.candidates(place, next).find(|&(_, seq)| ring.has(seq, place.tag));
        let slot = match known {
            Some((_, seq)) if seq >= block => return,
            Some((slot, _)) => slot,
            None => {
                let numbers = self.numbers();
                // Below 2^31, and as signed numbers compared side by side.
                let age = |slot: &u32| ((next as u32).wrapping_sub(*slot).wrapping_sub(1) & numbers) as i32;
                let ages = self.set(place.set).map(|set| set.each_ref().map(age)).unwrap_or_default();
                let oldest = ages.iter().fold(0, |oldest, &age| oldest.max(age));
                ages.iter().position(|&age| age == oldest).unwrap_or(0)
            }
        };
        let (start, numbers) = (self.start(place.set), self.numbers());
        if let Some(slot) = self.slots.get_mut(start + slot) {
            *slot = place.mark & !numbers | next as u32 & numbers;
        }
    }

    /// Returns the bytes of memory the table takes when it is full.
    pub(super) fn memory(&self) -> usize {
        size_of_val(&self.slots[..])
    }

    /// Returns the slots whose bits of the hash agree, and the chunks they point to.
    #[inline]
    fn candidates(&self, place: Place, next: Seq) -> impl Iterator<Item = (usize, Seq)> {
        let (numbers, bits) = (self.numbers(), self.bits);
        let set = self.set(place.set).copied().unwrap_or_default();
        let agree =
            |sum: u32, (at, slot): (usize, &u32)| sum | u32::from((slot ^ place.mark) >> bits == 0) << at;
        let mut agreeing = set.iter().enumerate().fold(0, agree);
        std::iter::from_fn(move || {
            let slot = agreeing.trailing_zeros() as usize;
            let number = *set.get(slot)?;
            agreeing &= agreeing - 1;
            // Of the numbers with these lower bits, the last before the next.
            let age = u64::from((next as u32).wrapping_sub(number).wrapping_sub(1) & numbers) + 1;
            Some((slot, next.wrapping_sub(age)))
        })
    }

    #[inline]
    fn numbers(&self) -> u32 {
        (1 << self.bits) - 1
    }

    #[inline]
    fn set(&self, index: u32) -> Option<&[u32; SLOTS]> {
        self.slots.get(self.start(index)..)?.first_chunk()
    }

    #[inline]
    fn start(&self, set: u32) -> usize {
        self.skip + set as usize * SLOTS
    }
}

/// Slots of a set: a line of the cache.
const SLOTS: usize = 16;
/// Twice the slots of a set that chunks take when the ring is full: 13.5 of 16.
const TWICE_THE_LOAD: u64 = 27;
/// A slot keeps one bit of the hash at least.
const MAX_BITS: u32 = 31;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand_pcg::Pcg64Mcg;
    use rand_pcg::rand_core::{Rng, SeedableRng};

    use super::*;
    use crate::log::LogOffset;

    struct Both {
        ring: Ring,
        index: Index,
        head: u64,
    }

    impl Both {
        fn new(capacity: u64) -> Self {
            let ring = Ring::new(capacity, 64);
            Self { index: Index::new(ring.capacity()), ring, head: 0 }
        }

        fn place(&self, n: u64) -> Place {
            self.index.place(twox_hash::XxHash3_128::oneshot(&n.to_le_bytes()))
        }

        fn push(&mut self, n: u64) {
            let place = self.place(n);
            self.index.insert(place, &self.ring, self.ring.next());
            self.ring.push(LogOffset(self.head), 64, place.tag);
            self.head += 64;
            self.ring.retire(LogOffset(self.head));
        }

        fn get(&self, n: u64) -> Option<u64> {
            let seq = self.index.look_up(self.place(n), &self.ring)?;
            self.ring.offset(seq, LogOffset(self.head)).map(|offset| offset.0)
        }
    }

    #[test]
    fn sets_lie_on_lines_of_the_cache() {
        let index = Index::new(1000);
        assert_eq!(std::ptr::from_ref(index.set(3).unwrap()).addr() % 64, 0);
    }

    #[test]
    fn ring_and_index_take_below_a_quarter_of_a_log() {
        for capacity in [1u64 << 20, 1 << 26, 1 << 30, 1 << 31] {
            let Both { ring, index, .. } = Both::new(capacity);
            let share = (ring.memory() + index.memory()) as f64 / capacity as f64;
            assert!((0.23..0.24).contains(&share), "{share} of {capacity}");
        }
    }

    #[test]
    fn full_log_loses_the_oldest_five_percent_of_chunks() {
        let capacity = 1u64 << 22;
        let mut both = Both::new(capacity);
        let chunks = capacity / 64;
        (0..5 * chunks).for_each(|n| both.push(n));
        let alive = |from: u64| {
            let found = (from..5 * chunks).filter(|&n| both.get(n) == Some(n * 64)).count();
            found as f64 / (5 * chunks - from) as f64
        };
        assert!(alive(4 * chunks) > 0.95, "{}", alive(4 * chunks));
        assert!(alive(5 * chunks - chunks / 2) > 0.99, "{}", alive(5 * chunks - chunks / 2));
        assert_eq!((0..4 * chunks).filter(|&n| both.get(n).is_some()).count(), 0);
    }

    #[test]
    fn repeated_chunk_is_found_at_its_last_place() {
        let mut both = Both::new(1 << 20);
        (0..3).for_each(|_| both.push(1));
        assert_eq!(both.get(1), Some(128));
        let place = both.place(1);
        both.index.insert(place, &both.ring, 2);
        both.ring.push(LogOffset(192), 64, place.tag);
        both.head = 256;
        assert_eq!(both.get(1), Some(128));
    }

    #[test]
    fn they_agree_with_a_map_as_far_as_they_remember() {
        let mut rng = Pcg64Mcg::seed_from_u64(11);
        let capacity = 1u64 << 16;
        let mut both = Both::new(capacity);
        let mut map = BTreeMap::new();
        let mut hits = 0;
        for _ in 0..60_000 {
            let n = rng.next_u64() % 1500;
            if rng.next_u64() % 50 == 0 {
                let start = both.head.saturating_sub(rng.next_u64() % capacity) / 64 * 64;
                both.ring.forget(&(start + 1..start + 500), LogOffset(both.head));
                map.retain(|_, offset| !(start..start + 500).contains(offset));
            }
            let expected = map.get(&n).copied().filter(|&offset| both.head - offset <= capacity);
            let found = both.get(n);
            assert!(found.is_none() || found == expected, "{found:?} for {expected:?}");
            hits += u32::from(found.is_some());
            map.insert(n, both.head);
            both.push(n);
        }
        assert!(hits > 20_000, "{hits}");
    }
}
