//! Signs of life of one lane.

use std::collections::VecDeque;

use oncewire_codec::Now;

use crate::timing::Timing;

/// When a lane was heard and asked.
#[derive(Debug)]
pub(crate) struct Pulse {
    heard: Now,
    /// Time of the first question since the lane was heard.
    asked: Option<Now>,
    /// Whether the question follows a long silence: the lane may be gone without a word.
    doubted: bool,
    /// Whether an answer was the last sign: then it is the peer's turn to ask.
    answered: bool,
    /// Time of the last ping.
    pinged: Now,
    /// Bytes in both directions since the last ping.
    moved: u64,
    /// Time of the first bytes beside pings since the lane was heard.
    spoke: Option<Now>,
    /// Tokens to answer, the newest first.
    pongs: VecDeque<u64>,
    ping_due: bool,
}

/// Bytes on a lane until a question for its round trip is due, also on a busy lane.
const BULK: u64 = 8 << 10;

/// Answers to pings in wait on one lane; older ones are dropped.
const MAX_PONGS: usize = 8;

impl Pulse {
    /// Starts with a new lane.
    pub(crate) fn new(now: Now) -> Self {
        Self {
            heard: now,
            asked: None,
            doubted: false,
            answered: false,
            pinged: now,
            moved: 0,
            spoke: None,
            pongs: VecDeque::new(),
            ping_due: false,
        }
    }

    /// Returns when the lane was heard last.
    pub(crate) fn heard(&self) -> Now {
        self.heard
    }

    /// Returns when the lane was asked, if it was not heard since.
    pub(crate) fn asked(&self) -> Option<Now> {
        self.asked
    }

    /// Whether the lane may be gone without a word.
    pub(crate) fn is_doubted(&self) -> bool {
        self.doubted
    }

    /// Takes a sign of life. A question in wait for the lane's writer stays open.
    pub(crate) fn hear(&mut self, now: Now) {
        self.heard = now;
        self.asked = self.ping_due.then_some(now);
        (self.doubted, self.answered, self.spoke) = (false, false, None);
    }

    /// Counts received bytes.
    pub(crate) fn count(&mut self, bytes: u64) {
        self.moved += bytes;
    }

    /// Takes a question.
    pub(crate) fn handle_ping(&mut self, token: u64) {
        self.pongs.truncate(MAX_PONGS - 1);
        self.pongs.push_front(token);
        self.answered = false;
    }

    /// Takes an answer.
    pub(crate) fn handle_pong(&mut self) {
        self.answered = true;
    }

    /// Takes the next token to answer, the oldest first.
    pub(crate) fn pop_pong(&mut self) -> Option<u64> {
        self.pongs.pop_back()
    }

    /// Takes a due question.
    pub(crate) fn take_ping(&mut self, now: Now) -> bool {
        let is_due = std::mem::take(&mut self.ping_due);
        if is_due {
            (self.pinged, self.moved) = (now, 0);
        }
        is_due
    }

    /// Makes a question due.
    pub(crate) fn ask(&mut self, now: Now) {
        self.ping_due = true;
        self.asked.get_or_insert(now);
    }

    /// As [`Self::ask`], with little time for the answer.
    pub(crate) fn doubt(&mut self, now: Now) {
        self.ask(now);
        self.doubted = true;
    }

    /// Returns when the next question is due unless the lane is heard before. `waits` says whether the lane owes answers
    /// to what it carries, `probes` whether it stands for the whole link.
    pub(crate) fn ask_at(&self, timing: &Timing, waits: bool, probes: bool) -> Option<Now> {
        if self.ping_due {
            return None;
        }
        let bulk = (self.moved >= BULK).then(|| self.pinged + timing.often);
        if self.asked.is_some() {
            return bulk;
        }
        let owed = self.spoke.filter(|_| waits).map(|spoke| spoke + timing.often);
        let turn = if self.answered { timing.turn } else { Now::ZERO };
        let probe = probes.then(|| self.heard + timing.probe + turn);
        [bulk, owed, probe].into_iter().flatten().min()
    }

    /// Returns when the lane is dead unless it is heard before.
    pub(crate) fn silent_at(&self, timing: &Timing) -> Option<Now> {
        let asked = self.asked?;
        Some(match self.doubted {
            true => asked + timing.doubt,
            false => (self.heard + timing.dead).max(asked + timing.answer),
        })
    }

    /// Returns when the lane was asked because of a long silence.
    pub(crate) fn doubted_at(&self) -> Option<Now> {
        self.asked.filter(|_| self.doubted)
    }

    /// Forgets acknowledged bytes.
    pub(crate) fn settle(&mut self) {
        self.spoke = None;
    }

    /// Whether the lane was neither heard nor asked since a time.
    pub(crate) fn is_unasked_since(&self, time: Now) -> bool {
        self.heard < time && self.asked.is_none() && !self.ping_due
    }

    /// Counts sent bytes beside pings. Returns whether a question goes with them: after a silence deadly to a lane with
    /// an open question.
    pub(crate) fn speak(&mut self, bytes: u64, dead: Now, now: Now) -> bool {
        self.moved += bytes;
        // Anything older was acknowledged by way of another lane.
        let spoke = self.spoke.filter(|spoke| *spoke + dead > now);
        self.spoke = spoke.or(Some(now));
        if spoke.is_some() || self.asked.is_some() {
            return false;
        }
        self.doubted = self.heard + dead <= now;
        if self.doubted {
            (self.asked, self.pinged) = (Some(now), now);
        }
        self.doubted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UP: Now = Now::from_secs(100);

    /// The times of a link with this many seconds until a lane is dead.
    fn timing(dead: u64) -> Timing {
        Timing::new(Some(Now::from_secs(dead)), Now::from_millis(400), Now::from_millis(50), true)
    }

    #[test]
    fn lane_is_dead_once_asked_with_time_to_answer() {
        let mut pulse = Pulse::new(UP);
        assert_eq!(pulse.silent_at(&timing(40)), None, "it was not asked");
        pulse.ask(UP + Now::from_secs(10));
        pulse.ask(UP + Now::from_secs(20));
        assert_eq!(pulse.silent_at(&timing(40)), Some(UP + Now::from_secs(40)));
        // A smaller limit since then does not count from before the question.
        assert_eq!(pulse.silent_at(&timing(8)), Some(UP + Now::from_secs(13)));
        // A question in wait counts from when the lane was heard.
        pulse.hear(UP + Now::from_secs(30));
        assert_eq!(pulse.silent_at(&timing(40)), Some(UP + Now::from_secs(70)));
    }

    #[test]
    fn lane_is_asked_for_its_debts_or_the_link() {
        let mut pulse = Pulse::new(UP);
        let (timing, secs) = (timing(10), |secs: f64| UP + Now::from_secs_f64(secs));
        assert_eq!(pulse.ask_at(&timing, false, false), None, "it is at rest");
        assert_eq!(pulse.ask_at(&timing, false, true), Some(secs(5.0)));
        pulse.handle_pong();
        assert_eq!(pulse.ask_at(&timing, false, true), Some(secs(5.3125)), "it is the peer's turn");
        assert!(!pulse.speak(100, timing.dead, secs(1.0)));
        assert!(!pulse.speak(100, timing.dead, secs(2.0)));
        assert_eq!(pulse.ask_at(&timing, false, false), None, "all is acknowledged");
        assert_eq!(pulse.ask_at(&timing, true, false), Some(secs(3.5)));
        pulse.hear(secs(3.0));
        assert_eq!(pulse.ask_at(&timing, true, false), None);
        pulse.count(1 << 20);
        assert_eq!(pulse.ask_at(&timing, true, false), Some(secs(2.5)), "its round trip counts");
        pulse.ask(secs(3.0));
        assert_eq!(pulse.ask_at(&timing, true, true), None, "it waits for its writer");
    }

    #[test]
    fn lane_unheard_for_long_is_doubted_on_use() {
        let mut pulse = Pulse::new(UP);
        let (timing, use_at) = (timing(10), UP + Now::from_secs(60));
        assert!(pulse.speak(100, timing.dead, use_at));
        assert_eq!(pulse.silent_at(&timing), Some(use_at + Now::from_secs(1)));
        assert!(!pulse.speak(100, timing.dead, use_at));
        pulse.hear(use_at);
        assert_eq!(pulse.silent_at(&timing), None);
        assert!(!pulse.speak(100, timing.dead, use_at + timing.dead - Now::from_millis(1)));
    }

    #[test]
    fn oldest_questions_are_dropped_and_others_answered_in_order() {
        let mut pulse = Pulse::new(UP);
        (0..20).for_each(|token| pulse.handle_ping(token));
        let answered: Vec<u64> = std::iter::from_fn(|| pulse.pop_pong()).collect();
        assert_eq!(answered, (12..20).collect::<Vec<u64>>());
    }
}
