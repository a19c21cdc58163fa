//! Markers that are followed by bytes that nobody looks at, so that no content has too many of them.

use std::hint::select_unpredictable;
use std::ops::Range;

use crate::markers::reserve;
use crate::vector::{Backend, Group, LANES, Task, Vector, group};

/// What makes a position a marker if it is not passed over.
pub(crate) trait Sieve: Copy {
    /// What the vector version keeps in registers.
    type Ready<V: Vector>: Copy;

    /// Returns whether `position` is accepted.
    fn accepts(self, bytes: &[u8], position: usize) -> bool;

    /// Prepares [`Self::accepted`].
    fn ready<V: Vector>(self, vector: V) -> Self::Ready<V>;

    /// Returns, as bits, which of the group's positions are accepted.
    fn accepted<V: Vector>(vector: V, ready: Self::Ready<V>, group: &Group) -> u32;
}

/// Appends the first of `positions` that `sieve` accepts, passes over the next `skipped`, and so on.
///
/// Returns the first position that was not looked at: the end, or beyond it.
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

    #[inline(always)]
    fn vectors<V: Vector>(mut self, vector: V) -> usize {
        let apart = self.skipped.saturating_add(1).min(u32::MAX as usize);
        self.positions.start = if apart <= 2 * WORD {
            self.by_words::<V, false>(vector, apart)
        } else {
            self.by_words::<V, true>(vector, apart)
        };
        self.portable()
    }
}

impl<S: Sieve> Select<'_, S> {
    /// Sieves 64 positions at once, whether or not some are passed over, then walks over the bits: as often as there
    /// can be markers, `apart` from each other or more, since no processor foresees how many there are.
    ///
    /// With `JUMP`, the next 64 begin behind what is passed over, else where these end: then the processor need not
    /// wait for the walk to go on. Returns where the next position is looked at; the last few are left.
    #[inline(always)]
    fn by_words<V: Vector, const JUMP: bool>(&mut self, vector: V, apart: usize) -> usize {
        let ready = self.sieve.ready(vector);
        let Range { start: mut at, end } = self.positions;
        let most = WORD.div_ceil(apart);
        let mut count = self.out.len();
        // One more, for what is written where nothing was found.
        self.out.resize(count + (end - at) / apart + 2, 0);
        // How far behind `at` the first position lies that is not passed over.
        let mut first = 0;
        while at + WORD <= end
            && let Some(low) = group(self.bytes, at)
            && let Some(high) = group(self.bytes, at + LANES)
        {
            let low = S::accepted(vector, ready, low);
            let high = S::accepted(vector, ready, high);
            let word = u64::from(low) | u64::from(high) << LANES;
            for _ in 0..most {
                let rest = word.unbounded_shr(first as u32);
                let place = first + rest.trailing_zeros() as usize;
                if let Some(out) = self.out.get_mut(count) {
                    *out = (at + place) as u32;
                }
                count += usize::from(rest != 0);
                first = select_unpredictable(rest != 0, place + apart, first);
            }
            let passed = if JUMP { first.max(WORD) } else { WORD };
            at += passed;
            first = first.saturating_sub(passed);
        }
        self.out.truncate(count);
        at + first
    }
}

/// Positions of which a number has the bits.
const WORD: usize = 64;
