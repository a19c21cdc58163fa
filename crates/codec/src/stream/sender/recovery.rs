//! What the sending half does when something went wrong: blocks sent again, mismatches, new epochs, resumed logs.

use std::collections::BTreeSet;

use super::Sender;
use crate::Now;
use crate::contract::{LogStart, PeerFault, SendEvent};
use crate::endre::tokens;
use crate::entropy::Mode;
use crate::log::LogOffset;
use crate::transfer::{Content, Item, MAX_UNACKED, Repair};
use crate::verify::digest::block_digest;
use crate::wanax::naming::literals;
use crate::wire::{
    Block, BlockBody, Body, ChunkReason, ChunkRequest, Chunks, Digest, FlowId, Frame, LaneId, LaneTail,
    Range64, Refetch, RefetchReason, WireError,
};

/// Mismatches within [`MISMATCH_WINDOW`] that start a new epoch.
const MISMATCHES_TO_NEW_EPOCH: usize = 4;
const MISMATCH_WINDOW: Now = Now::from_secs(60);
/// Ranges that a wrong block may have referred to for them to be forgotten one by one.
const SOURCES_TO_FORGET: usize = 16;
/// Ranges that all of them together may have, within [`MISMATCH_WINDOW`].
const SOURCES_IN_WINDOW: usize = 4 * SOURCES_TO_FORGET;
/// Ranges that may be left out of the log; with more, a new epoch is cheaper.
const MOST_HOLES: usize = 2 * MAX_UNACKED as usize;
/// Ranges that may be needed before their blocks are looked for.
const MOST_NEEDED: usize = 4096;

/// A block of late that was rebuilt wrongly from the log as it is now.
pub(crate) struct Suspected {
    at: Now,
    /// Whether it counts towards a new epoch.
    counts: bool,
    /// The ranges that it referred to.
    sources: usize,
}

impl Sender {
    pub(crate) fn start_epoch(&mut self, epoch: u64, reason: &'static str) {
        self.log.start_epoch(epoch);
        self.quotas.clear();
        self.diagonals.clear();
        self.recent_mismatches.clear();
        self.note_start(LogStart::Anew { reason });
    }

    /// Counts and tells that the log goes on or starts over.
    pub(crate) fn note_start(&mut self, start: LogStart) {
        self.stats.log_starts.count(start);
        self.events.push_back(SendEvent::LogStarts { epoch: self.log.epoch(), start });
    }

    /// Has blocks sent again. Those that were rebuilt wrongly cast doubt on what they referred to: ranges of the log are not
    /// referred to again, and a new epoch begins once there are more than a few, of one frame or of many.
    pub(crate) fn handle_refetch(&mut self, refetch: &Refetch, now: Now) {
        for &seq in &refetch.seqs {
            self.stats.steps += 1;
            let item = match refetch.reason {
                RefetchReason::Missing => self.ledger.request_repair(seq),
                RefetchReason::Mismatch => self.ledger.request_mistaken(seq),
            };
            let Some(item) = item else { continue };
            if let Some(slot) = item.slot {
                self.slots.restart(slot);
            }
            if refetch.reason == RefetchReason::Mismatch {
                self.handle_mistaken(seq, now);
            }
        }
    }

    fn handle_mistaken(&mut self, seq: u64, now: Now) {
        let Some(item) = self.ledger.item(seq) else { return };
        self.stats.steps += (item.names.len() + item.sources.len()) as u64;
        self.stats.mismatches += 1;
        self.events.push_back(SendEvent::Mismatch(item.flow));
        self.diagonals.remove(&item.flow);
        let is_of_epoch = item.epoch == self.log.epoch();
        let mut counts = true;
        let sources = item.sources.get(..SOURCES_TO_FORGET + 1).unwrap_or(&item.sources).to_vec();
        if let Some(naming) = &mut self.naming {
            naming.forget(item.names.iter());
            if item.names.iter().any(|entry| entry.name.is_short()) {
                naming.distrust_tags(now);
                // The tag or the log: if it was the log, the next one, without tags, shows it.
                counts = false;
                // All that it names crosses with it, and is put, so that the store has the right chunk by that tag.
                let (all, keep) = (0..item.names.len() as u32, naming.is_put());
                self.ledger.note_absent(seq, &all.collect::<Vec<u32>>(), keep);
            }
        }
        // What it referred to is forgotten with its epoch.
        if is_of_epoch && (counts || !sources.is_empty()) {
            self.suspect(&sources, counts, now);
        }
    }

    /// Refers to none of the ranges any more, which a wrong block did, or to nothing at all if there are too many of either;
    /// `counts` says that only the log can have been wrong.
    fn suspect(&mut self, sources: &[Range64], counts: bool, now: Now) {
        self.recent_mismatches.push_back(Suspected { at: now, counts, sources: sources.len() });
        while self.recent_mismatches.front().is_some_and(|block| block.at + MISMATCH_WINDOW < now) {
            self.recent_mismatches.pop_front();
        }
        sources.iter().for_each(|source| self.log.distrust(source.clone()));
        let recent = || self.recent_mismatches.iter();
        if sources.len() > SOURCES_TO_FORGET
            || recent().filter(|block| block.counts).count() >= MISMATCHES_TO_NEW_EPOCH
            || recent().map(|block| block.sources).sum::<usize>() > SOURCES_IN_WINDOW
            || self.log.holes().len() > MOST_HOLES
        {
            self.start_epoch(self.log.epoch() + 1, "repeated mismatches");
        }
    }

    /// Notes the chunks that the receiving half asks for; a block that it has acknowledged meanwhile is passed over.
    pub(crate) fn handle_request(&mut self, request: &ChunkRequest) -> Result<(), PeerFault> {
        if request.seq >= self.ledger.next_seq() {
            return Err(PeerFault::AckOfUnsent(request.seq));
        }
        let Some(item) = self.ledger.item(request.seq) else { return Ok(()) };
        let entry = |&index: &u32| item.names.get(index as usize);
        if !request.indexes.iter().all(|index| entry(index).is_some()) {
            return Err(WireError::Invalid("index of a chunk").into());
        }
        // Of what crosses already it may be said later that it is not there.
        let news: Vec<u32> = match request.reason {
            ChunkReason::Absent => {
                request.indexes.iter().copied().filter(|&index| !item.crosses(index)).collect()
            }
            ChunkReason::Shed => request.indexes.clone(),
        };
        let lane = item.lane.filter(|_| request.reason == ChunkReason::Absent);
        self.stats.steps += request.indexes.len() as u64;
        if request.reason == ChunkReason::Absent {
            self.stats.absent += request.indexes.len() as u64;
            if let Some(naming) = &mut self.naming {
                naming.forget(request.indexes.iter().filter_map(entry));
                let keep = naming.is_put();
                naming.doubt(self.ledger.note_absent(request.seq, &request.indexes, keep));
            }
        } else {
            self.ledger.note_crossed(request.seq, &request.indexes);
        }
        let Self { ledger, lacked, requested, .. } = self;
        if let Some(lane) = lane {
            lacked.insert(lane, request.seq, news, |seq| ledger.is_unacked(seq));
            return Ok(());
        }
        if requested.len() as u64 > 2 * MAX_UNACKED {
            // What a lane is not asked for, since its socket is full, is acknowledged meanwhile.
            requested.retain(|&seq, _| ledger.is_unacked(seq));
        }
        if !news.is_empty() {
            requested.entry(request.seq).or_default().extend(news);
        }
        Ok(())
    }

    /// Notes ranges of the log that the peer needs.
    pub(crate) fn handle_need(&mut self, ranges: &[Range64]) {
        self.stats.steps += ranges.len() as u64;
        ranges.iter().for_each(|range| self.needed.insert(range.clone()));
        if self.needed.len() > MOST_NEEDED {
            self.look_for_needed();
        }
    }

    /// Has the blocks sent again that brought what is needed.
    fn look_for_needed(&mut self) {
        let ranges: Vec<Range64> = self.needed.iter().collect();
        self.needed.clear();
        self.stats.steps += self.ledger.request_ranges(&ranges) as u64;
    }

    /// Appends the chunks of one block that were asked for; returns whether there were any.
    pub(crate) fn put_chunks(&mut self, out: &mut Vec<u8>) -> bool {
        while let Some((seq, indexes)) = self.requested.pop_first() {
            if self.put_chunks_of(seq, indexes, out) {
                return true;
            }
        }
        false
    }

    /// Appends the chunks that the peer lacks of one block that was sent on the lane; returns whether there were any.
    pub(crate) fn put_lacked(&mut self, lane: LaneId, out: &mut Vec<u8>) -> bool {
        while let Some((seq, indexes)) = self.lacked.pop(lane) {
            self.stats.steps += 1;
            if self.put_chunks_of(seq, indexes, out) {
                return true;
            }
        }
        false
    }

    /// Appends chunks of one block, at most `most` bytes of them, or one if that is longer: those that the peer lacks and
    /// that are for a lane, or those for any. What is beyond that waits on. Returns whether there were any.
    pub(crate) fn put_answer(
        &mut self,
        seq: u64,
        lane: Option<LaneId>,
        most: usize,
        out: &mut Vec<u8>,
    ) -> bool {
        let mut take = |lane: Option<LaneId>| match lane {
            Some(lane) => self.lacked.take(lane, seq),
            None => self.requested.remove(&seq),
        };
        let Some(mut indexes) = take(lane) else { return false };
        let Some(item) = self.ledger.item(seq) else { return false };
        let mut bytes = 0;
        let beyond = indexes.iter().copied().find(|&index| {
            let before = bytes;
            bytes += item.names.get(index as usize).map_or(0, |entry| entry.len as usize);
            before > 0 && bytes > most
        });
        if let Some(index) = beyond {
            let rest = indexes.split_off(&index);
            match lane {
                Some(lane) => self.lacked.insert(lane, seq, rest, |_| true),
                None => drop(self.requested.insert(seq, rest)),
            }
        }
        self.put_chunks_of(seq, indexes, out)
    }

    fn put_chunks_of(&mut self, seq: u64, indexes: BTreeSet<u32>, out: &mut Vec<u8>) -> bool {
        let Some(Item { flow, names, content: Content::Block { plain, .. }, .. }) = self.ledger.item(seq)
        else {
            return false;
        };
        let (flow, before) = (*flow, out.len());
        let mut bytes = Vec::new();
        let chunks = indexes.iter().filter_map(|&index| plain.get(names.get(index as usize)?.range()));
        chunks.for_each(|chunk| bytes.extend_from_slice(chunk));
        self.stats.chunks_sent += indexes.len() as u64;
        self.stats.chunk_bytes_sent += bytes.len() as u64;
        let compressed = &mut self.scratch.compressed;
        compressed.clear();
        self.compressor.set_entropy(self.config.entropy);
        let smaller = self.compressor.compress(Mode::Alone, &bytes, compressed);
        let entropy = self.config.entropy.kind().filter(|_| smaller);
        let bytes = if smaller { compressed } else { &bytes };
        Frame::Chunks(Chunks { seq, indexes: indexes.into_iter().collect(), entropy, bytes }).encode(out);
        self.note_repaired(flow, out.len() - before);
        true
    }

    /// Appends the oldest of a flow's items whose lane was lost; returns whether there was one.
    pub(crate) fn put_lost(&mut self, flow: FlowId, lane: LaneId, out: &mut Vec<u8>) -> bool {
        let Some((seq, item)) = self.ledger.take_lost(flow, lane) else { return false };
        let item = item.clone();
        if !self.send_once_more(seq, &item, out) {
            self.resend(seq, &item, out);
        } else if let Content::Block { offset, plain, .. } = &item.content {
            let end = offset.saturating_add(plain.len() as u64);
            self.note_tail(lane, LaneTail { flow, seq, end });
        }
        true
    }

    /// Appends an item that was asked for, behind what opens its flow; returns whether there was one.
    pub(crate) fn put_repair(&mut self, out: &mut Vec<u8>) -> bool {
        if !self.needed.is_empty() {
            self.look_for_needed();
        }
        let Some(Repair { open, seq, item }) = self.ledger.take_repair() else { return false };
        let (open, item) = (open.map(|(seq, item)| (seq, item.clone())), item.clone());
        let before = out.len();
        if let Some((seq, open)) = open {
            self.resend(seq, &open, out);
        }
        self.resend(seq, &item, out);
        self.note_repaired(item.flow, out.len() - before);
        true
    }

    /// Tells that frames were sent for a flow beside its turns.
    fn note_repaired(&mut self, flow: FlowId, bytes: usize) {
        self.events.push_back(SendEvent::Repaired { flow, bytes: bytes as u64 });
    }

    /// Appends a block whose lane was lost as it was coded at first; returns whether that can be done. What crossed as
    /// sixty bytes would else cross as 64 KiB, at a time when the link has the least to spare.
    fn send_once_more(&mut self, seq: u64, item: &Item, out: &mut Vec<u8>) -> bool {
        let (Some(coded), Content::Block { offset, plain, fin, .. }) = (&item.coded, &item.content) else {
            return false;
        };
        if item.epoch != self.log.epoch() || !item.absent.is_empty() || item.mistaken {
            return false;
        }
        self.stats.resent += 1;
        self.ledger.note_whole(seq, false);
        let residue: Vec<u8> = literals(&item.names, plain).flatten().copied().collect();
        let raw = &mut self.scratch.raw;
        raw.clear();
        tokens::encode(&coded.copies, LogOffset(item.start), raw);
        let tokens = (!coded.copies.is_empty()).then_some(raw.len());
        tokens::literals(&coded.copies, &residue).for_each(|piece| raw.extend_from_slice(piece));
        let literals = raw.len() - tokens.unwrap_or(0);
        let compressed = &mut self.scratch.compressed;
        compressed.clear();
        self.compressor.set_entropy(self.config.entropy);
        let smaller = !raw.is_empty() && self.compressor.compress(Mode::Alone, raw, compressed);
        let kind = self.config.entropy.kind().filter(|_| smaller);
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
        self.ledger.note_whole(seq, true);
        let (offset, plain, fin, coded) = match &item.content {
            Content::Message(message) => {
                return Frame::Message { seq, flow, message: message.clone() }.encode(out);
            }
            Content::Block { offset, plain, fin, coded } => (*offset, plain, *fin, *coded),
        };
        let compressed = &mut self.scratch.compressed;
        compressed.clear();
        self.compressor.set_entropy(self.config.entropy);
        let mut entropy = None;
        if coded
            && !plain.is_empty()
            && let Some(kind) = self.config.entropy.kind()
            && self.compressor.compress(Mode::Alone, plain, compressed)
        {
            entropy = Some((kind, Mode::Alone));
        }
        let body = if coded {
            BlockBody::Coded(Body {
                epoch,
                start: range.as_ref().map_or(self.log.head(), |range| range.start),
                remembered: range.is_some() && epoch == self.log.epoch(),
                keep: item.keep,
                names: Vec::new(),
                digest: Digest::Fast(block_digest(self.config.digest_seed, epoch, plain)),
                tokens: None,
                literals: plain.len(),
                entropy,
                bytes: if entropy.is_some() { compressed } else { plain },
            })
        } else {
            BlockBody::Uncoded(plain)
        };
        Frame::Block(Block { seq, flow, offset, plain_len: plain.len(), fin, resent: true, body })
            .encode(out);
    }
}

#[cfg(test)]
impl Sender {
    /// Ranges of the log that are not referred to.
    pub(crate) fn holes(&self) -> Vec<Range64> {
        self.log.holes().iter().collect()
    }
}
