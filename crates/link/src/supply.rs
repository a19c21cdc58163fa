//! Supply of lanes: how many an end needs, dials, and asks its peer for.

use std::collections::BTreeMap;

use oncewire_codec::Now;
use oncewire_codec::wire::{LaneId, LaneRole};

use crate::config::LinkConfig;
use crate::lane_budget::LaneBudget;
use crate::lanes::Lanes;
use crate::renewal::LaneReport;
use crate::wear::Stay;

/// The needs of both ends.
#[derive(Debug)]
pub(crate) struct LaneSupply {
    /// Whether this side dials.
    dials: bool,
    /// Flow lanes at most.
    max: u32,
    /// Flow lanes kept warm beyond those in use.
    spare: u32,
    budget: LaneBudget,
    /// At the dialling side: missing lanes, as the shell was told.
    missing: BTreeMap<LaneRole, u32>,
    /// At the dialling side: the peer's need of flow lanes.
    peer_needs: u32,
    /// At the accepting side: the need of flow lanes as the peer was told.
    told: u32,
    /// Start of a smaller need.
    fewer_since: Option<Now>,
}

/// Time of a smaller need before the peer is told: it leaves spare lanes only after twice as long.
const FEWER_AFTER: Now = Now::from_secs(30);
/// Time until an unused lane beyond the warm ones is left.
const IDLE_LANE: Now = Now::from_secs(60);
/// Looks at each lane until they are reviewed together.
const LOOKS: u32 = 3;

impl LaneSupply {
    /// Starts without a need.
    pub(crate) fn new(config: &LinkConfig) -> Self {
        Self {
            dials: config.dialer,
            max: config.max_lanes,
            spare: config.spare_lanes,
            budget: LaneBudget::new(config.max_lanes),
            missing: BTreeMap::new(),
            peer_needs: 0,
            told: 0,
            fewer_since: None,
        }
    }

    /// Returns the flow lanes of use at a time, by the path.
    pub(crate) fn budget(&self) -> u32 {
        self.budget.lanes()
    }

    /// Reviews the path by the reports on all lanes, now and then, with looks at lanes so far apart; returns whether it
    /// did.
    pub(crate) fn review(&mut self, lanes: &Lanes, look_after: Now, now: Now) -> bool {
        let pause = look_after * LOOKS;
        let is_due = self.budget.is_due(pause, now);
        if is_due {
            let since = now.saturating_sub(pause);
            let busy: Vec<LaneReport> =
                lanes.iter().filter_map(|(_, lane)| lane.wear.busy_since(since)).collect();
            self.budget.handle_busy(&busy);
        }
        is_due
    }

    /// Starts over with a new instance of the peer.
    pub(crate) fn meet(&mut self) {
        (self.peer_needs, self.told) = (0, 0);
    }

    /// Returns this side's need of flow lanes: one for each active flow while the path has room, and warm ones.
    fn needed(&self, lanes: &Lanes) -> u32 {
        (lanes.flows().min(self.budget.lanes()) + self.spare).min(self.max.max(1))
    }

    /// Returns the need of both sides.
    fn flow_lanes(&self, lanes: &Lanes) -> u32 {
        self.needed(lanes).max(self.peer_needs.min(self.max))
    }

    /// Takes the peer's need of flow lanes.
    pub(crate) fn handle_wanted(&mut self, count: u32) {
        self.peer_needs = count;
    }

    /// At the dialling side: returns the missing lanes by role where their number has changed.
    pub(crate) fn take_missing(&mut self, lanes: &Lanes) -> Vec<(LaneRole, u32)> {
        if !self.dials {
            return Vec::new();
        }
        let needs = [(LaneRole::Control, 1), (LaneRole::Repair, 1), (LaneRole::Flow, self.flow_lanes(lanes))];
        let missing = needs.map(|(role, need)| (role, need.saturating_sub(lanes.kept(role))));
        let is_news =
            |&(role, count): &(LaneRole, u32)| self.missing.insert(role, count).unwrap_or(0) != count;
        missing.into_iter().filter(is_news).collect()
    }

    /// Whether no flow lane is missing, as the shell was told.
    pub(crate) fn lacks_none(&self) -> bool {
        self.missing.get(&LaneRole::Flow) == Some(&0)
    }

    /// At the accepting side: takes a larger need, to be told to the peer.
    pub(crate) fn take_larger_need(&mut self, lanes: &Lanes) -> Option<u32> {
        let needed = self.needed(lanes);
        let is_larger = !self.dials && needed > self.told && !lanes.is_empty();
        is_larger.then(|| self.tell(needed))
    }

    /// At the accepting side: takes a need that is smaller since long. Flows pause and go on.
    pub(crate) fn take_smaller_need(&mut self, lanes: &Lanes, now: Now) -> Option<u32> {
        let needed = self.needed(lanes);
        if self.dials || needed >= self.told || lanes.is_empty() {
            self.fewer_since = None;
            return None;
        }
        let is_due = now >= *self.fewer_since.get_or_insert(now) + FEWER_AFTER;
        is_due.then(|| self.tell(needed))
    }

    /// At the accepting side: takes the present need, told again on a new control lane.
    pub(crate) fn take_need(&mut self, lanes: &Lanes) -> Option<u32> {
        let needed = self.needed(lanes);
        (!self.dials && !lanes.is_empty()).then(|| self.tell(needed))
    }

    fn tell(&mut self, needed: u32) -> u32 {
        (self.told, self.fewer_since) = (needed, None);
        needed
    }

    /// Returns spare lanes of this side without use for a while, to be left. `first` says whether this end has the
    /// smaller key. If both sides dial, one waits for longer: both would leave the same surplus, and dial it again.
    pub(crate) fn idle(&self, lanes: &Lanes, first: bool, now: Now) -> Vec<LaneId> {
        let waits = !first && lanes.iter().any(|(_, lane)| !lane.dialled);
        let idle_for = if waits { IDLE_LANE * 5 / 4 } else { IDLE_LANE };
        let surplus = lanes.kept(LaneRole::Flow).saturating_sub(self.flow_lanes(lanes));
        let idle = lanes.iter().filter(|(_, lane)| {
            let is_kept = lane.wear.stay() == Stay::Kept;
            let is_spare = lane.role == LaneRole::Flow && lane.flows == 0 && is_kept;
            lane.dialled && is_spare && lane.used + idle_for <= now
        });
        idle.map(|(id, _)| id).take(surplus as usize).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn supply(dialer: bool) -> LaneSupply {
        let config = LinkConfig { dialer, max_lanes: 8, spare_lanes: 1, ..LinkConfig::default() };
        LaneSupply::new(&config)
    }

    fn lanes(flows: &[u32]) -> Lanes {
        let mut lanes = Lanes::default();
        lanes.insert(LaneId(100), LaneRole::Control, true, Now::ZERO);
        for (id, &flows) in (0..).map(LaneId).zip(flows) {
            lanes.insert(id, LaneRole::Flow, true, Now::ZERO);
            lanes.get_mut(id).unwrap().flows = flows;
        }
        lanes
    }

    #[test]
    fn missing_lanes_are_told_when_they_change() {
        let mut supply = supply(true);
        let roles = [(LaneRole::Control, 1), (LaneRole::Repair, 1), (LaneRole::Flow, 1)];
        assert_eq!(supply.take_missing(&Lanes::default()), roles);
        assert_eq!(supply.take_missing(&Lanes::default()), []);
        let news = supply.take_missing(&lanes(&[1, 1]));
        assert_eq!(news, [(LaneRole::Control, 0)]);
        supply.handle_wanted(20);
        assert_eq!(supply.take_missing(&lanes(&[1, 1])), [(LaneRole::Flow, 6)], "no more than the most");
    }

    #[test]
    fn accepting_side_tells_more_at_once_and_fewer_later() {
        let mut supply = supply(false);
        assert_eq!(supply.take_missing(&lanes(&[])), []);
        assert_eq!(supply.take_larger_need(&Lanes::default()), None, "nobody is there");
        assert_eq!(supply.take_larger_need(&lanes(&[1, 1])), Some(3));
        assert_eq!(supply.take_larger_need(&lanes(&[1, 1])), None);
        assert_eq!(supply.take_smaller_need(&lanes(&[1]), Now::ZERO), None);
        assert_eq!(supply.take_smaller_need(&lanes(&[1, 1]), FEWER_AFTER), None, "it is in use again");
        assert_eq!(supply.take_smaller_need(&lanes(&[1]), FEWER_AFTER), None);
        assert_eq!(supply.take_smaller_need(&lanes(&[1]), FEWER_AFTER * 2), Some(2));
        assert_eq!(supply.take_need(&lanes(&[1])), Some(2));
    }

    #[test]
    fn surplus_is_idle_after_a_minute_or_more() {
        let supply = supply(true);
        let mut lanes = lanes(&[1, 0, 0, 0]);
        assert_eq!(supply.idle(&lanes, true, IDLE_LANE - Now::from_millis(1)), []);
        assert_eq!(supply.idle(&lanes, true, IDLE_LANE), [LaneId(1), LaneId(2)]);
        lanes.insert(LaneId(9), LaneRole::Repair, false, Now::ZERO);
        assert_eq!(supply.idle(&lanes, false, IDLE_LANE), [], "the peer has its turn first");
        assert_eq!(supply.idle(&lanes, false, IDLE_LANE * 5 / 4).len(), 2);
    }
}
