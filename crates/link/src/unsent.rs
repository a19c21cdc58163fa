//! The limit of unsent bytes in a lane's socket.
//!
//! Bytes in a socket can no longer be overtaken, encoded better, or given to another lane.

use oncewire_codec::wire::LaneRole;

/// Returns how many bytes of a lane may wait unsent in its socket: 128 KiB, of the lane of repairs 16 KiB.
///
/// The lane of repairs is idle most of the time, and begins as slowly as any connection. More bytes in its socket are
/// as late as its window is small, while lanes with flows could bring them at once.
pub fn most_unsent(role: LaneRole) -> u32 {
    match role {
        LaneRole::Control | LaneRole::Flow => 128 << 10,
        LaneRole::Repair => MOST_UNSENT_OF_REPAIRS,
    }
}

/// As much as a record of TLS holds.
pub(crate) const MOST_UNSENT_OF_REPAIRS: u32 = 16 << 10;
