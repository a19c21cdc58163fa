//! Resets of the peer in wait for earlier bytes, late on other lanes or repaired.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use oncewire_codec::Now;
use oncewire_codec::wire::{FlowId, ResetReason};

/// Resets by flow and by deadline.
#[derive(Debug, Default)]
pub(crate) struct Resets {
    flows: BTreeMap<FlowId, Waiting>,
    deadlines: BTreeSet<(Now, FlowId)>,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    reason: ResetReason,
    /// The flow offset behind the last byte before it.
    behind: u64,
    deadline: Now,
}

/// The wait of a reset while a lane is up, and round trips beside it: the price of a peer without the bytes.
/// It waits as long again while a block of its flow is here and lacks its sources.
const WAIT: Now = Now::from_secs(1);
const WAIT_ROUND_TRIPS: u32 = 8;

/// Returns the end of a new wait.
pub(crate) fn deadline(round_trip: Now, now: Now) -> Now {
    now + WAIT + round_trip * WAIT_ROUND_TRIPS
}

impl Resets {
    /// Adds a reset; of several of a flow the first counts, since a peer may say more.
    pub(crate) fn wait(&mut self, flow: FlowId, reason: ResetReason, behind: u64, deadline: Now) {
        if let Entry::Vacant(entry) = self.flows.entry(flow) {
            entry.insert(Waiting { reason, behind, deadline });
            self.deadlines.insert((deadline, flow));
        }
    }

    /// Takes the reset of a flow with its bytes complete up to an offset, if it waits for no more.
    pub(crate) fn take_complete(&mut self, flow: FlowId, next: u64) -> Option<ResetReason> {
        if self.flows.get(&flow)?.behind > next {
            return None;
        }
        self.forget(flow)
    }

    /// Takes an overdue reset. With its bytes here, as `holds` says of a flow and an offset, it waits until `later`: they are not cut off, however long a reader, a neighbour or a repair takes.
    pub(crate) fn take_overdue(
        &mut self,
        now: Now,
        later: Now,
        holds: impl Fn(FlowId, u64) -> bool,
    ) -> Option<(FlowId, ResetReason)> {
        while let Some(&(_, flow)) = self.deadlines.first().filter(|(deadline, _)| *deadline <= now) {
            let behind = self.flows.get(&flow).map_or(0, |reset| reset.behind);
            if !holds(flow, behind) {
                return self.forget(flow).map(|reason| (flow, reason));
            }
            self.postpone(flow, later);
        }
        None
    }

    /// Gives all of them time until then.
    pub(crate) fn postpone_all(&mut self, deadline: Now) {
        let flows: Vec<FlowId> = self.flows.keys().copied().collect();
        flows.into_iter().for_each(|flow| self.postpone(flow, deadline));
    }

    fn postpone(&mut self, flow: FlowId, deadline: Now) {
        if let Some(reset) = self.flows.get_mut(&flow) {
            self.deadlines.remove(&(reset.deadline, flow));
            reset.deadline = deadline;
            self.deadlines.insert((deadline, flow));
        }
    }

    /// Forgets the reset of a flow; returns its reason.
    pub(crate) fn forget(&mut self, flow: FlowId) -> Option<ResetReason> {
        let reset = self.flows.remove(&flow)?;
        self.deadlines.remove(&(reset.deadline, flow));
        Some(reset.reason)
    }

    /// Returns the first deadline.
    pub(crate) fn next_deadline(&self) -> Option<Now> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOW: FlowId = FlowId(7);
    const REASON: ResetReason = ResetReason::Application;

    fn at(secs: u64) -> Now {
        Now::from_secs(secs)
    }

    #[test]
    fn first_reset_of_a_flow_counts() {
        let mut resets = Resets::default();
        resets.wait(FLOW, REASON, 100, at(5));
        resets.wait(FLOW, ResetReason::Internal, 10, at(1));
        assert_eq!(resets.next_deadline(), Some(at(5)));
        assert_eq!(resets.take_complete(FLOW, 99), None);
        assert_eq!(resets.take_complete(FLOW, 100), Some(REASON));
        assert_eq!((resets.take_complete(FLOW, 100), resets.next_deadline()), (None, None));
    }

    #[test]
    fn overdue_resets_wait_on_for_held_bytes() {
        let mut resets = Resets::default();
        resets.wait(FLOW, REASON, 100, at(5));
        resets.wait(FlowId(9), REASON, 100, at(5));
        let held = |flow: FlowId, behind: u64| flow == FLOW && behind == 100;
        assert_eq!(resets.take_overdue(at(4), at(9), held), None);
        assert_eq!(resets.take_overdue(at(5), at(9), held), Some((FlowId(9), REASON)));
        assert_eq!(resets.take_overdue(at(5), at(9), held), None);
        assert_eq!(resets.next_deadline(), Some(at(9)));
        resets.postpone_all(at(20));
        assert_eq!(resets.take_overdue(at(19), at(30), |_, _| false), None);
        assert_eq!(resets.take_overdue(at(20), at(30), |_, _| false), Some((FLOW, REASON)));
    }
}
