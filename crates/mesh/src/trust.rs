//! Failed members, and the time they are left alone.

use std::collections::VecDeque;

use oncewire_codec::Now;

use super::{MAX_MEMBERS, MemberId};

/// Members with failures and no success since, with or without a live link: a reconnection is no merit.
#[derive(Debug, Default)]
pub(super) struct Failures {
    /// The one that failed last is the last; the oldest goes when there are too many.
    of: VecDeque<(MemberId, Trust)>,
}

/// How often a member failed in a row, and when.
#[derive(Debug)]
struct Trust {
    failures: u32,
    failed_at: Now,
}

const LEAST_REST: Now = Now::from_secs(1);
const MOST_REST: Now = Now::from_secs(60);

impl Failures {
    /// Says whether a member failed lately and is left alone.
    pub(super) fn rests(&self, id: MemberId, now: Now) -> bool {
        self.of.iter().any(|(member, trust)| *member == id && trust.rests(now))
    }

    /// A member failed at a task from `begun`. A task from before its last failure belongs to that failure.
    pub(super) fn failed(&mut self, id: MemberId, begun: Now, now: Now) {
        let before = self.of.iter().position(|(member, _)| *member == id);
        let before = before.and_then(|at| self.of.remove(at)).map(|(_, trust)| trust);
        let trust = match before {
            Some(trust) if begun < trust.failed_at => trust,
            before => {
                Trust { failures: before.map_or(0, |trust| trust.failures).saturating_add(1), failed_at: now }
            }
        };
        if self.of.len() >= MAX_MEMBERS {
            self.of.pop_front();
        }
        self.of.push_back((id, trust));
    }

    /// A member did well.
    pub(super) fn forgive(&mut self, id: MemberId) {
        self.of.retain(|(member, _)| *member != id);
    }
}

impl Trust {
    fn rests(&self, now: Now) -> bool {
        let rest = LEAST_REST.saturating_mul(1 << self.failures.saturating_sub(1).min(6)).min(MOST_REST);
        now < self.failed_at + rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: MemberId = MemberId(1);

    #[test]
    fn failing_member_rests_twice_as_long_each_time() {
        let (mut failures, mut now) = (Failures::default(), Now::from_secs(10));
        for rest in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert!(!failures.rests(ONE, now));
            failures.failed(ONE, now, now);
            failures.failed(ONE, now - Now::from_millis(1), now);
            now += Now::from_secs(rest) - Now::from_nanos(1);
            assert!(failures.rests(ONE, now), "{rest} s");
            now += Now::from_nanos(1);
        }
        assert!(!failures.rests(ONE, now));
        failures.forgive(ONE);
        failures.failed(ONE, now, now);
        assert!(!failures.rests(ONE, now + LEAST_REST), "a good answer ends the doubling");
    }

    #[test]
    fn failures_are_bounded_by_members_oldest_first() {
        let (mut failures, now) = (Failures::default(), Now::from_secs(10));
        failures.failed(ONE, now, now);
        (100..100 + MAX_MEMBERS as u64 - 1).for_each(|id| failures.failed(MemberId(id), now, now));
        assert!(failures.rests(ONE, now));
        failures.failed(MemberId(2), now, now);
        assert!(!failures.rests(ONE, now) && failures.rests(MemberId(100), now));
        assert_eq!(failures.of.len(), MAX_MEMBERS);
    }
}
