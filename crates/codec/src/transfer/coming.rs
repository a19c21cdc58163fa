//! The ranges of the log to be filled by waiting blocks: they are not requested.

use super::Head;
use crate::Now;
use crate::log::RangeSet;

/// Such ranges, as they were a while ago, and those of the blocks that came since.
#[derive(Default)]
pub(crate) struct Coming {
    pub(crate) ranges: RangeSet,
    /// Until when they do.
    until: Option<Now>,
}

/// They serve for this part of the patience: with each late block, all waiting ones would be walked.
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
