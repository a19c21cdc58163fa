//! The lane budget of a path, at one end of a link.
//!
//! Even with a small window, a busy lane keeps a few packets under way. If lanes together keep more under way than
//! the path holds, another one only adds to the queue: round trips grow, and a flow with repeats of another waits for
//! late bytes of that one's lane.

use oncewire_codec::Now;

use crate::renewal::LaneReport;

/// The most flow lanes in use at a time, by the path's last observed capacity.
#[derive(Debug)]
pub(crate) struct LaneBudget {
    lanes: u32,
    most: u32,
    /// Whether windows were too small to fill the path when it was last looked at.
    is_short: bool,
    /// When the lanes are next looked at together.
    due: Now,
}

impl LaneBudget {
    /// Begins with `most`, its upper limit: nothing is known of the path.
    pub(crate) fn new(most: u32) -> Self {
        let most = most.max(1);
        Self { lanes: most, most, is_short: false, due: Now::ZERO }
    }

    /// Returns the number of lanes with room.
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

    /// Takes the kernels' views of lanes limited by their windows.
    ///
    /// Only windows above the bytes of the least round trip show a path's capacity: it is full. Others show the
    /// windows, small under packet losses, and each lane brings more; more lanes are of use there if most of the
    /// allowed ones wait for their windows.
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

/// Each lane's share of the path: eight packets. Even the smallest window of bbr is four, and under losses of 1 % a
/// window of cubic is about twelve.
const FOR_A_LANE: u128 = 8 * 1500;
/// The least lanes on any path, so few flows wait for others' losses.
const LEAST: u32 = 8;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Lanes on a common megabit a second and a second of round trip, each with a window of so many packets.
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
    fn full_path_has_room_for_a_lane_each_eight_packets() {
        for lanes in [1, 5, 64] {
            let mut room = LaneBudget::new(64);
            room.handle_busy(&busy(lanes, 2 * 125_000 / 1500 / u64::from(lanes) + 1));
            assert_eq!(room.lanes(), 10, "{lanes} lanes");
        }
    }

    #[test]
    fn path_not_filled_by_windows_has_room_for_all() {
        let mut room = LaneBudget::new(64);
        // Its capacity is 83 packets.
        room.handle_busy(&busy(16, 5));
        room.handle_busy(&busy(16, 5));
        assert_eq!(room.lanes(), 64);
    }

    #[test]
    fn lost_room_returns_after_two_looks_at_small_windows() {
        let mut room = LaneBudget::new(64);
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
    fn lanes_not_limited_by_windows_leave_no_more_room() {
        let mut room = LaneBudget::new(64);
        room.handle_busy(&busy(32, 10));
        for _ in 0..9 {
            room.handle_busy(&busy(4, 20));
        }
        assert_eq!(room.lanes(), 10);
    }

    #[test]
    fn low_bandwidth_path_has_room_for_some_within_the_limit() {
        let thin = |least_round_trip| {
            busy(1, 99).into_iter().map(move |report| LaneReport { least_round_trip, ..report }).collect()
        };
        for (most, lanes) in [(64, LEAST), (4, 4), (0, 1)] {
            let mut room = LaneBudget::new(most);
            let reports: Vec<LaneReport> = thin(Duration::from_millis(10));
            room.handle_busy(&reports);
            assert_eq!(room.lanes(), lanes);
        }
        let mut room = LaneBudget::new(64);
        let unknown: Vec<LaneReport> = thin(Duration::ZERO);
        room.handle_busy(&unknown);
        room.handle_busy(&[]);
        assert_eq!(room.lanes(), 64, "nothing is known");
    }
}
