//! What every way of choosing markers has in common.

use std::ops::Range;

/// A way to choose the positions of a block at which repeats are looked for [EndRE §5.1].
pub trait Markers {
    /// Appends the markers of `bytes` that lie in `range` to `out`, in ascending order.
    ///
    /// A marker starts a window, hence only positions at which a whole window lies within `bytes` are chosen.
    /// The part of `range` beyond the end of `bytes`, or beyond 4 GiB, holds no markers.
    ///
    /// Returns where the next call for these bytes is to start if it is to go on as one call for both ranges
    /// would: `range.end`, or beyond it where the choice skips bytes behind a marker.
    fn select(&self, bytes: &[u8], range: Range<usize>, out: &mut Vec<u32>) -> usize;
}

/// Returns the positions of `bytes` at which a window of `window` bytes starts, as far as a marker can name them.
pub(crate) fn windows(bytes: &[u8], window: usize) -> usize {
    (bytes.len() + 1).saturating_sub(window).min(u32::MAX as usize)
}

/// Cuts `range` to the positions at which a window starts; empty and not reversed if there are none.
pub(crate) fn positions(bytes: &[u8], window: usize, range: &Range<usize>) -> Range<usize> {
    let end = range.end.min(windows(bytes, window));
    range.start.min(end)..end
}

/// Makes room for as many markers as `positions` can have at most if no two are closer than `apart`.
pub(crate) fn reserve(out: &mut Vec<u32>, positions: &Range<usize>, apart: usize) {
    out.reserve(positions.len() / apart.max(1) + 1);
}
