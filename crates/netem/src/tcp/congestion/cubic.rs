//! CUBIC [RFC 9438].

use std::time::Duration;

use super::hystart::{Advice, HyStart};
use super::{AckSample, Congestion, INITIAL_WINDOW};
use crate::Now;

/// CUBIC with its Reno-friendly region and fast convergence.
///
/// Modelled: slow start from 10 segments, multiplicative decrease to 0.7, cubic growth, restart after idle [RFC
/// 2861], HyStart++ in the first slow start. Not modelled: proportional rate reduction, undoing spurious reductions.
#[derive(Clone, Debug)]
pub struct Cubic {
    window: f64,
    slow_start_threshold: f64,
    /// The window before the last reduction.
    window_max: f64,
    epoch: Option<Epoch>,
    last_ack_at: Now,
    /// Until the first reduction.
    hystart: Option<HyStart>,
}

/// A time of growth since the last reduction.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    began_at: Now,
    /// Seconds until the window is back at `origin` [RFC 9438 §4.2].
    k: f64,
    origin: f64,
    /// Reno's window at this time [RFC 9438 §4.3].
    reno: f64,
}

impl Cubic {
    /// Starts in slow start.
    pub fn new() -> Self {
        Self {
            window: INITIAL_WINDOW,
            slow_start_threshold: f64::INFINITY,
            window_max: 0.0,
            epoch: None,
            last_ack_at: Now::ZERO,
            hystart: Some(HyStart::default()),
        }
    }

    fn slow_start(&mut self, sample: &AckSample) {
        let advice = self.hystart.as_mut().map_or(Advice::Double, |hystart| hystart.handle_ack(sample));
        if advice == Advice::Leave {
            self.slow_start_threshold = self.window;
            self.hystart = None;
        } else if sample.window_limited {
            let share = if advice == Advice::Creep { 0.25 } else { 1.0 };
            self.window = (self.window + sample.segments as f64 * share).min(self.slow_start_threshold);
        }
    }

    fn begin_epoch(&self, now: Now) -> Epoch {
        let origin = self.window_max.max(self.window);
        Epoch { began_at: now, k: ((origin - self.window) / C).cbrt(), origin, reno: self.window }
    }

    fn avoid_congestion(&mut self, sample: &AckSample) {
        let mut epoch = self.epoch.unwrap_or_else(|| self.begin_epoch(sample.now));
        if !sample.window_limited {
            // The cubic curve must not run away while the application sends too little to test the path.
            epoch.began_at += sample.now.saturating_sub(self.last_ack_at);
            self.epoch = Some(epoch);
            return;
        }
        let elapsed_s = sample.now.saturating_sub(epoch.began_at).as_secs_f64();
        let rtt_s = sample.smoothed_rtt.unwrap_or_default().as_secs_f64();
        let curve = |t_s: f64| C * (t_s - epoch.k).powi(3) + epoch.origin;
        let segments = sample.segments as f64;
        let alpha = if epoch.reno >= epoch.origin { 1.0 } else { RENO_INCREASE };
        epoch.reno += alpha * segments / self.window;
        if curve(elapsed_s) < epoch.reno {
            self.window = self.window.max(epoch.reno);
        } else {
            let target = curve(elapsed_s + rtt_s).clamp(self.window, 1.5 * self.window);
            self.window += (target - self.window) / self.window * segments;
        }
        self.epoch = Some(epoch);
    }

    fn reduce(&mut self) {
        // Fast convergence [RFC 9438 §4.7]: a flow with two reductions in a row leaves room for others.
        self.window_max =
            if self.window < self.window_max { self.window * (1.0 + BETA) / 2.0 } else { self.window };
        self.slow_start_threshold = (self.window * BETA).max(2.0);
        self.epoch = None;
        self.hystart = None;
    }
}

impl Default for Cubic {
    fn default() -> Self {
        Self::new()
    }
}

impl Congestion for Cubic {
    fn handle_ack(&mut self, sample: &AckSample) {
        if !sample.in_recovery {
            if self.window >= self.slow_start_threshold {
                self.avoid_congestion(sample);
            } else {
                self.slow_start(sample);
            }
        }
        self.last_ack_at = sample.now;
    }

    fn handle_loss(&mut self, _now: Now) {
        self.reduce();
        self.window = self.slow_start_threshold;
    }

    fn handle_timeout(&mut self, _now: Now) {
        self.reduce();
        self.window = 1.0;
    }

    fn handle_idle(&mut self, idle: Duration, timeout: Duration) {
        let timeouts = (idle.as_secs_f64() / timeout.as_secs_f64().max(1e-3)).floor().min(64.0);
        if timeouts >= 1.0 {
            self.slow_start_threshold = self.slow_start_threshold.max(self.window * 0.75);
            let halved = self.window / 2f64.powf(timeouts);
            self.window = halved.max(INITIAL_WINDOW.min(self.window));
            self.epoch = None;
            // Its queue observations are over; rounds begin anew with the window.
            self.hystart = self.hystart.as_ref().map(|_| HyStart::default());
        }
    }

    fn window(&self) -> u64 {
        (self.window as u64).max(1)
    }

    fn slow_start_threshold(&self) -> Option<u64> {
        self.slow_start_threshold.is_finite().then_some(self.slow_start_threshold as u64)
    }

    fn pacing_segments_per_s(&self) -> Option<f64> {
        None
    }
}

const C: f64 = 0.4;
const BETA: f64 = 0.7;
/// 3 (1 − β) / (1 + β) [RFC 9438 §4.3].
const RENO_INCREASE: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

#[cfg(test)]
mod tests {
    use super::*;

    fn acked(now_ms: u64, segments: u64) -> AckSample {
        AckSample {
            now: Duration::from_millis(now_ms),
            segments,
            smoothed_rtt: Some(Duration::from_millis(100)),
            window_limited: true,
            ..AckSample::default()
        }
    }

    #[test]
    fn slow_start_doubles_each_round() {
        let mut cubic = Cubic::new();
        cubic.handle_ack(&acked(100, 10));
        assert_eq!(cubic.window(), 20);
        cubic.handle_ack(&acked(200, 20));
        assert_eq!(cubic.window(), 40);
    }

    #[test]
    fn unused_window_does_not_grow() {
        let mut cubic = Cubic::new();
        cubic.handle_ack(&AckSample { window_limited: false, ..acked(100, 10) });
        assert_eq!(cubic.window(), 10);
    }

    #[test]
    fn loss_takes_three_tenths_and_growth_returns_after_k() {
        let mut cubic = Cubic { window: 1000.0, ..Cubic::new() };
        cubic.handle_loss(Now::ZERO);
        assert_eq!(cubic.window(), 700);
        // K = cbrt(300 / 0.4) = 9.09 s
        for ms in (0..9_000).step_by(100) {
            cubic.handle_ack(&acked(ms, cubic.window()));
        }
        assert!((960..1010).contains(&cubic.window()), "{}", cubic.window());
        for ms in (9_000..15_000).step_by(100) {
            cubic.handle_ack(&acked(ms, cubic.window()));
        }
        assert!(cubic.window() > 1050, "the convex part probes beyond: {}", cubic.window());
    }

    #[test]
    fn small_windows_grow_at_least_as_reno() {
        let mut cubic = Cubic { window: 20.0, ..Cubic::new() };
        cubic.handle_loss(Now::ZERO);
        for ms in (0..2_000).step_by(50) {
            cubic.handle_ack(&acked(ms, cubic.window()));
        }
        // 14 + 40 rounds × about 0.53 at first, 1 a round beyond the old window.
        assert!(cubic.window() >= 40, "{}", cubic.window());
    }

    #[test]
    fn idle_time_halves_the_window_down_to_the_initial_one() {
        let mut cubic = Cubic { window: 100.0, ..Cubic::new() };
        let timeout = Duration::from_millis(300);
        cubic.handle_idle(Duration::from_millis(200), timeout);
        assert_eq!(cubic.window(), 100);
        cubic.handle_idle(Duration::from_millis(700), timeout);
        assert_eq!(cubic.window(), 25);
        cubic.handle_idle(Duration::from_secs(60), timeout);
        assert_eq!(cubic.window(), 10);
    }

    #[test]
    fn queue_seen_before_idle_time_keeps_the_next_slow_start() {
        let mut cubic = Cubic::new();
        let round = |cubic: &mut Cubic, rtt_ms: u64| {
            for at in 0..8 {
                let rtt = Some(Duration::from_millis(rtt_ms));
                cubic.handle_ack(&AckSample { rtt, round_start: at == 0, ..acked(100, 1) });
            }
        };
        for rtt_ms in [100, 100, 150, 150, 150] {
            round(&mut cubic, rtt_ms);
        }
        let creeping = cubic.window();
        round(&mut cubic, 150);
        assert_eq!(cubic.window(), creeping + 2, "it creeps");
        cubic.handle_idle(Duration::from_secs(60), Duration::from_millis(300));
        for _ in 0..8 {
            round(&mut cubic, 150);
        }
        assert_eq!(cubic.window(), 10 + 8 * 8);
    }

    #[test]
    fn a_timeout_starts_over_from_one() {
        let mut cubic = Cubic { window: 100.0, ..Cubic::new() };
        cubic.handle_timeout(Now::ZERO);
        assert_eq!(cubic.window(), 1);
        for ms in 0..20 {
            cubic.handle_ack(&acked(ms, 10));
        }
        assert!(cubic.window() >= 70);
    }
}
