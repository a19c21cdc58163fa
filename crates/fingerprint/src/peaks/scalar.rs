//! Peaks for any processor: four positions a step, without branches on content.

use std::ops::Range;

use super::{Peak, Peaks};
use crate::product::{HASHED, MULTIPLIER, hash};

/// Peaks found without vectors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scalar;

impl Peaks for Scalar {
    #[inline(always)]
    fn peak(self, bytes: &[u8], positions: Range<usize>) -> Option<Peak> {
        let end = positions.end.min((bytes.len() + 1).saturating_sub(HASHED));
        let count = end.checked_sub(positions.start).filter(|&count| count > 0)?;
        let at = positions.start + argmax(bytes.get(positions.start..end + HASHED - 1)?, count);
        Some(Peak { at, hash: hash(bytes, at) })
    }

    #[inline(always)]
    fn reaches(self, bytes: &[u8], mut positions: Range<usize>, least: u32) -> bool {
        positions.any(|position| hash(bytes, position) >= least)
    }
}

/// Returns the position, among the first `count` of `region`, with the largest hash, the leftmost of equal ones.
///
/// A key is the hash, and below it the position counted backwards: the largest key is the leftmost largest hash.
#[inline]
fn argmax(region: &[u8], count: usize) -> usize {
    // Four independent maxima grow side by side. They share the position of the step's first byte; the lane is taken
    // off at the end, without a change of order within a lane.
    let mut lanes = [0u64; LANES];
    let mut backwards = u64::from(u32::MAX);
    let steps = (count / LANES).min(region.len().saturating_sub(LANES) / LANES);
    for word in region.windows(2 * LANES).step_by(LANES).take(steps) {
        let word = word.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        for (lane, best) in lanes.iter_mut().enumerate() {
            *best = (*best).max(key(word >> (8 * lane)) | backwards);
        }
        backwards -= LANES as u64;
    }
    let lanes = lanes.into_iter().enumerate().map(|(lane, best)| best.saturating_sub(lane as u64));
    let rest = region.windows(HASHED).enumerate().take(count).skip(steps * LANES).map(|(position, word)| {
        let word = word.first_chunk().map_or(0, |word| u32::from_le_bytes(*word));
        key(u64::from(word)) | u64::from(!(position as u32))
    });
    !lanes.chain(rest).max().unwrap_or(u64::MAX) as u32 as usize
}

/// Positions looked at in one step.
const LANES: usize = 4;

/// Returns the hash of the four lower bytes of `word` in the upper half, zeros in the lower.
#[inline]
fn key(word: u64) -> u64 {
    // With the multiplier in the upper half, the upper four bytes of `word` fall out of the product.
    word.wrapping_mul((MULTIPLIER as u64) << 32)
}
