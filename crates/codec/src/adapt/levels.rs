//! The levels of effort, from the configured plan down.

use super::Adapt;
use crate::Plan;
use crate::entropy::Entropy;

/// What is left of every plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Level {
    /// All of it.
    Configured,
    /// The search for repeats, and this entropy stage at most for blocks that are mostly new.
    AtMost(Entropy),
    /// Nothing: blocks are not coded.
    Uncoded,
}

impl Level {
    /// Returns what is left of a plan.
    pub(crate) fn apply(self, plan: &Plan) -> Option<Plan> {
        match self {
            Self::Configured => Some(*plan),
            Self::AtMost(most) => {
                let busy_entropy = Some(most).filter(|most| rank(*most) < rank(plan.entropy));
                Some(Plan { busy_entropy, ..*plan })
            }
            Self::Uncoded => None,
        }
    }
}

/// Returns the levels that make a difference to one of the plans, the configured one first.
pub(crate) fn levels(plans: &[Plan], adapt: Adapt) -> Vec<Level> {
    let lowered: &[Level] = match adapt {
        Adapt::Off => &[],
        Adapt::Savings => &LOWERED[..LOWERED.len() - 1],
        Adapt::Speed => &LOWERED,
    };
    let mut levels = vec![Level::Configured];
    for level in lowered {
        let same = |last: &Level| plans.iter().all(|plan| last.apply(plan) == level.apply(plan));
        if !levels.last().is_some_and(same) {
            levels.push(*level);
        }
    }
    levels
}

fn rank(entropy: Entropy) -> i32 {
    match entropy {
        Entropy::None => 0,
        Entropy::Lz4 => 1,
        Entropy::Zstd(level) => 1 + level.max(1),
    }
}

/// Below the configured plan; the last one is for [`Adapt::Speed`] alone.
const LOWERED: [Level; 4] = [
    Level::AtMost(Entropy::Zstd(1)),
    Level::AtMost(Entropy::Lz4),
    Level::AtMost(Entropy::None),
    Level::Uncoded,
];
