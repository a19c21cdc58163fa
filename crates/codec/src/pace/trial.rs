//! Steps up: how far one may go, when it has to be taken back, and what it leaves behind.

use super::delivered::Sum;
use super::{Controller, Load, Reason};
use crate::Now;

/// A step up that may still have to be taken back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trial {
    pub(super) from: usize,
    pub(super) since: Now,
    /// What the rung before delivered, if that was seen.
    pub(super) before: Option<f64>,
    /// What was known when it was made, and holds again when it is taken back.
    pub(super) left: Option<Left>,
}

/// A cheaper rung, and what it delivered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Left {
    pub(super) rung: usize,
    pub(super) delivered: f64,
}

/// A step up that had to be taken back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failure {
    pub(super) rung: usize,
    at: Now,
    idle_permille: u32,
    link: f64,
}

impl Trial {
    pub(super) fn leaves(&self) -> Option<Left> {
        self.before.map(|delivered| Left { rung: self.from, delivered })
    }
}

impl Controller {
    /// Whether the step up that is being tried delivers much less than the rung before did at least. Where others want the
    /// processors, estimates, which are of CPU time, say little of that: who works for longer at a time is interrupted more
    /// often, and both ends may be short of the same processors: then also what is delivered while lanes have nothing to
    /// send now and then counts, since neither a far end nor what reads from applications keeps up.
    pub(super) fn is_slowed(&self, load: &Load) -> bool {
        let left = self.trial.and_then(|trial| trial.leaves()).filter(|left| !self.pays(Some(*left)));
        let Some(Left { delivered: before, .. }) = left else { return false };
        let [all, full] = [self.delivered.all(), self.delivered.full()];
        let is_below = |now: Sum| now.rate().is_some_and(|rate| rate < SLOWED * before);
        let is_busy = load.active * 4 >= load.span;
        is_far_below(full, before) || load.is_starved() && (is_below(full) || is_busy && is_below(all))
    }

    /// Whether what is delivered decides about a step up, and is not known of the present rung yet.
    pub(super) fn is_undecided(&self, load: &Load) -> bool {
        load.is_starved() && self.delivered.all().rate().is_none()
    }

    /// Returns the richest rung that may be tried: not one that failed, before enough has changed or passed.
    pub(super) fn richest(&self, load: &Load, now: Now) -> usize {
        let failure = self.failed(load).filter(|failure| now.saturating_sub(failure.at) < self.wait);
        failure.map_or(0, |failure| failure.rung + 1)
    }

    /// Returns the step up that had to be taken back, while other load and the path are as they were then.
    pub(super) fn failed(&self, load: &Load) -> Option<Failure> {
        self.failure.filter(|failure| {
            load.idle_permille < failure.idle_permille + EASED_PERMILLE
                && self.estimates.link(load) > failure.link * SLOWER
        })
    }

    /// Returns how far a step up may go: half of the way to where one failed.
    pub(super) fn reach(&self, load: &Load) -> usize {
        let failure = self.failed(load).filter(|failure| failure.rung < self.rung);
        failure.map_or(0, |failure| self.rung.midpoint(failure.rung))
    }

    /// Whether a richer rung may be tried without promise: after a while, and at once where lanes wait for the path, so that
    /// there is time for it, unless it just failed.
    pub(super) fn may_probe(&self, now: Now) -> bool {
        let delivered = self.delivered.all();
        let has_time = delivered.rate().is_some() && delivered.waited() >= PATH_LEAVES_TIME;
        let is_settled = self.trial.is_none_or(|trial| has_time && self.pays(trial.leaves()));
        let is_due = now.saturating_sub(self.lowered) >= self.wait;
        // A step back leaves time and processors idle by itself.
        let failed = self.failure.filter(|failure| now.saturating_sub(failure.at) < self.wait);
        let just_failed = failed.is_some_and(|failure| failure.rung + 1 >= self.rung);
        self.rung > 0 && is_settled && (is_due || has_time && !just_failed)
    }

    /// Goes down to a rung, or, if the present one is on trial and does not pay, back to where it was left, which is then a
    /// failure.
    pub(super) fn lower(&mut self, mut rung: usize, load: &Load, now: Now) {
        let failed = self.trial.take().filter(|trial| !load.is_starved() || !self.pays(trial.leaves()));
        if let Some(trial) = failed {
            rung = trial.from.max(self.rung + 1);
            self.wait = (self.wait * 2).min(LAST_WAIT);
            // Where it delivers far less, rungs between will do so too.
            let is_far = trial.before.is_some_and(|before| is_far_below(self.delivered.full(), before));
            self.fail(if is_far { rung - 1 } else { self.rung }, load, now);
        }
        self.lowered = now;
        self.enter(rung, Reason::EncoderBound);
        self.left = failed.and_then(|trial| trial.left);
    }

    /// Whether the present rung delivers more than a cheaper one did, whatever estimates say.
    pub(super) fn pays(&self, left: Option<Left>) -> bool {
        let delivered = self.delivered.all().rate();
        left.zip(delivered).is_some_and(|(left, now)| now >= FASTER * left.delivered)
    }

    /// Returns the cheapest rung to which estimates may lead: where others want the processors not one that was seen to
    /// deliver less than the present.
    pub(super) fn cheapest(&self, load: &Load) -> usize {
        let left = self.trial.and_then(|trial| trial.leaves()).or(self.left);
        left.filter(|_| load.is_starved() && self.pays(left)).map_or(self.rungs.len(), |left| left.rung) - 1
    }

    /// Leaves a rung and richer ones alone for a while.
    pub(super) fn fail(&mut self, rung: usize, load: &Load, now: Now) {
        let link = self.estimates.link(load);
        self.failure = Some(Failure { rung, at: now, idle_permille: load.idle_permille, link });
    }

    /// Steps up, on trial.
    pub(super) fn raise(&mut self, rung: usize, reason: Reason, now: Now) {
        let left = self.trial.and_then(|trial| trial.leaves()).or(self.left);
        self.trial = Some(Trial { from: self.rung, since: now, before: self.delivered.all().rate(), left });
        self.enter(rung, if rung == 0 && reason != Reason::Probe { Reason::Configured } else { reason });
    }
}

/// Whether so much less is delivered than before that nothing more has to be seen.
pub(super) fn is_far_below(now: Sum, before: f64) -> bool {
    now.early_rate().is_some_and(|rate| rate < FAR_SLOWER * before)
}

/// A step up that is not taken back for this long was right.
pub(super) const TRIAL: Now = Now::from_secs(3);
/// Bounds on the time between two steps up of which the first failed.
pub(super) const FIRST_WAIT: Now = Now::from_secs(4);
pub(super) const LAST_WAIT: Now = Now::from_secs(60);
/// No coding is faster if it delivers so many times as much; what is delivered swings.
pub(super) const FASTER: f64 = 1.12;
/// At this part of what was delivered before, nothing more has to be seen.
const FAR_SLOWER: f64 = 0.6;
/// A step up that delivers less than this part of what the rung before did was wrong.
const SLOWED: f64 = 0.85;
/// The part of the time for which lanes wait for their sockets, of that for which they have bytes to send, where there is
/// time for a richer rung.
const PATH_LEAVES_TIME: f64 = 0.25;
/// A link that takes this part of what it took leaves more time for each byte.
const SLOWER: f64 = 0.4;
/// Other load has gone when so much more of the processors is idle than when a step up failed.
pub(super) const EASED_PERMILLE: u32 = 200;
