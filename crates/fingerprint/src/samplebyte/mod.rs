//! SAMPLEBYTE: the positions of a few byte values [EndRE §5.1.4, Figure 3].

#[cfg(test)]
mod naive;

#[cfg(test)]
pub(crate) use naive::select as naive;

use std::ops::Range;

use crate::markers::positions;
use crate::product::HASHED;
use crate::{Markers, SampleTable, skip};

/// Chooses the positions whose byte is in a table, and passes over half a period behind each.
///
/// How dense markers are depends on the content: at most two in a period whatever the table, none at all where
/// no byte of the table occurs. Which bytes are worth choosing is what a [`SampleTable`] is trained for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleByte {
    period: usize,
    window: usize,
    table: SampleTable,
}

impl SampleByte {
    /// Creates the choice of the bytes of `table` that start a window of `window` bytes.
    ///
    /// A period of 0 is taken as 1, a window below 4 bytes as 4.
    pub fn new(period: usize, window: usize, table: SampleTable) -> Self {
        Self { period: period.max(1), window: window.max(HASHED), table }
    }

    /// Returns the bytes that are chosen.
    pub const fn table(&self) -> SampleTable {
        self.table
    }

    /// Returns how many bytes are passed over behind a marker.
    const fn skipped(&self) -> usize {
        self.period / 2
    }
}

impl Markers for SampleByte {
    fn select(&self, bytes: &[u8], range: Range<usize>, out: &mut Vec<u32>) -> usize {
        let positions = positions(bytes, self.window, &range);
        let is_marker = |at| bytes.get(at).is_some_and(|&byte| self.table.contains(byte));
        skip::select(positions, self.skipped(), out, is_marker).max(range.end)
    }
}
