//! From a block's body to verified bytes: decompression, sources or the wait for them, the verify gate, the log.

use bytes::Bytes;

use super::Receiver;
use crate::Now;
use crate::contract::{Decoder as _, Delivery};
use crate::endre::log_decoder::Sources;
use crate::endre::matcher::Copy;
use crate::endre::tokens;
use crate::entropy::Mode;
use crate::log::LogOffset;
use crate::stream::buffers::BlockBuffers;
use crate::transfer::parking::{MOST_WAKES, Parked};
use crate::transfer::{Head, acks};
use crate::wanax::fetching::Wanted;
use crate::wire::{BlockBody, Body, LaneId, RefetchReason};

/// Memory used again from block to block.
#[derive(Default)]
pub(super) struct Scratch {
    copies: Vec<Copy>,
    raw: Vec<u8>,
    /// A block without its named parts.
    residue: Vec<u8>,
    buffers: BlockBuffers,
}

/// The pieces of a block.
pub(super) struct Pieces<'a> {
    pub(super) copies: &'a [Copy],
    pub(super) literals: &'a [u8],
    /// Named chunks and their places, in order; copies and literals make up the rest.
    pub(super) named: Vec<(u32, Bytes)>,
}

/// Bytes of a block that are as much work as one step.
const BYTES_PER_STEP: u64 = 32;
/// Work of waking blocks, in steps, before others have their turn: some milliseconds.
const WORK_AT_ONCE: u64 = 128 << 10;

impl Receiver {
    /// Undoes the entropy stage of a block into `raw`; returns whether that was possible.
    fn decompress(&mut self, seq: u64, body: &Body<'_>, lane: LaneId, raw: &mut Vec<u8>) -> bool {
        raw.clear();
        let Some((kind, mode)) = body.entropy else { return true };
        if !self.entropy.admit(seq, lane, mode) {
            return false;
        }
        self.work += body.uncompressed_len() as u64 / BYTES_PER_STEP;
        self.entropy.decompress(kind, mode, body.bytes, body.uncompressed_len(), raw)
    }

    /// Takes a block overtaken by its repair: it is known, but its context must see it to stay in step with the blocks
    /// behind it on this lane.
    pub(super) fn handle_overtaken(&mut self, seq: u64, body: &BlockBody<'_>, lane: LaneId) {
        self.stats.duplicates += 1;
        if let BlockBody::Coded(body) = body
            && let Some((_, Mode::First(_) | Mode::Next(_))) = body.entropy
        {
            let mut raw = std::mem::take(&mut self.scratch.raw);
            self.decompress(seq, body, lane, &mut raw);
            self.scratch.raw = raw;
        }
    }

    /// Takes the epoch of a coded block.
    pub(super) fn handle_epoch(&mut self, body: &Body<'_>, now: Now) {
        let turn = self.log.handle_epoch(body);
        if turn.is_new {
            self.coming = Default::default();
            for head in self.parked.clear() {
                self.refetch(&head, RefetchReason::Missing, now);
            }
        }
        turn.start.into_iter().for_each(|start| self.note_start(start));
    }

    pub(super) fn handle_coded(&mut self, head: Head, body: &Body<'_>, lane: LaneId, now: Now) {
        let mut raw = std::mem::take(&mut self.scratch.raw);
        if !self.decompress(head.seq, body, lane, &mut raw) {
            self.scratch.raw = raw;
            return self.refetch(&head, RefetchReason::Missing, now);
        }
        let bytes = if body.entropy.is_some() { &raw } else { body.bytes };
        let mut copies = std::mem::take(&mut self.scratch.copies);
        copies.clear();
        let (token_bytes, literals) = bytes.split_at(body.tokens.unwrap_or(0));
        let base = LogOffset(head.start);
        let residue = body.residue_len(head.plain_len);
        let sound = body.tokens.is_none()
            || tokens::decode(token_bytes, residue, base, literals.len(), &mut copies).is_ok();
        if !sound {
            self.refetch(&head, RefetchReason::Missing, now);
        } else if body.names.is_empty() {
            self.place(head, &Pieces { copies: &copies, literals, named: Vec::new() }, now);
        } else {
            self.fetch(&Wanted { head, copies: &copies, literals, entries: &body.names, key: None }, now);
        }
        self.scratch.copies = copies;
        self.scratch.raw = raw;
    }

    /// Rebuilds the block if its sources are there; parks it or requests it again if not.
    pub(super) fn place(&mut self, head: Head, pieces: &Pieces<'_>, now: Now) {
        self.work += pieces.copies.len() as u64;
        let patience = self.transfer.patience;
        match self.log.sources(head.epoch, pieces.copies) {
            Sources::Present => {
                self.rebuild(head, pieces, now);
                self.wake_parked(now);
            }
            Sources::Waiting(lacks) => {
                self.stats.waited += 1;
                self.park(Parked {
                    head,
                    copies: pieces.copies.to_vec(),
                    literals: pieces.literals.to_vec(),
                    named: pieces.named.clone(),
                    lacks,
                    wakes: 0,
                    oldest: pieces.copies.iter().map(|copy| copy.source.0).min().unwrap_or(lacks),
                    deadline: now + patience,
                    interval: patience,
                    asked: false,
                });
            }
            missing => self.handle_missing(&head, &missing, now),
        }
    }

    /// Requests a block without its sources again.
    fn handle_missing(&mut self, head: &Head, sources: &Sources, now: Now) {
        match sources {
            Sources::GivenUp => {
                self.stats.given_up += 1;
                // The sending half may have missed the report.
                self.log.report();
            }
            Sources::Overwritten => self.stats.overwritten += 1,
            Sources::Present | Sources::Waiting(_) | Sources::Gone => {}
        }
        self.refetch(head, RefetchReason::Missing, now);
    }

    fn park(&mut self, parked: Parked) {
        let head = parked.head;
        if self.parked.park(parked) {
            self.coming.note(&head);
        } else {
            self.refetch(&head, RefetchReason::Missing, self.now);
        }
    }

    /// Goes on with parked blocks with arrived ranges, until none is left, or they have been enough work for once.
    pub(super) fn wake_parked(&mut self, now: Now) {
        let enough = self.work() + WORK_AT_ONCE;
        while self.work() < enough
            && let Some(parked) = self.parked.take_ready()
        {
            self.go_on(parked, now);
        }
    }

    /// Goes on with the parked blocks that copy something given up.
    pub(super) fn drop_given_up(&mut self) {
        for parked in self.parked.take_copying_below(self.log.base()) {
            self.go_on(parked, self.now);
        }
    }

    /// Looks again at a parked block.
    pub(super) fn go_on(&mut self, mut parked: Parked, now: Now) {
        let patience = self.transfer.patience;
        match self.log.sources(parked.head.epoch, &parked.copies) {
            Sources::Present => {
                let Parked { head, copies, literals, named, .. } = parked;
                self.rebuild(head, &Pieces { copies: &copies, literals: &literals, named }, now);
            }
            Sources::Waiting(lacks) if parked.wakes < MOST_WAKES => {
                (parked.lacks, parked.wakes) = (lacks, parked.wakes + 1);
                (parked.deadline, parked.interval) = (now + patience, patience);
                parked.asked = false;
                self.park(parked);
            }
            missing => self.handle_missing(&parked.head, &missing, now),
        }
    }

    /// The way through the verify gate: no coded block is written, acknowledged or delivered but from here.
    fn rebuild(&mut self, head: Head, pieces: &Pieces<'_>, now: Now) {
        let Pieces { copies, literals, named } = pieces;
        let Scratch { residue, buffers, .. } = &mut self.scratch;
        let mut plain = buffers.take(head.plain_len);
        let copied: u64 = copies.iter().map(|copy| u64::from(copy.len)).sum();
        self.work += copies.len() as u64 + head.plain_len as u64 / BYTES_PER_STEP;
        if named.is_empty() {
            tokens::rebuild(copies, literals, head.plain_len, self.log.log(), &mut plain);
        } else {
            let chunks: usize = named.iter().map(|(_, chunk)| chunk.len()).sum();
            let residue_len = head.plain_len.saturating_sub(chunks);
            residue.clear();
            tokens::rebuild(copies, literals, residue_len, self.log.log(), residue);
            interleave(named, residue, &mut plain);
        }
        let Some(verified) = self.gate.check(&head, plain, |plain| buffers.freeze(plain)) else {
            return self.refetch(&head, RefetchReason::Mismatch, now);
        };
        self.stats.copied += copied;
        if head.keep {
            self.store.put(&verified);
        }
        if head.remembered
            && let Some(range) = self.log.remember(head.epoch, head.start, &verified)
        {
            self.parked.handle_written(&range);
            self.drop_given_up();
        }
        self.deliver(head, verified.into(), acks::DELAY, now);
    }

    /// Delivers a block, to be acknowledged within `waits`.
    pub(super) fn deliver(&mut self, head: Head, plain: Bytes, waits: Now, now: Now) {
        self.stats.blocks += 1;
        self.stats.plain += plain.len() as u64;
        self.transfer.acknowledge(head.seq, waits, now);
        self.fetching.handle_arrived(head.seq, now);
        let Head { flow, offset, fin, .. } = head;
        self.deliveries.push_back(Delivery::Data { flow, offset, plain, fin });
    }
}

/// Appends a block made of chunks and their residue.
fn interleave(named: &[(u32, Bytes)], residue: &[u8], plain: &mut Vec<u8>) {
    let mut rest = residue;
    for (at, chunk) in named {
        let gap = (*at as usize).saturating_sub(plain.len());
        let (before, behind) = rest.split_at_checked(gap).unwrap_or((rest, &[]));
        plain.extend_from_slice(before);
        plain.extend_from_slice(chunk);
        rest = behind;
    }
    plain.extend_from_slice(rest);
}
