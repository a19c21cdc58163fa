//! Events of a link for its shell, and requests to it.

use std::fmt;
use std::net::SocketAddr;

use bytes::Bytes;
use oncewire_codec::Plan;
use oncewire_codec::adapt::AdaptStats;
use oncewire_codec::contract::{LogStart, PeerFault};
use oncewire_codec::wanax::HintsError;
use oncewire_codec::wanax::hints::PackedTag;
use oncewire_codec::wire::{
    CodecId, Destination, FlowId, GroupFrame, LaneId, LaneRole, Network, OpenFailure, ResetReason,
};

use crate::halves::LogSide;
use crate::stats::FlowTally;

/// A flow to be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenRequest {
    /// The far gateway's destination.
    pub destination: Destination,
    /// The application's address, if known.
    pub source: Option<SocketAddr>,
    /// Whether the far gateway is asked to connect from `source`; it does so only with permission.
    pub as_client: bool,
    /// The plan for this side's bytes, unless they turn out to be enciphered; `None`: the bytes are copied as they
    /// are, both ways. At the accepting side it is [`LinkConfig::plan`](crate::LinkConfig::plan).
    pub plan: Option<Plan>,
}

/// The next thing for an application, in the order of its stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// The far connect's outcome with its local address (unspecified if the far end keeps it to itself); comes
    /// once, at the opening side, before anything else.
    Opened(Result<SocketAddr, OpenFailure>),
    /// Bytes, at most 64 KiB.
    Data(Bytes),
    /// The far application ended its stream.
    Finished,
    /// The flow is over, both directions.
    Reset(ResetReason),
}

/// Work for the shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// [`crate::Link::poll_transmit`] has something for the lane.
    LaneReady(LaneId),
    /// The lane's socket is to be closed; the link has forgotten the lane.
    CloseLane(LaneId, CloseReason),
    /// The lane's connection is to be looked at: [`crate::Link::handle_lane_report`]. A shell without the means does
    /// nothing.
    LookAtLane(LaneId),
    /// The number of lanes missing now, those being dialled included; replaces the role's earlier number. Only at the
    /// dialling side.
    LanesWanted {
        /// The role of the lanes.
        role: LaneRole,
        /// How many.
        count: u32,
    },
    /// The peer opened a flow: connect onward, then [`crate::Link::answer_flow`].
    FlowOffered {
        /// The flow.
        flow: FlowId,
        /// The peer's request.
        open: OpenRequest,
    },
    /// [`crate::Link::poll_payload`] has something.
    FlowReadable(FlowId),
    /// [`crate::Link::handle_payload`] has room again.
    FlowWritable(FlowId),
    /// The link has forgotten the flow; these are its figures.
    FlowEnded(Box<FlowTally>),
    /// The flow turned to a cipher, or back: [`crate::Link::flow`] has its outcome.
    FlowOutcome(FlowId),
    /// The first lane is up.
    Up,
    /// The last lane is gone.
    Down,
    /// The peer is a new process: its old flows were reset.
    PeerRestarted,
    /// The peer, a member of the group, has these chunks in its store: its neighbours can read them, too.
    Stored(Vec<PackedTag>),
    /// The peer takes no new flows; open ones go on.
    PeerDrains,
    /// The networks fronted by the peer, all of them; replaces earlier ones.
    Announced(Vec<Network>),
    /// A peer of the group speaks; see [`crate::Link::is_of_group`].
    Group(GroupFrame),
    /// The logs were released, and there is traffic again: [`crate::Link::restore_logs`].
    LogsWanted,
    /// So much was remembered as was asked for: [`crate::Link::tell_when_filled`].
    LogsFill,
    /// Something for the log.
    Note(Note),
}

/// Why the link gives up a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// Nothing was heard on it for too long.
    Silent,
    /// The peer said that it gave the lane up.
    DeadAtPeer,
    /// It belonged to an earlier instance of the peer.
    Fenced,
    /// It was not used for a while.
    Idle,
    /// The peer has left it, and nothing of this end is on it any more.
    Left,
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Silent => "nothing heard for too long",
            Self::DeadAtPeer => "given up by the peer",
            Self::Fenced => "the peer restarted",
            Self::Idle => "idle",
            Self::Left => "left by both ends",
        })
    }
}

/// An event for an operator's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// The peer rebuilt a block of this flow wrongly; it is being sent again.
    Mismatch(FlowId),
    /// A log goes on or starts over; the other end says so of the same direction and epoch.
    LogStarts {
        /// The side of the log.
        side: LogSide,
        /// The epoch from here on.
        epoch: u64,
        /// Whether anything is left of the log.
        start: LogStart,
    },
    /// The saved knowledge of the peer's store is unusable.
    HintsLost(HintsError),
    /// The peer's store may have lost everything: it lacks most of a few chunks expected there.
    StoreDoubted {
        /// So many are not there.
        absent: usize,
        /// So many should be.
        believed: usize,
    },
    /// Flows lost their lane, and go on once they have another.
    Resumed {
        /// How many.
        flows: u64,
        /// Whether the link has any lane left.
        lanes_left: bool,
    },
    /// A flow resumes its inbound bytes after the peer's loss of a lane.
    WentOn,
    /// Flows were reset because the peer did not come back in time.
    GaveUp {
        /// How many.
        flows: u64,
    },
    /// More or less of the configured plans is carried out.
    Paced(AdaptStats),
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mismatch(flow) => {
                write!(f, "a block of flow {} was rebuilt wrongly, caught, and is sent again", flow.0)
            }
            // The other direction may be different.
            Self::LogStarts { side, epoch, start } => {
                let (direction, most) = match side {
                    LogSide::Out => ("sent to", ""),
                    LogSide::Inbound => ("received from", "up to "),
                };
                write!(f, "the log of what is {direction} the peer ")?;
                match start {
                    LogStart::Anew { reason } => write!(f, "starts over as epoch {epoch}: {reason}"),
                    LogStart::Resumed { bytes } => write!(
                        f,
                        "is resumed in epoch {epoch}: {most}{bytes} bytes of earlier connections can be used"
                    ),
                }
            }
            Self::HintsLost(error) => {
                write!(f, "{error}: what the peer's store has is learnt again")
            }
            Self::StoreDoubted { absent, believed } => {
                write!(
                    f,
                    "the peer's chunk store lacks {absent} of {believed} chunks that it should have: little is named \
                     until it has what is"
                )
            }
            Self::Resumed { flows, lanes_left } => {
                let (what, are, wait) = match flows {
                    1 => ("flow lost its", "is", "waits"),
                    _ => ("flows lost their", "are", "wait"),
                };
                // The remaining ones may break next.
                match lanes_left {
                    true => write!(f, "{flows} {what} lane and {are} to go on with another"),
                    false => write!(f, "{flows} {what} lane and {wait} for another: the link has none"),
                }
            }
            Self::WentOn => {
                f.write_str("1 flow that brings bytes from the peer lost its lane and goes on with another")
            }
            Self::GaveUp { flows } => {
                let noun = if *flows == 1 { "flow was" } else { "flows were" };
                write!(f, "{flows} {noun} reset: the peer did not come back in time")
            }
            Self::Paced(pace) => write!(f, "{pace}"),
        }
    }
}

/// Why a lane was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaneRefused {
    /// A lane of that name exists.
    #[error("a lane of that name exists")]
    Duplicate,
    /// Too many lanes.
    #[error("the peer dialled more than {max} lanes", max = crate::MAX_LANES)]
    TooMany,
    /// The peer began anew after this instance of it, which comes back.
    #[error(
        "another instance of the peer came since, so the link begins anew; do two gateways have its key?"
    )]
    Superseded,
    /// This end has become another instance since it said hello.
    #[error("this end of the link began anew while the lane came up")]
    Outdated,
    /// The peer's log is too small to work with.
    #[error("the peer offers a log of {0} bytes, which is too small")]
    LogTooSmall(u64),
    /// No codec is shared.
    #[error(
        "no codec in common: the peer has {}, this gateway {}; run builds at both ends that share one",
        list(theirs),
        list(ours)
    )]
    NoCommonCodec {
        /// Those of the peer.
        theirs: Vec<CodecId>,
        /// Those of this end.
        ours: Vec<CodecId>,
    },
    /// The codec cannot work with the peer's parameters.
    #[error(
        "the peer's parameters for codec {codec} are of no use: {fault}; run builds that agree on them at both ends"
    )]
    CodecParameters {
        /// The codec.
        codec: CodecId,
        /// Why.
        fault: PeerFault,
    },
}

impl LaneRefused {
    /// Whether the two builds have no codec to speak: an operator must change something.
    pub fn is_mismatch(&self) -> bool {
        matches!(self, Self::NoCommonCodec { .. } | Self::CodecParameters { .. })
    }
}

fn list(ids: &[CodecId]) -> String {
    ids.iter().map(CodecId::to_string).collect::<Vec<_>>().join(", ")
}

/// Why a flow was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenRefused {
    /// The peer is not there.
    #[error("the peer is not connected")]
    LinkDown,
    /// The gateway is stopping.
    #[error("the gateway is shutting down")]
    Draining,
    /// The peer takes no new flows.
    #[error("the peer takes no new flows")]
    PeerDrains,
    /// Too many flows.
    #[error("the link carries {max} flows already", max = crate::MAX_FLOWS)]
    TooManyFlows,
}

/// The flow is over; nothing can be sent on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the flow is over")]
pub struct FlowGone;
