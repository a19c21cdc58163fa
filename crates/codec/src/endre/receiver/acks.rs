//! Acknowledgements: what has come, verified and written, told in few frames.

use super::Receiver;
use crate::Now;
use crate::cache::RangeSet;
use crate::wire::{Ack, Frame, MAX_RANGES, Range64};

/// What has come and was not acknowledged.
#[derive(Default)]
pub(super) struct PendingAcks {
    pub(super) fresh: RangeSet,
    pub(super) count: u32,
    pub(super) since: Option<Now>,
    pub(super) waited_enough: bool,
    pub(super) restate: bool,
}

impl PendingAcks {
    pub(super) fn are_due(&self) -> bool {
        self.restate || self.waited_enough || self.count >= ACKS_AT_ONCE
    }
}

impl Receiver {
    pub(super) fn acknowledge(&mut self, seq: u64, now: Now) {
        self.arrived.insert(seq);
        self.missing.remove(seq);
        self.acks.fresh.insert(seq..seq + 1);
        self.acks.count += 1;
        self.acks.since.get_or_insert(now);
    }

    /// Appends the acknowledgements that wait, in as many frames as they take.
    pub(super) fn put_acks(&mut self, out: &mut Vec<u8>) {
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
pub(super) const DELAY: Now = Now::from_millis(10);
