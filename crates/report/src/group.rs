//! A trust group in `status`.

use serde::{Deserialize, Serialize};

/// Services between a gateway and the other members of a group, since the start or the first peer's entry
/// into the group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupReport {
    /// The group's name here.
    pub name: String,
    /// Members of the same site with a link up and a chunk store.
    pub neighbours: u64,
    /// Bytes of chunks pending at other sites on their request, by their last report.
    #[serde(default)]
    pub neighbours_pending_bytes: u64,
    /// Chunks asked of neighbours.
    pub asked: u64,
    /// Of those, found ones.
    pub found: u64,
    /// Their bytes.
    pub found_bytes: u64,
    /// Of those, absent ones.
    pub absent: u64,
    /// Questions without an answer in time.
    pub late: u64,
    /// Answers not matching the question; none of them was used.
    pub wrong: u64,
    /// Chunks awaited from another gateway of the site already fetching them.
    #[serde(default)]
    pub waited: u64,
    /// Of those, the ones received so, without a fetch of their own.
    #[serde(default)]
    pub spared: u64,
    /// Chunks served to neighbours on request.
    pub served: u64,
    /// Chunks given to neighbours to keep.
    pub given: u64,
    /// Their bytes.
    pub given_bytes: u64,
    /// Chunks not given to them: too many were on their way, or they had failed.
    pub not_given: u64,
    /// Chunks taken from neighbours to keep.
    pub taken: u64,
    /// New chunks of the two largest sizes, brought to the own store by members.
    pub new: u64,
    /// Of those, announced ones.
    pub announced: u64,
    /// Of those, unannounced ones, beyond the limit.
    pub not_announced: u64,
    /// Chunks announced by members.
    pub heard: u64,
    /// Beside those, chunks announced beyond a member's rate limit.
    #[serde(default)]
    pub not_heard: u64,
    /// Questions, gifts and other frames beyond a member's rate limit; questions were refused.
    #[serde(default)]
    pub turned_away: u64,
}
