//! SAMPLEBYTE: the positions of a few byte values [EndRE §5.1.4, Figure 3].

#[cfg(test)]
mod naive;

#[cfg(test)]
pub(crate) use naive::select as naive;

use std::ops::Range;

use crate::markers::positions;
use crate::product::HASHED;
use crate::skip::{self, Sieve};
use crate::vector::{Backend, Group, LANES, Vector};
use crate::{Markers, SampleTable};

/// Chooses the positions with a byte of a table, and passes over half a period behind each.
///
/// The density of markers depends on the content: at most two in a period with any table, none at all without bytes
/// of the table. A [`SampleTable`] is trained for a good choice of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleByte {
    period: usize,
    window: usize,
    sieve: OneOf,
    backend: Backend,
}

impl SampleByte {
    /// Creates the choice of the bytes of `table` at the start of a window of `window` bytes.
    ///
    /// A period of 0 is taken as 1, a window below 4 bytes as 4.
    pub fn new(period: usize, window: usize, table: SampleTable) -> Self {
        let (period, window) = (period.max(1), window.max(HASHED));
        Self { period, window, sieve: OneOf::new(table), backend: Backend::best() }
    }

    /// Runs on `backend` instead of the best one here.
    pub fn on(self, backend: Backend) -> Self {
        Self { backend, ..self }
    }

    /// Returns the chosen bytes.
    pub const fn table(&self) -> SampleTable {
        self.sieve.table
    }

    /// Returns how many bytes are passed over behind a marker.
    const fn skipped(&self) -> usize {
        self.period / 2
    }
}

impl Markers for SampleByte {
    fn select(&self, bytes: &[u8], range: Range<usize>, out: &mut Vec<u32>) -> usize {
        let positions = positions(bytes, self.window, &range);
        skip::select(self.backend, self.sieve, self.skipped(), bytes, positions, out).max(range.end)
    }
}

/// Accepts the bytes of a table.
///
/// For vectors, the table is a matrix: row by the lower half of a byte, one bit for each upper half. Looking up the
/// row of a byte, and the bit of its upper half, tests 32 bytes at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OneOf {
    table: SampleTable,
    /// The rows' bits for upper halves 0 to 7, and for 8 to 15.
    rows: [[u8; 16]; 2],
}

impl OneOf {
    fn new(table: SampleTable) -> Self {
        let row = |half: u8, lower: u8| {
            (0..8)
                .filter(|bit| table.contains((half * 8 + bit) << 4 | lower))
                .fold(0, |row, bit| row | 1 << bit)
        };
        Self { table, rows: [0, 1].map(|half| std::array::from_fn(|lower| row(half, lower as u8))) }
    }
}

impl Sieve for OneOf {
    /// The two halves of the rows, and the bit of each upper half.
    type Ready<V: Vector> = [V::Register; 4];

    #[inline(always)]
    fn accepts(self, bytes: &[u8], position: usize) -> bool {
        bytes.get(position).is_some_and(|&byte| self.table.contains(byte))
    }

    #[inline(always)]
    fn ready<V: Vector>(self, vector: V) -> Self::Ready<V> {
        let [low, high] = self.rows;
        [vector.twice(&low), vector.twice(&high), vector.twice(&LOW_BITS), vector.twice(&HIGH_BITS)]
    }

    #[inline(always)]
    fn accepted<V: Vector>(
        vector: V,
        [low, high, low_bits, high_bits]: Self::Ready<V>,
        group: &Group,
    ) -> u32 {
        let bytes = vector.load(group.first_chunk().unwrap_or(&[0; LANES]));
        let (lower, upper) = (vector.lower_nibbles(bytes), vector.upper_nibbles(bytes));
        // Of an upper half, either its low bit or its high bit is 0, and so is its selection.
        let low = vector.and(vector.look_up(low, lower), vector.look_up(low_bits, upper));
        let high = vector.and(vector.look_up(high, lower), vector.look_up(high_bits, upper));
        vector.nonzero_bytes(vector.or(low, high))
    }
}

/// The bit of each upper half below 8; none for the others.
const LOW_BITS: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 0, 0, 0, 0, 0, 0, 0, 0];

/// The bit of each upper half from 8 on; none for the others.
const HIGH_BITS: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 64, 128];
