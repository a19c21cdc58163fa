//! A trust group in `status`.

use serde::{Deserialize, Serialize};

/// What a gateway and the other members of a group have done for each other since the start, or since the first peer
/// came into the group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupReport {
    /// The group's name here.
    pub name: String,
    /// Members of the same site whose links are up and who have a chunk store.
    pub neighbours: u64,
    /// Bytes of chunks that they have asked other sites for and not got, as they said last.
    #[serde(default)]
    pub neighbours_pending_bytes: u64,
    /// Chunks that neighbours were asked for.
    pub asked: u64,
    /// Of those, the ones that they had.
    pub found: u64,
    /// Their bytes.
    pub found_bytes: u64,
    /// Of those, the ones that they did not have.
    pub absent: u64,
    /// Questions that were not answered in time.
    pub late: u64,
    /// Answers that were not what was asked for; none of them was used.
    pub wrong: u64,
    /// Chunks that were waited for, since another gateway of the site fetched them already.
    #[serde(default)]
    pub waited: u64,
    /// Of those, the ones that came so and were not fetched again.
    #[serde(default)]
    pub spared: u64,
    /// Chunks that neighbours were given when they asked.
    pub served: u64,
    /// Chunks that neighbours were given to keep.
    pub given: u64,
    /// Their bytes.
    pub given_bytes: u64,
    /// Chunks that they were not given, since too many were on their way or they had failed.
    pub not_given: u64,
    /// Chunks that neighbours gave to be kept.
    pub taken: u64,
    /// Chunks of the two largest sizes that members brought to the own store and that were new there.
    pub new: u64,
    /// Of those, the ones that members were told of.
    pub announced: u64,
    /// Of those, the ones that they were not told of, since there were too many.
    pub not_announced: u64,
    /// Chunks that members told of.
    pub heard: u64,
    /// Beside those, the ones that a member told of beyond what it is listened to for.
    #[serde(default)]
    pub not_heard: u64,
    /// Questions of members, chunks that they gave to be kept and other frames of theirs, beyond what a member is listened
    /// to for; who asked was told no.
    #[serde(default)]
    pub turned_away: u64,
}
