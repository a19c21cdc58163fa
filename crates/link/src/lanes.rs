//! The lanes of a link, and which flow travels on which.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use oncewire_codec::Now;
use oncewire_codec::wire::{LaneId, LaneRole};

use crate::sharing::Turns;

/// One lane.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) role: LaneRole,
    /// Whether this side dialled it.
    pub(crate) dialled: bool,
    /// Flows that belong to the lane.
    pub(crate) flows: u32,
    /// Flows that have something to send.
    pub(crate) turns: Turns,
    /// Whether the shell was told that there is something to send and has not found nothing since.
    pub(crate) woken: bool,
    pub(crate) heard: Now,
    /// When it was first to be asked for a sign of life since it was heard.
    pub(crate) asked: Option<Now>,
    pub(crate) pinged: Now,
    pub(crate) used: Now,
    pub(crate) pongs: VecDeque<u64>,
    pub(crate) ping_due: bool,
}

impl Lane {
    /// Something arrived on the lane. A question that waits for the lane's writer is still to be answered.
    pub(crate) fn hear(&mut self, now: Now) {
        self.heard = now;
        self.asked = self.ping_due.then_some(now);
    }

    /// The lane is to ask for a sign of life.
    pub(crate) fn ask(&mut self, now: Now) {
        self.ping_due = true;
        self.asked.get_or_insert(now);
    }

    /// When the lane is dead unless it is heard before. It is asked four times in the time `dead` after which it is, and
    /// that may have been longer when it was asked last.
    pub(crate) fn silent_at(&self, dead: Now) -> Option<Now> {
        Some((self.heard + dead).max(self.asked? + dead * 3 / 4))
    }
}

/// All lanes.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    lanes: BTreeMap<LaneId, Lane>,
    /// The same by their roles, which are looked for whenever a lane has room.
    by_role: BTreeSet<(LaneRole, LaneId)>,
}

/// Answers to pings that wait on one lane; more are dropped, the newest count.
pub(crate) const MAX_PONGS: usize = 8;

impl Lanes {
    pub(crate) fn insert(&mut self, id: LaneId, role: LaneRole, dialled: bool, now: Now) {
        let lane = Lane {
            role,
            dialled,
            flows: 0,
            turns: Turns::default(),
            woken: false,
            heard: now,
            asked: None,
            pinged: now,
            used: now,
            pongs: VecDeque::new(),
            ping_due: false,
        };
        if let Some(before) = self.lanes.insert(id, lane) {
            self.by_role.remove(&(before.role, id));
        }
        self.by_role.insert((role, id));
    }

    pub(crate) fn remove(&mut self, id: LaneId) -> Option<Lane> {
        let lane = self.lanes.remove(&id)?;
        self.by_role.remove(&(lane.role, id));
        Some(lane)
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

    /// Flow lanes that carry a flow.
    pub(crate) fn busy(&self) -> u32 {
        self.lanes.values().filter(|lane| lane.role == LaneRole::Flow && lane.flows > 0).count() as u32
    }

    /// The lane for frames of a class: of the role if there is one, else any; control before others.
    pub(crate) fn for_role(&self, role: LaneRole) -> Option<LaneId> {
        let of_role = self.by_role.range((role, LaneId(0))..).next().filter(|(its, _)| *its == role);
        of_role.or_else(|| self.by_role.first()).map(|&(_, id)| id)
    }

    /// The lane for a flow that has none: its last one if that is free, since its entropy context is in step
    /// there; else the flow lane with the fewest flows, the warmest first; else any.
    pub(crate) fn for_flow(&self, last: Option<LaneId>) -> Option<LaneId> {
        if let Some(last) = last
            && self.lanes.get(&last).is_some_and(|lane| lane.role == LaneRole::Flow && lane.flows == 0)
        {
            return Some(last);
        }
        self.lanes
            .iter()
            .min_by_key(|(_, lane)| (lane.role != LaneRole::Flow, lane.flows, std::cmp::Reverse(lane.used)))
            .map(|(&id, _)| id)
    }
}
