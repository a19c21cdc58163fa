//! The sizes that chunks have.

use std::fmt;
use std::str::FromStr;

use crate::wire::MAX_BLOCK;

/// The sizes of a block's chunks: several that nest, or one.
///
/// Written `mrc:DEGREE:LEAF` or `src:SIZE`, sizes in bytes; `mrc:8:128`, the default, is the paper's prototype
/// [Wanax §6]: 64 KiB, 8 KiB, 1 KiB and 128 bytes. They are means: a chunk has half to twice the size of its level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// How many chunks of a level make one of the level above; 1 if there is only one size.
    degree: u8,
    leaf_log2: u8,
}

impl Shape {
    /// The size of the largest chunk of a tree, that of the longest block.
    pub const ROOT: usize = MAX_BLOCK;

    /// Chunks of several sizes, from [`Self::ROOT`] down to `leaf` bytes by `degree`.
    ///
    /// # Errors
    /// A degree other than 2, 4 and 8; a leaf below 32 bytes, or one to which the degree does not lead.
    pub fn tree(degree: usize, leaf: usize) -> Result<Self, ShapeError> {
        let steps = match degree {
            2 => 1,
            4 => 2,
            8 => 3,
            _ => return Err(ShapeError::Degree),
        };
        let leaf_log2 = log2(leaf)?;
        match (ROOT_LOG2 - leaf_log2) % steps {
            0 => Ok(Self { degree: 1 << steps, leaf_log2 }),
            _ => Err(ShapeError::Leaf),
        }
    }

    /// Chunks of `size` bytes only.
    ///
    /// # Errors
    /// A size that is no power of two from 32 bytes to [`Self::ROOT`].
    pub fn single(size: usize) -> Result<Self, ShapeError> {
        Ok(Self { degree: 1, leaf_log2: log2(size)? })
    }

    /// Returns whether there is one size only.
    pub const fn is_single(self) -> bool {
        self.degree == 1
    }

    /// Returns the size of the smallest chunks.
    pub const fn leaf(self) -> usize {
        1 << self.leaf_log2
    }

    /// Returns how many sizes there are; the levels of nodes are below.
    pub const fn levels(self) -> u8 {
        match self.degree_log2() {
            0 => 1,
            steps => (ROOT_LOG2 - self.leaf_log2) / steps + 1,
        }
    }

    /// Returns the mean size of the chunks of a level; the smallest's for unknown levels.
    pub const fn size(self, level: u8) -> usize {
        match self.degree_log2() {
            0 => self.leaf(),
            _ if level >= self.levels() => self.leaf(),
            steps => Self::ROOT >> (steps * level),
        }
    }

    /// Takes what a hello carries: the degree, 1 for a single size, and the binary logarithms of the largest and the
    /// smallest size of a tree.
    ///
    /// # Errors
    /// As [`Self::tree`] and [`Self::single`], and a largest size that is not [`Self::ROOT`].
    pub fn new(degree: u8, root_log2: u8, leaf_log2: u8) -> Result<Self, ShapeError> {
        let leaf = 1usize.checked_shl(leaf_log2.into()).ok_or(ShapeError::Leaf)?;
        match degree {
            _ if root_log2 != ROOT_LOG2 => Err(ShapeError::Root),
            1 => Self::single(leaf),
            _ => Self::tree(degree.into(), leaf),
        }
    }

    /// Returns how many chunks of a level make one of the level above on average; 1 if there is one size only.
    pub const fn degree(self) -> u8 {
        self.degree
    }

    /// Returns the binary logarithm of [`Self::ROOT`].
    pub const fn root_log2(self) -> u8 {
        ROOT_LOG2
    }

    /// Returns the binary logarithm of the smallest size.
    pub const fn leaf_log2(self) -> u8 {
        self.leaf_log2
    }

    /// Returns the sizes a block has to be cut into, the largest first: a block as a whole is a root.
    pub(super) fn cut_sizes(self) -> impl Iterator<Item = usize> {
        (0..self.levels()).map(move |level| self.size(level)).filter(|&size| size < Self::ROOT)
    }

    const fn degree_log2(self) -> u8 {
        self.degree.trailing_zeros() as u8
    }
}

impl Default for Shape {
    fn default() -> Self {
        Self { degree: 8, leaf_log2: 7 }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_single() {
            true => write!(f, "src:{}", self.leaf()),
            false => write!(f, "mrc:{}:{}", self.degree, self.leaf()),
        }
    }
}

impl FromStr for Shape {
    type Err = ShapeError;

    fn from_str(text: &str) -> Result<Self, ShapeError> {
        let number = |text: &str| text.parse().map_err(|_| ShapeError::Text);
        match text.split(':').collect::<Vec<_>>()[..] {
            ["mrc", degree, leaf] => Self::tree(number(degree)?, number(leaf)?),
            ["src", size] => Self::single(number(size)?),
            _ => Err(ShapeError::Text),
        }
    }
}

/// Why there is no such [`Shape`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// The text is no shape.
    #[error("expected \"mrc:DEGREE:LEAF\" or \"src:SIZE\", sizes in bytes")]
    Text,
    /// Trees have another degree.
    #[error("the degree of a tree is 2, 4 or 8")]
    Degree,
    /// Trees have another root.
    #[error("the root of a tree is 64 KiB")]
    Root,
    /// Chunks have other sizes.
    #[error(
        "sizes are powers of two from 32 to 65536 bytes, and the smallest of a tree is 64 KiB divided by the degree, once or more often"
    )]
    Leaf,
}

fn log2(size: usize) -> Result<u8, ShapeError> {
    match size.is_power_of_two() && (MIN_SIZE..=Shape::ROOT).contains(&size) {
        true => Ok(size.trailing_zeros() as u8),
        false => Err(ShapeError::Leaf),
    }
}

const ROOT_LOG2: u8 = Shape::ROOT.trailing_zeros() as u8;

/// The smallest chunk; its name alone takes two thirds of it.
const MIN_SIZE: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_written_as_they_are_read() {
        for text in ["mrc:8:128", "mrc:4:64", "mrc:2:32", "mrc:8:65536", "mrc:2:8192", "src:32", "src:65536"]
        {
            let shape: Shape = text.parse().unwrap();
            assert_eq!(shape.to_string(), text);
            assert_eq!(Shape::new(shape.degree(), shape.root_log2(), shape.leaf_log2()), Ok(shape));
        }
        assert_eq!(Shape::default().to_string(), "mrc:8:128");
    }

    #[test]
    fn sizes_go_down_by_the_degree() {
        let sizes = |text: &str| -> Vec<usize> {
            let shape: Shape = text.parse().unwrap();
            (0..shape.levels()).map(|level| shape.size(level)).collect()
        };
        assert_eq!(sizes("mrc:8:128"), [65536, 8192, 1024, 128]);
        assert_eq!(sizes("mrc:4:64"), [65536, 16384, 4096, 1024, 256, 64]);
        assert_eq!(sizes("mrc:2:32").len(), 12);
        assert_eq!(sizes("mrc:8:65536"), [65536]);
        assert_eq!(sizes("src:1024"), [1024]);
        assert_eq!(Shape::default().size(200), 128);
    }

    #[test]
    fn impossible_shapes_are_refused() {
        for (text, error) in [
            ("", ShapeError::Text),
            ("mrc", ShapeError::Text),
            ("mrc:8", ShapeError::Text),
            ("mrc:8:128:1", ShapeError::Text),
            ("mrc:8:x", ShapeError::Text),
            ("src:-1", ShapeError::Text),
            ("mrc:3:128", ShapeError::Degree),
            ("mrc:1:128", ShapeError::Degree),
            ("mrc:8:64", ShapeError::Leaf),
            ("mrc:2:16", ShapeError::Leaf),
            ("mrc:2:131072", ShapeError::Leaf),
            ("src:100", ShapeError::Leaf),
            ("src:0", ShapeError::Leaf),
        ] {
            assert_eq!(text.parse::<Shape>(), Err(error), "{text}");
        }
    }

    #[test]
    fn shape_from_a_peer_is_checked() {
        for ((degree, root_log2, leaf_log2), error) in [
            ((8, 15, 7), ShapeError::Root),
            ((0, 16, 7), ShapeError::Degree),
            ((3, 16, 7), ShapeError::Degree),
            ((8, 16, 8), ShapeError::Leaf),
            ((1, 16, 17), ShapeError::Leaf),
            ((1, 16, 255), ShapeError::Leaf),
        ] {
            assert_eq!(
                Shape::new(degree, root_log2, leaf_log2),
                Err(error),
                "{degree} {root_log2} {leaf_log2}"
            );
        }
    }
}
