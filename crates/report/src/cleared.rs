//! The report of `oncewire cache clear`.

use serde::{Deserialize, Serialize};

/// Cleared content, peer by peer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClearReport {
    /// One entry for each peer, in the configuration's order.
    pub cleared: Vec<ClearedReport>,
    /// Bytes of the chunk store's files; none if there is no store, or only one peer was to be cleared.
    #[serde(default)]
    pub store: Option<u64>,
}

/// Cleared bytes of one peer's logs, both directions together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClearedReport {
    /// The peer's name; for a peer gone from the configuration, its public key in hexadecimal digits.
    pub peer: String,
    /// Referenceable log bytes in memory.
    pub memory: u64,
    /// Bytes of files.
    pub disk: u64,
}

impl ClearReport {
    /// Makes a report of its entries.
    pub fn of(cleared: impl IntoIterator<Item = ClearedReport>) -> Self {
        Self { cleared: cleared.into_iter().collect(), store: None }
    }
}

impl ClearedReport {
    /// Begins with nothing cleared.
    pub fn new(peer: &str) -> Self {
        Self { peer: peer.to_owned(), memory: 0, disk: 0 }
    }
}
