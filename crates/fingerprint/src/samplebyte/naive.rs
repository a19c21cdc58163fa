//! SAMPLEBYTE as its Figure 3 has it.

use std::ops::Range;

use crate::SampleTable;

/// Appends the markers of `range` and returns the first position not examined, or the range's end.
pub(crate) fn select(
    (period, table): (usize, SampleTable),
    bytes: &[u8],
    window: usize,
    range: Range<usize>,
    out: &mut Vec<u32>,
) -> usize {
    let mut i = range.start;
    while i < range.end && i + window <= bytes.len() {
        if table.bytes().any(|byte| byte == bytes[i]) {
            out.push(i as u32);
            i += period / 2;
        }
        i += 1;
    }
    i.max(range.end)
}
