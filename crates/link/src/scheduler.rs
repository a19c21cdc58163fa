//! Scheduling of a link: the turns of lanes and classes, under a limit or without, and flows in want of room.

use oncewire_codec::Now;
use oncewire_codec::contract::PendingChunks;
use oncewire_codec::transfer::MAX_UNACKED;
use oncewire_codec::wire::{FlowId, LaneId, MAX_BLOCK};

use crate::lanes::Lanes;
use crate::limit::Limiter;
use crate::sharing::{Answers, Priority};
use crate::unsent::MOST_UNSENT_OF_REPAIRS;

/// The limit of a link, if it has one, and whether flows wait for room.
#[derive(Debug)]
pub(crate) struct Scheduler {
    limiter: Option<Limiter>,
    /// Whether flows were put aside because too much is unacknowledged.
    is_out_of_room: bool,
}

/// A call of the link stops adding frames beyond this many bytes.
pub(crate) const TARGET: usize = 64 * 1024;

impl Scheduler {
    /// Starts with the configured limit, in bits a second.
    pub(crate) fn new(rate_limit: Option<u64>) -> Self {
        Self { limiter: rate_limit.map(Limiter::new), is_out_of_room: false }
    }

    /// Whether there is a limit; under one no lane brings sooner what another waits to send.
    pub(crate) fn is_limited(&self) -> bool {
        self.limiter.is_some()
    }

    /// Returns the bytes of one block at most.
    pub(crate) fn block_limit(&self) -> usize {
        self.limiter.as_ref().map_or(MAX_BLOCK, Limiter::block_limit)
    }

    /// Returns the bytes of repairs at once. Their lane may be slow, so it takes little where others help.
    pub(crate) fn repair_limit(&self) -> usize {
        if self.is_limited() { TARGET } else { MOST_UNSENT_OF_REPAIRS as usize }
    }

    /// Whether a lane helps the lane of repairs: one with flows has the congestion window of their bytes.
    pub(crate) fn helps(&self, lanes: &Lanes, lane: LaneId) -> bool {
        !self.is_limited() && lanes.get(lane).is_some_and(|lane| lane.flows > 0)
    }

    /// Counts frames against the limit.
    pub(crate) fn spend(&mut self, frames: &[u8], now: Now) {
        if let Some(limiter) = &mut self.limiter {
            limiter.spend(frames, now);
        }
    }

    /// Counts bytes of a class.
    pub(crate) fn charge(&mut self, lanes: &mut Lanes, lane: LaneId, class: Priority, bytes: usize) {
        match &mut self.limiter {
            Some(limiter) => limiter.charge(class, bytes),
            None => {
                if let Some(lane) = lanes.get_mut(lane) {
                    lane.turns.charge(class, bytes);
                }
            }
        }
    }

    /// Returns the class of the lane's next item, if it is the lane's turn.
    pub(crate) fn turn(&mut self, lanes: &mut Lanes, lane: LaneId, now: Now) -> Option<Priority> {
        match &mut self.limiter {
            None => lanes.get_mut(lane)?.turns.pick(),
            Some(limiter) => limiter.ask(lane, lanes, now),
        }
    }

    /// Ends the lane's turn.
    pub(crate) fn end_turn(&mut self) {
        if let Some(limiter) = &mut self.limiter {
            limiter.end_turn();
        }
    }

    /// Takes a lane out of those in wait: it was given something, or is gone. Returns the next one to wake.
    pub(crate) fn leave(&mut self, lanes: &Lanes, lane: LaneId, now: Now) -> Option<LaneId> {
        self.limiter.as_mut()?.leave(lane);
        self.call(lanes, now)
    }

    /// Returns the lane to wake, if the limit allows another block.
    pub(crate) fn call(&mut self, lanes: &Lanes, now: Now) -> Option<LaneId> {
        self.limiter.as_mut()?.call(lanes, now)
    }

    /// Returns when [`Self::call`] may have a lane.
    pub(crate) fn next_call(&self) -> Option<Now> {
        self.limiter.as_ref().and_then(Limiter::next_call)
    }

    /// Puts a flow aside until there is room; its turn would be of no use.
    pub(crate) fn hold(&mut self, lanes: &mut Lanes, lane: LaneId, class: Priority, flow: FlowId) {
        self.is_out_of_room = true;
        if let Some(lane) = lanes.get_mut(lane) {
            lane.turns.hold(class, flow);
        }
    }

    /// Whether flows wait for room.
    pub(crate) fn is_out_of_room(&self) -> bool {
        self.is_out_of_room
    }

    /// Gives flows in wait for room their turns back; returns the lanes to wake.
    pub(crate) fn release(&mut self, lanes: &mut Lanes) -> Vec<LaneId> {
        self.is_out_of_room = false;
        lanes.iter_mut().filter_map(|(id, lane)| lane.turns.release().then_some(id)).collect()
    }

    /// Queues the chunks of a block for their turns, if there is a limit. Returns whether so many wait for the repair lane
    /// that some may be acknowledged by now.
    pub(crate) fn queue_answers(
        &self,
        lanes: &mut Lanes,
        seq: u64,
        asked: &PendingChunks,
        class: Priority,
    ) -> bool {
        if self.limiter.is_none() {
            return false;
        }
        if asked.any_lane {
            lanes.answers.insert(class, asked.flow, seq);
        }
        if let Some(lane) = asked.lane.and_then(|lane| lanes.get_mut(lane)) {
            lane.turns.push_answer(class, asked.flow, seq);
        }
        asked.any_lane && has_old(&lanes.answers)
    }
}

/// Whether more answers wait than blocks can be unacknowledged, twice over: the repair lane takes nothing.
fn has_old(answers: &Answers) -> bool {
    answers.len() as u64 > 2 * Priority::ALL.len() as u64 * MAX_UNACKED
}

#[cfg(test)]
mod tests {
    use oncewire_codec::wire::LaneRole;

    use super::*;

    const LANE: LaneId = LaneId(1);

    fn lanes(flows: &[u32]) -> Lanes {
        let mut lanes = Lanes::default();
        lanes.insert(LANE, LaneRole::Flow, true, Now::ZERO);
        let lane = lanes.get_mut(LANE).unwrap();
        flows.iter().for_each(|&flow| lane.turns.push_back(Priority::Normal, FlowId(flow)));
        lane.flows = flows.len() as u32;
        lanes
    }

    #[test]
    fn held_flows_get_their_turns_back_in_order() {
        let (mut lanes, mut scheduler) = (lanes(&[1, 3]), Scheduler::new(None));
        for flow in [1, 3] {
            let class = scheduler.turn(&mut lanes, LANE, Now::ZERO).unwrap();
            let popped = lanes.get_mut(LANE).unwrap().turns.pop(class);
            assert_eq!(popped, Some(FlowId(flow)));
            scheduler.hold(&mut lanes, LANE, class, FlowId(flow));
        }
        assert_eq!(scheduler.turn(&mut lanes, LANE, Now::ZERO), None);
        assert!(scheduler.is_out_of_room());
        assert_eq!(scheduler.release(&mut lanes), [LANE]);
        assert!(!scheduler.is_out_of_room());
        assert_eq!(lanes.get_mut(LANE).unwrap().turns.pop(Priority::Normal), Some(FlowId(1)));
    }

    #[test]
    fn lanes_wait_for_the_limit_and_are_called() {
        let (mut lanes, mut scheduler) = (lanes(&[1]), Scheduler::new(Some(8_000)));
        assert!(scheduler.is_limited() && !scheduler.helps(&lanes, LANE));
        scheduler.spend(&[7; 1000], Now::ZERO);
        assert_eq!(scheduler.turn(&mut lanes, LANE, Now::ZERO), None);
        scheduler.end_turn();
        let at = scheduler.next_call().unwrap();
        assert!(at >= Now::from_secs(1));
        assert_eq!(scheduler.call(&lanes, at), Some(LANE));
        assert_eq!(scheduler.turn(&mut lanes, LANE, at), Some(Priority::Normal));
    }

    #[test]
    fn answers_wait_for_turns_only_under_a_limit() {
        let asked = PendingChunks { flow: FlowId(1), any_lane: true, lane: Some(LANE) };
        for limit in [None, Some(8_000)] {
            let mut lanes = lanes(&[]);
            let is_full = Scheduler::new(limit).queue_answers(&mut lanes, 7, &asked, Priority::Bulk);
            assert!(!is_full);
            assert_eq!(lanes.answers.is_empty(), limit.is_none());
        }
    }
}
