//! MAXP with a sliding window as it would be explained.

use std::ops::Range;

use crate::product::MULTIPLIER;

/// Appends the markers of `range`: of each position, everything around is looked at.
pub(crate) fn select(
    period: usize,
    bytes: &[u8],
    window: usize,
    range: Range<usize>,
    out: &mut Vec<u32>,
) -> usize {
    let hash = |position: usize| {
        let next: [u8; 4] = bytes[position..position + 4].try_into().unwrap();
        u32::from_le_bytes(next).wrapping_mul(MULTIPLIER)
    };
    let positions = (bytes.len() + 1).saturating_sub(window);
    for position in range.start..range.end.min(positions) {
        let before = position.saturating_sub(period / 2)..position;
        let behind = position + 1..positions.min(position + period / 2 + 1);
        if before.map(hash).all(|other| other < hash(position))
            && behind.map(hash).all(|other| other <= hash(position))
        {
            out.push(position as u32);
        }
    }
    range.end
}
