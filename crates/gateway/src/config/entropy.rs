//! The names of the entropy stages.

use std::fmt;
use std::str::FromStr;

/// The stage that follows the codec and takes out what repeats nearby.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entropy {
    /// Blocks are sent as the codec leaves them.
    None,
    /// LZ4: least processor time.
    Lz4,
    /// zstd at a level from 1 to 19.
    Zstd(i32),
}

impl fmt::Display for Entropy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.pad("none"),
            Self::Lz4 => f.pad("lz4"),
            Self::Zstd(level) => write!(f, "zstd:{level}"),
        }
    }
}

impl FromStr for Entropy {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "none" => Ok(Self::None),
            "lz4" => Ok(Self::Lz4),
            _ => {
                let level = text.strip_prefix("zstd:").ok_or(())?;
                let level = level.parse().map_err(|_| ())?;
                if (1..=19).contains(&level) { Ok(Self::Zstd(level)) } else { Err(()) }
            }
        }
    }
}
