//! The rungs between a configured plan and no coding at all, and what each is expected to cost and to save.

use oncewire_fingerprint::MarkerKind;

use crate::entropy::Entropy;
use crate::{Layers, Matching, Plan};

/// What is taken away from every plan, all cuts of the rungs above included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cut {
    /// The richest entropy stage that is left.
    entropy: Entropy,
    /// How many times the period is longer.
    widen: u32,
    /// Whether a cheaper relative of the marker choice is used.
    plain_markers: bool,
    /// Whether chunks are named beside what the log has.
    names: bool,
    /// Whether blocks are coded at all.
    coded: bool,
}

impl Cut {
    const fn new(entropy: Entropy, plain_markers: bool, widen: u32) -> Self {
        Self { entropy, widen, plain_markers, names: true, coded: true }
    }

    const fn nameless(entropy: Entropy, widen: u32) -> Self {
        Self { names: false, ..Self::new(entropy, true, widen) }
    }

    /// Returns what the cut leaves of a plan: never more than there was.
    pub(super) fn apply(&self, plan: &Plan) -> Option<Plan> {
        if !self.coded {
            return None;
        }
        let entropy = cheaper(plan.entropy, self.entropy);
        // A plan that has nothing but names keeps them: without, hardly anything would be saved.
        let layers = match plan.layers {
            Layers::Both if !self.names => Layers::Log,
            layers => layers,
        };
        if plan.matching == Matching::Chunk {
            // With other boundaries there would be other chunks, and none of those remembered would be found.
            return Some(Plan { layers, entropy, ..*plan });
        }
        let markers = if self.plain_markers { relative(plan.markers) } else { plan.markers };
        let period = plan.period.saturating_mul(self.widen).min(WIDEST).max(plan.period);
        Some(Plan { layers, entropy, markers, period, ..*plan })
    }
}

/// Returns the rungs that make a difference to one of the plans, the configured one first.
pub(super) fn rungs(plans: &[Plan]) -> Vec<Cut> {
    let mut kept = vec![CUTS[0]];
    for cut in CUTS {
        let same = |last: &Cut| plans.iter().all(|plan| last.apply(plan) == cut.apply(plan));
        if !kept.last().is_some_and(same) {
            kept.push(cut);
        }
    }
    kept
}

/// What a block is expected to take before anything was measured; only ratios matter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Expected {
    /// Nanoseconds of CPU for each plain byte.
    pub(super) cost: f64,
    /// Wire bytes for each plain byte.
    pub(super) share: f64,
}

/// Returns what a plan is expected to take, with zstd 1 and MAXP as measured on versioned files.
pub(super) fn expected(plan: Option<&Plan>) -> Expected {
    let Some(plan) = plan else { return Expected { cost: 0.1, share: 1.0 } };
    let doublings = (f64::from(plan.period) / 64.0).log2();
    let (entropy, share) = match plan.entropy {
        Entropy::None => (0.0, 0.29 + 0.047 * doublings),
        Entropy::Lz4 => (0.6, 0.136 + 0.007 * doublings),
        Entropy::Zstd(..=1) => (1.1, 0.093 + 0.003 * doublings),
        Entropy::Zstd(2..=3) => (1.8, 0.085 + 0.003 * doublings),
        Entropy::Zstd(4..=6) => (4.5, 0.081 + 0.003 * doublings),
        Entropy::Zstd(7..=9) => (8.0, 0.079 + 0.003 * doublings),
        Entropy::Zstd(10..=12) => (16.0, 0.078 + 0.003 * doublings),
        Entropy::Zstd(_) => (150.0, 0.075 + 0.003 * doublings),
    };
    let matching = 0.35 + 12.0 / f64::from(plan.period.max(1)) + selection(plan.markers);
    let names = if plan.layers.use_names() { NAMING } else { 0.0 };
    Expected { cost: matching + names + entropy, share: share.max(0.02) }
}

/// Nanoseconds for each byte that looking for named chunks takes.
const NAMING: f64 = 1.0;

/// Nanoseconds for each byte that a marker choice takes above MAXP of regions.
fn selection(kind: MarkerKind) -> f64 {
    match kind {
        MarkerKind::Maxp | MarkerKind::Modp => 0.0,
        MarkerKind::Fixed => -0.03,
        MarkerKind::SampleByte => 0.2,
        MarkerKind::MaxpStrict => 0.45,
        MarkerKind::ModpRabin => 2.2,
    }
}

/// The choice to fall back to, whose markers are found with less work.
fn relative(kind: MarkerKind) -> MarkerKind {
    match kind {
        MarkerKind::ModpRabin => MarkerKind::Modp,
        MarkerKind::MaxpStrict => MarkerKind::Maxp,
        same => same,
    }
}

fn cheaper(configured: Entropy, most: Entropy) -> Entropy {
    let rank = |entropy| match entropy {
        Entropy::None => 0,
        Entropy::Lz4 => 1,
        Entropy::Zstd(level) => 1 + level.max(1),
    };
    if rank(configured) <= rank(most) { configured } else { most }
}

/// In the order of savings lost for the time gained; see `docs/design/adaptation.md`.
const CUTS: [Cut; 14] = [
    Cut::new(Entropy::Zstd(i32::MAX - 1), false, 1),
    Cut::new(Entropy::Zstd(12), false, 1),
    Cut::new(Entropy::Zstd(9), false, 1),
    Cut::new(Entropy::Zstd(6), false, 1),
    Cut::new(Entropy::Zstd(3), false, 1),
    Cut::new(Entropy::Zstd(1), false, 1),
    Cut::new(Entropy::Zstd(1), true, 1),
    Cut::new(Entropy::Zstd(1), true, 2),
    Cut::nameless(Entropy::Zstd(1), 2),
    Cut::nameless(Entropy::Lz4, 2),
    Cut::nameless(Entropy::Lz4, 4),
    Cut::nameless(Entropy::Lz4, 8),
    Cut::nameless(Entropy::None, 8),
    Cut { coded: false, ..Cut::nameless(Entropy::None, 8) },
];

/// The longest period that a rung makes: beyond it little is found and nothing gained.
const WIDEST: u32 = 512;
