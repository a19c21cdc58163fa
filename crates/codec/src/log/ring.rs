//! The remembered bytes, addressed by offsets that only grow.
//!
//! The log is memory and nothing else: which offsets are valid, and when a byte may be given up, are the cache's
//! rules. It never refuses an offset, and never takes more memory than its limit and two segments.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;

use bytes::BufMut;
use oncewire_fingerprint::{copy_streaming, prefetch_read};
use oncewire_sys::Pages;

use super::RangeSet;
use crate::wire::MAX_BLOCK;

/// A position in the endless sequence of bytes that one direction of a link has remembered.
///
/// Offsets start at an epoch's origin and are never used twice within it. Arithmetic saturates: at 100 Gbit/s
/// the end of the range is 46 years away, so only a hostile number gets there, and then it must not panic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogOffset(pub u64);

impl LogOffset {
    /// The origin of an epoch.
    pub const ZERO: Self = Self(0);

    /// Returns the offset `bytes` further on, at most the largest there is.
    #[inline]
    pub const fn plus(self, bytes: u64) -> Self {
        Self(self.0.saturating_add(bytes))
    }

    /// Returns the offset `bytes` before this one, at least [`Self::ZERO`].
    #[inline]
    pub const fn minus(self, bytes: u64) -> Self {
        Self(self.0.saturating_sub(bytes))
    }

    /// Returns the bytes from `earlier` to this offset, 0 when `earlier` is not earlier.
    #[inline]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the offset `bytes` further on, `None` when there is no such offset.
    #[inline]
    pub fn checked_plus(self, bytes: u64) -> Option<Self> {
        self.0.checked_add(bytes).map(Self)
    }

    /// Returns the offset `bytes` before this one, `None` when there is no such offset.
    #[inline]
    pub fn checked_minus(self, bytes: u64) -> Option<Self> {
        self.0.checked_sub(bytes).map(Self)
    }

    /// Returns the range of `len` bytes that starts here.
    #[inline]
    pub const fn range(self, len: u64) -> Range<Self> {
        self..self.plus(len)
    }
}

impl fmt::Display for LogOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The last bytes of a log, addressed by [`LogOffset`], in segments taken as the log grows.
///
/// A segment behind the limit becomes the next one in front, so a full log takes no memory and clears none as it goes
/// on.
pub struct Log {
    /// Neighbours in order; the first is number `first`.
    segments: VecDeque<Pages<u8>>,
    first: u64,
    /// A segment holds 2 to the power of `shift` bytes.
    shift: u32,
    capacity: u64,
    limit: u64,
    /// Behind the last byte ever written.
    end: LogOffset,
}

impl Log {
    /// Creates an empty log of `capacity` bytes; 0 is taken as 1. It takes memory as it is filled.
    ///
    /// Any other size will do; logs in use have at least 256 KiB, four of the largest blocks.
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.max(1) as u64;
        let segment = (capacity / SEGMENTS).next_power_of_two().clamp(MIN_SEGMENT, MAX_SEGMENT);
        Self {
            segments: VecDeque::new(),
            first: 0,
            shift: segment.trailing_zeros(),
            capacity,
            limit: capacity,
            end: LogOffset::ZERO,
        }
    }

    /// Returns how many bytes the log holds at most.
    #[inline]
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Returns the offset behind the last byte ever written.
    pub fn end(&self) -> LogOffset {
        self.end
    }

    /// Returns how many of the last bytes are kept now, at most the capacity.
    #[inline]
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Changes how many of the last bytes are kept, from 1 to the capacity; what is older is given up at once, up
    /// to a segment.
    pub fn set_limit(&mut self, limit: u64) {
        self.limit = limit.clamp(1, self.capacity);
        let floor = self.floor();
        while !self.segments.is_empty() && self.first < floor {
            self.segments.pop_front();
            self.first += 1;
        }
    }

    /// Writes `bytes` at `offset`, in any order within the limit; what would lie further back is not written.
    pub fn write(&mut self, offset: LogOffset, bytes: &[u8]) {
        let large = self.segment_len() as u64 >= PAST_CACHES;
        let surplus = (bytes.len() as u64).saturating_sub(self.limit);
        let (_, mut rest) = bytes.split_at(surplus as usize);
        let mut at = offset.plus(surplus);
        self.end = self.end.max(at.plus(rest.len() as u64));
        while !rest.is_empty() {
            let from = self.within(at);
            let (piece, behind) = rest.split_at(rest.len().min(self.segment_len() - from));
            if let Some(segment) = self.segment_for_write(at.0 >> self.shift)
                && let Some(target) = segment.get_mut(from..from + piece.len())
            {
                // A log larger than the caches would only drive useful content out of them.
                if large {
                    copy_streaming(target, piece);
                } else {
                    target.copy_from_slice(piece);
                }
            }
            at = at.plus(piece.len() as u64);
            rest = behind;
        }
    }

    /// Returns the `len` bytes from `offset` in the two pieces they lie in; the second is often empty.
    ///
    /// A `len` beyond 128 KiB may be cut to it. Bytes out of the limit are left out; bytes never written, or given up,
    /// read as nothing or as any others.
    #[inline]
    pub fn slices(&self, offset: LogOffset, len: usize) -> (&[u8], &[u8]) {
        let (number, from) = (offset.0 >> self.shift, self.within(offset));
        let first = self.segment(number).get(from..).unwrap_or_default();
        let before_the_end = self.segment_len() - from;
        if len <= before_the_end {
            return (first.get(..len).unwrap_or_default(), &[]);
        }
        let second = self.segment(number.wrapping_add(1));
        (first, second.get(..len - before_the_end).unwrap_or(second))
    }

    /// Returns the bytes lying together with the one at `offset`, from the first of them to it and from it to the last;
    /// nothing of what is not held.
    #[inline]
    pub fn beside(&self, offset: LogOffset) -> (&[u8], &[u8]) {
        let segment = self.segment(offset.0 >> self.shift);
        segment.split_at_checked(self.within(offset)).unwrap_or_default()
    }

    /// Returns the bytes lying together from the one at `offset` on; nothing of what is not held.
    #[inline]
    pub fn behind(&self, offset: LogOffset) -> &[u8] {
        self.segment(offset.0 >> self.shift).get(self.within(offset)..).unwrap_or_default()
    }

    /// Returns the first offset lying in memory, whatever is there; the end if nothing does.
    pub fn oldest(&self) -> LogOffset {
        if self.segments.is_empty() { self.end } else { LogOffset(self.first << self.shift) }
    }

    /// Asks for the memory of a byte that will soon be read.
    #[inline]
    pub fn prefetch(&self, offset: LogOffset) {
        prefetch_read(self.segment(offset.0 >> self.shift), self.within(offset));
    }

    /// Asks for the memory around a byte, to be read both ways from there.
    #[inline]
    pub fn prefetch_around(&self, offset: LogOffset) {
        let (segment, at) = (self.segment(offset.0 >> self.shift), self.within(offset));
        prefetch_read(segment, at);
        prefetch_read(segment, at + LINE);
        prefetch_read(segment, at.wrapping_sub(LINE));
    }

    /// Appends the `len` bytes from `offset` to `out`, of a longer range than is held only what is held.
    #[inline]
    pub fn copy_to(&self, offset: LogOffset, len: usize, out: &mut impl BufMut) {
        let (mut at, mut rest) = (offset, len.min(self.capacity as usize));
        loop {
            let piece = rest.min(self.segment_len());
            let (first, second) = self.slices(at, piece);
            out.put_slice(first);
            out.put_slice(second);
            rest -= piece;
            if rest == 0 {
                return;
            }
            at = at.plus(piece as u64);
        }
    }

    /// Writes these ranges of it into another log.
    pub(crate) fn copy_ranges(&self, ranges: &RangeSet, to: &mut Self) {
        let mut piece = Vec::with_capacity(MAX_BLOCK);
        for range in ranges.iter() {
            for at in range.clone().step_by(MAX_BLOCK) {
                piece.clear();
                self.copy_to(LogOffset(at), (range.end - at).min(MAX_BLOCK as u64) as usize, &mut piece);
                to.write(LogOffset(at), &piece);
            }
        }
    }

    /// Forgets all bytes and gives their memory back to the system; the next offsets may be any.
    pub fn clear(&mut self) {
        self.segments = VecDeque::new();
        self.end = LogOffset::ZERO;
    }

    /// Returns the bytes of memory the log takes now.
    pub fn memory(&self) -> u64 {
        (self.segments.len() as u64) << self.shift
    }

    #[inline]
    fn segment_len(&self) -> usize {
        1 << self.shift
    }

    /// Returns where in its segment an offset lies.
    #[inline]
    fn within(&self, offset: LogOffset) -> usize {
        (offset.0 & ((1 << self.shift) - 1)) as usize
    }

    /// Returns the first segment of which anything is within the limit.
    fn floor(&self) -> u64 {
        self.end.minus(self.limit).0 >> self.shift
    }

    #[inline]
    fn segment(&self, number: u64) -> &[u8] {
        let index = number.wrapping_sub(self.first);
        self.segments.get(index as usize).map_or(&[], |segment| segment)
    }

    /// Returns the segment of a number, newly made if need be; `None` if it is behind the limit.
    fn segment_for_write(&mut self, number: u64) -> Option<&mut [u8]> {
        let floor = self.floor();
        if number < floor {
            return None;
        }
        let len = self.segment_len();
        if self.segments.is_empty() || self.first + (self.segments.len() as u64) < floor {
            self.segments.clear();
            self.first = number;
        }
        while number < self.first {
            self.segments.push_front(Pages::zeroed(len));
            self.first -= 1;
        }
        while number - self.first >= self.segments.len() as u64 {
            let old = if self.first < floor { self.segments.pop_front() } else { None };
            self.first += u64::from(old.is_some());
            self.segments.push_back(old.unwrap_or_else(|| Pages::zeroed(len)));
        }
        self.segments.get_mut((number - self.first) as usize).map(|segment| &mut **segment)
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { capacity, limit, end, .. } = self;
        f.debug_struct("Log").field("capacity", capacity).field("limit", limit).field("end", end).finish()
    }
}

/// How many segments a log is made of, within the bounds of their sizes: what is held beyond the limit is about one.
const SEGMENTS: u64 = 16;

/// Bytes coming from memory together.
pub(crate) const LINE: usize = 64;

/// Twice the largest block, so a block and what a marker's window adds lie in two segments at most.
const MIN_SEGMENT: u64 = 128 << 10;

/// Larger ones would give nothing but coarser steps.
const MAX_SEGMENT: u64 = 8 << 20;

/// Segments of this size, those of logs from 64 MiB on, are written past the caches.
const PAST_CACHES: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(log: &Log, offset: u64, len: usize) -> Vec<u8> {
        let mut out = Vec::new();
        log.copy_to(LogOffset(offset), len, &mut out);
        out
    }

    #[test]
    fn bytes_across_a_boundary_come_back_in_two_slices() {
        let mut log = Log::new(1 << 20);
        let offset = MIN_SEGMENT - 3;
        log.write(LogOffset(offset), b"abcdef");
        assert_eq!(log.slices(LogOffset(offset), 6), (&b"abc"[..], &b"def"[..]));
        assert_eq!(read(&log, offset + 1, 4), b"bcde");
    }

    #[test]
    fn the_last_bytes_of_an_oversized_write_remain() {
        let mut log = Log::new(4);
        log.write(LogOffset(1), b"0123456789");
        assert_eq!(read(&log, 7, 4), b"6789");
    }

    #[test]
    fn absurd_offsets_and_lengths_do_not_panic() {
        let mut log = Log::new(0);
        log.write(LogOffset(u64::MAX), b"xyz");
        assert!(read(&log, u64::MAX, usize::MAX).len() <= 1);
        assert!(read(&log, u64::MAX - 9, usize::MAX).len() <= 1);
        assert_eq!(LogOffset(u64::MAX).plus(1), LogOffset(u64::MAX));
        assert_eq!(LogOffset(3).minus(4), LogOffset::ZERO);
        assert_eq!(LogOffset(3).since(LogOffset(4)), 0);
        assert_eq!(LogOffset(u64::MAX).checked_plus(1), None);
    }

    #[test]
    fn a_cleared_log_holds_nothing_and_takes_no_memory() {
        let mut log = Log::new(8);
        assert_eq!(log.memory(), 0);
        log.write(LogOffset(1 << 40), b"abcdefgh");
        assert_eq!(log.memory(), MIN_SEGMENT);
        log.clear();
        assert_eq!((read(&log, 1 << 40, 8), log.memory()), (vec![], 0));
        log.write(LogOffset(0), b"anew");
        assert_eq!(read(&log, 0, 4), b"anew");
    }

    #[test]
    fn write_far_ahead_takes_one_segment_and_drops_the_rest() {
        let mut log = Log::new(1 << 20);
        log.write(LogOffset(0), &[1; 1 << 20]);
        log.write(LogOffset(1 << 50), b"far");
        assert_eq!(log.memory(), MIN_SEGMENT);
        log.write(LogOffset(5), b"behind");
        assert_eq!((read(&log, 1 << 50, 3), read(&log, 5, 6)), (b"far".to_vec(), vec![]));
    }

    #[test]
    fn earlier_bytes_may_come_later() {
        let mut log = Log::new(1 << 20);
        log.write(LogOffset(600_000), b"second");
        log.write(LogOffset(100_000), b"first");
        assert_eq!((read(&log, 100_000, 5), read(&log, 600_000, 6)), (b"first".to_vec(), b"second".to_vec()));
    }

    #[test]
    fn lower_limit_frees_memory_and_a_higher_one_fills_it() {
        let mut log = Log::new(8 << 20);
        (0..128u64).for_each(|i| log.write(LogOffset(i << 16), &[i as u8; 1 << 16]));
        assert_eq!(log.memory(), 8 << 20);
        log.set_limit(1 << 20);
        assert_eq!(log.memory(), 1 << 20);
        assert_eq!(read(&log, 7 << 20, 3), [112; 3]);
        log.set_limit(u64::MAX);
        assert_eq!(log.limit(), 8 << 20);
        (128..160u64).for_each(|i| log.write(LogOffset(i << 16), &[i as u8; 1 << 16]));
        assert_eq!((log.memory(), read(&log, 7 << 20, 3)), (3 << 20, vec![112; 3]));
    }

    proptest! {
        #[test]
        fn only_the_last_bytes_within_the_limit_are_held(
            capacity in 1usize..600_000,
            writes in prop::collection::vec((any::<u8>(), 0usize..90_000, 1u64..600_000), 1..40),
        ) {
            let mut log = Log::new(capacity);
            let mut all = Vec::new();
            let mut held_from = 0;
            for (byte, len, limit) in writes {
                log.set_limit(limit);
                let bytes = vec![byte; len];
                log.write(LogOffset(all.len() as u64), &bytes);
                all.extend_from_slice(&bytes);
                held_from = held_from.max(all.len().saturating_sub(log.limit() as usize));
                prop_assert!(read(&log, held_from as u64, all.len() - held_from) == all[held_from..]);
                prop_assert!(log.memory() <= log.limit() + 2 * MIN_SEGMENT);
            }
        }
    }
}
