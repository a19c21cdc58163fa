//! Acknowledgements: what has come, verified and written, told in few frames.

use super::Receiver;
use crate::Now;
use crate::log::RangeSet;
use crate::wire::{Ack, Frame, MAX_RANGES, Range64};

/// What has come and was not acknowledged.
#[derive(Default)]
pub(crate) struct PendingAcks {
    pub(crate) fresh: RangeSet,
    pub(crate) count: u32,
    /// When they wait no longer.
    pub(crate) due: Option<Now>,
    pub(crate) waited_enough: bool,
    pub(crate) restate: bool,
}

impl PendingAcks {
    pub(crate) fn are_due(&self) -> bool {
        self.restate || self.waited_enough || self.count >= ACKS_AT_ONCE
    }
}

impl Receiver {
    /// Takes note of what is to be acknowledged; `waits` says for how long at most.
    pub(crate) fn acknowledge(&mut self, seq: u64, waits: Now, now: Now) {
        self.arrived.insert(seq);
        self.missing.remove(seq);
        self.acks.fresh.insert(seq..seq + 1);
        self.acks.count += 1;
        let due = now + waits;
        self.acks.due = Some(self.acks.due.map_or(due, |before| before.min(due)));
    }

    /// Takes the acknowledgements that wait, if one number says them all.
    pub(crate) fn take_acked(&mut self, flush: bool) -> Option<u64> {
        let next = self.arrived.next();
        let is_due = self.acks.are_due() || flush && self.acks.count > 0;
        if !is_due || self.acks.restate {
            return None;
        }
        self.acks.fresh.remove_below(next);
        self.acks.fresh.is_empty().then(|| {
            self.acks = PendingAcks::default();
            next
        })
    }

    /// Appends the acknowledgements that wait, in as many frames as they take.
    pub(crate) fn put_acks(&mut self, out: &mut Vec<u8>) {
        let next = self.arrived.next();
        self.acks.fresh.remove_below(next);
        let news = if self.acks.restate { self.arrived.above() } else { &self.acks.fresh };
        let ranges: Vec<Range64> = news.iter().collect();
        let (first, more) = ranges.split_at(ranges.len().min(MAX_RANGES));
        Frame::Ack(Ack { next, ranges: first.to_vec() }).encode(out);
        for ranges in more.chunks(MAX_RANGES) {
            Frame::Ack(Ack { next, ranges: ranges.to_vec() }).encode(out);
        }
        self.acks = PendingAcks::default();
    }
}

/// Acknowledgements are sent once this many wait, or after [`DELAY`], or with anything else.
const ACKS_AT_ONCE: u32 = 8;
pub(crate) const DELAY: Now = Now::from_millis(10);
/// The same for a few bytes that nothing was made of: an application may answer them within that time, and nobody waits for
/// more than the memory that they take.
pub(crate) const LONG_DELAY: Now = Now::from_millis(40);
/// How few those are.
pub(crate) const FEW: usize = 256;
