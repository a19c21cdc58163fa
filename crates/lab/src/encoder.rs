//! A sending half alone, whose blocks are acknowledged as soon as they are sent.

use bytes::Bytes;
use oncewire_codec::contract::{Feedback, Payload, SendStats, SendingHalf};
use oncewire_codec::endre::matcher::MatchParams;
use oncewire_codec::endre::{Sender, SenderConfig};
use oncewire_codec::entropy::Entropy;
use oncewire_codec::wire::{Ack, FlowId, LaneId};
use oncewire_codec::{Now, Plan};

/// Encodes blocks of one flow after the other, for whom frames are enough: nobody decodes them here, and nothing is
/// compared. [`crate::pair::Pair`] does.
pub struct Encoder {
    sender: Sender,
    flow: FlowId,
    offset: u64,
    blocks: u64,
}

impl Encoder {
    /// Starts with an empty log of `capacity` bytes, a quarter of which may be in flight.
    pub fn new(capacity: u64, params: MatchParams) -> Self {
        Self::start(capacity, params, true)
    }

    /// Starts as [`Self::new`] does, without keeping the log's bytes: for plans of Chunk-Match alone.
    pub fn without_bytes(capacity: u64, params: MatchParams) -> Self {
        Self::start(capacity, params, false)
    }

    fn start(capacity: u64, params: MatchParams, keeps_bytes: bool) -> Self {
        let sender = Sender::new(SenderConfig {
            capacity,
            max_in_flight: None,
            entropy: Entropy::None,
            contexts: 1,
            params,
            keeps_bytes,
            digest_seed: DIGEST_SEED,
            persist: false,
            names: None,
        });
        Self { sender, flow: FlowId(1), offset: 0, blocks: 0 }
    }

    /// Appends the frame of a block of at most [`oncewire_codec::wire::MAX_BLOCK`] bytes.
    pub fn encode(&mut self, plain: Bytes, plan: &Plan, frames: &mut Vec<u8>) {
        let len = plain.len() as u64;
        let payload = Payload { flow: self.flow, offset: self.offset, plain, fin: false, plan: Some(*plan) };
        self.sender.handle_payload(payload, LANE, Now::ZERO, frames);
        self.offset += len;
        self.blocks += 1;
        let ack = Feedback::Ack(Ack { next: self.blocks, ranges: Vec::new() });
        // What was sent may be acknowledged, so this is no fault.
        let _ = self.sender.handle_frame(ack, Now::ZERO);
        while self.sender.poll_event().is_some() {}
    }

    /// Ends the flow; the next block begins another.
    pub fn next_flow(&mut self) {
        self.sender.finish_flow(self.flow);
        (self.flow, self.offset) = (FlowId(self.flow.0.wrapping_add(2)), 0);
    }

    /// Returns the counters and sizes of the sending half.
    pub fn stats(&self) -> SendStats {
        self.sender.stats()
    }
}

const LANE: LaneId = LaneId(0);

/// Any will do where nobody attacks, and a fixed one makes runs repeat.
pub const DIGEST_SEED: u64 = 0x006f_6e63_6577_6972;
