//! MAXP for any processor: four positions a step, without branches on content.

use std::ops::Range;

use super::{HASHED, MULTIPLIER};

/// Appends the markers of `positions`, one for each aligned region of `period` bytes that it touches.
///
/// Every position must have four bytes; a range that reaches further is cut.
pub(super) fn select(period: usize, bytes: &[u8], positions: Range<usize>, out: &mut Vec<u32>) {
    let mut start = positions.start;
    while start < positions.end {
        let end = (start - start % period + period).min(positions.end);
        let Some(region) = bytes.get(start..(end + HASHED).min(bytes.len())) else { return };
        out.push((start + argmax(region, end - start)) as u32);
        start = end;
    }
}

/// Returns which of the first `count` positions of `region` has the largest hash, the leftmost of equal ones.
///
/// A key is the hash, and below it the position counted backwards: the largest key is the leftmost largest hash.
#[inline]
fn argmax(region: &[u8], count: usize) -> usize {
    // Four maxima grow side by side, so that none waits for the one before. They share the position of the
    // step's first byte; the lane is taken off at the end, which changes no order within a lane.
    let mut lanes = [0u64; LANES];
    let mut backwards = u64::from(u32::MAX);
    let steps = (count / LANES).min(region.len().saturating_sub(LANES) / LANES);
    for word in region.windows(2 * LANES).step_by(LANES).take(steps) {
        let word = word.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        for (lane, best) in lanes.iter_mut().enumerate() {
            *best = (*best).max(hash(word >> (8 * lane)) | backwards);
        }
        backwards -= LANES as u64;
    }
    let lanes = lanes.into_iter().enumerate().map(|(lane, best)| best.saturating_sub(lane as u64));
    let rest = region.windows(HASHED).enumerate().take(count).skip(steps * LANES).map(|(position, word)| {
        let word = word.first_chunk().map_or(0, |word| u32::from_le_bytes(*word));
        hash(u64::from(word)) | u64::from(!(position as u32))
    });
    !lanes.chain(rest).max().unwrap_or(u64::MAX) as u32 as usize
}

/// Positions looked at in one step.
const LANES: usize = 4;

/// Returns the hash of the four lower bytes of `word` in the upper half, zeros in the lower.
#[inline]
fn hash(word: u64) -> u64 {
    // With the multiplier in the upper half, the upper four bytes of `word` fall out of the product.
    word.wrapping_mul((MULTIPLIER as u64) << 32)
}
