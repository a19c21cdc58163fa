//! The receiving side of a transfer: arrived numbers, acknowledgements, requests to send again.

use std::collections::{BTreeMap, VecDeque};

use super::acks::PendingAcks;
use super::refetch::Refetches;
use super::{Head, MAX_UNACKED};
use crate::Now;
use crate::contract::PeerFault;
use crate::log::{Arrived, RangeSet};
use crate::wire::{
    Block, Frame, LaneId, LaneTail, MAX_RANGES, More, Range64, Refetch, RefetchReason, WireError,
};

/// Everything about sequence numbers and lanes at a receiving end.
pub(crate) struct Incoming {
    pub(crate) arrived: Arrived,
    pub(crate) acks: PendingAcks,
    /// Blocks requested again.
    pub(crate) refetches: Refetches,
    /// The last words of both halves on each lane.
    lanes: BTreeMap<LaneId, LaneState>,
    /// Whether the peer understands one number as an acknowledgement.
    continues: bool,
    /// Feedback frames to be sent.
    frames: VecDeque<Frame<'static>>,
    /// The time to wait for missing ranges and repairs.
    pub(crate) patience: Now,
}

/// The last words on a lane.
#[derive(Default)]
struct LaneState {
    /// The end of the last block.
    tail: Option<LaneTail>,
    /// The last acknowledgement by a single number.
    acked: u64,
}

const DEFAULT_PATIENCE: Now = Now::from_millis(200);
/// Frames for a lane before no more single blocks are requested again: some hundred kilobytes, if a peer sends wrong blocks
/// and takes nothing.
const MAX_QUEUED_FRAMES: usize = 4096;

impl Default for Incoming {
    fn default() -> Self {
        Self {
            arrived: Arrived::default(),
            acks: PendingAcks::default(),
            refetches: Refetches::default(),
            lanes: BTreeMap::new(),
            continues: false,
            frames: VecDeque::new(),
            patience: DEFAULT_PATIENCE,
        }
    }
}

impl Incoming {
    /// Starts over with a new instance of the peer.
    pub(crate) fn meet(&mut self, continues: bool) {
        *self = Self { continues, patience: self.patience, ..Self::default() };
    }

    pub(crate) fn lose_lane(&mut self, lane: LaneId) {
        self.lanes.remove(&lane);
    }

    pub(crate) fn check_seq(&self, seq: u64) -> Result<(), PeerFault> {
        let next = self.arrived.next();
        // Messages need no credit, hence twice the sender's bound.
        if seq >= next.saturating_add(2 * MAX_UNACKED) {
            Err(PeerFault::TooFarAhead { seq, next })
        } else {
            Ok(())
        }
    }

    /// Notes an arrived number, to be acknowledged within `waits`.
    pub(crate) fn acknowledge(&mut self, seq: u64, waits: Now, now: Now) {
        self.arrived.insert(seq);
        self.refetches.remove(seq);
        self.acks.add(seq, now + waits);
    }

    /// Returns the block going on from its lane's last one.
    pub(crate) fn continued<'a>(&self, more: More<'a>, lane: LaneId) -> Result<Block<'a>, WireError> {
        let tail = self.lanes.get(&lane).and_then(|lane| lane.tail);
        tail.ok_or(WireError::Invalid("block that goes on from none"))?.go_on(more)
    }

    /// Notes a lane's last block.
    pub(crate) fn note_tail(&mut self, block: &Block<'_>, lane: LaneId) {
        if let Some(tail) = LaneTail::of(block) {
            self.lanes.entry(lane).or_default().tail = Some(tail);
        }
    }

    /// Requests a block again, or has it requested later: if it was before, or if too many frames wait.
    pub(crate) fn refetch(&mut self, head: &Head, reason: RefetchReason, now: Now) {
        // A block that fails again waits for its turn: the peer decides how often it comes.
        if self.refetches.contains(head.seq) {
            return;
        }
        if self.frames.len() < MAX_QUEUED_FRAMES {
            self.refetches.insert(head, reason, self.patience, now);
            self.frames.push_back(Frame::Refetch(Refetch { reason, seqs: vec![head.seq] }));
        } else {
            self.refetches.insert_late(head, reason, now);
        }
    }

    /// Requests blocks that may still come as they were sent.
    pub(crate) fn refetch_unsure(&mut self, seqs: Vec<u64>) {
        self.frames.push_back(Frame::Refetch(Refetch { reason: RefetchReason::Missing, seqs }));
    }

    /// Requests ranges of the log.
    pub(crate) fn need(&mut self, ranges: &RangeSet) {
        let ranges: Vec<Range64> = ranges.iter().collect();
        self.frames.extend(ranges.chunks(MAX_RANGES).map(|ranges| Frame::Need(ranges.to_vec())));
    }

    /// Repeats requests for blocks.
    pub(crate) fn handle_timeout(&mut self, now: Now) {
        for (reason, seqs) in self.refetches.overdue(now, self.patience, MAX_RANGES) {
            self.frames.push_back(Frame::Refetch(Refetch { reason, seqs }));
        }
    }

    /// Whether requests wait for a lane.
    pub(crate) fn has_requests(&self) -> bool {
        !self.frames.is_empty()
    }

    /// Appends the requests.
    pub(crate) fn put_requests(&mut self, out: &mut Vec<u8>) {
        self.frames.drain(..).for_each(|frame| frame.encode(out));
    }

    /// Appends the pending acknowledgements as one number, if one says them all and the peer knows its base.
    pub(crate) fn put_acked(&mut self, lane: LaneId, flush: bool, out: &mut Vec<u8>) {
        if self.continues
            && let Some(next) = self.take_acked(flush)
        {
            let LaneState { acked, .. } = self.lanes.entry(lane).or_default();
            Frame::Acked(next - *acked).encode(out);
            *acked = next;
        }
    }

    /// Takes the pending acknowledgements if one number says them all.
    pub(crate) fn take_acked(&mut self, flush: bool) -> Option<u64> {
        self.acks.take_single(self.arrived.next(), flush)
    }

    /// Appends the pending acknowledgements, if they are due.
    pub(crate) fn put_acks(&mut self, flush: bool, out: &mut Vec<u8>) {
        self.acks.put(&self.arrived, flush, out);
    }

    /// Has everything said again that may have been lost with a lane.
    pub(crate) fn resend_control_state(&mut self) {
        self.acks.resend_all();
        self.frames.clear();
        self.refetches.resend_control_state();
    }
}
