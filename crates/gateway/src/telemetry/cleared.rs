//! What `oncewire cache clear` reports.

use serde::{Deserialize, Serialize};

/// What was cleared, peer by peer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClearReport {
    /// One entry for each peer, in the configuration's order.
    pub cleared: Vec<ClearedReport>,
    /// Bytes of the chunk store's files; none if there is no store, or only one peer was to be cleared.
    #[serde(default)]
    pub store: Option<u64>,
}

/// What was cleared of one peer's logs, both directions together; bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClearedReport {
    /// The peer's name; for one that is no longer configured, its public key in hexadecimal digits.
    pub peer: String,
    /// Log bytes in memory that could have been referred to.
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
