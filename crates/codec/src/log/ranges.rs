//! A set of numbers kept as ranges: sequence numbers that arrived, log offsets written.

use std::collections::BTreeMap;

use crate::wire::Range64;

/// A set of `u64` as disjoint, non-touching ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSet {
    /// Start to end of each range.
    ranges: BTreeMap<u64, u64>,
    /// How many numbers they hold.
    total: u64,
}

impl RangeSet {
    /// Adds a range and joins it with those it touches.
    pub fn insert(&mut self, range: Range64) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        if let Some((&before, &before_end)) = self.ranges.range(..=start).next_back()
            && before_end >= start
        {
            start = before;
            end = end.max(before_end);
        }
        while let Some((&next, &next_end)) = self.ranges.range(start..=end).next() {
            end = end.max(next_end);
            self.ranges.remove(&next);
            self.total -= next_end - next;
        }
        self.ranges.insert(start, end);
        self.total += end - start;
    }

    /// Whether the whole range is in the set.
    pub fn contains(&self, range: &Range64) -> bool {
        range.is_empty()
            || self.ranges.range(..=range.start).next_back().is_some_and(|(_, &end)| end >= range.end)
    }

    /// Whether any number of the range is in the set.
    pub fn overlaps(&self, range: &Range64) -> bool {
        !range.is_empty()
            && self.ranges.range(..range.end).next_back().is_some_and(|(_, &end)| end > range.start)
    }

    /// The range holding a number, or the first one behind it.
    pub fn from(&self, at: u64) -> Option<Range64> {
        let held = self.ranges.range(..=at).next_back().filter(|(_, end)| **end > at);
        held.or_else(|| self.ranges.range(at..).next()).map(|(&start, &end)| start..end)
    }

    /// Appends the parts of `range` that are not in the set.
    pub fn missing(&self, range: &Range64, out: &mut Vec<Range64>) {
        self.missing_up_to(range, usize::MAX, out);
    }

    /// Appends the first parts of `range` that are not in the set, until `out` has `most` or more; looks at no more ranges
    /// than it appends parts, and one.
    pub fn missing_up_to(&self, range: &Range64, most: usize, out: &mut Vec<Range64>) {
        let mut at = range.start;
        if let Some((_, &end)) = self.ranges.range(..=at).next_back() {
            at = at.max(end);
        }
        for (&start, &end) in self.ranges.range(at..) {
            if out.len() >= most {
                return;
            }
            if start >= range.end {
                break;
            }
            if start > at {
                out.push(at..start);
            }
            at = end;
        }
        if at < range.end && out.len() < most {
            out.push(at..range.end);
        }
    }

    /// The last number of `range` that is not in the set.
    pub fn last_missing(&self, range: &Range64) -> Option<u64> {
        let last = range.end.checked_sub(1).filter(|last| *last >= range.start)?;
        match self.ranges.range(..=last).next_back() {
            Some((&start, &end)) if end > last => {
                start.checked_sub(1).filter(|before| *before >= range.start)
            }
            _ => Some(last),
        }
    }

    /// Drops every number below `floor`.
    pub fn remove_below(&mut self, floor: u64) {
        while let Some(first) = self.ranges.first_entry() {
            if *first.key() >= floor {
                return;
            }
            let (start, end) = first.remove_entry();
            self.total -= end.min(floor) - start;
            if end > floor {
                self.ranges.insert(floor, end);
                return;
            }
        }
    }

    /// The ranges in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Range64> + '_ {
        self.ranges.iter().map(|(&start, &end)| start..end)
    }

    /// How many ranges there are.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// How many numbers there are.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Empties the set.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

/// The sequence numbers that have arrived: all below `next`, and some ranges above it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arrived {
    next: u64,
    above: RangeSet,
}

impl Arrived {
    /// Adds a number; returns whether it is new.
    pub fn insert(&mut self, seq: u64) -> bool {
        if self.contains(seq) {
            return false;
        }
        self.above.insert(seq..seq.saturating_add(1));
        let first = self.above.iter().next();
        if let Some(first) = first.filter(|first| first.start <= self.next) {
            self.next = first.end;
            self.above.remove_below(first.end);
        }
        true
    }

    /// Whether the number has arrived.
    pub fn contains(&self, seq: u64) -> bool {
        seq < self.next || self.above.contains(&(seq..seq.saturating_add(1)))
    }

    /// The first number that has not arrived.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// The ranges above [`Self::next`].
    pub fn above(&self) -> &RangeSet {
        &self.above
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_range_set_agrees_with_a_plain_set(ops in prop::collection::vec((0u8..4, 0u64..60, 0u64..12), 1..60)) {
            let (mut set, mut plain) = (RangeSet::default(), BTreeSet::new());
            for (op, start, len) in ops {
                let range = start..start + len;
                match op {
                    0 | 1 => {
                        set.insert(range.clone());
                        plain.extend(range.clone());
                    }
                    2 if len < 3 => {
                        set.remove_below(start);
                        plain.retain(|&n| n >= start);
                    }
                    _ => {}
                }
                prop_assert_eq!(set.contains(&range), range.clone().all(|n| plain.contains(&n)));
                prop_assert_eq!(set.overlaps(&range), range.clone().any(|n| plain.contains(&n)));
                let mut missing = Vec::new();
                set.missing(&range, &mut missing);
                let missing: Vec<u64> = missing.into_iter().flatten().collect();
                let expected: Vec<u64> = range.clone().filter(|n| !plain.contains(n)).collect();
                prop_assert_eq!(set.last_missing(&range), expected.last().copied());
                let mut first = Vec::new();
                set.missing_up_to(&range, 1, &mut first);
                prop_assert!(first.len() <= 1 && expected.starts_with(&first.into_iter().flatten().collect::<Vec<_>>()));
                prop_assert_eq!(missing, expected);
                prop_assert_eq!(set.iter().flatten().collect::<Vec<_>>(), plain.iter().copied().collect::<Vec<_>>());
                prop_assert_eq!(set.total(), plain.len() as u64);
                prop_assert_eq!(set.from(start), set.iter().find(|range| range.end > start));
                let ends: Vec<_> = set.iter().collect();
                prop_assert!(ends.windows(2).all(|pair| pair[0].end < pair[1].start));
            }
        }

        #[test]
        fn arrivals_in_any_order_become_one_prefix(order in Just((0u64..40).collect::<Vec<_>>()).prop_shuffle()) {
            let mut arrived = Arrived::default();
            for &seq in &order {
                prop_assert!(arrived.insert(seq));
                prop_assert!(!arrived.insert(seq));
                prop_assert!(arrived.contains(seq));
            }
            prop_assert_eq!(arrived.next(), 40);
            prop_assert!(arrived.above().is_empty());
        }
    }
}
