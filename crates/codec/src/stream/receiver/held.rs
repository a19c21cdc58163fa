//! How much of the log is held: limits of both ends, memory given back and taken again, what is claimed of it.

use super::Receiver;
use crate::Now;
use crate::contract::{LogWrite, SavedLog};
use crate::log::samples::SampleGrid;
use crate::log::{Curve, Log, RangeSet};
use crate::transfer::MAX_UNACKED;
use crate::wire::{LogClaim, LogWorth, MAX_BLOCK, MAX_CLAIMED};

/// What was held of the log when its memory was given back.
pub(crate) struct Released {
    pub(crate) ranges: RangeSet,
    pub(crate) claim: Option<LogClaim>,
}

/// How much of the log is held.
pub(crate) struct Held {
    /// Nothing below is held: it was given up.
    pub(crate) base: u64,
    /// The bytes that this end has memory for.
    pub(crate) limit: u64,
    /// What the sending half has memory for.
    pub(crate) wished: u64,
    /// Of its last word on that.
    pub(crate) worth_serial: u64,
    pub(crate) curve: Curve,
    /// Of our last word on it; 0 while everything is held that the capacity allows.
    pub(crate) serial: u64,
    pub(crate) due: bool,
}

impl Held {
    pub(crate) fn new(capacity: u64) -> Self {
        let curve = Curve::default();
        Self { base: 0, limit: capacity, wished: u64::MAX, worth_serial: 0, curve, serial: 0, due: false }
    }

    pub(crate) fn tell(&mut self) {
        self.serial += 1;
        self.due = true;
    }
}

impl Receiver {
    /// Gives up what lies below the limit, which is the smaller one of both ends.
    pub(crate) fn apply_limit(&mut self) {
        let limit = self.limit();
        self.log.set_limit(limit);
        self.raise_base(self.highest.saturating_sub(limit));
    }

    pub(crate) fn limit(&self) -> u64 {
        self.held.limit.min(self.held.wished).min(self.log.capacity())
    }

    /// Gives up what lies below an offset, and the blocks that wait and copy something there.
    pub(crate) fn raise_base(&mut self, base: u64) {
        let rises = base > self.held.base;
        self.held.base = self.held.base.max(base);
        self.written.remove_below(self.held.base);
        if rises {
            for parked in self.parked.take_copying_below(base) {
                self.go_on(parked, self.now);
            }
        }
    }

    /// Goes on with another capacity, and with what of the log has room in it: that may be claimed already.
    pub(crate) fn resize(&mut self, capacity: u64) {
        let before = std::mem::replace(&mut self.log, Log::new(capacity as usize));
        if self.released.take().is_some() {
            self.raise_base(self.highest);
        }
        self.apply_limit();
        before.copy_ranges(&self.written, &mut self.log);
        self.held.tell();
    }

    /// Gives up what a late block lacks ahead of which all have arrived: offsets are given in the order of blocks, so none
    /// that is under way brings it, and the sending half takes it for held until it hears otherwise.
    pub(crate) fn give_up_what_cannot_come(&mut self, now: Now) {
        if self.released.is_some() {
            return;
        }
        let Some(parked) = self.parked.take_late(self.arrived.next(), now) else { return };
        let lacked = parked.copies.iter().filter_map(|copy| self.written.last_missing(&copy.range()));
        self.stats.steps += parked.copies.len() as u64;
        if let Some(last) = lacked.max() {
            self.raise_base(last + 1);
            self.held.tell();
        }
        self.go_on(parked, now);
    }

    /// How many ranges are remembered at most: four times what a full log needs, if two for each largest block do, and
    /// never so few that an honest peer meets it. Between two ranges lies a block that has not come; not more than
    /// [`MAX_UNACKED`] are under way, and what came before a restart leaves few gaps.
    fn most_ranges(&self) -> usize {
        #[cfg(test)]
        if let Some(few) = self.few_ranges {
            return few;
        }
        let needed = self.log.capacity().div_ceil(MAX_BLOCK as u64).saturating_mul(2);
        usize::try_from(needed.saturating_mul(4).max(MAX_UNACKED)).unwrap_or(usize::MAX)
    }

    /// Gives up the oldest ranges that are too many, and tells of it.
    pub(crate) fn bound_ranges(&mut self) {
        while self.written.len() > self.most_ranges() {
            let end = self.written.iter().next().map_or(self.highest, |oldest| oldest.end);
            self.raise_base(end);
            self.held.tell();
        }
    }

    /// Takes what the log is worth to the sending half, and what that has memory for.
    pub(crate) fn take_worth(&mut self, worth: &LogWorth) {
        if worth.serial <= self.held.worth_serial {
            return;
        }
        let before = self.limit();
        self.held.worth_serial = worth.serial;
        self.held.wished = worth.limit;
        self.held.curve = Curve::from_values(&worth.curve);
        // Nothing that a peer claims to save can be more than what it sent.
        self.held.curve.cap(self.stats.plain);
        if self.limit() != before {
            self.apply_limit();
            self.held.tell();
        }
    }

    /// Gives the log's memory back if no block waits; returns whether none does.
    pub(crate) fn give_back(&mut self) -> bool {
        let quiet = self.parked.is_empty() && self.missing.is_empty() && self.fetching.is_empty();
        if quiet && self.released.is_none() {
            let claim = self.claim_held();
            self.released = Some(Released { ranges: std::mem::take(&mut self.written), claim });
            self.log.clear();
        }
        quiet
    }

    /// Takes back what was found again of a log that was given back, and tells of what was not.
    pub(crate) fn take_back(&mut self, log: Option<SavedLog>, now: Now) {
        self.now = now;
        let Some(Released { ranges, .. }) = self.released.take() else { return };
        // One that goes further than ours is of an earlier log whose epoch had the same number: what is written behind ours
        // could be out of its reach.
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
                // What came since is only in memory, or about to be written.
                self.log.copy_ranges(&self.written, &mut found.log);
                self.log = found.log;
                // What else lies there is of an earlier log whose epoch had the same number.
                let (mut lost, mut there) = (RangeSet::default(), Vec::new());
                gone.iter().for_each(|range| lost.insert(range.clone()));
                ranges.iter().for_each(|range| lost.missing(&range, &mut there));
                there.into_iter().for_each(|range| self.written.insert(range));
            }
        }
        self.apply_limit();
        self.bound_ranges();
        // Gone from the middle means gone from there down: the sending half is told of one offset.
        if let Some(last) = gone.iter().map(|range| range.end).max().filter(|end| *end > self.held.base) {
            self.raise_base(last);
            self.held.tell();
        }
        self.parked.handle_written(&(0..u64::MAX));
        self.wake_parked(now);
    }

    /// The first bytes that are held from an offset on, at most a block of them.
    pub(crate) fn piece_held(&self, from: u64) -> Option<LogWrite> {
        let held = self.written.from(from).filter(|_| self.released.is_none())?;
        LogWrite::of(&self.log, self.epoch, held.start.max(from)..held.end)
    }

    /// What is claimed of the log: the longest range that is there, with samples of it; an empty one if nothing is, so
    /// that the number of the epoch does not come again. A claim has one range: what else is there is not referred to any
    /// more. Nothing is claimed of a log that leaves no room to go on, which only a faulty peer can have made.
    pub(crate) fn claim_held(&self) -> Option<LogClaim> {
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
