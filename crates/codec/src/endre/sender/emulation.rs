//! The sender's idea of the receiver's log: what is in it, and how to find it [EndRE §4].

use super::super::matcher::{Copy, MatchParams, MaxMatch, Search};
use crate::Plan;
use crate::cache::{Curve, Log, LogOffset};
use crate::contract::SavedLog;
use crate::digest::log_digest;
use crate::wire::{LogClaim, LogHeld, Range64};

/// One direction's log as the sending half knows it.
pub(super) struct Emulation {
    params: MatchParams,
    max_in_flight: Option<u64>,
    log: Log,
    max: MaxMatch,
    epoch: u64,
    /// First offset of the epoch that may be referred to.
    base: u64,
    head: u64,
    /// Ranges below the head that the receiver does not have.
    holes: Vec<Range64>,
    /// The bytes of log that this end has memory for.
    limit: u64,
    /// What the receiver said last of what it holds; a serial number of 0: nothing.
    held: LogHeld,
    curve: Curve,
    /// Whether the block that was last searched is to be indexed as a whole once it is in the log.
    reindex: bool,
}

impl Emulation {
    /// Starts with an empty log and its first epoch. `max_in_flight` is by default a quarter of the log.
    pub(super) fn new(capacity: u64, max_in_flight: Option<u64>, params: MatchParams) -> Self {
        Self {
            params,
            max_in_flight,
            log: Log::new(capacity as usize),
            max: MaxMatch::new(capacity, params),
            epoch: 1,
            base: 0,
            head: 0,
            holes: Vec::new(),
            limit: capacity,
            held: LogHeld::default(),
            curve: Curve::default(),
            reindex: false,
        }
    }

    /// Takes up a log that was found on disk; one of another capacity is left aside.
    pub(super) fn restore(&mut self, saved: SavedLog) {
        let ends = saved.ranges.iter().next().zip(saved.ranges.iter().next_back());
        let Some((first, last)) = ends.filter(|_| saved.log.capacity() == self.log.capacity()) else {
            return;
        };
        self.epoch = saved.epoch;
        (self.base, self.head) = (first.start, last.end);
        saved.ranges.missing(&(first.start..last.end), &mut self.holes);
        for range in saved.ranges.iter() {
            self.max.index(&saved.log, LogOffset(range.start)..LogOffset(range.end));
        }
        self.log = saved.log;
    }

    /// Starts over with another capacity; the epoch goes on.
    pub(super) fn resize(&mut self, capacity: u64) {
        let (epoch, limit) = (self.epoch, self.limit);
        *self = Self::new(capacity, self.max_in_flight, self.params);
        self.epoch = epoch;
        self.set_limit(limit);
    }

    /// Forgets every byte; the epoch that follows is to be a new one.
    pub(super) fn clear(&mut self) {
        self.log.clear();
        self.max.clear();
        self.base = self.head;
        self.holes.clear();
    }

    /// Sets how many bytes of log this end has memory for.
    pub(super) fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
        self.apply_limits();
    }

    /// Takes what the receiver says of what it holds; what is older than what it said before is passed over.
    pub(super) fn handle_held(&mut self, held: LogHeld) {
        if held.serial <= self.held.serial {
            return;
        }
        self.held = held;
        if held.epoch == self.epoch {
            self.base = self.base.max(held.oldest.min(self.head));
        }
        self.apply_limits();
    }

    /// A new instance of the receiver has said nothing yet.
    pub(super) fn forget_held(&mut self) {
        self.held = LogHeld::default();
        self.apply_limits();
    }

    fn apply_limits(&mut self) {
        let limit = self.limit();
        self.log.set_limit(limit);
        self.max.set_reach(limit);
    }

    /// The bytes of log in use: *W* of the [rules](crate::cache).
    pub(super) fn limit(&self) -> u64 {
        let told = if self.held.serial > 0 { self.held.limit } else { u64::MAX };
        self.limit.min(told).min(self.log.capacity())
    }

    /// What the log saves, by its size.
    pub(super) fn curve(&self) -> Curve {
        self.curve
    }

    pub(super) fn curve_mut(&mut self) -> &mut Curve {
        &mut self.curve
    }

    /// Starts an epoch: nothing that was remembered may be referred to any more.
    pub(super) fn start_epoch(&mut self, epoch: u64) {
        self.epoch = epoch;
        self.base = self.head;
        self.holes.clear();
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(super) fn capacity(&self) -> u64 {
        self.log.capacity()
    }

    pub(super) fn head(&self) -> u64 {
        self.head
    }

    /// Whether nothing was remembered in this epoch.
    pub(super) fn is_new(&self) -> bool {
        self.head == self.base
    }

    /// The bound on log bytes that are not acknowledged: what is set, or a quarter of the log. Of a log that is
    /// limited it is a quarter, or the share that it is of the whole log if that is more.
    pub(super) fn max_in_flight(&self) -> u64 {
        let (capacity, limit) = (self.log.capacity(), self.limit());
        let whole = self.max_in_flight.unwrap_or(capacity / 4).min(capacity);
        let share = u128::from(whole) * u128::from(limit) / u128::from(capacity.max(1));
        whole.min((limit / 4).max(share as u64))
    }

    /// Rule 3: the first offset that a block encoded at `from` may refer to.
    pub(super) fn floor(&self, from: u64) -> u64 {
        from.saturating_sub(self.limit().saturating_sub(self.max_in_flight())).max(self.base)
    }

    /// Replaces `copies` by the parts of a block that the log has, from `floor` on.
    pub(super) fn find(
        &mut self,
        plan: &Plan,
        block: &[u8],
        floor: u64,
        hint: Option<LogOffset>,
        copies: &mut Vec<Copy>,
    ) {
        let search = Search { block, at: LogOffset(self.head), floor: LogOffset(floor), hint };
        self.max.set_markers(plan.markers, plan.period as usize);
        self.max.find(&self.log, &search, copies);
        self.reindex = false;
        for copy in &*copies {
            self.curve.add(self.head.saturating_sub(copy.source.0), u64::from(copy.len));
        }
        if !self.holes.is_empty() {
            self.holes.retain(|hole| hole.end > floor);
            let (holes, found) = (&self.holes, copies.len());
            copies.retain(|copy| {
                holes.iter().all(|hole| copy.source_end().0 <= hole.start || copy.source.0 >= hole.end)
            });
            // What lay on a hole was not hashed, but is to be found the next time.
            self.reindex = copies.len() < found;
        }
    }

    /// Whether a copy's source will soon be overwritten, so that its block had better be remembered anew.
    pub(super) fn fades(&self, copy: &Copy) -> bool {
        self.max.fades(LogOffset(self.head), copy.source)
    }

    /// Remembers the block that was last searched, at the head; `copies` are those that were found.
    pub(super) fn remember(&mut self, block: &[u8], copies: &[Copy]) {
        let at = LogOffset(self.head);
        self.max.remember(&Search { block, at, floor: at, hint: None }, copies);
        self.log.write(at, block);
        if self.reindex {
            self.max.index(&self.log, at.range(block.len() as u64));
        }
        self.head += block.len() as u64;
    }

    /// Drops what would lead to a range that the two ends disagree about.
    pub(super) fn forget(&mut self, range: &Range64) {
        self.max.forget(LogOffset(range.start)..LogOffset(range.end));
    }

    /// Carries on with the log that the peer claims, if both have the same one; returns how many bytes of it.
    pub(super) fn resume(&mut self, claim: &LogClaim) -> Option<u64> {
        let own = self.floor(self.head)..self.head;
        let common = claim.start.max(own.start)..claim.end.min(own.end);
        if claim.epoch != self.epoch || common.is_empty() || !self.samples_match(claim, &common) {
            return None;
        }
        let head = self.head.max(claim.highest);
        self.base = common.start;
        // Whatever lies between the common part and the new head is not there, or not known, on one side.
        if common.end < head {
            self.holes.push(common.end..head);
            self.max.forget(LogOffset(common.end)..LogOffset(head));
        }
        self.head = head;
        Some(common.end - common.start)
    }

    fn samples_match(&self, claim: &LogClaim, common: &Range64) -> bool {
        let mut compared = 0;
        for sample in &claim.samples {
            let end = sample.start.saturating_add(u64::from(sample.len));
            if sample.start < common.start || end > common.end {
                continue;
            }
            if log_digest(&self.log, sample.start, sample.len as usize) != sample.digest {
                return false;
            }
            compared += 1;
        }
        compared > 0
    }

    /// Log bytes that can be referred to.
    pub(super) fn used(&self) -> u64 {
        self.head - self.floor(self.head).min(self.head)
    }

    /// Memory of the log, as far as it is filled, and its tables.
    pub(super) fn memory(&self) -> u64 {
        self.log.memory() + self.max.memory() as u64
    }
}
