//! The log of a receiving half: its bytes, its epoch, and the part of it held by this end.

mod claims;
mod epochs;

use std::collections::VecDeque;

use self::claims::Released;
use self::epochs::Opening;
use super::matcher::Copy;
use crate::contract::{LogWrite, SavedLog};
use crate::log::{Curve, Log, LogOffset, RangeSet};
use crate::transfer::MAX_UNACKED;
use crate::verify::Verified;
use crate::wire::{LogHeld, MAX_BLOCK, Range64, SavingsCurve};

/// The log of one direction at its receiving end.
pub(crate) struct LogDecoder {
    log: Log,
    epoch: u64,
    opening: Opening,
    /// The peer's bound on log bytes without acknowledgement.
    max_in_flight: u64,
    /// At most [`Self::most_ranges`] ranges.
    written: RangeSet,
    highest: u64,
    /// Nothing below is held: it was given up.
    base: u64,
    /// The bytes this end has memory for.
    limit: u64,
    peer: PeerSavings,
    report: HeldReport,
    /// Set while the log's memory is given back.
    released: Option<Released>,
    persist: bool,
    writes: VecDeque<LogWrite>,
    /// Copies compared with the written ranges.
    pub(crate) steps: u64,
    /// In place of [`Self::most_ranges`].
    #[cfg(test)]
    pub(crate) few_ranges: Option<usize>,
}

/// The sending half's last report of the log's savings.
struct PeerSavings {
    serial: u64,
    /// The bytes it has memory for.
    limit: u64,
    curve: Curve,
}

/// The report of the part held by this end.
#[derive(Default)]
struct HeldReport {
    /// Of the last report; 0 while everything is held the capacity allows.
    serial: u64,
    due: bool,
}

/// The outcome of a look for a block's sources.
pub(crate) enum Sources {
    Present,
    /// The last byte that has not arrived.
    Waiting(u64),
    /// Of an epoch that is over, or not begun.
    Gone,
    /// Within the log's capacity, but given up here before the sender heard of it.
    GivenUp,
    /// Below the window of the log: the sender broke rule 3.
    Overwritten,
}

impl LogDecoder {
    /// Starts with an empty log of a capacity; `max_in_flight` is the peer's.
    pub(crate) fn new(capacity: u64, max_in_flight: u64, persist: bool) -> Self {
        Self {
            log: Log::new(capacity as usize),
            epoch: 0,
            opening: Opening::new(max_in_flight),
            max_in_flight,
            written: RangeSet::default(),
            highest: 0,
            base: 0,
            limit: capacity,
            peer: PeerSavings { serial: 0, limit: u64::MAX, curve: Curve::default() },
            report: HeldReport::default(),
            released: None,
            persist,
            writes: VecDeque::new(),
            steps: 0,
            #[cfg(test)]
            few_ranges: None,
        }
    }

    /// Takes up a log found on disk, as much of it as there is room for.
    pub(crate) fn restore(&mut self, saved: SavedLog) {
        let saved = saved.fit(self.log.capacity());
        self.epoch = saved.epoch;
        self.highest = saved.ranges.iter().next_back().map_or(0, |range| range.end);
        self.written = saved.ranges;
        self.log = saved.log;
    }

    pub(crate) fn log(&self) -> &Log {
        &self.log
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The lowest offset held.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    pub(crate) fn written(&self) -> &RangeSet {
        &self.written
    }

    pub(crate) fn is_released(&self) -> bool {
        self.released.is_some()
    }

    /// The log's savings by its size, as reported by the peer.
    pub(crate) fn curve(&self) -> Curve {
        self.peer.curve
    }

    /// Looks for the sources of copies.
    pub(crate) fn sources(&mut self, epoch: u64, copies: &[Copy]) -> Sources {
        let floor = self.highest.saturating_sub(self.log.capacity());
        // Nearly always all is there that lies between them: one look-up instead of one for each.
        let start = copies.iter().map(|copy| copy.source.0).min().unwrap_or_default();
        let end = copies.iter().map(|copy| copy.source_end().0).max().unwrap_or_default();
        let is_held = start >= floor.max(self.base);
        if epoch == self.epoch && is_held && self.written.contains(&(start..end)) {
            return Sources::Present;
        }
        self.steps += copies.len() as u64;
        let mut lacks = None;
        for copy in copies {
            let range = copy.range();
            if epoch != self.epoch {
                return Sources::Gone;
            }
            if range.start < floor {
                return Sources::Overwritten;
            }
            if range.start < self.base {
                return Sources::GivenUp;
            }
            lacks = lacks.max(self.written.last_missing(&range));
        }
        lacks.map_or(Sources::Present, Sources::Waiting)
    }

    /// The last byte that copies lack.
    pub(crate) fn last_missing(&mut self, copies: &[Copy]) -> Option<u64> {
        self.steps += copies.len() as u64;
        copies.iter().filter_map(|copy| self.written.last_missing(&copy.range())).max()
    }

    /// Writes a verified block at its place; returns the range, if it has one in the log as it is.
    pub(crate) fn remember(&mut self, epoch: u64, start: u64, block: &Verified) -> Option<Range64> {
        let plain = block.plain();
        // A start further back than anything in flight can only be a stray duplicate.
        if epoch != self.epoch || start < self.highest.saturating_sub(self.max_in_flight) {
            return None;
        }
        let end = start + plain.len() as u64;
        if end <= self.base {
            return None;
        }
        self.log.write(LogOffset(start), plain);
        self.written.insert(start..end);
        self.highest = self.highest.max(end);
        self.raise_base(self.highest.saturating_sub(self.limit()));
        self.bound_ranges();
        if self.persist {
            self.writes.push_back(LogWrite { epoch, start, plain: plain.clone() });
        }
        Some(start..end)
    }

    /// Sets the bytes this end has memory for.
    pub(crate) fn set_limit(&mut self, limit: u64) {
        let before = self.limit();
        self.limit = limit;
        if self.limit() != before {
            self.apply_limit();
            self.report();
        }
    }

    /// Gives up the part below the limit: the smaller one of both ends.
    fn apply_limit(&mut self) {
        let limit = self.limit();
        self.log.set_limit(limit);
        self.raise_base(self.highest.saturating_sub(limit));
    }

    /// The bytes held at most.
    pub(crate) fn limit(&self) -> u64 {
        self.limit.min(self.peer.limit).min(self.log.capacity())
    }

    /// Gives up the part below an offset.
    fn raise_base(&mut self, base: u64) {
        self.base = self.base.max(base);
        self.written.remove_below(self.base);
    }

    /// Gives up the part below an offset, and reports it.
    pub(crate) fn give_up_below(&mut self, base: u64) {
        self.raise_base(base);
        self.report();
    }

    /// Goes on with another capacity, and with the part of the log with room in it: that may be claimed already.
    fn resize(&mut self, capacity: u64) {
        let before = std::mem::replace(&mut self.log, Log::new(capacity as usize));
        if self.released.take().is_some() {
            self.raise_base(self.highest);
        }
        self.apply_limit();
        before.copy_ranges(&self.written, &mut self.log);
        self.report();
    }

    /// The ranges remembered at most: four times the need of a full log, if two for each largest block do, and never so
    /// few an honest peer meets the bound. Between two ranges lies a block under way. There are at most
    /// [`MAX_UNACKED`], and an earlier process leaves few gaps.
    fn most_ranges(&self) -> usize {
        #[cfg(test)]
        if let Some(few) = self.few_ranges {
            return few;
        }
        let needed = self.log.capacity().div_ceil(MAX_BLOCK as u64).saturating_mul(2);
        usize::try_from(needed.saturating_mul(4).max(MAX_UNACKED)).unwrap_or(usize::MAX)
    }

    /// Gives up the oldest ranges that are too many, and reports it.
    fn bound_ranges(&mut self) {
        while self.written.len() > self.most_ranges() {
            let end = self.written.iter().next().map_or(self.highest, |oldest| oldest.end);
            self.give_up_below(end);
        }
    }

    /// Takes the sending half's report of the log's savings, and its limit; `plain`: it sent no more than that.
    pub(crate) fn handle_savings(&mut self, savings: &SavingsCurve, plain: u64) {
        if savings.serial <= self.peer.serial {
            return;
        }
        let before = self.limit();
        let mut curve = Curve::from_values(&savings.curve);
        // No peer saves more than it sent.
        curve.cap(plain);
        self.peer = PeerSavings { serial: savings.serial, limit: savings.limit, curve };
        if self.limit() != before {
            self.apply_limit();
            self.report();
        }
    }

    /// Has the held part reported with the next control frames.
    pub(crate) fn report(&mut self) {
        self.report.serial += 1;
        self.report.due = true;
    }

    /// Has the last report sent again, if there was any.
    pub(crate) fn resend_report(&mut self) {
        if self.report.serial > 0 {
            self.report();
        }
    }

    pub(crate) fn is_report_due(&self) -> bool {
        self.report.due
    }

    /// Takes the report to be sent, if one is due.
    pub(crate) fn poll_report(&mut self) -> Option<LogHeld> {
        std::mem::take(&mut self.report.due).then(|| LogHeld {
            serial: self.report.serial,
            epoch: self.epoch,
            oldest: self.base,
            limit: self.limit(),
        })
    }

    /// Takes the next piece of log for the disk.
    pub(crate) fn poll_write(&mut self) -> Option<LogWrite> {
        self.writes.pop_front()
    }

    /// Forgets everything remembered.
    pub(crate) fn clear(&mut self) {
        self.log.clear();
        self.released = None;
        self.raise_base(self.highest);
        self.report();
    }

    /// Changes a byte behind the cache's back.
    #[cfg(test)]
    pub(crate) fn damage(&mut self, offset: u64) {
        let mut byte = Vec::new();
        self.log.copy_to(LogOffset(offset), 1, &mut byte);
        self.log.write(LogOffset(offset), &[!byte[0]]);
    }
}
