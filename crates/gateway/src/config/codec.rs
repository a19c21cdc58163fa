//! The names of the codecs.

use std::fmt;

use oncewire_codec::Layers;

use super::explain;

/// The systems that this build can use on a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Codec {
    /// EndRE, and Wanax for what its log does not have where the peer has a chunk store.
    Auto,
    /// EndRE over the log-addressed cache, followed by the entropy stage.
    Endre,
    /// Names of chunks that the peer has in its store, followed by the entropy stage; the entropy stage alone where it
    /// has none.
    Wanax,
    /// The flow crosses the link as it is.
    None,
}

impl Codec {
    /// Reads the value of `codec`.
    ///
    /// # Errors
    /// A name that is unknown, or known but not in this build; the message names those that are.
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

    /// Returns where repeats are looked for; none if flows are not coded.
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
