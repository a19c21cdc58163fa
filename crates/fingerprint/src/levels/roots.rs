//! Root ends of chunk trees: the cut of a stream into blocks.

use super::{MAX_PERIOD, Mark, WINDOW, rank};
use crate::{Backend, Markers, Modp};

/// Cuts a stream into blocks at places chosen by its content, so repeats are cut alike.
#[derive(Clone, Debug)]
pub struct Roots {
    markers: Modp,
    positions: Vec<u32>,
}

impl Roots {
    /// The longest block.
    pub const MAX: usize = 64 << 10;
    /// The shortest block before the end of a stream.
    pub const MIN: usize = 16 << 10;
    /// The smallest allowed limit in place of [`Self::MAX`].
    pub const LEAST_MAX: usize = 4 << 10;

    /// Creates the cut.
    pub fn new() -> Self {
        Self { markers: Modp::new(MAX_PERIOD, WINDOW), positions: Vec::new() }
    }

    /// Runs on `backend` instead of the best one here.
    pub fn on(self, backend: Backend) -> Self {
        Self { markers: self.markers.on(backend), ..self }
    }

    /// Whether `bytes` begin at a likely start of a long block, for any start of the one before.
    pub fn is_start(bytes: &[u8]) -> bool {
        rank(bytes, 0).leading_zeros() >= LONGER_ZEROS
    }

    /// Returns the length of the block at the start of `bytes`; at most [`Self::MAX`] of them are looked at.
    ///
    /// It ends at the first boundary from [`Self::MIN`] on. Without one it ends at the best place available, if the
    /// bytes go on beyond [`Self::MAX`] or, unless they are `at_end` of their stream, reach it; else it is all of
    /// them. So an answer of `bytes.len()` below [`Self::MAX`] means that the block may still grow.
    pub fn end(&mut self, bytes: &[u8], at_end: bool) -> usize {
        self.end_within(Self::MAX, bytes, at_end)
    }

    /// Like [`Self::end`], for blocks of at most `max` bytes: all other sizes are smaller in proportion.
    ///
    /// `max` is rounded down to a power of two from [`Self::LEAST_MAX`] to [`Self::MAX`], so slightly different
    /// limits cut alike. Blocks of less than [`Self::MAX`] end sooner at likely ends of longer ones, so these consist
    /// of whole ones.
    pub fn end_within(&mut self, max: usize, bytes: &[u8], at_end: bool) -> usize {
        let max = 1 << max.clamp(Self::LEAST_MAX, Self::MAX).ilog2();
        let (min, zeros) = (max / (Self::MAX / Self::MIN), max.ilog2() - MAX_PERIOD.ilog2());
        let fits = bytes.len() < max || at_end && bytes.len() == max;
        let bytes = bytes.get(..max).unwrap_or(bytes);
        let zeros_of_longer = (zeros + 1).max(LONGER_ZEROS);
        let mut best: Option<Mark> = None;
        let mut from = if max < Self::MAX { LEAST } else { min };
        while from < bytes.len() {
            self.positions.clear();
            from = self.markers.select(bytes, from..from + BATCH, &mut self.positions).max(from + 1);
            for &at in &self.positions {
                let mark = Mark { at, rank: rank(bytes, at) };
                let is_early = (at as usize) < min;
                if mark.rank.leading_zeros() >= if is_early { zeros_of_longer } else { zeros } {
                    return at as usize;
                }
                if !is_early && best.is_none_or(|best| mark.rank < best.rank) {
                    best = Some(mark);
                }
            }
        }
        best.filter(|_| !fits).map_or(bytes.len(), |mark| mark.at as usize)
    }
}

impl Default for Roots {
    fn default() -> Self {
        Self::new()
    }
}

/// No block is cut shorter.
const LEAST: usize = 512;
/// Of the blocks of up to [`Roots::MAX`] without an end at the first good place, 19 of 20 end at one with so many
/// zeros at the start of its rank.
const LONGER_ZEROS: u32 = 8;
/// Positions per batch: an early end costs little.
const BATCH: usize = 4096;
