//! Frames out.

use oncewire_codec::Now;
use oncewire_codec::contract::{Parts, Payload, Repair};
use oncewire_codec::wire::{FlowId, Frame, LaneId, LaneRole, MAX_BLOCK, Message};

use super::Link;
use crate::event::Event;
use crate::halves::LogSide;
use crate::scheduler::TARGET;
use crate::sharing::{Answered, Answers, Priority};
use crate::wear::Stay;

impl Link {
    /// Appends frames for the lane, about 64 KiB and at most a block more; returns whether there was anything.
    ///
    /// Blocks are encoded here, so call it only when the lane's socket can take the bytes now.
    pub fn poll_transmit(&mut self, lane: LaneId, now: Now, out: &mut Vec<u8>) -> bool {
        if self.lanes.get(lane).is_none() {
            return false;
        }
        let before = out.len();
        self.put_pings(lane, now, out);
        let pings_end = out.len();
        let any = self.put_rest(lane, now, before, out);
        self.note_use(lane, now, before, pings_end, out);
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.woken = any;
        }
        if any {
            // Its writer is busy from here on and asks by itself.
            self.leave_queue(lane, now);
        } else {
            self.call_next(now);
            self.end_left(now);
        }
        any
    }

    /// Appends everything beside pings; returns whether there is anything behind `before`.
    fn put_rest(&mut self, lane: LaneId, now: Now, before: usize, out: &mut Vec<u8>) -> bool {
        if let Some(frame) = self.take_stay(lane) {
            frame.encode(out);
        }
        // Later frames might not arrive before the other side ends the lane.
        if self.lanes.get(lane).is_some_and(|lane| lane.wear.stay() == Stay::Left { told: true }) {
            return out.len() > before;
        }
        let is_control = self.lanes.for_role(LaneRole::Control) == Some(lane);
        if is_control {
            self.put_control(lane, now, out);
            self.group.put(LaneRole::Control, TARGET, out);
        }
        self.put_repairs(lane, before, out);
        let flows_start = out.len();
        self.scheduler.spend(&out[before..flows_start], now);
        if self.halves.capabilities().feedback_first
            && (is_control || self.lanes.get(lane).is_some_and(|lane| lane.flows > 0))
        {
            self.halves.decoder.poll_feedback(lane, true, out);
        }
        self.put_flows(lane, now, before, out);
        let company = out.len() > before;
        if is_control || company {
            self.halves.decoder.poll_feedback(lane, company, out);
        }
        // At once: bytes that are written together share records and segments.
        self.scheduler.spend(&out[flows_start..], now);
        self.drain_encoder(now);
        out.len() > before
    }

    /// Notes the frames appended beside pings. After a long silence of the lane a ping goes with them, ahead of all:
    /// its answer is not to wait for a long block on a slow line.
    fn note_use(&mut self, lane: LaneId, now: Now, before: usize, pings_end: usize, out: &mut Vec<u8>) {
        let bytes = out.len() - pings_end;
        if bytes == 0 {
            return;
        }
        self.note_sent(lane, bytes, now);
        let dead = self.liveness.timing().dead;
        if self.lanes.get_mut(lane).is_some_and(|lane| lane.pulse.speak(bytes as u64, dead, now)) {
            let mut ping = Vec::new();
            Frame::Ping(now.as_micros() as u64).encode(&mut ping);
            out.splice(before..before, ping);
        }
    }

    /// Appends requested items, as far as they are for this lane.
    fn put_repairs(&mut self, lane: LaneId, before: usize, out: &mut Vec<u8>) {
        let encoder = &mut self.halves.encoder;
        let is_limited = self.scheduler.is_limited();
        if self.lanes.for_role(LaneRole::Repair) == Some(lane) {
            // Chunks first; under a limit these have turns.
            let most = self.scheduler.repair_limit();
            while out.len() - before < most
                && (!is_limited && encoder.poll_repair(Repair::Chunks(None), out)
                    || encoder.poll_repair(Repair::Block, out))
            {}
            self.group.put(LaneRole::Repair, TARGET.saturating_sub(out.len() - before), out);
            self.share_asked();
        } else if self.scheduler.helps(&self.lanes, lane) {
            while out.len() - before < TARGET / 2 && encoder.poll_repair(Repair::Chunks(None), out) {}
        }
        // Before the next blocks of its flows: they stand still until it is there.
        let encoder = &mut self.halves.encoder;
        while !is_limited
            && out.len() - before < TARGET
            && encoder.poll_repair(Repair::Chunks(Some(lane)), out)
        {}
    }

    /// Lets all idle lanes take from requested items beyond the share of the lane of repairs: its congestion window
    /// may be small, or have become so long ago.
    pub(super) fn share_asked(&mut self) {
        if !self.scheduler.is_limited() && self.halves.encoder.load().has_pending_chunks {
            let helps = |id| self.scheduler.helps(&self.lanes, id);
            let idle = self.lanes.iter().filter(|(id, lane)| !lane.woken && helps(*id));
            let idle: Vec<LaneId> = idle.map(|(id, _)| id).collect();
            idle.into_iter().for_each(|lane| self.wake(lane));
        }
    }

    /// A lane waits no longer for its turn: it was given something, or is gone.
    pub(super) fn leave_queue(&mut self, lane: LaneId, now: Now) {
        if let Some(next) = self.scheduler.leave(&self.lanes, lane, now) {
            self.wake(next);
        }
    }

    /// Wakes the next lane in turn, if the limit allows another block.
    pub(super) fn call_next(&mut self, now: Now) {
        if let Some(lane) = self.scheduler.call(&self.lanes, now) {
            self.wake(lane);
        }
    }

    fn put_pings(&mut self, lane: LaneId, now: Now, out: &mut Vec<u8>) {
        let Some(lane) = self.lanes.get_mut(lane) else { return };
        while let Some(token) = lane.pulse.pop_pong() {
            Frame::Pong(token).encode(out);
        }
        if lane.pulse.take_ping(now) {
            Frame::Ping(now.as_micros() as u64).encode(out);
        }
    }

    fn put_control(&mut self, lane: LaneId, now: Now, out: &mut Vec<u8>) {
        self.liveness.dead.tell(lane, now).for_each(|dead| Frame::LaneDead(dead).encode(out));
        self.halves.encoder.poll_control(out);
        while let Some(frame) = self.announcements.pop() {
            frame.encode(out);
        }
        while let Some(flow) = self.flows.pop_grant() {
            let before = out.len();
            Frame::Credit { flow: flow.id, limit: flow.inbound.window.granted() }.encode(out);
            flow.wire[0] += (out.len() - before) as u64;
        }
    }

    /// Lets the lane's flows send a block each, by class and in turn, and answers in wait for turns.
    fn put_flows(&mut self, lane: LaneId, now: Now, before: usize, out: &mut Vec<u8>) {
        // Flows in wait for acknowledgements keep their turn, but do not hold back blocks lost with another lane, or
        // answers: the acknowledgements wait for these.
        while out.len() - before < TARGET {
            let Some(class) = self.scheduler.turn(&mut self.lanes, lane, now) else { break };
            let start = out.len();
            if self.put_answer(class, lane, out) {
                self.scheduler.charge(&mut self.lanes, lane, class, out.len() - start);
                continue;
            }
            // Answers no longer needed may have been all that there was of the class.
            let Some(id) = self.lanes.get_mut(lane).and_then(|lane| lane.turns.pop(class)) else { continue };
            let Some(flow) = self.flows.get_mut(id).filter(|flow| flow.place.lane == Some(lane)) else {
                continue;
            };
            flow.place.is_queued = false;
            if !self.put_item(id, lane, now, out) {
                self.hold(id, class, lane);
                continue;
            }
            let bytes = out.len() - start;
            if let Some(flow) = self.flows.get_mut(id) {
                flow.wire[0] += bytes as u64;
            }
            self.scheduler.charge(&mut self.lanes, lane, class, bytes);
            self.schedule(id);
        }
        self.scheduler.end_turn();
    }

    /// Puts a flow aside until there is room.
    fn hold(&mut self, id: FlowId, class: Priority, lane: LaneId) {
        if let Some(flow) = self.flows.get_mut(id) {
            flow.place.is_queued = true;
        }
        self.scheduler.hold(&mut self.lanes, lane, class, id);
    }

    /// Gives flows in wait for room their turns back, if there is any.
    pub(super) fn release_held(&mut self) {
        if self.scheduler.is_out_of_room() && self.has_room() {
            let ready = self.scheduler.release(&mut self.lanes);
            ready.into_iter().for_each(|lane| self.wake(lane));
        }
    }

    /// Whether another block may be sent before older ones are acknowledged.
    fn has_room(&self) -> bool {
        let load = self.halves.encoder.load();
        load.has_room && self.flows.windows.budget.fits_block(load.kept_bytes)
    }

    /// Appends the flow's next item; returns false if it has to wait for acknowledgements.
    fn put_item(&mut self, id: FlowId, lane: LaneId, now: Now, out: &mut Vec<u8>) -> bool {
        if self.halves.encoder.poll_repair(Repair::Lost(id, lane), out) {
            return true;
        }
        let Some(flow) = self.flows.get_mut(id) else { return true };
        if !flow.out.can_send() {
            return true;
        }
        if !self.halves.encoder.load().has_room {
            return false;
        }
        if let Some(message) = flow.out.pop_message() {
            self.put_message(id, message, lane, out);
            return true;
        }
        if !self.has_room() {
            return false;
        }
        self.put_block(id, lane, now, out);
        true
    }

    fn put_message(&mut self, id: FlowId, mut message: Message, lane: LaneId, out: &mut Vec<u8>) {
        let window = self.flows.get(id).map(|flow| &flow.inbound.window);
        let opens = matches!(message, Message::Open(_));
        let grant = window.filter(|window| opens && window.is_extended()).map(|window| window.granted());
        if let Message::Reset(reset) = &mut message {
            reset.behind = reset.behind.filter(|_| self.identities.understands().resets_behind);
        }
        self.halves.encoder.handle_message(id, message, lane, out);
        if let Some(limit) = grant {
            // Behind it, so that the peer knows the flow.
            Frame::Credit { flow: id, limit }.encode(out);
        }
    }

    fn put_block(&mut self, id: FlowId, lane: LaneId, now: Now, out: &mut Vec<u8>) {
        let flows = self.flows.len();
        let Some(flow) = self.flows.get_mut(id) else { return };
        let encoder = &mut self.halves.encoder;
        let most = self.scheduler.block_limit();
        let configured = flow.next_plan();
        let plan = configured.and_then(|plan| self.pacing.apply(&plan));
        let mut parts = Parts::default();
        let block = match plan.filter(|plan| most < MAX_BLOCK || encoder.is_naming(plan)) {
            Some(plan) => flow.out.pop_cut_block(|bytes, tail| {
                let cut = encoder.cut(id, &plan, bytes, tail, most, now);
                parts = cut.parts;
                cut.len
            }),
            None => flow.out.pop_block(most),
        };
        let Some((offset, plain, fin)) = block else { return };
        self.stats.delivered_out += plain.len() as u64;
        let limit = self.flows.windows.budget.queue_limit(flows, self.halves.kept_bytes());
        if let Some(flow) = self.flows.get_mut(id)
            && flow.out.waits_for_room
            && flow.out.has_room_again(limit)
        {
            flow.out.waits_for_room = false;
            self.events.push_back(Event::FlowWritable(id));
        }
        self.pacing.sent(plain.len(), configured.is_some() && plan.is_none());
        if plan.is_some() {
            self.note_filled(LogSide::Out, plain.len());
        }
        let payload = Payload { flow: id, offset, plain, fin, plan, parts };
        self.halves.encoder.handle_payload(payload, lane, now, out);
    }

    /// Gives a flow with something to send its turn on a lane.
    pub(super) fn schedule(&mut self, id: FlowId) {
        let Some(flow) = self.flows.get_mut(id) else { return };
        if !flow.out.can_send() && !self.halves.encoder.pending(id).lost {
            return;
        }
        if flow.place.lane.is_none() {
            let last = flow.place.last.filter(|_| self.halves.capabilities().needs_order);
            let Some(lane) = self.lanes.for_flow(last, self.supply.budget()) else { return };
            flow.place.lane = Some(lane);
            flow.place.last = Some(lane);
            flow.place.is_queued = false;
            if let Some(lane) = self.lanes.get_mut(lane) {
                lane.flows += 1;
                lane.used = flow.facts.opened_at.max(lane.used);
            }
            self.want_lanes();
        }
        let Some(flow) = self.flows.get_mut(id) else { return };
        let class = flow.class(self.config.bulk_after);
        let Some(lane) = flow.place.lane else { return };
        if !std::mem::replace(&mut flow.place.is_queued, true)
            && let Some(lane) = self.lanes.get_mut(lane)
        {
            lane.turns.push_back(class, id);
        }
        self.wake(lane);
    }
}

/// Answers to chunk requests under a limit: they have turns, like blocks.
///
/// They need no room among unacknowledged blocks, and others' room may wait for them, so a lane asks for its turn while
/// it has any, also if all its flows are held.
impl Link {
    /// The peer has asked for chunks of a block: under a limit, has them wait for their turns, and wakes the block's
    /// lane, if they are for it.
    pub(super) fn handle_asked(&mut self, seq: u64) {
        if let Some(lane) = self.queue_answers(seq) {
            self.wake(lane);
        }
    }

    /// Under a limit, has the waiting chunks of a block wait for their turns; returns their lane if it is the block's
    /// own.
    fn queue_answers(&mut self, seq: u64) -> Option<LaneId> {
        let asked = self.halves.encoder.pending_chunks(seq)?;
        let flow = self.flows.get(asked.flow);
        let class = flow.map_or(Priority::Normal, |flow| flow.class(self.config.bulk_after));
        if self.scheduler.queue_answers(&mut self.lanes, seq, &asked, class) {
            let encoder = &self.halves.encoder;
            self.lanes.answers.retain(|seq| encoder.pending_chunks(seq).is_some_and(|asked| asked.any_lane));
        }
        asked.lane
    }

    /// Appends an answer of a class, as long as a block may be, if it is the turn of answers; returns whether it was.
    fn put_answer(&mut self, class: Priority, lane: LaneId, out: &mut Vec<u8>) -> bool {
        if !self.scheduler.is_limited() {
            return false;
        }
        let (most, encoder) = (self.scheduler.block_limit(), &mut self.halves.encoder);
        let answered = self.lanes.pop_answer(lane, class, |seq, which| {
            let own = (which == Answered::ByLane).then_some(lane);
            encoder.poll_repair(Repair::ChunksOf { seq, lane: own, most }, out)
        });
        let Some(seq) = answered else { return false };
        // Chunks beyond that wait on.
        self.queue_answers(seq);
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.turns.note_answered(class);
        }
        true
    }

    /// Another lane may be the lane of repairs from now on.
    pub(super) fn wake_for_answers(&mut self) {
        if !self.lanes.answers.is_empty() {
            self.wake_role(LaneRole::Repair);
        }
    }

    /// Forgets answers for an earlier instance of the peer.
    pub(super) fn forget_answers(&mut self) {
        self.lanes.answers = Answers::default();
    }
}
