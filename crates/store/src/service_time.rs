//! How long a read takes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The duration of a read in nanoseconds, smoothed over some sixteen reads; zero before the first.
///
/// A planner does not read while it is long, so it must not stay long for want of reads: it halves with each
/// [`HALF_LIFE_NS`] without one. And a stalled disk says little of the next read, so no read counts for more than
/// [`MOST_NS`].
///
/// On a busy machine a read from memory may take long, too, since its thread waits for a processor. It says nothing
/// of the disk. So if few of the last reads took [`LONG_NS`], the time is that of the others.
#[derive(Debug, Default)]
pub(crate) struct ServiceTime {
    smoothed: AtomicU64,
    /// The same for reads below [`LONG_NS`] alone; zero before the first.
    short: AtomicU64,
    /// How many of the last reads took longer, of [`ALL`].
    long: AtomicU64,
    /// Whether there are enough of those to count.
    is_slow: AtomicBool,
    /// When the last read was finished.
    last: AtomicU64,
}

impl ServiceTime {
    /// Counts a read finished at `now`; one by one, or one of two counts.
    pub(crate) fn took(&self, time: u64, now: u64) {
        let time = time.min(MOST_NS);
        let (halvings, is_long) = (self.halvings(now), time >= LONG_NS);
        let smoothed = |old: u64| match old {
            0 => time,
            // The value was forgotten in part: the new read says more.
            old if halvings > 0 => (old >> halvings).max(time),
            old => old - old / 16 + time / 16,
        };
        let before = self.smoothed.load(Relaxed);
        self.count_long(is_long, before == 0 || halvings > 0);
        self.smoothed.store(smoothed(before), Relaxed);
        if !is_long {
            self.short.store(smoothed(self.short.load(Relaxed)), Relaxed);
        }
        self.last.store(now, Relaxed);
    }

    fn count_long(&self, is_long: bool, afresh: bool) {
        let new = if is_long { ALL } else { 0 };
        let long = match self.long.load(Relaxed) {
            _ if afresh => new,
            old => old - old / 16 + new / 16,
        };
        self.long.store(long, Relaxed);
        if long >= MANY {
            self.is_slow.store(true, Relaxed);
        } else if long < FEW {
            self.is_slow.store(false, Relaxed);
        }
    }

    /// Returns it as of `now`.
    pub(crate) fn at(&self, now: u64) -> u64 {
        let counts = if self.is_slow.load(Relaxed) { &self.smoothed } else { &self.short };
        counts.load(Relaxed) >> self.halvings(now)
    }

    fn halvings(&self, now: u64) -> u32 {
        let idle = now.saturating_sub(self.last.load(Relaxed));
        u32::try_from(idle / HALF_LIFE_NS).unwrap_or(u32::MAX).min(63)
    }
}

const HALF_LIFE_NS: u64 = 10_000_000_000;
const MOST_NS: u64 = 1_000_000_000;
/// No page of memory takes so long, and hardly a disk without an arm.
const LONG_NS: u64 = 2_000_000;
const ALL: u64 = 1 << 16;
const MANY: u64 = ALL / 4;
const FEW: u64 = ALL / 8;

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
    fn time_starts_at_the_first_read_and_is_smoothed() {
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
    fn few_long_reads_do_not_make_a_disk_slow() {
        let (time, mut now) = (ServiceTime::default(), 0);
        let mut read = |us: u64| {
            now += us * 1000;
            time.took(us * 1000, now);
            time.at(now)
        };
        (0..1000).for_each(|nth| assert_eq!(read(if nth % 10 == 9 { 40_000 } else { 96 }), 96_000, "{nth}"));
        // Every second one from the disk, and then all from memory again.
        let slow = (0..100).map(|nth| read(if nth % 2 == 0 { 8_000 } else { 96 })).last().unwrap();
        assert!((3 * MS..5 * MS).contains(&slow), "{slow} ns");
        (0..40).for_each(|_| _ = read(96));
        assert_eq!(read(96), 96_000);
    }

    #[test]
    fn disk_after_a_stall_is_not_shunned_for_ever() {
        let (time, mut now) = (ServiceTime::default(), 0);
        reads(&time, &mut now, 100, 8);
        // All sixteen readers waited for it.
        now += 60 * S;
        (0..16).for_each(|_| time.took(60 * S, now));
        assert!(time.at(now) <= S);
        // Nobody reads at this time, and at a later one somebody does.
        assert!(time.at(now + 70 * S) < 8 * MS);
        now += 70 * S;
        reads(&time, &mut now, 1, 8);
        assert_eq!(time.at(now), 8 * MS);
    }

    #[test]
    fn time_of_a_slow_disk_returns_with_its_first_read() {
        let (time, mut now) = (ServiceTime::default(), 0);
        reads(&time, &mut now, 100, 200);
        now += 3600 * S;
        assert_eq!(time.at(now), 0);
        reads(&time, &mut now, 1, 200);
        assert_eq!(time.at(now), 200 * MS);
    }
}
