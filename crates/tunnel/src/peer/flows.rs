//! A peer's flows: opening, waiting, end.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Waker;
use std::time::Duration;

use oncewire_codec::wire::{Destination, FlowId, ResetReason};
use oncewire_link::{FlowStats, FlowTally};
use oncewire_report::{FlowFigures, OpenFlows, Outcome, Reason};

use super::{Core, Peer};
use crate::accounts;

impl Peer {
    /// Counts a flow to a destination denied by the peer, and logs it at a limited rate.
    pub(crate) fn note_denied(&self, destination: &Destination) {
        let reason = Reason::NotAllowed;
        self.accounts.not_coded.count(Some(self.name()), destination, Outcome::Refused, reason);
        self.tell_denied(destination, DENIED_THERE);
    }

    /// Logs a denied destination at a limited rate.
    pub(crate) fn tell_denied(&self, destination: &Destination, why: &str) {
        self.lines.denied(destination, why);
    }

    /// Forgets a flow's waiters.
    pub(crate) fn forget(self: &Arc<Self>, flow: FlowId, serial: u64) {
        let entry = self.with(|core, _| match core.flows.get(&flow) {
            Some(entry) if entry.serial == serial => core.flows.remove(&flow),
            // A restarted peer numbers its flows anew, and was quicker than this one's end.
            _ => None,
        });
        drop(entry);
    }

    /// Refuses new flows from now on: the whole gateway stops, or this link begins anew or ends.
    pub fn drain_flows(self: &Arc<Self>, gateway_stops: bool) {
        self.ending.draining.store(true, Relaxed);
        self.ending.stopping.store(gateway_stops, Relaxed);
        self.with(|core, _| core.link.drain());
    }

    /// Marks the gateway as about to exit: flows dropped later were not ended by their applications. Sends
    /// nothing to the peer.
    pub fn note_gone(&self) {
        self.ending.draining.store(true, Relaxed);
    }

    /// Whether it takes no new flows.
    pub fn is_draining(&self) -> bool {
        self.ending.draining.load(Relaxed)
    }

    /// Whether the whole gateway stops.
    pub fn is_stopping(&self) -> bool {
        self.ending.stopping.load(Relaxed)
    }

    /// Resets all open flows, at both ends.
    pub fn reset_flows(self: &Arc<Self>) {
        let wakers = self.with(|core, now| {
            let mut wakers = Vec::new();
            for (id, entry) in &mut core.flows {
                entry.ended = true;
                core.link.abort_flow(*id, ResetReason::Shutdown, now);
                wakers.extend(entry.reader.take().into_iter().chain(entry.writer.take()));
            }
            wakers
        });
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Lists the open flows, each with its age.
    pub fn flows(&self) -> Vec<(FlowStats, Duration)> {
        let flows = self.core.lock().link.flows();
        let now = self.clock.now();
        let aged = |flow: FlowStats| {
            let age = now.saturating_sub(flow.opened_at);
            (flow, age)
        };
        flows.into_iter().map(aged).collect()
    }

    /// Lists the traffic of open flows.
    pub fn list_open(&self, open: &mut OpenFlows<'_>) {
        let tallies: Vec<_> = {
            let core = self.core.lock();
            open.begin(self.name());
            core.link.tallies().collect()
        };
        open.extend(tallies.iter().map(|tally| self.figures_of(tally)));
    }

    /// Counts the traffic of ended flows: under the lock of their end.
    pub(super) fn count_ended(&self, tallies: impl IntoIterator<Item = FlowTally>) {
        tallies.into_iter().for_each(|tally| self.accounts.destinations.add(self.figures_of(&tally)));
    }

    fn figures_of(&self, tally: &FlowTally) -> FlowFigures {
        FlowFigures {
            peer: self.name().to_owned(),
            destination: tally.destination.to_string(),
            delivered: [tally.sent, tally.received],
            wire: [tally.wire_sent, tally.wire_received],
            reason: accounts::reason(tally.outcome),
        }
    }

    /// Asks the link for a flow's outcome while its bytes may still show it.
    pub(crate) fn look(&self, core: &mut Core, id: FlowId) {
        if core.flows.get(&id).is_some_and(|entry| entry.tally.is_curious()) {
            self.note_outcome(core, id);
        }
    }

    /// Asks the link for a flow's outcome after a possible change by policy at either end or by its content.
    pub(crate) fn note_outcome(&self, core: &mut Core, id: FlowId) {
        let Some(entry) = core.flows.get_mut(&id) else { return };
        if let Some(flow) = core.link.flow(id) {
            entry.tally.learn(&self.accounts, self.name(), &flow);
        }
    }
}

const DENIED_THERE: &str = "the peer does not let this gateway reach the destination; see `allow`, `deny` and `allow_sources` in its configuration";
