//! Owners of the streaming entropy contexts.
//!
//! The receiving half grants a number of contexts; the sending half hands them to flows. Context *i* of the
//! sender is context *i* of the receiver, so a context goes to another flow only when every block that used it
//! is acknowledged: until then a block on a slower lane might still need it.

use std::collections::BTreeMap;

use super::{Entropy, Mode};
use crate::transfer::RetransmitBuffer;
use crate::wire::{FlowId, LaneId};

/// The contexts of one sending half.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    slots: Vec<Slot>,
    by_flow: BTreeMap<FlowId, usize>,
    clock: u64,
}

#[derive(Clone, Debug, Default)]
struct Slot {
    flow: Option<FlowId>,
    /// Whether the next block must start the context afresh.
    restart: bool,
    last_seq: Option<u64>,
    /// The lane the context was started on; on another one it would get out of step.
    lane: Option<LaneId>,
    /// The compression it was started with.
    entropy: Option<Entropy>,
    last_used: u64,
}

impl Slots {
    pub(crate) fn new(count: usize) -> Self {
        Self { slots: vec![Slot { restart: true, ..Slot::default() }; count], ..Self::default() }
    }

    /// The mode for the flow's next block: its own context, a free or idle one, or none.
    pub(crate) fn mode(
        &mut self,
        flow: FlowId,
        lane: LaneId,
        entropy: Entropy,
        sent: &RetransmitBuffer,
    ) -> Mode {
        let Some(index) = self.by_flow.get(&flow).copied().or_else(|| self.acquire(flow, sent)) else {
            return Mode::Alone;
        };
        self.clock += 1;
        let slot = &mut self.slots[index];
        slot.last_used = self.clock;
        slot.restart |= slot.entropy.replace(entropy) != Some(entropy);
        // An unused start, of an incompressible block, ends the stream of the other lane all the same; `used` notes a
        // stream to go on with.
        slot.restart |= slot.lane != Some(lane);
        if slot.restart { Mode::First(index) } else { Mode::Next(index) }
    }

    fn acquire(&mut self, flow: FlowId, sent: &RetransmitBuffer) -> Option<usize> {
        let free = |slot: &Slot| slot.last_seq.is_none_or(|seq| !sent.is_unacked(seq));
        let (index, _) = self
            .slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| free(slot))
            .min_by_key(|(_, slot)| (slot.flow.is_some(), slot.last_used))?;
        let slot = &mut self.slots[index];
        if let Some(previous) = slot.flow.replace(flow) {
            self.by_flow.remove(&previous);
        }
        slot.restart = true;
        self.by_flow.insert(flow, index);
        Some(index)
    }

    /// Notes that a block went through the context.
    pub(crate) fn used(&mut self, index: usize, lane: LaneId, seq: u64) {
        if let Some(slot) = self.slots.get_mut(index) {
            slot.restart = false;
            slot.last_seq = Some(seq);
            slot.lane = Some(lane);
        }
    }

    /// Makes the next block start the context afresh: the receiver may be out of step.
    pub(crate) fn restart(&mut self, index: usize) {
        if let Some(slot) = self.slots.get_mut(index) {
            slot.restart = true;
        }
    }

    /// Gives the flow's context back.
    pub(crate) fn release(&mut self, flow: FlowId) {
        if let Some(index) = self.by_flow.remove(&flow) {
            self.slots[index].flow = None;
        }
    }
}
