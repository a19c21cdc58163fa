//! Discovery in `status`.

use serde::{Deserialize, Serialize};

/// Discovery's counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiscoveryReport {
    /// The UDP port of discovery.
    pub port: u16,
    /// Gateways known to be present; they are among the peers unless they are configured.
    pub found: u64,
    /// Notes of members of the groups.
    pub heard: u64,
    /// Of those, notes of other sites, or from undiallable addresses.
    pub elsewhere: u64,
    /// Of those, notes left unanswered at the limit of a second.
    pub unanswered: u64,
    /// Refusals of present gateways for lack of room.
    pub turned_away: u64,
    /// Datagrams not sealed by a member of a group; none was answered.
    pub refused: u64,
}
