//! The highest hash in a stretch of bytes: the main cost of MAXP.

pub(crate) mod scalar;
pub(crate) mod vector;

use std::ops::Range;

/// A position and its [`crate::product::hash`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peak {
    pub(crate) at: usize,
    pub(crate) hash: u32,
}

/// A way to find peaks.
pub(crate) trait Peaks: Copy {
    /// Returns the leftmost position of `positions` with the highest hash; `None` if there are no positions.
    ///
    /// Every position must have four bytes; the others are left out.
    fn peak(self, bytes: &[u8], positions: Range<usize>) -> Option<Peak>;

    /// Returns whether any of `positions` has a hash of `least` or more.
    fn reaches(self, bytes: &[u8], positions: Range<usize>, least: u32) -> bool;
}
