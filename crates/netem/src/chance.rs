//! Seeded decisions of a link.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// One independent sequence of decisions.
///
/// Each kind of decision of a link has its own, so jitter does not change the choice of lost packets.
#[derive(Clone, Debug)]
pub(crate) struct Chance {
    generator: Pcg64Mcg,
}

impl Chance {
    /// Starts the sequence of one kind of decision for a seed.
    pub(crate) fn new(seed: u64, kind: u64) -> Self {
        // An odd constant spreads the kinds over the seed space; the generator's own seeding mixes further.
        let mixed = seed ^ kind.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Self { generator: Pcg64Mcg::seed_from_u64(mixed) }
    }

    /// Returns a number in [0, 1).
    pub(crate) fn unit(&mut self) -> f64 {
        // An f64 holds 53 bits exactly.
        (self.generator.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Decides yes with the given probability; asks the generator only if the answer is open.
    pub(crate) fn decide(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.unit() < probability
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_and_kind_repeat_and_others_differ() {
        let draw = |seed, kind| {
            let mut chance = Chance::new(seed, kind);
            (0..8).map(|_| chance.unit()).collect::<Vec<_>>()
        };
        assert_eq!(draw(7, 1), draw(7, 1));
        assert_ne!(draw(7, 1), draw(7, 2));
        assert_ne!(draw(7, 1), draw(8, 1));
    }

    #[test]
    fn decisions_follow_their_probability() {
        let mut chance = Chance::new(3, 0);
        let yes = (0..100_000).filter(|_| chance.decide(0.1)).count();
        assert!((9_500..10_500).contains(&yes), "{yes} of 100,000 at 10 %");
        assert!((0..1000).all(|_| !chance.decide(0.0)));
        assert!((0..1000).all(|_| chance.decide(1.0)));
    }
}
