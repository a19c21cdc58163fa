//! Blocks with deadlines, and the first of them: every call of a link asks for it.

use std::collections::{BTreeMap, BTreeSet};

use crate::Now;

/// What is kept of a block.
pub(crate) trait Due {
    /// When something of it is due, if anything is.
    fn due(&self) -> Option<Now>;
}

/// Blocks by sequence number, and by when something of them is due.
pub(crate) struct Timed<T> {
    by_seq: BTreeMap<u64, T>,
    deadlines: BTreeSet<(Now, u64)>,
}

impl<T> Default for Timed<T> {
    fn default() -> Self {
        Self { by_seq: BTreeMap::new(), deadlines: BTreeSet::new() }
    }
}

impl<T: Due> Timed<T> {
    /// Enters a block in place of what was kept of it.
    pub(crate) fn insert(&mut self, seq: u64, block: T) {
        self.remove(seq);
        self.deadlines.extend(block.due().map(|due| (due, seq)));
        self.by_seq.insert(seq, block);
    }

    pub(crate) fn remove(&mut self, seq: u64) -> Option<T> {
        let block = self.by_seq.remove(&seq)?;
        if let Some(due) = block.due() {
            self.deadlines.remove(&(due, seq));
        }
        Some(block)
    }

    /// Changes a block, if it is there.
    pub(crate) fn change<R>(&mut self, seq: u64, change: impl FnOnce(&mut T) -> R) -> Option<R> {
        let block = self.by_seq.get_mut(&seq)?;
        let before = block.due();
        let changed = change(block);
        let after = block.due();
        if before != after {
            before.map(|due| self.deadlines.remove(&(due, seq)));
            self.deadlines.extend(after.map(|due| (due, seq)));
        }
        Some(changed)
    }

    pub(crate) fn get(&self, seq: u64) -> Option<&T> {
        self.by_seq.get(&seq)
    }

    pub(crate) fn contains(&self, seq: u64) -> bool {
        self.by_seq.contains_key(&seq)
    }

    /// The oldest.
    pub(crate) fn first(&self) -> Option<u64> {
        self.by_seq.first_key_value().map(|(&seq, _)| seq)
    }

    pub(crate) fn len(&self) -> usize {
        self.by_seq.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_seq.is_empty()
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.by_seq.values()
    }

    /// Returns those that are such.
    pub(crate) fn such(&self, is_such: impl Fn(&T) -> bool) -> Vec<u64> {
        self.by_seq.iter().filter(|(_, block)| is_such(block)).map(|(&seq, _)| seq).collect()
    }

    pub(crate) fn clear(&mut self) {
        self.by_seq.clear();
        self.deadlines.clear();
    }

    /// When something of a block is due first.
    pub(crate) fn deadline(&self) -> Option<Now> {
        self.deadlines.first().map(|(due, _)| *due)
    }

    /// Returns the blocks of which something is due, the first first.
    pub(crate) fn late(&self, now: Now) -> impl Iterator<Item = u64> {
        self.deadlines.iter().take_while(move |(due, _)| *due <= now).map(|(_, seq)| *seq)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    impl Due for Option<u64> {
        fn due(&self) -> Option<Now> {
            self.map(Now::from_millis)
        }
    }

    proptest! {
        #[test]
        fn first_due_block_is_the_same_as_by_a_walk(
            steps in prop::collection::vec((0u8..4, 0u64..20, prop::option::of(0u64..100)), 1..100)
        ) {
            let mut timed = Timed::default();
            for (what, seq, due) in steps {
                match what {
                    0 | 1 => timed.insert(seq, due),
                    2 => drop(timed.change(seq, |block| *block = due)),
                    _ => drop(timed.remove(seq)),
                }
                prop_assert_eq!(timed.deadline(), timed.values().filter_map(Due::due).min());
                let now = Now::from_millis(50);
                let mut late: Vec<u64> = timed.late(now).collect();
                late.sort_unstable();
                prop_assert_eq!(late, timed.such(|block| block.due().is_some_and(|due| due <= now)));
            }
        }
    }
}
