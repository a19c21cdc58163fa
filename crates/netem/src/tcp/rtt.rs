//! The round-trip estimator and the retransmission timeout [RFC 6298].

use std::time::Duration;

/// Smoothed round trip of one sender.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rtt {
    smoothed: Option<Duration>,
    variation: Duration,
    latest: Duration,
    least: Option<Duration>,
}

impl Rtt {
    /// Takes a sample of a segment sent only once (Karn's rule is the caller's).
    pub(crate) fn sample(&mut self, rtt: Duration) {
        self.latest = rtt;
        self.least = Some(self.least.map_or(rtt, |least| least.min(rtt)));
        match self.smoothed {
            None => {
                self.smoothed = Some(rtt);
                self.variation = rtt / 2;
            }
            Some(smoothed) => {
                self.variation = (self.variation * 3 + smoothed.abs_diff(rtt)) / 4;
                self.smoothed = Some((smoothed * 7 + rtt) / 8);
            }
        }
    }

    /// Returns the smoothed round trip; `None` before the first sample.
    pub(crate) fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    /// Returns the shortest sample; `None` before the first.
    pub(crate) fn least(&self) -> Option<Duration> {
        self.least
    }

    /// Returns the timeout before any back-off: as Linux does it, the margin (not the sum) is at least 200 ms.
    pub(crate) fn retransmission_timeout(&self) -> Duration {
        match self.smoothed {
            None => INITIAL_RTO,
            Some(smoothed) => smoothed + (self.variation * 4).max(MIN_RTO),
        }
    }

    /// Returns how long a segment may lag behind later ones before it counts as lost [RFC 8985, RFC 9002 §6.1.2].
    pub(crate) fn reordering_window(&self) -> Duration {
        let round = self.smoothed.unwrap_or(INITIAL_RTO).max(self.latest);
        (round + round / 8).max(Duration::from_millis(1))
    }
}

/// Timeout before the first sample, and of the handshake.
pub(crate) const INITIAL_RTO: Duration = Duration::from_secs(1);

const MIN_RTO: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_round_trip_times_out_200_ms_later() {
        let mut rtt = Rtt::default();
        assert_eq!(rtt.retransmission_timeout(), Duration::from_secs(1));
        for _ in 0..50 {
            rtt.sample(Duration::from_millis(80));
        }
        assert_eq!(rtt.smoothed().unwrap().as_millis(), 80);
        assert_eq!(rtt.retransmission_timeout().as_millis(), 280);
        assert_eq!(rtt.reordering_window().as_millis(), 90);
    }

    #[test]
    fn a_varying_round_trip_waits_longer() {
        let mut rtt = Rtt::default();
        for n in 0..50 {
            rtt.sample(Duration::from_millis(if n % 2 == 0 { 50 } else { 350 }));
        }
        assert!(rtt.retransmission_timeout() > Duration::from_millis(500), "{rtt:?}");
    }
}
