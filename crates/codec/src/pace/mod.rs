//! How much CPU coding is worth: a controller that lowers plans while encoding is what holds traffic up, and raises
//! them when it no longer does [EndRE §4, §5.1].
//!
//! It is fed with what the last moments showed ([`Load`]) and asked for each block what is left of the block's plan
//! ([`Controller::apply`]). What it may take away is a ladder of rungs from the configured plan to no coding at all.
//! `docs/design/adaptation.md` says how it decides and why.

mod delivered;
mod estimate;
mod ladder;
#[cfg(test)]
mod tests;

use std::fmt;

use self::delivered::{Delivered, Sum};
use self::estimate::{Estimates, Limits};
use self::ladder::Cut;
use crate::{Now, Plan};

/// What the sending end of a link did in a stretch of time, a tenth to a quarter of a second by preference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// How long it was.
    pub span: Now,
    /// Of that: some lane had bytes to send.
    pub active: Now,
    /// Of that: every lane that had bytes to send waited for its socket.
    pub blocked: Now,
    /// The CPU time of encoding.
    pub encoding: Now,
    /// The CPU time of writing what was encoded: enciphering, system calls.
    pub writing: Now,
    /// How much of all processors nobody used, in thousandths; 0 where that is unknown.
    pub idle_permille: u32,
    /// Plain bytes encoded.
    pub plain: u64,
    /// Wire bytes that came of them.
    pub wire: u64,
}

impl Load {
    /// The time for which this end was what held the bytes up.
    fn working(&self) -> Now {
        self.active.saturating_sub(self.blocked)
    }

    fn is_quiet(&self) -> bool {
        self.plain < LEAST_BYTES
    }

    /// Whether traffic waits for this end and for nothing else.
    fn is_held_up(&self) -> bool {
        self.is_full() && self.blocked * 8 <= self.active
    }

    /// Whether others use the processors: this end's work takes much longer than the CPU time that it needs.
    fn is_starved(&self) -> bool {
        self.working() * 5 >= (self.encoding + self.writing) * 9
    }

    /// Whether traffic waits at all.
    fn is_full(&self) -> bool {
        self.active * 5 >= self.span * 4
    }
}

/// Why plans are as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// As configured; nothing asks for less.
    #[default]
    Configured,
    /// As configured, whatever happens.
    Off,
    /// Encoding held traffic up.
    EncoderBound,
    /// More is possible again, but not yet all.
    Recovering,
    /// A richer rung is being tried, or whether no coding at all is faster.
    Probe,
}

impl Reason {
    /// Returns the name in `status`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Configured => "configured",
            Self::Off => "off",
            Self::EncoderBound => "encoder_bound",
            Self::Recovering => "recovering",
            Self::Probe => "probe",
        }
    }
}

/// How a controller stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PaceStats {
    /// What is left of the peer's own plan; `None`: blocks are not coded.
    pub plan: Option<Plan>,
    /// The rung; 0 is as configured.
    pub rung: usize,
    /// How many there are.
    pub rungs: usize,
    /// Why it is not another.
    pub reason: Reason,
    /// Changes of the rung so far.
    pub changes: u64,
}

impl fmt::Display for PaceStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.plan {
            None => f.write_str("blocks are not coded")?,
            Some(Plan { matching, markers, period, entropy, .. }) => {
                write!(f, "blocks are coded with {matching}, {markers}, period {period}, entropy {entropy}")?;
            }
        }
        let why = match self.reason {
            Reason::Configured | Reason::Off => "as configured",
            Reason::EncoderBound => "encoding held traffic up",
            Reason::Recovering => "more is possible again",
            Reason::Probe => "trying whether more is possible",
        };
        write!(f, " (step {} of {}): {why}", self.rung, self.rungs.saturating_sub(1))
    }
}

/// Chooses how much of the configured plans is carried out.
#[derive(Clone, Debug)]
pub struct Controller {
    plan: Plan,
    rungs: Vec<Cut>,
    rung: usize,
    reason: Reason,
    changes: u64,
    estimates: Estimates,
    /// Where the last loads pointed to, and for how long they did.
    wish: Option<(Direction, Now)>,
    quiet: Now,
    /// When there was traffic last.
    seen: Now,
    /// What the present rung delivers.
    delivered: Delivered,
    /// The last step up, while it may still turn out to have been wrong.
    trial: Option<Trial>,
    /// What was seen of a cheaper rung than the present, when it was left for this one or one on the way.
    left: Option<Left>,
    /// A look at what is delivered without coding.
    descent: Option<Descent>,
    /// When the last one ended, and how long the next one waits.
    descended: Now,
    descent_wait: Now,
    failure: Option<Failure>,
    /// How long a richer rung is not tried after the last change down.
    wait: Now,
    lowered: Now,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Down,
    Up,
}

/// A step up that may still have to be taken back.
#[derive(Clone, Copy, Debug)]
struct Trial {
    from: usize,
    since: Now,
    /// What the rung before delivered, if that was seen.
    before: Option<f64>,
    /// What was known when it was made, and holds again when it is taken back.
    left: Option<Left>,
}

/// A cheaper rung, and what it delivered.
#[derive(Clone, Copy, Debug)]
struct Left {
    rung: usize,
    delivered: f64,
}

/// A step to the last rung, to compare what is delivered there.
#[derive(Clone, Copy, Debug)]
struct Descent {
    from: usize,
    since: Now,
    before: f64,
    /// Where to go if that is no faster.
    otherwise: usize,
    /// Whether traffic waited: if not, what is delivered may just have become more.
    was_full: bool,
}

/// A step up that had to be taken back.
#[derive(Clone, Copy, Debug)]
struct Failure {
    rung: usize,
    at: Now,
    idle_permille: u32,
    link: f64,
}

impl Controller {
    /// Starts at the configured plans; `plan` is the one that [`PaceStats`] tells of.
    pub fn new(plan: Plan, others: &[Plan]) -> Self {
        let plans: Vec<Plan> = [&[plan], others].concat();
        Self::with_rungs(plan, ladder::rungs(&plans), Reason::Configured)
    }

    /// Makes a controller that leaves every plan as it is.
    pub fn off(plan: Plan) -> Self {
        Self::with_rungs(plan, ladder::rungs(&[]), Reason::Off)
    }

    fn with_rungs(plan: Plan, rungs: Vec<Cut>, reason: Reason) -> Self {
        Self {
            plan,
            estimates: Estimates::new(&rungs, &plan),
            rungs,
            rung: 0,
            reason,
            changes: 0,
            wish: None,
            quiet: Now::ZERO,
            seen: Now::ZERO,
            delivered: Delivered::default(),
            trial: None,
            left: None,
            descent: None,
            descended: Now::ZERO,
            descent_wait: FIRST_WAIT,
            failure: None,
            wait: FIRST_WAIT,
            lowered: Now::ZERO,
        }
    }

    /// Returns what is left of a block's plan; `None`: it is not to be coded.
    pub fn apply(&self, plan: &Plan) -> Option<Plan> {
        self.rungs.get(self.rung).and_then(|cut| cut.apply(plan))
    }

    /// Returns the rung; 0 is as configured.
    pub fn rung(&self) -> usize {
        self.rung
    }

    /// Returns how it stands.
    pub fn stats(&self) -> PaceStats {
        PaceStats {
            plan: self.apply(&self.plan),
            rung: self.rung,
            rungs: self.rungs.len(),
            reason: self.reason,
            changes: self.changes,
        }
    }

    /// Takes what happened since the last call and returns whether the rung changed.
    pub fn handle_load(&mut self, load: Load, now: Now) -> bool {
        if self.rungs.len() < 2 || load.span.is_zero() {
            return false;
        }
        if load.is_quiet() {
            return self.rest(load.span);
        }
        self.quiet = Now::ZERO;
        if now.saturating_sub(std::mem::replace(&mut self.seen, now)) >= SILENCE {
            // What was before says nothing of these transfers.
            (self.delivered, self.wish, self.left) = (Delivered::default(), None, None);
            self.trial = self.trial.map(|trial| Trial { before: None, left: None, ..trial });
        }
        self.estimates.learn(self.rung, &load, now);
        self.delivered.take(&load);
        if load.idle_permille >= EASED_PERMILLE {
            self.descent_wait = FIRST_WAIT;
        }
        if let Some(descent) = self.descent {
            return self.look_below(descent, &load, now);
        }
        if self.trial.is_some_and(|trial| now.saturating_sub(trial.since) >= TRIAL) {
            self.left = self.trial.take().and_then(|trial| trial.leaves()).or(self.left);
            if self.failure.is_none_or(|failure| self.rung <= failure.rung) {
                (self.failure, self.wait) = (None, FIRST_WAIT);
            }
            // What a probe found may hold for the next rung too.
            self.lowered = if self.reason == Reason::Probe { now.saturating_sub(self.wait) } else { now };
            self.reason = if self.rung == 0 { Reason::Configured } else { Reason::EncoderBound };
        }
        let mut goal = self.goal(&load, now);
        goal.rung = goal.rung.min(self.cheapest(&load));
        let wish = match goal.rung {
            rung if rung > self.rung => {
                (load.is_held_up() && goal.gain >= WORTH_IT).then_some(Direction::Down)
            }
            rung if rung < self.rung => (!self.is_undecided(&load)).then_some(Direction::Up),
            _ => None,
        };
        match self.sustained(wish, &load) {
            _ if self.is_slowed(&load) => self.lower(self.rung, &load, now),
            // A look below is due, and it is not known yet what to compare it with.
            Some(Direction::Down)
                if load.is_starved() && self.may_look(now) && self.delivered.starved().rate().is_none() =>
            {
                return false;
            }
            // Estimates do not take back what delivers more than before, as far as is known.
            Some(Direction::Down) if self.is_undecided(&load) && self.trial.is_some() => return false,
            Some(Direction::Down) => {
                if !self.descend(goal.rung, &load, now) {
                    self.lower(goal.rung, &load, now);
                }
            }
            Some(Direction::Up) => self.raise(goal.rung.max(self.reach(&load)), Reason::Recovering, now),
            None if wish.is_none() && !self.is_undecided(&load) && self.may_probe(now) => {
                self.raise(self.rung - 1, Reason::Probe, now)
            }
            None => return self.descend(self.rung, &load, now),
        }
        true
    }

    /// Whether the step up that is being tried delivers much less than the rung before did at least. Where others want the
    /// processors, estimates, which are of CPU time, say little of that: who works for longer at a time is interrupted more
    /// often, and both ends may be short of the same processors: then also what is delivered while lanes have nothing to
    /// send now and then counts, since neither a far end nor what reads from applications keeps up.
    fn is_slowed(&self, load: &Load) -> bool {
        let left = self.trial.and_then(|trial| trial.leaves()).filter(|left| !self.pays(Some(*left)));
        let Some(Left { delivered: before, .. }) = left else { return false };
        let [all, full] = [self.delivered.all(), self.delivered.full()];
        let is_below = |now: Sum| now.rate().is_some_and(|rate| rate < SLOWED * before);
        let is_busy = load.active * 4 >= load.span;
        is_far_below(full, before) || load.is_starved() && (is_below(full) || is_busy && is_below(all))
    }

    /// Whether what is delivered decides about a step up, and is not known of the present rung yet.
    fn is_undecided(&self, load: &Load) -> bool {
        load.is_starved() && self.delivered.all().rate().is_none()
    }

    /// Steps to the last rung if others want the processors and this end's work is what takes the time; whether that is
    /// faster than what is delivered no estimate tells for certain. If it is not, `otherwise` follows. Half of the time will
    /// do, since what feeds the lanes has to wait for processors too. Returns whether it did.
    fn descend(&mut self, otherwise: usize, load: &Load, now: Now) -> bool {
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
    fn may_look(&self, now: Now) -> bool {
        self.trial.is_none() && now.saturating_sub(self.descended) >= self.descent_wait
    }

    /// Stays at the last rung if it is faster, or goes back; returns whether it went.
    fn look_below(&mut self, descent: Descent, load: &Load, now: Now) -> bool {
        let delivered = self.delivered.all();
        let rate = delivered.rate();
        if rate.is_none()
            && !is_far_below(delivered, descent.before)
            && now.saturating_sub(descent.since) < TRIAL
        {
            return false;
        }
        (self.descent, self.descended) = (None, now);
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

    /// Nothing is sent: after a while the configured plan holds again.
    fn rest(&mut self, span: Now) -> bool {
        self.quiet += span;
        if self.quiet < SILENCE || self.rung == 0 {
            return false;
        }
        self.enter(0, Reason::Configured);
        (self.trial, self.failure, self.wait) = (None, None, FIRST_WAIT);
        (self.descent, self.descent_wait) = (None, FIRST_WAIT);
        true
    }

    /// Finds the richest rung of those about as fast as the fastest, without those that just failed.
    fn goal(&self, load: &Load, now: Now) -> Goal {
        let demand = if load.is_full() { f64::INFINITY } else { ROOM * load.plain as f64 / nanos(load.span) };
        let limits = Limits { link: self.estimates.link(load), demand };
        let rate = |rung| self.estimates.rate(rung, limits);
        let richest = self.richest(load, now).min(self.rung);
        let best = (richest..self.rungs.len()).map(rate).fold(0.0, f64::max);
        let rung =
            (richest..self.rungs.len()).find(|&rung| rate(rung) >= best * AS_GOOD).unwrap_or(self.rung);
        Goal { rung, gain: rate(rung) / rate(self.rung).max(f64::MIN_POSITIVE) }
    }

    /// Returns the richest rung that may be tried: not one that failed, before enough has changed or passed.
    fn richest(&self, load: &Load, now: Now) -> usize {
        let failure = self.failed(load).filter(|failure| now.saturating_sub(failure.at) < self.wait);
        failure.map_or(0, |failure| failure.rung + 1)
    }

    /// Returns the step up that had to be taken back, while other load and the path are as they were then.
    fn failed(&self, load: &Load) -> Option<Failure> {
        self.failure.filter(|failure| {
            load.idle_permille < failure.idle_permille + EASED_PERMILLE
                && self.estimates.link(load) > failure.link * SLOWER
        })
    }

    /// Returns how far a step up may go: half of the way to where one failed.
    fn reach(&self, load: &Load) -> usize {
        let failure = self.failed(load).filter(|failure| failure.rung < self.rung);
        failure.map_or(0, |failure| self.rung.midpoint(failure.rung))
    }

    /// Whether a richer rung may be tried without promise: after a while, and at once where lanes wait for the path, so that
    /// there is time for it, unless it just failed.
    fn may_probe(&self, now: Now) -> bool {
        let delivered = self.delivered.all();
        let has_time = delivered.rate().is_some() && delivered.waited() >= PATH_LEAVES_TIME;
        let is_settled = self.trial.is_none_or(|trial| has_time && self.pays(trial.leaves()));
        let is_due = now.saturating_sub(self.lowered) >= self.wait;
        // A step back leaves time and processors idle by itself.
        let failed = self.failure.filter(|failure| now.saturating_sub(failure.at) < self.wait);
        let just_failed = failed.is_some_and(|failure| failure.rung + 1 >= self.rung);
        self.rung > 0 && is_settled && (is_due || has_time && !just_failed)
    }

    /// Adds a load's evidence and returns the direction once there is enough of it.
    fn sustained(&mut self, wish: Option<Direction>, load: &Load) -> Option<Direction> {
        let span = load.span;
        self.wish = match (self.wish, wish) {
            (Some((before, time)), Some(wish)) if before == wish => Some((wish, time + span)),
            (_, Some(wish)) => Some((wish, span)),
            (Some((before, time)), None) => Some((before, time.saturating_sub(span))),
            (None, None) => None,
        };
        let (direction, time) = self.wish?;
        let enough = match direction {
            Direction::Down if self.trial.is_some() => TRIAL_EVIDENCE,
            Direction::Down if self.rung == 0 && self.delivered.starved().rate().is_none() => PATIENCE,
            _ => EVIDENCE,
        };
        (wish.is_some() && time >= enough).then_some(direction)
    }

    fn lower(&mut self, mut rung: usize, load: &Load, now: Now) {
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
    fn pays(&self, left: Option<Left>) -> bool {
        let delivered = self.delivered.all().rate();
        left.zip(delivered).is_some_and(|(left, now)| now >= FASTER * left.delivered)
    }

    /// Returns the cheapest rung to which estimates may lead: where others want the processors not one that was seen to
    /// deliver less than the present.
    fn cheapest(&self, load: &Load) -> usize {
        let left = self.trial.and_then(|trial| trial.leaves()).or(self.left);
        left.filter(|_| load.is_starved() && self.pays(left)).map_or(self.rungs.len(), |left| left.rung) - 1
    }

    /// Leaves a rung and richer ones alone for a while.
    fn fail(&mut self, rung: usize, load: &Load, now: Now) {
        let link = self.estimates.link(load);
        self.failure = Some(Failure { rung, at: now, idle_permille: load.idle_permille, link });
    }

    fn raise(&mut self, rung: usize, reason: Reason, now: Now) {
        let left = self.trial.and_then(|trial| trial.leaves()).or(self.left);
        self.trial = Some(Trial { from: self.rung, since: now, before: self.delivered.all().rate(), left });
        self.enter(rung, if rung == 0 && reason != Reason::Probe { Reason::Configured } else { reason });
    }

    fn enter(&mut self, rung: usize, reason: Reason) {
        (self.rung, self.reason) = (rung, reason);
        self.changes += 1;
        (self.wish, self.left) = (None, None);
        self.delivered = Delivered::default();
    }
}

impl Trial {
    fn leaves(&self) -> Option<Left> {
        self.before.map(|delivered| Left { rung: self.from, delivered })
    }
}

/// Where to go, and how many times the present rate is expected there.
#[derive(Clone, Copy, Debug)]
struct Goal {
    rung: usize,
    gain: f64,
}

/// Whether so much less is delivered than before that nothing more has to be seen.
fn is_far_below(now: Sum, before: f64) -> bool {
    now.early_rate().is_some_and(|rate| rate < FAR_SLOWER * before)
}

fn nanos(time: Now) -> f64 {
    time.as_secs_f64() * 1e9
}

/// A load with fewer plain bytes shows nothing.
const LEAST_BYTES: u64 = 16 << 10;
/// After this long without traffic the configured plan holds again.
const SILENCE: Now = Now::from_secs(3);
/// How long loads have to point the same way before anything changes: shorter transfers keep the configured plan.
const EVIDENCE: Now = Now::from_secs(1);
/// The same for leaving the configured plan while nobody else uses the processors: the link is then faster than the
/// encoder, which few are for long, and whoever configured the plan did so for the bytes.
const PATIENCE: Now = Now::from_secs(10);
/// The same for taking back a step up.
const TRIAL_EVIDENCE: Now = Now::from_millis(400);
/// A step up that is not taken back for this long was right.
const TRIAL: Now = Now::from_secs(3);
/// Bounds on the time between two steps up of which the first failed.
const FIRST_WAIT: Now = Now::from_secs(4);
const LAST_WAIT: Now = Now::from_secs(60);
/// How much faster a cheaper rung has to be.
const WORTH_IT: f64 = 1.07;
/// Rungs of this part of the best rate are as good as the best.
const AS_GOOD: f64 = 0.97;
/// No coding is faster if it delivers so many times as much; what is delivered swings.
const FASTER: f64 = 1.12;
/// At this part of what was delivered before, nothing more has to be seen.
const FAR_SLOWER: f64 = 0.6;
/// A step up that delivers less than this part of what the rung before did was wrong.
const SLOWED: f64 = 0.85;
/// The part of the time for which lanes wait for their sockets, of that for which they have bytes to send, where it is the
/// path that limits what is not coded.
const PATH_IS_FULL: f64 = 0.5;
/// The same where there is time for a richer rung.
const PATH_LEAVES_TIME: f64 = 0.25;
/// A link that takes this part of what it took leaves more time for each byte.
const SLOWER: f64 = 0.4;
/// Other load has gone when so much more of the processors is idle than when a step up failed.
const EASED_PERMILLE: u32 = 200;
/// How much faster than traffic comes a rung has to be while nobody waits.
const ROOM: f64 = 1.4;
