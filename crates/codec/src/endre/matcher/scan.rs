//! The pass over one block: comparing, extending, and following diagonals.

use oncewire_fingerprint::{common_prefix, common_suffix, prefetch_read, resync};

use super::slots::GRAIN;
use super::{Copy, Search};
use crate::log::{LINE, Log, LogOffset};

/// What was found of a block so far. Everything before `covered` is decided.
pub(super) struct Scan<'a> {
    log: &'a Log,
    block: &'a [u8],
    at: LogOffset,
    floor: LogOffset,
    copies: &'a mut Vec<Copy>,
}

impl<'a> Scan<'a> {
    /// Starts a pass in which nothing is found yet; `copies` is empty.
    pub(super) fn new(log: &'a Log, search: &Search<'a>, copies: &'a mut Vec<Copy>) -> Self {
        Self { log, block: search.block, at: search.at, floor: search.floor, copies }
    }

    /// Returns the end of the last copy: where literals begin.
    #[inline]
    pub(super) fn covered(&self) -> usize {
        self.copies.last().map_or(0, Copy::end)
    }

    /// Follows the diagonal on which the block's first byte is expected at `source`.
    pub(super) fn follow(&mut self, source: LogOffset) {
        if self.accept(0, source, MIN_RESUMED) || self.resume(0, source) {
            self.resume_while_possible();
        }
    }

    /// Whether the block begins as the log does at `source`, as far as that makes a long copy.
    pub(super) fn begins(&self, source: LogOffset) -> bool {
        let start = self.block.get(..LONG as usize).unwrap_or(self.block);
        if source < self.floor || self.at.since(source) < start.len() as u64 {
            return false;
        }
        #[cfg(test)]
        crate::endre::matcher::tests::note_compared(start.len());
        let (first, second) = self.log.slices(source, start.len());
        start.strip_prefix(first) == Some(second)
    }

    /// Returns how many bytes from the block's first on equal those from `source` on.
    pub(super) fn run(&self, source: LogOffset) -> usize {
        self.around(0, source).map_or(0, |copy| copy.len as usize)
    }

    /// Looks around a place with bytes perhaps equal to the log's at `source`, or at `other`; takes the longer run of
    /// equal ones, and the bytes behind it on the same diagonal. Returns whether there is any.
    #[inline]
    pub(super) fn extend(&mut self, place: usize, source: LogOffset, other: Option<LogOffset>) -> bool {
        if place < self.covered() {
            return false;
        }
        let mut best = self.near(place, source);
        if let Some(other) = other
            && best.is_none_or(|best| best.len < LONG)
        {
            let second = self.near(place, other);
            if second.map_or(0, |copy| copy.len) > best.map_or(0, |copy| copy.len) {
                best = second;
            }
        }
        let Some(copy) = best.filter(|copy| copy.len as usize >= MIN_FOUND) else { return false };
        self.copies.push(copy);
        self.resume_while_possible();
        true
    }

    /// Returns the equal bytes around `position` and one of the bytes of the grain at `source`: the most of them, of
    /// several.
    #[inline]
    fn near(&self, position: usize, source: LogOffset) -> Option<Copy> {
        let here = self.block.get(position..)?.first_chunk::<8>()?;
        let there = self.log.beside(source).1.first_chunk::<{ 8 + GRAIN as usize - 1 }>();
        let Some(there) = there else { return self.nearest(position, source, !0) };
        let equal = there.windows(8).rev().fold(0, |equal, there| equal << 1 | u32::from(there == here));
        match equal.count_ones() {
            0 => None,
            1 => self.around(position, source.plus(u64::from(equal.trailing_zeros()))),
            _ => self.nearest(position, source, equal),
        }
    }

    /// Tries those bytes of a grain whose bit is set in `within`.
    #[cold]
    fn nearest(&self, position: usize, source: LogOffset, within: u32) -> Option<Copy> {
        let tried = (0..GRAIN).filter(|byte| within >> byte & 1 == 1);
        tried.filter_map(|byte| self.around(position, source.plus(byte))).max_by_key(|copy| copy.len)
    }

    fn resume_while_possible(&mut self) {
        while let Some(last) = self.copies.last() {
            let (end, source_end) = (last.end(), last.source_end());
            if !self.resume(end, source_end) {
                return;
            }
        }
    }

    /// Tries a little behind `position`, which differs from `source`, at the same distance.
    #[inline]
    fn resume(&mut self, position: usize, source: LogOffset) -> bool {
        let here = self.block.get(position..).unwrap_or_default().first_chunk();
        let there = self.log.beside(source).1.first_chunk();
        let (Some(here), Some(there)) = (here, there) else { return self.resume_at_an_end(position, source) };
        resync(here, there)
            .is_some_and(|skip| self.accept(position + skip, source.plus(skip as u64), MIN_RESUMED))
    }

    /// [`Self::resume`] where the block or a segment of the log is about to end.
    #[cold]
    fn resume_at_an_end(&mut self, position: usize, source: LogOffset) -> bool {
        [8, 24, 56]
            .into_iter()
            .any(|skip| self.accept(position + skip, source.plus(skip as u64), MIN_RESUMED))
    }

    /// Makes a copy of the equal bytes around `position` and `source`, if they are `min` or more.
    fn accept(&mut self, position: usize, source: LogOffset, min: usize) -> bool {
        let found = self.around(position, source).filter(|copy| copy.len as usize >= min);
        self.copies.extend(found);
        found.is_some()
    }

    /// Returns the equal bytes around `position` and `source`, if there are any at the place itself.
    #[inline]
    fn around(&self, position: usize, source: LogOffset) -> Option<Copy> {
        if position >= self.block.len() || source < self.floor || source >= self.at {
            return None;
        }
        let forward = self.forward(position, source);
        if forward == 0 {
            return None;
        }
        let backward = self.backward(position, source);
        #[cfg(test)]
        crate::endre::matcher::tests::note_compared(forward + backward);
        Some(Copy {
            at: (position - backward) as u32,
            len: (forward + backward) as u32,
            source: source.minus(backward as u64),
        })
    }

    /// Returns how many bytes from `position` on equal those from `source` on, up to the head.
    #[inline]
    fn forward(&self, position: usize, source: LogOffset) -> usize {
        let here = self.block.get(position..).unwrap_or_default();
        let len = (here.len() as u64).min(self.at.since(source)) as usize;
        let together = self.log.beside(source).1;
        if let (Some(here), Some(there)) = (here.first_chunk::<LINE>(), together.first_chunk())
            && len >= LINE
        {
            if here != there {
                return common_prefix(here, there);
            }
            // A processor asks ahead by itself, but only once it has waited for a few lines of a long run.
            (2..2 + LINES_AHEAD).for_each(|line| prefetch_read(together, line * LINE));
        }
        let equal = common_prefix(here, together.get(..len).unwrap_or(together));
        if equal < together.len() || equal == len {
            return equal;
        }
        let (_, second) = self.log.slices(source, len);
        equal + common_prefix(here.get(equal..).unwrap_or_default(), second)
    }

    /// Returns how many bytes before `position` equal those before `source`, down to the last copy and the floor.
    #[inline]
    fn backward(&self, position: usize, source: LogOffset) -> usize {
        let here = self.block.get(self.covered()..position).unwrap_or_default();
        let len = (here.len() as u64).min(source.since(self.floor)) as usize;
        let here = here.get(here.len() - len..).unwrap_or_default();
        let together = self.log.beside(source).0;
        let equal = common_suffix(here, together);
        if equal < together.len() || equal == len {
            return equal;
        }
        let (first, _) = self.log.slices(source.minus(len as u64), len);
        equal + common_suffix(here.get(..len - equal).unwrap_or_default(), first)
    }
}

/// The shortest copy around a fingerprint. Shorter ones cost as much as they save.
const MIN_FOUND: usize = 24;

/// A copy of this length is taken without a look at the other place where its window occurred.
const LONG: u32 = 512;

/// Lines of the log asked for where a line was equal.
const LINES_AHEAD: usize = 4;

/// The shortest copy on a diagonal known already, which costs three bytes.
const MIN_RESUMED: usize = 16;
