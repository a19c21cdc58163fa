//! Inbound flows: their counts, and their resumption after the loss of a lane.

use oncewire_codec::Now;
use oncewire_codec::wire::{FlowId, LaneId, LaneRole};

use super::Link;
use crate::event::Note;

/// A frame's arrival for a flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Came {
    pub(super) seq: u64,
    /// Whether it is marked as sent before.
    pub(super) is_resent: bool,
    /// How far the peer has sent the flow, if it is bytes.
    pub(super) end: Option<u64>,
    /// The length of its frame.
    pub(super) wire: usize,
}

impl Link {
    /// Counts an arrival for a flow, and the flow if it resumes by it after the loss of its lane.
    pub(super) fn note_brought(&mut self, id: FlowId, lane: LaneId, came: Came, now: Now) {
        let Came { seq, is_resent, end, wire } = came;
        self.next_seen = self.next_seen.max(seq.saturating_add(1));
        let Some(flow) = self.flows.get_mut(&id) else { return };
        flow.wire[1] += wire as u64;
        if let Some(end) = end.filter(|_| flow.over.is_none()) {
            let waits = flow.waits(0);
            flow.window.handle_sent(end, waits);
        }
        // Repairs come on a lane of their own.
        let is_flows = |lane| self.lanes.get(lane).is_some_and(|lane| lane.role != LaneRole::Repair);
        let is_own = flow.brought.is_on(lane) || is_flows(lane);
        if is_own && flow.brought.note(lane, seq, is_resent, now) {
            self.stats.resumes += 1;
            self.note(Note::WentOn);
        }
    }

    /// A lane is lost, last in use at a time, and maybe within a frame: flows may have lost their arrivals on it.
    /// Flows with lost output at this end are counted by that.
    pub(super) fn lose_brought(&mut self, lane: LaneId, is_within: bool, at: Now) {
        let since = at.saturating_sub(LATELY + self.round_trip.smoothed().unwrap_or_default() * 2);
        let since = if is_within { Now::ZERO } else { since };
        for flow in self.flows.values_mut() {
            if self.sender.pending(flow.id).lost {
                flow.brought.forget_loss();
            } else if flow.over.is_none() && !flow.inbound.is_finished() {
                flow.brought.lose(lane, since, self.next_seen);
            }
        }
    }
}

/// A flow is coming as long as its last bytes are no older than this and two round trips.
const LATELY: Now = Now::from_millis(100);
