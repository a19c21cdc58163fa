//! The bridge from the machine's clock to the cores' time.

use std::time::Duration;

use tokio::time::Instant;

use oncewire_codec::Now;

/// A clock starting at zero on its creation.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// Starts a clock at zero.
    pub fn start() -> Self {
        Self { origin: Instant::now() }
    }

    /// Reads the time since the start.
    pub fn now(&self) -> Now {
        self.origin.elapsed()
    }

    /// Converts `at`, clamped to at least a millisecond from now: a timer firing at once forever would take a
    /// CPU core.
    pub fn instant(&self, at: Now) -> Instant {
        let soonest = Instant::now() + Duration::from_millis(1);
        // An unrepresentable deadline is as good as a year.
        let due = self.origin.checked_add(at).unwrap_or_else(|| soonest + Duration::from_secs(365 * 86_400));
        due.max(soonest)
    }
}
