//! From a block's body to verified bytes: decompressing, finding or waiting for sources, the verify gate, the log.

use bytes::Bytes;

use super::Receiver;
use crate::Now;
use crate::contract::{Decoder as _, Delivery, LogWrite};
use crate::endre::matcher::Copy;
use crate::endre::tokens;
use crate::entropy::Mode;
use crate::log::LogOffset;
use crate::transfer::Head;
use crate::transfer::parking::{MOST_WAKES, Parked};
use crate::verify::digest::block_digest;
use crate::wanax::fetching::Wanted;
use crate::wire::{BlockBody, Body, Digest, Frame, LaneId, MAX_RANGES, Refetch, RefetchReason};

impl Receiver {
    /// Undoes the entropy stage of a block into `raw`; returns whether that was possible.
    fn decompress(&mut self, seq: u64, body: &Body<'_>, lane: LaneId, raw: &mut Vec<u8>) -> bool {
        raw.clear();
        let Some((kind, mode)) = body.entropy else { return true };
        match mode {
            Mode::Alone => {}
            Mode::First(slot) if slot >= self.contexts => return false,
            // One that comes late, by a slower lane, does not take back what another was started with since.
            Mode::First(slot) if self.context_lanes.get(&slot).is_some_and(|&(_, since)| since > seq) => {
                return false;
            }
            Mode::First(slot) => drop(self.context_lanes.insert(slot, (lane, seq))),
            Mode::Next(slot) if self.context_lanes.get(&slot).is_none_or(|&(own, _)| own != lane) => {
                return false;
            }
            Mode::Next(_) => {}
        }
        self.work += body.uncompressed_len() as u64 / BYTES_PER_STEP;
        self.decompressor.decompress(kind, mode, body.bytes, body.uncompressed_len(), raw).is_ok()
    }

    /// Takes a block that a repair overtook: it is known, but its context must see it to stay in step with
    /// the blocks behind it on this lane.
    pub(crate) fn handle_overtaken(&mut self, seq: u64, body: &BlockBody<'_>, lane: LaneId) {
        self.stats.duplicates += 1;
        if let BlockBody::Coded(body) = body
            && let Some((_, Mode::First(_) | Mode::Next(_))) = body.entropy
        {
            let mut raw = std::mem::take(&mut self.plain);
            self.decompress(seq, body, lane, &mut raw);
            self.plain = raw;
        }
    }

    pub(crate) fn handle_coded(&mut self, head: Head, body: &Body<'_>, lane: LaneId, now: Now) {
        let mut raw = std::mem::take(&mut self.plain);
        if !self.decompress(head.seq, body, lane, &mut raw) {
            self.plain = raw;
            return self.ask_again(&head, RefetchReason::Missing, now);
        }
        let bytes = if body.entropy.is_some() { &raw } else { body.bytes };
        let mut copies = std::mem::take(&mut self.copies);
        copies.clear();
        let (token_bytes, literals) = bytes.split_at(body.tokens.unwrap_or(0));
        let base = LogOffset(head.start);
        let residue = body.residue_len(head.plain_len);
        let sound = body.tokens.is_none()
            || tokens::decode(token_bytes, residue, base, literals.len(), &mut copies).is_ok();
        if !sound {
            self.ask_again(&head, RefetchReason::Missing, now);
        } else if body.names.is_empty() {
            self.place(head, &Pieces { copies: &copies, literals, named: Vec::new() }, now);
        } else {
            self.fetch(&Wanted { head, copies: &copies, literals, entries: &body.names, key: None }, now);
        }
        self.copies = copies;
        self.plain = raw;
    }

    /// Fetches the chunks that a block names; the whole block is asked for if too many wait.
    fn fetch(&mut self, wanted: &Wanted<'_>, now: Now) {
        let wanted = Wanted { key: self.store.key(), ..*wanted };
        self.coming.note(&wanted.head);
        if !self.fetching.start(&wanted, &self.arrived, self.patience, now) {
            self.ask_again(&wanted.head, RefetchReason::Missing, now);
        }
    }

    /// Fetches what blocks name for which there was no room: something of the others may have come, or was given up.
    pub(crate) fn fetch_queued(&mut self, now: Now) {
        let Self { fetching, store, arrived, .. } = self;
        if let Some(head) = fetching.start_queued(store.key(), arrived, self.patience, now) {
            self.ask_again(&head, RefetchReason::Missing, now);
        }
    }

    /// Asks for blocks that should be there and bring chunks that others name. They may still come as they were sent,
    /// so they are not among the missing ones.
    pub(crate) fn ask_for_awaited(&mut self, now: Now) {
        let Self { fetching, parked, missing, .. } = self;
        let seqs = fetching.overdue_blocks(now, self.patience, MAX_RANGES, |seq| {
            parked.contains(seq) || missing.contains(seq)
        });
        if !seqs.is_empty() {
            self.stats.refetched += seqs.len() as u64;
            self.frames.push_back(Frame::Refetch(Refetch { reason: RefetchReason::Missing, seqs }));
        }
    }

    /// Rebuilds the block if what it copies from is there; parks it or asks for it again if not.
    pub(crate) fn place(&mut self, head: Head, pieces: &Pieces<'_>, now: Now) {
        self.work += pieces.copies.len() as u64;
        match self.sources(head.epoch, pieces.copies) {
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
                    deadline: now + self.patience,
                    interval: self.patience,
                    asked: false,
                });
            }
            Sources::Gone => self.ask_again(&head, RefetchReason::Missing, now),
            Sources::GivenUp => self.note_given_up(&head, now),
            Sources::Overwritten => self.note_overwritten(&head, now),
        }
    }

    fn sources(&mut self, epoch: u64, copies: &[Copy]) -> Sources {
        let floor = self.highest.saturating_sub(self.log.capacity());
        // Nearly always all is there that lies between them, which is one look-up and not one for each.
        let start = copies.iter().map(|copy| copy.source.0).min().unwrap_or_default();
        let end = copies.iter().map(|copy| copy.source_end().0).max().unwrap_or_default();
        let is_held = start >= floor.max(self.held.base);
        if epoch == self.epoch && is_held && self.written.contains(&(start..end)) {
            return Sources::Present;
        }
        self.stats.steps += copies.len() as u64;
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
            lacks = lacks.max(self.written.last_missing(&range));
        }
        lacks.map_or(Sources::Present, Sources::Waiting)
    }

    /// The sending half is told again what is held: it may have missed it.
    fn note_given_up(&mut self, head: &Head, now: Now) {
        self.stats.given_up += 1;
        self.held.tell();
        self.ask_again(head, RefetchReason::Missing, now);
    }

    fn note_overwritten(&mut self, head: &Head, now: Now) {
        self.stats.overwritten += 1;
        self.ask_again(head, RefetchReason::Missing, now);
    }

    fn park(&mut self, parked: Parked) {
        let head = parked.head;
        if self.parked.park(parked) {
            self.coming.note(&head);
        } else {
            self.ask_again(&head, RefetchReason::Missing, self.now);
        }
    }

    /// Goes on with parked blocks whose ranges have come, until none is left that can, or they have been enough work for
    /// once.
    pub(crate) fn wake_parked(&mut self, now: Now) {
        let enough = self.work() + WORK_AT_ONCE;
        while self.work() < enough
            && let Some(parked) = self.parked.take_ready()
        {
            self.go_on(parked, now);
        }
    }

    /// Looks again at a block that was parked.
    pub(crate) fn go_on(&mut self, mut parked: Parked, now: Now) {
        match self.sources(parked.head.epoch, &parked.copies) {
            Sources::Present => {
                let Parked { head, copies, literals, named, .. } = parked;
                self.rebuild(head, &Pieces { copies: &copies, literals: &literals, named }, now);
            }
            Sources::Waiting(lacks) if parked.wakes < MOST_WAKES => {
                (parked.lacks, parked.wakes) = (lacks, parked.wakes + 1);
                (parked.deadline, parked.interval) = (now + self.patience, self.patience);
                parked.asked = false;
                self.park(parked);
            }
            Sources::Waiting(_) | Sources::Gone => {
                self.ask_again(&parked.head, RefetchReason::Missing, now);
            }
            Sources::GivenUp => self.note_given_up(&parked.head, now),
            Sources::Overwritten => self.note_overwritten(&parked.head, now),
        }
    }

    fn matches(&mut self, head: &Head, plain: &[u8]) -> bool {
        match head.digest {
            Digest::Fast(digest) => block_digest(self.digest_seed, head.epoch, plain) == digest,
            Digest::Strong(digest) => self.strong.digest(head.epoch, plain) == digest,
        }
    }

    /// The verify gate: no coded block is written, acknowledged or delivered but through here.
    fn rebuild(&mut self, head: Head, pieces: &Pieces<'_>, now: Now) {
        let Pieces { copies, literals, named } = pieces;
        let mut plain = self.buffers.take(head.plain_len);
        let copied: u64 = copies.iter().map(|copy| u64::from(copy.len)).sum();
        self.work += copies.len() as u64 + head.plain_len as u64 / BYTES_PER_STEP;
        if named.is_empty() {
            tokens::rebuild(copies, literals, head.plain_len, &self.log, &mut plain);
        } else {
            let chunks: usize = named.iter().map(|(_, chunk)| chunk.len()).sum();
            self.residue.clear();
            let residue = head.plain_len.saturating_sub(chunks);
            tokens::rebuild(copies, literals, residue, &self.log, &mut self.residue);
            interleave(named, &self.residue, &mut plain);
        }
        if plain.len() != head.plain_len || !self.matches(&head, &plain) {
            self.failed_resends += u32::from(head.resent);
            return self.ask_again(&head, RefetchReason::Mismatch, now);
        }
        self.stats.copied += copied;
        let plain = self.buffers.freeze(plain);
        self.keep(&head, &plain);
        if head.remembered && head.epoch == self.epoch {
            self.remember(head.start, &plain);
        }
        self.deliver(head, plain, crate::stream::receiver::acks::DELAY, now);
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
        self.parked.handle_written(&(start..end));
        self.highest = self.highest.max(end);
        self.raise_base(self.highest.saturating_sub(self.limit()));
        self.bound_ranges();
        if self.persist {
            self.writes.push_back(LogWrite { epoch: self.epoch, start, plain: plain.clone() });
        }
    }

    /// Hands on what has come, which is acknowledged after so long at the latest.
    pub(crate) fn deliver(&mut self, head: Head, plain: Bytes, waits: Now, now: Now) {
        self.stats.blocks += 1;
        self.stats.plain += plain.len() as u64;
        self.acknowledge(head.seq, waits, now);
        self.fetching.handle_arrived(head.seq, now);
        self.deliveries.push_back(Delivery::Data {
            flow: head.flow,
            offset: head.offset,
            plain,
            fin: head.fin,
        });
    }
}

/// Bytes of a block that are as much work as one step.
const BYTES_PER_STEP: u64 = 32;
/// Work that blocks may be which wait, in steps, before others have their turn: some milliseconds.
const WORK_AT_ONCE: u64 = 128 << 10;

/// What a block is rebuilt from.
pub(crate) struct Pieces<'a> {
    pub(crate) copies: &'a [Copy],
    pub(crate) literals: &'a [u8],
    /// Chunks that the block names, and where they stand, in order; copies and literals make up what they leave.
    pub(crate) named: Vec<(u32, Bytes)>,
}

/// Appends the block that chunks and what they leave of it make up.
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

/// The outcome of an attempt to rebuild a block.
enum Sources {
    Present,
    /// The last byte that has not arrived.
    Waiting(u64),
    /// Of an epoch that is over, or not begun.
    Gone,
    /// Within the log's capacity, but given up here before the sender heard of it.
    GivenUp,
    /// Below the window of the log: the sender broke rule 3.
    Overwritten,
}
