//! For how many lanes a path has room, at one end of a link.
//!
//! However small its window, a lane that has something to send keeps a few packets under way. Where lanes keep more under way
//! together than the path holds, another one adds to the queue only: round trips grow, and what one flow repeats of another waits
//! for what is late on that one's lane.

use oncewire_codec::Now;

use crate::renewal::LaneReport;

/// How many flow lanes are used at a time at most, by what the path was last seen to hold.
#[derive(Debug)]
pub(crate) struct LaneRoom {
    lanes: u32,
    most: u32,
    /// Whether windows were too small to fill the path when it was last looked at.
    is_short: bool,
    /// When the lanes are next looked at together.
    due: Now,
}

impl LaneRoom {
    /// Begins with `most`, beyond which it never goes: nothing is known of the path.
    pub(crate) fn new(most: u32) -> Self {
        let most = most.max(1);
        Self { lanes: most, most, is_short: false, due: Now::ZERO }
    }

    /// Returns the lanes that there is room for.
    pub(crate) fn lanes(&self) -> u32 {
        self.lanes
    }

    /// Whether the lanes are to be looked at together; if so, again after `pause`.
    pub(crate) fn is_due(&mut self, pause: Now, now: Now) -> bool {
        let is_due = now >= self.due;
        if is_due {
            self.due = now + pause;
        }
        is_due
    }

    /// Takes what systems say of the lanes that have more to send than their windows let them.
    ///
    /// Only windows that are larger than what crosses in the least round trip tell what a path holds: it is full. Others
    /// tell what windows hold, which are small where packets are lost, and each lane brings more; more lanes are of use
    /// there if most of those that may be used wait for their windows.
    pub(crate) fn handle_busy(&mut self, busy: &[LaneReport]) {
        let round_trips = busy.iter().map(|report| report.least_round_trip);
        let Some(least) = round_trips.filter(|time| !time.is_zero()).min() else { return };
        let windows: u128 = busy.iter().map(|report| u128::from(report.window)).sum();
        let bytes_per_s: u128 = busy.iter().map(|report| u128::from(report.bytes_per_s)).sum();
        let held = bytes_per_s * least.as_micros() / 1_000_000;
        // Once is no news: under bbr windows are small for a moment every ten seconds.
        let was_short = std::mem::replace(&mut self.is_short, windows * 5 <= held * 6);
        if windows * 2 >= held * 3 {
            let fit = u32::try_from(held / FOR_A_LANE).unwrap_or(u32::MAX);
            self.lanes = fit.max(LEAST).min(self.most);
        } else if self.is_short && was_short && busy.len() * 2 >= self.lanes as usize {
            self.lanes = self.lanes.saturating_mul(2).min(self.most);
        }
    }
}

/// What there is to be for each lane: eight packets. Even the smallest window of bbr is four, and under losses of 1 % a
/// window of cubic is about twelve.
const FOR_A_LANE: u128 = 8 * 1500;
/// So many lanes are used on any path, that few flows wait for what others have lost.
const LEAST: u32 = 8;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Lanes that share a megabit a second and a second of round trip, each with a window of so many packets.
    fn busy(lanes: u32, packets: u64) -> Vec<LaneReport> {
        let report = LaneReport {
            window: packets * 1500,
            threshold: None,
            bytes_per_s: 125_000 / u64::from(lanes),
            least_round_trip: Duration::from_secs(1),
            outstanding: 1 << 17,
        };
        vec![report; lanes as usize]
    }

    #[test]
    fn a_full_path_has_room_for_a_lane_for_each_eight_packets_that_it_holds() {
        for lanes in [1, 5, 64] {
            let mut room = LaneRoom::new(64);
            room.handle_busy(&busy(lanes, 2 * 125_000 / 1500 / u64::from(lanes) + 1));
            assert_eq!(room.lanes(), 10, "{lanes} lanes");
        }
    }

    #[test]
    fn a_path_that_windows_do_not_fill_has_room_for_all() {
        let mut room = LaneRoom::new(64);
        // 83 packets are what it holds.
        room.handle_busy(&busy(16, 5));
        room.handle_busy(&busy(16, 5));
        assert_eq!(room.lanes(), 64);
    }

    #[test]
    fn room_that_a_full_path_lacked_comes_back_once_windows_are_too_small_twice() {
        let mut room = LaneRoom::new(64);
        room.handle_busy(&busy(32, 10));
        for lanes in [10, 20, 40, 64, 64] {
            room.handle_busy(&busy(32, 3));
            assert_eq!(room.lanes(), lanes);
        }
        room.handle_busy(&busy(16, 20));
        // Between the two nothing changes, and it is no second time.
        for packets in [5, 7, 5] {
            room.handle_busy(&busy(16, packets));
            assert_eq!(room.lanes(), 10);
        }
    }

    #[test]
    fn lanes_that_do_not_wait_for_their_windows_leave_no_room_for_more() {
        let mut room = LaneRoom::new(64);
        room.handle_busy(&busy(32, 10));
        for _ in 0..9 {
            room.handle_busy(&busy(4, 20));
        }
        assert_eq!(room.lanes(), 10);
    }

    #[test]
    fn a_thin_path_has_room_for_some_and_never_more_than_is_allowed() {
        let thin = |least_round_trip| {
            busy(1, 99).into_iter().map(move |report| LaneReport { least_round_trip, ..report }).collect()
        };
        for (most, lanes) in [(64, LEAST), (4, 4), (0, 1)] {
            let mut room = LaneRoom::new(most);
            let reports: Vec<LaneReport> = thin(Duration::from_millis(10));
            room.handle_busy(&reports);
            assert_eq!(room.lanes(), lanes);
        }
        let mut room = LaneRoom::new(64);
        let unknown: Vec<LaneReport> = thin(Duration::ZERO);
        room.handle_busy(&unknown);
        room.handle_busy(&[]);
        assert_eq!(room.lanes(), 64, "nothing is known");
    }
}
