//! What is known of each rung and of the path, and the rate that follows.

use super::ladder::{Cut, Expected, expected};
use super::{Load, nanos};
use crate::{Now, Plan};

/// What was measured at the rungs in use, and is expected of the others.
#[derive(Clone, Debug)]
pub(super) struct Estimates {
    rungs: Vec<Rung>,
    /// How much longer encoding and writing take by the clock than in CPU time.
    stretch: f64,
    /// Nanoseconds of CPU that writing takes for a wire byte, or for so many plain ones that [`PLAIN_WEIGHT`] of each
    /// makes one.
    rest: f64,
    link: Option<Path>,
    sure_link: Option<Path>,
}

#[derive(Clone, Copy, Debug)]
struct Rung {
    coded: bool,
    now: Takes,
    /// The same before content last changed, for the ratio to other rungs.
    then: Takes,
    /// What was first measured of the present content.
    first: Takes,
    /// Measurements of the present content; none: `now` is a guess from the nearest rung that has some.
    samples: u32,
    seen: Now,
}

/// What a plain byte takes.
#[derive(Clone, Copy, Debug)]
struct Takes {
    /// Nanoseconds of CPU.
    cost: f64,
    /// Wire bytes.
    share: f64,
}

/// The path as it was when lanes last waited for their sockets.
#[derive(Clone, Copy, Debug)]
struct Path {
    bytes_per_ns: f64,
    seen: Now,
}

/// What limits the rate beside the encoder.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Wire bytes a nanosecond.
    pub(super) link: f64,
    /// Plain bytes a nanosecond that there is a use for.
    pub(super) demand: f64,
}

impl Estimates {
    pub(super) fn new(rungs: &[Cut], plan: &Plan) -> Self {
        let rung = |cut: &Cut| {
            let left = cut.apply(plan);
            let Expected { cost, share } = expected(left.as_ref());
            let takes = Takes { cost, share };
            Rung { coded: left.is_some(), now: takes, then: takes, first: takes, samples: 0, seen: Now::ZERO }
        };
        Self { rungs: rungs.iter().map(rung).collect(), stretch: 1.0, rest: 0.0, link: None, sure_link: None }
    }

    /// Takes what a tick at `rung` showed.
    pub(super) fn learn(&mut self, rung: usize, load: &Load, now: Now) {
        let (plain, wire) = (load.plain as f64, load.wire as f64);
        let (cpu, writing) = (nanos(load.encoding).max(1.0), nanos(load.writing));
        let takes = Takes { cost: cpu / plain, share: (wire / plain).clamp(0.001, 1.1) };
        self.learn_rung(rung, takes, cpu / FULL_WEIGHT_NS, now);
        let stretch = (nanos(load.working()) / (cpu + writing)).clamp(1.0, 1000.0);
        self.stretch += HEAVIEST * (stretch - self.stretch);
        let rest = writing / (wire + PLAIN_WEIGHT * plain);
        let weight = if self.rest == 0.0 { 1.0 } else { HEAVIEST / 2.0 };
        self.rest += weight * (rest - self.rest);
        self.learn_link(load, now);
    }

    fn learn_rung(&mut self, rung: usize, takes: Takes, weight: f64, now: Now) {
        let Some(known) = self.rungs.get_mut(rung) else { return };
        let before = std::mem::replace(&mut known.seen, now);
        let first = known.samples == 0;
        if now.saturating_sub(before) > FRESH && known.now.is_other(&takes) {
            known.samples = 0;
        }
        known.samples += 1;
        let mean = (1.0 / f64::from(known.samples)).max(LIGHTEST);
        let most = if known.now.is_other(&takes) { HEAVIEST } else { mean };
        let weight = if known.samples == 1 { 1.0 } else { weight.min(most) };
        known.now.cost += weight * (takes.cost - known.now.cost);
        known.now.share += weight * (takes.share - known.now.share);
        if first {
            known.first = known.now;
            self.guess();
        } else if known.coded && known.now.is_other(&known.first) {
            self.change_content(rung, before);
        }
    }

    /// Content takes more or less than it did: what was measured of other rungs before is out of date.
    fn change_content(&mut self, rung: usize, before: Now) {
        for (at, other) in self.rungs.iter_mut().enumerate() {
            if at == rung {
                (other.then, other.first) = (other.first, other.now);
            } else if other.coded && (other.samples == 0 || other.seen <= before) {
                (other.then, other.samples) = (other.now, 0);
            }
        }
        self.guess();
    }

    /// Guesses rungs without measurements from the nearest one that has some; a richer rung takes no less CPU
    /// and no more of the path.
    fn guess(&mut self) {
        let measured: Vec<(usize, Rung)> = self
            .rungs
            .iter()
            .copied()
            .enumerate()
            .filter(|(_, rung)| rung.samples > 0 && rung.coded)
            .collect();
        for (at, rung) in
            self.rungs.iter_mut().enumerate().filter(|(_, rung)| rung.samples == 0 && rung.coded)
        {
            let Some((_, near)) = measured.iter().min_by_key(|(other, _)| other.abs_diff(at)) else {
                continue;
            };
            rung.now.cost = near.now.cost * rung.then.cost / near.then.cost;
            rung.now.share = (near.now.share * rung.then.share / near.then.share).min(1.0);
            for (other, known) in &measured {
                let Takes { cost, share } = rung.now;
                rung.now = if *other < at {
                    Takes { cost: cost.min(known.now.cost), share: share.max(known.now.share) }
                } else {
                    Takes { cost: cost.max(known.now.cost), share: share.min(known.now.share) }
                };
            }
        }
    }

    fn learn_link(&mut self, load: &Load, now: Now) {
        let seen = load.wire as f64 / nanos(load.active).max(1.0);
        let full = load.blocked >= load.active / 32 && load.active >= load.span / 2;
        if full && load.blocked >= load.active / 2 {
            self.sure_link = Some(Path { bytes_per_ns: seen, seen: now });
        } else {
            self.sure_link = self.sure_link.filter(|path| now.saturating_sub(path.seen) <= REMEMBERED);
        }
        self.link = match self.link {
            None if full => Some(Path { bytes_per_ns: seen, seen: now }),
            Some(path) if full => Some(Path {
                bytes_per_ns: path.bytes_per_ns + HEAVIEST * (seen - path.bytes_per_ns),
                seen: now,
            }),
            Some(path) if now.saturating_sub(path.seen) > REMEMBERED => None,
            Some(path) => {
                let more = (seen - path.bytes_per_ns).max(0.0);
                Some(Path { bytes_per_ns: path.bytes_per_ns + HEAVIEST / 4.0 * more, ..path })
            }
            None => None,
        };
    }

    /// Returns the wire bytes a nanosecond that the path takes, as far as was seen.
    pub(super) fn link(&self, load: &Load) -> f64 {
        let seen = load.wire as f64 / nanos(load.active).max(1.0);
        self.link.map_or(UNSEEN * seen, |path| path.bytes_per_ns)
    }

    /// Returns what it took when lanes waited for it for half of the time, so that it was this path and nothing else.
    pub(super) fn sure_link(&self) -> Option<f64> {
        self.sure_link.map(|path| path.bytes_per_ns)
    }

    /// Returns the plain bytes a nanosecond that a rung would deliver.
    pub(super) fn rate(&self, rung: usize, limits: Limits) -> f64 {
        let Some(rung) = self.rungs.get(rung) else { return 0.0 };
        let Takes { cost, share } = rung.now;
        let time = self.stretch * (cost + self.rest * (share + PLAIN_WEIGHT));
        let hope = if rung.seen.is_zero() { HOPE } else { 1.0 };
        (hope / time).min(hope * limits.link / share).min(limits.demand)
    }
}

impl Takes {
    /// Whether it differs by more than measurements of the same content do.
    fn is_other(&self, than: &Self) -> bool {
        let alike = |value: f64, other: f64| (0.8..=1.25).contains(&(value / other));
        !alike(self.cost, than.cost) || !alike(self.share, than.share)
    }
}

/// What the sender does for a plain byte beside encoding (queues, locks), in terms of a wire byte (TLS, system
/// calls).
const PLAIN_WEIGHT: f64 = 0.15;
/// A measurement over this much CPU time counts as much as one may.
const FULL_WEIGHT_NS: f64 = 50e6;
const HEAVIEST: f64 = 0.5;
/// The weight of a measurement among many.
const LIGHTEST: f64 = 0.2;
/// A rung that was never tried is given the benefit of the doubt.
const HOPE: f64 = 1.15;
/// A rung that was not measured for longer is measured anew.
const FRESH: Now = Now::from_secs(5);
/// How long a full path is remembered after lanes last waited.
const REMEMBERED: Now = Now::from_secs(30);
/// A path that was not seen to be full takes this many times what it carries.
const UNSEEN: f64 = 2.0;
