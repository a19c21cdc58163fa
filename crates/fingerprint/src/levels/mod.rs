//! Boundaries of several levels in one pass: multi-resolution chunks [Wanax §3.2].
//!
//! They depend on the bytes of their block alone.
//!
//! Candidates are the markers of [`Modp`], found by vectors. Each gets a *rank*: the hash of its 32 bytes. A level
//! takes the candidates with a certain number of zeros at the start of the rank, and a larger level asks for more of
//! them; so the end of a large chunk ends smaller ones, too. The limits of sizes, and the rejected ways, are in
//! `docs/internals/chunks.md`.

#[cfg(test)]
mod naive;
mod roots;
#[cfg(test)]
mod tests;

use std::ops::Range;

pub use self::roots::Roots;
use crate::{Backend, Markers, Modp, fingerprint};

/// A place at which a block is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boundary {
    /// The position in the block of the first byte behind it; neither 0 nor the block's length.
    pub at: u32,
    /// The first level, of the largest chunks, with this boundary; all levels behind it have it, too.
    pub level: u8,
}

/// Cuts blocks into chunks of several sizes; each consists of whole chunks of the next smaller size.
///
/// The cut depends on nothing but the block's bytes and the sizes: the same on every machine, with and without vectors.
/// Both ends of a link rely on that. It takes 8 bytes of memory for each candidate of the longest block so far.
#[derive(Clone, Debug)]
pub struct Levels {
    levels: Vec<Level>,
    markers: Modp,
    positions: Vec<u32>,
    marks: Vec<Mark>,
}

impl Levels {
    /// Creates the cut into chunks of `sizes` bytes on average, the largest first, powers of two of 32 or more.
    ///
    /// Other numbers are rounded down to a power of two, at least 32. More than 255 levels are left out.
    pub fn new(sizes: &[usize]) -> Self {
        let sizes: Vec<usize> = sizes.iter().map(|&size| power_of_two(size)).take(u8::MAX.into()).collect();
        let smallest = sizes.last().copied().unwrap_or(MAX_PERIOD);
        let period = (smallest / 2).min(MAX_PERIOD);
        Self {
            levels: sizes.iter().map(|&size| Level::new(size, period)).collect(),
            markers: Modp::new(period, WINDOW),
            positions: Vec::new(),
            marks: Vec::new(),
        }
    }

    /// Runs on `backend` instead of the best one here.
    pub fn on(self, backend: Backend) -> Self {
        Self { markers: self.markers.on(backend), ..self }
    }

    /// Replaces `out` by the boundaries of `block`, in ascending order; of a block above 4 GiB, of its first 4 GiB.
    pub fn cut(&mut self, block: &[u8], out: &mut Vec<Boundary>) {
        out.clear();
        let block = block.get(..u32::MAX as usize).unwrap_or(block);
        self.positions.clear();
        self.markers.select(block, 0..block.len(), &mut self.positions);
        self.marks.clear();
        self.marks.extend(self.positions.iter().map(|&at| Mark { at, rank: rank(block, at) }));
        split(0..block.len() as u32, &self.marks, &self.levels, 0, out);
    }
}

/// The rule for the chunks of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Level {
    /// The zeros at the start of a rank that ends a chunk.
    zeros: u32,
    /// The shortest chunk, except in a shorter block.
    min: u32,
    /// The longest chunk.
    max: u32,
}

impl Level {
    /// A level of `size` bytes on average, with candidates `period` bytes apart on average.
    fn new(size: usize, period: usize) -> Self {
        let size = size as u32;
        Self {
            zeros: size.ilog2().saturating_sub(period.ilog2()),
            min: size / MIN_SHARE,
            max: size.saturating_mul(MAX_TIMES),
        }
    }

    /// Returns the end of the chunk at `range.start`, if it is within `range`, and the number of `marks` up to the
    /// end. All `marks` are behind the start.
    fn end(self, range: &Range<u32>, marks: &[Mark]) -> Option<(u32, usize)> {
        // The rest behind the end must not be too short either.
        let last = range.end.checked_sub(self.min)?;
        let first = range.start + self.min;
        let longest = range.start.saturating_add(self.max).min(last);
        let mut best: Option<(Mark, usize)> = None;
        let mut passed = 0;
        for (index, &mark) in marks.iter().enumerate() {
            if mark.at > longest {
                break;
            }
            passed = index + 1;
            if mark.at < first {
                continue;
            }
            if mark.rank.leading_zeros() >= self.zeros {
                return Some((mark.at, passed));
            }
            if best.is_none_or(|(best, _)| mark.rank < best.rank) {
                best = Some((mark, passed));
            }
        }
        if range.end - range.start <= self.max {
            return None;
        }
        Some(best.map_or((longest, passed), |(mark, passed)| (mark.at, passed)))
    }
}

/// A candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    at: u32,
    /// Lower is rarer.
    rank: u32,
}

/// Appends the boundaries of `range` at `level` and behind, in ascending order; `marks` are those within it.
fn split(mut range: Range<u32>, mut marks: &[Mark], levels: &[Level], level: u8, out: &mut Vec<Boundary>) {
    let Some((this, smaller)) = levels.split_first() else { return };
    while let Some((end, passed)) = this.end(&range, marks) {
        let (within, behind) = marks.split_at_checked(passed).unwrap_or((marks, &[]));
        split(range.start..end, within, smaller, level + 1, out);
        out.push(Boundary { at: end, level });
        range.start = end;
        marks = behind;
    }
    split(range, marks, smaller, level + 1, out);
}

/// Returns the rank of the window at `at`: the upper half of its fingerprint.
#[inline]
fn rank(block: &[u8], at: u32) -> u32 {
    let window = block.get(at as usize..).and_then(|rest| rest.get(..WINDOW));
    window.map_or(u32::MAX, |window| (fingerprint(window) >> 32) as u32)
}

fn power_of_two(size: usize) -> usize {
    1 << size.clamp(MIN_SIZE, 1 << 30).ilog2()
}

/// The bytes of a rank.
const WINDOW: usize = 32;

/// The smallest size of a level.
const MIN_SIZE: usize = 32;

/// The largest mean distance of candidates: four bytes tell too few places of a text apart to choose fewer.
const MAX_PERIOD: usize = 64;

/// A level's size, divided by its shortest chunk.
const MIN_SHARE: u32 = 2;

/// A level's longest chunk, divided by its size.
const MAX_TIMES: u32 = 2;
