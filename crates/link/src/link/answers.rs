//! Answers to chunk requests under a limit: they have turns, like blocks.
//!
//! They need no room among unacknowledged bytes, and others' room may wait for them, so a lane asks for its turn
//! while it has any, also with all its flows held.

use oncewire_codec::contract::Repair;
use oncewire_codec::transfer::MAX_UNACKED;
use oncewire_codec::wire::{LaneId, LaneRole};

use super::Link;
use crate::limit::Limiter;
use crate::sharing::{Answered, Answers, Priority};

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
        let asked = self.sender.asked_of(seq)?;
        if self.limiter.is_some() {
            let flow = self.flows.get(&asked.flow);
            let class = flow.map_or(Priority::Normal, |flow| flow.priority(self.config.bulk_after));
            if asked.repairs {
                self.lanes.answers.insert(class, asked.flow, seq);
                self.drop_old_answers();
            }
            if let Some(lane) = asked.lane.and_then(|lane| self.lanes.get_mut(lane)) {
                lane.turns.push_answer(class, asked.flow, seq);
            }
        }
        asked.lane
    }

    /// If the lane of repairs takes nothing, blocks may be acknowledged with chunks still in wait for it.
    fn drop_old_answers(&mut self) {
        if self.lanes.answers.len() as u64 > 2 * Priority::ALL.len() as u64 * MAX_UNACKED {
            let sender = &self.sender;
            self.lanes.answers.retain(|seq| sender.asked_of(seq).is_some_and(|asked| asked.repairs));
        }
    }

    /// Appends an answer of a class, as long as a block may be, if it is the turn of answers; returns whether it was.
    pub(super) fn put_answer(&mut self, class: Priority, lane: LaneId, out: &mut Vec<u8>) -> bool {
        let Some(most) = self.limiter.as_ref().map(Limiter::block_limit) else { return false };
        let Self { lanes, sender, .. } = self;
        let answered = lanes.pop_answer(lane, class, |seq, which| {
            let own = (which == Answered::ByLane).then_some(lane);
            sender.poll_repair(Repair::Answer { seq, lane: own, most }, out)
        });
        let Some(seq) = answered else { return false };
        // The rest waits on.
        self.queue_answers(seq);
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.turns.note_answered(class);
        }
        true
    }

    /// Another lane may be the lane of repairs from now on.
    pub(super) fn wake_for_answers(&mut self) {
        if !self.lanes.answers.is_empty()
            && let Some(lane) = self.lanes.for_role(LaneRole::Repair)
        {
            self.wake(lane);
        }
    }

    /// Forgets answers for an earlier instance of the peer.
    pub(super) fn forget_answers(&mut self) {
        self.lanes.answers = Answers::default();
    }
}
