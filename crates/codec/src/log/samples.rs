//! Samples of a log, by which two ends find out whether they still have the same one.
//!
//! Both ends take them at the same places, so a sending half which keeps no bytes can know their digests.

use std::collections::VecDeque;

use twox_hash::XxHash3_64;

use super::Log;
use crate::verify::log_digest;
use crate::wire::{Range64, Sample};

/// The places at which samples of a log are taken: the same length at every multiple of a distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SampleGrid {
    stride: u64,
    len: u64,
}

impl SampleGrid {
    /// Returns the places in a log of `capacity` bytes: 4 KiB at each multiple of 64 KiB, both in proportion less in a
    /// log below 1 MiB, so it has sixteen of them too.
    pub(crate) const fn new(capacity: u64) -> Self {
        let part = if capacity < MAX_STRIDE * PARTS { capacity / PARTS } else { MAX_STRIDE };
        let stride = if part < PARTS { PARTS } else { 1 << part.ilog2() };
        Self { stride, len: stride / PARTS }
    }

    /// Returns at most `count` samples lying within `range` of `log`, spread evenly over those that do.
    pub(crate) fn claim(&self, log: &Log, range: &Range64, count: u64) -> Vec<Sample> {
        let first = range.start.div_ceil(self.stride);
        let behind = range.end.saturating_sub(self.len).checked_div(self.stride).map_or(0, |last| last + 1);
        let places = if range.end < self.len { 0 } else { behind.saturating_sub(first) };
        let taken = places.min(count);
        (0..taken)
            .map(|i| {
                let place = if taken > 1 { i * (places - 1) / (taken - 1) } else { 0 };
                let start = (first + place) * self.stride;
                Sample { start, len: self.len as u32, digest: log_digest(log, start, self.len as usize) }
            })
            .collect()
    }
}

/// The digests of a log's samples, kept by someone who does not keep the log.
///
/// It takes 16 bytes for each 64 KiB the log holds.
#[derive(Clone, Debug)]
pub(crate) struct Samples {
    grid: SampleGrid,
    capacity: u64,
    /// Start and digest, in order.
    taken: VecDeque<(u64, u64)>,
    /// The state of the sample around `next`.
    partial: Vec<u8>,
    /// The offset behind the last byte noted.
    next: u64,
}

impl Samples {
    /// Starts with none, for a log of `capacity` bytes.
    pub(crate) fn new(capacity: u64) -> Self {
        let grid = SampleGrid::new(capacity);
        Self { grid, capacity, taken: VecDeque::new(), partial: Vec::new(), next: 0 }
    }

    /// Notes bytes written to the log at `start`, never below the last ones.
    ///
    /// A sample is taken once all its bytes have come without a gap.
    pub(crate) fn note(&mut self, start: u64, bytes: &[u8]) {
        if start != self.next {
            self.partial.clear();
        }
        let SampleGrid { stride, len } = self.grid;
        let end = start.saturating_add(bytes.len() as u64);
        let mut place = start - start % stride;
        while place < end {
            let from = place.max(start);
            let piece = from..place.saturating_add(len).min(end).max(from);
            // A sample whose first bytes never came is not taken.
            if from == place || self.partial.len() as u64 == from - place {
                let piece = (piece.start - start) as usize..(piece.end - start) as usize;
                self.partial.extend_from_slice(bytes.get(piece).unwrap_or_default());
                if self.partial.len() as u64 == len {
                    self.taken.push_back((place, XxHash3_64::oneshot(&self.partial)));
                }
            }
            if place.saturating_add(len) <= end {
                self.partial.clear();
            }
            let Some(following) = place.checked_add(stride) else { break };
            place = following;
        }
        self.next = end;
        let floor = end.saturating_sub(self.capacity);
        while self.taken.front().is_some_and(|&(start, _)| start < floor) {
            self.taken.pop_front();
        }
    }

    /// Returns the digest of the sample of `len` bytes at `start`, if it was taken and is still within the log.
    pub(crate) fn digest(&self, start: u64, len: u64) -> Option<u64> {
        let index = self.taken.binary_search_by_key(&start, |&(start, _)| start).ok()?;
        self.taken.get(index).filter(|_| len == self.grid.len).map(|&(_, digest)| digest)
    }

    /// Returns the bytes of memory it takes.
    pub(crate) fn memory(&self) -> usize {
        self.taken.capacity() * size_of::<(u64, u64)>() + self.partial.capacity()
    }
}

/// The largest distance of samples.
const MAX_STRIDE: u64 = 64 << 10;
/// A small log has so many samples, and a sample is so small a part of its distance.
const PARTS: u64 = 16;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::log::LogOffset;

    #[test]
    fn log_of_a_mebibyte_samples_each_64_kib() {
        for capacity in [1 << 20, 1 << 30, u64::MAX] {
            assert_eq!(SampleGrid::new(capacity), SampleGrid { stride: 64 << 10, len: 4 << 10 });
        }
        assert_eq!(SampleGrid::new(256 << 10), SampleGrid { stride: 16 << 10, len: 1 << 10 });
        assert_eq!(SampleGrid::new(48 << 10), SampleGrid { stride: 2048, len: 128 });
        assert_eq!(SampleGrid::new(0), SampleGrid { stride: 16, len: 1 });
    }

    #[test]
    fn a_claim_is_spread_over_the_range() {
        let (grid, log) = (SampleGrid::new(1 << 20), Log::new(1 << 20));
        let starts = |range: Range64| -> Vec<u64> {
            grid.claim(&log, &range, 4).iter().map(|sample| sample.start >> 16).collect()
        };
        assert_eq!(starts(0..1 << 20), [0, 5, 10, 15]);
        assert_eq!(starts(1..1 << 20), [1, 5, 10, 15]);
        assert_eq!(starts(0..(1 << 16) + 4096), [0, 1]);
        assert_eq!(starts(0..(1 << 16) + 4095), [0]);
        assert!(
            starts(0..4095).is_empty()
                && starts(1..1 << 16).is_empty()
                && starts(u64::MAX..u64::MAX).is_empty()
        );
    }

    proptest! {
        #[test]
        fn samples_are_equal_with_and_without_kept_bytes(
            capacity in 300u64..6000,
            writes in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..900), 0u64..3), 1..30),
        ) {
            let (mut log, mut samples) = (Log::new(capacity as usize), Samples::new(capacity));
            let (mut head, mut start) = (0, 0);
            for (bytes, gap) in writes {
                let gap = if gap == 2 { capacity / 7 } else { 0 };
                if gap > 0 {
                    start = head + gap;
                }
                head += gap;
                log.write(LogOffset(head), &bytes);
                samples.note(head, &bytes);
                head += bytes.len() as u64;
                let range = start.max(head.saturating_sub(capacity))..head;
                for sample in SampleGrid::new(capacity).claim(&log, &range, u64::MAX) {
                    prop_assert_eq!(samples.digest(sample.start, u64::from(sample.len)), Some(sample.digest));
                    prop_assert_eq!(samples.digest(sample.start, u64::from(sample.len) + 1), None);
                    prop_assert_eq!(samples.digest(sample.start + 1, u64::from(sample.len)), None);
                }
            }
            prop_assert!(samples.taken.len() as u64 <= capacity / samples.grid.stride + 1);
        }
    }

    #[test]
    fn absurd_offsets_do_not_panic() {
        let mut samples = Samples::new(1000);
        samples.note(u64::MAX - 3, &[1; 100]);
        samples.note(5, &[1; 100]);
        assert_eq!(samples.digest(u64::MAX, 1), None);
    }
}
