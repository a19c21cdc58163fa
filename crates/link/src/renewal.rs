//! Degraded lanes: losses left a small window, and a new connection would soon have a larger one.
//!
//! A kernel's loss-based congestion control lets a window grow quickly only up to a threshold, lowered by each loss,
//! and by about a segment a round trip above it. A long-lived connection keeps the threshold; a new one has none.

use std::time::Duration;

use oncewire_codec::Now;
use oncewire_codec::wire::{LaneId, LaneRole};

use crate::lanes::Lanes;
use crate::wear::Stay;

/// The kernel's view of the sending direction of a lane's connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneReport {
    /// The congestion window in bytes.
    pub window: u64,
    /// The end of quick growth, in bytes; none without losses, or in a congestion control without one.
    pub threshold: Option<u64>,
    /// The latest delivery rate with more to send, in bytes a second; 0 if unknown.
    pub bytes_per_s: u64,
    /// The shortest round trip of late.
    pub least_round_trip: Duration,
    /// Written but unacknowledged bytes, unsent ones included.
    pub outstanding: u64,
}

/// The renewals of one end of one link, and their rate.
#[derive(Debug)]
pub(crate) struct Renewals {
    /// The highest recent rate of a lane, in bytes a second, and the time.
    best: (u64, Now),
    /// Lanes renewable without a wait, as of the time beside it.
    allowance: (u32, Now),
}

impl Default for Renewals {
    fn default() -> Self {
        Self { best: (0, Now::ZERO), allowance: (MOST_AT_ONCE, Now::ZERO) }
    }
}

impl Renewals {
    /// Learns the path's rate.
    fn see(&mut self, bytes_per_s: u64, now: Now) {
        let (best, seen) = self.best;
        if bytes_per_s >= best || now >= seen + LATELY {
            self.best = (bytes_per_s, now);
        }
    }

    /// Whether a new connection would soon have a window beyond that of a lane at rest, with `sent` bytes carried.
    ///
    /// It would if the path carries at least half as much again as the lane's window after quick growth. On a lossy
    /// line all windows are small, the best rate with them, and no lane is degraded.
    fn is_worn(&self, report: &LaneReport, sent: u64) -> bool {
        let Some(threshold) = report.threshold else { return false };
        // A kernel's treatment of an idle window: it remembers three quarters as the threshold [RFC 2861].
        let quickly = threshold.max(report.window / 4 * 3);
        let carried = u128::from(self.best.0) * report.least_round_trip.as_micros() / 1_000_000;
        sent >= EARNED && carried * 2 >= u128::from(quickly) * 3
    }

    /// Takes the kernel's view of a lane; returns whether the lane is degraded, so that another is to take its place.
    /// `is_awaited` says that an open flow used it last, `look_after` how soon it is looked at again.
    pub(crate) fn handle_report(
        &mut self,
        lanes: &mut Lanes,
        id: LaneId,
        report: &LaneReport,
        is_awaited: bool,
        look_after: Now,
        now: Now,
    ) -> bool {
        self.see(report.bytes_per_s, now);
        let Some(lane) = lanes.get_mut(id) else { return false };
        if !lane.is_at_rest() || report.outstanding > 0 {
            lane.wear.look_again(now + look_after);
            return false;
        }
        let rested = lane.wear.sent_at() + if is_awaited { LONG_REST } else { REST };
        if now < rested {
            lane.wear.look_again(rested);
            return false;
        }
        self.is_worn(report, lane.wear.sent()) && !lane.wear.is_left()
    }

    /// Marks a lane as worn, unless too many are; returns whether it did.
    pub(crate) fn wear(&mut self, lanes: &mut Lanes, id: LaneId, now: Now) -> bool {
        lanes.keep_refused(now);
        let under_way = lanes.iter().filter(|(_, lane)| lane.wear.stay() != Stay::Kept).count();
        let Some(lane) = lanes.get_mut(id) else { return false };
        let is_news = lane.wear.stay() == Stay::Kept && under_way < MOST_AT_ONCE as usize;
        if !is_news || lane.role != LaneRole::Flow || !self.take(now) {
            return false;
        }
        lane.wear.wear(!lane.dialled, now);
        true
    }

    /// Takes one renewal out of the allowance; false if there is none left.
    fn take(&mut self, now: Now) -> bool {
        let (mut left, since) = self.allowance;
        let earned = now.saturating_sub(since).as_micros() / EVERY.as_micros();
        let earned = u32::try_from(earned).unwrap_or(u32::MAX);
        if earned > 0 {
            left = left.saturating_add(earned).min(MOST_AT_ONCE);
            // The rest of the time counts for the next.
            self.allowance = (left, since + EVERY * earned);
        }
        let any = left > 0;
        self.allowance.0 = left.saturating_sub(1);
        any
    }
}

/// A lane's bytes before its renewal: sixteen times the handshakes of another.
const EARNED: u64 = 64 << 10;
/// For so long a rate is not forgotten.
const LATELY: Now = Now::from_secs(600);
/// Lanes renewed at once.
const MOST_AT_ONCE: u32 = 8;
/// And one more in so long.
const EVERY: Now = Now::from_secs(4);

/// The rest of a lane before it is renewed: another begins slowly, which is of no use in the midst of a burst.
const REST: Now = Now::from_secs(2);
/// The same while the lane's last flow is open, and may only wait, for a disk for one.
const LONG_REST: Now = Now::from_secs(15);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// 20 Mbit/s and 200 ms: half a megabyte is under way on a full line.
    const BEST: u64 = 2_500_000;

    fn seen(bytes_per_s: u64) -> Renewals {
        let mut renewals = Renewals::default();
        renewals.see(bytes_per_s, Now::from_secs(1));
        renewals
    }

    fn report(threshold: u64) -> LaneReport {
        LaneReport {
            window: 14_480,
            threshold: Some(threshold),
            bytes_per_s: 70_000,
            least_round_trip: Duration::from_millis(200),
            outstanding: 0,
        }
    }

    #[test]
    fn lane_is_degraded_at_two_thirds_of_the_path() {
        let renewals = seen(BEST);
        assert!(renewals.is_worn(&report(10_000), EARNED));
        assert!(renewals.is_worn(&report(333_333), EARNED));
        assert!(
            !renewals.is_worn(&report(333_334), EARNED),
            "its window is soon two thirds of what is under way"
        );
        let large = LaneReport { window: 460_000, ..report(10_000) };
        assert!(!renewals.is_worn(&large, EARNED), "the window itself is remembered");
    }

    #[test]
    fn a_lane_without_a_threshold_is_not_worn() {
        let bbr = LaneReport { threshold: None, window: 4 * 1448, ..report(0) };
        assert!(!seen(BEST).is_worn(&bbr, u64::MAX));
    }

    #[test]
    fn lossy_line_is_not_dialled_again() {
        // 1 % of loss leaves each lane about 12 segments, and a rate to match.
        let window = 12 * 1448;
        let renewals = seen(window * 5);
        assert!(!renewals.is_worn(&LaneReport { window, ..report(window * 7 / 10) }, u64::MAX));
    }

    #[test]
    fn lane_with_few_bytes_is_not_worth_another() {
        assert!(!seen(BEST).is_worn(&report(10_000), EARNED - 1));
    }

    #[test]
    fn a_rate_is_forgotten_once_it_is_old() {
        let mut renewals = seen(BEST);
        renewals.see(1000, Now::from_secs(600));
        assert!(renewals.is_worn(&report(10_000), EARNED));
        renewals.see(1000, Now::from_secs(602));
        assert!(!renewals.is_worn(&report(10_000), EARNED));
    }

    #[test]
    fn one_renewal_is_allowed_each_four_seconds() {
        let mut renewals = Renewals::default();
        let taken = (0..200).filter(|n| renewals.take(Now::from_secs(3 * n))).count() as u64;
        assert_eq!(taken, 8 + 199 * 3 / 4);
    }

    proptest! {
        #[test]
        fn renewals_are_bounded_over_any_time(times in prop::collection::vec(0u64..5_000, 1..400)) {
            let mut renewals = Renewals::default();
            let (mut now, mut taken) = (Now::from_secs(1), 0u64);
            for ms in times {
                now += Now::from_millis(ms);
                taken += u64::from(renewals.take(now));
            }
            let most = u64::from(MOST_AT_ONCE) + now.as_secs() / EVERY.as_secs();
            prop_assert!(taken <= most, "{} of {}", taken, most);
        }
    }
}
