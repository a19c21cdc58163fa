//! Looks below: whether no coding delivers more where others want the processors.

use super::trial::{FASTER, FIRST_WAIT, LAST_WAIT, TRIAL, is_far_below};
use super::{Controller, Load, Reason};
use crate::Now;

/// A step to the last rung, to compare what is delivered there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Descent {
    from: usize,
    since: Now,
    before: f64,
    /// Where to go if that is no faster.
    otherwise: usize,
    /// Whether traffic waited: if not, what is delivered may just have become more.
    was_full: bool,
}

impl Controller {
    /// Steps to the last rung if others want the processors and this end's work is what takes the time; whether that is
    /// faster than what is delivered no estimate tells for certain. If it is not, `otherwise` follows. Half of the time will
    /// do, since what feeds the lanes has to wait for processors too. Returns whether it did.
    pub(super) fn descend(&mut self, otherwise: usize, load: &Load, now: Now) -> bool {
        let is_held_up = load.working() * 2 >= load.span;
        let last = self.rungs.len() - 1;
        let before = self.delivered.starved().rate();
        let Some(before) = before.filter(|_| is_held_up && self.may_look(now) && self.rung < last) else {
            return false;
        };
        if self.estimates.sure_link().is_some_and(|link| link < FASTER * before) {
            // The path has no room for so much that is not coded.
            return false;
        }
        // Estimates that lead there were wrong, if it is no faster.
        let otherwise = if otherwise == last { self.rung } else { otherwise };
        let was_full = load.is_full();
        self.descent = Some(Descent { from: self.rung, since: now, before, otherwise, was_full });
        self.enter(last, Reason::Probe);
        true
    }

    /// Whether it may be looked below again.
    pub(super) fn may_look(&self, now: Now) -> bool {
        let is_due = |descended| now.saturating_sub(descended) >= self.descent_wait;
        self.trial.is_none() && self.descended.is_none_or(is_due)
    }

    /// Stays at the last rung if it is faster, or goes back; returns whether it went.
    pub(super) fn look_below(&mut self, descent: Descent, load: &Load, now: Now) -> bool {
        let delivered = self.delivered.all();
        let rate = delivered.rate();
        if rate.is_none()
            && !is_far_below(delivered, descent.before)
            && now.saturating_sub(descent.since) < TRIAL
        {
            return false;
        }
        (self.descent, self.descended) = (None, Some(now));
        if rate.is_some_and(|rate| rate >= FASTER * descent.before) {
            self.descent_wait =
                if descent.was_full { FIRST_WAIT } else { (self.descent_wait * 4).min(LAST_WAIT) };
            (self.reason, self.lowered) = (Reason::EncoderBound, now);
            self.fail(descent.from, load, now);
            let cheapest = self.rung - 1;
            if cheapest <= descent.from || delivered.waited() < PATH_IS_FULL {
                return false;
            }
            // There is time to code then. How much, the rung that needs least of it tells without much harm.
            self.raise(cheapest, Reason::Recovering, now);
            return true;
        }
        self.descent_wait = (self.descent_wait * 4).min(LAST_WAIT);
        if descent.otherwise > descent.from {
            self.lowered = now;
        }
        let reason = if descent.otherwise == 0 { Reason::Configured } else { Reason::EncoderBound };
        self.enter(descent.otherwise, reason);
        true
    }
}

/// The part of the time for which lanes wait for their sockets, of that for which they have bytes to send, where it is the
/// path that limits what is not coded.
const PATH_IS_FULL: f64 = 0.5;
