//! Sets of byte ranges, for reordered bytes and selective acknowledgements.

use std::collections::BTreeMap;

/// Disjoint half-open ranges that never touch.
#[derive(Clone, Debug, Default)]
pub(crate) struct RangeSet {
    ranges: BTreeMap<u64, u64>,
}

impl RangeSet {
    /// Adds `start..end` and calls `fresh` for each new part, in order.
    pub(crate) fn insert(&mut self, start: u64, end: u64, mut fresh: impl FnMut(u64, u64)) {
        if start >= end {
            return;
        }
        let (mut new_start, mut new_end, mut at) = (start, end, start);
        if let Some((from, to)) = self.containing(start) {
            if to >= end {
                return;
            }
            (new_start, at) = (from, to);
        } else if let Some((&from, _)) =
            self.ranges.range(..start).next_back().filter(|(_, to)| **to == start)
        {
            new_start = from;
        }
        while at <= end
            && let Some((&from, &to)) = self.ranges.range(at..=end).next()
        {
            if from > at {
                fresh(at, from);
            }
            self.ranges.remove(&from);
            at = to;
            new_end = new_end.max(to);
        }
        if at < end {
            fresh(at, end);
        }
        self.ranges.insert(new_start, new_end);
    }

    /// Returns the range around `offset`.
    pub(crate) fn containing(&self, offset: u64) -> Option<(u64, u64)> {
        let (&start, &end) = self.ranges.range(..=offset).next_back()?;
        (offset < end).then_some((start, end))
    }

    /// Removes everything below `offset`.
    pub(crate) fn remove_below(&mut self, offset: u64) {
        while let Some(first) = self.ranges.first_entry() {
            if *first.key() >= offset {
                return;
            }
            let end = first.remove();
            if end > offset {
                self.ranges.insert(offset, end);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_a_set_of_single_bytes(
            operations in proptest::collection::vec((0u64..60, 0u64..12, any::<bool>()), 1..60)
        ) {
            let mut ranges = RangeSet::default();
            let mut plain = BTreeSet::new();
            for (start, len, insert) in operations {
                if insert || len > 2 {
                    let expected: Vec<u64> = (start..start + len).filter(|b| plain.insert(*b)).collect();
                    let mut fresh = Vec::new();
                    ranges.insert(start, start + len, |from, to| fresh.extend(from..to));
                    prop_assert_eq!(fresh, expected);
                } else {
                    ranges.remove_below(start);
                    plain.retain(|b| *b >= start);
                }
                for byte in 0..80 {
                    prop_assert_eq!(ranges.containing(byte).is_some(), plain.contains(&byte), "byte {}", byte);
                }
                let touching = ranges.ranges.iter().zip(ranges.ranges.iter().skip(1)).any(|(a, b)| a.1 >= b.0);
                prop_assert!(!touching, "{:?}", ranges);
            }
        }
    }
}
