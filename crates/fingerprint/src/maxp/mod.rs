//! MAXP: the position of the largest hash in each p bytes [EndRE §5.1.2].
//!
//! Regions are aligned to the start of the block. This makes the choice a plain maximum without a sliding window, at
//! a price: an insertion moves the regions over the content. A position with the largest hash for p bytes around is
//! chosen all the same, enough for Max-Match. The sliding form is [`crate::MaxpStrict`].

#[cfg(test)]
mod naive;

#[cfg(test)]
pub(crate) use naive::select as naive;

use std::ops::Range;

use crate::Markers;
use crate::markers::{positions, reserve};
use crate::peaks::Peaks;
use crate::peaks::scalar::Scalar;
use crate::peaks::vector::Vectors;
use crate::product::HASHED;
use crate::vector::{Backend, Task, Vector};

/// Chooses, in each aligned region of `period` bytes, the position with the highest hash of four bytes.
///
/// The hash is the product of the four bytes, as a little-endian number, and 0x9E3779B1, modulo 2^32; of equal ones
/// the leftmost counts. A run of one byte value therefore has one marker a region, like any content. If a period is a
/// multiple of another, its markers are among the other's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Maxp {
    period: usize,
    window: usize,
    backend: Backend,
}

impl Maxp {
    /// Creates the choice of one marker, the start of a window of `window` bytes, in each `period` bytes.
    ///
    /// A period of 0 counts as 1, a window below 4 bytes, too short for the hash, as 4.
    pub fn new(period: usize, window: usize) -> Self {
        Self { period: period.max(1), window: window.max(HASHED), backend: Backend::best() }
    }

    /// Runs on `backend` instead of the best one here.
    pub fn on(self, backend: Backend) -> Self {
        Self { backend, ..self }
    }
}

impl Markers for Maxp {
    fn select(&self, bytes: &[u8], range: Range<usize>, out: &mut Vec<u32>) -> usize {
        let positions = positions(bytes, self.window, &range);
        reserve(out, &positions, self.period);
        self.backend.run(Select { period: self.period, bytes, positions, out });
        range.end
    }
}

/// The markers of `positions`, one for each aligned region of `period` bytes in touch.
struct Select<'a> {
    period: usize,
    bytes: &'a [u8],
    positions: Range<usize>,
    out: &'a mut Vec<u32>,
}

impl Select<'_> {
    #[inline(always)]
    fn with(self, peaks: impl Peaks) {
        let mut start = self.positions.start;
        while start < self.positions.end {
            let end = (start - start % self.period).saturating_add(self.period).min(self.positions.end);
            self.out.extend(peaks.peak(self.bytes, start..end).map(|peak| peak.at as u32));
            start = end;
        }
    }
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
