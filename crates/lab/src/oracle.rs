//! An upper bound for Max-Match: an oracle with an index of every byte.
//!
//! A suffix array of all the bytes, and the set of suffixes before the block, give at each position the longest
//! repeat of anything earlier: the two neighbours in the array's order. The oracle takes it if it has a window's
//! length, and goes on behind it. That is greedy, so a better choice of overlapping repeats exists now and then, but
//! at each position it is exact. Memory is nine times the bytes; a few million bytes a second are done.
//!
//! Rejected: an index of the last occurrence of every window, equal to Max-Match with a marker at every byte, finds a
//! repeat, but not the longest; chains of all occurrences are exact and, in a run of zeros, quadratic.

use oncewire_codec::endre::tokens::{self, Copy};
use oncewire_codec::log::LogOffset;
use oncewire_codec::wire::MAX_BLOCK;
use oncewire_fingerprint::common_prefix;

/// The sources allowed to the oracle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// From bytes before the block, as a codec with a log does, block by block.
    Block,
    /// From bytes before the byte, even from the copy itself, as in LZ77: no greedy codec finds more.
    Byte,
}

/// The bytes eliminated by the oracle, before any entropy stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Elimination {
    /// All bytes.
    pub plain: u64,
    /// The copied ones.
    pub copied: u64,
    /// Bytes of the tokens, in the codec's own form. Headers of frames are not counted.
    pub tokens: u64,
}

impl Elimination {
    /// Returns 1 − (literals + tokens) / bytes; 0 of no bytes.
    pub fn savings(&self) -> f64 {
        if self.plain == 0 { 0.0 } else { (self.copied as f64 - self.tokens as f64) / self.plain as f64 }
    }
}

/// Eliminates repeats of `window` bytes or more in `data`, cut into blocks of 64 KiB.
///
/// `data` has less than 2 GiB.
pub fn eliminate(data: &[u8], window: usize, reach: Reach) -> Elimination {
    let mut suffixes = Suffixes::new(data);
    let mut total = Elimination { plain: data.len() as u64, ..Elimination::default() };
    let (mut copies, mut encoded) = (Vec::new(), Vec::new());
    for start in (0..data.len()).step_by(MAX_BLOCK) {
        let end = data.len().min(start + MAX_BLOCK);
        copies.clear();
        suffixes.find(start..end, window, reach, &mut copies);
        suffixes.see(end);
        encoded.clear();
        tokens::encode(&copies, LogOffset(start as u64), &mut encoded);
        total.copied += copies.iter().map(|copy| u64::from(copy.len)).sum::<u64>();
        total.tokens += encoded.len() as u64;
    }
    total
}

/// All suffixes in order, and the seen ones.
struct Suffixes<'a> {
    data: &'a [u8],
    /// The start of each rank's suffix.
    starts: Vec<i32>,
    /// The rank of the suffix at each position.
    ranks: Vec<u32>,
    seen: Set,
    /// Positions before it are in `seen`.
    seen_to: usize,
}

impl<'a> Suffixes<'a> {
    fn new(data: &'a [u8]) -> Self {
        let (_, starts) = divsufsort::sort(data).into_parts();
        let mut ranks = vec![0; data.len()];
        for (rank, start) in starts.iter().enumerate() {
            ranks[*start as usize] = rank as u32;
        }
        Self { data, starts, ranks, seen: Set::new(data.len()), seen_to: 0 }
    }

    /// Takes all suffixes before `end` for seen.
    fn see(&mut self, end: usize) {
        for position in self.seen_to..end {
            self.seen.insert(self.ranks[position] as usize);
        }
        self.seen_to = self.seen_to.max(end);
    }

    fn find(&mut self, block: std::ops::Range<usize>, window: usize, reach: Reach, copies: &mut Vec<Copy>) {
        let mut position = block.start;
        while position + window <= block.end {
            if reach == Reach::Byte {
                self.see(position);
            }
            let limit = if reach == Reach::Block { block.start } else { usize::MAX };
            let (source, len) = self.longest(position, block.end, limit);
            if len < window {
                position += 1;
                continue;
            }
            copies.push(Copy {
                at: (position - block.start) as u32,
                len: len as u32,
                source: LogOffset(source as u64),
            });
            position += len;
        }
    }

    /// Returns the seen suffix with most bytes in common with `position..end`, and their number; its bytes from
    /// `limit` on do not count.
    fn longest(&self, position: usize, end: usize, limit: usize) -> (usize, usize) {
        let rank = self.ranks[position] as usize;
        let neighbours = [self.seen.before(rank), self.seen.after(rank)];
        let common = neighbours.into_iter().flatten().map(|rank| {
            let source = self.starts[rank] as usize;
            let source_end = self.data.len().min(limit).max(source);
            (source, common_prefix(&self.data[position..end], &self.data[source..source_end]))
        });
        common.max_by_key(|(_, len)| *len).unwrap_or((0, 0))
    }
}

/// A set of numbers below a bound, with quick access to the neighbours of each: bits, and above every 64 of them a
/// bit to say whether one is set.
struct Set {
    levels: Vec<Vec<u64>>,
}

impl Set {
    fn new(bound: usize) -> Self {
        let mut levels = vec![vec![0; bound.div_ceil(64).max(1)]];
        while let Some(len) = levels.last().map(Vec::len)
            && len > 1
        {
            levels.push(vec![0; len.div_ceil(64)]);
        }
        Self { levels }
    }

    fn insert(&mut self, mut number: usize) {
        for level in &mut self.levels {
            let word = &mut level[number / 64];
            let known = *word != 0;
            *word |= 1 << (number % 64);
            if known {
                return;
            }
            number /= 64;
        }
    }

    /// Returns the largest member below `number`.
    fn before(&self, mut number: usize) -> Option<usize> {
        for (height, level) in self.levels.iter().enumerate() {
            let below = level[number / 64] & !(u64::MAX << (number % 64));
            if below != 0 {
                let found = number / 64 * 64 + below.ilog2() as usize;
                return Some(self.descend(height, found, |word| word.ilog2()));
            }
            number /= 64;
        }
        None
    }

    /// Returns the smallest member above `number`.
    fn after(&self, mut number: usize) -> Option<usize> {
        for (height, level) in self.levels.iter().enumerate() {
            let above = level[number / 64] & u64::MAX.checked_shl(number as u32 % 64 + 1).unwrap_or(0);
            if above != 0 {
                let found = number / 64 * 64 + above.trailing_zeros() as usize;
                return Some(self.descend(height, found, u64::trailing_zeros));
            }
            number /= 64;
        }
        None
    }

    /// Goes down from a nonzero word to a member under it, by the bits from `choose`.
    fn descend(&self, height: usize, word: usize, choose: impl Fn(u64) -> u32) -> usize {
        self.levels[..height].iter().rev().fold(word, |word, level| word * 64 + choose(level[word]) as usize)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand_pcg::Pcg64Mcg;
    use rand_pcg::rand_core::{Rng, SeedableRng};

    use super::*;

    #[test]
    fn the_set_knows_the_same_neighbours_as_a_tree() {
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        for bound in [1, 63, 64, 65, 4096, 300_000] {
            let (mut set, mut tree) = (Set::new(bound), BTreeSet::new());
            for _ in 0..400 {
                let number = (rng.next_u64() % bound as u64) as usize;
                assert_eq!(
                    set.before(number),
                    tree.range(..number).next_back().copied(),
                    "{number} of {bound}"
                );
                assert_eq!(
                    set.after(number),
                    tree.range(number + 1..).next().copied(),
                    "{number} of {bound}"
                );
                set.insert(number);
                tree.insert(number);
            }
        }
    }

    #[test]
    fn oracle_equals_a_search_of_every_place() {
        let mut rng = Pcg64Mcg::seed_from_u64(2);
        for window in [3, 8] {
            // Few letters, so repeats overlap and have several sources.
            let mut data: Vec<u8> = (0..3000).map(|_| b"ab"[(rng.next_u32() % 2) as usize]).collect();
            data.extend_from_within(500..1500);
            let (mut copied, mut position) = (0, 0);
            while position + window <= data.len() {
                let lens = (0..position).map(|source| common_prefix(&data[position..], &data[source..]));
                let longest = lens.max().unwrap_or(0);
                let taken = if longest >= window { longest } else { 0 };
                copied += taken as u64;
                position += taken.max(1);
            }
            assert_eq!(eliminate(&data, window, Reach::Byte).copied, copied);
        }
    }

    #[test]
    fn within_a_block_only_the_oracle_by_bytes_finds_repeats() {
        let mut data = vec![0; 1000];
        Pcg64Mcg::seed_from_u64(3).fill_bytes(&mut data);
        data.extend_from_within(..);
        assert_eq!(eliminate(&data, 32, Reach::Block).copied, 0);
        assert_eq!(eliminate(&data, 32, Reach::Byte).copied, 1000);
        data.resize(MAX_BLOCK, 7);
        let repeated = [&data[..], &data[..]].concat();
        assert_eq!(eliminate(&repeated, 32, Reach::Block).copied, MAX_BLOCK as u64);
    }

    #[test]
    fn nothing_saves_nothing() {
        assert_eq!(eliminate(&[], 32, Reach::Block).savings(), 0.0);
        assert_eq!(eliminate(&[0; 40], 32, Reach::Block).copied, 0);
    }
}
