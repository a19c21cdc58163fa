//! Lanes come and go; time.

use std::collections::BTreeSet;

use oncewire_codec::contract::{PeerSender, PeerState};
use oncewire_codec::wire::{FlowId, Frame, Hello, LaneId, LaneRole, ResetReason};
use oncewire_codec::{Now, StrongKind};

use super::Link;
use crate::config::LinkConfig;
use crate::event::{CloseReason, Event, LaneRefused, Note};
use crate::renewal::LaneReport;
use crate::resets;
use crate::wear::Stay;

impl Link {
    /// Registers a lane once both hellos have been exchanged.
    ///
    /// `said` is the instance in [this side's hello](Self::hello), and `peer` is the peer's hello; lane and role are
    /// those of the dialling side, and `dialled` says whether this is it. A hello of a new instance of the peer ends
    /// everything of the old one. An instance back after another does not know of the end of its common state: this
    /// end becomes another instance itself, and so tells it. A lane with another instance in this side's hello is no
    /// longer of use: the peer would go on there with the common state of the instance before.
    ///
    /// # Errors
    /// The lane cannot be used and is to be closed.
    pub fn handle_lane_up(
        &mut self,
        said: u64,
        peer: &Hello,
        lane: LaneId,
        role: LaneRole,
        dialled: bool,
        now: Now,
    ) -> Result<(), LaneRefused> {
        let is_proved = self.group.take_proof();
        if said != self.identities.instance() {
            return Err(LaneRefused::Outdated);
        }
        if self.lanes.get(lane).is_some() {
            return Err(LaneRefused::Duplicate);
        }
        if self.lanes.len() >= crate::MAX_LANES {
            return Err(LaneRefused::TooMany);
        }
        if peer.log_capacity < LinkConfig::MIN_LOG {
            return Err(LaneRefused::LogTooSmall(peer.log_capacity));
        }
        if self.identities.is_superseded(peer.instance) {
            self.become_another(now);
            return Err(LaneRefused::Superseded);
        }
        if !self.identities.is_known(peer.instance) {
            self.halves.agree(&peer.codecs, &self.config, now)?;
            self.meet(peer, is_proved, now);
        }
        let was_down = self.lanes.is_empty();
        self.lanes.insert(lane, role, dialled, now);
        self.liveness.dead.remove(lane);
        if was_down {
            self.liveness.handle_up();
            // No lane was there that could have brought their bytes.
            self.flows.resets.postpone_all(self.reset_deadline(now));
            self.events.push_back(Event::Up);
        }
        if was_down || role == LaneRole::Control {
            self.restate(now);
        }
        self.flows.ids().into_iter().for_each(|id| self.schedule(id));
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.pulse.ask(now);
        }
        self.wake(lane);
        self.want_lanes();
        Ok(())
    }

    /// Starts over with a new instance of the peer.
    fn meet(&mut self, hello: &Hello, is_proved: bool, now: Now) {
        if self.identities.meet(hello) {
            self.stats.peer_restarts += 1;
            self.events.push_back(Event::PeerRestarted);
        }
        for id in self.lanes.ids() {
            self.lanes.remove(id);
            self.leave_queue(id, now);
            self.events.push_back(Event::CloseLane(id, CloseReason::Fenced));
        }
        let (is_member, keeps_chunks) =
            (is_proved && self.group_key().is_some() && hello.names.is_some(), hello.store.is_some());
        self.group.meet(is_member, keeps_chunks);
        self.halves.tell_stored(is_member && keeps_chunks);
        self.meet_halves(hello);
        self.reset_all(ResetReason::PeerRestarted);
        self.flows.meet();
        self.forget_answers();
        self.liveness.dead.clear();
        self.supply.meet();
        self.announcements.meet();
        if !self.identities.takes_optional_frames() {
            // It never announces any.
            self.events.push_back(Event::Announced(Vec::new()));
        }
        self.drain_encoder(now);
    }

    /// Tells both halves of a new instance of the peer.
    fn meet_halves(&mut self, hello: &Hello) {
        let capacity = self.config.log_capacity.min(hello.log_capacity);
        let strong = if hello.understands.highway { StrongKind::Highway } else { StrongKind::Blake3 };
        self.halves.encoder.handle_peer(PeerState {
            capacity,
            contexts: hello.contexts as usize,
            claim: hello.claim.clone(),
            store: hello.store.filter(|_| hello.understands.tags_of_48_bits),
            short_names_below: hello.short_names_below,
            is_of_group: self.group.is_member(),
            strong,
            continues: hello.understands.continues,
        });
        self.halves.decoder.handle_peer(PeerSender {
            capacity,
            max_in_flight: hello.max_in_flight,
            digest_seed: hello.digest_seed,
            names: self.names_of(hello),
            strong,
            continues: hello.understands.continues,
            probe: hello.probe.clone(),
        });
    }

    /// Becomes a new instance of this end, as after a restart: all agreements with the peer are over.
    fn become_another(&mut self, now: Now) {
        self.lanes.ids().into_iter().for_each(|id| self.close_lane(id, CloseReason::Fenced, now));
        self.liveness.dead.clear();
        self.reset_all(ResetReason::PeerRestarted);
        self.stats.peer_restarts += 1;
        self.events.push_back(Event::PeerRestarted);
        self.identities.renew();
        self.config.instance = self.identities.instance();
        self.want_lanes();
    }

    /// Repeats all idempotent control state: the peer may have missed it.
    fn restate(&mut self, now: Now) {
        self.halves.decoder.resend_control_state(now);
        self.halves.encoder.resend_control_state();
        self.tell_networks();
        self.tell_draining();
        self.restate_keepalives();
        if let Some(needed) = self.supply.take_need(&self.lanes) {
            self.tell_lanes_needed(needed);
        }
        self.flows.restate_grants();
        self.wake_control();
    }

    /// Forgets a lane with a closed socket; its flows go on with others.
    pub fn handle_lane_lost(&mut self, id: LaneId, now: Now) {
        self.forget_lane(id, Some(now), now);
    }

    /// Forgets a lane ended in order by its other end, behind all its bytes: nothing was lost if this end had left
    /// it.
    pub fn handle_lane_ended(&mut self, id: LaneId, now: Now) {
        let is_left = self.lanes.get(id).is_some_and(|lane| lane.wear.stay() == Stay::Left { told: true });
        self.forget_lane(id, Some(now).filter(|_| !is_left), now);
    }

    /// Forgets a lane; unless it ended in order, `lost` is when it was last of use.
    fn forget_lane(&mut self, id: LaneId, lost: Option<Now>, now: Now) {
        let Some(gone) = self.lanes.remove(id) else { return };
        let in_order = lost.is_none();
        // Flows in wait since the loss of another lane were counted then.
        let is_lost = |link: &Self, flow: FlowId| link.halves.encoder.pending(flow).lost;
        let waiting: BTreeSet<FlowId> =
            self.flows.iter().map(|flow| flow.id).filter(|flow| is_lost(self, *flow)).collect();
        self.halves.encoder.handle_lane_lost(id);
        self.halves.decoder.handle_lane_lost(id);
        self.leave_queue(id, now);
        let on_lane = self.flows.iter_mut().filter(|flow| flow.place.lane == Some(id));
        on_lane.for_each(|flow| flow.place.clear());
        let off = self.flows.iter().filter(|flow| flow.place.lane.is_none());
        let ids: Vec<FlowId> = off.map(|flow| flow.id).collect();
        let resumes = ids.iter().filter(|flow| is_lost(self, **flow) && !waiting.contains(flow));
        let resumed = resumes.count() as u64;
        if let Some(at) = lost {
            self.liveness.dead.add(id);
            let encoder = &self.halves.encoder;
            let times = (at, self.liveness.smoothed());
            self.flows.lose_brought(id, gone.is_within, times, |flow| encoder.pending(flow).lost);
        }
        if self.lanes.is_empty() {
            self.liveness.handle_down(now);
            self.group.forget();
            self.events.push_back(Event::Down);
        } else if !in_order {
            self.restate(now);
        }
        if resumed > 0 {
            self.stats.resumes += resumed;
            self.note(Note::Resumed { flows: resumed, lanes_left: !self.lanes.is_empty() });
        }
        ids.into_iter().for_each(|id| self.schedule(id));
        self.wake_for_answers();
        // A repair may have been lost with the lane; the peer asks for it again.
        self.want_lanes();
    }

    /// Gives up a lane of the link's own accord.
    pub(super) fn close_lane(&mut self, id: LaneId, reason: CloseReason, now: Now) {
        if let Some(heard) = self.lanes.get(id).map(|lane| lane.pulse.heard()) {
            self.events.push_back(Event::CloseLane(id, reason));
            let lost = match reason {
                CloseReason::Left => None,
                CloseReason::Silent | CloseReason::DeadAtPeer => Some(heard),
                CloseReason::Fenced | CloseReason::Idle => Some(now),
            };
            self.forget_lane(id, lost, now);
        }
    }

    /// Asks for the missing lanes: by dialling, or by a request to the peer.
    pub(super) fn want_lanes(&mut self) {
        for (role, count) in self.supply.take_missing(&self.lanes) {
            self.events.push_back(Event::LanesWanted { role, count });
        }
        if let Some(needed) = self.supply.take_larger_need(&self.lanes) {
            self.tell_lanes_needed(needed);
        }
    }

    /// The accepting side says how many flow lanes it has use for.
    pub(super) fn handle_lanes_wanted(&mut self, count: u32) {
        self.supply.handle_wanted(count);
        self.want_lanes();
    }
}

/// Time.
impl Link {
    pub(super) fn handle_pong(&mut self, lane: LaneId, token: u64, now: Now) {
        if self.liveness.handle_pong(&mut self.lanes, lane, Now::from_micros(token), now) {
            let patience = self.liveness.smoothed() * 2;
            self.halves.decoder.handle_patience(patience.max(Now::from_millis(50)));
        }
    }

    /// When [`Self::handle_timeout`] is to be called; changes with every other call.
    pub fn poll_timeout(&self) -> Option<Now> {
        let lanes = self.liveness.next_check(&self.lanes);
        // The rest of closed flows is given up, too, and then nothing is left.
        let is_kept = || self.flows.iter().any(|flow| flow.over.is_none() || flow.out.holds_stream());
        let down = self.liveness.down_since().filter(|_| is_kept());
        let resume = down.map(|since| since + self.config.resume_window);
        let decoder = self.halves.decoder.poll_timeout().filter(|_| self.is_up());
        let turn = self.scheduler.next_call();
        let reset = self.flows.resets.next_deadline().filter(|_| self.is_up());
        [lanes, resume, decoder, turn, reset].into_iter().flatten().min()
    }

    /// Handles the due timers.
    pub fn handle_timeout(&mut self, now: Now) {
        // Without a lane there is nobody to ask; pending requests are repeated when one comes.
        if self.is_up() {
            self.halves.decoder.handle_timeout(now);
            self.take_deliveries(now);
            self.end_overdue(now);
        }
        self.wake_for_feedback();
        self.check_lanes(now);
        self.call_next(now);
        let down = self.liveness.down_since();
        if down.is_some_and(|since| now >= since + self.config.resume_window) {
            self.give_up();
        }
    }

    fn check_lanes(&mut self, now: Now) {
        let check = self.liveness.check(&mut self.lanes, now);
        check.asked.into_iter().for_each(|id| self.wake(id));
        check.silent.into_iter().for_each(|id| self.close_lane(id, CloseReason::Silent, now));
        // Not at once, since flows pause and go on.
        if let Some(needed) = self.supply.take_smaller_need(&self.lanes, now) {
            self.tell_lanes_needed(needed);
        }
        let idle = self.supply.idle(&self.lanes, self.flows.is_first(), now);
        idle.into_iter().for_each(|id| self.leave(id));
        self.end_left(now);
        for (id, lane) in self.lanes.iter_mut() {
            if lane.wear.take_look(now) {
                self.events.push_back(Event::LookAtLane(id));
            }
        }
    }

    /// The peer did not come back in time; if it does later, it is told of the flows' end.
    fn give_up(&mut self) {
        let mut flows = 0;
        for flow in self.flows.iter_mut() {
            if flow.give_up() {
                flows += 1;
                self.events.push_back(Event::FlowReadable(flow.id));
                self.events.push_back(Event::FlowWritable(flow.id));
            }
        }
        if flows > 0 {
            self.note(Note::GaveUp { flows });
        }
    }

    /// Returns when a reset waits no longer.
    pub(super) fn reset_deadline(&self, now: Now) -> Now {
        resets::deadline(self.liveness.smoothed(), now)
    }
}

/// Renewal of degraded lanes, and orderly ends of lanes.
///
/// Each end looks at the sending direction of its flow lanes once they are at rest. One with a small window after
/// losses is degraded: the dialling side brings up another, and the other side asks it to. Only once something has
/// arrived on the new lane is the old one left: the dialling side gives it no more flows and says so on it, the
/// accepting side ends it as soon as it has nothing on it either. So nothing is under way on a lane at its end, and
/// nothing is asked for again.
impl Link {
    /// Takes the kernel's view of a lane's connection, after [`Event::LookAtLane`].
    pub fn handle_lane_report(&mut self, id: LaneId, report: &LaneReport, now: Now) {
        let pause = self.look_after();
        if let Some(lane) = self.lanes.get_mut(id) {
            lane.wear.note_report(report, now);
        }
        if self.supply.review(&self.lanes, pause, now) {
            self.want_lanes();
        }
        let is_awaited = self.flows.iter().any(|flow| flow.place.last == Some(id));
        if self.renewals.handle_report(&mut self.lanes, id, report, is_awaited, pause, now)
            && self.identities.understands().lanes_left
        {
            self.wear(id, now);
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
        self.stats.lanes_renewed += u64::from(lane.wear.stay() == Stay::Worn);
        self.lanes.leave(id);
        self.wake_for_answers();
    }

    /// Brings up another lane in place of one, or asks the peer to.
    fn wear(&mut self, id: LaneId, now: Now) {
        if !self.renewals.wear(&mut self.lanes, id, now) {
            return;
        }
        if self.lanes.get(id).is_some_and(|lane| lane.dialled) {
            self.want_lanes();
            if self.supply.lacks_none() {
                // There is one more than is needed.
                self.relieve();
            }
        } else {
            self.wake(id);
        }
    }

    /// A flow lane is up at both ends: a degraded one is left for it.
    pub(super) fn relieve(&mut self) {
        let worn = self.lanes.iter().filter(|(_, lane)| lane.dialled && lane.wear.stay() == Stay::Worn);
        let Some((id, _)) = worn.min_by_key(|(_, lane)| lane.flows) else { return };
        self.stats.lanes_renewed += 1;
        self.leave(id);
    }

    /// Gives a lane no more flows; the accepting side is told once there is none left.
    fn leave(&mut self, id: LaneId) {
        self.lanes.leave(id);
        self.wake(id);
        self.wake_for_answers();
    }

    /// Ends lanes left by both sides, or has that said.
    pub(super) fn end_left(&mut self, now: Now) {
        if !self.lanes.any_left() {
            return;
        }
        let understood = self.identities.understands().lanes_left;
        let at_rest = self.lanes.iter().filter(|(_, lane)| lane.wear.is_left() && lane.is_at_rest());
        let at_rest: Vec<_> = at_rest.map(|(id, lane)| (id, lane.dialled, lane.wear.stay())).collect();
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

    /// Takes the next word on the lane itself, to be sent on it.
    pub(super) fn take_stay(&mut self, id: LaneId) -> Option<Frame<'static>> {
        let understood = self.identities.understands().lanes_left;
        let lane = self.lanes.get_mut(id)?;
        if lane.wear.take_wish() {
            return Some(Frame::LaneWorn);
        }
        let is_free = lane.dialled && lane.flows == 0 && understood;
        (is_free && lane.wear.take_farewell()).then_some(Frame::LaneLeft)
    }

    /// A lane was given bytes beside pings: its connection is looked at once they should be acknowledged.
    pub(super) fn note_sent(&mut self, id: LaneId, bytes: usize, now: Now) {
        let at = now + self.look_after();
        if let Some(lane) = self.lanes.get_mut(id).filter(|lane| lane.role == LaneRole::Flow && bytes > 0) {
            lane.wear.send(bytes as u64, at, now);
        }
    }

    fn look_after(&self) -> Now {
        self.liveness.smoothed().max(LEAST_LOOK)
    }
}

/// The least time from new bytes on a lane to the look at its connection.
const LEAST_LOOK: Now = Now::from_millis(250);
