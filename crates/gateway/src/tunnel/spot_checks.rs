//! Which calls are measured where to measure all would cost too much.
//!
//! To ask the system for a thread's CPU time takes one to two microseconds, twice for each call. At a few hundred megabytes
//! a second that was a sixth of what uncoded blocks take.

/// Picks calls by chance, more seldom the more there are; who is picked stands for those that are not.
///
/// By chance, since calls come in patterns: every second one may be without work.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpotChecks {
    /// One in so many is picked.
    one_in: u32,
    /// Calls until the next one.
    left: u32,
    calls: u32,
    /// Of a generator that need not be good [Marsaglia, Xorshift RNGs].
    state: u32,
}

impl Default for SpotChecks {
    fn default() -> Self {
        Self { one_in: 1, left: 1, calls: 0, state: 0x9e37_79b9 }
    }
}

impl SpotChecks {
    /// Counts a call; returns for how many it stands if it is to be measured.
    pub(super) fn pick(&mut self) -> Option<u32> {
        self.calls = self.calls.saturating_add(1);
        self.left = self.left.saturating_sub(1);
        if self.left > 0 {
            return None;
        }
        // From 1 to twice the mean less 1, each as likely.
        self.left = 1 + self.random() % (2 * self.one_in - 1);
        Some(self.one_in)
    }

    /// A stretch of time is over: in the next one as many calls are expected.
    pub(super) fn end_stretch(&mut self) {
        self.one_in = (std::mem::take(&mut self.calls) / ENOUGH).clamp(1, MOST);
        self.left = self.left.min(2 * self.one_in - 1);
    }

    fn random(&mut self) -> u32 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 17;
        self.state ^= self.state << 5;
        self.state
    }
}

/// So many calls of a stretch are measured, or all; with them a mean is off by a tenth.
const ENOUGH: u32 = 96;
/// One in so many is measured at least.
const MOST: u32 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes calls of which every second one takes nothing, in several stretches; returns what they take by the calls that
    /// were picked, by what they do, and how many were picked.
    fn run(calls: u32) -> (u32, u32, u32) {
        let (mut checks, mut by_picks, mut picks) = (SpotChecks::default(), 0, 0);
        for _ in 0..10 {
            for call in 0..calls {
                let takes = 10 * (call % 2);
                if let Some(weight) = checks.pick() {
                    by_picks += weight * takes;
                    picks += 1;
                }
            }
            checks.end_stretch();
        }
        (by_picks, 10 * 10 * (calls / 2), picks)
    }

    #[test]
    fn few_calls_are_all_measured() {
        assert_eq!(run(96), (4800, 4800, 960));
    }

    #[test]
    fn of_many_calls_some_stand_for_all() {
        for calls in [1000, 4000, 20_000] {
            let (by_picks, truth, picks) = run(calls);
            assert!(by_picks.abs_diff(truth) * 10 <= truth, "{by_picks} instead of {truth} of {calls}");
            assert!(picks < 10 * calls / 4, "{picks} of {calls} ten times");
        }
    }
}
