//! A sending half alone, with blocks acknowledged at once.

use bytes::Bytes;
use oncewire_codec::contract::{Encoder as _, Feedback, Parts, Payload, SendStats};
use oncewire_codec::endre::matcher::MatchParams;
use oncewire_codec::entropy::Entropy;
use oncewire_codec::stream::{Sender, SenderConfig};
use oncewire_codec::wire::{Ack, FlowId, LaneId};
use oncewire_codec::{Now, Plan};

/// Encodes blocks of one flow after the other, for the sake of their frames: nobody decodes them here, and nothing is
/// compared. [`crate::pair::Pair`] does.
pub struct Encoder {
    sender: Sender,
    flow: FlowId,
    offset: u64,
    blocks: u64,
}

impl Encoder {
    /// Starts with an empty log of `capacity` bytes, a quarter of it for bytes in flight.
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
        let payload = Payload {
            flow: self.flow,
            offset: self.offset,
            plain,
            fin: false,
            plan: Some(*plan),
            parts: Parts::default(),
        };
        self.sender.handle_payload(payload, LANE, Now::ZERO, frames);
        self.offset += len;
        self.blocks += 1;
        let ack = Feedback::Ack(Ack { next: self.blocks, ranges: Vec::new() });
        // Sent blocks may be acknowledged, so this is no fault.
        let _ = self.sender.handle_feedback(ack, Now::ZERO);
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

/// Any will do without an attacker, and a fixed one makes runs repeatable.
pub const DIGEST_SEED: u64 = 0x006f_6e63_6577_6972;

#[cfg(test)]
mod tests {
    use oncewire_codec::wire::MAX_BLOCK;
    use oncewire_codec::{Layers, MarkerKind, Matching};

    use super::*;
    use crate::corpus::Corpus;

    #[test]
    fn content_repeated_at_uneven_times_stays_in_reach() {
        for matching in [Matching::Max, Matching::Chunk] {
            let mut noise = Corpus::new(7);
            // Of 4 MiB, 3 may be referred to while one may be in flight; two intervals together are more.
            let mut encoder = Encoder::new(4 << 20, MatchParams::default());
            let plan = Plan { layers: Layers::Log, matching, markers: MarkerKind::Maxp, ..Plan::default() };
            let mut send = |data: Vec<u8>| {
                let before = encoder.stats().copied;
                let blocks = data.chunks(MAX_BLOCK).map(Bytes::copy_from_slice);
                blocks.for_each(|block| encoder.encode(block, &plan, &mut Vec::new()));
                encoder.stats().copied - before
            };
            let page = noise.random(256 << 10);
            send(page.clone());
            for between in [1300, 1800, 1200, 1900, 1400, 1700] {
                send(noise.random(between << 10));
                let copied = send(page.clone());
                let share = copied as f64 / page.len() as f64;
                assert!(share > 0.98, "{matching:?}: {share:.3} is found after {between} KiB of other bytes");
            }
        }
    }
}
