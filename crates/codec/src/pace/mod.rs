//! How much CPU coding is worth: a controller that lowers plans while encoding is what holds traffic up, and raises
//! them when it no longer does [EndRE §4, §5.1].
//!
//! It is fed with what the last moments showed ([`Load`]) and asked for each block what is left of the block's plan
//! ([`Controller::apply`]). What it may take away is a ladder of rungs from the configured plan to no coding at all.
//! `docs/design/adaptation.md` says how it decides and why.

mod delivered;
mod estimate;
mod ladder;
mod load;
mod look;
#[cfg(test)]
mod tests;
mod trial;

use std::fmt;

use self::delivered::Delivered;
use self::estimate::{Estimates, Limits};
use self::ladder::Cut;
pub use self::load::Load;
use self::look::Descent;
use self::trial::{EASED_PERMILLE, FIRST_WAIT, Failure, Left, TRIAL, Trial};
use crate::{Now, Plan};

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
    /// When the last one ended, if there was one, and how long the next one waits.
    descended: Option<Now>,
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
            descended: None,
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

    fn enter(&mut self, rung: usize, reason: Reason) {
        (self.rung, self.reason) = (rung, reason);
        self.changes += 1;
        (self.wish, self.left) = (None, None);
        self.delivered = Delivered::default();
    }
}

/// Where to go, and how many times the present rate is expected there.
#[derive(Clone, Copy, Debug)]
struct Goal {
    rung: usize,
    gain: f64,
}

fn nanos(time: Now) -> f64 {
    time.as_secs_f64() * 1e9
}

/// After this long without traffic the configured plan holds again.
const SILENCE: Now = Now::from_secs(3);
/// How long loads have to point the same way before anything changes: shorter transfers keep the configured plan.
const EVIDENCE: Now = Now::from_secs(1);
/// The same for leaving the configured plan while nobody else uses the processors: the link is then faster than the
/// encoder, which few are for long, and whoever configured the plan did so for the bytes.
const PATIENCE: Now = Now::from_secs(10);
/// The same for taking back a step up.
const TRIAL_EVIDENCE: Now = Now::from_millis(400);
/// How much faster a cheaper rung has to be.
const WORTH_IT: f64 = 1.07;
/// Rungs of this part of the best rate are as good as the best.
const AS_GOOD: f64 = 0.97;
/// How much faster than traffic comes a rung has to be while nobody waits.
const ROOM: f64 = 1.4;
