//! Renewal of degraded lanes, and orderly ends of lanes.
//!
//! Each end looks at the sending direction of its flow lanes once they are at rest. One with a small window after
//! losses is degraded: the dialling side brings up another, and the other side asks it to. Only once something has
//! arrived on the new lane is the old one left: the dialling side gives it no more flows and says so on it, the
//! accepting side ends it as soon as it has nothing on it either. So nothing is under way on a lane at its end, and
//! nothing is asked for again.

use oncewire_codec::Now;
use oncewire_codec::wire::{Frame, LaneId, LaneRole};

use super::Link;
use crate::event::{CloseReason, Event};
use crate::lanes::Stay;
use crate::renewal::{LaneReport, MOST_AT_ONCE};

impl Link {
    /// Takes the kernel's view of a lane's connection, after [`Event::LookAtLane`].
    pub fn handle_lane_report(&mut self, id: LaneId, report: &LaneReport, now: Now) {
        self.renewals.see(report.bytes_per_s, now);
        self.see_room(id, report, now);
        let again = now + self.look_after();
        let rest = if self.flows.values().any(|flow| flow.last_lane == Some(id)) { LONG_REST } else { REST };
        let Some(lane) = self.lanes.get_mut(id) else { return };
        if !lane.is_at_rest() || report.outstanding > 0 {
            lane.look_at = Some(again);
            return;
        }
        let rested = lane.sent_at + rest;
        if now < rested {
            lane.look_at = Some(rested);
            return;
        }
        let is_worn = self.renewals.is_worn(report, lane.sent);
        if is_worn && !lane.is_left() && self.peer_leaves_lanes() {
            self.wear(id, now);
        }
    }

    /// Takes the kernel's view of a lane for the path's lane budget.
    fn see_room(&mut self, id: LaneId, report: &LaneReport, now: Now) {
        if report.outstanding > report.window
            && let Some(lane) = self.lanes.get_mut(id)
        {
            lane.busy = Some((now, *report));
        }
        let pause = self.look_after() * LOOKS;
        if self.lane_room.is_due(pause, now) {
            let since = now.saturating_sub(pause);
            let busy = self.lanes.iter().filter_map(|(_, lane)| lane.busy.filter(|(at, _)| *at >= since));
            let busy: Vec<LaneReport> = busy.map(|(_, report)| report).collect();
            self.lane_room.handle_busy(&busy);
            self.want_lanes();
        }
    }

    /// The accepting side asks for another lane in this one's place.
    pub(super) fn handle_lane_worn(&mut self, id: LaneId, now: Now) {
        if self.lanes.get(id).is_some_and(|lane| lane.dialled) {
            self.wear(id, now);
        }
    }

    /// The dialling side sends no flows on the lane any more.
    pub(super) fn handle_lane_left(&mut self, id: LaneId) {
        let Some(lane) = self.lanes.get(id).filter(|lane| !lane.dialled) else { return };
        self.stats.lanes_renewed += u64::from(lane.stay == Stay::Worn);
        self.lanes.leave(id);
        self.wake_for_answers();
    }

    /// Brings up another lane in place of one, or asks the peer to.
    fn wear(&mut self, id: LaneId, now: Now) {
        self.lanes.keep_refused(now);
        let under_way = self.lanes.iter().filter(|(_, lane)| lane.stay != Stay::Kept).count();
        let Some(lane) = self.lanes.get_mut(id) else { return };
        let is_news = lane.stay == Stay::Kept && under_way < MOST_AT_ONCE as usize;
        if !is_news || lane.role != LaneRole::Flow || !self.renewals.take(now) {
            return;
        }
        lane.stay = Stay::Worn;
        if lane.dialled {
            self.want_lanes();
            if self.lanes_wanted.get(&LaneRole::Flow) == Some(&0) {
                // There is one more than is needed.
                self.relieve();
            }
        } else {
            (lane.worn_due, lane.worn_at) = (true, now);
            self.wake(id);
        }
    }

    /// A flow lane is up at both ends: a degraded one is left for it.
    pub(super) fn relieve(&mut self) {
        let worn = self.lanes.iter().filter(|(_, lane)| lane.dialled && lane.stay == Stay::Worn);
        let Some((id, _)) = worn.min_by_key(|(_, lane)| lane.flows) else { return };
        self.stats.lanes_renewed += 1;
        self.leave(id);
    }

    /// Gives a lane no more flows; the accepting side is told once there is none left.
    pub(super) fn leave(&mut self, id: LaneId) {
        self.lanes.leave(id);
        self.wake(id);
        self.wake_for_answers();
    }

    /// Ends lanes left by both sides, or has it said.
    pub(super) fn end_left(&mut self, now: Now) {
        if !self.lanes.any_left() {
            return;
        }
        let understood = self.peer_leaves_lanes();
        let at_rest = self.lanes.iter().filter(|(_, lane)| lane.is_left() && lane.is_at_rest());
        let at_rest: Vec<_> = at_rest.map(|(id, lane)| (id, lane.dialled, lane.stay)).collect();
        for (id, dialled, stay) in at_rest {
            if !dialled {
                self.close_lane(id, CloseReason::Left, now);
            } else if !understood {
                // A peer that does not end them is not waited for.
                self.close_lane(id, CloseReason::Idle, now);
            } else if stay == (Stay::Left { told: false }) {
                self.wake(id);
            }
        }
    }

    /// Takes the notice about the lane itself, to be sent on it.
    pub(super) fn take_stay(&mut self, id: LaneId) -> Option<Frame<'static>> {
        let understood = self.peer_leaves_lanes();
        let lane = self.lanes.get_mut(id)?;
        if std::mem::take(&mut lane.worn_due) {
            return Some(Frame::LaneWorn);
        }
        let is_due = lane.dialled && lane.flows == 0 && lane.stay == Stay::Left { told: false } && understood;
        is_due.then(|| {
            lane.stay = Stay::Left { told: true };
            Frame::LaneLeft
        })
    }

    /// Lanes with connections to be looked at.
    pub(super) fn look_at_lanes(&mut self, now: Now) {
        for (id, lane) in self.lanes.iter_mut() {
            if lane.look_at.is_some_and(|at| at <= now) {
                lane.look_at = None;
                self.events.push_back(Event::LookAtLane(id));
            }
        }
    }

    /// A lane was given bytes beside pings: its connection is looked at once they should be acknowledged.
    pub(super) fn note_sent(&mut self, id: LaneId, bytes: usize, now: Now) {
        let at = now + self.look_after();
        if let Some(lane) = self.lanes.get_mut(id)
            && lane.role == LaneRole::Flow
            && bytes > 0
        {
            lane.sent += bytes as u64;
            lane.sent_at = now;
            lane.look_at.get_or_insert(at);
        }
    }

    fn look_after(&self) -> Now {
        self.round_trip.smoothed().unwrap_or_default().max(LEAST_LOOK)
    }

    fn peer_leaves_lanes(&self) -> bool {
        self.peer.as_ref().is_some_and(|peer| peer.understands.lanes_left)
    }
}

/// How long after it was given bytes a lane's connection is looked at, at least.
const LEAST_LOOK: Now = Now::from_millis(250);
/// After so many looks at each lane they are looked at together.
const LOOKS: u32 = 3;
/// A lane's time at rest before its renewal: another begins slowly, of no use in the midst of a burst.
const REST: Now = Now::from_secs(2);
/// The same while the last flow on it is open, and may only wait, for a disk for one.
const LONG_REST: Now = Now::from_secs(15);
