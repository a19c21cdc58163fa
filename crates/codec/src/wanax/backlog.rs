//! How long what is asked for waits at the far side, learnt from how long answers take.
//!
//! What a far side has handed to its sockets and to the line goes before an answer, and only the answer tells how much
//! that is: the round trip was measured while nothing waited, and the end that plans has asked for but a part of what is
//! under way. So each request is noted with the time that [`shed::Path`](super::shed::Path) explains, and what it takes
//! beyond that is the wait. While an answer is overdue the wait is at least as long as it is overdue.

use std::collections::BTreeMap;

use crate::Now;

/// How much longer answers take than the path explains.
#[derive(Clone, Debug, Default)]
pub struct Backlog {
    /// Requests without an answer, by block.
    asked: BTreeMap<u64, Asked>,
    /// What the last answers waited, and when the last of them came.
    known: Option<(Now, Now)>,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    at: Now,
    /// What the path explains.
    expected: Now,
}

impl Backlog {
    /// A request was sent for chunks of a block, the answer to which the path explains after `expected`. A request that
    /// is repeated counts from the first time.
    pub fn handle_asked(&mut self, block: u64, expected: Now, now: Now) {
        self.asked.entry(block).or_insert(Asked { at: now, expected });
    }

    /// The first chunks of a block came.
    pub fn handle_answered(&mut self, block: u64, now: Now) {
        let Some(asked) = self.asked.remove(&block) else { return };
        let waited = asked.overdue(now);
        let before = self.known.map_or(Now::ZERO, |_| self.learnt(now));
        // A line that fills is believed at once; one that empties, by and by.
        let wait = if waited > before { waited } else { (before + waited) / 2 };
        self.known = Some((wait, now));
    }

    /// The block came otherwise, or its answer is lost with a lane.
    pub fn forget(&mut self, block: u64) {
        self.asked.remove(&block);
    }

    /// Forgets all requests; what was learnt stays.
    pub fn forget_all(&mut self) {
        self.asked.clear();
    }

    /// Returns how long what is asked for now waits beyond what the path explains, as far as is known.
    pub fn wait(&self, now: Now) -> Now {
        let overdue = self.asked.values().map(|asked| asked.overdue(now)).max();
        self.learnt(now).max(overdue.unwrap_or_default())
    }

    /// What answers say. Nothing more is added to a line that is left alone, which then empties by a second each second;
    /// half of that is assumed, since the far side goes on sending.
    fn learnt(&self, now: Now) -> Now {
        self.known.map_or(Now::ZERO, |(wait, at)| wait.saturating_sub(now.saturating_sub(at) / 2))
    }
}

impl Asked {
    fn overdue(&self, now: Now) -> Now {
        now.saturating_sub(self.at).saturating_sub(self.expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Now = Now::from_millis(1);

    #[test]
    fn an_answer_in_time_waits_for_nothing() {
        let mut backlog = Backlog::default();
        backlog.handle_asked(1, 200 * MS, Now::ZERO);
        backlog.handle_answered(1, 190 * MS);
        assert_eq!(backlog.wait(190 * MS), Now::ZERO);
    }

    #[test]
    fn an_answer_that_is_overdue_says_so_before_it_comes() {
        let mut backlog = Backlog::default();
        backlog.handle_asked(1, 200 * MS, Now::ZERO);
        backlog.handle_asked(2, 200 * MS, 500 * MS);
        assert_eq!(backlog.wait(200 * MS), Now::ZERO);
        assert_eq!(backlog.wait(900 * MS), 700 * MS);
        // Asked again, it counts from the first time.
        backlog.handle_asked(1, 200 * MS, 900 * MS);
        backlog.handle_answered(1, 1200 * MS);
        assert_eq!(backlog.wait(1200 * MS), 1000 * MS);
        backlog.forget(2);
        assert_eq!(backlog.wait(1600 * MS), 800 * MS, "it empties");
        assert_eq!(backlog.wait(4000 * MS), Now::ZERO);
    }

    #[test]
    fn a_wait_rises_at_once_and_falls_by_halves() {
        let mut backlog = Backlog::default();
        for (block, (waited, known)) in [(400, 400), (0, 200), (0, 100), (300, 300)].into_iter().enumerate() {
            backlog.handle_asked(block as u64, Now::ZERO, Now::from_secs(1) - waited * MS);
            backlog.handle_answered(block as u64, Now::from_secs(1));
            assert_eq!(backlog.wait(Now::from_secs(1)), known * MS);
        }
        // An answer to what nobody asked says nothing.
        backlog.handle_answered(77, Now::from_secs(1));
        assert_eq!(backlog.wait(Now::from_secs(1)), 300 * MS);
    }
}
