//! The sending half of a codec, and its ports.

use super::{
    Cut, Heard, LogWrite, Payload, PeerFault, PeerState, PendingChunks, PreparedLog, SendEvent, SendStats,
    Tail,
};
use crate::wanax::hints::{PackedTag, SavePosition, SavedPiece};
use crate::wire::{FlowId, LaneId, Message, Probe};
use crate::{Now, Plan};

/// The sending half of a codec.
///
/// What only some codecs have is behind ports: a log outliving the process, names of stored chunks. A codec without
/// them leaves the provided methods as they are.
pub trait Encoder {
    /// Encodes a block and appends its frame; the caller has checked that there is [room](EncoderLoad::has_room), and the
    /// flow's credit.
    fn handle_payload(&mut self, payload: Payload, lane: LaneId, now: Now, out: &mut Vec<u8>);
    /// Appends the frame of a sequenced message.
    fn handle_message(&mut self, flow: FlowId, message: Message, lane: LaneId, out: &mut Vec<u8>);
    /// Takes a frame of the decoder, of a type [owned](crate::wire::owner) by the encoder, from a live lane.
    ///
    /// # Errors
    /// A malformed frame; feedback on what was never sent.
    fn handle_frame(&mut self, kind: u8, body: &[u8], lane: LaneId, now: Now) -> Result<Heard, PeerFault>;
    /// Marks what was last sent on the lane to be sent again; the lane does not come back.
    fn handle_lane_lost(&mut self, lane: LaneId);
    /// Takes the peer's parameters for this codec, from its hello, ahead of [`Self::handle_peer`]. By default they are
    /// passed over.
    ///
    /// # Errors
    /// Parameters that this codec cannot work with: the lane is refused.
    fn handle_parameters(&mut self, _parameters: &[u8]) -> Result<(), PeerFault> {
        Ok(())
    }
    /// Starts over with a new instance of the peer, warm if its claim fits.
    fn handle_peer(&mut self, peer: PeerState);
    /// Gives back what the flow holds (contexts); its unacknowledged blocks stay until they are acknowledged.
    fn finish_flow(&mut self, _flow: FlowId) {}
    /// Appends what the control lane is to say; returns whether there was anything.
    fn poll_control(&mut self, _out: &mut Vec<u8>) -> bool {
        false
    }
    /// Appends the next thing of a kind that is to be sent again or was asked for; returns whether there was any.
    fn poll_repair(&mut self, repair: Repair, out: &mut Vec<u8>) -> bool;
    /// Returns how things stand.
    fn load(&self) -> EncoderLoad;
    /// Returns what of a flow is not acknowledged.
    fn pending(&self, flow: FlowId) -> Pending;
    /// Takes the next event.
    fn poll_event(&mut self) -> Option<SendEvent>;
    /// Counters and sizes.
    fn stats(&self) -> SendStats {
        SendStats::default()
    }

    /// Says again everything that was said before: the control lane is a new one.
    fn resend_control_state(&mut self) {}
    /// Whether blocks with this plan are to be cut by [`Self::cut`].
    fn is_naming(&self, _plan: &Plan) -> bool {
        false
    }
    /// Cuts the next block of a flow with this plan from the front of `bytes`, so repeats are cut alike. A block has at
    /// most `most` bytes, but up to [`crate::wire::MAX_BLOCK`] if only a name or a copy of it is to cross.
    fn cut(&mut self, _flow: FlowId, _plan: &Plan, bytes: &[u8], _tail: Tail, most: usize, _now: Now) -> Cut {
        Cut::at(bytes.len().min(most))
    }
    /// Returns a block's pending chunks, if there are any.
    fn pending_chunks(&self, _seq: u64) -> Option<PendingChunks> {
        None
    }
    /// Returns the log outliving the process, if the codec has one.
    fn log(&self) -> Option<&dyn EncoderLog> {
        None
    }
    /// As [`Self::log`].
    fn log_mut(&mut self) -> Option<&mut dyn EncoderLog> {
        None
    }
    /// Returns what is known of the peer's chunk store, if the codec names chunks.
    fn names(&self) -> Option<&dyn EncoderNames> {
        None
    }
    /// As [`Self::names`].
    fn names_mut(&mut self) -> Option<&mut dyn EncoderNames> {
        None
    }
}

/// A kind of what is sent again, or sent because the peer asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// The next item a flow lost with its lane, now on this lane.
    Lost(FlowId, LaneId),
    /// The next block that is to be sent again.
    Block,
    /// The pending chunks of the next block: for any lane, or for this one.
    Chunks(Option<LaneId>),
    /// Pending chunks of one block.
    ChunksOf {
        /// The block.
        seq: u64,
        /// As in [`Repair::Chunks`].
        lane: Option<LaneId>,
        /// At most so many bytes of them, or one if that is longer.
        most: usize,
    },
}

/// How things stand with an encoder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EncoderLoad {
    /// The memory of unacknowledged items: plain bytes of blocks, and names beside them.
    pub kept_bytes: u64,
    /// Whether another item may be sent before older ones are acknowledged.
    pub has_room: bool,
    /// Whether repairs wait to be sent.
    pub has_repairs: bool,
    /// Whether chunks are pending for any lane.
    pub has_pending_chunks: bool,
    /// What was done since the start because the peer said something, in steps of some tens of nanoseconds.
    pub work: u64,
}

/// What of a flow is not acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    /// Items.
    pub items: u64,
    /// Whether some of them are to be sent again because their lane was lost.
    pub lost: bool,
}

/// A log of an encoder outliving the process.
pub trait EncoderLog {
    /// Sets how many of the last bytes this end has memory for, at most the capacity, and tells the receiving half
    /// with the next [`Encoder::poll_control`].
    fn set_limit(&mut self, limit: u64, now: Now);
    /// Forgets everything remembered: the log starts over, and no chunk is named until it was sent again.
    fn clear_log(&mut self);
    /// Gives the memory of the log back while nobody uses it: what is on disk can come back with
    /// [`Self::restore_log`]. Until then nothing older is referred to. Returns false, and does nothing, while anything
    /// is unacknowledged.
    fn release_log(&mut self) -> bool;
    /// Takes back what was released, as far as it was found again.
    fn restore_log(&mut self, log: Option<PreparedLog>);
    /// Takes the next piece of log to be written to disk; there is none unless the half was set up to persist.
    fn poll_log_write(&mut self) -> Option<LogWrite>;
    /// Returns the first remembered piece from an offset on, of at most one block, for an empty disk; none if there is
    /// no more, or it is not in memory.
    fn log_piece(&self, from: u64) -> Option<LogWrite>;
}

/// What an encoder knows of the peer's chunk store.
pub trait EncoderNames {
    /// Returns a piece of what is known of the peer's store; all of them, put together by
    /// [`save_by`](crate::wanax::hints::save_by), are for the next process's
    /// [`NamesConfig::saved`](crate::wanax::NamesConfig::saved). `None` if nothing is known.
    fn save_hints(&self, at: SavePosition) -> Option<SavedPiece>;
    /// Takes chunks the peer can read, though this half did not send them.
    fn handle_stored(&mut self, chunks: &[PackedTag], now: Now);
    /// Says whether others than the peer can read what is put into its store, and [`SendEvent::Stored`] is wanted.
    fn tell_stored(&mut self, wanted: bool);
    /// Returns the question about chunks believed to be in the peer's store, due with [`Encoder::poll_control`] once
    /// the peer is met, to be put into the hello: a peer with an early question answers right behind its own hello.
    fn probe(&self) -> Option<Probe>;
}
