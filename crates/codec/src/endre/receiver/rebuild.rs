//! From a block's body to verified bytes: decompressing, finding or waiting for sources, the verify gate, the log.

use bytes::Bytes;

use super::super::matcher::Copy;
use super::super::tokens;
use super::parked::Parked;
use super::{Head, Receiver};
use crate::Now;
use crate::cache::LogOffset;
use crate::contract::{Delivery, LogWrite};
use crate::digest::block_digest;
use crate::entropy::Mode;
use crate::wire::{BlockBody, Body, Digest, LaneId, Range64, RefetchReason};

impl Receiver {
    /// Undoes the entropy stage into `raw`; returns whether that was possible.
    fn decompress(&mut self, body: &Body<'_>, lane: LaneId, raw: &mut Vec<u8>) -> bool {
        raw.clear();
        let Some((kind, mode)) = body.entropy else { return true };
        match mode {
            Mode::Alone => {}
            Mode::First(slot) if slot >= self.contexts => return false,
            Mode::First(slot) => drop(self.context_lanes.insert(slot, lane)),
            Mode::Next(slot) if self.context_lanes.get(&slot) != Some(&lane) => return false,
            Mode::Next(_) => {}
        }
        self.decompressor.decompress(kind, mode, body.bytes, body.uncompressed_len(), raw).is_ok()
    }

    /// Takes a block that a repair overtook: it is known, but its context must see it to stay in step with
    /// the blocks behind it on this lane.
    pub(super) fn handle_overtaken(&mut self, body: &BlockBody<'_>, lane: LaneId) {
        self.stats.duplicates += 1;
        if let BlockBody::Coded(body) = body
            && let Some((_, Mode::First(_) | Mode::Next(_))) = body.entropy
        {
            let mut raw = std::mem::take(&mut self.plain);
            self.decompress(body, lane, &mut raw);
            self.plain = raw;
        }
    }

    pub(super) fn handle_coded(&mut self, head: Head, body: &Body<'_>, lane: LaneId, now: Now) {
        let mut raw = std::mem::take(&mut self.plain);
        if !self.decompress(body, lane, &mut raw) {
            self.plain = raw;
            return self.ask_again(head.seq, RefetchReason::Missing, now);
        }
        let bytes = if body.entropy.is_some() { &raw } else { body.bytes };
        let mut copies = std::mem::take(&mut self.copies);
        copies.clear();
        let (token_bytes, literals) = bytes.split_at(body.tokens.unwrap_or(0));
        let base = LogOffset(head.start);
        let sound = body.tokens.is_none()
            || tokens::decode(token_bytes, head.plain_len, base, literals.len(), &mut copies).is_ok();
        if sound {
            self.place(head, &copies, literals, now);
        } else {
            self.ask_again(head.seq, RefetchReason::Missing, now);
        }
        self.copies = copies;
        self.plain = raw;
    }

    /// Rebuilds the block if what it copies from is there; parks it or asks for it again if not.
    fn place(&mut self, head: Head, copies: &[Copy], literals: &[u8], now: Now) {
        match self.sources(head.epoch, copies) {
            Sources::Present => {
                self.rebuild(head, copies, literals, now);
                self.wake_parked(now);
            }
            Sources::Waiting(lacks) => {
                self.stats.waited += 1;
                self.park(head, copies, literals, lacks, now);
            }
            Sources::Gone => self.ask_again(head.seq, RefetchReason::Missing, now),
            Sources::GivenUp => self.note_given_up(head.seq, now),
            Sources::Overwritten => self.note_overwritten(head.seq, now),
        }
    }

    fn sources(&self, epoch: u64, copies: &[Copy]) -> Sources {
        let floor = self.highest.saturating_sub(self.log.capacity());
        let mut lacks = None;
        for copy in copies {
            let range = copy.range();
            if epoch != self.epoch {
                return Sources::Gone;
            }
            if range.start < floor {
                return Sources::Overwritten;
            }
            if range.start < self.held.base {
                return Sources::GivenUp;
            }
            if lacks.is_none() && !self.written.contains(&range) {
                lacks = Some(range);
            }
        }
        lacks.map_or(Sources::Present, Sources::Waiting)
    }

    /// The sending half is told again what is held: it may have missed it.
    pub(super) fn note_given_up(&mut self, seq: u64, now: Now) {
        self.stats.given_up += 1;
        self.held.tell();
        self.ask_again(seq, RefetchReason::Missing, now);
    }

    fn note_overwritten(&mut self, seq: u64, now: Now) {
        self.stats.overwritten += 1;
        self.ask_again(seq, RefetchReason::Missing, now);
    }

    fn park(&mut self, head: Head, copies: &[Copy], literals: &[u8], lacks: Range64, now: Now) {
        let (copies, literals) = (copies.to_vec(), literals.to_vec());
        let deadline = now + self.patience;
        if !self.parked.park(Parked { head, copies, literals, lacks, deadline, asked: false }) {
            self.ask_again(head.seq, RefetchReason::Missing, now);
        }
    }

    /// Goes on with parked blocks whose ranges have come, until none is left that can.
    pub(super) fn wake_parked(&mut self, now: Now) {
        while let Some(Parked { head, copies, literals, .. }) = self.parked.take_ready(&self.written) {
            match self.sources(head.epoch, &copies) {
                Sources::Present => self.rebuild(head, &copies, &literals, now),
                Sources::Waiting(lacks) => self.park(head, &copies, &literals, lacks, now),
                Sources::Gone => self.ask_again(head.seq, RefetchReason::Missing, now),
                Sources::GivenUp => self.note_given_up(head.seq, now),
                Sources::Overwritten => self.note_overwritten(head.seq, now),
            }
        }
    }

    fn matches(&mut self, head: &Head, plain: &[u8]) -> bool {
        match head.digest {
            Digest::Fast(digest) => block_digest(self.digest_seed, head.epoch, plain) == digest,
            Digest::Strong(digest) => self.strong.digest(head.epoch, plain) == digest,
        }
    }

    /// The verify gate: no coded block is written, acknowledged or delivered but through here.
    fn rebuild(&mut self, head: Head, copies: &[Copy], literals: &[u8], now: Now) {
        let mut plain = self.buffers.take(head.plain_len);
        let copied: u64 = copies.iter().map(|copy| u64::from(copy.len)).sum();
        tokens::rebuild(copies, literals, head.plain_len, &self.log, &mut plain);
        if plain.len() != head.plain_len || !self.matches(&head, &plain) {
            return self.ask_again(head.seq, RefetchReason::Mismatch, now);
        }
        self.stats.copied += copied;
        let plain = self.buffers.freeze(plain);
        if head.remembered && head.epoch == self.epoch {
            self.remember(head.start, &plain);
        }
        self.deliver(head, plain, now);
    }

    fn remember(&mut self, start: u64, plain: &Bytes) {
        // A start further back than anything in flight can only be a stray duplicate.
        if start < self.highest.saturating_sub(self.max_in_flight) {
            return;
        }
        let end = start + plain.len() as u64;
        if end <= self.held.base {
            return;
        }
        self.log.write(LogOffset(start), plain);
        self.written.insert(start..end);
        self.highest = self.highest.max(end);
        self.raise_base(self.highest.saturating_sub(self.limit()));
        if self.persist {
            self.writes.push_back(LogWrite { epoch: self.epoch, start, plain: plain.clone() });
        }
    }

    pub(super) fn deliver(&mut self, head: Head, plain: Bytes, now: Now) {
        self.stats.blocks += 1;
        self.stats.plain += plain.len() as u64;
        self.acknowledge(head.seq, now);
        self.deliveries.push_back(Delivery::Data {
            flow: head.flow,
            offset: head.offset,
            plain,
            fin: head.fin,
        });
    }
}

/// The outcome of an attempt to rebuild a block.
enum Sources {
    Present,
    /// The first range that has not arrived.
    Waiting(Range64),
    /// Of an epoch that is over, or not begun.
    Gone,
    /// Within the log's capacity, but given up here before the sender heard of it.
    GivenUp,
    /// Below the window of the log: the sender broke rule 3.
    Overwritten,
}
