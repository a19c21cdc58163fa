//! The contract of a codec: a sending half and a receiving half for each direction of a link.
//!
//! One grammar of verbs: `handle_*` takes an event, `poll_*` gives the work following. Mutate once, then drain every
//! output. Nothing blocks, and nothing fails on a peer's account except by a [`PeerFault`]: it costs the peer its lane.
//!
//! The two halves speak through frames. A lane carries frames in order; lanes are independent of each other.
//! Sending is pulled: the caller asks for a frame only when the lane's socket can take it, so whatever has
//! been encoded has also been handed to its socket, and a copy never waits behind a queue of the sender's own.

mod capabilities;
mod chunk_store;
mod decoder;
mod encoder;
mod stats;

use bytes::Bytes;

pub use self::capabilities::{Capabilities, Service};
pub use self::chunk_store::{ChunkPlace, Purpose, StoreReply, StoreRequest, StoreState};
pub use self::decoder::{Decoder, DecoderLog, StorePort};
pub use self::encoder::{Encoder, EncoderLoad, EncoderLog, EncoderNames, Pending, Repair};
pub use self::stats::{ChunkStats, LogStart, LogStarts, MAX_LEVELS, NameCounts, ReceiveStats, SendStats};
use crate::log::{Log, LogOffset, RangeSet};
pub use crate::stream::PreparedLog;
use crate::wanax::HintsError;
use crate::wanax::hints::PackedTag;
use crate::wire::{
    Ack, ChunkRequest, FlowId, LaneId, LogClaim, LogHeld, MAX_BLOCK, Message, NamesHello, Probe, Probed,
    Range64, Refetch, StoreHeld, WireError,
};
use crate::{Plan, StrongKind};

/// A piece of a flow to be sent: at most [`crate::wire::MAX_BLOCK`] plain bytes.
#[derive(Clone, Debug)]
pub struct Payload {
    /// The flow.
    pub flow: FlowId,
    /// Flow offset of the first byte.
    pub offset: u64,
    /// The bytes; may be empty if `fin`.
    pub plain: Bytes,
    /// Whether the stream ends behind them.
    pub fin: bool,
    /// How the bytes are to be coded; `None`: they are neither scanned nor remembered.
    pub plan: Option<Plan>,
    /// The known blocks within them, from [`Encoder::cut`].
    pub parts: Parts,
}

/// A block's end, chosen by [`Encoder::cut`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// The block's length.
    pub len: usize,
    /// The known blocks within it, for its [`Payload`].
    pub parts: Parts,
}

impl Cut {
    /// A block of this length, in one part.
    pub fn at(len: usize) -> Self {
        Self { len, parts: Parts::default() }
    }
}

/// Several blocks in one, each known to the peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// The end of each; none if the block is one by itself.
    pub ends: Vec<usize>,
    /// Whether they make up a root together.
    pub are_root: bool,
}

/// The rest of a stream behind the bytes to be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// More, here or about to come.
    More,
    /// More, without credit for now. A block without an end of its own in the bytes ends with a smaller chunk, if there is
    /// one at this distance from their front or further.
    Blocked(usize),
    /// None: the stream ends.
    EndOfStream,
}

/// What the receiving half delivers, in any order of flow offsets; each item exactly once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Verified bytes of a flow.
    Data {
        /// The flow.
        flow: FlowId,
        /// Flow offset of the first byte.
        offset: u64,
        /// The bytes.
        plain: Bytes,
        /// Whether the stream ends behind them.
        fin: bool,
    },
    /// A message.
    Message {
        /// The flow.
        flow: FlowId,
        /// The message.
        message: Message,
    },
}

/// Bytes of a log its owner may write to disk, so they outlive the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogWrite {
    /// The epoch.
    pub epoch: u64,
    /// The log offset of the first byte.
    pub start: u64,
    /// The bytes.
    pub plain: Bytes,
}

impl LogWrite {
    /// Copies the first bytes of a range out of a log, at most a block of them; none of an empty range.
    pub(crate) fn of(log: &Log, epoch: u64, range: Range64) -> Option<Self> {
        let len = range.end.saturating_sub(range.start).min(MAX_BLOCK as u64) as usize;
        let mut plain = Vec::with_capacity(len);
        log.copy_to(LogOffset(range.start), len, &mut plain);
        (len > 0).then(|| Self { epoch, start: range.start, plain: plain.into() })
    }
}

/// A log found on disk. What it holds is verified; the two halves still compare notes before using it.
#[derive(Debug)]
pub struct SavedLog {
    /// The epoch.
    pub epoch: u64,
    /// The bytes, filled where `ranges` say.
    pub log: Log,
    /// The offsets that are there.
    pub ranges: RangeSet,
}

impl SavedLog {
    /// Makes it a log of this capacity, with the content for which there is room: ends with different offers use the
    /// smaller. The rest is copied, taking as long as a log is large.
    pub fn fit(mut self, capacity: u64) -> Self {
        if self.log.capacity() != capacity {
            let before = std::mem::replace(&mut self.log, Log::new(capacity as usize));
            let end = self.ranges.iter().next_back().map_or(0, |range| range.end);
            self.ranges.remove_below(end.saturating_sub(capacity));
            before.copy_ranges(&self.ranges, &mut self.log);
        }
        self
    }
}

/// Something the sending half's owner should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SendEvent {
    /// The flow has nothing unacknowledged any more.
    Settled(FlowId),
    /// The receiving half rebuilt a block wrongly; it was sent again and what it referred to is forgotten.
    Mismatch(FlowId),
    /// The log goes on or starts over, and its receiving half finds that out by itself: [`ReceiveEvent::LogStarts`].
    LogStarts {
        /// The epoch from here on.
        epoch: u64,
        /// Whether anything is left of what was remembered.
        start: LogStart,
    },
    /// Bytes of frames were sent for a flow beside its own turns, because the peer had asked for them.
    Repaired {
        /// The flow.
        flow: FlowId,
        /// Bytes of the frames.
        bytes: u64,
    },
    /// The peer's store has these chunks of 256 bytes and more, as it acknowledged.
    Stored(Vec<PackedTag>),
    /// What was saved of the hints cannot be used; chunks are named once they were sent again.
    HintsLost(HintsError),
    /// The peer's store does not have most of a few chunks it should, and is the one it was: it may have lost
    /// everything, and little is named until some names were right.
    StoreDoubted {
        /// So many are not there.
        absent: usize,
        /// So many should be.
        believed: usize,
    },
}

/// Something the receiving half's owner should know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveEvent {
    /// The log goes on or starts over, as the first coded block of another epoch or of a new peer shows: the sending
    /// half decides, and tells of it with [`SendEvent::LogStarts`] for the same epoch.
    LogStarts {
        /// The epoch from here on.
        epoch: u64,
        /// Whether anything is left of what was remembered.
        start: LogStart,
    },
}

/// What a sending half needs to know of its peer when the link comes up with a new instance of it.
#[derive(Clone, Debug, Default)]
pub struct PeerState {
    /// Log capacity to be used: the smaller of both offers.
    pub capacity: u64,
    /// Streaming entropy contexts the peer keeps.
    pub contexts: usize,
    /// What the peer's receiving half still has.
    pub claim: Option<LogClaim>,
    /// The id of the store into the peer puts what it receives; `None`: it has none.
    pub store: Option<u64>,
    /// Chunks of fewer bytes may be named to the peer by their tags alone; 0: none.
    pub short_names_below: u32,
    /// Whether the peer has shown it is of the group of [`NamesConfig::group`](crate::wanax::NamesConfig::group), under
    /// whose key it is named chunks. It may ask others for them, by their full names: those it did not acknowledge
    /// itself, and large ones while its own disk is busy.
    pub is_of_group: bool,
    /// How the digests are made of blocks nobody compared byte by byte.
    pub strong: StrongKind,
    /// Whether the peer understands [blocks going on](crate::wire::More).
    pub continues: bool,
}

/// What a receiving half needs to know of its peer when the link comes up with a new instance of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerSender {
    /// Log capacity to be used: the smaller of both offers.
    pub capacity: u64,
    /// The peer's bound on log bytes that are not acknowledged.
    pub max_in_flight: u64,
    /// Seed of the peer's block digests.
    pub digest_seed: u64,
    /// How the peer names chunks, if it does.
    pub names: Option<NamesHello>,
    /// How the peer makes the digests of blocks nobody compared byte by byte.
    pub strong: StrongKind,
    /// Whether the peer understands [what goes on from its lane](crate::wire::More).
    pub continues: bool,
    /// The peer's question whether chunks are in the store, of its hello.
    pub probe: Option<Probe>,
}

/// Pending chunks of a block, requested by the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingChunks {
    /// The block's flow.
    pub flow: FlowId,
    /// Whether there are some for any lane.
    pub any_lane: bool,
    /// The block's lane, if there are some for it: chunks the peer lacks.
    pub lane: Option<LaneId>,
}

/// What a frame a sending half took leads to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// Something may wait to be sent again.
    pub repairs: bool,
    /// The block whose chunks were asked for: see [`Encoder::pending_chunks`].
    pub asked: Option<u64>,
    /// Something may wait for the control lane.
    pub control: bool,
}

/// A receiving half's input, for counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// A block or a message.
    Item {
        /// Its flow.
        flow: FlowId,
        /// Its sequence number.
        seq: u64,
        /// Whether it says of itself it was sent before.
        is_resent: bool,
        /// The flow offset behind its last byte, if it is a block.
        end: Option<u64>,
    },
    /// Chunks for a block of a flow.
    Chunks {
        /// The flow.
        flow: FlowId,
    },
}

/// A frame of feedback for the sending half.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Feedback {
    /// See [`crate::wire::Frame::Ack`].
    Ack(Ack),
    /// See [`crate::wire::Frame::Need`].
    Need(Vec<Range64>),
    /// See [`crate::wire::Frame::Refetch`].
    Refetch(Refetch),
    /// See [`crate::wire::Frame::LogHeld`].
    Held(LogHeld),
    /// See [`crate::wire::Frame::ChunkRequest`].
    Chunks(ChunkRequest),
    /// See [`crate::wire::Frame::StoreHeld`].
    Store(StoreHeld),
    /// See [`crate::wire::Frame::Probed`].
    Probed(Probed),
}

/// The peer did what the protocol forbids; the lane is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerFault {
    /// A malformed frame.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// A sequence number further ahead than the protocol's bound.
    #[error("sequence number {seq} is too far ahead of {next}")]
    TooFarAhead {
        /// The number.
        seq: u64,
        /// The first that has not arrived.
        next: u64,
    },
    /// An acknowledgement of something never sent.
    #[error("acknowledgement of {0}, which was never sent")]
    AckOfUnsent(u64),
    /// A flow sent more than its credit.
    #[error("flow {0} sent beyond its credit", flow.0)]
    BeyondCredit {
        /// The flow.
        flow: FlowId,
    },
    /// A flow's end was moved, or bytes came behind it.
    #[error("flow {0} went on behind its end", flow.0)]
    BehindEnd {
        /// The flow.
        flow: FlowId,
    },
    /// A flow number of the wrong side, or one that exists.
    #[error("flow number {0} cannot be opened by the peer", flow.0)]
    FlowNumber {
        /// The flow.
        flow: FlowId,
    },
    /// Blocks sent again, with all that they consist of, and were wrong again and again.
    #[error("blocks do not match their digests however often they are sent again, at last block {seq}")]
    NeverRight {
        /// The last of them.
        seq: u64,
    },
    /// More open flows than [the bound](crate::wire) allows.
    #[error("too many open flows")]
    TooManyFlows,
}
