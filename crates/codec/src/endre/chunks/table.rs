//! The chunk table: six positions with tags in each line of the cache.
//!
//! The arithmetic of sizes and false matches is in `docs/design/chunk-match.md`.

use oncewire_fingerprint::prefetch_read;
use oncewire_pages::prefer_large;

use crate::cache::LogOffset;
use crate::wire::Range64;

/// A set-associative table from chunk hashes to the log offsets where the chunks lie.
pub(super) struct Table {
    /// Sets of [`SET_WORDS`]; what precedes the first one is there to let it begin on a line of the cache.
    words: Vec<u32>,
    skip: usize,
    sets: u64,
    /// Of the log, so many bytes before the head are found.
    found: u64,
    /// How far the head goes on while the hand goes round once.
    turn: u64,
    /// The next set to be looked through for what left the log, and the head when it got there.
    hand: (u64, LogOffset),
}

/// Where a hash belongs: its set, and the bits by which it is told from others there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    set: u32,
    low: u32,
    high: u16,
}

/// Positions, the tags' lower halves, the tags' upper quarters two to a word, and one word that is free.
type Set = [u32; SET_WORDS];

impl Table {
    /// Creates an empty table for a log of `capacity` bytes with a chunk each `period` bytes.
    ///
    /// Its memory is taken from the system as it is used.
    pub(super) fn new(capacity: u64, period: usize) -> Self {
        let found = capacity.clamp(1, MAX_FOUND);
        let expected = found / period.max(1) as u64;
        let sets = (expected * 2 / TWICE_THE_LOAD).max(MIN_SETS);
        let mut words = vec![0; sets as usize * SET_WORDS + SET_WORDS - 1];
        prefer_large(&mut words);
        let skip = words.as_ptr().align_offset(size_of::<Set>()).min(SET_WORDS - 1);
        let turn = (POSITIONS - found) / 2 - MAX_JUMP;
        Self { words, skip, sets, found, turn, hand: (0, LogOffset::ZERO) }
    }

    /// Returns where a hash belongs.
    #[inline]
    pub(super) fn place(&self, hash: u128) -> Place {
        let (upper, lower) = ((hash >> 64) as u64, hash as u64);
        let set = ((u128::from(upper) * u128::from(self.sets)) >> 64) as u32;
        // All zeros is an empty entry.
        Place { set, low: (lower as u32).max(1), high: (lower >> 32) as u16 }
    }

    /// Begins to bring the place's set into the cache.
    #[inline]
    pub(super) fn prefetch(&self, place: Place) {
        prefetch_read(&self.words, self.start(place.set));
    }

    /// Returns where the chunk lies, before `head` and within the log.
    #[inline]
    pub(super) fn look_up(&self, place: Place, head: LogOffset) -> Option<LogOffset> {
        let set = self.set(place.set)?;
        let entry = find(set, place)?;
        self.rebuild(set[entry], head)
    }

    /// Lets the chunk at `place` lie at `offset`, of a block that begins at `block`.
    ///
    /// If the table has it within that very block, it stays there; anywhere else, it moves. A new one takes an empty
    /// entry, or the one with the oldest position.
    #[inline]
    pub(super) fn insert(&mut self, place: Place, block: LogOffset, offset: LogOffset) {
        let head = offset.0 as u32;
        let known_here = |position: u32| u64::from(head.wrapping_sub(position)) <= offset.since(block);
        let Some(set) = self.set_mut(place.set) else { return };
        let entry = match find(set, place) {
            Some(entry) if known_here(set[entry]) => return,
            Some(entry) => entry,
            None => {
                let age = |&entry: &usize| match is_empty(set, entry) {
                    true => u32::MAX,
                    false => head.wrapping_sub(set[entry]),
                };
                (0..ENTRIES).max_by_key(age).unwrap_or(0)
            }
        };
        put(set, entry, head, place);
    }

    /// Moves the hand on by as much as the head did, and clears what it passes and what left the log.
    ///
    /// Positions come round after 4 GiB; no entry may get that old.
    pub(super) fn advance(&mut self, head: LogOffset) {
        let (first, since) = self.hand;
        let passed = u128::from(head.since(since)) * u128::from(self.sets) / u128::from(self.turn);
        let passed = u64::try_from(passed).unwrap_or(u64::MAX);
        if passed == 0 {
            return;
        }
        if passed >= self.sets {
            return self.remove(&[], head);
        }
        for set in first..first + passed {
            self.clear_entries((set % self.sets) as u32, head, |_| false);
        }
        // What the division left over counts the next time.
        let since = since.plus((u128::from(passed) * u128::from(self.turn) / u128::from(self.sets)) as u64);
        self.hand = ((first + passed) % self.sets, since);
    }

    /// Clears what begins in any of `ranges`, and what left the log whose head is at `head`.
    pub(super) fn remove(&mut self, ranges: &[Range64], head: LogOffset) {
        if ranges.iter().any(|range| range.end.saturating_sub(range.start) > MAX_JUMP) {
            self.words.fill(0);
        } else {
            for set in 0..self.sets {
                let dropped = |offset: LogOffset| ranges.iter().any(|range| range.contains(&offset.0));
                self.clear_entries(set as u32, head, dropped);
            }
        }
        self.hand.1 = self.hand.1.max(head);
    }

    /// Returns the bytes of memory that the table takes when it is full.
    pub(super) fn memory(&self) -> usize {
        self.words.len() * size_of::<u32>()
    }

    /// Clears the entries of a set that left the log, and those that `drop` says.
    fn clear_entries(&mut self, index: u32, head: LogOffset, drop: impl Fn(LogOffset) -> bool) {
        let positions = self.set(index).copied().unwrap_or_default();
        for (entry, &position) in positions.iter().enumerate().take(ENTRIES) {
            if self.rebuild(position, head).is_none_or(&drop)
                && let Some(set) = self.set_mut(index)
            {
                put(set, entry, 0, Place::default());
            }
        }
    }

    /// Returns the last offset before `head` that a position may mean, if it is within the log.
    #[inline]
    fn rebuild(&self, position: u32, head: LogOffset) -> Option<LogOffset> {
        let distance = u64::from((head.0 as u32).wrapping_sub(position));
        if distance == 0 || distance > self.found { None } else { head.checked_minus(distance) }
    }

    #[inline]
    fn set(&self, index: u32) -> Option<&Set> {
        self.words.get(self.start(index)..)?.first_chunk()
    }

    #[inline]
    fn set_mut(&mut self, index: u32) -> Option<&mut Set> {
        let start = self.start(index);
        self.words.get_mut(start..)?.first_chunk_mut()
    }

    #[inline]
    fn start(&self, index: u32) -> usize {
        self.skip + index as usize * SET_WORDS
    }
}

/// Returns which entry of the set has the place's tag.
#[inline]
fn find(set: &Set, place: Place) -> Option<usize> {
    (0..ENTRIES).find(|&entry| set[LOW + entry] == place.low && high(set, entry) == place.high)
}

#[inline]
fn high(set: &Set, entry: usize) -> u16 {
    (set[HIGH + entry / 2] >> (entry % 2 * 16)) as u16
}

#[inline]
fn is_empty(set: &Set, entry: usize) -> bool {
    set[LOW + entry] == 0
}

#[inline]
fn put(set: &mut Set, entry: usize, position: u32, place: Place) {
    set[entry] = position;
    set[LOW + entry] = place.low;
    let shift = entry % 2 * 16;
    let high = &mut set[HIGH + entry / 2];
    *high = *high & !(0xffff << shift) | u32::from(place.high) << shift;
}

/// A line of the cache.
const SET_WORDS: usize = 16;
/// Entries of a set.
const ENTRIES: usize = 6;
/// Where the tags' lower halves and upper quarters begin in a set.
const LOW: usize = ENTRIES;
const HIGH: usize = 2 * ENTRIES;

/// Twice the entries that a set has when the log is full: 4.5 of 6.
const TWICE_THE_LOAD: u64 = 9;
/// The smallest table, 4 KiB.
const MIN_SETS: u64 = 64;
/// Positions before they come round.
const POSITIONS: u64 = 1 << 32;
/// The most of a log that is found: half of the positions, so that the hand has time for the rest.
const MAX_FOUND: u64 = POSITIONS / 2;
/// How far the head may jump, as after a restart, without the table being emptied.
const MAX_JUMP: u64 = 1 << 28;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand_pcg::Pcg64Mcg;
    use rand_pcg::rand_core::{Rng, SeedableRng};

    use super::*;

    fn hash(n: u64) -> u128 {
        twox_hash::XxHash3_128::oneshot(&n.to_le_bytes())
    }

    fn put_at(table: &mut Table, n: u64, offset: u64) {
        let offset = LogOffset(offset);
        table.insert(table.place(hash(n)), offset, offset);
    }

    fn get(table: &Table, n: u64, head: u64) -> Option<u64> {
        table.look_up(table.place(hash(n)), LogOffset(head)).map(|offset| offset.0)
    }

    #[test]
    fn sets_lie_on_lines_of_the_cache() {
        let table = Table::new(1 << 20, 64);
        assert_eq!(std::ptr::from_ref(table.set(3).unwrap()).addr() % 64, 0);
    }

    #[test]
    fn the_table_of_a_log_is_below_a_quarter_of_it() {
        for capacity in [1u64 << 20, 1 << 26, 1 << 30, 1 << 31] {
            let share = Table::new(capacity, 64).memory() as f64 / capacity as f64;
            assert!((0.220..0.224).contains(&share), "{share} of {capacity}");
        }
    }

    #[test]
    fn a_full_log_loses_one_chunk_in_fourteen_at_most_and_the_oldest_first() {
        let capacity = 1u64 << 22;
        let mut table = Table::new(capacity, 64);
        let chunks = capacity / 64;
        for n in 0..4 * chunks {
            put_at(&mut table, n, n * 64);
        }
        let head = 4 * capacity;
        let alive = |from: u64| {
            let found = (from..4 * chunks).filter(|&n| get(&table, n, head) == Some(n * 64)).count();
            found as f64 / (4 * chunks - from) as f64
        };
        assert!(alive(3 * chunks) > 0.92, "{}", alive(3 * chunks));
        assert!(alive(4 * chunks - chunks / 2) > 0.99, "{}", alive(4 * chunks - chunks / 2));
        assert_eq!((0..3 * chunks).filter(|&n| get(&table, n, head).is_some()).count(), 0);
    }

    #[test]
    fn a_chunk_moves_with_its_last_block_and_stays_within_one() {
        let mut table = Table::new(1 << 20, 64);
        let place = table.place(hash(1));
        table.insert(place, LogOffset(100), LogOffset(100));
        table.insert(place, LogOffset(100), LogOffset(700));
        assert_eq!(get(&table, 1, 1000), Some(100));
        table.insert(place, LogOffset(800), LogOffset(900));
        assert_eq!(get(&table, 1, 1000), Some(900));
    }

    /// Seldom used entries are the dangerous ones: nothing displaces them while the head goes round.
    #[test]
    fn no_position_is_taken_for_one_a_turn_later() {
        let capacity = 1u64 << 31;
        let mut table = Table::new(capacity, 1 << 16);
        (0..1000).for_each(|n| put_at(&mut table, n, 5 + n));
        let mut head = 2000;
        while head < 3 << 32 {
            head += 1 << 24;
            table.advance(LogOffset(head));
            if head > capacity + 2000 {
                assert_eq!((0..1000).filter(|&n| get(&table, n, head).is_some()).count(), 0, "head {head}");
            }
        }
    }

    #[test]
    fn a_jump_of_the_head_leaves_nothing_behind_that_could_come_round() {
        for jump in [1 << 20, MAX_JUMP, MAX_JUMP + 1, 1 << 40] {
            let mut table = Table::new(1 << 20, 64);
            let mut head = 1000;
            put_at(&mut table, 7, 900);
            for _ in 0..40 {
                let hole = head..head + jump;
                table.remove(std::slice::from_ref(&hole), LogOffset(hole.end));
                head += jump;
                assert_eq!(get(&table, 7, head), None, "jump {jump} to {head}");
            }
        }
    }

    #[test]
    fn the_table_agrees_with_a_map_as_far_as_it_remembers() {
        let mut rng = Pcg64Mcg::seed_from_u64(11);
        let capacity = 1u64 << 16;
        let mut table = Table::new(capacity, 64);
        let mut map = BTreeMap::new();
        let (mut head, mut hits) = (0u64, 0);
        for _ in 0..30_000 {
            let n = rng.next_u64() % 1500;
            if rng.next_u64() % 50 == 0 {
                let start = head.saturating_sub(rng.next_u64() % capacity);
                let range = start..start + 500;
                table.remove(std::slice::from_ref(&range), LogOffset(head));
                map.retain(|_, offset| !range.contains(offset));
            }
            let expected = map.get(&n).copied().filter(|&offset| head - offset <= capacity);
            let found = get(&table, n, head);
            assert!(found.is_none() || found == expected, "{found:?} for {expected:?}");
            hits += u32::from(found.is_some());
            put_at(&mut table, n, head);
            map.insert(n, head);
            head += 64;
            table.advance(LogOffset(head));
        }
        assert!(hits > 10_000, "{hits}");
    }

    #[test]
    fn absurd_numbers_do_not_panic() {
        for (capacity, period) in [(0, 0), (u64::MAX, usize::MAX), (1, 1)] {
            let mut table = Table::new(capacity, period);
            put_at(&mut table, 1, u64::MAX);
            table.advance(LogOffset(u64::MAX));
            table.remove(&[0..u64::MAX, 5..5], LogOffset(u64::MAX));
            assert_eq!(get(&table, 1, 0), None);
        }
    }
}
