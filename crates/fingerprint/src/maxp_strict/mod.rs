//! MAXP with a sliding window: the positions whose hash is the largest around [EndRE §5.1.2].
//!
//! Whether a position is a marker depends on the bytes within p/2 of it and on nothing else, so an insertion
//! changes no marker further away: these markers may cut chunks. Any two are more than p/2 apart.
//!
//! A stretch of p/2 positions has at most one marker, its peak. So the peaks of such stretches are found first, and
//! only they are compared with what lies around: with the peaks of the stretches beside, and, where such a peak is
//! higher but too far away to count, with the part of its stretch that counts. *Rejected*: a queue of falling
//! maxima, or prefix and suffix maxima of stretches, which take each position by itself and do not become vectors.

#[cfg(test)]
mod naive;

#[cfg(test)]
pub(crate) use naive::select as naive;

use std::ops::Range;

use crate::Markers;
use crate::markers::{positions, reserve, windows};
use crate::peaks::scalar::Scalar;
use crate::peaks::{Peak, Peaks};
use crate::product::HASHED;

/// Chooses the positions whose hash is the largest of all positions up to p/2 before and behind them.
///
/// The hash is that of [`crate::Maxp`]; of equal ones the leftmost counts. At the ends of the bytes, what is there
/// counts. On random bytes the mean distance is p + 1; bytes that repeat with a period below p/2 have one marker
/// at their start and none behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxpStrict {
    radius: usize,
    window: usize,
}

impl MaxpStrict {
    /// Creates the choice of one marker in about `period` bytes that starts a window of `window` bytes.
    ///
    /// With a period of 0 or 1 every position is a marker; a window below 4 bytes, which could not be hashed, is
    /// taken as 4.
    pub fn new(period: usize, window: usize) -> Self {
        Self { radius: period / 2, window: window.max(HASHED) }
    }
}

impl Markers for MaxpStrict {
    fn select(&self, bytes: &[u8], range: Range<usize>, out: &mut Vec<u32>) -> usize {
        let positions = positions(bytes, self.window, &range);
        reserve(out, &positions, self.radius);
        let block = Block { bytes, end: windows(bytes, self.window), radius: self.radius };
        block.select(Scalar, positions, out);
        range.end
    }
}

/// The bytes in which markers are looked for, and how far a marker has to be the highest.
struct Block<'a> {
    bytes: &'a [u8],
    /// Where the positions that count end.
    end: usize,
    radius: usize,
}

impl Block<'_> {
    /// Appends the markers of `positions`.
    #[inline(always)]
    fn select(&self, peaks: impl Peaks, positions: Range<usize>, out: &mut Vec<u32>) {
        // As long as the radius, so that what lies around a position is in its stretch and the two beside it.
        let stretch = self.radius.max(1);
        let first = positions.start - positions.start % stretch;
        let mut start = first.saturating_sub(stretch);
        let peak = |start: usize| peaks.peak(self.bytes, start..start.saturating_add(stretch).min(self.end));
        let mut left = if start < first { peak(start) } else { None };
        start = first;
        let mut middle = peak(start);
        while start < positions.end {
            let end = start.saturating_add(stretch);
            let right = peak(end.min(self.end));
            let is_marker = |peak: &Peak| {
                self.is_highest_to_the_left(peaks, peak, left, start)
                    && self.is_highest_to_the_right(peaks, peak, right, end)
            };
            out.extend(
                middle
                    .filter(|peak| positions.contains(&peak.at))
                    .filter(is_marker)
                    .map(|peak| peak.at as u32),
            );
            (left, middle, start) = (middle, right, end);
        }
    }

    /// Returns whether `peak`, of the stretch that begins at `start`, is higher than all before it that count.
    #[inline(always)]
    fn is_highest_to_the_left(
        &self,
        peaks: impl Peaks,
        peak: &Peak,
        left: Option<Peak>,
        start: usize,
    ) -> bool {
        let around = peak.at.saturating_sub(self.radius);
        let higher = |other: &Peak| other.hash >= peak.hash;
        match left.filter(higher) {
            None => true,
            Some(left) if left.at >= around => false,
            Some(_) => !peaks.peak(self.bytes, around..start).is_some_and(|other| higher(&other)),
        }
    }

    /// Returns whether `peak`, of the stretch that ends at `end`, is as high as all behind it that count.
    #[inline(always)]
    fn is_highest_to_the_right(
        &self,
        peaks: impl Peaks,
        peak: &Peak,
        right: Option<Peak>,
        end: usize,
    ) -> bool {
        let around = peak.at.saturating_add(self.radius).saturating_add(1).min(self.end);
        let higher = |other: &Peak| other.hash > peak.hash;
        match right.filter(higher) {
            None => true,
            Some(right) if right.at < around => false,
            Some(_) => !peaks.peak(self.bytes, end..around).is_some_and(|other| higher(&other)),
        }
    }
}
