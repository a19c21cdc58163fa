//! The receiving half: rebuilds blocks from the log, verifies them, and keeps the log in step.

mod acks;
mod coming;
mod epochs;
mod frames;
mod held;
mod ports;
mod rebuild;
mod store;

use std::collections::{BTreeMap, VecDeque};

use self::acks::PendingAcks;
use self::coming::Coming;
use self::epochs::Claimed;
use self::frames::LaneState;
use self::held::{Held, Released};
use self::store::StoreSide;
use super::buffers::BlockBuffers;
use crate::Now;
use crate::contract::{
    Arrival, Decoder, DecoderLog, Delivery, LogWrite, PeerFault, PeerSender, ReceiveEvent, ReceiveStats,
    SavedLog, StorePort,
};
use crate::endre::matcher::Copy;
use crate::entropy::Decompressor;
use crate::log::{Arrived, Log, RangeSet};
use crate::transfer::parking::Parking;
use crate::transfer::refetch::Missing;
use crate::transfer::{Head, MAX_UNACKED};
use crate::verify::strong::{StrongDigests, StrongKind};
use crate::wanax::fetching::Fetching;
use crate::wire::{FlowId, Frame, LaneId, MAX_RANGES, Range64, Refetch, RefetchReason};

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

/// The receiving half of EndRE, whichever way the sending half found its copies.
pub struct Receiver {
    contexts: usize,
    max_in_flight: u64,
    digest_seed: u64,
    strong: StrongDigests,
    log: Log,
    epoch: u64,
    /// Set while the peer is new and names its epoch with its first coded block: how far beyond that block what came of the
    /// one before may reach.
    epoch_open: Option<u64>,
    claimed: Claimed,
    events: VecDeque<ReceiveEvent>,
    /// At most [`Receiver::most_ranges`] ranges.
    written: RangeSet,
    highest: u64,
    /// What is held of the log, and what is to be said of it.
    held: Held,
    /// Set while the log's memory is given back.
    released: Option<Released>,
    arrived: Arrived,
    /// What the halves said last on each lane.
    lanes: BTreeMap<LaneId, LaneState>,
    /// Whether the peer understands one number as an acknowledgement.
    continues: bool,
    decompressor: Decompressor,
    /// The lane that each context was started on, and the block that did; only blocks of that lane are in step with it.
    context_lanes: BTreeMap<usize, (LaneId, u64)>,
    parked: Parking,
    coming: Coming,
    fetching: Fetching,
    store: StoreSide,
    /// The time as it was last told.
    now: Now,
    /// Blocks that were asked for again, and when to repeat that.
    missing: Missing,
    acks: PendingAcks,
    frames: VecDeque<Frame<'static>>,
    deliveries: VecDeque<Delivery>,
    persist: bool,
    writes: VecDeque<LogWrite>,
    patience: Now,
    stats: ReceiveStats,
    /// What rebuilding has taken, in steps.
    work: u64,
    /// Blocks that were sent again and were wrong again.
    failed_resends: u32,
    copies: Vec<Copy>,
    plain: Vec<u8>,
    /// A block without what is named.
    residue: Vec<u8>,
    buffers: BlockBuffers,
    /// In place of [`Self::most_ranges`].
    #[cfg(test)]
    pub(crate) few_ranges: Option<usize>,
}

const DEFAULT_PATIENCE: Now = Now::from_millis(200);
/// Frames that wait for a lane before no more single blocks are asked for again: some hundred kilobytes, if a peer sends
/// what is wrong and takes nothing.
const MAX_QUEUED_FRAMES: usize = 4096;
/// Blocks that are sent again hold all that they consist of, so that they are right unless memory fails; with more wrong
/// ones than this, the lane ends.
const MOST_FAILED_RESENDS: u32 = 16;

impl Receiver {
    /// Starts with an empty log.
    pub fn new(config: ReceiverConfig) -> Self {
        Self {
            contexts: config.contexts,
            max_in_flight: config.max_in_flight,
            digest_seed: config.digest_seed,
            strong: StrongDigests::new(config.digest_seed, StrongKind::default()),
            log: Log::new(config.capacity as usize),
            epoch: 0,
            epoch_open: Some(config.max_in_flight),
            claimed: Claimed::default(),
            events: VecDeque::new(),
            written: RangeSet::default(),
            highest: 0,
            held: Held::new(config.capacity),
            released: None,
            arrived: Arrived::default(),
            decompressor: Decompressor::new(config.contexts),
            context_lanes: BTreeMap::new(),
            parked: Parking::default(),
            coming: Coming::default(),
            fetching: Fetching::default(),
            store: StoreSide::new(config.store),
            now: Now::ZERO,
            missing: Missing::default(),
            acks: PendingAcks::default(),
            frames: VecDeque::new(),
            deliveries: VecDeque::new(),
            persist: config.persist,
            writes: VecDeque::new(),
            patience: DEFAULT_PATIENCE,
            stats: ReceiveStats::default(),
            work: 0,
            failed_resends: 0,
            lanes: BTreeMap::new(),
            continues: false,
            copies: Vec::new(),
            plain: Vec::new(),
            residue: Vec::new(),
            buffers: BlockBuffers::default(),
            #[cfg(test)]
            few_ranges: None,
        }
    }

    /// Starts with a log that was found on disk, with as much of it as there is room for.
    pub fn with_log(config: ReceiverConfig, saved: SavedLog) -> Self {
        let mut receiver = Self::new(config);
        let saved = saved.fit(receiver.log.capacity());
        receiver.epoch = saved.epoch;
        receiver.highest = saved.ranges.iter().next_back().map_or(0, |range| range.end);
        receiver.written = saved.ranges;
        receiver.log = saved.log;
        receiver
    }

    /// Leaves room for so many bytes of blocks that are fetched, of the oldest beyond that, and of those that wait, and
    /// for so many reads.
    #[cfg(test)]
    pub(crate) fn set_room(&mut self, [fetching, oldest, queued, reads]: [usize; 4]) {
        self.fetching.room = crate::wanax::fetching::queue::Room { fetching, oldest, queued, reads };
    }

    /// Changes a byte of the log behind the cache's back.
    #[cfg(test)]
    pub(crate) fn damage(&mut self, offset: u64) {
        let mut byte = Vec::new();
        self.log.copy_to(crate::log::LogOffset(offset), 1, &mut byte);
        self.log.write(crate::log::LogOffset(offset), &[!byte[0]]);
    }

    fn check_seq(&self, seq: u64) -> Result<(), PeerFault> {
        let next = self.arrived.next();
        // Messages need no credit, hence twice the bound on what the sender keeps.
        if seq >= next.saturating_add(2 * MAX_UNACKED) {
            Err(PeerFault::TooFarAhead { seq, next })
        } else {
            Ok(())
        }
    }

    fn ask_again(&mut self, head: &Head, reason: RefetchReason, now: Now) {
        match reason {
            RefetchReason::Missing => self.stats.refetched += 1,
            RefetchReason::Mismatch => self.stats.mismatches += 1,
        }
        // A block that fails again waits for its turn: the peer decides how often it comes.
        if self.missing.contains(head.seq) {
            return;
        }
        if self.frames.len() < MAX_QUEUED_FRAMES {
            self.missing.insert(head, reason, self.patience, now);
            self.frames.push_back(Frame::Refetch(Refetch { reason, seqs: vec![head.seq] }));
        } else {
            self.missing.insert_late(head, reason, now);
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
        self.take_frame(kind, body, lane, now)
    }

    fn handle_lane_lost(&mut self, lane: LaneId) {
        self.lanes.remove(&lane);
    }

    fn handle_peer(&mut self, peer: PeerSender) {
        let PeerSender { capacity, max_in_flight, digest_seed, names, strong, continues, probe } = peer;
        (self.lanes, self.continues) = (BTreeMap::new(), continues);
        self.epoch_open = Some(self.max_in_flight.max(max_in_flight));
        self.max_in_flight = max_in_flight;
        self.digest_seed = digest_seed;
        self.strong = StrongDigests::new(digest_seed, strong);
        self.arrived = Arrived::default();
        self.parked.clear();
        self.coming = Coming::default();
        self.fetching.clear();
        self.store.meet(names);
        self.missing.clear();
        self.acks = PendingAcks::default();
        self.frames.clear();
        self.decompressor = Decompressor::new(self.contexts);
        self.context_lanes.clear();
        (self.held.wished, self.held.worth_serial) = (u64::MAX, 0);
        self.failed_resends = 0;
        if self.claim().is_none() {
            // Nothing is claimed, so the peer may begin again with any epoch and offset.
            self.start_epoch(0, Now::ZERO);
        }
        if self.log.capacity() != capacity {
            self.resize(capacity);
        }
        self.apply_limit();
        self.claimed = Claimed::of(self.claim());
        probe.into_iter().for_each(|probe| self.handle_probe(probe));
    }

    fn handle_timeout(&mut self, now: Now) {
        self.acks.waited_enough |= self.acks.due.is_some_and(|due| due <= now);
        self.wake_parked(now);
        if !self.frames.is_empty() {
            return;
        }
        self.now = now;
        self.fetching.handle_timeout(now);
        self.ask_for_awaited(now);
        self.give_up_what_cannot_come(now);
        // Blocks that wait for what is read from disk are not asked for again meanwhile.
        let (ranges, hopeless) = match self.released {
            Some(_) => Default::default(),
            None => {
                self.look_for_coming(now);
                self.parked.overdue(now, self.patience, [&self.written, &self.coming.ranges])
            }
        };
        let ranges: Vec<Range64> = ranges.iter().collect();
        self.frames.extend(ranges.chunks(MAX_RANGES).map(|ranges| Frame::Need(ranges.to_vec())));
        for seq in hopeless {
            if let Some(parked) = self.parked.take(seq) {
                self.ask_again(&parked.head, RefetchReason::Missing, now);
            }
        }
        for (reason, seqs) in self.missing.overdue(now, self.patience, MAX_RANGES) {
            self.frames.push_back(Frame::Refetch(Refetch { reason, seqs }));
        }
    }

    fn poll_timeout(&self) -> Option<Now> {
        if self.parked.has_ready() {
            return Some(self.now);
        }
        let acks = self.acks.due.filter(|_| !self.acks.are_due());
        if !self.frames.is_empty() {
            // What was asked for has not even left: asking more often does not help.
            return acks;
        }
        let parked = self.parked.deadline().filter(|_| self.released.is_none());
        let fetching = self.fetching.deadline().filter(|_| !self.fetching.has_requests());
        [parked, self.missing.deadline(), acks, fetching].into_iter().flatten().min()
    }

    fn poll_feedback(&mut self, lane: LaneId, flush: bool, out: &mut Vec<u8>) -> bool {
        self.put_feedback(lane, flush, out)
    }

    fn has_urgent_frame(&self) -> bool {
        self.held.due
            || self.store.is_due()
            || !self.frames.is_empty()
            || self.fetching.has_requests()
            || self.acks.are_due()
    }

    fn poll_payload(&mut self) -> Option<Delivery> {
        self.deliveries.pop_front()
    }

    fn holds(&self, flow: FlowId, before: u64) -> bool {
        self.fetching.holds(flow, before)
            || self.parked.holds(flow, before)
            || self.missing.holds(flow, before)
    }

    fn poll_event(&mut self) -> Option<ReceiveEvent> {
        self.events.pop_front()
    }

    fn work(&self) -> u64 {
        self.work + self.stats.steps + self.parked.steps
    }

    fn stats(&self) -> ReceiveStats {
        ReceiveStats {
            epoch: self.epoch,
            log_capacity: self.log.capacity(),
            log_limit: self.limit(),
            released: self.released.is_some(),
            log_used: self.written.total(),
            curve: self.held.curve,
            chunks: self.chunk_stats(),
            steps: self.stats.steps + self.parked.steps,
            memory: self.log.memory()
                + (self.decompressor.memory() + self.parked.bytes() + self.fetching.bytes()) as u64,
            ..self.stats
        }
    }

    fn resend_control_state(&mut self, now: Now) {
        self.now = now;
        self.acks.restate = true;
        if self.held.serial > 0 {
            self.held.tell();
        }
        self.store.restate();
        self.fetching.restate();
        self.parked.restate();
        self.frames.clear();
        self.missing.restate();
    }

    fn handle_patience(&mut self, patience: Now) {
        self.patience = patience;
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
