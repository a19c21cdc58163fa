//! Resets of the peer: earlier bytes come first, though lanes and repairs may bring them later.

use oncewire_codec::Now;
use oncewire_codec::wire::{FlowId, Reset, ResetReason};

use super::Link;
use crate::event::Event;
use crate::flow::WaitingReset;

/// A reset's wait for missing bytes, beside so many round trips, while a lane is up: a peer that never sends its
/// announced bytes costs no more. It waits as long again while something of its flow is here without its sources or
/// chunks.
const WAIT: Now = Now::from_secs(1);
const WAIT_ROUND_TRIPS: u32 = 8;

impl Link {
    pub(super) fn handle_reset(&mut self, id: FlowId, reset: Reset, now: Now) {
        let deadline = self.reset_deadline(now);
        if let Some(flow) = self.flows.get_mut(&id).filter(|flow| flow.over.is_none()) {
            let Reset { reason, behind } = reset;
            let behind = behind.unwrap_or(0);
            if flow.inbound.next() < behind {
                // One for each flow, and the first: a peer may say more.
                if flow.reset.is_none() {
                    flow.reset = Some(WaitingReset { reason, behind, deadline });
                    self.resets.insert((deadline, id));
                }
            } else {
                self.end_far(id, reason);
            }
        } else {
            // An application with the far end of stream waits for nothing more.
            self.forget_if_done(id);
        }
    }

    /// Ends a flow with a reset in wait for nothing more.
    pub(super) fn end_if_complete(&mut self, id: FlowId) {
        let Some(flow) = self.flows.get(&id) else { return };
        if let Some(reset) = flow.reset.filter(|reset| flow.inbound.next() >= reset.behind) {
            self.resets.remove(&(reset.deadline, id));
            self.end_far(id, reset.reason);
        }
    }

    /// Ends the flows whose resets have waited for long enough. Bytes received before one are not cut off, in spite
    /// of a slow read, a slow neighbour or a slow repair: a peer that never repairs them delays its own flow.
    pub(super) fn end_overdue(&mut self, now: Now) {
        let later = self.reset_deadline(now);
        while let Some(&(deadline, id)) = self.resets.first().filter(|(deadline, _)| *deadline <= now) {
            self.resets.pop_first();
            let reset = self.flows.get_mut(&id).and_then(|flow| flow.reset.as_mut());
            let Some(reset) = reset.filter(|reset| reset.deadline == deadline) else { continue };
            if self.receiver.holds(id, reset.behind) {
                reset.deadline = later;
                self.resets.insert((later, id));
            } else {
                let reason = reset.reason;
                self.end_far(id, reason);
            }
        }
    }

    /// Gives waiting resets as much time as if they came now: no lane was there to bring their bytes.
    pub(super) fn wait_anew_with_resets(&mut self, now: Now) {
        let deadline = self.reset_deadline(now);
        for (before, id) in std::mem::take(&mut self.resets) {
            let reset = self.flows.get_mut(&id).and_then(|flow| flow.reset.as_mut());
            if let Some(reset) = reset.filter(|reset| reset.deadline == before) {
                reset.deadline = deadline;
                self.resets.insert((deadline, id));
            }
        }
    }

    fn reset_deadline(&self, now: Now) -> Now {
        now + WAIT + self.round_trip.smoothed().unwrap_or_default() * WAIT_ROUND_TRIPS
    }

    /// Ends a flow for our application; earlier arrivals are still read, as from a socket.
    fn end_far(&mut self, id: FlowId, reason: ResetReason) {
        if let Some(flow) = self.flows.get_mut(&id).filter(|flow| flow.over.is_none()) {
            flow.reset = None;
            flow.end(reason, false);
            self.events.push_back(Event::FlowReadable(id));
            self.events.push_back(Event::FlowWritable(id));
        }
        self.forget_if_done(id);
    }
}
