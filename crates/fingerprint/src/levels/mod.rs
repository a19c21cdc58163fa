//! Boundaries of several levels in one pass: multi-resolution chunks [Wanax §3.2], from a block's bytes alone.
//!
//! Candidates are the markers of [`Modp`], which vectors find. Each gets a *rank*: the hash of the 32 bytes that start
//! there. A level takes the candidates whose rank begins with so many zeros, a larger level asks for more of them, so
//! that what ends a large chunk ends smaller ones too. How sizes are bounded, and what was rejected, is in
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
    /// The first level, of the largest chunks, that it bounds; it bounds those of all levels behind that one too.
    pub level: u8,
}

/// Cuts blocks into chunks of several sizes, each of which consists of whole chunks of the next smaller size.
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
    /// Other numbers are taken as the next smaller power of two, of which 32 is the least. More than 255 levels are
    /// left out.
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

    /// Runs on `backend` instead of the best that the machine has.
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

/// What the chunks of a level are cut by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Level {
    /// How many zeros a rank begins with that ends a chunk.
    zeros: u32,
    /// The shortest chunk, but for a block that is shorter.
    min: u32,
    /// The longest chunk.
    max: u32,
}

impl Level {
    /// A level of `size` bytes on average, of candidates that are `period` bytes apart on average.
    fn new(size: usize, period: usize) -> Self {
        let size = size as u32;
        Self {
            zeros: size.ilog2().saturating_sub(period.ilog2()),
            min: size / MIN_SHARE,
            max: size.saturating_mul(MAX_TIMES),
        }
    }

    /// Returns where the chunk that starts at `range.start` ends, if that is within `range`, and how many of `marks`,
    /// which begin behind that start, lie at or before the end.
    fn end(self, range: &Range<u32>, marks: &[Mark]) -> Option<(u32, usize)> {
        // What is left behind the end must not be too short either.
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

/// The bytes that a rank is of.
const WINDOW: usize = 32;

/// The smallest size of a level.
const MIN_SIZE: usize = 32;

/// The largest mean distance of candidates: four bytes tell too few places of a text apart to choose fewer.
const MAX_PERIOD: usize = 64;

/// The part of a level's size that its shortest chunk has.
const MIN_SHARE: u32 = 2;

/// The sizes of a level that its longest chunk has.
const MAX_TIMES: u32 = 2;
