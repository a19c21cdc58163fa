//! How long what is asked for waits at the far side, learnt from how long answers take.
//!
//! What a far side has handed to its sockets and to the line goes before an answer, and only the answer tells how much
//! that is: the round trip was measured while nothing waited, and the end that plans has asked for but a part of what is
//! under way. So each request is noted with the time that [`shed::Path`](super::shed::Path) explains, and what it takes
//! beyond that is the wait. While an answer is overdue the wait is at least as long as it is overdue.

use std::collections::{BTreeMap, BTreeSet};

use crate::Now;

/// How much longer answers take than the path explains.
#[derive(Clone, Debug, Default)]
pub struct Backlog {
    /// When answers are due that are not there, by block.
    asked: BTreeMap<u64, Now>,
    /// The same by that time.
    due: BTreeSet<(Now, u64)>,
    /// What the last answers waited, and when the last of them came.
    known: Option<(Now, Now)>,
}

impl Backlog {
    /// A request was sent for chunks of a block, the answer to which the path explains after `expected`. A request that
    /// is repeated counts from the first time.
    pub fn handle_asked(&mut self, block: u64, expected: Now, now: Now) {
        let due = *self.asked.entry(block).or_insert(now.saturating_add(expected));
        self.due.insert((due, block));
    }

    /// The first chunks of a block came.
    pub fn handle_answered(&mut self, block: u64, now: Now) {
        let Some(due) = self.take(block) else { return };
        let waited = now.saturating_sub(due);
        let before = self.known.map_or(Now::ZERO, |_| self.learnt(now));
        // A line that fills is believed at once; one that empties, by and by.
        let wait = if waited > before { waited } else { (before + waited) / 2 };
        self.known = Some((wait, now));
    }

    /// The block came otherwise, or its answer is lost with a lane.
    pub fn forget(&mut self, block: u64) {
        self.take(block);
    }

    fn take(&mut self, block: u64) -> Option<Now> {
        let due = self.asked.remove(&block)?;
        self.due.remove(&(due, block));
        Some(due)
    }

    /// Forgets all requests; what was learnt stays.
    pub fn forget_all(&mut self) {
        self.asked.clear();
        self.due.clear();
    }

    /// Returns how long what is asked for now waits beyond what the path explains, as far as is known.
    pub fn wait(&self, now: Now) -> Now {
        self.learnt(now).max(self.overdue(now))
    }

    /// Returns how long ago what was asked for should have come; zero if nothing should have.
    pub fn overdue(&self, now: Now) -> Now {
        self.due.first().map_or(Now::ZERO, |(due, _)| now.saturating_sub(*due))
    }

    /// What answers say. Nothing more is added to a line that is left alone, which then empties by a second each second;
    /// half of that is assumed, since the far side goes on sending.
    fn learnt(&self, now: Now) -> Now {
        self.known.map_or(Now::ZERO, |(wait, at)| wait.saturating_sub(now.saturating_sub(at) / 2))
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
