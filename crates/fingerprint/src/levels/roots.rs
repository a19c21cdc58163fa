//! Where the root of a tree of chunks ends: how a stream is cut into blocks.

use super::{MAX_PERIOD, Mark, WINDOW, rank};
use crate::{Backend, Markers, Modp};

/// Cuts a stream into blocks at places that its content chooses, so that what is repeated is cut alike.
#[derive(Clone, Debug)]
pub struct Roots {
    markers: Modp,
    positions: Vec<u32>,
}

impl Roots {
    /// The longest block.
    pub const MAX: usize = 64 << 10;
    /// The shortest block that is cut off where there are more bytes.
    pub const MIN: usize = 16 << 10;

    /// Creates the cut.
    pub fn new() -> Self {
        Self { markers: Modp::new(MAX_PERIOD, WINDOW), positions: Vec::new() }
    }

    /// Runs on `backend` instead of the best that the machine has.
    pub fn on(self, backend: Backend) -> Self {
        Self { markers: self.markers.on(backend), ..self }
    }

    /// Returns how long the block is that `bytes` begin with; more than [`Self::MAX`] of them are not looked at.
    ///
    /// It ends at the first boundary from [`Self::MIN`] on. Without one it ends at the best place that there is, if
    /// the bytes go on beyond [`Self::MAX`] or, unless they are `at_end` of their stream, reach it; else it is all of
    /// them. So an answer of `bytes.len()` below [`Self::MAX`] means that the block may still grow.
    pub fn end(&mut self, bytes: &[u8], at_end: bool) -> usize {
        let fits = bytes.len() < Self::MAX || at_end && bytes.len() == Self::MAX;
        let bytes = bytes.get(..Self::MAX).unwrap_or(bytes);
        let mut best: Option<Mark> = None;
        let mut from = Self::MIN;
        while from < bytes.len() {
            self.positions.clear();
            from = self.markers.select(bytes, from..from + BATCH, &mut self.positions).max(from + 1);
            for &at in &self.positions {
                let mark = Mark { at, rank: rank(bytes, at) };
                if mark.rank.leading_zeros() >= ZEROS {
                    return at as usize;
                }
                if best.is_none_or(|best| mark.rank < best.rank) {
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

/// How many zeros a rank begins with that ends a block: one in 1024 candidates, 64 KiB apart on average.
const ZEROS: u32 = 10;

/// Positions that are looked at together, so that an early end costs little.
const BATCH: usize = 4096;
