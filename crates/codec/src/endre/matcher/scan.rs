//! The pass over one block: comparing, extending, and following diagonals.

use oncewire_fingerprint::{common_prefix, common_suffix};

use super::{Copy, Search};
use crate::cache::{Log, LogOffset};

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

    /// Looks around a place, of which the bytes may equal the log's at `source`, or at `other`; takes the longer run
    /// of equal ones, and what follows on the same diagonal.
    #[inline]
    pub(super) fn extend(&mut self, place: usize, source: LogOffset, other: Option<LogOffset>) {
        if place < self.covered() {
            return;
        }
        let mut best = self.around(place, source);
        if let Some(other) = other
            && best.is_none_or(|best| best.len < LONG)
        {
            let second = self.around(place, other);
            if second.map_or(0, |copy| copy.len) > best.map_or(0, |copy| copy.len) {
                best = second;
            }
        }
        if let Some(copy) = best.filter(|copy| copy.len as usize >= MIN_FOUND) {
            self.copies.push(copy);
            self.resume_while_possible();
        }
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
    fn resume(&mut self, position: usize, source: LogOffset) -> bool {
        RESUME_AFTER.iter().any(|&skip| self.accept(position + skip, source.plus(skip as u64), MIN_RESUMED))
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
        let len = (here.len() as u64).min(self.at.since(source));
        let (first, second) = self.log.slices(source, len as usize);
        let equal = common_prefix(here, first);
        if equal < first.len() {
            return equal;
        }
        equal + common_prefix(here.get(equal..).unwrap_or_default(), second)
    }

    /// Returns how many bytes before `position` equal those before `source`, down to the last copy and the floor.
    #[inline]
    fn backward(&self, position: usize, source: LogOffset) -> usize {
        let here = self.block.get(self.covered()..position).unwrap_or_default();
        let len = (here.len() as u64).min(source.since(self.floor));
        let (first, second) = self.log.slices(source.minus(len), len as usize);
        let equal = common_suffix(here, second);
        if equal < second.len() {
            return equal;
        }
        equal + common_suffix(here.get(..here.len() - equal).unwrap_or_default(), first)
    }
}

/// The shortest copy around a fingerprint. Shorter ones cost as much as they save.
const MIN_FOUND: usize = 24;

/// A copy of this length is taken without a look at the other place where its window occurred.
const LONG: u32 = 512;

/// The shortest copy on a diagonal that is known already, which costs three bytes.
const MIN_RESUMED: usize = 16;

/// How far behind a difference the same diagonal is tried again.
const RESUME_AFTER: [usize; 3] = [8, 24, 56];
