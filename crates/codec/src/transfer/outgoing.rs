//! The sending side of a transfer: unacknowledged items, acknowledgements of each lane, pending repairs.

use std::collections::BTreeMap;

use super::chunk_queue::ChunkQueue;
use super::{Item, RetransmitBuffer};
use crate::contract::PeerFault;
use crate::log::RangeSet;
use crate::wire::{Ack, Block, BlockBody, FlowId, Frame, LaneId, LaneTail, More, Range64, WireError};

/// Everything sent and not acknowledged.
#[derive(Default)]
pub(crate) struct Outgoing {
    pub(crate) buffer: RetransmitBuffer,
    pub(crate) chunks: ChunkQueue,
    /// Log ranges needed by the peer. Their blocks are looked up with the next repair, however often the peer asks until
    /// then.
    needed: RangeSet,
    /// The last single-number acknowledgement of each lane.
    acked: BTreeMap<LaneId, u64>,
    /// The end of the last block on each lane, for a peer with [continued blocks](More).
    tails: Option<BTreeMap<LaneId, LaneTail>>,
}

/// Needed ranges before their blocks are looked up at once.
const MOST_NEEDED: usize = 4096;

impl Outgoing {
    /// Starts over with a new instance of the peer.
    pub(crate) fn meet(&mut self, continues: bool) {
        *self = Self { tails: continues.then(BTreeMap::new), ..Self::default() };
    }

    /// Marks the items of a lost lane as to be sent again, and calls `each` for every one.
    pub(crate) fn lose_lane(&mut self, lane: LaneId, each: impl FnMut(&Item)) {
        self.acked.remove(&lane);
        self.tails.iter_mut().for_each(|tails| _ = tails.remove(&lane));
        self.buffer.lose_lane(lane, each);
        // Their blocks come again, without names.
        self.chunks.lose_lane(lane);
    }

    /// Returns the acknowledgement said by a distance from the lane's last one.
    pub(crate) fn ack_by(&mut self, lane: LaneId, distance: u64) -> Result<Ack, WireError> {
        let acked = self.acked.entry(lane).or_default();
        *acked = acked.checked_add(distance).ok_or(WireError::Invalid("acknowledgement"))?;
        Ok(Ack { next: *acked, ranges: Vec::new() })
    }

    /// Removes the acknowledged items and shows each to `each`; flows without any other go to `settled`.
    pub(crate) fn handle_ack(
        &mut self,
        ack: &Ack,
        settled: &mut Vec<FlowId>,
        each: impl FnMut(&Item),
    ) -> Result<(), PeerFault> {
        let last = ack.ranges.last().map_or(ack.next, |range| range.end);
        if last > self.buffer.next_seq() {
            return Err(PeerFault::AckOfUnsent(last));
        }
        self.buffer.acknowledge(ack, settled, each);
        Ok(())
    }

    /// Notes log ranges needed by the peer; returns the steps taken.
    pub(crate) fn handle_need(&mut self, ranges: &[Range64]) -> u64 {
        ranges.iter().for_each(|range| self.needed.insert(range.clone()));
        let looked_at = if self.needed.len() > MOST_NEEDED { self.look_up_needed() } else { 0 };
        ranges.len() as u64 + looked_at
    }

    /// Has the blocks of needed ranges sent again; returns the steps taken.
    pub(crate) fn look_up_needed(&mut self) -> u64 {
        if self.needed.is_empty() {
            return 0;
        }
        let ranges: Vec<Range64> = self.needed.iter().collect();
        self.needed.clear();
        self.buffer.request_ranges(&ranges) as u64
    }

    /// Whether repairs are pending.
    pub(crate) fn has_repairs(&self) -> bool {
        self.buffer.has_repairs() || self.chunks.has_any_lane() || !self.needed.is_empty()
    }

    /// Memory of the unacknowledged items.
    pub(crate) fn memory(&self) -> u64 {
        self.buffer.kept_bytes() + self.buffer.attached_bytes()
    }

    /// Appends an uncoded block, without the fields implied by its lane's last one.
    pub(crate) fn put_uncoded(&self, block: Block<'_>, lane: LaneId, out: &mut Vec<u8>) {
        let tail = self.tails.as_ref().and_then(|tails| tails.get(&lane));
        let after = tail.filter(|tail| (tail.flow, tail.end) == (block.flow, block.offset));
        match (after.and_then(|tail| block.seq.checked_sub(tail.seq)), &block.body) {
            (Some(after @ 1..), BlockBody::Uncoded(plain)) if !block.fin && !plain.is_empty() => {
                Frame::More(More { after, plain }).encode(out);
            }
            _ => Frame::Block(block).encode(out),
        }
    }

    /// Notes a lane's last block.
    pub(crate) fn note_tail(&mut self, lane: LaneId, tail: LaneTail) {
        self.tails.iter_mut().for_each(|tails| _ = tails.insert(lane, tail));
    }
}
