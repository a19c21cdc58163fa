//! Pending acknowledgements, told in few frames.

use crate::Now;
use crate::log::{Arrived, RangeSet};
use crate::wire::{Ack, Frame, MAX_RANGES, Range64};

/// Arrived numbers without acknowledgement.
#[derive(Default)]
pub(crate) struct PendingAcks {
    fresh: RangeSet,
    count: u32,
    /// The end of their wait.
    due: Option<Now>,
    waited_enough: bool,
    /// Whether all arrived numbers are to be said.
    resend_all: bool,
}

impl PendingAcks {
    /// Adds an arrived number, to be acknowledged by `due`.
    pub(crate) fn add(&mut self, seq: u64, due: Now) {
        self.fresh.insert(seq..seq + 1);
        self.count += 1;
        self.due = Some(self.due.map_or(due, |before| before.min(due)));
    }

    pub(crate) fn are_due(&self) -> bool {
        self.resend_all || self.waited_enough || self.count >= ACKS_AT_ONCE
    }

    /// The end of their wait, unless they are due.
    pub(crate) fn deadline(&self) -> Option<Now> {
        self.due.filter(|_| !self.are_due())
    }

    pub(crate) fn handle_timeout(&mut self, now: Now) {
        self.waited_enough |= self.due.is_some_and(|due| due <= now);
    }

    /// Has all arrived numbers said again.
    pub(crate) fn resend_all(&mut self) {
        self.resend_all = true;
    }

    /// Takes them if `next`, the first number that has not arrived, says them all.
    pub(crate) fn take_single(&mut self, next: u64, flush: bool) -> Option<u64> {
        let is_due = self.are_due() || flush && self.count > 0;
        if !is_due || self.resend_all {
            return None;
        }
        self.fresh.remove_below(next);
        self.fresh.is_empty().then(|| {
            *self = Self::default();
            next
        })
    }

    /// Appends them in as many frames as they take, if they are due or any are flushed.
    pub(crate) fn put(&mut self, arrived: &Arrived, flush: bool, out: &mut Vec<u8>) {
        if !(self.are_due() || flush && self.count > 0) {
            return;
        }
        let next = arrived.next();
        self.fresh.remove_below(next);
        let news = if self.resend_all { arrived.above() } else { &self.fresh };
        let ranges: Vec<Range64> = news.iter().collect();
        let (first, more) = ranges.split_at(ranges.len().min(MAX_RANGES));
        Frame::Ack(Ack { next, ranges: first.to_vec() }).encode(out);
        for ranges in more.chunks(MAX_RANGES) {
            Frame::Ack(Ack { next, ranges: ranges.to_vec() }).encode(out);
        }
        *self = Self::default();
    }
}

/// Acknowledgements are sent once this many wait, or after [`DELAY`], or with anything else.
const ACKS_AT_ONCE: u32 = 8;
pub(crate) const DELAY: Now = Now::from_millis(10);
/// The same for a few uncoded bytes: an application may answer them within that time, and nobody waits for more than their
/// memory.
pub(crate) const LONG_DELAY: Now = Now::from_millis(40);
/// The number of a few bytes.
pub(crate) const FEW: usize = 256;
