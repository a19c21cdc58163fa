//! The interface common to all marker choices.

use std::ops::Range;

/// A choice of the positions of a block for repeat detection [EndRE §5.1].
pub trait Markers {
    /// Appends the markers of `bytes` in `range` to `out`, in ascending order.
    ///
    /// A marker starts a window, so only positions with a whole window within `bytes` are chosen. The part of `range`
    /// beyond the end of `bytes`, or beyond 4 GiB, holds no markers.
    ///
    /// Returns the start of the next call for these bytes, if both calls are to equal one call for both ranges:
    /// `range.end`, or beyond it if the choice skips bytes behind a marker.
    fn select(&self, bytes: &[u8], range: Range<usize>, out: &mut Vec<u32>) -> usize;
}

/// Returns the number of positions of `bytes` with a window of `window` bytes, up to the limit of a marker's number.
pub(crate) fn windows(bytes: &[u8], window: usize) -> usize {
    (bytes.len() + 1).saturating_sub(window).min(u32::MAX as usize)
}

/// Cuts `range` to the positions with a whole window; empty and not reversed if there are none.
pub(crate) fn positions(bytes: &[u8], window: usize, range: &Range<usize>) -> Range<usize> {
    let end = range.end.min(windows(bytes, window));
    range.start.min(end)..end
}

/// Makes room for as many markers as `positions` can have at most if no two are closer than `apart`.
pub(crate) fn reserve(out: &mut Vec<u32>, positions: &Range<usize>, apart: usize) {
    out.reserve(positions.len() / apart.max(1) + 1);
}
