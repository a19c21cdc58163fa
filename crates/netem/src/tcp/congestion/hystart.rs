//! HyStart++: the end of slow start at a growing queue [RFC 9406].

use std::time::Duration;

use super::AckSample;

/// Watches round trips during slow start.
#[derive(Clone, Debug, Default)]
pub(crate) struct HyStart {
    last_round_min: Option<Duration>,
    round_min: Option<Duration>,
    samples: u32,
    /// Conservative slow start, once a growing queue was seen.
    conservative: Option<Conservative>,
}

#[derive(Clone, Copy, Debug)]
struct Conservative {
    /// The round trip at the start of conservative slow start; a smaller one later means a false alarm.
    baseline: Duration,
    rounds: u32,
}

/// The growth for an acknowledgement in slow start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advice {
    /// Grow by every acknowledged segment.
    Double,
    /// Grow by a quarter.
    Creep,
    /// Slow start is over.
    Leave,
}

impl HyStart {
    /// Learns from an acknowledgement during slow start.
    pub(crate) fn handle_ack(&mut self, sample: &AckSample) -> Advice {
        if sample.round_start {
            self.last_round_min = self.round_min.take();
            self.samples = 0;
            if let Some(conservative) = &mut self.conservative {
                conservative.rounds += 1;
                if conservative.rounds >= CONSERVATIVE_ROUNDS {
                    return Advice::Leave;
                }
            }
        }
        if let Some(rtt) = sample.rtt {
            self.samples += 1;
            self.round_min = Some(self.round_min.map_or(rtt, |least| least.min(rtt)));
        }
        self.judge();
        if self.conservative.is_some() { Advice::Creep } else { Advice::Double }
    }

    fn judge(&mut self) {
        let (Some(least), true) = (self.round_min, self.samples >= ENOUGH_SAMPLES) else { return };
        match (self.conservative, self.last_round_min) {
            (Some(conservative), _) if least < conservative.baseline => self.conservative = None,
            (None, Some(before)) if least >= before + (before / 8).clamp(LEAST_RISE, MOST_RISE) => {
                self.conservative = Some(Conservative { baseline: least, rounds: 0 });
            }
            _ => {}
        }
    }
}

const ENOUGH_SAMPLES: u32 = 8;
const LEAST_RISE: Duration = Duration::from_millis(4);
const MOST_RISE: Duration = Duration::from_millis(16);
const CONSERVATIVE_ROUNDS: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    /// A round of ten acknowledgements with one round trip.
    fn round(hystart: &mut HyStart, rtt_ms: u64) -> Advice {
        let sample = AckSample { rtt: Some(Duration::from_millis(rtt_ms)), ..AckSample::default() };
        let first = hystart.handle_ack(&AckSample { round_start: true, ..sample });
        if first == Advice::Leave {
            return first;
        }
        (0..9).map(|_| hystart.handle_ack(&sample)).last().unwrap()
    }

    #[test]
    fn a_steady_round_trip_doubles_on() {
        let mut hystart = HyStart::default();
        for _ in 0..10 {
            assert_eq!(round(&mut hystart, 80), Advice::Double);
        }
    }

    #[test]
    fn growing_queue_means_creeping_for_five_rounds_then_leaving() {
        let mut hystart = HyStart::default();
        assert_eq!(round(&mut hystart, 80), Advice::Double);
        for rtt_ms in [95, 99, 105, 110, 112] {
            assert_eq!(round(&mut hystart, rtt_ms), Advice::Creep);
        }
        assert_eq!(round(&mut hystart, 115), Advice::Leave);
    }

    #[test]
    fn a_false_alarm_is_taken_back() {
        let mut hystart = HyStart::default();
        round(&mut hystart, 80);
        assert_eq!(round(&mut hystart, 95), Advice::Creep);
        assert_eq!(round(&mut hystart, 80), Advice::Double);
    }
}
