//! MAXP: the position of the largest hash in each region of p bytes [EndRE §5.1.2].
//!
//! Regions are aligned to the start of the block, which makes the choice a plain maximum without a sliding
//! window, at the price that an insertion moves the regions over the content. A position whose hash is the
//! largest for p bytes around is chosen all the same, and Max-Match needs no more than that.
//!
//! [`scalar`] is what runs; [`naive`] says what it must answer.

#[cfg(test)]
mod naive;
mod scalar;
#[cfg(test)]
mod tests;

use std::ops::Range;

use crate::Markers;

/// The bytes of which a position's hash is made.
const HASHED: usize = 4;

/// The multiplier of the hash: the golden ratio's fraction, as a prime of 32 bits (Knuth).
const MULTIPLIER: u32 = 0x9E37_79B1;

/// Chooses, in each aligned region of `period` bytes, the position whose next four bytes hash highest.
///
/// The hash is the product of the four bytes, as a little-endian number, and 0x9E3779B1, modulo 2^32; of equal
/// ones the leftmost counts. A run of one byte value therefore has one marker a region, like any content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Maxp {
    period: usize,
    window: usize,
}

impl Maxp {
    /// Creates the choice of one marker each `period` bytes that starts a window of `window` bytes.
    ///
    /// A period of 0 is taken as 1, a window below 4 bytes, which could not be hashed, as 4.
    pub const fn new(period: usize, window: usize) -> Self {
        Self {
            period: if period == 0 { 1 } else { period },
            window: if window < HASHED { HASHED } else { window },
        }
    }

    /// Returns the length of a region: the mean distance between markers.
    pub const fn period(&self) -> usize {
        self.period
    }

    /// Returns the length of the window that a marker starts.
    pub const fn window(&self) -> usize {
        self.window
    }

    /// Cuts `range` to the positions that may be markers.
    fn positions(&self, bytes: &[u8], range: Range<usize>) -> Range<usize> {
        let starts = (bytes.len() + 1).saturating_sub(self.window).min(u32::MAX as usize);
        range.start..range.end.min(starts)
    }
}

impl Markers for Maxp {
    fn select(&self, bytes: &[u8], range: Range<usize>, out: &mut Vec<u32>) -> usize {
        let end = range.end;
        scalar::select(self.period, bytes, self.positions(bytes, range), out);
        end
    }
}
