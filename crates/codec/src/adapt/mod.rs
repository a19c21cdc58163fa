//! Effort for CPU: a controller that lowers the entropy stage of new bytes while encoding holds traffic up
//! [EndRE §4, §5.1].
//!
//! It is fed with recent loads ([`Load`]) and asked for each block's share of its plan ([`Controller::apply`]). Repeats
//! are looked for at every level but the last one of [`Adapt::Speed`]. Reasons are in `docs/internals/adaptation.md`.

mod delivered;
mod levels;
mod load;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

use self::delivered::{Delivered, Rate};
use self::levels::Level;
pub use self::load::Load;
use crate::{FEW_SHARE, Now, Plan};

/// What effort is traded for while encoding holds traffic up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Adapt {
    /// Nothing: every plan is carried out as it is.
    Off,
    /// A cheaper entropy stage of new bytes; repeats are found whatever the load.
    #[default]
    Savings,
    /// The same, and no coding at all while hardly anything repeats.
    Speed,
}

impl Adapt {
    /// Returns the name in the configuration and in `status`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Savings => "savings",
            Self::Speed => "speed",
        }
    }
}

impl FromStr for Adapt {
    type Err = UnknownAdapt;

    fn from_str(text: &str) -> Result<Self, UnknownAdapt> {
        match text {
            "savings" => Ok(Self::Savings),
            "speed" => Ok(Self::Speed),
            _ => Err(UnknownAdapt),
        }
    }
}

/// The text names no [`Adapt`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is \"savings\", \"speed\" and false")]
pub struct UnknownAdapt;

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
    /// Blocks are coded for a moment to see whether they repeat.
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
pub struct AdaptStats {
    /// What effort is traded for.
    pub adapt: Adapt,
    /// The peer's own plan as lowered for mostly new blocks; `None`: blocks are not coded.
    pub plan: Option<Plan>,
    /// The level; 0 is as configured.
    pub level: usize,
    /// How many there are.
    pub levels: usize,
    /// Why it is not another.
    pub reason: Reason,
    /// Changes of the level so far.
    pub changes: u64,
}

impl fmt::Display for AdaptStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.plan {
            None => f.write_str("blocks are not coded")?,
            Some(Plan { entropy, .. }) => {
                write!(f, "repeats are found as configured, new bytes have entropy {entropy}")?;
            }
        }
        let why = match self.reason {
            Reason::Configured | Reason::Off => "as configured",
            Reason::EncoderBound => "encoding held traffic up",
            Reason::Recovering => "more is possible again",
            Reason::Probe => "looking whether blocks repeat",
        };
        write!(f, " (step {} of {}): {why}", self.level, self.levels.saturating_sub(1))
    }
}

/// Chooses how much of the configured plans is carried out.
#[derive(Clone, Debug)]
pub struct Controller {
    adapt: Adapt,
    plan: Plan,
    levels: Vec<Level>,
    level: usize,
    reason: Reason,
    changes: u64,
    /// Where the last loads pointed to, and for how long they did.
    wish: Option<(Direction, Now)>,
    quiet: Now,
    /// When there was traffic last.
    seen: Now,
    /// Thousandths of all processors nobody used of late.
    idle: f64,
    /// What the present level delivers.
    delivered: Delivered,
    /// How idle processors were when the configured plan was left.
    lowered_idle: f64,
    /// Deliveries at other levels, and their times.
    known: Vec<Option<(Rate, Now)>>,
    /// The last step up, while it may still turn out to have been wrong.
    trial: Option<Trial>,
    failure: Option<Failure>,
}

/// A step up that may still have to be taken back.
#[derive(Clone, Copy, Debug)]
struct Trial {
    from: usize,
    since: Now,
    /// The rate of the level before, if seen.
    before: Option<Rate>,
    /// How idle the processors were then.
    idle: f64,
}

/// A step up that had to be taken back.
#[derive(Clone, Copy, Debug)]
struct Failure {
    at: Now,
    /// How long no other one is tried.
    wait: Now,
    idle: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Down,
    Up,
}

impl Controller {
    /// Starts at the configured plans; `plan` is the one that [`AdaptStats`] tells of.
    pub fn new(adapt: Adapt, plan: Plan, others: &[Plan]) -> Self {
        let plans: Vec<Plan> = [&[plan], others].concat();
        let levels = levels::levels(&plans, adapt);
        Self {
            adapt,
            plan,
            known: vec![None; levels.len()],
            levels,
            level: 0,
            reason: if adapt == Adapt::Off { Reason::Off } else { Reason::Configured },
            changes: 0,
            wish: None,
            quiet: Now::ZERO,
            seen: Now::ZERO,
            idle: 0.0,
            lowered_idle: 0.0,
            delivered: Delivered::default(),
            trial: None,
            failure: None,
        }
    }

    /// Returns what is left of a block's plan; `None`: it is not to be coded.
    pub fn apply(&self, plan: &Plan) -> Option<Plan> {
        self.levels.get(self.level).and_then(|level| level.apply(plan))
    }

    /// Returns the level; 0 is as configured.
    pub fn level(&self) -> usize {
        self.level
    }

    /// Returns how it stands.
    pub fn stats(&self) -> AdaptStats {
        let of_new = |plan: Plan| Plan { entropy: plan.entropy_of_new(), busy_entropy: None, ..plan };
        AdaptStats {
            adapt: self.adapt,
            plan: self.apply(&self.plan).map(of_new),
            level: self.level,
            levels: self.levels.len(),
            reason: self.reason,
            changes: self.changes,
        }
    }

    /// Takes what happened since the last call and returns whether the level changed.
    pub fn handle_load(&mut self, load: Load, now: Now) -> bool {
        if self.levels.len() < 2 || load.span.is_zero() {
            return false;
        }
        if load.is_quiet() {
            return self.rest(load.span);
        }
        self.quiet = Now::ZERO;
        if now.saturating_sub(std::mem::replace(&mut self.seen, now)) >= SILENCE {
            // What was before says nothing of these transfers.
            self.forget();
        }
        self.delivered.take(&load);
        self.idle += IDLE_WEIGHT * (f64::from(load.idle_permille) - self.idle);
        if self.is_slowed() {
            return self.take_back(now);
        }
        if self.trial.is_some_and(|trial| now.saturating_sub(trial.since) >= TRIAL) {
            (self.trial, self.failure) = (None, None);
            self.reason = if self.level == 0 { Reason::Configured } else { Reason::EncoderBound };
        }
        let wish = self.wish(&load, now);
        match self.sustained(wish, &load) {
            Some(Direction::Down) => self.lower(&load, now),
            Some(Direction::Up) => self.raise(now),
            None => false,
        }
    }

    /// Nothing is sent: after a while the configured plan holds again.
    fn rest(&mut self, span: Now) -> bool {
        self.quiet = self.quiet.saturating_add(span);
        if self.quiet < SILENCE || self.level == 0 {
            return false;
        }
        self.forget();
        self.enter(0, Reason::Configured);
        true
    }

    fn forget(&mut self) {
        self.known.fill(None);
        (self.delivered, self.wish, self.trial, self.failure) = (Delivered::default(), None, None, None);
    }

    /// Returns where a load points to.
    fn wish(&self, load: &Load, now: Now) -> Option<Direction> {
        let is_new = load.new.saturating_mul(FEW_SHARE as u64) >= load.plain;
        if load.is_held_up() && is_new && self.level < self.last() {
            return Some(Direction::Down);
        }
        let may_rise = self.level > 0 && self.may_raise(now);
        // No block that is not coded says whether it repeats something.
        let is_blind = self.levels.get(self.level) == Some(&Level::Uncoded);
        (may_rise && (load.has_time() || is_blind || self.has_eased())).then_some(Direction::Up)
    }

    /// Adds a load's evidence and returns the direction once there is enough of it.
    fn sustained(&mut self, wish: Option<Direction>, load: &Load) -> Option<Direction> {
        self.wish = match (self.wish, wish) {
            (Some((before, time)), Some(wish)) if before == wish => {
                Some((wish, time.saturating_add(load.span)))
            }
            (_, Some(wish)) => Some((wish, load.span)),
            (Some((before, time)), None) => Some((before, time.saturating_sub(load.span))),
            (None, None) => None,
        };
        let (direction, time) = self.wish?;
        let enough = match direction {
            Direction::Down if self.level > 0 || self.trial.is_some() || load.is_starved() => EVIDENCE_DOWN,
            Direction::Down => PATIENCE,
            Direction::Up => EVIDENCE_UP,
        };
        (wish.is_some() && time >= enough).then_some(direction)
    }

    /// Returns the last level in use: no coding only while hardly anything repeats.
    fn last(&self) -> usize {
        let last = self.levels.len() - 1;
        let keeps_coding =
            self.levels.last() == Some(&Level::Uncoded) && self.delivered.new_share() < ALL_NEW;
        if keeps_coding { last - 1 } else { last }
    }

    /// Goes down, unless known to be no faster; returns whether it went.
    fn lower(&mut self, load: &Load, now: Now) -> bool {
        if self.trial.is_some() {
            // Encoding holds traffic up again: that is right only if more is delivered all the same.
            return self.trial_pays() == Some(false) && self.take_back(now);
        }
        let next = self.level + 1;
        let is_known = self.known.iter().skip(next).any(Option::is_some);
        let coded = self.levels.iter().rposition(|level| *level != Level::Uncoded).unwrap_or(0);
        // A level on the way costs a while each, and the way back up is short.
        let target = if load.is_starved() && !is_known { coded.max(next) } else { next };
        let known = self.known.get(target).copied().flatten();
        let known = known.filter(|(_, at)| now.saturating_sub(*at) < REMEMBERED).map(|(rate, _)| rate);
        let gain = known.zip(self.delivered.early_rate()).and_then(|(there, here)| there.times(&here));
        if gain.is_some_and(|gain| gain < WORTH_IT) {
            return false;
        }
        if self.level == 0 {
            self.lowered_idle = self.idle.min(f64::from(load.idle_permille));
        }
        self.remember(now);
        self.enter(target, Reason::EncoderBound);
        true
    }

    /// Goes up, on trial: one level, or to the configured plan if other load has gone.
    fn raise(&mut self, now: Now) -> bool {
        let is_blind = self.levels.get(self.level) == Some(&Level::Uncoded);
        let target = if self.has_eased() && self.failure.is_none() { 0 } else { self.level - 1 };
        let before = self.delivered.rate();
        self.remember(now);
        self.trial = Some(Trial { from: self.level, since: now, before, idle: self.idle });
        self.enter(
            target,
            match target {
                0 => Reason::Configured,
                _ if is_blind => Reason::Probe,
                _ => Reason::Recovering,
            },
        );
        true
    }

    /// Goes back to the level before the present trial; returns whether there was one.
    fn take_back(&mut self, now: Now) -> bool {
        let Some(Trial { from, idle, .. }) = self.trial.take() else { return false };
        let wait = self.failure.map_or(FIRST_WAIT, |failure| (failure.wait * 2).min(LAST_WAIT));
        self.failure = Some(Failure { at: now, wait, idle });
        self.remember(now);
        self.enter(from, Reason::EncoderBound);
        true
    }

    /// Whether the step up that is being tried delivers less than the level before did.
    fn is_slowed(&self) -> bool {
        let Some(before) = self.trial.and_then(|trial| trial.before) else { return false };
        let below = |rate: Option<Rate>, part: f64| {
            rate.and_then(|rate| rate.times(&before)).is_some_and(|times| times < part)
        };
        below(self.delivered.rate(), SLOWED) || below(self.delivered.early_rate(), FAR_SLOWED)
    }

    /// Whether it delivers more, or sees that blocks repeat; `None`: too little was seen.
    fn trial_pays(&self) -> Option<bool> {
        let trial = self.trial?;
        let early = self.delivered.early_rate()?;
        if self.levels.get(trial.from) == Some(&Level::Uncoded) && self.delivered.new_share() < ALL_NEW {
            return Some(true);
        }
        let gain = |rate: Rate| trial.before.and_then(|before| rate.times(&before)).unwrap_or(0.0);
        match self.delivered.rate() {
            None => (gain(early) < SLOWED).then_some(false),
            Some(rate) => Some(gain(rate) >= WORTH_IT),
        }
    }

    /// Whether a step up may be tried: not right after a failed one, unless other load has gone since, and during a
    /// trial only after enough evidence.
    fn may_raise(&self, now: Now) -> bool {
        let has_seen = self.trial.is_none() || self.delivered.rate().is_some();
        let is_over = |failure: Failure| {
            now.saturating_sub(failure.at) >= failure.wait || self.idle >= failure.idle + EASED_PERMILLE
        };
        has_seen && self.failure.is_none_or(is_over)
    }

    /// Whether processors are idle that were not when the configured plan was left.
    fn has_eased(&self) -> bool {
        self.idle >= self.lowered_idle + EASED_PERMILLE
    }

    /// Remembers what the present level delivers.
    fn remember(&mut self, now: Now) {
        let rate = self.delivered.early_rate();
        if let (Some(known), Some(rate)) = (self.known.get_mut(self.level), rate) {
            *known = Some((rate, now));
        }
    }

    fn enter(&mut self, level: usize, reason: Reason) {
        (self.level, self.reason) = (level, reason);
        self.changes += 1;
        (self.wish, self.delivered) = (None, Delivered::default());
    }
}

/// After this long without traffic the configured plan holds again.
const SILENCE: Now = Now::from_secs(3);
/// How long encoding has to hold traffic up before effort is lowered.
const EVIDENCE_DOWN: Now = Now::from_millis(400);
/// The same for leaving the configured plan while processors are idle: the link is then faster than the encoder, as few
/// are for long, and the plan was configured for the bytes.
const PATIENCE: Now = Now::from_secs(10);
/// How long there has to be time before effort is raised.
const EVIDENCE_UP: Now = Now::from_millis(600);
/// A step up that is not taken back for this long was right.
const TRIAL: Now = Now::from_secs(3);
/// Bounds on the time between two steps up of which the first failed.
const FIRST_WAIT: Now = Now::from_secs(4);
const LAST_WAIT: Now = Now::from_secs(60);
/// How long it is known what another level delivered.
const REMEMBERED: Now = Now::from_secs(60);
/// How many times the rate a level has to deliver to be worth a change.
const WORTH_IT: f64 = 1.05;
/// A step up delivering less than this part of the level before was wrong.
const SLOWED: f64 = 0.9;
/// At this part, nothing more has to be seen.
const FAR_SLOWED: f64 = 0.6;
/// Of bytes of which a larger part is new, hardly any repeat.
const ALL_NEW: f64 = 0.94;
/// Other load has gone when so much more of the processors is idle, in thousandths.
const EASED_PERMILLE: f64 = 250.0;
/// The weight of one load in what is known of idle processors.
const IDLE_WEIGHT: f64 = 0.3;
