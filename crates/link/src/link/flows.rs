//! Orders and bytes of applications.

use std::net::SocketAddr;

use bytes::Bytes;
use oncewire_codec::wire::{
    FlowId, Frame, KeepAlive, MAX_BLOCK, Message, Open, OpenFailure, Opened, Reset, ResetReason,
};
use oncewire_codec::{Now, Plan};

use super::Link;
use crate::budget::credit_shift;
use crate::event::{Event, FlowGone, OpenRefused, OpenRequest, Received};
use crate::flow::{Flow, OpenState};
use crate::flows::Opening;
use crate::sharing::Priority;
use crate::windows::Moment;

impl Link {
    /// Opens a flow; [`Received::Opened`] tells the outcome. Bytes may be queued at once.
    ///
    /// # Errors
    /// There is nobody to open it with.
    pub fn open_flow(&mut self, request: OpenRequest, now: Now) -> Result<FlowId, OpenRefused> {
        if self.announcements.is_draining() {
            return Err(OpenRefused::Draining);
        }
        if !self.is_up() {
            return Err(OpenRefused::LinkDown);
        }
        if self.peer_drains() {
            return Err(OpenRefused::PeerDrains);
        }
        if self.flows.len() >= crate::MAX_FLOWS {
            return Err(OpenRefused::TooManyFlows);
        }
        let id = self.flows.take_number();
        self.want_logs();
        let name = u128::from(self.identities.instance()) << 64 | u128::from(self.flows.total());
        let divides = self.identities.understands().small_credits;
        let shift = if divides { credit_shift(self.flows.len()) } else { 0 };
        let open = Message::Open(Open {
            id: name,
            destination: request.destination.clone(),
            source: request.source,
            coded: request.plan.is_some(),
            as_client: request.as_client,
            credit_shift: shift,
        });
        let mut flow = self.new_flow(id, name, request, OpenState::Asked, shift, now);
        flow.out.push_message(open);
        self.flows.insert(flow);
        self.schedule(id);
        Ok(id)
    }

    /// Sets this side's policy for coding its bytes; `None`: no coding, and none of the flow's bytes is coded from
    /// then on. At the accepting side call it before [`Self::answer_flow`], which tells the peer.
    ///
    /// An uncoded flow stays so: either side can only lower it to that.
    pub fn plan_flow(&mut self, id: FlowId, plan: Option<Plan>) {
        if let Some(flow) = self.flows.get_mut(id) {
            flow.coding.replan(plan);
        }
    }

    /// Sets this side's policy for the priority of its bytes; `None`: by the number of sent bytes
    /// ([`LinkConfig::bulk_after`](crate::LinkConfig::bulk_after)). Holds from the next block on.
    pub fn prioritize_flow(&mut self, id: FlowId, priority: Option<Priority>) {
        if let Some(flow) = self.flows.get_mut(id) {
            flow.priority = priority;
        }
    }

    /// Answers an offered flow with the outcome of the connect onward.
    pub fn answer_flow(&mut self, id: FlowId, answer: Result<SocketAddr, OpenFailure>, _now: Now) {
        let answer = answer.map_err(|failure| self.identities.translate(failure));
        let Some(flow) = self.flows.get_mut(id) else { return };
        if flow.open != OpenState::Offered || flow.over.is_some() {
            return;
        }
        flow.open = OpenState::Open;
        let coded = flow.coding.configured().is_some();
        flow.out
            .push_message(Message::Opened(answer.map(|address| Opened { address: Some(address), coded })));
        if answer.is_err() {
            flow.end_quietly(ResetReason::OpenFailed);
        }
        self.schedule(id);
    }

    /// Says whether a flow has ended other than in order, or was never there, in spite of bytes not yet taken by our
    /// application.
    pub fn is_over(&self, id: FlowId) -> bool {
        self.flows.get(id).is_none_or(|flow| flow.over.is_some())
    }

    /// Queues bytes of our application and returns the remaining room; at 0 the application is not read until
    /// [`Event::FlowWritable`]. All given bytes are taken, with or without room.
    ///
    /// # Errors
    /// The flow is over; [`Self::poll_payload`] says why.
    pub fn handle_payload(&mut self, id: FlowId, bytes: Bytes, _now: Now) -> Result<usize, FlowGone> {
        let flow = self.flows.live_mut(id).ok_or(FlowGone)?;
        if flow.out.is_finished() {
            return Err(FlowGone);
        }
        if flow.classify_sent(&bytes) {
            self.events.push_back(Event::FlowOutcome(id));
        }
        if !bytes.is_empty() {
            flow.out.push(bytes);
        }
        let limit = self.queue_limit();
        let Some(flow) = self.flows.get_mut(id) else { return Err(FlowGone) };
        let room = flow.out.room(limit);
        flow.out.waits_for_room = room == 0;
        self.want_logs();
        self.schedule(id);
        Ok(room)
    }

    /// Returns how many bytes a flow has queued although there was no room, beyond a block
    /// ([`MAX_BLOCK`](oncewire_codec::wire::MAX_BLOCK)); 0 if it is not known.
    pub fn beyond_room(&self, id: FlowId) -> usize {
        self.flows.get(id).map_or(0, |flow| flow.out.beyond_room(self.queue_limit()))
    }

    /// Returns the bytes queued like this for all flows, also for those ended by applications. Looks at each flow.
    pub fn all_beyond_room(&self) -> usize {
        let limit = self.queue_limit();
        self.flows.iter().map(|flow| flow.out.beyond_room(limit)).sum()
    }

    /// Returns how many bytes of the memory for flows may be read of applications although there is no room.
    pub fn most_beyond_room(&self) -> usize {
        usize::try_from(self.config.flow_memory / 4).unwrap_or(usize::MAX)
    }

    /// Returns the read size for a flow's application, at most a block
    /// ([`MAX_BLOCK`](oncewire_codec::wire::MAX_BLOCK)): less with many waiting applications.
    pub fn read_size(&self, id: FlowId) -> usize {
        let limit = self.queue_limit();
        if limit >= 2 * MAX_BLOCK as u64 {
            return MAX_BLOCK;
        }
        let room = self.flows.get(id).map_or(0, |flow| flow.out.room(limit));
        room.clamp(LEAST_READ, MAX_BLOCK)
    }

    /// How many bytes each flow may queue now.
    fn queue_limit(&self) -> u64 {
        self.flows.windows.budget.queue_limit(self.flows.len(), self.halves.kept_bytes())
    }

    /// Says whether more of our application's stream is about to come: with blocks cut by content, the queue may wait
    /// for it, so the end of a reading is no cut. Holds until the next [`Self::handle_payload`] or the end of the
    /// stream.
    pub fn expect_payload(&mut self, id: FlowId, more: bool) {
        if let Some(flow) = self.flows.live_mut(id) {
            flow.out.expect(more);
            self.schedule(id);
        }
    }

    /// Our application ended its stream.
    pub fn finish_flow(&mut self, id: FlowId, _now: Now) {
        if let Some(flow) = self.flows.live_mut(id) {
            flow.out.finish();
            self.schedule(id);
        }
    }

    /// Our application reset its connection, or is given up: its earlier bytes are still sent as far as credit goes,
    /// then the reset.
    pub fn abort_flow(&mut self, id: FlowId, reason: ResetReason, _now: Now) {
        let Some(flow) = self.flows.get_mut(id) else { return };
        // Nobody waits for the answer to the open any more.
        flow.open = OpenState::Open;
        if flow.over.is_none() {
            flow.abort(reason);
            self.flows.drop_grant(id);
            self.schedule(id);
        } else if let Some(over) = &mut flow.over {
            over.told = true;
        }
        self.forget_if_done(id);
    }

    /// Takes the next thing for our application.
    pub fn poll_payload(&mut self, id: FlowId, _now: Now) -> Option<Received> {
        let flow = self.flows.get_mut(id)?;
        match flow.open {
            OpenState::Answered(answer) => {
                flow.open = OpenState::Open;
                self.forget_if_done(id);
                return Some(Received::Opened(answer));
            }
            OpenState::Asked if flow.over.is_none() => return None,
            _ => {}
        }
        if let Some(over) = &mut flow.over
            && !flow.inbound.has_ready()
        {
            if std::mem::replace(&mut over.told, true) {
                return None;
            }
            let reason = over.reason;
            if flow.open == OpenState::Asked {
                // Nobody waits for the answer any more; it may still come by a resumed lane.
                flow.open = OpenState::Open;
            }
            self.forget_if_done(id);
            return Some(Received::Reset(reason));
        }
        if let Some(bytes) = flow.inbound.pop() {
            if flow.coding.handle_received(&bytes) {
                self.events.push_back(Event::FlowOutcome(id));
            }
            self.stats.delivered_in += bytes.len() as u64;
            return Some(Received::Data(bytes));
        }
        if flow.inbound.take_end() {
            self.forget_if_done(id);
            return Some(Received::Finished);
        }
        None
    }

    /// Resets every flow without telling the peer, which does not know them.
    pub(super) fn reset_all(&mut self, reason: ResetReason) {
        for id in self.flows.ids() {
            if let Some(flow) = self.flows.get_mut(id) {
                flow.end(reason, false);
                flow.place.clear();
                self.events.push_back(Event::FlowReadable(id));
                self.events.push_back(Event::FlowWritable(id));
            }
            self.forget_if_done(id);
        }
    }

    /// Makes a flow that either side opens.
    pub(super) fn new_flow(
        &mut self,
        id: FlowId,
        name: u128,
        request: OpenRequest,
        open: OpenState,
        shift: u8,
        now: Now,
    ) -> Flow {
        let credit = self.identities.initial_credit();
        let opening = Opening { id, name, open, shift, credit };
        self.flows.make(opening, request, self.halves.kept_bytes(), now)
    }

    /// A flow has nothing unacknowledged: it gives its lane back, and is forgotten if it is done.
    pub(super) fn settle(&mut self, id: FlowId, now: Now) {
        let Some(flow) = self.flows.get_mut(id) else { return };
        if !flow.out.can_send()
            && let Some(lane) = flow.place.lane.take()
            && let Some(lane) = self.lanes.get_mut(lane)
        {
            lane.settle(now);
        }
        self.forget_if_done(id);
    }

    /// Forgets a flow of no use to either end.
    pub(super) fn forget_if_done(&mut self, id: FlowId) {
        let is_done = self.flows.get(id).is_some_and(Flow::is_done);
        if !is_done || self.halves.encoder.pending(id).items > 0 {
            return;
        }
        if let Some(flow) = self.flows.take_done(id) {
            if let Some(lane) = flow.place.lane.and_then(|lane| self.lanes.get_mut(lane)) {
                lane.flows = lane.flows.saturating_sub(1);
                lane.turns.remove(id);
            }
            self.halves.encoder.finish_flow(id);
            self.events.push_back(Event::FlowEnded(Box::new(flow.tally())));
        }
    }
}

/// Windows: credit for the peer.
impl Link {
    /// Sets the most bytes of all flows together, in place of
    /// [`LinkConfig::flow_memory`](crate::LinkConfig::flow_memory).
    pub fn set_flow_memory(&mut self, bytes: u64) {
        self.flows.windows.budget.set_memory(bytes);
    }

    /// Our application took bytes: the peer may send more.
    pub fn handle_consumed(&mut self, id: FlowId, bytes: usize, now: Now) {
        let moment = Moment {
            kept: self.halves.kept_bytes(),
            line_ends: self.line_ends(now),
            round_trip: self.liveness.round_trip().unwrap_or(Now::from_millis(100)),
            now,
        };
        if self.flows.handle_consumed(id, bytes as u64, moment) {
            self.wake_control();
        }
    }

    /// Whether blocks wait for chunks, and the line has brought the requested ones by the time, or little later, at
    /// which names granted now could have come and led to requests.
    fn line_ends(&mut self, now: Now) -> bool {
        let due = self.halves.decoder.store().and_then(|store| store.chunks_due(now));
        // A queue is the line's, or one on the way to the peer.
        due.is_some_and(|due| self.liveness.fits_two_more(due, self.path.has_room(now)))
    }

    /// Tells the peer the window of a flow it has opened with a divided first credit.
    pub(super) fn extend_divided(&mut self, id: FlowId, shift: u8) {
        if shift > 0 && self.flows.grant_extended(id) {
            self.wake_control();
        }
    }
}

/// Keep-alive of applications' hosts: each end says how often its own host probes, and the far end probes as often.
impl Link {
    /// Tells the peer that the host of our application probes a flow's connection after each silence of so many
    /// seconds, at most [`MAX_KEEPALIVE`](oncewire_codec::wire::MAX_KEEPALIVE), or with 0 that it probes no more. A
    /// peer of version 1 only is not told.
    pub fn tell_keepalive(&mut self, id: FlowId, seconds: u16) {
        let Some(flow) = self.flows.live_mut(id) else { return };
        let is_news = flow.keepalive.ours.replace(seconds) != Some(seconds);
        if is_news && self.takes_optional_frames() {
            self.announcements.say(Frame::KeepAlive(KeepAlive { flow: id, seconds }));
            self.wake_control();
        }
    }

    /// Returns how often the host of the far application probes, in seconds of silence; none if it is not known to.
    pub fn far_keepalive(&self, id: FlowId) -> Option<u16> {
        self.flows.get(id).and_then(|flow| flow.keepalive.far)
    }

    /// Says all of it again.
    pub(super) fn restate_keepalives(&mut self) {
        if self.takes_optional_frames() {
            let open = self.flows.iter().filter(|flow| flow.over.is_none());
            let said =
                open.filter_map(|flow| Some(KeepAlive { flow: flow.id, seconds: flow.keepalive.ours? }));
            self.announcements.say_keepalives(said);
        }
    }

    pub(super) fn handle_keepalive(&mut self, said: KeepAlive) {
        if let Some(flow) = self.flows.get_mut(said.flow) {
            flow.keepalive.far = Some(said.seconds).filter(|seconds| *seconds > 0);
        }
    }
}

/// Resets of the peer: earlier bytes come first, though lanes and repairs may bring them later.
impl Link {
    pub(super) fn handle_reset(&mut self, id: FlowId, reset: Reset, now: Now) {
        let deadline = self.reset_deadline(now);
        let Some(flow) = self.flows.live_mut(id) else {
            // An application with the far end of stream waits for nothing more.
            self.forget_if_done(id);
            return;
        };
        let Reset { reason, behind } = reset;
        let behind = behind.unwrap_or(0);
        if flow.inbound.next() < behind {
            self.flows.resets.wait(id, reason, behind, deadline);
        } else {
            self.end_far(id, reason);
        }
    }

    /// Ends a flow whose reset waits for nothing more.
    pub(super) fn end_if_complete(&mut self, id: FlowId) {
        let Some(next) = self.flows.get(id).map(|flow| flow.inbound.next()) else { return };
        if let Some(reason) = self.flows.resets.take_complete(id, next) {
            self.end_far(id, reason);
        }
    }

    /// Ends the flows whose resets have waited for long enough.
    pub(super) fn end_overdue(&mut self, now: Now) {
        let later = self.reset_deadline(now);
        loop {
            let decoder = &self.halves.decoder;
            let holds = |flow, behind| decoder.holds(flow, behind);
            let Some((id, reason)) = self.flows.resets.take_overdue(now, later, holds) else { break };
            self.end_far(id, reason);
        }
    }

    /// Ends a flow for our application; earlier bytes are still read, as they would be from a socket.
    fn end_far(&mut self, id: FlowId, reason: ResetReason) {
        self.flows.resets.forget(id);
        if let Some(flow) = self.flows.live_mut(id) {
            flow.end(reason, false);
            self.events.push_back(Event::FlowReadable(id));
            self.events.push_back(Event::FlowWritable(id));
        }
        self.forget_if_done(id);
    }
}

/// The least bytes of one read.
const LEAST_READ: usize = 4 << 10;
