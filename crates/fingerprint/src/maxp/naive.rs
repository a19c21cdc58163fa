//! MAXP as it would be explained.

use std::ops::Range;

use crate::product::MULTIPLIER;

/// Appends the markers of `range`, one for each aligned region of `period` bytes in touch with it.
pub(crate) fn select(
    period: usize,
    bytes: &[u8],
    window: usize,
    range: Range<usize>,
    out: &mut Vec<u32>,
) -> usize {
    let mut best: Option<(usize, u32)> = None;
    for position in range.clone().take_while(|position| position + window <= bytes.len()) {
        let next: [u8; 4] = bytes[position..position + 4].try_into().unwrap();
        let hash = u32::from_le_bytes(next).wrapping_mul(MULTIPLIER);
        match best {
            Some((leader, highest)) if leader / period == position / period => {
                if hash > highest {
                    best = Some((position, hash));
                }
            }
            _ => {
                out.extend(best.map(|(leader, _)| leader as u32));
                best = Some((position, hash));
            }
        }
    }
    out.extend(best.map(|(leader, _)| leader as u32));
    range.end
}
