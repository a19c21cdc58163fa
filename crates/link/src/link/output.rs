//! Frames out.

use oncewire_codec::Now;
use oncewire_codec::contract::{Payload, Repair};
use oncewire_codec::wire::{FlowId, Frame, LaneId, LaneRole, MAX_BLOCK, Message};

use super::{Link, LogSide};
use crate::event::Event;
use crate::lanes::Stay;
use crate::limit::Limiter;
use crate::sharing::Priority;
use crate::unsent::MOST_UNSENT_OF_REPAIRS;

/// A call stops adding frames beyond this many bytes.
const TARGET: usize = 64 * 1024;

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
            self.leave_limiter(lane, now);
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
        if self.lanes.get(lane).is_some_and(|lane| lane.stay == Stay::Left { told: true }) {
            return out.len() > before;
        }
        let is_control = self.lanes.for_role(LaneRole::Control) == Some(lane);
        if is_control {
            self.put_control(lane, now, out);
            self.put_group(false, TARGET, out);
        }
        if self.lanes.for_role(LaneRole::Repair) == Some(lane) {
            while out.len() - before < self.most_repairs() && self.put_repair(out) {}
            self.put_group(true, TARGET.saturating_sub(out.len() - before), out);
            self.share_asked();
        } else if self.may_help(lane) {
            while out.len() - before < TARGET / 2 && self.sender.poll_repair(Repair::Asked, out) {}
        }
        // Before what its flows have to say next: they stand still until it is there.
        if self.limiter.is_none() {
            while out.len() - before < TARGET && self.sender.poll_repair(Repair::Lacked(lane), out) {}
        }
        let flows_start = out.len();
        self.spend(&out[before..flows_start], now);
        let feedback_first = self.codec.capabilities().feedback_first;
        if feedback_first && (is_control || self.lanes.get(lane).is_some_and(|lane| lane.flows > 0)) {
            self.receiver.poll_feedback(lane, true, out);
        }
        self.put_flows(lane, now, before, out);
        let company = out.len() > before;
        if is_control || company {
            self.receiver.poll_feedback(lane, company, out);
        }
        // At once: what is written together shares records and segments.
        self.spend(&out[flows_start..], now);
        self.drain_sender(now);
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
        let dead = self.timing().dead;
        if self.lanes.get_mut(lane).is_some_and(|lane| lane.speak(bytes as u64, dead, now)) {
            let mut ping = Vec::new();
            Frame::Ping(now.as_micros() as u64).encode(&mut ping);
            out.splice(before..before, ping);
        }
    }

    /// Appends the next requested item, chunks first; under a limit these have turns. Returns whether there was any.
    fn put_repair(&mut self, out: &mut Vec<u8>) -> bool {
        self.limiter.is_none() && self.sender.poll_repair(Repair::Asked, out)
            || self.sender.poll_repair(Repair::Block, out)
    }

    /// Lets all idle lanes take from requested items beyond the share of the lane of repairs: its congestion window
    /// may be small, or have become so long ago.
    pub(super) fn share_asked(&mut self) {
        if self.limiter.is_none() && self.sender.load().has_asked {
            let idle = self.lanes.iter().filter(|(id, lane)| !lane.woken && self.may_help(*id));
            let idle: Vec<LaneId> = idle.map(|(id, _)| id).collect();
            idle.into_iter().for_each(|lane| self.wake(lane));
        }
    }

    /// Whether a lane takes requested items: if it has flows, since it then has a window grown by them. Under a limit
    /// no lane brings anything sooner.
    fn may_help(&self, lane: LaneId) -> bool {
        self.limiter.is_none() && self.lanes.get(lane).is_some_and(|lane| lane.flows > 0)
    }

    /// Returns the share the lane of repairs takes at once. It may be slow, so it takes little if others may help.
    fn most_repairs(&self) -> usize {
        if self.limiter.is_some() { TARGET } else { MOST_UNSENT_OF_REPAIRS as usize }
    }

    /// Counts frames against the limit of the link.
    fn spend(&mut self, frames: &[u8], now: Now) {
        if let Some(limiter) = &mut self.limiter {
            limiter.spend(frames, now);
        }
    }

    /// A lane waits no longer for its turn: it was given something, or is gone.
    pub(super) fn leave_limiter(&mut self, lane: LaneId, now: Now) {
        if let Some(limiter) = &mut self.limiter {
            limiter.leave(lane);
            self.call_next(now);
        }
    }

    /// Wakes the lane with the next turn, if the limit allows another block.
    pub(super) fn call_next(&mut self, now: Now) {
        if let Some(lane) = self.limiter.as_mut().and_then(|limiter| limiter.call(&self.lanes, now)) {
            self.wake(lane);
        }
    }

    /// Returns the class of the lane's next item.
    fn turn(&mut self, lane: LaneId, now: Now) -> Option<Priority> {
        match &mut self.limiter {
            None => self.lanes.get_mut(lane)?.turns.pick(),
            Some(limiter) => limiter.ask(lane, &self.lanes, now),
        }
    }

    fn put_pings(&mut self, lane: LaneId, now: Now, out: &mut Vec<u8>) {
        let Some(lane) = self.lanes.get_mut(lane) else { return };
        while let Some(token) = lane.pongs.pop_back() {
            Frame::Pong(token).encode(out);
        }
        if std::mem::take(&mut lane.ping_due) {
            (lane.pinged, lane.moved) = (now, 0);
            Frame::Ping(now.as_micros() as u64).encode(out);
        }
    }

    fn put_control(&mut self, lane: LaneId, now: Now, out: &mut Vec<u8>) {
        self.dead.tell(lane, now).for_each(|dead| Frame::LaneDead(dead).encode(out));
        self.sender.poll_control(out);
        while let Some(frame) = self.control.pop_front() {
            frame.encode(out);
        }
        while let Some(id) = self.credit_due.pop_first() {
            if let Some(flow) = self.flows.get_mut(&id)
                && std::mem::take(&mut flow.credit_due)
            {
                let before = out.len();
                Frame::Credit { flow: id, limit: flow.window.granted() }.encode(out);
                flow.wire[0] += (out.len() - before) as u64;
            }
        }
    }

    /// Lets the lane's flows send a block each, by class and in turn, and answers in wait for turns.
    fn put_flows(&mut self, lane: LaneId, now: Now, before: usize, out: &mut Vec<u8>) {
        // Flows in wait for acknowledgements keep their turn, but do not hold back blocks lost with another lane, or
        // answers: the acknowledgements wait for these.
        while out.len() - before < TARGET {
            let Some(class) = self.turn(lane, now) else { break };
            let start = out.len();
            if self.put_answer(class, lane, out) {
                self.charge(class, lane, out.len() - start);
                continue;
            }
            // Answers no longer needed may have been all that there was of the class.
            let Some(id) = self.lanes.get_mut(lane).and_then(|lane| lane.turns.pop(class)) else { continue };
            let Some(flow) = self.flows.get_mut(&id).filter(|flow| flow.lane == Some(lane)) else { continue };
            flow.queued_on_lane = false;
            if !self.put_item(id, lane, now, out) {
                self.hold(id, class, lane);
                continue;
            }
            let bytes = out.len() - start;
            if let Some(flow) = self.flows.get_mut(&id) {
                flow.wire[0] += bytes as u64;
            }
            self.charge(class, lane, bytes);
            self.schedule(id);
        }
        if let Some(limiter) = &mut self.limiter {
            limiter.end_turn();
        }
    }

    /// Puts a flow aside until there is room; its turn would be of no use to it, and nobody else's.
    fn hold(&mut self, id: FlowId, class: Priority, lane: LaneId) {
        self.out_of_room = true;
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.queued_on_lane = true;
        }
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.turns.hold(class, id);
        }
    }

    /// Gives flows in wait for room their turns back, if there is any.
    pub(super) fn release_held(&mut self) {
        let has_room = self.sender.load().has_room && self.budget.fits_block(self.sender.load().kept_bytes);
        if !self.out_of_room || !has_room {
            return;
        }
        self.out_of_room = false;
        let ready = self.lanes.iter_mut().filter_map(|(id, lane)| lane.turns.release().then_some(id));
        let ready: Vec<LaneId> = ready.collect();
        ready.into_iter().for_each(|lane| self.wake(lane));
    }

    /// Counts sent bytes of a class.
    fn charge(&mut self, class: Priority, lane: LaneId, bytes: usize) {
        match &mut self.limiter {
            Some(limiter) => limiter.charge(class, bytes),
            None => {
                if let Some(lane) = self.lanes.get_mut(lane) {
                    lane.turns.charge(class, bytes);
                }
            }
        }
    }

    /// Appends the flow's next item; returns false if it has to wait for acknowledgements.
    fn put_item(&mut self, id: FlowId, lane: LaneId, now: Now, out: &mut Vec<u8>) -> bool {
        if self.sender.poll_repair(Repair::Lost(id, lane), out) {
            return true;
        }
        let flows = self.flows.len();
        let Some(flow) = self.flows.get_mut(&id) else { return true };
        if !flow.out.can_send() {
            return true;
        }
        if !self.sender.load().has_room {
            return false;
        }
        if let Some(mut message) = flow.out.pop_message() {
            let opens = matches!(message, Message::Open(_));
            let first_grant = (opens && flow.window.is_extended()).then(|| flow.window.granted());
            if let Message::Reset(reset) = &mut message {
                reset.behind = reset
                    .behind
                    .filter(|_| self.peer.as_ref().is_some_and(|peer| peer.understands.resets_behind));
            }
            self.sender.handle_message(id, message, lane, out);
            if let Some(limit) = first_grant {
                // Behind it, so the peer knows of the flow.
                Frame::Credit { flow: id, limit }.encode(out);
            }
            return true;
        }
        if !self.budget.fits_block(self.sender.load().kept_bytes) {
            return false;
        }
        let most = self.limiter.as_ref().map_or(MAX_BLOCK, Limiter::block_limit);
        let configured = flow.plan();
        let plan = configured.and_then(|plan| self.pacing.apply(&plan));
        let block = match plan.filter(|plan| most < MAX_BLOCK || self.sender.is_naming(plan)) {
            Some(plan) => flow
                .out
                .pop_cut_block(|bytes, behind| self.sender.block_end(id, &plan, bytes, behind, most, now)),
            None => flow.out.pop_block(most),
        };
        let Some((offset, plain, fin)) = block else { return true };
        self.stats.delivered_out += plain.len() as u64;
        let limit = self.budget.queue_limit(flows, self.sender.load().kept_bytes);
        if flow.out.waits_for_room && flow.out.has_room_again(limit) {
            flow.out.waits_for_room = false;
            self.events.push_back(Event::FlowWritable(id));
        }
        self.pacing.sent(plain.len(), configured.is_some() && plan.is_none());
        if plan.is_some() {
            self.note_filled(LogSide::Out, plain.len());
        }
        self.sender.handle_payload(Payload { flow: id, offset, plain, fin, plan }, lane, now, out);
        true
    }
}
