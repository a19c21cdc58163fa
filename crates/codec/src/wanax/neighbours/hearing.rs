//! How much one member is listened to when it tells what is new in its store.

use crate::Now;
use crate::wire::MAX_TAGS;

/// Bounds what is heard of one member: twice what an [`Announcer`](super::Announcer) tells, and no more for long.
///
/// What is refused is lost like any hint, which costs bytes on the line and nothing else.
#[derive(Clone, Debug)]
pub struct Hearing {
    /// Millionths of tags that are listened to at once.
    left: u64,
    at: Now,
}

/// The most tags a second that one member is listened to for.
pub const HEARD_PER_SECOND: u64 = 20 * MAX_TAGS as u64;
/// What is listened to at once, after as long a silence: what gathers in three seconds in which a line stands still.
const AT_ONCE: u64 = 3 * HEARD_PER_SECOND;
/// A frame costs no less than this many tags.
const LEAST_COST: u64 = 32;
const MILLION: u64 = 1_000_000;

impl Hearing {
    /// Begins to listen.
    pub fn new(now: Now) -> Self {
        Self { left: AT_ONCE * MILLION, at: now }
    }

    /// Says whether a frame of so many tags is listened to now.
    pub fn admits(&mut self, tags: usize, now: Now) -> bool {
        let elapsed_us = u64::try_from(now.saturating_sub(self.at).as_micros()).unwrap_or(u64::MAX);
        self.left =
            self.left.saturating_add(elapsed_us.saturating_mul(HEARD_PER_SECOND)).min(AT_ONCE * MILLION);
        self.at = self.at.max(now);
        let cost = (tags as u64).max(LEAST_COST).saturating_mul(MILLION);
        let admitted = cost <= self.left;
        if admitted {
            self.left -= cost;
        }
        admitted
    }
}

#[cfg(test)]
mod tests {
    use super::super::Announcer;
    use super::*;
    use crate::wire::{GroupFrame, Sought};

    #[test]
    fn who_tells_as_fast_as_it_can_is_heard_in_full() {
        let (mut announcer, mut hearing) = (Announcer::default(), Hearing::new(Now::ZERO));
        let mut heard = 0;
        for ms in 0..60_000 {
            let now = Now::from_millis(ms);
            for at in 0..20 {
                let len = if at % 2 == 0 { 65536 } else { 4096 };
                announcer.stored(Sought { tag: ms * 20 + at, len }, now);
            }
            for frame in announcer.poll_frames(now) {
                let GroupFrame::Stored { tags, .. } = frame else { panic!() };
                assert!(hearing.admits(tags.len(), now), "{now:?}");
                heard += tags.len() as u64;
            }
        }
        assert!(heard > 590 * MAX_TAGS as u64, "{heard}");
    }

    #[test]
    fn who_babbles_is_heard_at_the_rate_whatever_its_frames_hold() {
        let start = Now::from_secs(7);
        for tags in [0, 1, 100, MAX_TAGS] {
            let mut hearing = Hearing::new(start);
            let heard = (0..100_000).filter(|at| hearing.admits(tags, start + Now::from_micros(100) * *at));
            let most = (AT_ONCE + 10 * HEARD_PER_SECOND) / (tags as u64).max(LEAST_COST);
            let heard = heard.count() as u64;
            assert!((most - 1..=most).contains(&heard), "{tags}: {heard} of {most}");
        }
    }

    #[test]
    fn a_clock_that_stands_or_goes_back_gives_nothing() {
        let mut hearing = Hearing::new(Now::from_secs(7));
        let heard = (0..1000).filter(|at| hearing.admits(MAX_TAGS, Now::from_secs(at % 7))).count() as u64;
        assert_eq!(heard, AT_ONCE / MAX_TAGS as u64);
    }
}
