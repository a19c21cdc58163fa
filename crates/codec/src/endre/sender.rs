//! The sending half: remembers what the peer remembers, and refers to it [EndRE §4, §5.2.2].

mod recovery;

use std::collections::{BTreeMap, VecDeque};

use super::matcher::{Copy, MatchParams, MaxMatch, Search, next_hint};
use super::slots::Slots;
use super::tokens;
use crate::Now;
use crate::cache::{Content, Item, Ledger, Log, LogOffset, Repair};
use crate::contract::{
    Feedback, LogWrite, Payload, PeerFault, PeerState, SavedLog, SendEvent, SendStats, SendingHalf,
};
use crate::digest::block_digest;
use crate::entropy::{Compressor, Entropy, Mode};
use crate::wire::{Ack, Block, BlockBody, Body, FlowId, Frame, LaneId, Message, Range64};

/// How a sending half is set up.
#[derive(Clone, Debug)]
pub struct SenderConfig {
    /// Bytes of log offered for this direction.
    pub capacity: u64,
    /// Bound on log bytes that are not acknowledged; `None`: a quarter of the log.
    pub max_in_flight: Option<u64>,
    /// The entropy stage.
    pub entropy: Entropy,
    /// Streaming contexts kept at most.
    pub contexts: usize,
    /// Marker period and window.
    pub params: MatchParams,
    /// Seed of the block digests, drawn at random.
    pub digest_seed: u64,
    /// Whether [`SendingHalf::poll_store`] is drained.
    pub persist: bool,
}

/// The sending half of EndRE with Max-Match.
pub struct Sender {
    config: SenderConfig,
    log: Log,
    epoch: u64,
    /// First offset of the epoch that may be referred to.
    base: u64,
    head: u64,
    /// Ranges below the head that the receiver does not have.
    holes: Vec<Range64>,
    matcher: MaxMatch,
    ledger: Ledger,
    slots: Slots,
    compressor: Compressor,
    /// Where the flow's next bytes would stand if it goes on repeating what it repeated.
    diagonals: BTreeMap<FlowId, LogOffset>,
    recent_mismatches: VecDeque<Now>,
    events: VecDeque<SendEvent>,
    writes: VecDeque<LogWrite>,
    stats: SendStats,
    scratch: Scratch,
    #[cfg(test)]
    pub(super) planted_error: bool,
}

#[derive(Default)]
struct Scratch {
    copies: Vec<Copy>,
    tokens: Vec<u8>,
    literals: Vec<u8>,
    body: Vec<u8>,
    settled: Vec<FlowId>,
    /// Whether the block is to be indexed as a whole once it is in the log.
    reindex: bool,
}

/// What [`Sender::encode`] made of a block; the body lies in the scratch or is the plain bytes.
struct Encoded {
    remembered: bool,
    tokens: Option<usize>,
    literals: usize,
    entropy: Option<(crate::entropy::Kind, Mode)>,
    sources: Vec<Range64>,
}

/// A block is not remembered again if at most one byte in this many is new: what is new and not remembered is
/// paid for again with every repeat.
const NEW_SHARE: usize = 500;

impl Sender {
    /// Starts with an empty log.
    pub fn new(config: SenderConfig) -> Self {
        Self {
            log: Log::new(config.capacity as usize),
            epoch: 1,
            base: 0,
            head: 0,
            holes: Vec::new(),
            matcher: MaxMatch::new(config.capacity, config.params),
            ledger: Ledger::default(),
            slots: Slots::new(config.contexts),
            compressor: Compressor::new(config.entropy, config.contexts),
            diagonals: BTreeMap::new(),
            recent_mismatches: VecDeque::new(),
            events: VecDeque::new(),
            writes: VecDeque::new(),
            stats: SendStats::default(),
            scratch: Scratch::default(),
            #[cfg(test)]
            planted_error: false,
            config,
        }
    }

    /// Starts with a log that was found on disk; one of another capacity is left aside.
    pub fn with_log(config: SenderConfig, saved: SavedLog) -> Self {
        let mut sender = Self::new(config);
        let ends = saved.ranges.iter().next().zip(saved.ranges.iter().next_back());
        let Some((first, last)) = ends.filter(|_| saved.log.capacity() == sender.log.capacity()) else {
            return sender;
        };
        sender.epoch = saved.epoch;
        (sender.base, sender.head) = (first.start, last.end);
        saved.ranges.missing(&(first.start..last.end), &mut sender.holes);
        for range in saved.ranges.iter() {
            sender.matcher.index(&saved.log, LogOffset(range.start)..LogOffset(range.end));
        }
        sender.log = saved.log;
        sender
    }

    fn max_in_flight(&self) -> u64 {
        let capacity = self.log.capacity();
        self.config.max_in_flight.unwrap_or(capacity / 4).min(capacity)
    }

    /// Rule 3: the first offset that a block encoded now may refer to.
    fn floor(&self) -> u64 {
        let window = self.log.capacity() - self.max_in_flight();
        #[cfg(test)]
        if self.planted_error {
            return self.ledger.oldest_start().unwrap_or(self.head).saturating_sub(window).max(self.base);
        }
        self.head.saturating_sub(window).max(self.base)
    }

    /// Rule 2: whether `len` more bytes may be remembered now.
    fn may_remember(&self, len: usize) -> bool {
        let oldest = self.ledger.oldest_start().unwrap_or(self.head);
        self.head + len as u64 - oldest <= self.max_in_flight()
    }

    fn encode(&mut self, flow: FlowId, lane: LaneId, plain: &[u8]) -> Encoded {
        let may_remember = self.may_remember(plain.len());
        let remembered = self.eliminate(flow, plain, may_remember);
        let Scratch { copies, tokens, literals, body, .. } = &mut self.scratch;
        tokens.clear();
        literals.clear();
        body.clear();
        let parts: [&[u8]; 2] = if copies.is_empty() {
            [&[], plain]
        } else {
            tokens::encode(copies, plain, LogOffset(self.head), tokens, literals);
            [tokens, literals]
        };
        let mut entropy = None;
        if let Some(kind) = self.config.entropy.kind()
            && !plain.is_empty()
        {
            let mode = match kind {
                crate::entropy::Kind::Zstd => self.slots.mode(flow, lane, &self.ledger),
                crate::entropy::Kind::Lz4 => Mode::Alone,
            };
            if self.compressor.compress(mode, &parts, body) {
                entropy = Some((kind, mode));
            }
        }
        if entropy.is_none() && !copies.is_empty() {
            body.extend_from_slice(parts[0]);
            body.extend_from_slice(parts[1]);
        }
        let literals = parts[1].len();
        let tokens = (!copies.is_empty()).then_some(parts[0].len());
        Encoded { remembered, tokens, literals, entropy, sources: merge_sources(copies) }
    }

    /// Finds copies, and remembers the block if it is worth it; returns whether it was.
    fn eliminate(&mut self, flow: FlowId, plain: &[u8], may_remember: bool) -> bool {
        let (at, floor) = (LogOffset(self.head), LogOffset(self.floor()));
        let search = Search { block: plain, at, floor, hint: self.diagonals.get(&flow).copied() };
        let copies = &mut self.scratch.copies;
        self.matcher.find(&self.log, &search, copies);
        if !self.holes.is_empty() {
            self.holes.retain(|hole| hole.end > floor.0);
            let (holes, found) = (&self.holes, copies.len());
            copies.retain(|copy| {
                holes.iter().all(|hole| copy.source_end().0 <= hole.start || copy.source.0 >= hole.end)
            });
            // What lay on a hole was not hashed, but is to be found the next time.
            self.scratch.reindex = copies.len() < found;
        }
        match next_hint(copies, plain.len()) {
            Some(hint) => drop(self.diagonals.insert(flow, hint)),
            None => drop(self.diagonals.remove(&flow)),
        }
        let copied: usize = copies.iter().map(|copy| copy.len as usize).sum();
        self.stats.copied += copied as u64;
        let held = plain.len() - copied <= plain.len() / NEW_SHARE
            && copies.iter().all(|copy| !self.matcher.fades(at, copy.source));
        let remembered = may_remember && !held;
        if remembered {
            self.matcher.remember(&search, copies);
        }
        remembered
    }

    fn handle_ack(&mut self, ack: &Ack) -> Result<(), PeerFault> {
        let last = ack.ranges.last().map_or(ack.next, |range| range.end);
        if last > self.ledger.next_seq() {
            return Err(PeerFault::AckOfUnsent(last));
        }
        let mut settled = std::mem::take(&mut self.scratch.settled);
        self.ledger.acknowledge(ack, &mut settled);
        self.events.extend(settled.drain(..).map(SendEvent::Settled));
        self.scratch.settled = settled;
        Ok(())
    }
}

/// The log ranges that a block's copies read, touching ones merged; neighbours on a diagonal are one.
fn merge_sources(copies: &[Copy]) -> Vec<Range64> {
    let mut sources: Vec<Range64> = Vec::new();
    for copy in copies {
        let (start, end) = (copy.source.0, copy.source.0 + u64::from(copy.len));
        match sources.last_mut() {
            Some(last) if start >= last.start && start <= last.end + 256 => last.end = last.end.max(end),
            _ => sources.push(start..end),
        }
    }
    sources
}

impl SendingHalf for Sender {
    fn handle_payload(&mut self, payload: Payload, lane: LaneId, _now: Now, out: &mut Vec<u8>) {
        let Payload { flow, offset, plain, fin, coded } = payload;
        let (seq, plain_len) = (self.ledger.next_seq(), plain.len());
        self.stats.blocks += 1;
        self.stats.plain += plain_len as u64;
        let mut item = Item {
            flow,
            lane: Some(lane),
            content: Content::Block { offset, plain: plain.clone(), fin, coded },
            epoch: self.epoch,
            start: self.head,
            remembered: false,
            sources: Vec::new(),
            slot: None,
        };
        let body = if coded {
            let encoded = self.encode(flow, lane, &plain);
            item.remembered = encoded.remembered;
            item.sources = encoded.sources;
            if let Some((_, Mode::First(slot) | Mode::Next(slot))) = encoded.entropy {
                item.slot = Some(slot);
                self.slots.used(slot, lane, seq);
            }
            let in_scratch = encoded.entropy.is_some() || encoded.tokens.is_some();
            BlockBody::Coded(Body {
                epoch: self.epoch,
                start: self.head,
                remembered: encoded.remembered,
                digest: block_digest(self.config.digest_seed, self.epoch, &plain),
                tokens: encoded.tokens,
                literals: encoded.literals,
                entropy: encoded.entropy,
                bytes: if in_scratch { &self.scratch.body } else { &plain },
            })
        } else {
            self.stats.uncoded += plain_len as u64;
            BlockBody::Uncoded(&plain)
        };
        Frame::Block(Block { seq, flow, offset, plain_len, fin, resent: false, body }).encode(out);
        if item.remembered {
            self.log.write(LogOffset(self.head), &plain);
            if std::mem::take(&mut self.scratch.reindex) {
                self.matcher.index(&self.log, LogOffset(self.head).range(plain_len as u64));
            }
            if self.config.persist {
                self.writes.push_back(LogWrite { epoch: self.epoch, start: self.head, plain });
            }
            self.head += plain_len as u64;
            self.stats.remembered += plain_len as u64;
        } else if coded && !self.may_remember(plain_len) {
            self.stats.not_remembered += plain_len as u64;
        }
        self.ledger.push(item);
    }

    fn handle_message(&mut self, flow: FlowId, message: Message, lane: LaneId, out: &mut Vec<u8>) {
        let seq = self.ledger.push(Item {
            flow,
            lane: Some(lane),
            content: Content::Message(message.clone()),
            epoch: self.epoch,
            start: self.head,
            remembered: false,
            sources: Vec::new(),
            slot: None,
        });
        Frame::Message { seq, flow, message }.encode(out);
    }

    fn finish_flow(&mut self, flow: FlowId) {
        self.slots.release(flow);
        self.diagonals.remove(&flow);
    }

    fn handle_frame(&mut self, frame: Feedback, now: Now) -> Result<(), PeerFault> {
        match frame {
            Feedback::Ack(ack) => self.handle_ack(&ack)?,
            Feedback::Need(ranges) => ranges.iter().for_each(|range| self.ledger.request_range(range)),
            Feedback::Refetch(refetch) => self.handle_refetch(&refetch, now),
        }
        Ok(())
    }

    fn handle_lane_lost(&mut self, lane: LaneId) {
        let slots = &mut self.slots;
        self.ledger.lose_lane(lane, |item| item.slot.into_iter().for_each(|slot| slots.restart(slot)));
    }

    fn handle_peer_state(&mut self, peer: PeerState) {
        self.ledger.clear();
        self.diagonals.clear();
        let contexts = peer.contexts.min(self.config.contexts);
        self.slots = Slots::new(contexts);
        self.compressor = Compressor::new(self.config.entropy, contexts);
        let claimed = peer.claim.as_ref().map_or(0, |claim| claim.epoch);
        if self.log.capacity() != peer.capacity {
            self.log = Log::new(peer.capacity as usize);
            self.matcher = MaxMatch::new(peer.capacity, self.config.params);
            self.head = 0;
            self.start_epoch(self.epoch.max(claimed) + 1, "another log capacity");
            return;
        }
        let resumed = peer.claim.as_ref().is_some_and(|claim| self.resume_log(claim));
        if !resumed && (self.head > self.base || claimed > 0) {
            self.start_epoch(self.epoch.max(claimed) + 1, "the peer has another log, or none");
        }
    }

    fn has_lost(&self, flow: FlowId) -> bool {
        self.ledger.has_lost(flow)
    }

    fn has_repairs(&self) -> bool {
        self.ledger.has_repairs()
    }

    fn has_room(&self) -> bool {
        self.ledger.has_room()
    }

    fn unacked(&self, flow: FlowId) -> u64 {
        self.ledger.unacked(flow)
    }

    fn poll_lost(&mut self, flow: FlowId, lane: LaneId, out: &mut Vec<u8>) -> bool {
        let Some((seq, item)) = self.ledger.take_lost(flow, lane) else { return false };
        let (content, epoch, range) = (item.content.clone(), item.epoch, item.range());
        self.resend(seq, flow, content, epoch, range, out);
        true
    }

    fn poll_repair(&mut self, out: &mut Vec<u8>) -> bool {
        let Some(Repair { open, seq, item }) = self.ledger.take_repair() else { return false };
        let (flow, content, epoch, range) = (item.flow, item.content.clone(), item.epoch, item.range());
        let open = open.map(|(seq, item)| (seq, item.content.clone()));
        if let Some((open_seq, open)) = open {
            self.resend(open_seq, flow, open, epoch, None, out);
        }
        self.resend(seq, flow, content, epoch, range, out);
        true
    }

    fn poll_store(&mut self) -> Option<LogWrite> {
        self.writes.pop_front()
    }

    fn poll_event(&mut self) -> Option<SendEvent> {
        self.events.pop_front()
    }

    fn stats(&self) -> SendStats {
        let log_used = self.head - self.floor().min(self.head);
        let filled = self.head.min(self.log.capacity());
        let memory =
            filled + (self.matcher.memory() + self.compressor.memory()) as u64 + self.ledger.kept_bytes();
        SendStats {
            epoch: self.epoch,
            log_capacity: self.log.capacity(),
            log_used,
            kept: self.ledger.kept_bytes(),
            unacked: self.ledger.len() as u64,
            memory,
            ..self.stats
        }
    }
}
