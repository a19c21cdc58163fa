//! The search for other gateways of the site in `status`.

use serde::{Deserialize, Serialize};

/// What was told and heard of where gateways are, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiscoveryReport {
    /// The UDP port where it is told.
    pub port: u16,
    /// Gateways that are known to be there now; they are among the peers unless they are configured.
    pub found: u64,
    /// Notes of members of the groups.
    pub heard: u64,
    /// Of those, the ones of other sites, or from addresses that cannot be dialled.
    pub elsewhere: u64,
    /// Of those, the ones that were not answered, since too many came in that second.
    pub unanswered: u64,
    /// Gateways that showed that they are there when there was no room for more, each time that they did.
    pub turned_away: u64,
    /// Datagrams that no member of a group had sealed; none was answered.
    pub refused: u64,
}
