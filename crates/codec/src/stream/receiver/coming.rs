//! The ranges of the log that blocks will fill which are here and wait: what lacks only those is not asked for.

use super::Receiver;
use crate::Now;
use crate::log::RangeSet;
use crate::transfer::Head;

/// Such ranges, as they were a while ago, and those of the blocks that came since.
#[derive(Default)]
pub(crate) struct Coming {
    pub(crate) ranges: RangeSet,
    /// Until when they do.
    until: Option<Now>,
}

/// They do for this part of the patience: with each block that is late, all that wait would be walked.
const FRESH: u32 = 4;

/// Beyond so many ranges others are not noted: what lacks those is asked for, at worst in vain.
const MOST_RANGES: usize = 1 << 15;

impl Coming {
    /// Notes a block that came and waits.
    pub(crate) fn note(&mut self, head: &Head) {
        if let (Some(range), Some(_)) = (head.range(), self.until)
            && self.ranges.len() < MOST_RANGES
        {
            self.ranges.insert(range);
        }
    }

    /// Whether the ranges are to be put together anew.
    pub(crate) fn is_stale(&self, now: Now) -> bool {
        self.until.is_none_or(|until| until <= now)
    }

    /// Takes the ranges as they are now.
    pub(crate) fn set(&mut self, ranges: RangeSet, patience: Now, now: Now) {
        *self = Self { ranges, until: Some(now + patience / FRESH) };
    }
}

impl Receiver {
    /// Puts together what blocks will fill that are being fetched, and those that wait for them: it will come, and asking
    /// for it would bring it twice. Only if a block is late does that matter.
    pub(crate) fn look_for_coming(&mut self, now: Now) {
        let is_stale = self.coming.is_stale(now);
        let is_any_late = self.parked.deadline().is_some_and(|deadline| deadline <= now);
        if self.fetching.is_empty() || (is_stale && !is_any_late) {
            self.coming = Coming::default();
        } else if is_stale {
            let mut ranges = RangeSet::default();
            self.fetching.ranges().chain(self.parked.ranges()).for_each(|range| ranges.insert(range));
            self.stats.steps += ranges.len() as u64;
            self.coming.set(ranges, self.patience, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_with_ever_new_ranges_are_not_all_noted() {
        let mut coming = Coming::default();
        coming.set(RangeSet::default(), Now::from_secs(1), Now::ZERO);
        for seq in 0..2 * MOST_RANGES as u64 {
            coming.note(&Head { start: 100 * seq, remembered: true, plain_len: 48, ..Head::of(seq) });
        }
        assert_eq!(coming.ranges.len(), MOST_RANGES);
        assert!(coming.ranges.contains(&(0..48)) && !coming.is_stale(Now::ZERO));
    }
}
