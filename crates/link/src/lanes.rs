//! The lanes of a link, and the lane of each flow.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use oncewire_codec::Now;
use oncewire_codec::wire::{LaneId, LaneRole};

use crate::pulse::Pulse;
use crate::sharing::{Answered, Answers, ByClass, Priority, Turns};
use crate::timing::Timing;
use crate::wear::{Stay, Wear};

/// One lane.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) role: LaneRole,
    /// Its place in the order of lanes.
    nth: u64,
    /// Whether this side dialled it.
    pub(crate) dialled: bool,
    /// Flows of the lane.
    pub(crate) flows: u32,
    /// Flows and answers in wait, in turn.
    pub(crate) turns: Turns,
    /// Whether the shell was told of work, and has not asked in vain since.
    pub(crate) woken: bool,
    /// Whether a frame has come in part.
    pub(crate) is_within: bool,
    /// Whether anything has arrived on it.
    pub(crate) is_proven: bool,
    pub(crate) used: Now,
    pub(crate) pulse: Pulse,
    pub(crate) wear: Wear,
}

impl Lane {
    /// Whether this end has nothing unacknowledged on it, and nothing to say.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.flows == 0 && !self.woken
    }

    /// Returns when the next question is due; `probes` says whether the lane stands for the whole link.
    pub(crate) fn ask_at(&self, timing: &Timing, probes: bool) -> Option<Now> {
        let waits = self.flows > 0 || self.role == LaneRole::Repair;
        self.pulse.ask_at(timing, waits, probes)
    }

    /// Takes a flow off the lane whose items are acknowledged.
    pub(crate) fn settle(&mut self, now: Now) {
        self.flows = self.flows.saturating_sub(1);
        self.used = now;
        if self.flows == 0 {
            self.pulse.settle();
        }
    }
}

/// All lanes.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    lanes: BTreeMap<LaneId, Lane>,
    /// The lanes by role, the newest of each first, for the look-up at each turn.
    by_role: BTreeSet<(LaneRole, Reverse<u64>, LaneId)>,
    /// All lanes so far.
    count: u64,
    /// Blocks with chunks in wait for the present repair lane.
    pub(crate) answers: Answers,
}

impl Lanes {
    pub(crate) fn insert(&mut self, id: LaneId, role: LaneRole, dialled: bool, now: Now) {
        let lane = Lane {
            role,
            nth: self.count,
            dialled,
            flows: 0,
            turns: Turns::default(),
            woken: false,
            is_within: false,
            is_proven: false,
            used: now,
            pulse: Pulse::new(now),
            wear: Wear::new(now),
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

    /// Gives a lane no more flows, and no frames of its role; its present flows go on.
    pub(crate) fn leave(&mut self, id: LaneId) {
        if let Some(lane) = self.lanes.get_mut(&id)
            && lane.wear.leave()
        {
            self.by_role.remove(&(lane.role, Reverse(lane.nth), id));
        }
    }

    /// Keeps lanes whose successor was refused.
    pub(crate) fn keep_refused(&mut self, now: Now) {
        let accepted = self.lanes.values_mut().filter(|lane| !lane.dialled);
        accepted.for_each(|lane| lane.wear.keep_if_refused(now));
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

    /// Returns the names of all lanes.
    pub(crate) fn ids(&self) -> Vec<LaneId> {
        self.lanes.keys().copied().collect()
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

    /// Counts lanes of a role that stay, as far as this side has a say: the peer replaces its own.
    pub(crate) fn kept(&self, role: LaneRole) -> u32 {
        let stays = |lane: &Lane| match lane.wear.stay() {
            Stay::Kept => true,
            Stay::Worn => !lane.dialled,
            Stay::Left { .. } => false,
        };
        self.lanes.values().filter(|lane| lane.role == role && stays(lane)).count() as u32
    }

    /// Counts flow lanes with flows.
    pub(crate) fn busy(&self) -> u32 {
        self.lanes.values().filter(|lane| lane.role == LaneRole::Flow && lane.flows > 0).count() as u32
    }

    /// Counts flows on lanes.
    pub(crate) fn flows(&self) -> u32 {
        self.lanes.values().map(|lane| lane.flows).sum()
    }

    /// The lane for frames of a role: one of the role if there is any, else another; control before others. Of several
    /// the newest: the peer may have dialled it since the older is dead.
    pub(crate) fn for_role(&self, role: LaneRole) -> Option<LaneId> {
        let of_role = self
            .by_role
            .range((role, Reverse(u64::MAX), LaneId(0))..)
            .next()
            .filter(|(its, ..)| *its == role);
        of_role.or_else(|| self.by_role.first()).map(|&(.., id)| id)
    }

    /// Returns the classes with something in wait for a turn of the lane.
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

    /// The lane for a flow without one: its last one if that is free, since its entropy context is in step there; else
    /// the flow lane with the fewest flows, staying and warm ones first; else any. Once `room` lanes carry flows, one of
    /// them.
    pub(crate) fn for_flow(&self, last: Option<LaneId>, room: u32) -> Option<LaneId> {
        let shares = self.busy() >= room;
        if let Some(last) = last
            && !shares
            && let Some(lane) = self.lanes.get(&last)
            && (lane.role, lane.flows, lane.wear.stay()) == (LaneRole::Flow, 0, Stay::Kept)
            && !lane.pulse.is_doubted()
        {
            return Some(last);
        }
        self.lanes
            .iter()
            .filter(|(_, lane)| !lane.wear.is_left())
            .min_by_key(|(_, lane)| {
                let is_worn = lane.wear.stay() == Stay::Worn;
                let is_free = lane.flows == 0;
                (
                    lane.pulse.is_doubted(),
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
    fn newest_lane_of_a_role_is_used_first() {
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

    #[test]
    fn left_lanes_take_no_flows() {
        let mut lanes = Lanes::default();
        (1..3).for_each(|id| lanes.insert(LaneId(id), LaneRole::Flow, true, Now::ZERO));
        lanes.leave(LaneId(1));
        assert_eq!(lanes.for_flow(Some(LaneId(1)), 9), Some(LaneId(2)));
        assert!(lanes.any_left() && lanes.kept(LaneRole::Flow) == 1);
        lanes.leave(LaneId(2));
        assert_eq!(lanes.for_flow(None, 9), None);
    }
}
