//! The entropy stage: general compression of what elimination leaves, block by block.
//!
//! A block is compressed *alone*, or as part of a *stream*: one of a bounded number of slots at each end with the last
//! megabyte of that stream as context. Streams make small messages far smaller, and cost memory: a slot takes 1.2 MiB
//! at the receiving end, and at the sending end 1.4 MiB at level 1, 2.6 at 3, 4.4 at 6, 42 at 12 and 83 at 19.
//!
//! | mode | context | body |
//! |---|---|---|
//! | [`Mode::Alone`] | one, reset each time | a frame |
//! | [`Mode::First`] | the slot's, reset | a frame's header and first blocks, flushed |
//! | [`Mode::Next`] | the slot's, as the last block left it | the frame's next blocks, flushed |
//!
//! Zstandard frames (RFC 8878) stand without their magic number, content size and checksum; frames of streams
//! never end. LZ4 is the plain block format, and always alone. Windows are at most 2^20 bytes, both ways.
//!
//! **In step.** A stream's context must see the same blocks at both ends. The sending end therefore decides a block is
//! not worth compressing before its context sees it; once the context has seen it, the result is sent even if it is a
//! few bytes longer. A block sent as it is passes neither context. When a compressor fails half-way, its slot begins
//! anew with the next [`Mode::First`].

mod compressor;
mod decompressor;
mod estimate;
mod receiving;
mod sending;
mod slots;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

pub use compressor::Compressor;
pub use decompressor::{Decompressor, EntropyError};
pub(crate) use estimate::looks_random;
pub(crate) use receiving::EntropyDecoder;
pub(crate) use sending::{EntropyEncoder, Route};

/// The longest input of the stage: a block's tokens and literals at their worst.
pub const MAX_PLAIN: usize = 160 << 10;

/// Which compression follows the codec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entropy {
    /// No compression.
    None,
    /// LZ4: for links faster than zstd.
    Lz4,
    /// Zstandard at a level from 1 to 19; another level is taken as the nearest of these.
    Zstd(i32),
}

impl Entropy {
    /// Returns what a compressed block is marked as, `None` when nothing is compressed.
    pub const fn kind(self) -> Option<Kind> {
        match self {
            Self::None => None,
            Self::Lz4 => Some(Kind::Lz4),
            Self::Zstd(_) => Some(Kind::Zstd),
        }
    }

    /// Returns about how many bytes one streaming context takes at both ends together: what was measured, and a little.
    pub const fn stream_memory(&self) -> u64 {
        const RECEIVER: u64 = Entropy::DECODING_STREAM;
        match self {
            Self::None | Self::Lz4 => 0,
            Self::Zstd(..=1) => RECEIVER + (1_500 << 10),
            Self::Zstd(2..=3) => RECEIVER + (2_950 << 10),
            Self::Zstd(4..=6) => RECEIVER + (5_000 << 10),
            Self::Zstd(7..=8) => RECEIVER + (9 << 20),
            Self::Zstd(9) => RECEIVER + (14 << 20),
            Self::Zstd(10..=11) => RECEIVER + (25 << 20),
            Self::Zstd(12 | 13 | 16) => RECEIVER + (45 << 20),
            Self::Zstd(14 | 17 | 18) => RECEIVER + (53 << 20),
            Self::Zstd(_) => RECEIVER + (88 << 20),
        }
    }

    /// Returns about how many bytes it takes at both ends together to code blocks alone, whatever streams there are.
    pub const fn alone_memory(&self) -> u64 {
        match self {
            Self::None => 0,
            Self::Lz4 => 300 << 10,
            Self::Zstd(..=4) => 1_600 << 10,
            Self::Zstd(5..=10) => 3_600 << 10,
            Self::Zstd(_) => 6_000 << 10,
        }
    }

    /// About how many bytes it takes to decode one stream, however the peer codes it.
    pub const DECODING_STREAM: u64 = 1_300 << 10;

    /// About how many bytes it takes to decode blocks alone, however the peer codes them.
    pub const DECODING_ALONE: u64 = 320 << 10;

    /// Returns whether blocks can be compressed as streams.
    pub const fn streams(self) -> bool {
        matches!(self, Self::Zstd(_))
    }
}

impl fmt::Display for Entropy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Lz4 => f.write_str("lz4"),
            Self::Zstd(level) => write!(f, "zstd:{level}"),
        }
    }
}

impl FromStr for Entropy {
    type Err = ParseEntropyError;

    fn from_str(text: &str) -> Result<Self, ParseEntropyError> {
        let level = |text: &str| text.parse().ok().filter(|level| LEVELS.contains(level));
        match text {
            "none" => Ok(Self::None),
            "lz4" => Ok(Self::Lz4),
            _ => text.strip_prefix("zstd:").and_then(level).map(Self::Zstd).ok_or(ParseEntropyError),
        }
    }
}

/// The text names no compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("expected \"none\", \"lz4\", or \"zstd:N\" with a level N from 1 to 19")]
pub struct ParseEntropyError;

/// The format of a compressed block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An LZ4 block, whatever the mode.
    Lz4,
    /// A Zstandard frame without its magic number, or a part of one.
    Zstd,
}

/// What a compressed block builds on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Nothing.
    Alone,
    /// Nothing; the stream in this slot begins.
    First(usize),
    /// All blocks that went through this slot since it began.
    Next(usize),
}

/// The levels of Zstandard offered; those above take windows beyond the limit.
const LEVELS: std::ops::RangeInclusive<i32> = 1..=19;

/// The binary logarithm of the largest window, at both ends.
const WINDOW_LOG: u32 = 20;

/// What a Zstandard frame begins with, and ours do not.
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
