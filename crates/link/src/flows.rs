//! All flows of a link: numbers, windows, grants, resets.

use std::collections::{BTreeMap, BTreeSet};

use oncewire_codec::Now;
use oncewire_codec::wire::{FlowId, LaneId};

use crate::budget::divided;
use crate::config::LinkConfig;
use crate::event::OpenRequest;
use crate::flow::{Coding, Flow, FlowFacts, Inbound, OpenState, Outbound, Placement};
use crate::resets::Resets;
use crate::windows::{Moment, Windows};

/// The open flows by their numbers.
#[derive(Debug)]
pub(crate) struct Flows {
    flows: BTreeMap<FlowId, Flow>,
    /// Whether our numbers are even: this end has the smaller key.
    first: bool,
    /// Our next number.
    next: u32,
    /// Flows since the start.
    total: u64,
    pub(crate) windows: Windows,
    /// Flows with a grant to send.
    grants: BTreeSet<FlowId>,
    pub(crate) resets: Resets,
    /// Behind the highest sequence number that came.
    next_seen: u64,
}

/// The opening of a new flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    pub(crate) id: FlowId,
    pub(crate) name: u128,
    pub(crate) open: OpenState,
    /// Halvings of the first credits.
    pub(crate) shift: u8,
    /// The first credit of the peer's hello.
    pub(crate) credit: u64,
}

/// A flow is coming while its last bytes are no older than this and two round trips.
const LATELY: Now = Now::from_millis(100);

impl Flows {
    /// Starts without a flow; `beside` is the memory for unacknowledged bytes beside the budget.
    pub(crate) fn new(config: &LinkConfig, beside: u64) -> Self {
        Self {
            flows: BTreeMap::new(),
            first: config.first,
            // A random start: a peer that restarts does not meet its old flows, of which the other side may still
            // be telling applications.
            next: numbered(config.instance as u32, config.first),
            total: 0,
            windows: Windows::new(config, beside),
            grants: BTreeSet::new(),
            resets: Resets::default(),
            next_seen: 0,
        }
    }

    /// Says anew whether this end has the smaller key; only without a flow.
    pub(crate) fn order_keys(&mut self, first: bool) {
        self.first = first;
        self.next = numbered(self.next, first);
    }

    /// Whether this end has the smaller key.
    pub(crate) fn is_first(&self) -> bool {
        self.first
    }

    /// Whether this side opened the flow.
    pub(crate) fn is_ours(&self, id: FlowId) -> bool {
        (id.0 & 1 == 0) == self.first
    }

    /// Takes a free number of ours.
    pub(crate) fn take_number(&mut self) -> FlowId {
        while self.flows.contains_key(&FlowId(self.next)) {
            self.next = self.next.wrapping_add(2);
        }
        let id = FlowId(self.next);
        self.next = self.next.wrapping_add(2);
        id
    }

    /// Makes a flow; it is counted, but not yet among these.
    pub(crate) fn make(&mut self, opening: Opening, request: OpenRequest, kept: u64, now: Now) -> Flow {
        let Opening { id, name, open, shift, credit } = opening;
        self.total += 1;
        let window = self.windows.open(shift, kept, now);
        let budget = &self.windows.budget;
        let is_lowered = open == OpenState::Offered && request.plan.is_none();
        Flow {
            id,
            facts: FlowFacts {
                name,
                destination: request.destination,
                source: request.source,
                opened_at: now,
            },
            coding: Coding::new(request.plan, is_lowered),
            priority: None,
            place: Placement::default(),
            out: Outbound::new(divided(credit, shift), &budget.queued),
            inbound: Inbound::new(window, budget),
            open,
            over: None,
            keepalive: Default::default(),
            wire: [0; 2],
        }
    }

    /// Adds a flow.
    pub(crate) fn insert(&mut self, flow: Flow) {
        self.flows.insert(flow.id, flow);
    }

    /// Removes a flow that neither end has any use for.
    pub(crate) fn take_done(&mut self, id: FlowId) -> Option<Flow> {
        let flow = self.flows.remove(&id)?;
        self.windows.close(&flow.inbound.window);
        self.grants.remove(&id);
        self.resets.forget(id);
        Some(flow)
    }

    pub(crate) fn get(&self, id: FlowId) -> Option<&Flow> {
        self.flows.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: FlowId) -> Option<&mut Flow> {
        self.flows.get_mut(&id)
    }

    /// As [`Self::get_mut`], unless the flow is over.
    pub(crate) fn live_mut(&mut self, id: FlowId) -> Option<&mut Flow> {
        self.flows.get_mut(&id).filter(|flow| flow.over.is_none())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Flow> {
        self.flows.values()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Flow> {
        self.flows.values_mut()
    }

    /// Returns the numbers of all flows.
    pub(crate) fn ids(&self) -> Vec<FlowId> {
        self.flows.keys().copied().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.flows.len()
    }

    /// Returns the flows since the start.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Starts over with a new instance of the peer.
    pub(crate) fn meet(&mut self) {
        self.next_seen = 0;
    }

    /// Takes note that our application took bytes of a flow; returns whether a grant waits.
    pub(crate) fn handle_consumed(&mut self, id: FlowId, bytes: u64, moment: Moment) -> bool {
        let Some(flow) = self.flows.get_mut(&id).filter(|flow| flow.over.is_none()) else { return false };
        let grants = self.windows.consume(&mut flow.inbound, bytes, moment);
        if grants {
            self.grants.insert(id);
        }
        grants
    }

    /// Grants the window of a flow, if it is more than the peer knows of; returns whether it is.
    pub(crate) fn grant_extended(&mut self, id: FlowId) -> bool {
        let is_extended = self.live_mut(id).is_some_and(|flow| flow.inbound.window.is_extended());
        if is_extended {
            self.grants.insert(id);
        }
        is_extended
    }

    /// Grants all windows again that are more than the peer knows of from its hello.
    pub(crate) fn restate_grants(&mut self) {
        let open = self.flows.values().filter(|flow| flow.over.is_none());
        let extended = open.filter(|flow| flow.inbound.window.is_extended());
        self.grants.extend(extended.map(|flow| flow.id));
    }

    /// Takes the next flow with a grant to send.
    pub(crate) fn pop_grant(&mut self) -> Option<&mut Flow> {
        while let Some(id) = self.grants.pop_first() {
            if self.flows.get(&id).is_some_and(|flow| flow.over.is_none()) {
                return self.flows.get_mut(&id);
            }
        }
        None
    }

    /// Drops the grant of a flow.
    pub(crate) fn drop_grant(&mut self, id: FlowId) {
        self.grants.remove(&id);
    }

    /// Notes a sequence number that came.
    pub(crate) fn see(&mut self, seq: u64) {
        self.next_seen = self.next_seen.max(seq.saturating_add(1));
    }

    /// A lane is lost, of last use at a time, and maybe within a frame: flows may have lost items of the peer on it.
    /// Flows with lost items of ours, as `is_lost` says, are counted by those.
    pub(crate) fn lose_brought(
        &mut self,
        lane: LaneId,
        is_within: bool,
        (at, round_trip): (Now, Now),
        is_lost: impl Fn(FlowId) -> bool,
    ) {
        let since = if is_within { Now::ZERO } else { at.saturating_sub(LATELY + round_trip * 2) };
        for flow in self.flows.values_mut() {
            if is_lost(flow.id) {
                flow.place.brought.forget_loss();
            } else if flow.over.is_none() && !flow.inbound.is_finished() {
                flow.place.brought.lose(lane, since, self.next_seen);
            }
        }
    }
}

/// Makes a number one of this end's.
fn numbered(number: u32, first: bool) -> u32 {
    number & !1 | u32::from(!first)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn flows(first: bool) -> Flows {
        Flows::new(&LinkConfig { first, instance: 7, ..LinkConfig::default() }, 0)
    }

    fn open(flows: &mut Flows, shift: u8) -> FlowId {
        let id = flows.take_number();
        let opening = Opening { id, name: 1, open: OpenState::Asked, shift, credit: 1 << 16 };
        let destination = SocketAddr::from(([127, 0, 0, 1], 80)).into();
        let request = OpenRequest { destination, source: None, as_client: false, plan: None };
        let flow = flows.make(opening, request, 0, Now::ZERO);
        flows.insert(flow);
        id
    }

    #[test]
    fn numbers_are_even_or_odd_by_key_and_free() {
        for first in [true, false] {
            let mut flows = flows(first);
            let ids = [0; 3].map(|_| open(&mut flows, 0));
            assert!(ids.iter().all(|id| id.0 % 2 == u32::from(!first) && flows.is_ours(*id)));
            flows.next = ids[0].0;
            assert!(!ids.contains(&flows.take_number()));
            assert_eq!((flows.len(), flows.total()), (3, 3));
        }
    }

    #[test]
    fn grants_are_sent_once_and_only_of_live_flows() {
        let mut flows = flows(true);
        let [divided, ended, whole] = [3, 3, 0].map(|shift| open(&mut flows, shift));
        assert!(flows.grant_extended(divided) && flows.grant_extended(ended));
        assert!(!flows.grant_extended(whole), "the peer knows it from the hello");
        flows.get_mut(ended).unwrap().end(oncewire_codec::wire::ResetReason::Internal, true);
        assert_eq!(flows.pop_grant().map(|flow| flow.id), Some(divided));
        assert!(flows.pop_grant().is_none());
        flows.restate_grants();
        flows.drop_grant(divided);
        assert!(flows.pop_grant().is_none());
    }

    #[test]
    fn done_flows_leave_nothing_behind() {
        let mut flows = flows(true);
        let spare = flows.windows.budget.spare(0);
        let id = open(&mut flows, 3);
        flows.resets.wait(id, oncewire_codec::wire::ResetReason::Application, 9, Now::ZERO);
        assert!(flows.grant_extended(id) && flows.take_done(id).is_some());
        assert!(flows.pop_grant().is_none() && flows.resets.next_deadline().is_none());
        assert_eq!(flows.windows.budget.spare(0), spare);
        assert_eq!(flows.windows.budget.first_credits.bytes(), 0);
    }
}
