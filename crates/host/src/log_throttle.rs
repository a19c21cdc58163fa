//! Rate limit of log lines that strangers can cause.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Lets a line pass per period, or a few, and counts the rest.
#[derive(Debug)]
pub struct LogThrottle {
    /// Default 1 s.
    period: Duration,
    /// Lines of a period.
    burst: u32,
    /// When the period began, and the lines since.
    passed: Mutex<Option<(Instant, u32)>>,
    held_back: AtomicU64,
}

impl Default for LogThrottle {
    fn default() -> Self {
        Self::every(PERIOD)
    }
}

impl LogThrottle {
    /// Lets one line pass in each period.
    pub(crate) fn every(period: Duration) -> Self {
        Self::bursts(1, period)
    }

    /// Lets so many lines pass in each period.
    pub fn bursts(burst: u32, period: Duration) -> Self {
        Self { period, burst, passed: Mutex::new(None), held_back: AtomicU64::new(0) }
    }

    /// Returns whether to log now, with the number of lines held back since the last.
    pub fn due(&self) -> Option<u64> {
        let mut passed = self.passed.lock();
        let now = Instant::now();
        let (since, lines) = match *passed {
            Some((since, lines)) if now.duration_since(since) < self.period => (since, lines),
            _ => (now, 0),
        };
        if lines >= self.burst {
            self.held_back.fetch_add(1, Relaxed);
            return None;
        }
        *passed = Some((since, lines + 1));
        Some(self.held_back.swap(0, Relaxed))
    }

    /// Waits until the next line may pass, and returns the number of lines held back by then.
    pub async fn next(&self) -> u64 {
        loop {
            let until = self.passed.lock().map(|(since, _)| since + self.period);
            if let Some(until) = until {
                tokio::time::sleep_until(until).await;
            }
            // Not one line more for having waited.
            let held_back = self.held_back.load(Relaxed);
            if let Some(more) = self.due() {
                return more;
            }
            self.held_back.store(held_back, Relaxed);
        }
    }
}

const PERIOD: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn burst_passes_and_the_rest_is_counted() {
        let seldom = LogThrottle::bursts(3, Duration::from_secs(4));
        let mut told = Vec::new();
        for _ in 0..80 {
            told.extend(seldom.due());
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        assert_eq!(told, [0, 0, 0, 37, 0, 0]);
        assert_eq!(seldom.next().await, 37);
    }
}
