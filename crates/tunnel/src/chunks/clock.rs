//! The clock of chunks' times.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use super::names::unix_time_s;

/// The time of day in seconds since 1970, made monotonic: it never lies behind the newest chunk of a store
/// from an earlier run, nor goes back with the system's clock. It then goes on at the normal rate, ahead of
/// the system's, so the age of stored chunks stays right.
#[derive(Debug)]
pub(super) struct StoreClock {
    started: Instant,
    /// Its first value; moved forward whenever the system's clock is ahead of it.
    offset_s: AtomicU64,
}

impl Default for StoreClock {
    fn default() -> Self {
        Self { started: Instant::now(), offset_s: AtomicU64::new(0) }
    }
}

impl StoreClock {
    pub(super) fn now_s(&self) -> u64 {
        self.at(unix_time_s(), self.started.elapsed().as_secs())
    }

    /// Goes on from the newest chunk there is; returns its lead over the system's clock in seconds.
    pub(super) fn go_on_from(&self, newest_s: u64) -> u64 {
        self.offset_s.fetch_max(newest_s.saturating_sub(self.started.elapsed().as_secs()), Relaxed);
        newest_s.saturating_sub(unix_time_s())
    }

    fn at(&self, wall_s: u64, elapsed_s: u64) -> u64 {
        let walls = wall_s.saturating_sub(elapsed_s);
        self.offset_s.fetch_max(walls, Relaxed).max(walls).saturating_add(elapsed_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_advances_despite_changes_of_the_system_clock() {
        let clock = StoreClock::default();
        assert_eq!(clock.at(5000, 10), 5000);
        assert_eq!(clock.at(1400, 20), 5010, "set back by an hour");
        assert_eq!(clock.at(1500, 120), 5110);
        assert_eq!(clock.at(9000, 130), 9000, "set forward");
        assert_eq!(clock.at(9010, 140), 9010);
    }

    #[test]
    fn clock_goes_on_from_the_newest_chunk() {
        let clock = StoreClock::default();
        let ahead = unix_time_s() + 86_400;
        assert!((86_000..=86_400).contains(&clock.go_on_from(ahead)));
        assert!(clock.now_s() >= ahead);
        assert_eq!(clock.go_on_from(1000), 0);
        assert!(clock.now_s() >= ahead);
    }
}
