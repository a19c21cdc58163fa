//! FIXED: every p-th byte [EndRE §5.1.3].

use std::ops::Range;

use crate::Markers;
use crate::markers::{positions, reserve};
use crate::product::HASHED;

/// Chooses the multiples of `period`, for any bytes.
///
/// It costs nothing, and finds a repeat only if its content lies on the same grid: whole copies of files with the
/// same start in a block, records of one size, disk images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixed {
    period: usize,
    window: usize,
}

impl Fixed {
    /// Creates the choice of every `period`-th position with a whole window of `window` bytes.
    ///
    /// A period of 0 is taken as 1, a window below 4 bytes as 4.
    pub fn new(period: usize, window: usize) -> Self {
        Self { period: period.max(1), window: window.max(HASHED) }
    }
}

impl Markers for Fixed {
    fn select(&self, bytes: &[u8], range: Range<usize>, out: &mut Vec<u32>) -> usize {
        let positions = positions(bytes, self.window, &range);
        reserve(out, &positions, self.period);
        if let Some(first) = positions.start.checked_next_multiple_of(self.period) {
            out.extend((first..positions.end).step_by(self.period).map(|position| position as u32));
        }
        range.end
    }
}

/// FIXED as it would be explained.
#[cfg(test)]
pub(crate) fn naive(
    period: usize,
    bytes: &[u8],
    window: usize,
    range: Range<usize>,
    out: &mut Vec<u32>,
) -> usize {
    let fits = |&position: &usize| position + window <= bytes.len();
    out.extend(range.clone().take_while(fits).filter(|position| position % period == 0).map(|at| at as u32));
    range.end
}
