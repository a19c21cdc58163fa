//! The receiving half: rebuilds blocks, verifies them, and keeps the log in step.

mod chunks;
mod frames;
mod ports;
mod rebuild;

use std::collections::VecDeque;

use self::rebuild::Scratch;
use crate::Now;
use crate::contract::{
    Arrival, Decoder, DecoderLog, Delivery, LogStart, PeerFault, PeerSender, ReceiveEvent, ReceiveStats,
    SavedLog, StorePort,
};
use crate::endre::log_decoder::LogDecoder;
use crate::entropy::EntropyDecoder;
use crate::transfer::coming::Coming;
use crate::transfer::parking::Parking;
use crate::transfer::{Head, Incoming};
use crate::verify::{Gate, StrongKind};
use crate::wanax::fetching::Fetching;
use crate::wanax::store_side::StoreSide;
use crate::wire::{FlowId, Frame, LaneId, RefetchReason, WireError};

/// How a receiving half is set up.
#[derive(Clone, Debug)]
pub struct ReceiverConfig {
    /// Bytes of log offered for this direction.
    pub capacity: u64,
    /// The peer's bound on log bytes that are not acknowledged.
    pub max_in_flight: u64,
    /// Streaming contexts granted to the peer.
    pub contexts: usize,
    /// Seed of the peer's block digests.
    pub digest_seed: u64,
    /// Whether [`DecoderLog::poll_log_write`] is drained.
    pub persist: bool,
    /// Whether what comes is put into a chunk store, and [`StorePort::poll_chunk_store`] is drained.
    pub store: bool,
}

/// The receiving half of the stream codec.
pub struct Receiver {
    contexts: usize,
    transfer: Incoming,
    log: LogDecoder,
    entropy: EntropyDecoder,
    gate: Gate,
    parked: Parking,
    coming: Coming,
    fetching: Fetching,
    store: StoreSide,
    /// The time as it was last told.
    now: Now,
    events: VecDeque<ReceiveEvent>,
    deliveries: VecDeque<Delivery>,
    stats: ReceiveStats,
    /// The work of rebuilding, in steps.
    work: u64,
    scratch: Scratch,
}

impl Receiver {
    /// Starts with an empty log.
    pub fn new(config: ReceiverConfig) -> Self {
        Self {
            contexts: config.contexts,
            transfer: Incoming::default(),
            log: LogDecoder::new(config.capacity, config.max_in_flight, config.persist),
            entropy: EntropyDecoder::new(config.contexts),
            gate: Gate::new(config.digest_seed, StrongKind::default()),
            parked: Parking::default(),
            coming: Coming::default(),
            fetching: Fetching::default(),
            store: StoreSide::new(config.store),
            now: Now::ZERO,
            events: VecDeque::new(),
            deliveries: VecDeque::new(),
            stats: ReceiveStats::default(),
            work: 0,
            scratch: Scratch::default(),
        }
    }

    /// Starts with a log found on disk, as much of it as there is room for.
    pub fn with_log(config: ReceiverConfig, saved: SavedLog) -> Self {
        let mut receiver = Self::new(config);
        receiver.log.restore(saved);
        receiver
    }

    /// Counts and reports the start of a log.
    fn note_start(&mut self, start: LogStart) {
        self.stats.log_starts.count(start);
        self.events.push_back(ReceiveEvent::LogStarts { epoch: self.log.epoch(), start });
    }

    /// Requests a block again.
    fn refetch(&mut self, head: &Head, reason: RefetchReason, now: Now) {
        match reason {
            RefetchReason::Missing => self.stats.refetched += 1,
            RefetchReason::Mismatch => self.stats.mismatches += 1,
        }
        self.transfer.refetch(head, reason, now);
    }

    /// Gives up the missing bytes of a late block, once all blocks before it have arrived: offsets follow the order of
    /// blocks, so none under way brings them, and the sending half takes them for held until it hears otherwise.
    fn give_up_missing(&mut self, now: Now) {
        if self.log.is_released() {
            return;
        }
        let Some(parked) = self.parked.take_late(self.transfer.arrived.next(), now) else { return };
        if let Some(last) = self.log.last_missing(&parked.copies) {
            self.log.give_up_below(last + 1);
            self.drop_given_up();
        }
        self.go_on(parked, now);
    }

    /// Puts together the ranges of blocks being fetched, and of those behind them: they will come, and a request would bring
    /// them twice. Only if a block is late does that matter.
    fn look_for_coming(&mut self, now: Now) {
        let is_stale = self.coming.is_stale(now);
        let is_any_late = self.parked.deadline().is_some_and(|deadline| deadline <= now);
        if self.fetching.is_empty() || (is_stale && !is_any_late) {
            self.coming = Coming::default();
        } else if is_stale {
            let mut ranges = crate::log::RangeSet::default();
            self.fetching.ranges().chain(self.parked.ranges()).for_each(|range| ranges.insert(range));
            self.stats.steps += ranges.len() as u64;
            self.coming.set(ranges, self.transfer.patience, now);
        }
    }
}

impl Decoder for Receiver {
    fn handle_frame(
        &mut self,
        kind: u8,
        body: &[u8],
        lane: LaneId,
        now: Now,
    ) -> Result<Option<Arrival>, PeerFault> {
        match Frame::decode(kind, body)? {
            Frame::Block(block) => self.read_block(block, lane, now).map(Some),
            Frame::More(more) => {
                let block = self.transfer.continued(more, lane)?;
                self.read_block(block, lane, now).map(Some)
            }
            Frame::Message { seq, flow, message } => {
                self.handle_message(seq, flow, message, now)?;
                Ok(Some(Arrival::Item { flow, seq, is_resent: false, end: None }))
            }
            Frame::SavingsCurve(worth) => {
                self.handle_savings(&worth);
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

    fn handle_lane_lost(&mut self, lane: LaneId) {
        self.transfer.lose_lane(lane);
    }

    fn handle_peer(&mut self, peer: PeerSender) {
        let PeerSender { capacity, max_in_flight, digest_seed, names, strong, continues, probe } = peer;
        self.transfer.meet(continues);
        self.gate = Gate::new(digest_seed, strong);
        self.entropy = EntropyDecoder::new(self.contexts);
        self.parked.clear();
        self.coming = Coming::default();
        self.fetching.clear();
        self.store.meet(names);
        self.log.meet(capacity, max_in_flight);
        probe.into_iter().for_each(|probe| self.handle_probe(probe));
    }

    fn handle_timeout(&mut self, now: Now) {
        self.transfer.acks.handle_timeout(now);
        self.wake_parked(now);
        if self.transfer.has_requests() {
            return;
        }
        self.now = now;
        self.fetching.handle_timeout(now);
        self.request_awaited(now);
        self.give_up_missing(now);
        // Blocks behind a log on disk are not requested again meanwhile.
        if !self.log.is_released() {
            self.look_for_coming(now);
            let known = [self.log.written(), &self.coming.ranges];
            let (ranges, hopeless) = self.parked.overdue(now, self.transfer.patience, known);
            self.transfer.need(&ranges);
            for seq in hopeless {
                if let Some(parked) = self.parked.take(seq) {
                    self.refetch(&parked.head, RefetchReason::Missing, now);
                }
            }
        }
        self.transfer.handle_timeout(now);
    }

    fn poll_timeout(&self) -> Option<Now> {
        if self.parked.has_ready() {
            return Some(self.now);
        }
        let acks = self.transfer.acks.deadline();
        if self.transfer.has_requests() {
            // They have not even left: more requests do not help.
            return acks;
        }
        let parked = self.parked.deadline().filter(|_| !self.log.is_released());
        let fetching = self.fetching.deadline().filter(|_| !self.fetching.has_requests());
        [parked, self.transfer.refetches.deadline(), acks, fetching].into_iter().flatten().min()
    }

    fn poll_feedback(&mut self, lane: LaneId, flush: bool, out: &mut Vec<u8>) -> bool {
        let before = out.len();
        self.transfer.put_acked(lane, flush, out);
        self.poll_frame(flush, out);
        out.len() > before
    }

    fn has_urgent_frame(&self) -> bool {
        self.log.is_report_due()
            || self.store.is_due()
            || self.transfer.has_requests()
            || self.fetching.has_requests()
            || self.transfer.acks.are_due()
    }

    fn poll_payload(&mut self) -> Option<Delivery> {
        self.deliveries.pop_front()
    }

    fn holds(&self, flow: FlowId, before: u64) -> bool {
        self.fetching.holds(flow, before)
            || self.parked.holds(flow, before)
            || self.transfer.refetches.holds(flow, before)
    }

    fn poll_event(&mut self) -> Option<ReceiveEvent> {
        self.events.pop_front()
    }

    fn work(&self) -> u64 {
        self.work + self.steps()
    }

    fn stats(&self) -> ReceiveStats {
        ReceiveStats {
            epoch: self.log.epoch(),
            log_capacity: self.log.log().capacity(),
            log_limit: self.log.limit(),
            released: self.log.is_released(),
            log_used: self.log.written().total(),
            curve: self.log.curve(),
            chunks: self.chunk_stats(),
            steps: self.steps(),
            memory: self.log.log().memory()
                + (self.entropy.memory() + self.parked.bytes() + self.fetching.bytes()) as u64,
            ..self.stats
        }
    }

    fn resend_control_state(&mut self, now: Now) {
        self.now = now;
        self.transfer.resend_control_state();
        self.log.resend_report();
        self.store.resend_control_state();
        self.fetching.resend_control_state();
        self.parked.resend_control_state();
    }

    fn handle_patience(&mut self, patience: Now) {
        self.transfer.patience = patience;
    }

    fn log(&self) -> Option<&dyn DecoderLog> {
        Some(self)
    }

    fn log_mut(&mut self) -> Option<&mut dyn DecoderLog> {
        Some(self)
    }

    fn store(&self) -> Option<&dyn StorePort> {
        Some(self)
    }

    fn store_mut(&mut self) -> Option<&mut dyn StorePort> {
        Some(self)
    }
}

impl Receiver {
    /// Looks at waiting blocks and at the log, in steps.
    fn steps(&self) -> u64 {
        self.stats.steps + self.log.steps + self.parked.steps
    }
}

/// Small bounds, and damage.
#[cfg(test)]
impl Receiver {
    /// Leaves room for so many bytes of fetched blocks, of the oldest beyond that, and of those in the queue, and for so
    /// many reads.
    pub(super) fn set_room(&mut self, [fetching, oldest, queued, reads]: [usize; 4]) {
        self.fetching.room = crate::wanax::fetching::queue::Room { fetching, oldest, queued, reads };
    }

    /// Bounds the ranges remembered of the log.
    pub(super) fn set_few_ranges(&mut self, few: Option<usize>) {
        self.log.few_ranges = few;
    }

    /// Changes a byte of the log behind the cache's back.
    pub(super) fn damage(&mut self, offset: u64) {
        self.log.damage(offset);
    }
}
