//! MODP in a form for vectors: hashes with one residue [EndRE §5.1.1].
//!
//! The published MODP compares Rabin's fingerprint of the whole window, byte after byte; it is [`crate::ModpRabin`].
//! Here a position is judged by the product of its next four bytes, and bytes behind a marker are passed over as in
//! SAMPLEBYTE [EndRE §5.1.4], as a bound on the markers of any content. Repeated content is marked alike from the
//! first marker common to both occurrences on.

#[cfg(test)]
mod naive;

#[cfg(test)]
pub(crate) use naive::select as naive;

use std::ops::Range;

use crate::Markers;
use crate::markers::positions;
use crate::product::{HASHED, MULTIPLIER, hash};
use crate::skip::{self, Sieve};
use crate::vector::{Backend, Group, Vector, each};

/// Chooses the positions with a large product of four bytes, and passes over half a period behind each.
///
/// The product is that of [`crate::Maxp`], taken as a signed number; one in p/2 values is large enough. The choice is
/// by the largest and not by a residue of 0: a run of zeros would have one at every position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modp {
    period: usize,
    window: usize,
    sieve: Large,
    backend: Backend,
}

impl Modp {
    /// Creates the choice of one marker, the start of a window of `window` bytes, in `period` bytes on average.
    ///
    /// A period of 0 counts as 1, a window below 4 bytes, too short for the hash, as 4.
    pub fn new(period: usize, window: usize) -> Self {
        let period = period.max(1);
        Self {
            period,
            window: window.max(HASHED),
            sieve: Large { below: below(period) },
            backend: Backend::best(),
        }
    }

    /// Runs on `backend` instead of the best one here.
    pub fn on(self, backend: Backend) -> Self {
        Self { backend, ..self }
    }

    /// Returns how many bytes are passed over behind a marker.
    const fn skipped(&self) -> usize {
        self.period / 2
    }
}

impl Markers for Modp {
    fn select(&self, bytes: &[u8], range: Range<usize>, out: &mut Vec<u32>) -> usize {
        let positions = positions(bytes, self.window, &range);
        skip::select(self.backend, self.sieve, self.skipped(), bytes, positions, out).max(range.end)
    }
}

/// Accepts the hashes large as signed numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Large {
    /// The largest hash below acceptance.
    below: i32,
}

impl Sieve for Large {
    type Ready<V: Vector> = (V::Register, V::Register);

    #[inline(always)]
    fn accepts(self, bytes: &[u8], position: usize) -> bool {
        hash(bytes, position).cast_signed() > self.below
    }

    #[inline(always)]
    fn ready<V: Vector>(self, vector: V) -> Self::Ready<V> {
        (vector.splat_u32(MULTIPLIER), vector.splat_u32(self.below.cast_unsigned()))
    }

    #[inline(always)]
    fn accepted<V: Vector>(vector: V, (multiplier, below): Self::Ready<V>, group: &Group) -> u32 {
        vector.interleave(each(
            vector.products(group, multiplier),
            #[inline(always)]
            |hashes| vector.gt_i32(hashes, below),
        ))
    }
}

/// Returns the largest signed hash that makes no marker: one in ⌈p/2⌉ is larger.
///
/// With ⌊p/2⌋ bytes passed over behind a marker, and a wait of ⌈p/2⌉ positions on average for the next, the mean
/// distance on random bytes is p. With periods of 1 and 2, all but one in 2^32 are larger.
fn below(period: usize) -> i32 {
    let one_in = i64::try_from(period.div_ceil(2)).unwrap_or(i64::MAX);
    let larger = ((1i64 << 32) / one_in).clamp(1, (1 << 32) - 1);
    (i64::from(i32::MAX) - larger) as i32
}
