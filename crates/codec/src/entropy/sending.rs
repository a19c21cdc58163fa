//! The entropy stage of a sending half: a context for each flow, and one for bodies by themselves.

use super::slots::Slots;
use super::{Compressor, Entropy, Kind, Mode};
use crate::transfer::RetransmitBuffer;
use crate::wire::{FlowId, LaneId};

/// The contexts of a sending half, and their owners.
pub(crate) struct EntropyEncoder {
    compressor: Compressor,
    slots: Slots,
    /// The entropy stage of bodies by themselves.
    alone: Entropy,
    /// Contexts at most.
    contexts: usize,
}

/// A block's flow and lane.
#[derive(Clone, Copy)]
pub(crate) struct Route {
    pub(crate) flow: FlowId,
    pub(crate) lane: LaneId,
}

impl EntropyEncoder {
    pub(crate) fn new(alone: Entropy, contexts: usize) -> Self {
        Self { compressor: Compressor::new(alone, contexts), slots: Slots::new(contexts), alone, contexts }
    }

    /// Starts over with a new instance of the peer and its number of contexts.
    pub(crate) fn meet(&mut self, contexts: usize) {
        let contexts = contexts.min(self.contexts);
        self.slots = Slots::new(contexts);
        self.compressor = Compressor::new(self.alone, contexts);
    }

    /// Compresses a block's body into `out`; returns the way of it, if the body is shorter for it.
    pub(crate) fn compress(
        &mut self,
        route: Route,
        entropy: Entropy,
        body: &[u8],
        sent: &RetransmitBuffer,
        out: &mut Vec<u8>,
    ) -> Option<(Kind, Mode)> {
        let kind = entropy.kind()?;
        let mode = match kind {
            Kind::Zstd => self.slots.mode(route.flow, route.lane, entropy, sent),
            Kind::Lz4 => Mode::Alone,
        };
        out.clear();
        self.compressor.set_entropy(entropy);
        if self.compressor.compress(mode, body, out) {
            return Some((kind, mode));
        }
        if let Mode::Next(slot) = mode
            && !self.compressor.has_begun(slot)
        {
            // Compression failed in the middle of the stream; it goes on with a block beginning it afresh.
            self.slots.restart(slot);
        }
        None
    }

    /// Compresses a body by itself into `out`; returns its kind, if the body is shorter for it.
    pub(crate) fn compress_alone(&mut self, body: &[u8], out: &mut Vec<u8>) -> Option<Kind> {
        let kind = self.alone.kind().filter(|_| !body.is_empty())?;
        out.clear();
        self.compressor.set_entropy(self.alone);
        self.compressor.compress(Mode::Alone, body, out).then_some(kind)
    }

    /// Notes a block through a context.
    pub(crate) fn used(&mut self, slot: usize, lane: LaneId, seq: u64) {
        self.slots.used(slot, lane, seq);
    }

    /// Has a context begin afresh, if there is one: the receiver may be out of step.
    pub(crate) fn restart(&mut self, slot: Option<usize>) {
        slot.into_iter().for_each(|slot| self.slots.restart(slot));
    }

    /// Gives back the context of a flow.
    pub(crate) fn release(&mut self, flow: FlowId) {
        self.slots.release(flow);
    }

    pub(crate) fn memory(&self) -> u64 {
        self.compressor.memory() as u64
    }

    /// Has a stream end as if compression had failed in it.
    #[cfg(test)]
    pub(crate) fn fail_stream(&mut self, slot: usize) {
        self.compressor.release(slot);
    }
}
