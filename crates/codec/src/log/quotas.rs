//! How much of a log each class of flows has taken, so none takes more than its quota.

use std::collections::{BTreeMap, VecDeque};

use crate::plan::Quota;

/// What classes of flows have written to a log of a given capacity.
///
/// Bytes are counted by parts of the log, not by blocks: a part counts as long as any of it can be in the log. So the
/// count is never too little, and at most one part too much; memory and time are bounded at any size of blocks.
#[derive(Clone, Debug)]
pub struct Quotas {
    capacity: u64,
    /// Bytes by part of the log, oldest first, for each class that has any in it; parts without any are left out.
    classes: BTreeMap<u64, VecDeque<(u64, u64)>>,
}

impl Quotas {
    /// Starts with nothing taken of a log of `capacity` bytes.
    pub const fn new(capacity: u64) -> Self {
        Self { capacity, classes: BTreeMap::new() }
    }

    /// Says whether `len` more bytes of a class, written at `head`, leave it within its quota: of the `capacity` bytes
    /// ending behind them, at most so many are the class's.
    pub fn allows(&self, quota: Quota, head: u64, len: u64) -> bool {
        self.taken(quota.class, head.saturating_add(len)).saturating_add(len) <= quota.bytes
    }

    /// Notes bytes of a class written at `start`, never decreasing.
    pub fn take(&mut self, class: u64, start: u64, len: u64) {
        let Some(last) = start.saturating_add(len).checked_sub(1).filter(|_| len > 0) else { return };
        let oldest = self.part(last.saturating_sub(self.capacity));
        // A block on the border of two parts counts for the later one, which is forgotten later.
        let part = self.part(last);
        // Of classes that are no more, too: others come in their place for as long as the log lives.
        self.classes.retain(|_, parts| {
            while parts.front().is_some_and(|(part, _)| *part < oldest) {
                parts.pop_front();
            }
            !parts.is_empty()
        });
        let parts = self.classes.entry(class).or_default();
        match parts.back_mut() {
            Some((newest, bytes)) if *newest == part => *bytes = bytes.saturating_add(len),
            _ => parts.push_back((part, len)),
        }
    }

    /// Forgets what was taken: nothing in the log can be referred to any more.
    pub fn clear(&mut self) {
        self.classes.clear();
    }

    /// Returns how many bytes of a class may be among the `capacity` bytes ending at `end`.
    fn taken(&self, class: u64, end: u64) -> u64 {
        let oldest = self.part(end.saturating_sub(self.capacity));
        let parts = self.classes.get(&class).into_iter().flatten();
        parts.filter(|(part, _)| *part >= oldest).map(|(_, bytes)| bytes).sum()
    }

    fn part(&self, offset: u64) -> u64 {
        offset / self.capacity.div_ceil(PARTS).max(1)
    }
}

/// Parts of a log counted: the finer, the sooner a class may go on, and the longer the list.
const PARTS: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: u64 = 64_000;

    fn quota(class: u64, bytes: u64) -> Quota {
        Quota { class, bytes }
    }

    #[test]
    fn a_class_takes_its_quota_and_no_more() {
        let mut quotas = Quotas::new(CAPACITY);
        for start in [0, 1000, 2000] {
            assert!(quotas.allows(quota(1, 3000), start, 1000), "{start}");
            quotas.take(1, start, 1000);
        }
        assert!(!quotas.allows(quota(1, 3000), 3000, 1));
        assert!(quotas.allows(quota(2, 3000), 3000, 3000), "classes are counted apart");
        assert!(!quotas.allows(quota(3, 0), 3000, 1), "a quota of nothing allows nothing");
    }

    #[test]
    fn bytes_beyond_the_log_are_given_back() {
        let mut quotas = Quotas::new(CAPACITY);
        quotas.take(1, 0, 3000);
        assert!(!quotas.allows(quota(1, 3000), CAPACITY - 10_000, 1000));
        assert!(quotas.allows(quota(1, 3000), CAPACITY + 4000, 1000));
        quotas.clear();
        assert!(quotas.allows(quota(1, 3000), 4000, 3000));
    }

    #[test]
    fn short_lived_classes_take_bounded_memory() {
        let mut quotas = Quotas::new(CAPACITY);
        for class in 0..1000 {
            quotas.take(class, class * 500, 500);
            assert!(quotas.classes.len() as u64 <= CAPACITY / 500 + 2, "{}", quotas.classes.len());
        }
    }

    #[test]
    fn a_random_run_stays_within_the_quota_and_within_memory() {
        let mut random = 7u64;
        let mut below = |bound: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % bound
        };
        let (mut quotas, mut head, mut written) = (Quotas::new(CAPACITY), 0, Vec::new());
        let limit = quota(9, 10_000);
        for _ in 0..20_000 {
            let len = 1 + below(3000);
            if below(2) == 0 || !quotas.allows(limit, head, len) {
                head += len / 2;
                continue;
            }
            quotas.take(limit.class, head, len);
            written.push((head, len));
            head += len;
            let (oldest, written) = (head.saturating_sub(CAPACITY), written.iter().rev());
            let held = written.take_while(|(start, len)| start + len > oldest);
            let held: u64 = held.map(|(start, len)| len - oldest.saturating_sub(*start)).sum();
            assert!(held <= limit.bytes, "{held} at {head}");
            assert!(quotas.classes[&9].len() as u64 <= PARTS + 2);
        }
        assert!(written.len() > 1000, "the quota is used again and again");
    }

    #[test]
    fn absurd_values_do_not_panic() {
        let mut quotas = Quotas::new(0);
        quotas.take(1, u64::MAX, u64::MAX);
        quotas.take(1, 0, 0);
        assert!(!quotas.allows(quota(1, 5), u64::MAX, u64::MAX));
    }
}
