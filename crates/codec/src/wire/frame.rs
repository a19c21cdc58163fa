//! Frames: what travels on a lane behind the hellos.

use std::net::SocketAddr;

use super::block::{Block, BlockBody, Range64};
use super::chunks::{ChunkRequest, Chunks, StoreHeld};
use super::group::GroupFrame;
use super::names::{Destination, FlowId, LaneId, OpenFailure, ResetReason};
use super::network::Network;
use super::probe::{Probe, Probed};
use super::reader::WireError;

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A block of a flow.
    Block(Block<'a>),
    /// An uncoded block going on from the end of the last one on its lane; only to a peer that [understands
    /// it](super::Understood::continues).
    More(More<'a>),
    /// A sequenced message about a flow: acknowledged, repeated and deduplicated like a block.
    Message {
        /// The link-wide sequence number, from the same space as the blocks'.
        seq: u64,
        /// The flow.
        flow: FlowId,
        /// The message.
        message: Message,
    },
    /// Blocks and messages that arrived, were verified and written.
    Ack(Ack),
    /// The same without gaps: the distance from the last such frame on its lane; only to a peer that [understands
    /// it](super::Understood::continues).
    Acked(u64),
    /// Log ranges that blocks wait for.
    Need(Vec<Range64>),
    /// Blocks to send again, self-contained.
    Refetch(Refetch),
    /// What the receiving half holds of the log; the highest serial number counts.
    LogHeld(LogHeld),
    /// What the log is worth to the sending half; the highest serial number counts.
    SavingsCurve(SavingsCurve),
    /// Chunks a block refers to and that are to be sent.
    ChunkRequest(ChunkRequest),
    /// Chunks asked for.
    Chunks(Chunks<'a>),
    /// What the receiving half says of its chunk store; the highest serial number counts.
    StoreHeld(StoreHeld),
    /// The flow offset up to which the flow may send.
    Credit {
        /// The flow.
        flow: FlowId,
        /// The first flow offset that may not be sent yet.
        limit: u64,
    },
    /// Asks for a pong.
    Ping(u64),
    /// Answers a ping with its token.
    Pong(u64),
    /// How many flow lanes the accepting gateway has use for in all.
    LanesWanted(u32),
    /// A lane the sender of this frame has given up; nothing more is read from it.
    LaneDead(LaneId),
    /// The networks the sender of this frame fronts; the highest serial number counts.
    Networks(Networks),
    /// The sender of this frame takes no new flows any more, until its link starts anew.
    Draining,
    /// Asks whether chunks are in the store believed to be.
    Probe(Probe),
    /// Answers a probe.
    Probed(Probed),
    /// Of the lane it comes on: the accepting gateway asks the dialling one for another in its place.
    LaneWorn,
    /// Of the lane it comes on: the dialling gateway sends no flows on it any more, and the other is to end it once it
    /// has none there either.
    LaneLeft,
    /// The host of the sender's application probes the flow's connection while that is silent.
    KeepAlive(KeepAlive),
    /// Between members of a trust group.
    Group(GroupFrame),
}

/// How often an application's host probes a connection by TCP's keep-alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// The flow.
    pub flow: FlowId,
    /// The silence before each probe, in seconds, at most [`MAX_KEEPALIVE`]; 0 if it probes no more.
    pub seconds: u16,
}

/// The longest silence before a probe that systems allow, in seconds.
pub const MAX_KEEPALIVE: u16 = 32_767;

/// An uncoded block of the flow of the last block on its lane, from its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct More<'a> {
    /// How much higher its sequence number is than that block's.
    pub after: u64,
    /// The plain bytes, at most [`MAX_BLOCK`](super::MAX_BLOCK).
    pub plain: &'a [u8],
}

/// The end of the last block on a lane, the start of a [`More`]. Blocks sent again by themselves do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneTail {
    /// The block's flow.
    pub flow: FlowId,
    /// Its sequence number.
    pub seq: u64,
    /// The flow offset behind its last byte.
    pub end: u64,
}

impl LaneTail {
    /// Returns the new end of a block's lane, unless the block leaves the old one.
    pub fn of(block: &Block<'_>) -> Option<Self> {
        let Block { flow, seq, offset, plain_len, resent, .. } = *block;
        (!resent).then(|| Self { flow, seq, end: offset.saturating_add(plain_len as u64) })
    }

    /// Returns the block going on from here.
    ///
    /// # Errors
    /// Numbers beyond what there is.
    pub fn go_on<'a>(&self, more: More<'a>) -> Result<Block<'a>, WireError> {
        let (plain_len, offset) = (more.plain.len(), self.end);
        let seq = self.seq.checked_add(more.after).filter(|seq| *seq < u64::MAX);
        let seq = seq.ok_or(WireError::Invalid("sequence number"))?;
        offset.checked_add(plain_len as u64).ok_or(WireError::Invalid("flow offset"))?;
        let (flow, body) = (self.flow, BlockBody::Uncoded(more.plain));
        Ok(Block { seq, flow, offset, plain_len, fin: false, resent: false, body })
    }
}

/// A sequenced message about a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Opens a flow.
    Open(Open),
    /// Answers an open.
    Opened(Result<Opened, OpenFailure>),
    /// Ends a flow, both directions.
    Reset(Reset),
}

/// What ends a flow at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reset {
    /// Why.
    pub reason: ResetReason,
    /// Earlier bytes of the flow, to come first; said only to a peer that [understands
    /// it](super::Understood::resets_behind), and only if they are to come at all.
    pub behind: Option<u64>,
}

/// What opens a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// The flow's name across links and logs: instance of the opener, then its count.
    pub id: u128,
    /// Where to connect.
    pub destination: Destination,
    /// The application's own address, where known.
    pub source: Option<SocketAddr>,
    /// Whether blocks of this flow may be coded (policy of the opener).
    pub coded: bool,
    /// Whether to connect from `source`, so the server sees the application's own address.
    pub as_client: bool,
    /// By how many halvings the flow's first credit is below that of the hello, in both directions; at most
    /// [`MAX_CREDIT_SHIFT`]. 0 unless the peer [understands it](super::Understood::small_credits).
    pub credit_shift: u8,
}

/// The most halvings of a first credit.
pub const MAX_CREDIT_SHIFT: u8 = 7;

/// What a successful answer to an open says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The local address of the far connection, unless the far end keeps it to itself.
    pub address: Option<SocketAddr>,
    /// Whether the policy of the far end agrees that blocks of this flow may be coded.
    pub coded: bool,
}

/// An acknowledgement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ack {
    /// Everything below this sequence number has arrived.
    pub next: u64,
    /// Ranges above it that have arrived too.
    pub ranges: Vec<Range64>,
}

/// A request to send blocks again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refetch {
    /// Why.
    pub reason: RefetchReason,
    /// The blocks' sequence numbers.
    pub seqs: Vec<u64>,
}

/// What a receiving half holds of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogHeld {
    /// Counts up from 1 with everything this process says of the log.
    pub serial: u64,
    /// The epoch of `oldest`.
    pub epoch: u64,
    /// Nothing below this offset is held any more.
    pub oldest: u64,
    /// Of what is written from now on, the last so many bytes are held.
    pub limit: u64,
}

/// What a log is worth, as the sending half sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavingsCurve {
    /// Counts up from 1 with everything this process says of the log.
    pub serial: u64,
    /// The bytes of log the sending half has memory for; more are of no use to it.
    pub limit: u64,
    /// Bytes saved lately, or would have been, by the size of the log it takes: the first entry up to 256 KiB, each
    /// further one twice as much.
    pub curve: Vec<u64>,
}

/// The networks a gateway fronts, as it announces them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks {
    /// Counts up from 1 with every change within one process.
    pub serial: u64,
    /// All of them, at most [`MAX_NETWORKS`](super::MAX_NETWORKS).
    pub networks: Vec<Network>,
}

/// Why blocks are asked for again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefetchReason {
    /// What the blocks refer to is missing, or their entropy context is out of step.
    Missing,
    /// The rebuilt bytes did not match the digest: the caches have drifted apart.
    Mismatch,
}
