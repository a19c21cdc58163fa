//! The coding of a flow's blocks: chosen by policy, lowered by a controller from block to block.

use std::fmt;
use std::str::FromStr;

use oncewire_fingerprint::MarkerKind;

use crate::entropy::Entropy;

/// How the sending half looks for repeats in a block, and what follows.
///
/// None of it concerns the receiving half: every block says for itself how it is to be rebuilt, so plans may
/// differ between flows and change within one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Where repeats are looked for: in the log, among named chunks, or both.
    pub layers: Layers,
    /// What is looked up in the log.
    pub matching: Matching,
    /// Where it is looked for.
    pub markers: MarkerKind,
    /// The mean distance between markers, p; 64 by default, 16 to 4096.
    pub period: u32,
    /// The entropy stage; zstd level 3 by default.
    pub entropy: Entropy,
    /// The entropy stage of blocks of which more than an eighth is new, while CPU is short; `None`, the default:
    /// [`Self::entropy`].
    pub busy_entropy: Option<Entropy>,
    /// How much of the log the flow may take, together with others of its class; `None`, the default: all of it.
    pub quota: Option<Quota>,
}

/// The part of a log a class of flows may take, so it does not push out everybody else's bytes.
///
/// A block is remembered only if, of the log's capacity of bytes ending behind it, at most so many are its class's. The
/// log is one queue: a class's bytes leave once other classes have written enough behind them, and only then does the
/// class go on. A block not remembered can still refer to the whole log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Whose bytes are counted together.
    pub class: u64,
    /// How many there may be; with 0 nothing is remembered.
    pub bytes: u64,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            layers: Layers::Log,
            matching: Matching::Max,
            markers: MarkerKind::default(),
            period: 64,
            entropy: Entropy::Zstd(3),
            busy_entropy: None,
            quota: None,
        }
    }
}

impl Plan {
    /// Returns the entropy stage of a block of `len` bytes, with `new` of them neither copied nor named. A few new
    /// bytes in a block of repeats cost nothing at any level.
    pub fn entropy_of(&self, new: usize, len: usize) -> Entropy {
        if new > len / FEW_SHARE { self.entropy_of_new() } else { self.entropy }
    }

    /// Returns the entropy stage of a block that is new.
    pub fn entropy_of_new(&self) -> Entropy {
        self.busy_entropy.unwrap_or(self.entropy)
    }

    /// Returns the choice by which the block is really cut or looked at.
    ///
    /// Chunks must be cut by content alone, so if [`Self::markers`] says MAXP by aligned regions, Chunk-Match takes
    /// MODP: as good at it as MAXP by a sliding window and three times as fast.
    pub fn effective_markers(&self) -> MarkerKind {
        match (self.matching, self.markers) {
            (Matching::Chunk, MarkerKind::Maxp) => MarkerKind::Modp,
            (_, markers) => markers,
        }
    }
}

/// A block of which at most one byte in this many is new has few new bytes.
pub(crate) const FEW_SHARE: usize = 8;

/// The layers of a coder: what a block may refer to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layers {
    /// The log (EndRE).
    #[default]
    Log,
    /// Named chunks (Wanax), if the peer has a store; else nothing.
    Names,
    /// The log first, and named chunks for what it does not have, if the peer has a store.
    Both,
}

impl Layers {
    /// Returns whether blocks refer to the log, and are remembered there.
    pub const fn use_log(self) -> bool {
        matches!(self, Self::Log | Self::Both)
    }

    /// Returns whether blocks refer to named chunks.
    pub const fn use_names(self) -> bool {
        matches!(self, Self::Names | Self::Both)
    }
}

/// How repeats are identified [EndRE §5.2].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Matching {
    /// The longest repeats around fingerprints, found by comparing bytes with the sender's own log
    /// [EndRE §5.2.2].
    #[default]
    Max,
    /// Whole chunks, found by their hashes; the sender keeps no bytes [EndRE §5.2.1].
    Chunk,
}

impl fmt::Display for Matching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Max => "max",
            Self::Chunk => "chunk",
        })
    }
}

impl FromStr for Matching {
    type Err = UnknownMatching;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "max" => Ok(Self::Max),
            "chunk" => Ok(Self::Chunk),
            _ => Err(UnknownMatching),
        }
    }
}

/// The text names no [`Matching`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is \"max\" and \"chunk\"")]
pub struct UnknownMatching;
