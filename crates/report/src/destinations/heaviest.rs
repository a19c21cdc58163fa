//! Heavy-hitter sums in bounded memory: Space-Saving, with evicted sums apart.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::AddAssign;

/// Sums by key, of the heaviest keys.
///
/// This is Space-Saving [Metwally et al. 2005]: a new key takes the place of the lightest one and inherits
/// its weight as its possible error. Every key with more than 1/`most` of all weight is there, and a row
/// lacks at most [`Row::missed_at_most`] of its key's weight. Rows hold only additions of their own, and an
/// evicted row's sum goes to [`Heaviest::others`]: all sums together are exact.
#[derive(Clone, Debug)]
pub(super) struct Heaviest<K, V> {
    most: usize,
    rows: BTreeMap<K, Row<V>>,
    /// The same by rank, the lightest first.
    ranks: BTreeSet<(u64, K)>,
    others: V,
}

/// The sum of a key.
#[derive(Clone, Debug)]
pub(super) struct Row<V> {
    /// Additions since the key has a row.
    pub(super) sum: V,
    /// Upper bound of the key's earlier weight.
    pub(super) missed_at_most: u64,
    /// That bound, and the weight added since.
    rank: u64,
}

impl<K: Clone + Ord, V: Default + for<'a> AddAssign<&'a V>> Heaviest<K, V> {
    /// Begins without a key, with room for `most`.
    pub(super) fn new(most: usize) -> Self {
        Self { most: most.max(1), rows: BTreeMap::new(), ranks: BTreeSet::new(), others: V::default() }
    }

    /// Adds to the sum of a key.
    pub(super) fn add(&mut self, key: K, weight: u64, value: &V) {
        if let Some(row) = self.rows.get_mut(&key) {
            row.sum += value;
            if weight > 0 {
                self.ranks.remove(&(row.rank, key.clone()));
                row.rank = row.rank.saturating_add(weight);
                self.ranks.insert((row.rank, key));
            }
            return;
        }
        let mut missed_at_most = 0;
        if self.rows.len() >= self.most {
            // A weightless key evicts nothing.
            let lightest = if weight > 0 { self.ranks.pop_first() } else { None };
            let Some((rank, lightest)) = lightest else {
                self.others += value;
                return;
            };
            if let Some(row) = self.rows.remove(&lightest) {
                self.others += &row.sum;
            }
            missed_at_most = rank;
        }
        let mut sum = V::default();
        sum += value;
        let rank = missed_at_most.saturating_add(weight);
        self.ranks.insert((rank, key.clone()));
        self.rows.insert(key, Row { sum, missed_at_most, rank });
    }

    /// The rows, in the order of their keys.
    pub(super) fn rows(&self) -> impl Iterator<Item = (&K, &Row<V>)> {
        self.rows.iter()
    }

    /// The sum of everything without a row.
    pub(super) fn others(&self) -> &V {
        &self.others
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug, Default, PartialEq)]
    struct Sum {
        weight: u64,
        count: u64,
    }

    impl AddAssign<&Self> for Sum {
        fn add_assign(&mut self, other: &Self) {
            self.weight += other.weight;
            self.count += other.count;
        }
    }

    fn summed(most: usize, adds: &[(u16, u64)]) -> Heaviest<u16, Sum> {
        let mut heaviest = Heaviest::new(most);
        for &(key, weight) in adds {
            heaviest.add(key, weight, &Sum { weight, count: 1 });
        }
        heaviest
    }

    #[test]
    fn keys_without_weight_push_nobody_out() {
        let mut adds = vec![(1, 5), (2, 1)];
        adds.extend((10..10_000).map(|key| (key, 0)));
        let heaviest = summed(2, &adds);
        assert_eq!(heaviest.rows().map(|(key, _)| *key).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(heaviest.others().count, 9_990);
    }

    proptest! {
        #[test]
        fn sums_are_exact_and_heavy_keys_are_there(
            most in 1usize..20,
            adds in prop::collection::vec((0u16..60, prop_oneof![3 => 0u64..20, 1 => 0u64..2000]), 0..400)
        ) {
            let heaviest = summed(most, &adds);
            let mut true_sums = BTreeMap::<u16, Sum>::new();
            for &(key, weight) in &adds {
                *true_sums.entry(key).or_default() += &Sum { weight, count: 1 };
            }
            let mut all = heaviest.others().clone();
            heaviest.rows().for_each(|(_, row)| all += &row.sum);
            let total: u64 = adds.iter().map(|(_, weight)| weight).sum();
            prop_assert_eq!(all, Sum { weight: total, count: adds.len() as u64 });
            prop_assert!(heaviest.rows().count() <= most && heaviest.ranks.len() == heaviest.rows.len());
            for (key, sum) in &true_sums {
                let row = heaviest.rows.get(key);
                prop_assert!(row.is_some() || sum.weight <= total / most as u64, "{} is not there", key);
                let Some(row) = row else { continue };
                prop_assert!(row.sum.weight <= sum.weight);
                prop_assert!(sum.weight - row.sum.weight <= row.missed_at_most);
                prop_assert!(row.missed_at_most <= total / most as u64);
            }
        }
    }
}
