//! What the sending half does when something went wrong: blocks sent again, mismatches, new epochs, resumed logs.

use std::collections::BTreeSet;

use super::super::tokens;
use super::Sender;
use super::naming::literals;
use crate::Now;
use crate::cache::{Content, Item, LogOffset, MAX_UNACKED, Repair};
use crate::contract::{PeerFault, SendEvent};
use crate::digest::block_digest;
use crate::entropy::Mode;
use crate::wire::{
    Block, BlockBody, Body, ChunkReason, ChunkRequest, Chunks, Digest, FlowId, Frame, LaneId, LaneTail,
    Refetch, RefetchReason, WireError,
};

/// Mismatches within [`MISMATCH_WINDOW`] that start a new epoch.
const MISMATCHES_TO_NEW_EPOCH: usize = 4;
const MISMATCH_WINDOW: Now = Now::from_secs(60);
/// Ranges that a wrong block may have referred to for them to be forgotten one by one.
const SOURCES_TO_FORGET: usize = 16;

impl Sender {
    pub(super) fn start_epoch(&mut self, epoch: u64, reason: &'static str) {
        self.log.start_epoch(epoch);
        self.quotas.clear();
        self.diagonals.clear();
        self.recent_mismatches.clear();
        self.events.push_back(SendEvent::NewEpoch { epoch, reason });
    }

    pub(super) fn handle_refetch(&mut self, refetch: &Refetch, now: Now) {
        let mut start_over = false;
        let mut sources = Vec::new();
        for &seq in &refetch.seqs {
            let item = match refetch.reason {
                RefetchReason::Missing => self.ledger.request_repair(seq),
                RefetchReason::Mismatch => self.ledger.request_mistaken(seq),
            };
            let Some(item) = item else { continue };
            if let Some(slot) = item.slot {
                self.slots.restart(slot);
            }
            if refetch.reason == RefetchReason::Missing {
                continue;
            }
            self.stats.mismatches += 1;
            self.events.push_back(SendEvent::Mismatch(item.flow));
            self.diagonals.remove(&item.flow);
            if let Some(naming) = &mut self.naming {
                naming.forget(item.names.iter());
                if item.names.iter().any(|entry| entry.name.is_short()) {
                    // The tag or the log: if it was the log, the next one, without tags, shows it.
                    if item.sources.len() <= SOURCES_TO_FORGET {
                        sources.extend(item.sources.iter().cloned());
                    }
                    naming.distrust_tags(now);
                    // All that it names crosses with it, and is put, so that the store has the right chunk by that tag.
                    let (all, keep) = (0..item.names.len() as u32, naming.is_put());
                    self.ledger.note_absent(seq, &all.collect::<Vec<u32>>(), keep);
                    continue;
                }
            }
            // What it referred to is forgotten with its epoch.
            if item.epoch != self.log.epoch() {
                continue;
            }
            // Most of the table would be looked at closely: beyond a few, a new epoch is cheaper.
            start_over |= item.sources.len() > SOURCES_TO_FORGET;
            sources.extend(item.sources.iter().filter(|_| !start_over).cloned());
            self.recent_mismatches.push_back(now);
            while self.recent_mismatches.front().is_some_and(|&at| at + MISMATCH_WINDOW < now) {
                self.recent_mismatches.pop_front();
            }
            start_over |= self.recent_mismatches.len() >= MISMATCHES_TO_NEW_EPOCH;
        }
        if start_over {
            self.start_epoch(self.log.epoch() + 1, "repeated mismatches");
        } else if !sources.is_empty() {
            // It goes through the whole table, whatever there is to forget.
            self.log.forget(&sources);
        }
    }

    /// Notes the chunks that the receiving half asks for; a block that it has acknowledged meanwhile is passed over.
    pub(super) fn handle_request(&mut self, request: &ChunkRequest) -> Result<(), PeerFault> {
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
        let mut waiting = &mut self.requested;
        if request.reason == ChunkReason::Absent {
            if item.lane.is_some() {
                waiting = &mut self.lacked;
            }
            self.stats.absent += request.indexes.len() as u64;
            if let Some(naming) = &mut self.naming {
                naming.forget(request.indexes.iter().filter_map(entry));
                let keep = naming.is_put();
                naming.doubt(self.ledger.note_absent(request.seq, &request.indexes, keep));
            }
        } else {
            self.ledger.note_crossed(request.seq, &request.indexes);
        }
        if waiting.len() as u64 > 2 * MAX_UNACKED {
            // What a lane is not asked for, since its socket is full, is acknowledged meanwhile.
            waiting.retain(|&seq, _| self.ledger.is_unacked(seq));
        }
        if !news.is_empty() {
            waiting.entry(request.seq).or_default().extend(news);
        }
        Ok(())
    }

    /// Appends the chunks of one block that were asked for; returns whether there were any.
    pub(super) fn put_chunks(&mut self, out: &mut Vec<u8>) -> bool {
        while let Some((seq, indexes)) = self.requested.pop_first() {
            if self.put_chunks_of(seq, indexes, out) {
                return true;
            }
        }
        false
    }

    /// Appends the chunks that the peer lacks of one block that was sent on the lane; returns whether there were any.
    pub(super) fn put_lacked(&mut self, lane: LaneId, out: &mut Vec<u8>) -> bool {
        let Self { ledger, lacked, .. } = self;
        lacked.retain(|&seq, _| ledger.is_unacked(seq));
        let mut of_lane =
            lacked.extract_if(.., |&seq, _| ledger.item(seq).is_some_and(|item| item.lane == Some(lane)));
        let Some((seq, indexes)) = of_lane.next() else { return false };
        drop(of_lane);
        self.put_chunks_of(seq, indexes, out)
    }

    /// Appends chunks of one block, at most `most` bytes of them, or one if that is longer: those that the peer lacks and
    /// that are for a lane, or those for any. What is beyond that waits on. Returns whether there were any.
    pub(super) fn put_answer(
        &mut self,
        seq: u64,
        lane: Option<LaneId>,
        most: usize,
        out: &mut Vec<u8>,
    ) -> bool {
        let waiting = if lane.is_some() { &mut self.lacked } else { &mut self.requested };
        let Some(item) = self.ledger.item(seq) else {
            waiting.remove(&seq);
            return false;
        };
        if lane.is_some() && lane != item.lane {
            return false;
        }
        let Some(mut indexes) = waiting.remove(&seq) else { return false };
        let mut bytes = 0;
        let beyond = indexes.iter().copied().find(|&index| {
            let before = bytes;
            bytes += item.names.get(index as usize).map_or(0, |entry| entry.len as usize);
            before > 0 && bytes > most
        });
        if let Some(index) = beyond {
            waiting.insert(seq, indexes.split_off(&index));
        }
        self.put_chunks_of(seq, indexes, out)
    }

    fn put_chunks_of(&mut self, seq: u64, indexes: BTreeSet<u32>, out: &mut Vec<u8>) -> bool {
        let Some(Item { names, content: Content::Block { plain, .. }, .. }) = self.ledger.item(seq) else {
            return false;
        };
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
        true
    }

    /// Appends the oldest of a flow's items whose lane was lost; returns whether there was one.
    pub(super) fn put_lost(&mut self, flow: FlowId, lane: LaneId, out: &mut Vec<u8>) -> bool {
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
    pub(super) fn put_repair(&mut self, out: &mut Vec<u8>) -> bool {
        let Some(Repair { open, seq, item }) = self.ledger.take_repair() else { return false };
        let (open, item) = (open.map(|(seq, item)| (seq, item.clone())), item.clone());
        if let Some((seq, open)) = open {
            self.resend(seq, &open, out);
        }
        self.resend(seq, &item, out);
        true
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
