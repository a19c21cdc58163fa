//! Liveness of a link: questions, silence, and the time without a lane.

use oncewire_codec::Now;
use oncewire_codec::wire::{LaneId, LaneRole};

use crate::dead::DeadLanes;
use crate::lanes::Lanes;
use crate::round_trip::RoundTrip;
use crate::timing::Timing;

/// The clock of a link's lanes.
#[derive(Debug)]
pub(crate) struct Liveness {
    /// The configured silence until a lane is dead.
    dead_after: Option<Now>,
    /// Whether this end has the smaller key: both would ask at the same time.
    first: bool,
    round_trip: RoundTrip,
    /// Lanes given up, for the peer to know.
    pub(crate) dead: DeadLanes,
    down_since: Option<Now>,
}

impl Liveness {
    /// Starts without a lane.
    pub(crate) fn new(dead_after: Option<Now>, first: bool, now: Now) -> Self {
        Self {
            dead_after,
            first,
            round_trip: RoundTrip::default(),
            dead: DeadLanes::default(),
            down_since: Some(now),
        }
    }

    /// Says anew whether this end has the smaller key.
    pub(crate) fn order_keys(&mut self, first: bool) {
        self.first = first;
    }

    /// Returns the smoothed round trip, if it is known.
    pub(crate) fn round_trip(&self) -> Option<Now> {
        self.round_trip.smoothed()
    }

    /// Returns the smoothed round trip, or nothing.
    pub(crate) fn smoothed(&self) -> Now {
        self.round_trip.smoothed().unwrap_or_default()
    }

    /// As [`RoundTrip::fits_two_more`].
    pub(crate) fn fits_two_more(&self, due: Now, is_queue_elsewhere: bool) -> bool {
        self.round_trip.fits_two_more(due, is_queue_elsewhere)
    }

    /// Returns the times of questions and deaths as they are now.
    pub(crate) fn timing(&self) -> Timing {
        Timing::new(self.dead_after, self.round_trip.patience(), self.smoothed(), self.first)
    }

    /// The first lane is up.
    pub(crate) fn handle_up(&mut self) {
        self.down_since = None;
    }

    /// The last lane is gone.
    pub(crate) fn handle_down(&mut self, now: Now) {
        self.down_since = Some(now);
    }

    /// Returns since when there is no lane.
    pub(crate) fn down_since(&self) -> Option<Now> {
        self.down_since
    }

    /// Takes an answer to a ping of a time; returns whether it tells the round trip.
    pub(crate) fn handle_pong(&mut self, lanes: &mut Lanes, lane: LaneId, sent: Now, now: Now) -> bool {
        self.dead.handle_pong(lane, sent);
        if let Some(lane) = lanes.get_mut(lane) {
            lane.pulse.handle_pong();
        }
        let is_sample = sent <= now;
        if is_sample {
            self.round_trip.sample(now - sent, now);
        }
        is_sample
    }

    /// Returns when [`Self::check`] is to be called.
    pub(crate) fn next_check(&self, lanes: &Lanes) -> Option<Now> {
        let (timing, probing) = (self.timing(), lanes.for_role(LaneRole::Control));
        let each = lanes.iter().filter_map(|(id, lane)| {
            let next_ping = lane.ask_at(&timing, probing == Some(id));
            next_ping.into_iter().chain(lane.pulse.silent_at(&timing)).chain(lane.wear.look_at()).min()
        });
        each.chain(suspects(lanes, &timing).map(|(at, ..)| at)).min()
    }

    /// Makes questions due, and returns the lanes to ask and the silent ones.
    pub(crate) fn check(&self, lanes: &mut Lanes, now: Now) -> Check {
        let (timing, probing) = (self.timing(), lanes.for_role(LaneRole::Control));
        let mut silent: Vec<LaneId> = Vec::new();
        let suspects = suspects(lanes, &timing).filter(|(at, ..)| *at <= now);
        let mut due: Vec<(LaneId, bool)> = suspects.map(|(_, id, is_doubted)| (id, is_doubted)).collect();
        for (id, lane) in lanes.iter() {
            if lane.pulse.silent_at(&timing).is_some_and(|at| at <= now) {
                silent.push(id);
            } else if lane.ask_at(&timing, probing == Some(id)).is_some_and(|at| at <= now) {
                due.push((id, false));
            }
        }
        for &(id, is_doubted) in &due {
            match lanes.get_mut(id) {
                Some(lane) if is_doubted => lane.pulse.doubt(now),
                Some(lane) => lane.pulse.ask(now),
                None => {}
            }
        }
        Check { asked: due.into_iter().map(|(id, _)| id).collect(), silent }
    }
}

/// The outcome of a check.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Check {
    /// Lanes with a question to send.
    pub(crate) asked: Vec<LaneId>,
    /// Dead lanes.
    pub(crate) silent: Vec<LaneId>,
}

/// Returns lanes to ask because another does not answer, when, and whether each is doubted too: all lanes unheard since
/// the lane that stands for the link was asked, and all lanes as silent as a doubted one.
fn suspects(lanes: &Lanes, timing: &Timing) -> impl Iterator<Item = (Now, LaneId, bool)> {
    let probing = lanes.for_role(LaneRole::Control).and_then(|id| lanes.get(id)?.pulse.asked());
    let doubted = lanes.iter().filter_map(|(_, lane)| lane.pulse.doubted_at()).min();
    let (dead, suspect) = (timing.dead, timing.suspect);
    lanes.iter().filter_map(move |(id, lane)| {
        let by_doubt = doubted.filter(|asked| lane.pulse.is_unasked_since(asked.saturating_sub(dead)));
        let by_probe = probing.filter(|asked| lane.pulse.is_unasked_since(*asked));
        let is_doubted = by_doubt.is_some();
        by_doubt.into_iter().chain(by_probe).min().map(|asked| (asked + suspect, id, is_doubted))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LinkConfig;

    fn up(count: u64, now: Now) -> (Liveness, Lanes) {
        let mut lanes = Lanes::default();
        for id in 0..count {
            let role = if id == 0 { LaneRole::Control } else { LaneRole::Flow };
            lanes.insert(LaneId(id), role, true, now);
        }
        let mut liveness = Liveness::new(None, true, now);
        liveness.handle_up();
        assert_eq!(liveness.down_since(), None);
        (liveness, lanes)
    }

    #[test]
    fn patience_with_slow_links_has_a_limit() {
        let (mut liveness, mut lanes) = up(1, Now::ZERO);
        let at = |minute: u64| Now::from_secs(60 * minute);
        for minute in 1..99 {
            assert!(liveness.handle_pong(&mut lanes, LaneId(0), Now::ZERO, at(minute)));
        }
        assert_eq!(liveness.timing().dead, LinkConfig::LONGEST_SILENCE);
    }

    #[test]
    fn unanswered_probe_has_all_lanes_asked_and_then_dead() {
        let start = Now::from_secs(100);
        let (liveness, mut lanes) = up(3, start);
        let probe = liveness.next_check(&lanes).unwrap();
        let asked = liveness.check(&mut lanes, probe);
        assert_eq!(asked, Check { asked: vec![LaneId(0)], silent: Vec::new() });
        let suspect = liveness.next_check(&lanes).unwrap();
        assert_eq!(suspect, probe + liveness.timing().suspect);
        assert_eq!(liveness.check(&mut lanes, suspect).asked, [LaneId(1), LaneId(2)]);
        let dead = liveness.check(&mut lanes, start + liveness.timing().dead);
        assert_eq!(dead.silent, [LaneId(0), LaneId(1), LaneId(2)]);
    }

    #[test]
    fn heard_lanes_are_neither_asked_nor_dead() {
        let (liveness, mut lanes) = up(2, Now::from_secs(100));
        let later = Now::from_secs(200);
        lanes.iter_mut().for_each(|(_, lane)| lane.pulse.hear(later));
        assert_eq!(liveness.check(&mut lanes, later), Check { asked: Vec::new(), silent: Vec::new() });
    }
}
