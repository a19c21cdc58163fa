//! Applications' actions, and the bytes and events for them.

use std::net::SocketAddr;

use bytes::Bytes;
use oncewire_codec::wire::{FlowId, MAX_BLOCK, Message, Open, OpenFailure, Opened, ResetReason};
use oncewire_codec::{Now, Plan};

use super::Link;
use crate::budget::credit_shift;
use crate::event::{Event, FlowGone, OpenRefused, OpenRequest, Received};
use crate::flow::{Flow, OpenState};
use crate::sharing::Priority;

impl Link {
    /// Opens a flow; [`Received::Opened`] tells the outcome. Bytes may be queued at once.
    ///
    /// # Errors
    /// There is nobody to open it with.
    pub fn open_flow(&mut self, request: OpenRequest, now: Now) -> Result<FlowId, OpenRefused> {
        if self.draining {
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
        while self.flows.contains_key(&FlowId(self.next_flow)) {
            self.next_flow = self.next_flow.wrapping_add(2);
        }
        let id = FlowId(self.next_flow);
        self.next_flow = self.next_flow.wrapping_add(2);
        self.want_logs();
        let name = u128::from(self.config.instance) << 64 | u128::from(self.stats.flows_total);
        let divides = self.peer.as_ref().is_some_and(|peer| peer.understands.small_credits);
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
        self.flows.insert(id, flow);
        self.schedule(id);
        Ok(id)
    }

    /// Sets this side's policy for coding its bytes; `None`: no coding, and none of the flow's bytes is coded from
    /// then on. At the accepting side call it before [`Self::answer_flow`], which tells the peer.
    ///
    /// An uncoded flow stays so: either side can only lower it to that.
    pub fn plan_flow(&mut self, id: FlowId, plan: Option<Plan>) {
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.plan = flow.plan.and(plan);
        }
    }

    /// Sets this side's policy for the priority of its bytes; `None`: by the number of sent bytes
    /// ([`LinkConfig::bulk_after`](crate::LinkConfig::bulk_after)). Holds from the next block on.
    pub fn prioritize_flow(&mut self, id: FlowId, priority: Option<Priority>) {
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.priority = priority;
        }
    }

    /// Answers an offered flow with the outcome of the connect onward.
    pub fn answer_flow(&mut self, id: FlowId, answer: Result<SocketAddr, OpenFailure>, _now: Now) {
        let answer = answer.map_err(|failure| self.understood(failure));
        let Some(flow) = self.flows.get_mut(&id) else { return };
        if flow.open != OpenState::Offered || flow.over.is_some() {
            return;
        }
        flow.open = OpenState::Open;
        let coded = flow.plan.is_some();
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
        self.flows.get(&id).is_none_or(|flow| flow.over.is_some())
    }

    /// Queues bytes of our application and returns the remaining room; at 0 the application is not read until
    /// [`Event::FlowWritable`]. All given bytes are taken, with or without room.
    ///
    /// # Errors
    /// The flow is over; [`Self::poll_payload`] says why.
    pub fn handle_payload(&mut self, id: FlowId, bytes: Bytes, _now: Now) -> Result<usize, FlowGone> {
        let flow = self.flows.get_mut(&id).filter(|flow| flow.over.is_none()).ok_or(FlowGone)?;
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
        let Some(flow) = self.flows.get_mut(&id) else { return Err(FlowGone) };
        let room = flow.out.room(limit);
        flow.out.waits_for_room = room == 0;
        self.want_logs();
        self.schedule(id);
        Ok(room)
    }

    /// Returns how many bytes a flow has queued although there was no room, beyond a block
    /// ([`MAX_BLOCK`](oncewire_codec::wire::MAX_BLOCK)); 0 if it is not known.
    pub fn beyond_room(&self, id: FlowId) -> usize {
        self.flows.get(&id).map_or(0, |flow| flow.out.beyond_room(self.queue_limit()))
    }

    /// Returns the bytes queued like this for all flows, also for those ended by applications. Looks at each flow.
    pub fn all_beyond_room(&self) -> usize {
        let limit = self.queue_limit();
        self.flows.values().map(|flow| flow.out.beyond_room(limit)).sum()
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
        let room = self.flows.get(&id).map_or(0, |flow| flow.out.room(limit));
        room.clamp(LEAST_READ, MAX_BLOCK)
    }

    /// How many bytes each flow may queue now.
    fn queue_limit(&self) -> u64 {
        self.budget.queue_limit(self.flows.len(), self.sender.load().kept_bytes)
    }

    /// Says whether more of our application's stream is about to come: with blocks cut by content, the queue may wait
    /// for it, so the end of a reading is no cut. Holds until the next [`Self::handle_payload`] or the end of the
    /// stream.
    pub fn expect_payload(&mut self, id: FlowId, more: bool) {
        if let Some(flow) = self.flows.get_mut(&id).filter(|flow| flow.over.is_none()) {
            flow.out.expect(more);
            self.schedule(id);
        }
    }

    /// Our application ended its stream.
    pub fn finish_flow(&mut self, id: FlowId, _now: Now) {
        if let Some(flow) = self.flows.get_mut(&id).filter(|flow| flow.over.is_none()) {
            flow.out.finish();
            self.schedule(id);
        }
    }

    /// Our application reset its connection, or is given up: its earlier bytes are still sent as far as credit goes,
    /// then the reset.
    pub fn abort_flow(&mut self, id: FlowId, reason: ResetReason, _now: Now) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        // Nobody waits for the answer to the open any more.
        flow.open = OpenState::Open;
        if flow.over.is_none() {
            flow.abort(reason);
            self.credit_due.remove(&id);
            self.schedule(id);
        } else if let Some(over) = &mut flow.over {
            over.told = true;
        }
        self.forget_if_done(id);
    }

    /// Takes the next thing for our application.
    pub fn poll_payload(&mut self, id: FlowId, _now: Now) -> Option<Received> {
        let flow = self.flows.get_mut(&id)?;
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
            if flow.classify_received(&bytes) {
                self.events.push_back(Event::FlowOutcome(id));
            }
            flow.delivered_in += bytes.len() as u64;
            self.stats.delivered_in += bytes.len() as u64;
            return Some(Received::Data(bytes));
        }
        if flow.inbound.is_finished() && !flow.far_end_told {
            flow.far_end_told = true;
            self.forget_if_done(id);
            return Some(Received::Finished);
        }
        None
    }

    /// Resets every flow without telling the peer, since it does not know them.
    pub(super) fn reset_all(&mut self, reason: ResetReason) {
        let ids: Vec<FlowId> = self.flows.keys().copied().collect();
        for id in ids {
            if let Some(flow) = self.flows.get_mut(&id) {
                flow.end(reason, false);
                flow.lane = None;
                flow.queued_on_lane = false;
                self.events.push_back(Event::FlowReadable(id));
                self.events.push_back(Event::FlowWritable(id));
            }
            self.forget_if_done(id);
        }
    }
}

/// The least read size.
const LEAST_READ: usize = 4 << 10;

impl Flow {
    /// Ends the flow but still sends the waiting messages; the application needs no telling.
    pub(super) fn end_quietly(&mut self, reason: ResetReason) {
        let mut last = Vec::new();
        while let Some(message) = self.out.pop_message() {
            last.push(message);
        }
        self.end(reason, true);
        last.into_iter().for_each(|message| self.out.push_message(message));
    }
}
