//! MODP with skipping as it would be explained.

use std::ops::Range;

use crate::product::MULTIPLIER;

/// Appends the markers of `range` and returns the first position not examined, or the range's end.
pub(crate) fn select(
    period: usize,
    bytes: &[u8],
    window: usize,
    range: Range<usize>,
    out: &mut Vec<u32>,
) -> usize {
    let accepted = ((1i64 << 32) / period.div_ceil(2) as i64).min((1 << 32) - 1);
    let mut position = range.start;
    while position < range.end && position + window <= bytes.len() {
        let next: [u8; 4] = bytes[position..position + 4].try_into().unwrap();
        let product = i32::from_le_bytes(next).wrapping_mul(MULTIPLIER as i32);
        if i64::from(product) >= (1 << 31) - accepted {
            out.push(position as u32);
            position += period / 2;
        }
        position += 1;
    }
    position.max(range.end)
}
