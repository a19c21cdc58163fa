//! The times of lanes' pings, and of their deaths.

use oncewire_codec::Now;

/// The times of a link as they are now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timing {
    /// The silence of a dead lane.
    pub(crate) dead: Now,
    /// The interval of pings on a busy lane, and the delay of one for an overdue answer.
    pub(crate) often: Now,
    /// The silence before a ping on the lane that stands for the link.
    pub(crate) probe: Now,
    /// The same if this end asked last, in addition: so both ends have a turn, and one question serves both.
    pub(crate) turn: Now,
    /// The delay of its answer before all other lanes are asked, too.
    pub(crate) suspect: Now,
    /// How long a lane has for its answer at the least.
    pub(crate) answer: Now,
    /// How long a lane has for it if it had been still, and something was sent on it with the question.
    pub(crate) doubt: Now,
}

impl Timing {
    /// Makes the times for a link of this `dead_after`, if it is configured, with this patience for lanes' answers
    /// and this smoothed round trip. `first` tells the ends apart: two with pings at the same time would go on with
    /// that.
    pub(crate) fn new(configured: Option<Now>, patience: Now, round_trip: Now, first: bool) -> Self {
        let dead = configured.unwrap_or(MIN_DEAD_AFTER.max(patience));
        let eighth = dead / 8;
        let probe = eighth.max((dead / 2).min(PROBE_EVERY));
        // A probe, its turn, the question to the others, and the time to answer add up to `dead`.
        let most = dead.saturating_sub(probe + eighth).max(eighth * 3);
        let answer = (patience / 4 * 3).clamp(eighth * 3, most);
        Self {
            dead,
            often: (dead / 4).max(MIN_PING_INTERVAL),
            probe: if first { probe } else { probe + dead / 64 },
            turn: dead / 32,
            suspect: (dead / 16).max(round_trip * 2),
            answer,
            doubt: patience.max(LEAST_DOUBT).min(answer),
        }
    }
}

const MIN_DEAD_AFTER: Now = Now::from_secs(10);
const MIN_PING_INTERVAL: Now = Now::from_millis(250);
/// The least interval of an idle link's probes, unless `dead_after` is less than twice as long.
const PROBE_EVERY: Now = Now::from_secs(5);
/// A radio may sleep as long before it sends.
const LEAST_DOUBT: Now = Now::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Now {
        Now::from_millis(millis)
    }

    #[test]
    fn probes_five_seconds_apart_find_a_dead_peer_in_time() {
        let timing = Timing::new(None, ms(400), ms(50), true);
        assert_eq!((timing.dead, timing.probe), (ms(10_000), ms(5000)));
        for secs in [1, 2, 5, 9, 10, 30, 480, 3600] {
            for patience in [1, 400, 2000, 7000, 60_000] {
                let dead = Some(Now::from_secs(secs));
                let timing = Timing::new(dead, ms(patience), ms(10), patience % 2 == 1);
                let found = timing.probe + timing.turn + timing.suspect + timing.answer;
                assert!(found <= timing.dead, "{timing:?}");
                assert!(timing.probe >= ms(5000).min(timing.dead / 2), "{timing:?}");
                assert!(timing.answer >= timing.dead / 8 * 3 && timing.doubt <= timing.answer, "{timing:?}");
            }
        }
    }

    #[test]
    fn long_round_trips_leave_more_time_to_answer() {
        for secs in [11, 16, 40, 150, 480] {
            let patience = Now::from_secs(secs);
            let timing = Timing::new(None, patience, patience / 8, false);
            assert_eq!(timing.dead, patience);
            // At least three round trips, and as good as three quarters if probes take little of the time.
            assert!(timing.answer >= timing.dead / 8 * 3, "{timing:?}");
            assert!(secs < 40 || timing.answer == timing.dead / 4 * 3, "{timing:?}");
            assert!(timing.probe + timing.turn + timing.answer <= timing.dead, "{timing:?}");
        }
    }
}
