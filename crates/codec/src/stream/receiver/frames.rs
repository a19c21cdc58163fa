//! Frames of the sending half, and feedback.

use bytes::Bytes;

use super::Receiver;
use crate::Now;
use crate::contract::{Arrival, Delivery, PeerFault};
use crate::transfer::{Head, acks};
use crate::wire::{Block, BlockBody, Chunks, Digest, FlowId, Frame, LaneId, Message, Probe, SavingsCurve};

impl Receiver {
    /// Reads a block from a lane.
    pub(super) fn read_block(
        &mut self,
        block: Block<'_>,
        lane: LaneId,
        now: Now,
    ) -> Result<Arrival, PeerFault> {
        self.transfer.note_tail(&block, lane);
        let Block { flow, seq, resent, .. } = block;
        let end = Some(block.offset.saturating_add(block.plain_len as u64));
        self.handle_block(block, lane, now)?;
        Ok(Arrival::Item { flow, seq, is_resent: resent, end })
    }

    /// Takes a block from a lane.
    ///
    /// # Errors
    /// Any breach of the protocol; a block without its sources is no error, it is requested again.
    pub fn handle_block(&mut self, block: Block<'_>, lane: LaneId, now: Now) -> Result<(), PeerFault> {
        let Block { seq, flow, offset, plain_len, fin, resent, body } = block;
        self.transfer.check_seq(seq)?;
        self.now = now;
        let is_known =
            self.parked.contains(seq) || self.fetching.contains(seq) || self.transfer.refetches.contains(seq);
        if self.transfer.arrived.contains(seq) || (!resent && is_known) {
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
                self.handle_epoch(&body, now);
                head.epoch = body.epoch;
                head.start = body.start;
                head.remembered = body.remembered;
                head.keep = body.keep;
                head.digest = body.digest;
                self.handle_coded(head, &body, lane, now);
            }
        }
        self.fetch_queued(now);
        if self.gate.take_fault() {
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
        self.transfer.check_seq(seq)?;
        if self.transfer.arrived.contains(seq) {
            self.stats.duplicates += 1;
        } else {
            self.transfer.acknowledge(seq, acks::DELAY, now);
            self.deliveries.push_back(Delivery::Message { flow, message });
        }
        Ok(())
    }

    /// Takes what the log is worth to the sending half.
    pub fn handle_savings(&mut self, worth: &SavingsCurve) {
        self.log.handle_savings(worth, self.stats.plain);
        self.drop_given_up();
    }

    /// Takes chunks asked for.
    ///
    /// # Errors
    /// Chunks of a block that never came.
    pub fn handle_chunks(&mut self, chunks: Chunks<'_>, now: Now) -> Result<(), PeerFault> {
        self.transfer.check_seq(chunks.seq)?;
        self.take_chunks(&chunks, now);
        Ok(())
    }

    /// Takes the question whether chunks are in the store, answered by
    /// [`StoreRequest::Peek`](crate::contract::StoreRequest::Peek); of several unanswered ones the last one counts.
    pub fn handle_probe(&mut self, probe: Probe) {
        self.take_probe(probe);
    }

    /// Takes the acknowledgements waiting if one number says them all: everything below it has arrived. `flush` is as
    /// in [`Self::poll_frame`], saying them otherwise.
    pub fn poll_acked(&mut self, flush: bool) -> Option<u64> {
        self.transfer.take_acked(flush)
    }

    /// Appends feedback frames; `flush` sends acknowledgements that would otherwise wait for company. Returns whether there
    /// was something.
    pub fn poll_frame(&mut self, flush: bool, out: &mut Vec<u8>) -> bool {
        let before = out.len();
        if let Some(report) = self.log.poll_report() {
            Frame::LogHeld(report).encode(out);
        }
        if let Some(held) = self.store.poll_held(self.now) {
            Frame::StoreHeld(held).encode(out);
        }
        // Behind the report: it tells the outdated part of the store.
        if let Some(probed) = self.store.poll_probed() {
            Frame::Probed(probed).encode(out);
        }
        self.transfer.put_requests(out);
        while let Some(request) = self.fetching.poll_chunk_request(self.now) {
            Frame::ChunkRequest(request).encode(out);
        }
        self.transfer.put_acks(flush, out);
        out.len() > before
    }
}
