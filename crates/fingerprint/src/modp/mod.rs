//! MODP: the positions whose hash has one residue of p [EndRE §5.1.1], in a form for vectors.
//!
//! The published MODP compares Rabin's fingerprint of the whole window, byte after byte; it is
//! [`crate::ModpRabin`]. Here a position is judged by the product of its next four bytes, and bytes behind a marker
//! are passed over as SAMPLEBYTE does [EndRE §5.1.4], which bounds how many markers any content can have. Content
//! that repeats is marked alike from the first marker on that both occurrences share.

#[cfg(test)]
mod naive;

#[cfg(test)]
pub(crate) use naive::select as naive;

use std::ops::Range;

use crate::markers::positions;
use crate::product::{HASHED, hash};
use crate::{Markers, skip};

/// Chooses the positions whose next four bytes have a large product, and passes over half a period behind each.
///
/// The product is that of [`crate::Maxp`], taken as a signed number; one in p/2 values is large enough. The choice is
/// by the largest and not by a residue of 0, of which a run of zeros would have one at every position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modp {
    period: usize,
    window: usize,
    least: i32,
}

impl Modp {
    /// Creates the choice of one marker in `period` bytes on average that starts a window of `window` bytes.
    ///
    /// A period of 0 is taken as 1, a window below 4 bytes, which could not be hashed, as 4.
    pub fn new(period: usize, window: usize) -> Self {
        let period = period.max(1);
        Self { period, window: window.max(HASHED), least: least(period) }
    }

    /// Returns how many bytes are passed over behind a marker.
    const fn skipped(&self) -> usize {
        self.period / 2
    }
}

impl Markers for Modp {
    fn select(&self, bytes: &[u8], range: Range<usize>, out: &mut Vec<u32>) -> usize {
        let positions = positions(bytes, self.window, &range);
        let next = skip::select(positions, self.skipped(), out, |at| hash(bytes, at) as i32 >= self.least);
        next.max(range.end)
    }
}

/// Returns the least signed hash of a marker: one in ⌈p/2⌉ hashes is as large.
///
/// With ⌊p/2⌋ bytes passed over behind a marker, and a wait of ⌈p/2⌉ positions on average for the next, the mean
/// distance on random bytes is p.
fn least(period: usize) -> i32 {
    let one_in = u64::try_from(period.div_ceil(2)).unwrap_or(u64::MAX);
    let large = ((1u64 << 32) / one_in).max(1) as i64;
    (i64::from(i32::MAX) + 1 - large) as i32
}
