//! Log lines that a stranger can cause are written seldom.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Lets one line pass per period and counts the rest.
#[derive(Debug)]
pub(crate) struct Seldom {
    /// Default 1 s.
    period: Duration,
    last: Mutex<Option<Instant>>,
    held_back: AtomicU64,
}

impl Default for Seldom {
    fn default() -> Self {
        Self::every(PERIOD)
    }
}

impl Seldom {
    /// Lets one line pass in each period.
    pub(crate) fn every(period: Duration) -> Self {
        Self { period, last: Mutex::new(None), held_back: AtomicU64::new(0) }
    }

    /// Says whether to log now, and how many lines were held back since the last.
    pub(crate) fn due(&self) -> Option<u64> {
        let mut last = self.last.lock();
        let now = Instant::now();
        if last.is_some_and(|last| now.duration_since(last) < self.period) {
            self.held_back.fetch_add(1, Relaxed);
            return None;
        }
        *last = Some(now);
        Some(self.held_back.swap(0, Relaxed))
    }
}

const PERIOD: Duration = Duration::from_secs(1);
