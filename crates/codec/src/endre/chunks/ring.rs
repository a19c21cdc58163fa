//! The chunks of the log in its order: position and tag of each, ten bytes a chunk.

use std::ops::Range;

use oncewire_fingerprint::prefetch_read;
use oncewire_sys::Pages;

use crate::log::LogOffset;
use crate::wire::Range64;

/// A number each chunk gets in turn.
pub(super) type Seq = u64;

/// The bits of a chunk's hash kept, 48; never all zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tag([u16; 3]);

/// The most recent chunks of the log, as many as there is room for.
pub(super) struct Ring {
    /// Position, lower half first, and tag.
    entries: Pages<[u16; 5]>,
    next: Seq,
    /// Where the next chunk goes.
    head: usize,
    /// How many of the last chunks lie within the log.
    live: usize,
    /// Behind the last chunk.
    end: LogOffset,
    /// How many bytes of log are found.
    reach: u64,
}

impl Tag {
    /// Takes the lower bits of a hash.
    #[inline]
    pub(super) const fn new(hash: u64) -> Self {
        Self([hash as u16, (hash >> 16) as u16, (hash >> 32) as u16 | (hash as u32 == 0) as u16])
    }
}

impl Ring {
    /// Creates an empty ring for a log of `capacity` bytes with a chunk each `period` bytes.
    ///
    /// Its memory is taken from the system as it is used.
    pub(super) fn new(capacity: u64, period: usize) -> Self {
        let reach = capacity.clamp(1, MAX_REACH);
        let expected = reach / period.max(1) as u64;
        let entries = Pages::zeroed((expected + expected / SLACK).max(MIN_CHUNKS) as usize);
        Self { entries, next: 0, head: 0, live: 0, end: LogOffset::ZERO, reach }
    }

    /// Returns how many chunks there is room for.
    pub(super) fn capacity(&self) -> usize {
        self.entries.len()
    }

    /// Returns the number the next chunk gets.
    #[inline]
    pub(super) fn next(&self) -> Seq {
        self.next
    }

    /// Adds the chunk of `len` bytes written at `offset`, behind all others.
    #[inline]
    pub(super) fn push(&mut self, offset: LogOffset, len: u64, tag: Tag) {
        let position = offset.0 as u32;
        let Tag([low, middle, high]) = tag;
        if let Some(entry) = self.entries.get_mut(self.head) {
            *entry = [position as u16, (position >> 16) as u16, low, middle, high];
        }
        self.head = if self.head + 1 < self.entries.len() { self.head + 1 } else { 0 };
        self.live = (self.live + 1).min(self.entries.len());
        self.next += 1;
        self.end = offset.plus(len);
    }

    /// Lets go of the chunks beginning too far before `head`.
    ///
    /// Positions come round after 4 GiB: if the head went on by more than [`MAX_JUMP`] since the last chunk, all are
    /// let go.
    pub(super) fn retire(&mut self, head: LogOffset) {
        if head.since(self.end) > MAX_JUMP {
            self.live = 0;
        }
        while self.live > 0 && self.distance(self.oldest(), head).is_none_or(|distance| distance > self.reach)
        {
            self.live -= 1;
        }
    }

    /// Begins to bring a chunk into the processor's cache.
    #[inline]
    pub(super) fn prefetch(&self, seq: Seq) {
        if let Some(index) = self.index(seq) {
            prefetch_read(&self.entries, index);
        }
    }

    /// Returns whether the chunk has this tag.
    #[inline]
    pub(super) fn has(&self, seq: Seq, tag: Tag) -> bool {
        self.entry(seq).is_some_and(|&[_, _, low, middle, high]| Tag([low, middle, high]) == tag)
    }

    /// Returns the places of the chunk and of the next one: its end, unless bytes between were not cut.
    #[inline]
    pub(super) fn range(&self, seq: Seq, head: LogOffset) -> Option<Range<LogOffset>> {
        let start = self.offset(seq, head)?;
        Some(start..self.offset(seq + 1, head).unwrap_or(self.end))
    }

    /// Returns where the chunk lies, seen from a head not before it.
    #[inline]
    pub(super) fn offset(&self, seq: Seq, head: LogOffset) -> Option<LogOffset> {
        head.checked_minus(self.distance(seq, head)?)
    }

    /// Returns the first chunk at `offset` or behind it.
    pub(super) fn first_from(&self, offset: LogOffset, head: LogOffset) -> Seq {
        let (mut low, mut high) = (self.oldest(), self.next);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.offset(middle, head).is_some_and(|found| found < offset) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Lets no chunk touching `range` be found.
    pub(super) fn forget(&mut self, range: &Range64, head: LogOffset) {
        if range.end.saturating_sub(range.start) > MAX_JUMP {
            self.live = 0;
            return;
        }
        let first = self.first_from(LogOffset(range.start), head);
        // The one before may reach into the range.
        let mut seq = first.saturating_sub(1).max(self.oldest());
        while seq < self.next && self.offset(seq, head).is_some_and(|offset| offset.0 < range.end) {
            if let Some(entry) = self.index(seq).and_then(|index| self.entries.get_mut(index)) {
                let [low, high, ..] = *entry;
                *entry = [low, high, 0, 0, 0];
            }
            seq += 1;
        }
    }

    /// Returns the bytes of memory it takes when it is full.
    pub(super) fn memory(&self) -> usize {
        size_of_val(&self.entries[..])
    }

    fn oldest(&self) -> Seq {
        self.next - self.live as u64
    }

    #[inline]
    fn entry(&self, seq: Seq) -> Option<&[u16; 5]> {
        self.entries.get(self.index(seq)?)
    }

    /// Returns where the chunk stands in the ring, if it is still there.
    #[inline]
    fn index(&self, seq: Seq) -> Option<usize> {
        let age = self.next.checked_sub(seq).filter(|&age| age > 0 && age <= self.live as u64)? as usize;
        self.head.checked_sub(age).or_else(|| (self.head + self.entries.len()).checked_sub(age))
    }

    /// Returns how far before `head` the chunk begins.
    #[inline]
    fn distance(&self, seq: Seq, head: LogOffset) -> Option<u64> {
        let &[low, high, ..] = self.entry(seq)?;
        Some(u64::from((head.0 as u32).wrapping_sub(u32::from(low) | u32::from(high) << 16)))
    }
}

/// One more chunk for each so many expected.
const SLACK: u64 = 32;
/// The smallest ring.
const MIN_CHUNKS: u64 = 256;
/// The most of a log found: half of what a position of 32 bits can tell.
const MAX_REACH: u64 = 1 << 31;
/// How far the head may go on without a chunk, as after a restart, without everything being let go: with the reach,
/// less than a position can tell.
const MAX_JUMP: u64 = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(n: u64) -> Tag {
        Tag::new(n + 1)
    }

    #[test]
    fn only_chunks_within_the_log_are_found() {
        let mut ring = Ring::new(1 << 16, 64);
        for n in 0..5000 {
            ring.push(LogOffset(n * 64), 64, tag(n));
            let head = LogOffset((n + 1) * 64);
            ring.retire(head);
            let oldest = (n + 1).saturating_sub(1024);
            assert_eq!(ring.offset(oldest, head), Some(LogOffset(oldest * 64)));
            assert_eq!(ring.range(n, head), Some(LogOffset(n * 64)..head));
            assert!(ring.has(oldest, tag(oldest)) && !ring.has(oldest, tag(oldest + 1)));
            assert!(oldest == 0 || ring.offset(oldest - 1, head).is_none());
            assert_eq!(ring.offset(n + 1, head), None);
        }
    }

    #[test]
    fn more_chunks_than_expected_displace_the_oldest() {
        let mut ring = Ring::new(1 << 16, 64);
        (0..4096).for_each(|n| ring.push(LogOffset(n * 16), 16, tag(n)));
        let kept = ring.capacity() as u64;
        let head = LogOffset(1 << 16);
        ring.retire(head);
        assert_eq!(ring.offset(4096 - kept, head), Some(LogOffset((4096 - kept) * 16)));
        assert_eq!(ring.offset(4095 - kept, head), None);
    }

    #[test]
    fn the_chunk_at_an_offset_is_found() {
        let mut ring = Ring::new(1 << 20, 64);
        (0..100).for_each(|n| ring.push(LogOffset(50 + n * 64), 64, tag(n)));
        let head = LogOffset(50 + 6400);
        for (offset, seq) in [(0, 0), (50, 0), (51, 1), (114, 1), (50 + 99 * 64, 99), (7000, 100)] {
            assert_eq!(ring.first_from(LogOffset(offset), head), seq, "{offset}");
        }
    }

    #[test]
    fn only_forgotten_chunks_lose_their_tags() {
        let mut ring = Ring::new(1 << 20, 64);
        (0..100).for_each(|n| ring.push(LogOffset(n * 64), 64, tag(n)));
        ring.forget(&(650..700), LogOffset(6400));
        let left: Vec<u64> = (0..100).filter(|&n| !ring.has(n, tag(n))).collect();
        assert_eq!(left, [10]);
        ring.forget(&(640..641), LogOffset(6400));
        assert!(!ring.has(9, tag(9)) && ring.has(8, tag(8)) && ring.has(11, tag(11)));
    }

    /// Long chunks leave the ring half empty, so an entry could get older than a position can tell.
    #[test]
    fn no_position_is_taken_for_one_a_turn_later() {
        let mut ring = Ring::new(1 << 31, 1 << 14);
        for n in 0..2000 {
            let head = LogOffset((n + 1) << 24);
            ring.push(LogOffset(n << 24), 1 << 24, tag(n));
            ring.retire(head);
            assert_eq!(ring.oldest(), (n + 1).saturating_sub(128));
        }
    }

    #[test]
    fn jump_of_the_head_leaves_nothing_to_come_round() {
        for jump in [1 << 20, MAX_JUMP, MAX_JUMP + 1, 1 << 40] {
            let mut ring = Ring::new(1 << 20, 64);
            ring.push(LogOffset(900), 64, tag(7));
            let mut head = 1000;
            for _ in 0..40 {
                ring.forget(&(head..head + jump), LogOffset(head + jump));
                head += jump;
                ring.retire(LogOffset(head));
                assert_eq!(ring.offset(0, LogOffset(head)), None, "jump {jump} to {head}");
            }
        }
    }

    #[test]
    fn absurd_numbers_do_not_panic() {
        for (capacity, period) in [(0, 0), (u64::MAX, usize::MAX), (1, 1)] {
            let mut ring = Ring::new(capacity, period);
            let last = LogOffset(u64::MAX);
            assert_eq!(ring.range(0, last), None);
            ring.push(last, u64::MAX, tag(1));
            ring.retire(last);
            ring.forget(&(0..u64::MAX), last);
            ring.forget(&(5..5), LogOffset::ZERO);
            assert_eq!((ring.offset(0, LogOffset::ZERO), ring.offset(u64::MAX, last)), (None, None));
            assert_eq!(ring.first_from(last, last), 1);
        }
    }
}
