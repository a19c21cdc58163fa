//! Short blocks, which cross as they are.
//!
//! What a coded block says of itself, its place in the log and its digest for two, is longer than what coding saves of a few
//! bytes, and what so few would later stand for is no longer than what refers to them.

use super::Sender;
use crate::log::LogOffset;
use crate::wire::{Block, BlockBody, FlowId, Frame, LaneId, LaneTail, More};

impl Sender {
    /// Whether a block is too short to be coded. The flow may go on behind it with what it repeats.
    pub(crate) fn pass_short(&mut self, flow: FlowId, plain_len: usize) -> bool {
        if plain_len > SHORT {
            return false;
        }
        let behind = self.diagonals.remove(&flow).and_then(|LogOffset(at)| at.checked_add(plain_len as u64));
        if let Some(at) = behind.filter(|at| *at <= self.log.head()) {
            self.diagonals.insert(flow, LogOffset(at));
        }
        true
    }

    /// Appends an uncoded block, without what its lane's last one said already.
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

    /// Takes note of what a lane's last block was.
    pub(crate) fn note_tail(&mut self, lane: LaneId, tail: LaneTail) {
        self.tails.iter_mut().for_each(|tails| _ = tails.insert(lane, tail));
    }
}

/// The longest block that is not coded.
const SHORT: usize = 40;
