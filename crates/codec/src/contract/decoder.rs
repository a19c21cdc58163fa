//! The receiving half of a codec, and its ports.

use super::{
    Arrival, Delivery, LogWrite, PeerFault, PeerSender, ReceiveEvent, ReceiveStats, SavedLog, StoreReply,
    StoreRequest, StoreState,
};
use crate::Now;
use crate::wanax::path::{Demand, PathRate};
use crate::wire::{FlowId, LaneId, LogClaim};

/// The receiving half of a codec.
///
/// What only some codecs have is behind ports, as with [`Encoder`](super::Encoder).
pub trait Decoder {
    /// Takes a frame of the encoder, of a type [owned](crate::wire::owner) by the decoder, from a live lane; returns
    /// its effect on a flow, if any.
    ///
    /// # Errors
    /// A malformed frame, and any other breach of the protocol. A block without its sources is no error, it is
    /// requested again.
    fn handle_frame(
        &mut self,
        kind: u8,
        body: &[u8],
        lane: LaneId,
        now: Now,
    ) -> Result<Option<Arrival>, PeerFault>;
    /// Forgets a lane, which does not come back.
    fn handle_lane_lost(&mut self, _lane: LaneId) {}
    /// Takes the peer's parameters for this codec, as [`Encoder::handle_parameters`](super::Encoder::handle_parameters).
    ///
    /// # Errors
    /// Parameters that this codec cannot work with: the lane is refused.
    fn handle_parameters(&mut self, _parameters: &[u8]) -> Result<(), PeerFault> {
        Ok(())
    }
    /// Starts over with a new instance of the peer; what is remembered stays.
    fn handle_peer(&mut self, peer: PeerSender);
    /// Does what is due.
    fn handle_timeout(&mut self, _now: Now) {}
    /// When [`Self::handle_timeout`] is to be called; changes with every other call.
    fn poll_timeout(&self) -> Option<Now> {
        None
    }
    /// Appends feedback frames for a lane; `flush` sends acknowledgements that would otherwise wait for company.
    /// Returns whether there was something.
    fn poll_feedback(&mut self, lane: LaneId, flush: bool, out: &mut Vec<u8>) -> bool;
    /// Whether [`Self::poll_feedback`] has something that should not wait.
    fn has_urgent_frame(&self) -> bool;
    /// Takes the next verified delivery.
    fn poll_payload(&mut self) -> Option<Delivery>;
    /// Returns whether a block of a flow beginning before an offset has come and waits for something, or was asked for
    /// again.
    fn holds(&self, _flow: FlowId, _before: u64) -> bool {
        false
    }
    /// Takes the next event.
    fn poll_event(&mut self) -> Option<ReceiveEvent> {
        None
    }
    /// Returns the work since the start caused by the peer's frames, in steps of some tens of nanoseconds: looks,
    /// copies, rebuilt bytes.
    fn work(&self) -> u64 {
        0
    }
    /// Counters and sizes.
    fn stats(&self) -> ReceiveStats {
        ReceiveStats::default()
    }

    /// Says again everything that was said before: the control lane is a new one.
    fn resend_control_state(&mut self, _now: Now) {}
    /// Sets how long to wait for missing ranges and repairs.
    fn handle_patience(&mut self, _patience: Now) {}
    /// Returns the log outliving the process, if the codec has one.
    fn log(&self) -> Option<&dyn DecoderLog> {
        None
    }
    /// As [`Self::log`].
    fn log_mut(&mut self) -> Option<&mut dyn DecoderLog> {
        None
    }
    /// Returns the side of the chunk store, if the codec has one.
    fn store(&self) -> Option<&dyn StorePort> {
        None
    }
    /// As [`Self::store`].
    fn store_mut(&mut self) -> Option<&mut dyn StorePort> {
        None
    }
}

/// A log of a decoder outliving the process.
pub trait DecoderLog {
    /// Sets how many of the last bytes this end has memory for, at most the capacity; fewer are held if the sending
    /// half has less. The sending half is told, and goes by it from then on.
    fn set_limit(&mut self, limit: u64);
    /// Forgets everything remembered; the sending half is told.
    fn clear_log(&mut self);
    /// Gives the memory of the log back while nobody uses it: what is on disk can come back with [`Self::restore_log`].
    /// Until then blocks referring to it wait. Returns false, and does nothing, while blocks wait.
    fn release_log(&mut self) -> bool;
    /// Takes back what was released, as far as it was found again; of the rest the sending half is told.
    fn restore_log(&mut self, log: Option<SavedLog>, now: Now);
    /// Takes the next piece of log to be written to disk; there is none unless the half was set up to persist.
    fn poll_log_write(&mut self) -> Option<LogWrite>;
    /// Returns the first remembered piece from an offset on, of at most one block, for an empty disk; none if there is
    /// no more, or it is not in memory.
    fn log_piece(&self, from: u64) -> Option<LogWrite>;
    /// What this half still has of the log, for the hello.
    fn claim(&self) -> Option<LogClaim>;
}

/// A decoder's side of a chunk store, which somebody else runs.
pub trait StorePort {
    /// Takes what became of a read; an answer nobody waits for any more is dropped.
    fn handle_store(&mut self, reply: StoreReply, now: Now);
    /// Takes note that a read may take so long from now on and is answered in any case: until then nothing its block
    /// waits for is asked for over the network because it is late.
    fn handle_store_wait(&mut self, ticket: u64, time: Now, now: Now);
    /// Takes how the store stands; the sending half is told what concerns it.
    fn handle_store_state(&mut self, state: StoreState, now: Now);
    /// Takes the next request for the chunk store; to be drained before [`Decoder::poll_feedback`], so what is
    /// acknowledged was put.
    fn poll_chunk_store(&mut self) -> Option<StoreRequest>;
    /// Returns the bytes of chunks that were asked for over the network and have not come.
    fn chunks_pending(&self) -> u64;
    /// Returns the time until the line has brought all requested chunks; none if no arrived block waits for chunks.
    fn chunks_due(&self, now: Now) -> Option<Now>;
    /// Returns the known demand on the peer, by which [`PathEstimate`](crate::wanax::path::PathEstimate) judges
    /// arrivals.
    fn demand(&self, now: Now) -> Demand;
    /// Takes the sending half's knowledge of the path: round trip, and rate.
    fn handle_path(&mut self, round_trip: Now, rate: PathRate);
}
