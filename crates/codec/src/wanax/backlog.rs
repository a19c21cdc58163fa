//! How long what is asked for waits at the far side, learnt from how long answers take.
//!
//! An answer waits behind the far side's filled sockets and line, and only the answer tells how much that is: the round
//! trip was measured on an idle path, and the planning end has requested only a part of the bytes under way. So each
//! request is noted with the time explained by [`shed::Path`](super::shed::Path), and its further time is the wait.
//! While an answer is overdue the wait is at least as long as it is overdue.
//!
//! On a path hoped to carry more than is known of it, an answer has a second time: a later one is overdue, shows the
//! hope to be vain, and waits for nothing.

use std::collections::{BTreeMap, BTreeSet};

use crate::Now;

/// How much longer answers take than the path explains.
#[derive(Clone, Debug, Default)]
pub struct Backlog {
    /// When answers are due that are not there, by block: as the path is known, and as is hoped.
    asked: BTreeMap<u64, [Now; 2]>,
    /// The same by each of these times.
    due: [BTreeSet<(Now, u64)>; 2],
    /// What the last answers waited, and when the last of them came.
    known: Option<(Now, Now)>,
}

impl Backlog {
    /// A request was sent for chunks of a block, with an answer explained by the path after `expected`, or after
    /// `hoped` at the hoped-for rate. A request repeated counts from the first time.
    pub fn handle_asked(&mut self, block: u64, expected: Now, hoped: Now, now: Now) {
        let times = [expected, hoped].map(|time| now.saturating_add(time));
        let times = *self.asked.entry(block).or_insert(times);
        for (due, time) in self.due.iter_mut().zip(times) {
            due.insert((time, block));
        }
    }

    /// Nothing is hoped for beyond what is known.
    pub fn end_hope(&mut self) {
        let [known, hoped] = &mut self.due;
        hoped.clone_from(known);
        self.asked.values_mut().for_each(|[known, hoped]| *hoped = *known);
    }

    /// The first chunks of a block came.
    pub fn handle_answered(&mut self, block: u64, now: Now) {
        let Some([due, _]) = self.take(block) else { return };
        let waited = now.saturating_sub(due);
        let before = self.known.map_or(Now::ZERO, |_| self.learnt(now));
        // A filling line is believed at once; an emptying one, by and by.
        let wait = if waited > before { waited } else { (before + waited) / 2 };
        self.known = Some((wait, now));
    }

    /// The block came otherwise, or its answer is lost with a lane.
    pub fn forget(&mut self, block: u64) {
        self.take(block);
    }

    fn take(&mut self, block: u64) -> Option<[Now; 2]> {
        let times = self.asked.remove(&block)?;
        for (due, time) in self.due.iter_mut().zip(times) {
            due.remove(&(time, block));
        }
        Some(times)
    }

    /// Forgets all requests; what was learnt stays.
    pub fn forget_all(&mut self) {
        self.asked.clear();
        self.due.iter_mut().for_each(BTreeSet::clear);
    }

    /// Returns the wait of a request beyond the path's explanation, as far as known.
    pub fn wait(&self, now: Now) -> Now {
        let [known, _] = &self.due;
        let overdue = known.first().map_or(Now::ZERO, |(due, _)| now.saturating_sub(*due));
        self.learnt(now).max(overdue)
    }

    /// Returns whether something asked for should have come, if the path carries what is hoped for.
    pub fn is_overdue(&self, now: Now) -> bool {
        let [_, hoped] = &self.due;
        hoped.first().is_some_and(|(due, _)| *due < now)
    }

    /// Evidence of answers. Nothing more is added to an idle line, so it empties by a second each second; half is
    /// assumed, since the far side goes on sending.
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
        backlog.handle_asked(1, 200 * MS, 200 * MS, Now::ZERO);
        backlog.handle_answered(1, 190 * MS);
        assert_eq!(backlog.wait(190 * MS), Now::ZERO);
    }

    #[test]
    fn overdue_answer_shows_before_it_comes() {
        let mut backlog = Backlog::default();
        backlog.handle_asked(1, 200 * MS, 200 * MS, Now::ZERO);
        backlog.handle_asked(2, 200 * MS, 200 * MS, 500 * MS);
        assert_eq!(backlog.wait(200 * MS), Now::ZERO);
        assert_eq!(backlog.wait(900 * MS), 700 * MS);
        // Asked again, it counts from the first time.
        backlog.handle_asked(1, 200 * MS, 200 * MS, 900 * MS);
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
            backlog.handle_asked(block as u64, Now::ZERO, Now::ZERO, Now::from_secs(1) - waited * MS);
            backlog.handle_answered(block as u64, Now::from_secs(1));
            assert_eq!(backlog.wait(Now::from_secs(1)), known * MS);
        }
        // An answer to what nobody asked says nothing.
        backlog.handle_answered(77, Now::from_secs(1));
        assert_eq!(backlog.wait(Now::from_secs(1)), 300 * MS);
    }

    #[test]
    fn answer_later_than_hoped_is_overdue_without_a_wait() {
        let mut backlog = Backlog::default();
        backlog.handle_asked(1, 300 * MS, 100 * MS, Now::ZERO);
        backlog.handle_asked(2, 300 * MS, 100 * MS, Now::ZERO);
        assert!(!backlog.is_overdue(100 * MS) && backlog.is_overdue(101 * MS));
        assert_eq!(backlog.wait(250 * MS), Now::ZERO);
        backlog.handle_answered(1, 250 * MS);
        assert_eq!(backlog.wait(250 * MS), Now::ZERO);
        backlog.end_hope();
        assert!(!backlog.is_overdue(300 * MS) && backlog.is_overdue(301 * MS), "it is not forgotten");
        backlog.handle_answered(2, 350 * MS);
        assert_eq!((backlog.wait(350 * MS), backlog.is_overdue(Now::MAX)), (50 * MS, false));
    }
}
