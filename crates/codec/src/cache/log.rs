//! The ring of remembered bytes, addressed by offsets that only grow.
//!
//! The ring is memory and nothing else: which offsets are valid, and when a byte may be overwritten, are the
//! cache's rules. It never refuses an offset; a range that was overwritten or never written reads as whatever
//! lies there.

use std::fmt;
use std::ops::Range;

use bytes::BufMut;
use oncewire_fingerprint::prefetch_read;
use oncewire_pages::prefer_large;

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

/// A ring of bytes addressed by [`LogOffset`].
///
/// The memory is reserved at once and taken from the system as it is filled.
pub struct Log {
    ring: Vec<u8>,
}

impl Log {
    /// Creates a ring of `capacity` zero bytes; 0 is taken as 1.
    ///
    /// Any other size will do; logs in use have at least 64 KiB, the largest block.
    pub fn new(capacity: usize) -> Self {
        let mut ring = vec![0; capacity.max(1)];
        prefer_large(&mut ring);
        Self { ring }
    }

    /// Returns how many bytes the ring holds.
    #[inline]
    pub fn capacity(&self) -> u64 {
        self.ring.len() as u64
    }

    /// Writes `bytes` at `offset`, over what lay there a ring before.
    ///
    /// Of more bytes than the ring holds, the last remain.
    pub fn write(&mut self, offset: LogOffset, bytes: &[u8]) {
        let surplus = bytes.len().saturating_sub(self.ring.len());
        let (_, kept) = bytes.split_at(surplus);
        let at = self.position(offset.plus(surplus as u64));
        let (front, back) = self.ring.split_at_mut(at);
        let (first, second) = kept.split_at(kept.len().min(back.len()));
        back[..first.len()].copy_from_slice(first);
        front[..second.len()].copy_from_slice(second);
    }

    /// Returns the `len` bytes from `offset` in the two pieces that they lie in; the second is often empty.
    ///
    /// A `len` beyond the capacity is cut to it.
    #[inline]
    pub fn slices(&self, offset: LogOffset, len: usize) -> (&[u8], &[u8]) {
        let len = len.min(self.ring.len());
        let (front, back) = self.ring.split_at(self.position(offset));
        let first = len.min(back.len());
        (&back[..first], &front[..len - first])
    }

    /// Asks for the memory of a byte that will soon be read.
    #[inline]
    pub fn prefetch(&self, offset: LogOffset) {
        prefetch_read(&self.ring, self.position(offset));
    }

    /// Appends the `len` bytes from `offset` to `out`.
    ///
    /// A `len` beyond the capacity is cut to it.
    #[inline]
    pub fn copy_to(&self, offset: LogOffset, len: usize, out: &mut impl BufMut) {
        let (first, second) = self.slices(offset, len);
        out.put_slice(first);
        out.put_slice(second);
    }

    /// Forgets all bytes and gives their memory back to the system.
    pub fn clear(&mut self) {
        *self = Self::new(self.ring.len());
    }

    #[inline]
    fn position(&self, offset: LogOffset) -> usize {
        (offset.0 % self.ring.len() as u64) as usize
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("capacity", &self.ring.len()).finish()
    }
}

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
    fn bytes_that_wrap_come_back_in_two_slices() {
        let mut log = Log::new(10);
        log.write(LogOffset(27), b"abcdef");
        assert_eq!(log.slices(LogOffset(27), 6), (&b"abc"[..], &b"def"[..]));
        assert_eq!(read(&log, 28, 4), b"bcde");
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
        assert_eq!(read(&log, u64::MAX, usize::MAX).len(), 1);
        assert_eq!(LogOffset(u64::MAX).plus(1), LogOffset(u64::MAX));
        assert_eq!(LogOffset(3).minus(4), LogOffset::ZERO);
        assert_eq!(LogOffset(3).since(LogOffset(4)), 0);
        assert_eq!(LogOffset(u64::MAX).checked_plus(1), None);
    }

    #[test]
    fn a_cleared_log_holds_zeros() {
        let mut log = Log::new(8);
        log.write(LogOffset(0), b"abcdefgh");
        log.clear();
        assert_eq!(read(&log, 0, 8), [0; 8]);
    }

    proptest! {
        #[test]
        fn the_ring_holds_the_last_capacity_bytes(
            capacity in 1usize..200,
            writes in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..20),
        ) {
            let mut log = Log::new(capacity);
            let mut all = Vec::new();
            for bytes in writes {
                log.write(LogOffset(all.len() as u64), &bytes);
                all.extend_from_slice(&bytes);
                let floor = all.len().saturating_sub(capacity);
                prop_assert_eq!(&read(&log, floor as u64, all.len() - floor), &all[floor..]);
            }
        }
    }
}
