//! How long this thread has worked.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Adds up the CPU time of one part of a thread's work.
///
/// Other threads, waiting, and the time between two calls of [`Self::time`] do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stopwatch {
    spent: Duration,
}

impl Stopwatch {
    /// Does `work` and counts its time.
    pub fn time<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let start = thread_time();
        let result = work();
        self.spent += thread_time().saturating_sub(start);
        result
    }

    /// Returns the time so far.
    pub const fn spent(&self) -> Duration {
        self.spent
    }
}

fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // Neither is negative: the clock starts at zero with the thread.
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_outside_the_stopwatch_does_not_count() {
        let work = || (0..2_000_000u64).fold(1, |sum, i| std::hint::black_box(sum ^ i));
        let (mut all, mut half) = (Stopwatch::default(), Stopwatch::default());
        all.time(|| {
            half.time(work);
            work();
        });
        assert!(half.spent() > Duration::ZERO);
        assert!(all.spent() > half.spent(), "{all:?} {half:?}");
    }
}
