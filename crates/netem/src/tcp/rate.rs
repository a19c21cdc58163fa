//! Delivery-rate samples [draft-cheng-iccrg-delivery-rate-estimation-00].

use super::congestion::RateSample;
use crate::Now;

/// State of the connection when a segment was sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) delivered: u64,
    delivered_at: Now,
    first_sent_at: Now,
    app_limited: bool,
}

/// Measures how fast segments are delivered.
#[derive(Debug, Default)]
pub(crate) struct RateMeter {
    delivered: u64,
    delivered_at: Now,
    first_sent_at: Now,
    /// Samples count as limited by the application until more than this many segments are delivered.
    app_limited_until: Option<u64>,
    /// The latest meaningful rate of the path.
    latest: f64,
}

impl RateMeter {
    /// Returns segments delivered so far.
    pub(crate) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Returns the snapshot for a segment sent now.
    pub(crate) fn snapshot(&mut self, idle: bool, now: Now) -> Snapshot {
        if idle {
            self.first_sent_at = now;
            self.delivered_at = now;
        }
        Snapshot {
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
            app_limited: self.app_limited_until.is_some(),
        }
    }

    /// Notes a sender out of data, with room in its window.
    pub(crate) fn handle_app_limited(&mut self, in_flight: u64) {
        self.app_limited_until = Some(self.delivered + in_flight);
    }

    /// Counts newly delivered segments. The latest sent one had `snapshot`, and was sent at `sent_at`.
    pub(crate) fn handle_delivered(
        &mut self,
        segments: u64,
        snapshot: Snapshot,
        sent_at: Now,
        now: Now,
    ) -> Option<RateSample> {
        self.delivered += segments;
        self.app_limited_until = self.app_limited_until.filter(|until| self.delivered <= *until);
        self.delivered_at = now;
        let send_elapsed = sent_at.saturating_sub(snapshot.first_sent_at);
        let ack_elapsed = now.saturating_sub(snapshot.delivered_at);
        self.first_sent_at = sent_at;
        let elapsed = send_elapsed.max(ack_elapsed);
        if elapsed.is_zero() {
            return None;
        }
        let segments_per_s = (self.delivered - snapshot.delivered) as f64 / elapsed.as_secs_f64();
        if !snapshot.app_limited || segments_per_s > self.latest {
            self.latest = segments_per_s;
        }
        Some(RateSample { segments_per_s, app_limited: snapshot.app_limited })
    }

    /// Returns the latest rate with the path, not the application, as the limit, or a higher one: segments a second,
    /// 0 before the first.
    pub(crate) fn latest(&self) -> f64 {
        self.latest
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn flight_of_ten_in_fifty_ms_is_200_a_second() {
        let mut meter = RateMeter::default();
        let snapshot = meter.snapshot(true, Now::ZERO);
        let sample = meter.handle_delivered(10, snapshot, Now::ZERO, Duration::from_millis(50)).unwrap();
        assert!((sample.segments_per_s - 200.0).abs() < 1e-6);
        assert!(!sample.app_limited);
    }

    #[test]
    fn samples_are_marked_until_the_limited_flight_is_delivered() {
        let mut meter = RateMeter::default();
        meter.handle_app_limited(2);
        let at = Duration::from_millis(10);
        for (round, limited) in [(1, true), (2, true), (3, false)] {
            let snapshot = meter.snapshot(false, at * round);
            let sample = meter.handle_delivered(2, snapshot, at * round, at * (round + 1)).unwrap();
            assert_eq!(sample.app_limited, limited, "round {round}");
        }
    }
}
