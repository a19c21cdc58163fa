//! Blocks sent again, and mismatches.

use std::collections::BTreeSet;

use super::Sender;
use crate::Now;
use crate::contract::{PeerFault, SendEvent};
use crate::endre::suspects::SOURCES_TO_FORGET;
use crate::endre::tokens;
use crate::entropy::Mode;
use crate::log::LogOffset;
use crate::transfer::{Content, Item, Repair};
use crate::wanax::naming::literals;
use crate::wire::{
    Block, BlockBody, Body, ChunkReason, ChunkRequest, Chunks, FlowId, Frame, LaneId, LaneTail, Refetch,
    RefetchReason, WireError,
};

impl Sender {
    /// Has blocks sent again. Those rebuilt wrongly cast doubt on their references: ranges of the log are not referred to
    /// again, and a new epoch begins once there are more than a few, of one frame or of many.
    pub(super) fn handle_refetch(&mut self, refetch: &Refetch, now: Now) {
        let buffer = &mut self.transfer.buffer;
        let mut mistaken = Vec::new();
        for &seq in &refetch.seqs {
            self.stats.steps += 1;
            let item = match refetch.reason {
                RefetchReason::Missing => buffer.request_repair(seq),
                RefetchReason::Mismatch => buffer.request_mistaken(seq),
            };
            let Some(item) = item else { continue };
            self.entropy.restart(item.slot);
            mistaken.extend((refetch.reason == RefetchReason::Mismatch).then_some(seq));
        }
        mistaken.into_iter().for_each(|seq| self.handle_mistaken(seq, now));
    }

    fn handle_mistaken(&mut self, seq: u64, now: Now) {
        let Some(item) = self.transfer.buffer.item(seq) else { return };
        self.stats.steps += (item.names.len() + item.sources.len()) as u64;
        self.stats.mismatches += 1;
        self.events.push_back(SendEvent::Mismatch(item.flow));
        self.log.handle_mistaken(item.flow);
        let is_of_epoch = item.epoch == self.log.remote.epoch();
        let mut counts = true;
        let sources = item.sources.get(..SOURCES_TO_FORGET + 1).unwrap_or(&item.sources).to_vec();
        if let Some(naming) = &mut self.naming {
            naming.forget(item.names.iter());
            if item.names.iter().any(|entry| entry.name.is_short()) {
                naming.distrust_tags(now);
                // The tag or the log: if it was the log, the next one, without tags, shows it.
                counts = false;
                // All named chunks cross with it, and are put, so the store has the right chunk by that tag.
                let (all, keep) = (0..item.names.len() as u32, naming.is_put());
                self.transfer.buffer.note_absent(seq, &all.collect::<Vec<u32>>(), keep);
            }
        }
        // References of an earlier epoch are forgotten with it.
        if is_of_epoch
            && (counts || !sources.is_empty())
            && let Some(start) = self.log.suspect(&sources, counts, now)
        {
            self.note_start(start);
        }
    }

    /// Notes the chunks requested by the receiving half; an acknowledged block is passed over.
    pub(super) fn handle_request(&mut self, request: &ChunkRequest) -> Result<(), PeerFault> {
        let buffer = &mut self.transfer.buffer;
        if request.seq >= buffer.next_seq() {
            return Err(PeerFault::AckOfUnsent(request.seq));
        }
        let Some(item) = buffer.item(request.seq) else { return Ok(()) };
        let entry = |&index: &u32| item.names.get(index as usize);
        if !request.indexes.iter().all(|index| entry(index).is_some()) {
            return Err(WireError::Invalid("index of a chunk").into());
        }
        let is_absent = request.reason == ChunkReason::Absent;
        // A chunk that crosses already may be said later not to be there.
        let news: Vec<u32> =
            request.indexes.iter().copied().filter(|&index| !is_absent || !item.crosses(index)).collect();
        let lane = item.lane.filter(|_| is_absent);
        self.stats.steps += request.indexes.len() as u64;
        if is_absent {
            self.stats.absent += request.indexes.len() as u64;
            if let Some(naming) = &mut self.naming {
                naming.forget(request.indexes.iter().filter_map(entry));
                let keep = naming.is_put();
                naming.doubt(buffer.note_absent(request.seq, &request.indexes, keep));
            }
        } else {
            buffer.note_crossed(request.seq, &request.indexes);
        }
        // Blocks for a lane with a full socket may be acknowledged meanwhile.
        self.transfer.chunks.insert(lane, request.seq, news, |seq| buffer.is_unacked(seq));
        Ok(())
    }

    /// Appends the pending chunks of one block, for a lane or for any; returns whether there were any.
    pub(super) fn put_chunks(&mut self, lane: Option<LaneId>, out: &mut Vec<u8>) -> bool {
        while let Some((seq, indexes)) = self.transfer.chunks.pop(lane) {
            self.stats.steps += u64::from(lane.is_some());
            if self.send_chunks(seq, indexes, out) {
                return true;
            }
        }
        false
    }

    /// Appends pending chunks of one block, at most `most` bytes of them, or one if that is longer; the others wait on.
    /// Returns whether there were any.
    pub(super) fn put_chunks_of(
        &mut self,
        seq: u64,
        lane: Option<LaneId>,
        most: usize,
        out: &mut Vec<u8>,
    ) -> bool {
        let Some(mut indexes) = self.transfer.chunks.take(lane, seq) else { return false };
        let Some(item) = self.transfer.buffer.item(seq) else { return false };
        let mut bytes = 0;
        let beyond = indexes.iter().copied().find(|&index| {
            let before = bytes;
            bytes += item.names.get(index as usize).map_or(0, |entry| entry.len as usize);
            before > 0 && bytes > most
        });
        if let Some(index) = beyond {
            let rest = indexes.split_off(&index);
            self.transfer.chunks.insert(lane, seq, rest, |_| true);
        }
        self.send_chunks(seq, indexes, out)
    }

    fn send_chunks(&mut self, seq: u64, indexes: BTreeSet<u32>, out: &mut Vec<u8>) -> bool {
        let item = self.transfer.buffer.item(seq);
        let Some(Item { flow, names, content: Content::Block { plain, .. }, .. }) = item else {
            return false;
        };
        let (flow, before) = (*flow, out.len());
        let mut bytes = Vec::new();
        let chunks = indexes.iter().filter_map(|&index| plain.get(names.get(index as usize)?.range()));
        chunks.for_each(|chunk| bytes.extend_from_slice(chunk));
        self.stats.chunks_sent += indexes.len() as u64;
        self.stats.chunk_bytes_sent += bytes.len() as u64;
        let compressed = &mut self.scratch.compressed;
        let entropy = self.entropy.compress_alone(&bytes, compressed);
        let bytes = if entropy.is_some() { compressed } else { &bytes };
        Frame::Chunks(Chunks { seq, indexes: indexes.into_iter().collect(), entropy, bytes }).encode(out);
        self.note_repaired(flow, out.len() - before);
        true
    }

    /// Appends the oldest of a flow's items from lost lanes; returns whether there was one.
    pub(super) fn put_lost(&mut self, flow: FlowId, lane: LaneId, out: &mut Vec<u8>) -> bool {
        let Some((seq, item)) = self.transfer.buffer.take_lost(flow, lane) else { return false };
        let item = item.clone();
        if !self.send_once_more(seq, &item, out) {
            self.resend(seq, &item, out);
        } else if let Content::Block { offset, plain, .. } = &item.content {
            let end = offset.saturating_add(plain.len() as u64);
            self.transfer.note_tail(lane, LaneTail { flow, seq, end });
        }
        true
    }

    /// Appends a requested item, behind the open of its flow; returns whether there was one.
    pub(super) fn put_repair(&mut self, out: &mut Vec<u8>) -> bool {
        self.stats.steps += self.transfer.look_up_needed();
        let Some(Repair { open, seq, item }) = self.transfer.buffer.take_repair() else { return false };
        let (open, item) = (open.map(|(seq, item)| (seq, item.clone())), item.clone());
        let before = out.len();
        if let Some((seq, open)) = open {
            self.resend(seq, &open, out);
        }
        self.resend(seq, &item, out);
        self.note_repaired(item.flow, out.len() - before);
        true
    }

    /// Reports frames of a flow beside its turns.
    fn note_repaired(&mut self, flow: FlowId, bytes: usize) {
        self.events.push_back(SendEvent::Repaired { flow, bytes: bytes as u64 });
    }

    /// Appends a block from a lost lane in its first coded form; returns whether it has one. Sixty bytes would else cross
    /// as 64 KiB, at a time when the link has the least to spare.
    fn send_once_more(&mut self, seq: u64, item: &Item, out: &mut Vec<u8>) -> bool {
        let (Some(coded), Content::Block { offset, plain, fin, .. }) = (&item.coded, &item.content) else {
            return false;
        };
        if item.epoch != self.log.remote.epoch() || !item.absent.is_empty() || item.mistaken {
            return false;
        }
        self.stats.resent += 1;
        self.transfer.buffer.note_whole(seq, false);
        let residue: Vec<u8> = literals(&item.names, plain).flatten().copied().collect();
        let super::Scratch { raw, compressed, .. } = &mut self.scratch;
        raw.clear();
        tokens::encode(&coded.copies, LogOffset(item.start), raw);
        let tokens = (!coded.copies.is_empty()).then_some(raw.len());
        tokens::literals(&coded.copies, &residue).for_each(|piece| raw.extend_from_slice(piece));
        let literals = raw.len() - tokens.unwrap_or(0);
        let kind = self.entropy.compress_alone(raw, compressed);
        let body = BlockBody::Coded(Body {
            epoch: item.epoch,
            start: item.start,
            remembered: item.remembered,
            keep: item.keep,
            names: item.names.clone(),
            digest: coded.digest,
            tokens,
            literals,
            entropy: kind.map(|kind| (kind, Mode::Alone)),
            bytes: if kind.is_some() { compressed } else { raw },
        });
        let (flow, offset, fin) = (item.flow, *offset, *fin);
        Frame::Block(Block { seq, flow, offset, plain_len: plain.len(), fin, resent: false, body })
            .encode(out);
        true
    }

    /// Appends an item in its self-contained form.
    fn resend(&mut self, seq: u64, item: &Item, out: &mut Vec<u8>) {
        let (flow, epoch, range) = (item.flow, item.epoch, item.range());
        self.stats.resent += 1;
        self.transfer.buffer.note_whole(seq, true);
        let (offset, plain, fin, coded) = match &item.content {
            Content::Message(message) => {
                return Frame::Message { seq, flow, message: message.clone() }.encode(out);
            }
            Content::Block { offset, plain, fin, coded } => (*offset, plain, *fin, *coded),
        };
        let body = if coded {
            let compressed = &mut self.scratch.compressed;
            let entropy = self.entropy.compress_alone(plain, compressed);
            BlockBody::Coded(Body {
                epoch,
                start: range.as_ref().map_or(self.log.remote.head(), |range| range.start),
                remembered: range.is_some() && epoch == self.log.remote.epoch(),
                keep: item.keep,
                names: Vec::new(),
                digest: self.digests.fast(epoch, plain),
                tokens: None,
                literals: plain.len(),
                entropy: entropy.map(|kind| (kind, Mode::Alone)),
                bytes: if entropy.is_some() { compressed } else { plain },
            })
        } else {
            BlockBody::Uncoded(plain)
        };
        Frame::Block(Block { seq, flow, offset, plain_len: plain.len(), fin, resent: true, body })
            .encode(out);
    }
}
