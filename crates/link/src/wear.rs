//! Wear of one lane's connection, and how long the lane is to stay.

use oncewire_codec::Now;

use crate::renewal::LaneReport;

/// How long a lane is to stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stay {
    /// For as long as there is use for it.
    Kept,
    /// Until its successor is up; at the accepting side, without an answer to its wish, for [`ASKED_FOR`].
    Worn,
    /// Until neither end has a flow on it; new flows go elsewhere.
    Left {
        /// Whether the accepting side was told.
        told: bool,
    },
}

/// The accepting side's patience for a successor. The dialling side may have refused after many renewals.
const ASKED_FOR: Now = Now::from_secs(30);

/// Use of a lane's connection, and its end in order.
#[derive(Debug)]
pub(crate) struct Wear {
    stay: Stay,
    /// Whether the dialling side is to be asked for a successor.
    ask_due: bool,
    worn_at: Now,
    /// Bytes sent beside pings.
    sent: u64,
    sent_at: Now,
    /// Time of the next look at the connection, after new bytes.
    look_at: Option<Now>,
    /// The last report of a full window, and its time.
    busy: Option<(Now, LaneReport)>,
}

impl Wear {
    /// Starts with a lane that is up now.
    pub(crate) fn new(now: Now) -> Self {
        Self {
            stay: Stay::Kept,
            ask_due: false,
            worn_at: now,
            sent: 0,
            sent_at: now,
            look_at: None,
            busy: None,
        }
    }

    /// Returns how long the lane is to stay.
    pub(crate) fn stay(&self) -> Stay {
        self.stay
    }

    /// Whether new flows go elsewhere.
    pub(crate) fn is_left(&self) -> bool {
        matches!(self.stay, Stay::Left { .. })
    }

    /// Gives the lane no more flows; returns whether that is news.
    pub(crate) fn leave(&mut self) -> bool {
        let is_news = !self.is_left();
        if is_news {
            self.stay = Stay::Left { told: false };
        }
        is_news
    }

    /// Marks the lane as worn; its dialling side is asked for a successor if `asks`.
    pub(crate) fn wear(&mut self, asks: bool, now: Now) {
        self.stay = Stay::Worn;
        if asks {
            (self.ask_due, self.worn_at) = (true, now);
        }
    }

    /// Keeps a lane whose successor was refused.
    pub(crate) fn keep_if_refused(&mut self, now: Now) {
        if self.stay == Stay::Worn && self.worn_at + ASKED_FOR <= now {
            self.stay = Stay::Kept;
        }
    }

    /// Takes the wish for a successor, if it is due.
    pub(crate) fn take_wish(&mut self) -> bool {
        std::mem::take(&mut self.ask_due)
    }

    /// Takes the word that the lane is left, if it is due.
    pub(crate) fn take_farewell(&mut self) -> bool {
        let is_due = self.stay == Stay::Left { told: false };
        if is_due {
            self.stay = Stay::Left { told: true };
        }
        is_due
    }

    /// Returns the bytes sent beside pings.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// Returns when bytes beside pings were sent last.
    pub(crate) fn sent_at(&self) -> Now {
        self.sent_at
    }

    /// Counts bytes beside pings, and plans a look at the connection.
    pub(crate) fn send(&mut self, bytes: u64, look_at: Now, now: Now) {
        (self.sent, self.sent_at) = (self.sent + bytes, now);
        self.look_at.get_or_insert(look_at);
    }

    /// Returns when the connection is to be looked at, if it is.
    pub(crate) fn look_at(&self) -> Option<Now> {
        self.look_at
    }

    /// Plans the next look at the connection.
    pub(crate) fn look_again(&mut self, at: Now) {
        self.look_at = Some(at);
    }

    /// Takes a look that is due.
    pub(crate) fn take_look(&mut self, now: Now) -> bool {
        self.look_at.take_if(|at| *at <= now).is_some()
    }

    /// Keeps a report of a full window.
    pub(crate) fn note_report(&mut self, report: &LaneReport, now: Now) {
        if report.outstanding > report.window {
            self.busy = Some((now, *report));
        }
    }

    /// Returns the last report of a full window, unless it is older.
    pub(crate) fn busy_since(&self, since: Now) -> Option<LaneReport> {
        self.busy.filter(|(at, _)| *at >= since).map(|(_, report)| report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UP: Now = Now::from_secs(100);

    #[test]
    fn refused_successor_keeps_the_lane() {
        let mut wear = Wear::new(UP);
        wear.wear(true, UP);
        assert!(wear.take_wish() && !wear.take_wish());
        wear.keep_if_refused(UP + ASKED_FOR - Now::from_millis(1));
        assert_eq!(wear.stay(), Stay::Worn);
        wear.keep_if_refused(UP + ASKED_FOR);
        assert_eq!(wear.stay(), Stay::Kept);
    }

    #[test]
    fn farewell_is_said_once() {
        let mut wear = Wear::new(UP);
        assert!(!wear.take_farewell() && wear.leave() && !wear.leave());
        assert!(wear.take_farewell() && !wear.take_farewell() && !wear.leave());
        assert_eq!(wear.stay(), Stay::Left { told: true });
    }

    #[test]
    fn looks_are_due_once_after_new_bytes() {
        let mut wear = Wear::new(UP);
        let at = |secs| UP + Now::from_secs(secs);
        assert!(!wear.take_look(at(9)));
        wear.send(10, at(2), at(1));
        wear.send(10, at(3), at(2));
        assert_eq!((wear.sent(), wear.sent_at(), wear.look_at()), (20, at(2), Some(at(2))));
        assert!(!wear.take_look(at(1)) && wear.take_look(at(2)) && !wear.take_look(at(9)));
    }
}
