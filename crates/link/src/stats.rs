//! A link's statistics for status, flows and metrics.

use std::net::SocketAddr;

use oncewire_codec::Now;
use oncewire_codec::adapt::{AdaptStats, Reason};
use oncewire_codec::contract::{ReceiveStats, SendStats};
use oncewire_codec::entropy::Entropy;
use oncewire_codec::wire::{CodecId, Destination, FlowId};

use crate::classify::Cipher;
use crate::sharing::Priority;

/// Counters of a link since its start, and its state now.
#[derive(Clone, Debug, Default)]
pub struct LinkStats {
    /// Whether a lane is up.
    pub up: bool,
    /// Whether the peer has said that it takes no new flows, and has not come anew since.
    pub peer_drains: bool,
    /// The protocol version that both ends speak, once the peer was met.
    pub version: Option<u16>,
    /// The codec of the link, once the peer was met.
    pub codec: Option<CodecId>,
    /// Frames of optional types that this build does not know, or that are for peers of a group which this one is not of.
    pub passed_over: u64,
    /// Flow lanes with a flow.
    pub lanes_busy: u32,
    /// Flow lanes without one.
    pub lanes_spare: u32,
    /// All lanes, control and repair included.
    pub lanes: u32,
    /// Flows open now.
    pub flows_open: u64,
    /// Flows since the start.
    pub flows_total: u64,
    /// Bytes given by our applications and sent by the link.
    pub delivered_out: u64,
    /// Bytes given to our applications.
    pub delivered_in: u64,
    /// Smoothed round trip on the control lane.
    pub round_trip: Option<Now>,
    /// Flows that lost their lane with something on it, from either end, and went on.
    pub resumes: u64,
    /// Lanes replaced after losses left them a small window: at the dialling side all, at the accepting side the
    /// requested ones.
    pub lanes_renewed: u64,
    /// Restarts of the peer.
    pub peer_restarts: u64,
    /// The sending half.
    pub out: SendStats,
    /// The receiving half.
    pub inbound: ReceiveStats,
    /// Bytes in memory of all flows: before they are sent, unacknowledged, and not taken by our applications.
    pub flow_bytes: u64,
    /// Used bytes of the budget for flows: credit of the peer counts, used or not.
    pub flows_reserved: u64,
    /// Flows reset for bytes of the peer beyond the memory.
    pub flows_overrun: u64,
    /// How much of the configured plan is carried out.
    pub pace: AdaptStats,
}

/// The treatment of a flow's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FlowOutcome {
    /// Redundancy is eliminated.
    Coded,
    /// Policy at this side says no.
    Policy,
    /// Policy at the peer says no, and here it did not before.
    PeerPolicy,
    /// The bytes are enciphered.
    Cipher(Cipher),
}

/// The traffic of a flow, for sums over flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowTally {
    /// Its destination.
    pub destination: Destination,
    /// The treatment of its bytes.
    pub outcome: FlowOutcome,
    /// Bytes sent for our application.
    pub sent: u64,
    /// Bytes given to our application.
    pub received: u64,
    /// Bytes of frames sent for it: blocks, messages, and the peer's requests of them. The overhead of TLS, and
    /// frames of no flow, such as acknowledgements, are in none.
    pub wire_sent: u64,
    /// Bytes of such frames received for it.
    pub wire_received: u64,
}

/// One flow for `flows`.
#[derive(Clone, Debug)]
pub struct FlowStats {
    /// The flow's short number on this link.
    pub flow: FlowId,
    /// The flow's name across links and logs.
    pub name: u128,
    /// Whether this gateway opened it.
    pub opened_here: bool,
    /// Its destination.
    pub destination: Destination,
    /// The application's address, if known.
    pub source: Option<SocketAddr>,
    /// The treatment of its bytes.
    pub outcome: FlowOutcome,
    /// For a cipher, how many bytes of its stream were before its first record.
    pub begins_after: Option<u64>,
    /// The present priority of this side's bytes.
    pub priority: Priority,
    /// The present entropy stage of this side's new bytes; `None`: they are not coded.
    pub entropy: Option<Entropy>,
    /// The reason for this stage.
    pub effort: Reason,
    /// When it was opened.
    pub opened_at: Now,
    /// Bytes sent for our application.
    pub sent: u64,
    /// Bytes given to our application.
    pub received: u64,
    /// Bytes of frames sent for it.
    pub wire_sent: u64,
    /// Bytes of frames received for it.
    pub wire_received: u64,
    /// Unacknowledged blocks and messages.
    pub unacked: u64,
    /// Whether it has no lane while it waits for the peer.
    pub waiting: bool,
}
