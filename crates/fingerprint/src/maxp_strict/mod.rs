//! MAXP with a sliding window: the positions of locally largest hashes [EndRE §5.1.2].
//!
//! Whether a position is a marker depends on the bytes within p/2 of it and on nothing else, so an insertion
//! changes no marker further away: these markers may cut chunks. Any two are more than p/2 apart.
//!
//! A stretch of p/2 positions has at most one marker, its peak. So the peaks of such stretches are found first, and
//! only they are compared with their surroundings: with the peaks of the stretches beside, and, if such a peak is
//! higher but too far away to count, with the near part of its stretch. *Rejected*: a queue of falling maxima, or
//! prefix and suffix maxima of stretches: they take each position by itself and do not become vectors.

#[cfg(test)]
mod naive;

#[cfg(test)]
pub(crate) use naive::select as naive;

use std::ops::Range;

use crate::Markers;
use crate::markers::{positions, reserve, windows};
use crate::peaks::scalar::Scalar;
use crate::peaks::vector::Vectors;
use crate::peaks::{Peak, Peaks};
use crate::product::HASHED;
use crate::vector::{Backend, Task, Vector};

/// Chooses the positions with the largest hash of all positions up to p/2 before and behind them.
///
/// The hash is that of [`crate::Maxp`]; of equal ones the leftmost counts. At the ends of the bytes, the existing
/// positions count. On random bytes the mean distance is p + 1; bytes with a period below p/2 have one marker at
/// their start and none behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxpStrict {
    radius: usize,
    window: usize,
    backend: Backend,
}

impl MaxpStrict {
    /// Creates the choice of one marker, the start of a window of `window` bytes, in about `period` bytes.
    ///
    /// With a period of 0 or 1 every position is a marker; a window below 4 bytes, too short for the hash, counts as
    /// 4.
    pub fn new(period: usize, window: usize) -> Self {
        Self { radius: period / 2, window: window.max(HASHED), backend: Backend::best() }
    }

    /// Runs on `backend` instead of the best one here.
    pub fn on(self, backend: Backend) -> Self {
        Self { backend, ..self }
    }
}

impl Markers for MaxpStrict {
    fn select(&self, bytes: &[u8], range: Range<usize>, out: &mut Vec<u32>) -> usize {
        let positions = positions(bytes, self.window, &range);
        reserve(out, &positions, self.radius);
        let end = windows(bytes, self.window);
        self.backend.run(Select { bytes, end, radius: self.radius, positions, out });
        range.end
    }
}

/// Appending the markers of `positions`.
struct Select<'a> {
    bytes: &'a [u8],
    /// The end of the positions to be led by a marker.
    end: usize,
    /// How far it has to lead.
    radius: usize,
    positions: Range<usize>,
    out: &'a mut Vec<u32>,
}

impl Task for Select<'_> {
    type Output = ();

    fn portable(self) {
        self.with(Scalar);
    }

    #[inline(always)]
    fn vectors<V: Vector>(self, vector: V) {
        self.with(Vectors(vector));
    }
}

impl Select<'_> {
    #[inline(always)]
    fn with(self, peaks: impl Peaks) {
        // As long as the radius: the surroundings of a position are in its stretch and the two beside it.
        let stretch = self.radius.max(1);
        let first = self.positions.start - self.positions.start % stretch;
        let mut start = first;
        let mut left = self.stretch(peaks, first.saturating_sub(stretch)..first);
        let mut middle = self.stretch(peaks, start..start.saturating_add(stretch));
        while start < self.positions.end {
            let end = start.saturating_add(stretch);
            let right = self.stretch(peaks, end..end.saturating_add(stretch));
            if let Some(peak) = middle.filter(|peak| self.positions.contains(&peak.at))
                && self.leads_the_left(peaks, &peak, left, start)
                && self.leads_the_right(peaks, &peak, right, end)
            {
                self.out.push(peak.at as u32);
            }
            (left, middle, start) = (middle, right, end);
        }
    }

    /// Returns the peak of a stretch, as far as there are positions.
    #[inline(always)]
    fn stretch(&self, peaks: impl Peaks, positions: Range<usize>) -> Option<Peak> {
        peaks.peak(self.bytes, positions.start..positions.end.min(self.end))
    }

    /// Returns whether `peak`, of the stretch at `start`, is higher than all before it within the radius.
    #[inline(always)]
    fn leads_the_left(&self, peaks: impl Peaks, peak: &Peak, left: Option<Peak>, start: usize) -> bool {
        let around = peak.at.saturating_sub(self.radius);
        match left {
            Some(left) if left.hash >= peak.hash => {
                left.at < around && !peaks.reaches(self.bytes, around..start, peak.hash)
            }
            _ => true,
        }
    }

    /// Returns whether `peak`, of the stretch up to `end`, is as high as all behind it within the radius.
    #[inline(always)]
    fn leads_the_right(&self, peaks: impl Peaks, peak: &Peak, right: Option<Peak>, end: usize) -> bool {
        let around = peak.at.saturating_add(self.radius).saturating_add(1).min(self.end);
        match right {
            Some(right) if right.hash > peak.hash => {
                right.at >= around && !peaks.reaches(self.bytes, end..around, peak.hash + 1)
            }
            _ => true,
        }
    }
}
