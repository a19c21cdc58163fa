//! The contract of a codec: a sending half and a receiving half for each direction of a link.
//!
//! One grammar of verbs: `handle_*` takes what happened, `poll_*` gives the work that follows. Mutate once,
//! then drain every output. Nothing blocks, and nothing fails on a peer's account except by a [`PeerFault`],
//! which costs the peer its lane.
//!
//! The two halves speak through frames. A lane carries frames in order; lanes are independent of each other.
//! Sending is pulled: the caller asks for a frame only when the lane's socket can take it, so whatever has
//! been encoded has also been handed to its socket, and a copy never waits behind a queue of the sender's own.

mod chunk_store;
mod stats;

use bytes::Bytes;

pub use self::chunk_store::{ChunkPlace, Purpose, StoreReply, StoreRequest, StoreState};
pub use self::stats::{ChunkStats, LogStart, LogStarts, MAX_LEVELS, NameCounts, ReceiveStats, SendStats};
use crate::cache::{Log, LogOffset, RangeSet};
pub use crate::endre::PreparedLog;
use crate::wanax::HintsError;
use crate::wanax::hints::{PackedTag, SavePosition, SavedPiece};
use crate::wanax::path::{Demand, PathRate};
use crate::wire::{
    Ack, ChunkRequest, FlowId, LaneId, LogClaim, LogHeld, MAX_BLOCK, Message, NamesHello, Probe, Probed,
    Range64, Refetch, StoreHeld, WireError,
};
use crate::{Now, Plan, StrongKind};

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
}

/// What is behind the bytes that a block is cut from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// More of the stream, or it is about to come.
    More,
    /// More of the stream that cannot be sent now. A block that ends nowhere in the bytes does so where a smaller chunk
    /// ends, if one does that far from their front.
    Later(usize),
    /// Nothing; the stream ends.
    Nothing,
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

/// Bytes of a log that its owner may write to disk, so that they outlive the process.
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

/// A log that was found on disk. What it holds is verified; the two halves still compare notes before using it.
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
    /// Makes it a log of this capacity, with what of it has room in one: ends that offer different sizes use the smaller.
    /// What does not have it already is copied, which takes as long as a log is large.
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

/// Something that the sending half's owner should know.
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
    /// The peer's store does not have most of a few chunks that it should, and is the one that it was: it may have lost
    /// everything, and little is named until some names were right.
    StoreDoubted {
        /// So many are not there.
        absent: usize,
        /// So many should be.
        believed: usize,
    },
}

/// Something that the receiving half's owner should know.
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
    /// Streaming entropy contexts that the peer keeps.
    pub contexts: usize,
    /// What the peer's receiving half still has.
    pub claim: Option<LogClaim>,
    /// The id of the store into which the peer puts what it receives; `None`: it has none.
    pub store: Option<u64>,
    /// Chunks of fewer bytes may be named to the peer by their tags alone; 0: none.
    pub short_names_below: u32,
    /// Whether the peer has shown that it is of the group of [`NamesConfig::group`](crate::wanax::NamesConfig::group),
    /// under whose key it is named chunks. It may ask others for them, by their full names: those that it did not
    /// acknowledge itself, and large ones while its own disk is busy.
    pub is_of_group: bool,
    /// How the digests are made of blocks that nobody compared byte by byte.
    pub strong: StrongKind,
    /// Whether the peer understands [blocks that go on](crate::wire::More).
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
    /// How the peer makes the digests of blocks that nobody compared byte by byte.
    pub strong: StrongKind,
    /// Whether the peer understands [what goes on from its lane](crate::wire::More).
    pub continues: bool,
    /// The peer's question whether chunks are in the store, of its hello.
    pub probe: Option<Probe>,
}

/// Chunks of a block that the peer has asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskedOf {
    /// The block's flow.
    pub flow: FlowId,
    /// Whether there are some for [`SendingHalf::poll_asked`].
    pub repairs: bool,
    /// The lane for which [`SendingHalf::poll_chunks`] has some, which the peer lacks: the one that brought the block.
    pub lane: Option<LaneId>,
}

/// What a frame that a sending half took leads to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// Something may wait to be sent again.
    pub repairs: bool,
    /// The block whose chunks were asked for: see [`SendingHalf::asked_of`].
    pub asked: Option<u64>,
    /// Something may wait for the control lane.
    pub control: bool,
}

/// What a receiving half took, for whoever counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// A block or a message.
    Item {
        /// Its flow.
        flow: FlowId,
        /// Its sequence number.
        seq: u64,
        /// Whether it says of itself that it was sent before.
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
    /// An acknowledgement of something that was never sent.
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
    /// Blocks that were sent again, with all that they consist of, and were wrong again and again.
    #[error("blocks do not match their digests however often they are sent again, at last block {seq}")]
    NeverRight {
        /// The last of them.
        seq: u64,
    },
    /// More open flows than [the bound](crate::wire) allows.
    #[error("too many open flows")]
    TooManyFlows,
}

/// The sending half of a codec.
pub trait SendingHalf {
    /// Encodes a block and appends its frame; the caller has checked [`Self::has_room`] and the flow's credit.
    fn handle_payload(&mut self, payload: Payload, lane: LaneId, now: Now, out: &mut Vec<u8>);
    /// Appends the frame of a sequenced message.
    fn handle_message(&mut self, flow: FlowId, message: Message, lane: LaneId, out: &mut Vec<u8>);
    /// Returns the memory of what is not acknowledged: plain bytes of blocks, and what is kept beside them.
    fn kept_bytes(&self) -> u64;
    /// Gives back what the flow holds (contexts); its unacknowledged blocks stay until they are acknowledged.
    fn finish_flow(&mut self, flow: FlowId);
    /// Takes a frame of the receiving half, of a type that [belongs](crate::wire::owner) to the encoder, from a lane that is
    /// there.
    ///
    /// # Errors
    /// A malformed frame; feedback on what was never sent.
    fn handle_frame(&mut self, kind: u8, body: &[u8], lane: LaneId, now: Now) -> Result<Heard, PeerFault>;
    /// Marks what was last sent on the lane to be sent again; the lane does not come back.
    fn handle_lane_lost(&mut self, lane: LaneId);
    /// Starts over with a new instance of the peer, warm if its claim fits.
    fn handle_peer_state(&mut self, peer: PeerState);
    /// Sets how many of the last bytes this end has memory for, at most the capacity, and tells the receiving half
    /// with the next [`Self::poll_worth`].
    fn set_limit(&mut self, limit: u64, now: Now);
    /// Forgets everything that was remembered: the log starts over, and no chunk is named until it was sent again.
    fn clear_log(&mut self);
    /// Returns a piece of what is known of the peer's store; all of them, put together by
    /// [`save_by`](crate::wanax::hints::save_by), are for the next process's
    /// [`NamesConfig::saved`](crate::wanax::NamesConfig::saved). `None` if nothing is known.
    fn save_hints(&self, at: SavePosition) -> Option<SavedPiece>;
    /// Takes chunks that the peer can read, though this half did not send them.
    fn handle_stored(&mut self, chunks: &[PackedTag], now: Now);
    /// Says whether others than the peer can read what is put into its store, and [`SendEvent::Stored`] is wanted.
    fn tell_stored(&mut self, wanted: bool);
    /// Gives the memory of the log back while nobody uses it: what is on disk can come back with
    /// [`Self::restore_log`]. Until then nothing older is referred to. Returns false, and does nothing, while anything
    /// is unacknowledged.
    fn release_log(&mut self) -> bool;
    /// Takes back what was released, as far as it was found again.
    fn restore_log(&mut self, log: Option<PreparedLog>);
    /// Whether blocks with this plan are looked through for chunks that the peer's store has, and are to be cut by
    /// [`Self::block_end`].
    fn is_naming(&self, plan: &Plan) -> bool;
    /// Returns how long the next block of a flow with this plan should be that is taken off the front of `bytes`, so that
    /// what is repeated is cut alike. A block has at most `most` bytes, but one of which only a name or a copy is to cross
    /// may have up to [`crate::wire::MAX_BLOCK`].
    fn block_end(
        &mut self,
        flow: FlowId,
        plan: &Plan,
        bytes: &[u8],
        behind: Behind,
        most: usize,
        now: Now,
    ) -> usize;
    /// Appends what the log is worth if there is news of it; returns whether there was.
    fn poll_worth(&mut self, out: &mut Vec<u8>) -> bool;
    /// Returns the question that [`Self::poll_probe`] has once the peer is met, to be put into the hello: a peer that hears
    /// that first answers right behind its own.
    fn probe(&self) -> Option<Probe>;
    /// Appends the question whether the peer's store has what is believed of it, if one is due; returns whether it was.
    /// Nobody waits for the answer. Only a peer of version 2 or later has a store, and passes over what it does not know.
    fn poll_probe(&mut self, out: &mut Vec<u8>) -> bool;
    /// Says again everything that was said before: the control lane is a new one.
    fn restate(&mut self);
    /// Whether the flow has something to be sent again because its lane was lost.
    fn has_lost(&self, flow: FlowId) -> bool;
    /// Whether repairs wait to be sent.
    fn has_repairs(&self) -> bool;
    /// Whether another item may be sent before older ones are acknowledged.
    fn has_room(&self) -> bool;
    /// Items of the flow that are not acknowledged.
    fn unacked(&self, flow: FlowId) -> u64;
    /// Appends the next item that the flow lost, now on `lane`; returns whether there was one.
    fn poll_lost(&mut self, flow: FlowId, lane: LaneId, out: &mut Vec<u8>) -> bool;
    /// Whether chunks that were asked for wait to be sent.
    fn has_asked(&self) -> bool;
    /// Appends the chunks that were asked for of the next block; returns whether there were any.
    fn poll_asked(&mut self, out: &mut Vec<u8>) -> bool;
    /// Appends the next block that is to be sent again; returns whether there was one.
    fn poll_repair(&mut self, out: &mut Vec<u8>) -> bool;
    /// Returns what waits to be sent of a block's chunks, if anything does.
    fn asked_of(&self, seq: u64) -> Option<AskedOf>;
    /// Appends chunks of one block, at most `most` bytes of them, or one if that is longer: those that [`Self::poll_chunks`]
    /// has for a lane, or without one those of [`Self::poll_asked`]. Returns whether there were any.
    fn poll_answer(&mut self, seq: u64, lane: Option<LaneId>, most: usize, out: &mut Vec<u8>) -> bool;
    /// Appends chunks that the peer's store did not have, of the next block that was sent on `lane`; returns whether
    /// there were any.
    fn poll_chunks(&mut self, lane: LaneId, out: &mut Vec<u8>) -> bool;
    /// Takes the next piece of log to be written to disk; there is none unless the half was set up to persist.
    fn poll_log_write(&mut self) -> Option<LogWrite>;
    /// Returns the first piece of what is remembered from an offset on, of at most one block, for a disk that has nothing
    /// of it; none if there is no more, or it is not in memory.
    fn log_piece(&self, from: u64) -> Option<LogWrite>;
    /// Takes the next event.
    fn poll_event(&mut self) -> Option<SendEvent>;
    /// Returns what was done since the start because the peer said something, in steps of some tens of nanoseconds.
    fn work(&self) -> u64;
    /// Counters and sizes.
    fn stats(&self) -> SendStats;
}

/// The receiving half of a codec.
pub trait ReceivingHalf {
    /// Takes a frame of the sending half, of a type that [belongs](crate::wire::owner) to the decoder, from a lane that is
    /// there; returns what it was, if a flow has a part in it.
    ///
    /// # Errors
    /// A malformed frame, and whatever else the protocol forbids. A block that cannot be rebuilt is no error, it is asked
    /// for again.
    fn handle_frame(
        &mut self,
        kind: u8,
        body: &[u8],
        lane: LaneId,
        now: Now,
    ) -> Result<Option<Arrival>, PeerFault>;
    /// Forgets a lane, which does not come back.
    fn handle_lane_lost(&mut self, lane: LaneId);
    /// Sets how many of the last bytes this end has memory for, at most the capacity; fewer are held if the sending
    /// half has less. The sending half is told, and goes by it from then on.
    fn set_limit(&mut self, limit: u64);
    /// Forgets everything that is remembered; the sending half is told.
    fn clear_log(&mut self);
    /// Gives the memory of the log back while nobody uses it: what is on disk can come back with
    /// [`Self::restore_log`]. Until then blocks that refer to it wait. Returns false, and does nothing, while blocks
    /// wait.
    fn release_log(&mut self) -> bool;
    /// Takes back what was released, as far as it was found again; of the rest the sending half is told.
    fn restore_log(&mut self, log: Option<SavedLog>, now: Now);
    /// Sets how long to wait for missing ranges and repairs.
    fn handle_patience(&mut self, patience: Now);
    /// Starts over with a new instance of the peer; what is remembered stays.
    fn handle_peer_restart(&mut self, peer: PeerSender);
    /// Takes what became of a read; an answer that nobody waits for any more is dropped.
    fn handle_store(&mut self, reply: StoreReply, now: Now);
    /// Takes note that a read may take so long from now on and is answered in any case: until then nothing that its
    /// block waits for is asked for over the network because it is late.
    fn handle_store_wait(&mut self, ticket: u64, time: Now, now: Now);
    /// Takes how the store stands; the sending half is told what concerns it.
    fn handle_store_state(&mut self, state: StoreState, now: Now);
    /// Returns the bytes of chunks that were asked for over the network and have not come.
    fn chunks_pending(&self) -> u64;
    /// Returns how long it takes until the line has brought what was asked for; none if nothing that came waits for chunks.
    fn chunks_due(&self, now: Now) -> Option<Now>;
    /// Returns whether a block of a flow that begins before an offset has come and waits for something, or was asked for
    /// again.
    fn holds(&self, flow: FlowId, before: u64) -> bool;
    /// Returns what is known of what the peer has to send, by which [`PathEstimate`](crate::wanax::path::PathEstimate)
    /// judges what arrives.
    fn demand(&self, now: Now) -> Demand;
    /// Takes what is known of the path from the sending half: round trip, and what it carries.
    fn handle_path(&mut self, round_trip: Now, rate: PathRate);
    /// Says again everything that was said before: the control lane is a new one.
    fn restate(&mut self, now: Now);
    /// Does what is due.
    fn handle_timeout(&mut self, now: Now);
    /// When [`Self::handle_timeout`] is to be called; changes with every other call.
    fn poll_timeout(&self) -> Option<Now>;
    /// Appends feedback frames for a lane; `flush` sends acknowledgements that would otherwise wait for company.
    /// Returns whether there was something.
    fn poll_feedback(&mut self, lane: LaneId, flush: bool, out: &mut Vec<u8>) -> bool;
    /// Whether [`Self::poll_feedback`] has something that should not wait.
    fn has_urgent_frame(&self) -> bool;
    /// Takes the next verified delivery.
    fn poll_payload(&mut self) -> Option<Delivery>;
    /// Takes the next request for the chunk store; to be drained before [`Self::poll_feedback`], so that what is
    /// acknowledged was put.
    fn poll_chunk_store(&mut self) -> Option<StoreRequest>;
    /// Takes the next piece of log to be written to disk; there is none unless the half was set up to persist.
    fn poll_log_write(&mut self) -> Option<LogWrite>;
    /// Takes the next event.
    fn poll_event(&mut self) -> Option<ReceiveEvent>;
    /// Returns the first piece of what is remembered from an offset on, of at most one block, for a disk that has nothing
    /// of it; none if there is no more, or it is not in memory.
    fn log_piece(&self, from: u64) -> Option<LogWrite>;
    /// What this half still has of the log, for the hello.
    fn claim(&self) -> Option<LogClaim>;
    /// Returns what was done since the start because the peer sent something, in steps of some tens of nanoseconds: what
    /// was looked at, copied and rebuilt.
    fn work(&self) -> u64;
    /// Counters and sizes.
    fn stats(&self) -> ReceiveStats;
}
