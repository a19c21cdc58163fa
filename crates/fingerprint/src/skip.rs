//! Markers that are followed by bytes that nobody looks at, so that no content has too many of them.

use std::ops::Range;

use crate::markers::reserve;

/// Appends the first of `positions` that `is_marker` accepts, passes over the next `skipped`, and so on.
///
/// Returns the first position that was not looked at: the end, or beyond it.
#[inline(always)]
pub(crate) fn select(
    positions: Range<usize>,
    skipped: usize,
    out: &mut Vec<u32>,
    is_marker: impl Fn(usize) -> bool,
) -> usize {
    reserve(out, &positions, skipped);
    let mut position = positions.start;
    while position < positions.end {
        if is_marker(position) {
            out.push(position as u32);
            position = position.saturating_add(skipped);
        }
        position = position.saturating_add(1);
    }
    position
}
