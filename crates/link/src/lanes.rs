//! The lanes of a link, and their flows.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use oncewire_codec::Now;
use oncewire_codec::wire::{LaneId, LaneRole};

use crate::renewal::LaneReport;
use crate::sharing::{Answered, Answers, ByClass, Priority, Turns};
use crate::timing::Timing;

/// One lane.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) role: LaneRole,
    /// How many came before it.
    nth: u64,
    /// Whether this side dialled it.
    pub(crate) dialled: bool,
    /// The number of the lane's flows.
    pub(crate) flows: u32,
    /// Its flows with something to send.
    pub(crate) turns: Turns,
    /// Whether the shell was told of something to send and has not found nothing since.
    pub(crate) woken: bool,
    pub(crate) heard: Now,
    /// When it was first to be asked for a sign of life since it was heard.
    pub(crate) asked: Option<Now>,
    /// Whether it had been silent for so long that it may be dead.
    pub(crate) doubted: bool,
    /// Whether it was last heard because it was asked: then it is the peer's turn to ask.
    pub(crate) answered: bool,
    pub(crate) pinged: Now,
    /// Bytes on it since then, both ways.
    pub(crate) moved: u64,
    /// Whether a frame has come in part.
    pub(crate) is_within: bool,
    /// When something beside pings was first sent on it since it was heard.
    pub(crate) spoke: Option<Now>,
    pub(crate) used: Now,
    pub(crate) pongs: VecDeque<u64>,
    pub(crate) ping_due: bool,
    /// Whether anything has arrived on it since it is up.
    pub(crate) is_proven: bool,
    pub(crate) stay: Stay,
    /// Whether the dialling side is to be asked for another in its place.
    pub(crate) worn_due: bool,
    /// The time of this decision.
    pub(crate) worn_at: Now,
    /// Bytes sent on it beside pings.
    pub(crate) sent: u64,
    /// When it was last.
    pub(crate) sent_at: Now,
    /// When its connection is to be looked at, if it carried something since it was last.
    pub(crate) look_at: Option<Now>,
    /// The kernel's last report of it with more to send than its window, and the time.
    pub(crate) busy: Option<(Now, LaneReport)>,
}

/// How long a lane is to stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stay {
    /// For as long as there is use for it.
    Kept,
    /// Until another is up in its place; at the accepting side, without knowledge of that, for [`ASKED_FOR`].
    Worn,
    /// Until neither end has a flow on it; no other is given it.
    Left {
        /// Whether the accepting side was told.
        told: bool,
    },
}

impl Lane {
    /// Whether no flow is given to it any more.
    pub(crate) fn is_left(&self) -> bool {
        matches!(self.stay, Stay::Left { .. })
    }

    /// Whether this end has nothing unacknowledged on it, and nothing to say.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.flows == 0 && !self.woken
    }

    /// Something arrived on the lane. A question still with the lane's writer remains to be answered.
    pub(crate) fn hear(&mut self, now: Now) {
        self.heard = now;
        self.asked = self.ping_due.then_some(now);
        (self.doubted, self.answered, self.spoke) = (false, false, None);
    }

    /// The lane is to ask for a sign of life.
    pub(crate) fn ask(&mut self, now: Now) {
        self.ping_due = true;
        self.asked.get_or_insert(now);
    }

    /// The time of the lane's next ping, unless something arrives before; `probes` if it stands for the whole link as
    /// a sign of the peer's life.
    pub(crate) fn ask_at(&self, timing: &Timing, probes: bool) -> Option<Now> {
        if self.ping_due {
            return None;
        }
        let bulk = (self.moved >= BULK).then(|| self.pinged + timing.often);
        if self.asked.is_some() {
            return bulk;
        }
        let waits = self.flows > 0 || self.role == LaneRole::Repair;
        let owed = self.spoke.filter(|_| waits).map(|spoke| spoke + timing.often);
        let turn = if self.answered { timing.turn } else { Now::ZERO };
        let probe = probes.then(|| self.heard + timing.probe + turn);
        [bulk, owed, probe].into_iter().flatten().min()
    }

    /// When the lane is dead unless it is heard before.
    pub(crate) fn silent_at(&self, timing: &Timing) -> Option<Now> {
        let asked = self.asked?;
        Some(match self.doubted {
            true => asked + timing.doubt,
            false => (self.heard + timing.dead).max(asked + timing.answer),
        })
    }

    /// The time of the lane's ping, if its long silence was the reason.
    pub(crate) fn doubted_at(&self) -> Option<Now> {
        self.asked.filter(|_| self.doubted)
    }

    /// Flows on the lane have settled: everything sent for them is acknowledged.
    pub(crate) fn settle(&mut self, now: Now) {
        self.flows = self.flows.saturating_sub(1);
        self.used = now;
        self.spoke = self.spoke.filter(|_| self.flows > 0);
    }

    /// Whether the lane was neither heard nor asked since a time.
    pub(crate) fn is_unasked_since(&self, time: Now) -> bool {
        self.heard < time && self.asked.is_none() && !self.ping_due
    }

    /// Something beside pings is sent on the lane; returns whether a ping is to go with it, since after so long a
    /// silence an earlier one would have found it dead.
    pub(crate) fn speak(&mut self, bytes: u64, dead: Now, now: Now) -> bool {
        self.moved += bytes;
        // Before that it was acknowledged through another.
        let spoke = self.spoke.filter(|spoke| *spoke + dead > now);
        self.spoke = spoke.or(Some(now));
        if spoke.is_some() || self.asked.is_some() {
            return false;
        }
        self.doubted = self.heard + dead <= now;
        if self.doubted {
            (self.asked, self.pinged) = (Some(now), now);
        }
        self.doubted
    }
}

/// All lanes.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    lanes: BTreeMap<LaneId, Lane>,
    /// The same by their roles, for a search whenever a lane has room; of each role the newest first.
    by_role: BTreeSet<(LaneRole, Reverse<u64>, LaneId)>,
    /// How many there have been.
    count: u64,
    /// Blocks with chunks in wait for a turn of the current lane of repairs.
    pub(crate) answers: Answers,
}

/// A lane with so many bytes is asked for its round trip, in spite of other arrivals.
const BULK: u64 = 8 << 10;

/// The accepting side's wait for a lane in place of a degraded one. The dialling side may have refused after many
/// renewals, and does not remember.
const ASKED_FOR: Now = Now::from_secs(30);

/// Pending answers to pings on one lane; more are dropped, the newest count.
pub(crate) const MAX_PONGS: usize = 8;

impl Lanes {
    pub(crate) fn insert(&mut self, id: LaneId, role: LaneRole, dialled: bool, now: Now) {
        let lane = Lane {
            role,
            nth: self.count,
            dialled,
            flows: 0,
            turns: Turns::default(),
            woken: false,
            heard: now,
            asked: None,
            doubted: false,
            answered: false,
            pinged: now,
            moved: 0,
            is_within: false,
            spoke: None,
            used: now,
            pongs: VecDeque::new(),
            ping_due: false,
            is_proven: false,
            stay: Stay::Kept,
            worn_due: false,
            worn_at: now,
            sent: 0,
            sent_at: now,
            look_at: None,
            busy: None,
        };
        if let Some(before) = self.lanes.insert(id, lane) {
            self.by_role.remove(&(before.role, Reverse(before.nth), id));
        }
        self.by_role.insert((role, Reverse(self.count), id));
        self.count += 1;
    }

    pub(crate) fn remove(&mut self, id: LaneId) -> Option<Lane> {
        let lane = self.lanes.remove(&id)?;
        self.by_role.remove(&(lane.role, Reverse(lane.nth), id));
        Some(lane)
    }

    /// Gives a lane no more flows and frames of its role; its own ones go on.
    pub(crate) fn leave(&mut self, id: LaneId) {
        if let Some(lane) = self.lanes.get_mut(&id)
            && !lane.is_left()
        {
            lane.stay = Stay::Left { told: false };
            self.by_role.remove(&(lane.role, Reverse(lane.nth), id));
        }
    }

    /// Keeps lanes after a vain request for others.
    pub(crate) fn keep_refused(&mut self, now: Now) {
        for lane in self.lanes.values_mut() {
            if lane.stay == Stay::Worn && !lane.dialled && lane.worn_at + ASKED_FOR <= now {
                lane.stay = Stay::Kept;
            }
        }
    }

    /// Whether any lane is left and has not ended.
    pub(crate) fn any_left(&self) -> bool {
        self.by_role.len() != self.lanes.len()
    }

    pub(crate) fn get(&self, id: LaneId) -> Option<&Lane> {
        self.lanes.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: LaneId) -> Option<&mut Lane> {
        self.lanes.get_mut(&id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (LaneId, &Lane)> {
        self.lanes.iter().map(|(&id, lane)| (id, lane))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (LaneId, &mut Lane)> {
        self.lanes.iter_mut().map(|(&id, lane)| (id, lane))
    }

    pub(crate) fn len(&self) -> usize {
        self.lanes.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    pub(crate) fn count(&self, role: LaneRole) -> u32 {
        self.lanes.values().filter(|lane| lane.role == role).count() as u32
    }

    /// Lanes of a role to stay, as far as this side decides: the peer replaces its own itself.
    pub(crate) fn kept(&self, role: LaneRole) -> u32 {
        let stays = |lane: &Lane| lane.stay == Stay::Kept || lane.stay == Stay::Worn && !lane.dialled;
        self.lanes.values().filter(|lane| lane.role == role && stays(lane)).count() as u32
    }

    /// Flow lanes with a flow.
    pub(crate) fn busy(&self) -> u32 {
        self.lanes.values().filter(|lane| lane.role == LaneRole::Flow && lane.flows > 0).count() as u32
    }

    /// The lane for frames of a class: of the role if there is one, else any; control before others. Of several the
    /// newest: the older may be dead, and the newer its replacement.
    pub(crate) fn for_role(&self, role: LaneRole) -> Option<LaneId> {
        let of_role = self
            .by_role
            .range((role, Reverse(u64::MAX), LaneId(0))..)
            .next()
            .filter(|(its, ..)| *its == role);
        of_role.or_else(|| self.by_role.first()).map(|&(.., id)| id)
    }

    /// The classes with something to send on a lane, in wait for its turn.
    pub(crate) fn waits(&self, id: LaneId) -> ByClass<bool> {
        let mut waits = self.lanes.get(&id).map(|lane| lane.turns.waits()).unwrap_or_default();
        if !self.answers.is_empty() && self.for_role(LaneRole::Repair) == Some(id) {
            Priority::ALL.into_iter().for_each(|class| *waits.of_mut(class) |= self.answers.wait(class));
        }
        waits
    }

    /// Has `send` send the next answer of a lane, if it is the turn of answers; returns its block.
    pub(crate) fn pop_answer(
        &mut self,
        id: LaneId,
        class: Priority,
        send: impl FnMut(u64, Answered) -> bool,
    ) -> Option<u64> {
        let repairs = self.for_role(LaneRole::Repair) == Some(id);
        let Self { lanes, answers, .. } = self;
        lanes.get_mut(&id)?.turns.pop_answer(class, repairs.then_some(answers), send)
    }

    /// The lane for a flow without one: its last one if free, since its entropy context is in step there; else the
    /// flow lane with the fewest flows, those to stay and the warmest first; else any. Once `room` lanes carry flows,
    /// one of them.
    pub(crate) fn for_flow(&self, last: Option<LaneId>, room: u32) -> Option<LaneId> {
        let shares = self.busy() >= room;
        if let Some(last) = last
            && !shares
            && let Some(lane) = self.lanes.get(&last)
            && (lane.role, lane.flows, lane.stay) == (LaneRole::Flow, 0, Stay::Kept)
            && !lane.doubted
        {
            return Some(last);
        }
        self.lanes
            .iter()
            .filter(|(_, lane)| !lane.is_left())
            .min_by_key(|(_, lane)| {
                let is_worn = lane.stay == Stay::Worn;
                let is_free = lane.flows == 0;
                (
                    lane.doubted,
                    lane.role != LaneRole::Flow,
                    shares && is_free,
                    lane.flows,
                    is_worn,
                    Reverse(lane.used),
                )
            })
            .map(|(&id, _)| id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_lane_of_a_role_is_used() {
        let mut lanes = Lanes::default();
        for (id, role) in
            [(5, LaneRole::Control), (9, LaneRole::Control), (1, LaneRole::Control), (0, LaneRole::Flow)]
        {
            lanes.insert(LaneId(id), role, true, Now::ZERO);
        }
        let mut used = Vec::new();
        while let Some(id) = lanes.for_role(LaneRole::Control) {
            used.push(id.0);
            lanes.remove(id);
        }
        assert_eq!(used, [1, 9, 5, 0]);
    }
}
