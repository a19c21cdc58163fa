//! The names of the codecs.

use std::fmt;

use oncewire_codec::Layers;

use super::explain;

/// The systems available for flows in this build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Codec {
    /// EndRE, then Wanax for content outside EndRE's log if the peer has a chunk store.
    Auto,
    /// EndRE over the log-addressed cache, followed by the entropy stage.
    Endre,
    /// Names of chunks in the peer's store, followed by the entropy stage; the entropy stage alone if it has
    /// no store.
    Wanax,
    /// The flow crosses the link uncoded.
    None,
}

impl Codec {
    /// Reads the value of `codec`.
    ///
    /// # Errors
    /// A name unknown or not in this build; the message lists the available ones.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "endre" => Ok(Self::Endre),
            "wanax" => Ok(Self::Wanax),
            "none" => Ok(Self::None),
            _ => Err(explain::unknown_value(
                text,
                &["auto", "endre", "wanax", "none"],
                &["pack", "packet", "refactor"],
            )),
        }
    }

    /// Returns the layers searched for repeats; none if flows are not coded.
    pub fn layers(self) -> Option<Layers> {
        match self {
            Self::Auto => Some(Layers::Both),
            Self::Endre => Some(Layers::Log),
            Self::Wanax => Some(Layers::Names),
            Self::None => None,
        }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Auto => "auto",
            Self::Endre => "endre",
            Self::Wanax => "wanax",
            Self::None => "none",
        })
    }
}
