//! How long a read takes.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The time that a read takes in nanoseconds, smoothed over some sixteen reads; zero before the first.
///
/// Whoever plans by it does not read while it is long, so that it must not stay long for want of reads: it halves with
/// each [`HALF_LIFE_NS`] without one. And a disk that stood still says little of the next read, so that no read counts
/// for more than [`MOST_NS`].
#[derive(Debug, Default)]
pub(crate) struct ServiceTime {
    smoothed: AtomicU64,
    /// When the last read was finished.
    last: AtomicU64,
}

impl ServiceTime {
    /// Counts a read that was finished at `now`; one by one, or one of two counts.
    pub(crate) fn took(&self, time: u64, now: u64) {
        let time = time.min(MOST_NS);
        let halvings = self.halvings(now);
        let smoothed = match self.smoothed.load(Relaxed) {
            0 => time,
            // What is told was forgotten in part: the new read says more.
            old if halvings > 0 => (old >> halvings).max(time),
            old => old - old / 16 + time / 16,
        };
        self.smoothed.store(smoothed, Relaxed);
        self.last.store(now, Relaxed);
    }

    /// Returns it as of `now`.
    pub(crate) fn at(&self, now: u64) -> u64 {
        self.smoothed.load(Relaxed) >> self.halvings(now)
    }

    fn halvings(&self, now: u64) -> u32 {
        let idle = now.saturating_sub(self.last.load(Relaxed));
        u32::try_from(idle / HALF_LIFE_NS).unwrap_or(u32::MAX).min(63)
    }
}

const HALF_LIFE_NS: u64 = 10_000_000_000;
const MOST_NS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;
    const MS: u64 = 1_000_000;

    /// Reads of so many milliseconds, one after the other.
    fn reads(time: &ServiceTime, now: &mut u64, count: u32, ms: u64) {
        for _ in 0..count {
            *now += ms * MS;
            time.took(ms * MS, *now);
        }
    }

    #[test]
    fn it_is_that_of_the_first_read_and_then_smoothed() {
        let (time, mut now) = (ServiceTime::default(), 0);
        assert_eq!(time.at(now), 0);
        reads(&time, &mut now, 1, 16);
        assert_eq!(time.at(now), 16 * MS);
        reads(&time, &mut now, 1, 32);
        assert_eq!(time.at(now), 17 * MS);
        reads(&time, &mut now, 100, 32);
        assert!((31 * MS..=32 * MS).contains(&time.at(now)));
    }

    #[test]
    fn a_disk_that_stood_still_is_not_shunned_for_ever() {
        let (time, mut now) = (ServiceTime::default(), 0);
        reads(&time, &mut now, 100, 8);
        // All sixteen readers waited for it.
        now += 60 * S;
        (0..16).for_each(|_| time.took(60 * S, now));
        assert!(time.at(now) <= S);
        // Nobody reads by that, and in time somebody does.
        assert!(time.at(now + 70 * S) < 8 * MS);
        now += 70 * S;
        reads(&time, &mut now, 1, 8);
        assert_eq!(time.at(now), 8 * MS);
    }

    #[test]
    fn what_is_known_of_a_slow_disk_comes_back_with_the_first_read() {
        let (time, mut now) = (ServiceTime::default(), 0);
        reads(&time, &mut now, 100, 200);
        now += 3600 * S;
        assert_eq!(time.at(now), 0);
        reads(&time, &mut now, 1, 200);
        assert_eq!(time.at(now), 200 * MS);
    }
}
