//! The published MODP by definition: a division of polynomials for each window.

use std::ops::Range;

use super::POLYNOMIAL;

/// Appends the markers of `range`.
pub(crate) fn select(
    period: usize,
    bytes: &[u8],
    window: usize,
    range: Range<usize>,
    out: &mut Vec<u32>,
) -> usize {
    for position in range.clone().take_while(|position| position + window <= bytes.len()) {
        let mut rest = 0u64;
        for bit in (0..window * 8).map(|bit| bytes[position + bit / 8] >> (7 - bit % 8) & 1) {
            rest = rest << 1 | u64::from(bit);
            rest = rest.min(rest ^ POLYNOMIAL);
        }
        if rest as u32 as usize % period == period - 1 {
            out.push(position as u32);
        }
    }
    range.end
}
