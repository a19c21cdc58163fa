//! Frames of the sending half, and feedback.

use bytes::Bytes;

use super::acks;
use super::{MOST_FAILED_RESENDS, Receiver};
use crate::Now;
use crate::contract::{Arrival, Delivery, PeerFault};
use crate::transfer::Head;
use crate::wire::{
    Block, BlockBody, Chunks, Digest, FlowId, Frame, LaneId, LaneTail, LogHeld, LogWorth, Message, Probe,
    WireError,
};

/// What was said last on a lane.
#[derive(Default)]
pub(crate) struct LaneState {
    /// Where the last block ended.
    tail: Option<LaneTail>,
    /// What was acknowledged by a single number.
    acked: u64,
}

impl Receiver {
    /// Takes a frame from a lane.
    pub(crate) fn take_frame(
        &mut self,
        kind: u8,
        body: &[u8],
        lane: LaneId,
        now: Now,
    ) -> Result<Option<Arrival>, PeerFault> {
        match Frame::decode(kind, body)? {
            Frame::Block(block) => self.take_block(block, lane, now).map(Some),
            Frame::More(more) => {
                let tail = self.lanes.get(&lane).and_then(|lane| lane.tail);
                let tail = tail.ok_or(WireError::Invalid("block that goes on from none"))?;
                self.take_block(tail.go_on(more)?, lane, now).map(Some)
            }
            Frame::Message { seq, flow, message } => {
                self.handle_message(seq, flow, message, now)?;
                Ok(Some(Arrival::Item { flow, seq, is_resent: false, end: None }))
            }
            Frame::LogWorth(worth) => {
                self.handle_worth(&worth);
                Ok(None)
            }
            Frame::Chunks(chunks) => {
                let flow = self.fetching.flow_of(chunks.seq);
                self.handle_chunks(chunks, now)?;
                Ok(flow.map(|flow| Arrival::Chunks { flow }))
            }
            Frame::Probe(probe) => {
                self.handle_probe(probe);
                Ok(None)
            }
            _ => Err(WireError::UnknownType(kind).into()),
        }
    }

    fn take_block(&mut self, block: Block<'_>, lane: LaneId, now: Now) -> Result<Arrival, PeerFault> {
        if let Some(tail) = LaneTail::of(&block) {
            self.lanes.entry(lane).or_default().tail = Some(tail);
        }
        let Block { flow, seq, resent, .. } = block;
        let end = Some(block.offset.saturating_add(block.plain_len as u64));
        self.handle_block(block, lane, now)?;
        Ok(Arrival::Item { flow, seq, is_resent: resent, end })
    }

    /// Appends feedback for a lane, the acknowledgements as one number where that says them and the peer knows what it
    /// counts from.
    pub(crate) fn put_feedback(&mut self, lane: LaneId, flush: bool, out: &mut Vec<u8>) -> bool {
        let before = out.len();
        if self.continues
            && let Some(next) = self.poll_acked(flush)
        {
            let LaneState { acked, .. } = self.lanes.entry(lane).or_default();
            Frame::Acked(next - *acked).encode(out);
            *acked = next;
        }
        self.poll_frame(flush, out);
        out.len() > before
    }

    /// Takes a block from a lane.
    ///
    /// # Errors
    /// Whatever the protocol forbids; a block that cannot be rebuilt is no error, it is asked for again.
    pub fn handle_block(&mut self, block: Block<'_>, lane: LaneId, now: Now) -> Result<(), PeerFault> {
        let Block { seq, flow, offset, plain_len, fin, resent, body } = block;
        self.check_seq(seq)?;
        self.now = now;
        let is_known = self.parked.contains(seq) || self.fetching.contains(seq) || self.missing.contains(seq);
        if self.arrived.contains(seq) || (!resent && is_known) {
            self.handle_overtaken(seq, &body, lane);
            return Ok(());
        }
        self.parked.take(seq);
        self.fetching.take(seq);
        let mut head = Head {
            seq,
            flow,
            offset,
            plain_len,
            fin,
            resent,
            epoch: 0,
            start: 0,
            remembered: false,
            keep: false,
            digest: Digest::Fast(0),
        };
        match body {
            BlockBody::Uncoded(plain) => {
                let waits = if fin || plain_len > acks::FEW { acks::DELAY } else { acks::LONG_DELAY };
                self.deliver(head, Bytes::copy_from_slice(plain), waits, now);
            }
            BlockBody::Coded(body) => {
                self.take_epoch(&body, now);
                head.epoch = body.epoch;
                head.start = body.start;
                head.remembered = body.remembered;
                head.keep = body.keep;
                head.digest = body.digest;
                self.handle_coded(head, &body, lane, now);
            }
        }
        self.fetch_queued(now);
        if self.failed_resends > MOST_FAILED_RESENDS {
            self.failed_resends = 0;
            return Err(PeerFault::NeverRight { seq });
        }
        Ok(())
    }

    /// Takes a sequenced message.
    ///
    /// # Errors
    /// A sequence number out of bounds.
    pub fn handle_message(
        &mut self,
        seq: u64,
        flow: FlowId,
        message: Message,
        now: Now,
    ) -> Result<(), PeerFault> {
        self.check_seq(seq)?;
        if self.arrived.contains(seq) {
            self.stats.duplicates += 1;
        } else {
            self.acknowledge(seq, acks::DELAY, now);
            self.deliveries.push_back(Delivery::Message { flow, message });
        }
        Ok(())
    }

    /// Takes what the log is worth to the sending half.
    pub fn handle_worth(&mut self, worth: &LogWorth) {
        self.take_worth(worth);
    }

    /// Takes chunks that were asked for.
    ///
    /// # Errors
    /// Chunks of a block that never came.
    pub fn handle_chunks(&mut self, chunks: Chunks<'_>, now: Now) -> Result<(), PeerFault> {
        self.check_seq(chunks.seq)?;
        self.take_chunks(&chunks, now);
        Ok(())
    }

    /// Takes the question whether chunks are in the store, which [`StoreRequest::Peek`](crate::contract::StoreRequest::Peek)
    /// finds out; of several that are not answered the last one counts.
    pub fn handle_probe(&mut self, probe: Probe) {
        self.take_probe(probe);
    }

    /// Takes the acknowledgements that wait if one number says them all: everything below it has arrived. `flush` is as in
    /// [`Self::poll_frame`], which says them otherwise.
    pub fn poll_acked(&mut self, flush: bool) -> Option<u64> {
        self.take_acked(flush)
    }

    /// Appends feedback frames; `flush` sends acknowledgements that would otherwise wait for company. Returns whether there
    /// was something.
    pub fn poll_frame(&mut self, flush: bool, out: &mut Vec<u8>) -> bool {
        let before = out.len();
        if std::mem::take(&mut self.held.due) {
            let (serial, limit) = (self.held.serial, self.limit());
            Frame::LogHeld(LogHeld { serial, epoch: self.epoch, oldest: self.held.base, limit }).encode(out);
        }
        if let Some(held) = self.store.poll_held(self.now) {
            Frame::StoreHeld(held).encode(out);
        }
        // Behind that, which says what of the store is out of date.
        if let Some(probed) = self.store.poll_probed() {
            Frame::Probed(probed).encode(out);
        }
        while let Some(frame) = self.frames.pop_front() {
            frame.encode(out);
        }
        while let Some(request) = self.fetching.poll_chunk_request(self.now) {
            Frame::ChunkRequest(request).encode(out);
        }
        if self.acks.are_due() || (flush && self.acks.count > 0) {
            self.put_acks(out);
        }
        out.len() > before
    }
}
