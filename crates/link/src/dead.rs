//! Lanes given up by this end and perhaps still used by the peer.

use std::collections::VecDeque;

use oncewire_codec::Now;
use oncewire_codec::wire::LaneId;

/// Lanes given up out of order, perhaps without the peer's knowledge: the news may be lost with the lane it was sent
/// on.
#[derive(Debug, Default)]
pub(crate) struct DeadLanes {
    lanes: VecDeque<Dead>,
}

#[derive(Debug)]
struct Dead {
    id: LaneId,
    /// The lane of the news, and the time.
    told: Option<(LaneId, Now)>,
}

impl DeadLanes {
    /// Adds a lane; of more than there can be at a time the oldest is forgotten.
    pub(crate) fn add(&mut self, id: LaneId) {
        if self.lanes.len() == crate::MAX_LANES {
            self.lanes.pop_front();
        }
        self.lanes.push_back(Dead { id, told: None });
    }

    /// Forgets a lane known to the peer as dead.
    pub(crate) fn remove(&mut self, id: LaneId) {
        self.lanes.retain(|dead| dead.id != id);
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        self.lanes.clear();
    }

    /// Takes those without news to the peer on this lane, the one for control frames.
    pub(crate) fn tell(&mut self, on: LaneId, now: Now) -> impl Iterator<Item = LaneId> {
        let due = self.lanes.iter_mut().filter(move |dead| dead.told.is_none_or(|(lane, _)| lane != on));
        due.map(move |dead| {
            dead.told = Some((on, now));
            dead.id
        })
    }

    /// The peer has answered a ping of that time on a lane: it has all earlier frames of the lane.
    pub(crate) fn handle_pong(&mut self, on: LaneId, asked: Now) {
        self.lanes.retain(|dead| dead.told.is_none_or(|(lane, at)| lane != on || at >= asked));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ON: [LaneId; 2] = [LaneId(100), LaneId(200)];

    fn told(dead: &mut DeadLanes, on: LaneId, secs: u64) -> Vec<u64> {
        dead.tell(on, Now::from_secs(secs)).map(|id| id.0).collect()
    }

    #[test]
    fn peer_is_told_once_on_each_lane_until_a_pong() {
        let mut dead = DeadLanes::default();
        [1, 2].into_iter().for_each(|id| dead.add(LaneId(id)));
        assert_eq!(told(&mut dead, ON[0], 1), [1, 2]);
        assert_eq!(told(&mut dead, ON[0], 2), []);
        dead.add(LaneId(3));
        assert_eq!(told(&mut dead, ON[0], 3), [3]);
        dead.handle_pong(ON[1], Now::from_secs(9));
        dead.handle_pong(ON[0], Now::from_secs(1));
        assert_eq!(told(&mut dead, ON[1], 4), [1, 2, 3], "the answer was to what was asked before");
        dead.handle_pong(ON[1], Now::from_secs(5));
        assert_eq!(told(&mut dead, ON[0], 6), []);
    }

    #[test]
    fn no_more_are_kept_than_there_can_be_lanes() {
        let mut dead = DeadLanes::default();
        (0..5000).for_each(|id| dead.add(LaneId(id)));
        let told = told(&mut dead, ON[0], 1);
        assert_eq!((told.len(), told.last()), (crate::MAX_LANES, Some(&4999)));
    }
}
