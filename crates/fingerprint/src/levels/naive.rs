//! Boundaries of several levels as they would be explained.

use super::Boundary;
use crate::{fingerprint, modp};

/// Returns the boundaries of `block` for chunks of `sizes` bytes, powers of two of 32 or more, the largest first.
pub(super) fn cut(sizes: &[usize], block: &[u8]) -> Vec<Boundary> {
    let period = sizes.last().map_or(64, |size| size / 2).min(64);
    let mut markers = Vec::new();
    modp::naive(period, block, 32, 0..block.len(), &mut markers);
    let rank = |at: usize| (fingerprint(&block[at..at + 32]) >> 32) as u32;
    let candidates: Vec<(usize, u32)> =
        markers.into_iter().map(|at| (at as usize, rank(at as usize))).collect();

    let mut boundaries = Vec::new();
    for (level, &size) in sizes.iter().enumerate() {
        let (min, max) = (size / 2, size * 2);
        let mut edges: Vec<usize> = boundaries.iter().map(|&(at, _)| at).collect();
        edges.extend([0, block.len()]);
        edges.sort_unstable();
        for edge in edges.windows(2) {
            let (mut start, end) = (edge[0], edge[1]);
            loop {
                let allowed: Vec<(usize, u32)> = candidates
                    .iter()
                    .copied()
                    .filter(|&(at, _)| start + min <= at && at <= start + max && at + min <= end)
                    .collect();
                let chosen = allowed
                    .iter()
                    .find(|(_, rank)| u64::from(*rank) < (1 << 32) * period as u64 / size as u64);
                let best = allowed.iter().min_by_key(|&&(at, rank)| (rank, at));
                let cut = match (chosen, best) {
                    (Some(&(at, _)), _) => at,
                    (None, _) if end - start <= max => break,
                    (None, Some(&(at, _))) => at,
                    (None, None) => (start + max).min(end - min),
                };
                boundaries.push((cut, level as u8));
                start = cut;
            }
        }
    }
    boundaries.sort_unstable();
    boundaries.into_iter().map(|(at, level)| Boundary { at: at as u32, level }).collect()
}
