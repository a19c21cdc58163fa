//! The log's memory given back and taken again, and claims of its content.

use super::LogDecoder;
use crate::contract::{LogWrite, SavedLog};
use crate::log::RangeSet;
use crate::log::samples::SampleGrid;
use crate::wire::{LogClaim, MAX_CLAIMED};

/// The content of the log when its memory was given back.
pub(crate) struct Released {
    ranges: RangeSet,
    claim: Option<LogClaim>,
}

impl LogDecoder {
    /// Gives the log's memory back.
    pub(crate) fn release(&mut self) {
        if self.released.is_none() {
            let claim = self.claim();
            self.released = Some(Released { ranges: std::mem::take(&mut self.written), claim });
            self.log.clear();
        }
    }

    /// Takes back a released log, as far as it was found again, and reports the rest; returns whether it was released.
    pub(crate) fn take_back(&mut self, log: Option<SavedLog>) -> bool {
        let Some(Released { ranges, .. }) = self.released.take() else { return false };
        // One reaching further than ours is of an earlier log with the same number of its epoch: later writes behind
        // ours could be out of its reach.
        let is_ours = |log: &SavedLog| {
            let end = log.ranges.iter().next_back().map_or(0, |range| range.end).max(log.log.end().0);
            log.epoch == self.epoch && end <= self.highest
        };
        let found = log.filter(is_ours).map(|log| log.fit(self.log.capacity()));
        let mut gone = Vec::new();
        match found {
            None => gone.extend(ranges.iter()),
            Some(mut found) => {
                ranges.iter().for_each(|range| found.ranges.missing(&range, &mut gone));
                found.log.set_limit(self.limit());
                // Later bytes are only in memory, or about to be written.
                self.log.copy_ranges(&self.written, &mut found.log);
                self.log = found.log;
                // Anything else there is of an earlier log with the same number of its epoch.
                let (mut lost, mut there) = (RangeSet::default(), Vec::new());
                gone.iter().for_each(|range| lost.insert(range.clone()));
                ranges.iter().for_each(|range| lost.missing(&range, &mut there));
                there.into_iter().for_each(|range| self.written.insert(range));
            }
        }
        self.apply_limit();
        self.bound_ranges();
        // Gone from the middle means gone from there down: the sending half is told of one offset.
        if let Some(last) = gone.iter().map(|range| range.end).max().filter(|end| *end > self.base) {
            self.give_up_below(last);
        }
        true
    }

    /// The first bytes held from an offset on, at most a block of them.
    pub(crate) fn piece(&self, from: u64) -> Option<LogWrite> {
        let held = self.written.from(from).filter(|_| self.released.is_none())?;
        LogWrite::of(&self.log, self.epoch, held.start.max(from)..held.end)
    }

    /// The claim of the log: its longest range, with samples of it; an empty one if there is no range, so the number of
    /// the epoch does not come again. A claim has one range: nothing else is referred to any more. Nothing is claimed
    /// of a log without room to go on; only a faulty peer can have made one.
    pub(crate) fn claim(&self) -> Option<LogClaim> {
        if self.epoch.max(self.highest) > MAX_CLAIMED {
            return None;
        }
        if let Some(claim) = self.released.as_ref().and_then(|released| released.claim.clone()) {
            return Some(LogClaim { highest: self.highest, ..claim });
        }
        let longest = self.written.iter().max_by_key(|range| range.end - range.start);
        let range = longest.or_else(|| (self.epoch > 0).then_some(self.highest..self.highest))?;
        let samples = SampleGrid::new(self.log.capacity()).claim(&self.log, &range, SAMPLES);
        let (start, end) = (range.start, range.end);
        Some(LogClaim { epoch: self.epoch, start, end, highest: self.highest, samples })
    }
}

/// The most samples of a claim.
const SAMPLES: u64 = 16;
