//! The joining of a lane to a peer's link, and its end.

use oncewire_codec::wire::LaneRole;
use oncewire_link::{LaneRefused, ProtocolError};
use tokio::time::Instant;

/// Why a lane did not join its link.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JoinError {
    #[error("its lane id is in use")]
    Duplicate,
    #[error("the gateway stops, or the peer is no longer configured, or otherwise")]
    Ended,
    #[error("it was under way when a later instance of the peer came")]
    Late,
    #[error("the peer has two keys at once, and its flows are numbered by the other one")]
    KeyChanged,
    #[error("{0}")]
    Refused(LaneRefused),
}

/// The exchange of hellos on a lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange {
    /// When it began.
    pub(crate) began: Instant,
    /// The instance named by this side.
    pub(crate) said: u64,
    /// Whether this side dialled.
    pub(crate) dialled: bool,
    /// Ties proofs to the lane.
    pub(crate) binding: Option<Binding>,
}

/// A secret shared by both ends of a lane alone; none without encryption.
pub(crate) type Binding = [u8; 32];

/// The lane has left the link.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LaneGone {
    #[error("the link closed the lane")]
    Closed,
    #[error("{0}")]
    Protocol(ProtocolError),
}

/// Index of a role's counts.
pub(crate) fn role_index(role: LaneRole) -> usize {
    match role {
        LaneRole::Control => 0,
        LaneRole::Repair => 1,
        LaneRole::Flow => 2,
    }
}

/// The roles in dialling order.
pub(crate) const ROLES: [LaneRole; 3] = [LaneRole::Control, LaneRole::Repair, LaneRole::Flow];
