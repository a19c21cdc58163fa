//! The ways to choose markers by name, and one type that is any of them.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use crate::{Markers, Maxp};

/// A way to choose markers [EndRE §5.1].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MarkerKind {
    /// The largest hash of each aligned region of p bytes; see [`Maxp`]. Fast, and finds most; not for chunks.
    #[default]
    Maxp,
}

impl MarkerKind {
    /// All of them.
    pub const ALL: [Self; 1] = [Self::Maxp];

    /// Returns the name that configurations use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Maxp => "maxp",
        }
    }
}

impl fmt::Display for MarkerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for MarkerKind {
    type Err = UnknownMarkers;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|kind| kind.name() == text).ok_or(UnknownMarkers)
    }
}

/// The text names no [`MarkerKind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownMarkers;

/// Any way to choose markers, with its period and window.
#[derive(Clone, Debug)]
pub struct Selector {
    kind: MarkerKind,
    period: usize,
    maxp: Maxp,
}

impl Selector {
    /// Creates the choice of one marker in about `period` bytes that starts a window of `window` bytes.
    pub fn new(kind: MarkerKind, period: usize, window: usize) -> Self {
        Self { kind, period: period.max(1), maxp: Maxp::new(period, window) }
    }

    /// Returns which choice it is.
    pub const fn kind(&self) -> MarkerKind {
        self.kind
    }

    /// Returns the mean distance between markers.
    pub const fn period(&self) -> usize {
        self.period
    }
}

impl Markers for Selector {
    #[inline]
    fn select(&self, bytes: &[u8], range: Range<usize>, out: &mut Vec<u32>) -> usize {
        match self.kind {
            MarkerKind::Maxp => self.maxp.select(bytes, range, out),
        }
    }
}
