//! Marker choices by name, and one type for any of them.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use crate::{Backend, Fixed, Markers, Maxp, MaxpStrict, Modp, ModpRabin, SampleByte, SampleTable};

/// A way to choose markers [EndRE §5.1].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MarkerKind {
    /// The largest hash of each aligned region of p bytes; see [`Maxp`]. Fast, and finds most; not for chunks.
    #[default]
    Maxp,
    /// The positions with the largest hash for p/2 bytes on either side; see [`MaxpStrict`]. Fit for chunks.
    MaxpStrict,
    /// The positions with hashes among the largest of all, half a period apart or more; see [`Modp`].
    Modp,
    /// The published MODP, as a baseline; see [`ModpRabin`]. Slow.
    ModpRabin,
    /// Every p-th position; see [`Fixed`]. Finds only repeats on the same grid; not for chunks.
    Fixed,
    /// The positions of a few byte values, half a period apart or more; see [`SampleByte`].
    SampleByte,
}

impl MarkerKind {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Maxp, Self::MaxpStrict, Self::Modp, Self::ModpRabin, Self::Fixed, Self::SampleByte];

    /// Returns the name in configurations.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Maxp => "maxp",
            Self::MaxpStrict => "maxp-strict",
            Self::Modp => "modp",
            Self::ModpRabin => "modp-rabin",
            Self::Fixed => "fixed",
            Self::SampleByte => "samplebyte",
        }
    }

    /// Returns whether markers depend on the content alone, so chunks between them are found again at any place
    /// [EndRE §5.2.1].
    pub const fn is_content_defined(self) -> bool {
        !matches!(self, Self::Maxp | Self::Fixed)
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
    table: SampleTable,
    choice: Choice,
}

#[derive(Clone, Debug)]
enum Choice {
    Maxp(Maxp),
    MaxpStrict(MaxpStrict),
    Modp(Modp),
    ModpRabin(ModpRabin),
    Fixed(Fixed),
    SampleByte(SampleByte),
}

impl Selector {
    /// Creates the choice of one marker, the start of a window of `window` bytes, in about `period` bytes.
    ///
    /// SAMPLEBYTE gets the paper's table.
    pub fn new(kind: MarkerKind, period: usize, window: usize) -> Self {
        Self::with_table(kind, period, window, SampleTable::PAPER)
    }

    /// Creates the choice as [`Self::new`] does, with the bytes for SAMPLEBYTE.
    pub fn with_table(kind: MarkerKind, period: usize, window: usize, table: SampleTable) -> Self {
        let choice = match kind {
            MarkerKind::Maxp => Choice::Maxp(Maxp::new(period, window)),
            MarkerKind::MaxpStrict => Choice::MaxpStrict(MaxpStrict::new(period, window)),
            MarkerKind::Modp => Choice::Modp(Modp::new(period, window)),
            MarkerKind::ModpRabin => Choice::ModpRabin(ModpRabin::new(period, window)),
            MarkerKind::Fixed => Choice::Fixed(Fixed::new(period, window)),
            MarkerKind::SampleByte => Choice::SampleByte(SampleByte::new(period, window, table)),
        };
        Self { kind, period: period.max(1), table, choice }
    }

    /// Runs on `backend` instead of the best one here.
    ///
    /// The markers are the same. A backend missing on this machine becomes [`Backend::Portable`]. So does any for
    /// FIXED, without need of vectors, and for MODP by Rabin's fingerprint, a serial computation.
    pub fn on(self, backend: Backend) -> Self {
        let choice = match self.choice {
            Choice::Maxp(markers) => Choice::Maxp(markers.on(backend)),
            Choice::MaxpStrict(markers) => Choice::MaxpStrict(markers.on(backend)),
            Choice::Modp(markers) => Choice::Modp(markers.on(backend)),
            Choice::SampleByte(markers) => Choice::SampleByte(markers.on(backend)),
            other @ (Choice::ModpRabin(_) | Choice::Fixed(_)) => other,
        };
        Self { choice, ..self }
    }

    /// Returns the kind of choice.
    pub const fn kind(&self) -> MarkerKind {
        self.kind
    }

    /// Returns the intended mean distance between markers.
    pub const fn period(&self) -> usize {
        self.period
    }

    /// Returns the bytes for SAMPLEBYTE; the other choices carry them along.
    pub const fn table(&self) -> SampleTable {
        self.table
    }
}

impl Markers for Selector {
    #[inline]
    fn select(&self, bytes: &[u8], range: Range<usize>, out: &mut Vec<u32>) -> usize {
        match &self.choice {
            Choice::Maxp(markers) => markers.select(bytes, range, out),
            Choice::MaxpStrict(markers) => markers.select(bytes, range, out),
            Choice::Modp(markers) => markers.select(bytes, range, out),
            Choice::ModpRabin(markers) => markers.select(bytes, range, out),
            Choice::Fixed(markers) => markers.select(bytes, range, out),
            Choice::SampleByte(markers) => markers.select(bytes, range, out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_choice_is_found_by_its_name() {
        for kind in MarkerKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
            let selector = Selector::new(kind, 0, 0);
            assert_eq!((selector.kind(), selector.period(), selector.table()), (kind, 1, SampleTable::PAPER));
        }
        assert_eq!("MAXP".parse::<MarkerKind>(), Err(UnknownMarkers));
    }
}
