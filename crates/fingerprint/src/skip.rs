//! Markers with a skip of bytes behind each, for bounded density.

use std::hint::select_unpredictable;
use std::ops::Range;

use crate::markers::reserve;
use crate::vector::{Backend, Group, LANES, Task, Vector, group};

/// The condition for a marker outside the skip.
pub(crate) trait Sieve: Copy {
    /// The vector version's registers.
    type Ready<V: Vector>: Copy;

    /// Returns whether `position` is accepted.
    fn accepts(self, bytes: &[u8], position: usize) -> bool;

    /// Prepares [`Self::accepted`].
    fn ready<V: Vector>(self, vector: V) -> Self::Ready<V>;

    /// Returns the accepted positions of the group, as bits.
    fn accepted<V: Vector>(vector: V, ready: Self::Ready<V>, group: &Group) -> u32;
}

/// Appends the first of `positions` accepted by `sieve`, passes over the next `skipped`, and so on.
///
/// Returns the first position not examined: the end, or beyond it.
#[inline]
pub(crate) fn select(
    backend: Backend,
    sieve: impl Sieve,
    skipped: usize,
    bytes: &[u8],
    positions: Range<usize>,
    out: &mut Vec<u32>,
) -> usize {
    reserve(out, &positions, skipped.saturating_add(1));
    backend.run(Select { sieve, skipped, bytes, positions, out })
}

struct Select<'a, S> {
    sieve: S,
    skipped: usize,
    bytes: &'a [u8],
    positions: Range<usize>,
    out: &'a mut Vec<u32>,
}

impl<S: Sieve> Task for Select<'_, S> {
    type Output = usize;

    #[inline(always)]
    fn portable(self) -> usize {
        let mut position = self.positions.start;
        while position < self.positions.end {
            if self.sieve.accepts(self.bytes, position) {
                self.out.push(position as u32);
                position = position.saturating_add(self.skipped);
            }
            position = position.saturating_add(1);
        }
        position
    }

    /// Sieves 64 positions at once, whether or not some are passed over, then walks over the bits: as often as there
    /// can be markers, since no processor foresees how many there are.
    ///
    /// The next 64 begin where these end even if all of them are passed over: so sieving them need not wait for the
    /// walk, and memory is read in order.
    #[inline(always)]
    fn vectors<V: Vector>(mut self, vector: V) -> usize {
        let ready = self.sieve.ready(vector);
        let Range { start: mut at, end } = self.positions;
        // Further than any position reaches, and far from overflowing.
        let apart = self.skipped.saturating_add(1).min(usize::MAX / 4);
        let most = WORD.div_ceil(apart);
        let mut count = self.out.len();
        // One more, for writes without a find.
        self.out.resize(count + (end - at) / apart + 2, 0);
        // The distance from `at` of the first position outside the skip.
        let mut first = 0;
        while at + WORD <= end
            && let Some(low) = group(self.bytes, at)
            && let Some(high) = group(self.bytes, at + LANES)
        {
            let low = S::accepted(vector, ready, low);
            let high = S::accepted(vector, ready, high);
            let word = u64::from(low) | u64::from(high) << LANES;
            for _ in 0..most {
                let rest = word.unbounded_shr(first.min(WORD) as u32);
                let place = first + rest.trailing_zeros() as usize;
                if let Some(out) = self.out.get_mut(count) {
                    *out = (at + place) as u32;
                }
                count += usize::from(rest != 0);
                first = select_unpredictable(rest != 0, place + apart, first);
            }
            at += WORD;
            first = first.saturating_sub(WORD);
        }
        self.out.truncate(count);
        self.positions.start = at + first;
        self.portable()
    }
}

/// Positions with bits in one number.
const WORD: usize = 64;
