//! A model of BBR, version 1 [Cardwell et al., 2016].

use std::collections::VecDeque;
use std::time::Duration;

use super::{AckSample, Congestion, INITIAL_WINDOW};
use crate::Now;

/// BBR version 1: a maximum filter over delivery rates, a minimum filter over round trips, and their product.
///
/// Modelled: Startup, Drain, the eight-phase gain cycle of ProbeBW, ProbeRTT every 10 s, pacing. Not modelled:
/// packet conservation in recovery, long-term bandwidth sampling for policers, the compensation for
/// acknowledgement aggregation, and the random start of the gain cycle (it starts at its third phase).
#[derive(Clone, Debug)]
pub struct Bbr {
    phase: Phase,
    rates: MaxFilter,
    round: u64,
    min_rtt: Option<Duration>,
    min_rtt_at: Now,
    full_rate: f64,
    rounds_without_growth: u32,
    window: f64,
    pacing_segments_per_s: Option<f64>,
    /// The window before ProbeRTT, to return to.
    saved_window: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Startup,
    Drain,
    ProbeBandwidth { step: usize, since: Now },
    ProbeRtt { until: Option<Now> },
}

/// The greatest rate of the last rounds.
#[derive(Clone, Debug, Default)]
struct MaxFilter {
    /// (round, rate), rates falling.
    samples: VecDeque<(u64, f64)>,
}

impl Bbr {
    /// Starts in Startup.
    pub fn new() -> Self {
        Self {
            phase: Phase::Startup,
            rates: MaxFilter::default(),
            round: 0,
            min_rtt: None,
            min_rtt_at: Now::ZERO,
            full_rate: 0.0,
            rounds_without_growth: 0,
            window: INITIAL_WINDOW,
            pacing_segments_per_s: None,
            saved_window: INITIAL_WINDOW,
        }
    }

    fn filled_pipe(&self) -> bool {
        self.rounds_without_growth >= FULL_PIPE_ROUNDS
    }

    fn rate(&self) -> Option<f64> {
        self.rates.max()
    }

    /// Segments to fill the path without a queue, times `gain`.
    fn bandwidth_delay(&self, gain: f64) -> Option<f64> {
        Some(self.rate()? * self.min_rtt?.as_secs_f64() * gain)
    }

    fn gains(&self) -> (f64, f64) {
        match self.phase {
            Phase::Startup => (HIGH_GAIN, HIGH_GAIN),
            Phase::Drain => (1.0 / HIGH_GAIN, HIGH_GAIN),
            Phase::ProbeBandwidth { step, .. } => (CYCLE.get(step).copied().unwrap_or(1.0), 2.0),
            Phase::ProbeRtt { .. } => (1.0, 1.0),
        }
    }

    fn update_rate(&mut self, sample: &AckSample) {
        self.round += u64::from(sample.round_start);
        let Some(rate) = sample.rate else { return };
        if !rate.app_limited || self.rate().is_none_or(|best| rate.segments_per_s >= best) {
            self.rates.insert(self.round, rate.segments_per_s);
        }
        if sample.round_start && !self.filled_pipe() && !rate.app_limited {
            let best = self.rate().unwrap_or_default();
            if best >= self.full_rate * 1.25 {
                self.full_rate = best;
                self.rounds_without_growth = 0;
            } else {
                self.rounds_without_growth += 1;
            }
        }
    }

    fn update_min_rtt(&mut self, sample: &AckSample) {
        let expired = self.min_rtt.is_some() && sample.now > self.min_rtt_at + MIN_RTT_WINDOW;
        if let Some(rtt) = sample.rtt
            && (expired || self.min_rtt.is_none_or(|least| rtt <= least))
        {
            self.min_rtt = Some(rtt);
            self.min_rtt_at = sample.now;
        }
        if expired && !matches!(self.phase, Phase::ProbeRtt { .. }) {
            self.saved_window = self.window;
            self.phase = Phase::ProbeRtt { until: None };
        }
    }

    fn update_phase(&mut self, sample: &AckSample) {
        let drained = self.bandwidth_delay(1.0).is_none_or(|target| sample.in_flight as f64 <= target);
        match self.phase {
            Phase::Startup if self.filled_pipe() => self.phase = Phase::Drain,
            Phase::Drain if drained => {
                self.phase = Phase::ProbeBandwidth { step: FIRST_STEP, since: sample.now };
            }
            Phase::ProbeBandwidth { step, since } => self.advance_cycle(sample, step, since, drained),
            Phase::ProbeRtt { until: None } if sample.in_flight as f64 <= MIN_WINDOW => {
                let round = self.min_rtt.unwrap_or_default();
                self.phase = Phase::ProbeRtt { until: Some(sample.now + PROBE_RTT_TIME.max(round)) };
            }
            Phase::ProbeRtt { until: Some(until) } if sample.now >= until => {
                self.min_rtt_at = sample.now;
                self.window = self.window.max(self.saved_window);
                self.phase = match self.filled_pipe() {
                    true => Phase::ProbeBandwidth { step: FIRST_STEP, since: sample.now },
                    false => Phase::Startup,
                };
            }
            _ => {}
        }
    }

    fn advance_cycle(&mut self, sample: &AckSample, step: usize, since: Now, drained: bool) {
        let gain = CYCLE.get(step).copied().unwrap_or(1.0);
        let full_round = sample.now.saturating_sub(since) > self.min_rtt.unwrap_or_default();
        let done = if gain > 1.0 {
            // Probe until the extra data is on the way, or losses show that the path is full.
            let probed = self.bandwidth_delay(gain).is_none_or(|most| sample.in_flight as f64 >= most);
            full_round && (probed || sample.in_recovery)
        } else if gain < 1.0 {
            full_round || drained
        } else {
            full_round
        };
        if done {
            self.phase = Phase::ProbeBandwidth { step: (step + 1) % CYCLE.len(), since: sample.now };
        }
    }

    fn update_window(&mut self, sample: &AckSample) {
        if matches!(self.phase, Phase::ProbeRtt { .. }) {
            self.window = self.window.min(MIN_WINDOW);
            return;
        }
        let (_, gain) = self.gains();
        let Some(target) = self.bandwidth_delay(gain).map(|target| target + BURST_ALLOWANCE) else { return };
        let grown = self.window + sample.segments as f64;
        if self.filled_pipe() {
            self.window = grown.min(target);
        } else if self.window < target || (sample.delivered as f64) < INITIAL_WINDOW {
            self.window = grown;
        }
        self.window = self.window.max(MIN_WINDOW);
    }

    fn update_pacing(&mut self, sample: &AckSample) {
        let round_s = sample.smoothed_rtt.unwrap_or_default().as_secs_f64().max(1e-3);
        let now = self.pacing_segments_per_s.unwrap_or(HIGH_GAIN * INITIAL_WINDOW / round_s);
        let wanted = self.rate().unwrap_or_default() * self.gains().0;
        // Until the pipe was full once, a small rate only shows an application with little to send.
        let next = if self.filled_pipe() { wanted } else { now.max(wanted) };
        // Never so slow that a wrong estimate keeps the stream from correcting it.
        self.pacing_segments_per_s = Some(next.max(1.0));
    }
}

impl Default for Bbr {
    fn default() -> Self {
        Self::new()
    }
}

impl Congestion for Bbr {
    fn handle_ack(&mut self, sample: &AckSample) {
        self.update_rate(sample);
        self.update_phase(sample);
        self.update_min_rtt(sample);
        self.update_window(sample);
        self.update_pacing(sample);
    }

    fn handle_loss(&mut self, _now: Now) {}

    fn handle_timeout(&mut self, _now: Now) {
        // The model of the path stays; the window regrows to it with the acknowledgements.
        self.window = MIN_WINDOW;
    }

    fn handle_idle(&mut self, _idle: Duration, _timeout: Duration) {
        // Pacing from the model makes slow start after idle needless.
    }

    fn window(&self) -> u64 {
        (self.window as u64).max(1)
    }

    fn slow_start_threshold(&self) -> Option<u64> {
        None
    }

    fn pacing_segments_per_s(&self) -> Option<f64> {
        self.pacing_segments_per_s
    }
}

impl MaxFilter {
    fn insert(&mut self, round: u64, rate: f64) {
        while self.samples.back().is_some_and(|(_, last)| *last <= rate) {
            self.samples.pop_back();
        }
        self.samples.push_back((round, rate));
        while self.samples.front().is_some_and(|(first, _)| first + RATE_ROUNDS < round) {
            self.samples.pop_front();
        }
    }

    fn max(&self) -> Option<f64> {
        self.samples.front().map(|(_, rate)| *rate)
    }
}

/// 2 / ln 2: doubles the rate each round.
const HIGH_GAIN: f64 = 2.885;
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
const FIRST_STEP: usize = 2;
const FULL_PIPE_ROUNDS: u32 = 3;
const RATE_ROUNDS: u64 = 10;
const MIN_RTT_WINDOW: Duration = Duration::from_secs(10);
const PROBE_RTT_TIME: Duration = Duration::from_millis(200);
const MIN_WINDOW: f64 = 4.0;
const BURST_ALLOWANCE: f64 = 3.0;

#[cfg(test)]
mod tests {
    use super::super::RateSample;
    use super::*;

    #[test]
    fn the_filter_forgets_a_rate_after_ten_rounds() {
        let mut filter = MaxFilter::default();
        filter.insert(1, 100.0);
        filter.insert(2, 50.0);
        assert_eq!(filter.max(), Some(100.0));
        filter.insert(12, 40.0);
        assert_eq!(filter.max(), Some(50.0));
    }

    #[test]
    fn an_application_with_little_to_send_is_not_slowed_down() {
        let mut bbr = Bbr::new();
        for n in 1..50u64 {
            bbr.handle_ack(&AckSample {
                now: Duration::from_millis(n * 100),
                segments: 1,
                delivered: n,
                rtt: Some(Duration::from_millis(100)),
                smoothed_rtt: Some(Duration::from_millis(100)),
                round_start: true,
                rate: Some(RateSample { segments_per_s: 10.0, app_limited: true }),
                ..AckSample::default()
            });
        }
        assert_eq!(bbr.pacing_segments_per_s().map(f64::round), Some(288.0));
        assert!(bbr.window() >= 10);
    }

    fn round(bbr: &mut Bbr, now_ms: u64, rate: f64, in_flight: u64) {
        bbr.handle_ack(&AckSample {
            now: Duration::from_millis(now_ms),
            segments: 10,
            delivered: 1000,
            in_flight,
            rtt: Some(Duration::from_millis(100)),
            round_start: true,
            rate: Some(RateSample { segments_per_s: rate, app_limited: false }),
            ..AckSample::default()
        });
    }

    #[test]
    fn startup_ends_at_a_stable_rate_and_drains_the_queue() {
        let mut bbr = Bbr::new();
        round(&mut bbr, 100, 1000.0, 100);
        round(&mut bbr, 200, 2000.0, 200);
        assert_eq!(bbr.phase, Phase::Startup);
        for n in 3..=5 {
            round(&mut bbr, n * 100, 2050.0, 400);
        }
        assert_eq!(bbr.phase, Phase::Drain);
        round(&mut bbr, 600, 2000.0, 190);
        assert!(matches!(bbr.phase, Phase::ProbeBandwidth { .. }));
        assert_eq!(bbr.pacing_segments_per_s().map(f64::round), Some(2050.0));
    }

    #[test]
    fn loss_alone_changes_nothing() {
        let mut bbr = Bbr::new();
        round(&mut bbr, 100, 1000.0, 100);
        let before = (bbr.window(), bbr.pacing_segments_per_s());
        bbr.handle_loss(Duration::from_millis(150));
        assert_eq!((bbr.window(), bbr.pacing_segments_per_s()), before);
    }

    #[test]
    fn the_round_trip_is_probed_every_ten_seconds() {
        let mut bbr = Bbr::new();
        let mut probed = 0;
        let mut before = false;
        for n in 1..400u64 {
            let in_flight = bbr.window().min(200);
            // A growing queue: no sample is as low as those before.
            let rtt = Duration::from_millis(100 + n);
            bbr.handle_ack(&AckSample {
                now: Duration::from_millis(n * 100),
                segments: 50,
                delivered: n * 50,
                in_flight,
                rtt: Some(rtt),
                round_start: true,
                rate: Some(RateSample { segments_per_s: 1000.0, app_limited: false }),
                ..AckSample::default()
            });
            let probing = matches!(bbr.phase, Phase::ProbeRtt { .. });
            probed += u32::from(probing && !before);
            before = probing;
        }
        assert!((2..=4).contains(&probed), "{probed} times in 40 s");
    }
}
