//! The sending half: remembers what the peer remembers, and refers to it [EndRE §4, §5.2].

mod cutting;
mod encode;
mod feedback;
mod ports;
mod recovery;
mod short;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use self::encode::{Scratch, Source};
use self::recovery::Suspected;
use crate::contract::{
    AskedOf, Behind, Encoder, EncoderLoad, EncoderLog, EncoderNames, Heard, LogStart, LogWrite, Payload,
    PeerFault, PeerState, Pending, Repair, SavedLog, SendEvent, SendStats,
};
use crate::endre::FIRST_EPOCH;
use crate::endre::density::Density;
use crate::endre::matcher::MatchParams;
use crate::endre::remote_log::{Emulation, Settings};
use crate::entropy::slots::Slots;
use crate::entropy::{Compressor, Entropy, Mode};
use crate::log::{LogOffset, Quotas, RangeSet};
use crate::transfer::lacked::Lacked;
use crate::transfer::{Content, Item, Ledger};
use crate::verify::digest::block_digest;
use crate::verify::strong::{StrongDigests, StrongKind};
use crate::wanax::NamesConfig;
use crate::wanax::naming::{Naming, Tags};
use crate::wanax::price::Spent;
use crate::wire::{Ack, Block, BlockBody, Body, Digest, FlowId, Frame, LaneId, LaneTail, Message, NameEntry};
use crate::{Matching, Now, Plan};

/// How a sending half is set up.
#[derive(Clone, Debug)]
pub struct SenderConfig {
    /// Bytes of log offered for this direction.
    pub capacity: u64,
    /// Bound on log bytes that are not acknowledged; `None`: a quarter of the log.
    pub max_in_flight: Option<u64>,
    /// The entropy stage of what is sent again by itself.
    pub entropy: Entropy,
    /// Streaming contexts kept at most.
    pub contexts: usize,
    /// The tables, and what fingerprints cover.
    pub params: MatchParams,
    /// Whether the log's bytes are kept, as Max-Match needs it. Without them every plan is carried out by
    /// Chunk-Match.
    pub keeps_bytes: bool,
    /// Seed of block digests and chunk hashes, drawn at random.
    pub digest_seed: u64,
    /// Whether [`EncoderLog::poll_log_write`] is drained.
    pub persist: bool,
    /// How chunks are named; `None`: they are not.
    pub names: Option<NamesConfig>,
}

/// The sending half of EndRE.
pub struct Sender {
    config: SenderConfig,
    log: Emulation,
    ledger: Ledger,
    quotas: Quotas,
    slots: Slots,
    compressor: Compressor,
    strong: StrongDigests,
    naming: Option<Naming>,
    /// Chunks that were asked for, by their blocks.
    requested: BTreeMap<u64, BTreeSet<u32>>,
    /// Chunks to be sent on the lane that brought their names, since the peer's store does not have them.
    lacked: Lacked,
    /// Ranges of the log that the peer needs, of which the blocks are looked for when the next repair is sent: however often
    /// they are asked for until then.
    needed: RangeSet,
    /// What the entropy stage made of each flow.
    spent: BTreeMap<FlowId, Spent>,
    /// Where the flow's next bytes would stand if it goes on repeating what it repeated.
    diagonals: BTreeMap<FlowId, LogOffset>,
    /// Where the last block on each lane ended, for a peer that understands what goes on from there.
    tails: Option<BTreeMap<LaneId, LaneTail>>,
    /// What was acknowledged last by a single number on each lane.
    acked: BTreeMap<LaneId, u64>,
    /// How finely each flow is searched.
    densities: BTreeMap<FlowId, Density>,
    recent_mismatches: VecDeque<Suspected>,
    events: VecDeque<SendEvent>,
    writes: VecDeque<LogWrite>,
    /// The bytes of log that this end has memory for.
    limit: u64,
    worth: Worth,
    stats: SendStats,
    scratch: Scratch,
    #[cfg(test)]
    pub(crate) planted_error: bool,
}

/// A log that was released and read again, and its table: all that takes long, done where nobody waits for it.
pub struct PreparedLog(Emulation);

impl PreparedLog {
    /// Builds the table of what was found on disk, for a sending half of this configuration and flows of this plan.
    pub fn new(config: &SenderConfig, saved: SavedLog, plan: &Plan) -> Self {
        let mut log = Emulation::new(config.capacity, Settings::of(config));
        log.restore(saved, plan);
        Self(log)
    }
}

/// What was told of the log's worth.
#[derive(Default)]
struct Worth {
    serial: u64,
    due: bool,
    /// The plain bytes that had been encoded when it was told.
    plain: u64,
    told_at: Now,
    halved_at: Now,
}

/// While there is traffic, what the log is worth is told this often.
const WORTH_EVERY: Now = Now::from_secs(2);
/// What so few bytes change of it is told more seldom.
const WORTH_STEP: u64 = 64 << 10;
const WORTH_SELDOM: Now = Now::from_secs(60);

/// After this time what was saved weighs half.
const CURVE_HALF_LIFE: Now = Now::from_secs(300);

impl Sender {
    /// Starts with an empty log.
    pub fn new(config: SenderConfig) -> Self {
        let (naming, unread) = config.names.as_ref().map(Naming::new).unzip();
        Self {
            naming,
            requested: BTreeMap::new(),
            lacked: Lacked::default(),
            needed: RangeSet::default(),
            spent: BTreeMap::new(),
            log: Emulation::new(config.capacity, Settings::of(&config)),
            ledger: Ledger::default(),
            quotas: Quotas::new(config.capacity),
            slots: Slots::new(config.contexts),
            compressor: Compressor::new(config.entropy, config.contexts),
            strong: StrongDigests::new(config.digest_seed, StrongKind::default()),
            diagonals: BTreeMap::new(),
            acked: BTreeMap::new(),
            tails: None,
            densities: BTreeMap::new(),
            recent_mismatches: VecDeque::new(),
            events: unread.flatten().map(SendEvent::HintsLost).into_iter().collect(),
            writes: VecDeque::new(),
            limit: config.capacity,
            worth: Worth::default(),
            stats: SendStats::default(),
            scratch: Scratch::default(),
            #[cfg(test)]
            planted_error: false,
            config,
        }
    }

    /// Starts with a log that was found on disk; one of another capacity is left aside.
    ///
    /// It is looked through as flows with `plan` will look for it.
    pub fn with_log(config: SenderConfig, saved: SavedLog, plan: &Plan) -> Self {
        let mut sender = Self::new(config);
        sender.log.restore(saved, plan);
        sender
    }

    /// Rule 3: the first offset that a block encoded now may refer to.
    fn floor(&self) -> u64 {
        #[cfg(test)]
        if self.planted_error {
            return self.log.floor(self.ledger.oldest_start().unwrap_or(self.log.head()));
        }
        self.log.floor(self.log.head())
    }

    /// Bytes of the log that are not acknowledged.
    fn in_flight(&self) -> u64 {
        let head = self.log.head();
        head - self.ledger.oldest_start().unwrap_or(head)
    }

    /// The oldest block that is not acknowledged, or the next one.
    fn oldest(&self) -> u64 {
        #[cfg(test)]
        if self.planted_error {
            return self.ledger.next_seq();
        }
        self.ledger.oldest_seq().unwrap_or(self.ledger.next_seq())
    }

    /// Whether `len` more bytes may be remembered now: by rule 2, and by the quota of their class.
    fn may_remember(&self, len: usize, plan: &Plan) -> bool {
        let (head, len) = (self.log.head(), len as u64);
        self.log.has_room(self.in_flight() + len, len, self.oldest())
            && plan.quota.is_none_or(|quota| self.quotas.allows(quota, head, len))
    }

    /// Says what the log is worth when the next control frames are sent.
    fn tell_worth(&mut self) {
        self.worth.serial += 1;
        self.worth.plain = self.stats.plain;
        self.worth.due = true;
    }

    /// Lets small logs leave as small a part free for what is in flight as larger ones do.
    #[cfg(test)]
    pub(crate) fn set_least_in_flight(&mut self, bytes: u64) {
        self.log.set_least_in_flight(bytes);
    }

    /// Has a stream of the entropy stage end as if compression had failed in it.
    #[cfg(test)]
    pub(crate) fn fail_stream(&mut self, slot: usize) {
        self.compressor.release(slot);
    }

    /// Shortens chunk hashes to so many bits, so that different chunks are taken for one.
    #[cfg(test)]
    pub(crate) fn plant_collisions(&mut self, bits: u32) {
        self.log.plant_collisions(bits);
    }

    /// What the block is checked against: bytes that were copied unseen, or named by their tags alone, need a digest that
    /// cannot be forged.
    fn digest(&mut self, plain: &[u8], plan: &Plan, copied: bool, names: &[NameEntry]) -> Digest {
        let epoch = self.log.epoch();
        let unseen = copied && self.log.matching(plan) == Matching::Chunk;
        match unseen || names.iter().any(|entry| entry.name.is_short()) {
            true => Digest::Strong(self.strong.digest(epoch, plain)),
            false => Digest::Fast(block_digest(self.config.digest_seed, epoch, plain)),
        }
    }

    fn handle_ack(&mut self, ack: &Ack, now: Now) -> Result<(), PeerFault> {
        let last = ack.ranges.last().map_or(ack.next, |range| range.end);
        if last > self.ledger.next_seq() {
            return Err(PeerFault::AckOfUnsent(last));
        }
        let mut settled = std::mem::take(&mut self.scratch.settled);
        let (naming, events) = (&mut self.naming, &mut self.events);
        self.ledger.acknowledge(ack, &mut settled, |item| {
            if let Some(naming) = naming {
                let stored = naming.settle(item, now);
                events.extend((!stored.is_empty()).then_some(SendEvent::Stored(stored)));
            }
        });
        self.events.extend(settled.drain(..).map(SendEvent::Settled));
        self.scratch.settled = settled;
        Ok(())
    }
}

impl Encoder for Sender {
    fn handle_payload(&mut self, payload: Payload, lane: LaneId, now: Now, out: &mut Vec<u8>) {
        let Payload { flow, offset, plain, fin, plan } = payload;
        // Of a flow that is not coded by its plan.
        self.stats.uncoded += if plan.is_none() { plain.len() as u64 } else { 0 };
        let plan = plan.filter(|_| !self.pass_short(flow, plain.len()));
        let (seq, plain_len) = (self.ledger.next_seq(), plain.len());
        self.stats.blocks += 1;
        self.stats.plain += plain_len as u64;
        let content = Content::Block { offset, plain: plain.clone(), fin, coded: plan.is_some() };
        let mut item = Item::new(flow, Some(lane), content, self.log.epoch(), self.log.head());
        let block = |body| Block { seq, flow, offset, plain_len, fin, resent: false, body };
        if let Some(plan) = &plan {
            let mut encoded = self.encode(Source { flow, lane, plain: &plain }, plan, now);
            item.remembered = encoded.remembered;
            item.sources = std::mem::take(&mut encoded.sources);
            item.keep = encoded.named.keep;
            item.news = std::mem::take(&mut encoded.named.news);
            if let Some(naming) = &mut self.naming {
                item.names = naming.names.clone();
                naming.sent(&item.news, seq);
                // Ahead of the block, which brings what is asked for.
                naming.poll_probe_ahead().into_iter().for_each(|probe| Frame::Probe(probe).encode(out));
            }
            if let Some((_, Mode::First(slot) | Mode::Next(slot))) = encoded.entropy {
                item.slot = Some(slot);
                self.slots.used(slot, lane, seq);
            }
            let digest = self.digest(&plain, plan, encoded.tokens.is_some(), &item.names);
            item.coded = self.keep_coded(&encoded, plain_len, digest);
            let body = Body {
                epoch: self.log.epoch(),
                start: self.log.head(),
                remembered: encoded.remembered,
                keep: item.keep,
                names: item.names.clone(),
                digest,
                tokens: encoded.tokens,
                literals: encoded.literals,
                entropy: encoded.entropy,
                bytes: &[],
            };
            self.put_block(block(BlockBody::Coded(body)), &encoded, &plain, out);
        } else {
            self.put_uncoded(block(BlockBody::Uncoded(&plain)), lane, out);
        }
        self.note_tail(lane, LaneTail { flow, seq, end: offset.saturating_add(plain_len as u64) });
        if item.remembered {
            if self.config.persist {
                let (epoch, start) = (self.log.epoch(), self.log.head());
                self.writes.push_back(LogWrite { epoch, start, plain: plain.clone() });
            }
            if let Some(quota) = plan.and_then(|plan| plan.quota) {
                self.quotas.take(quota.class, self.log.head(), plain_len as u64);
            }
            self.log.remember(&plain, &self.scratch.copies);
            // Whoever sends the same may have gone on behind it by the time that this flow does.
            self.diagonals.entry(flow).or_insert(LogOffset(self.log.head()));
            self.stats.remembered += plain_len as u64;
        } else if plan.is_some() && self.scratch.left_out {
            self.stats.noise_left_out += plain_len as u64;
        } else if plan.is_some_and(|plan| !self.may_remember(plain_len, &plan)) {
            self.stats.not_remembered += plain_len as u64;
        }
        self.log.note_sent(seq, &item.sources, self.oldest());
        self.ledger.push(item);
    }

    fn handle_message(&mut self, flow: FlowId, message: Message, lane: LaneId, out: &mut Vec<u8>) {
        let content = Content::Message(message.clone());
        let seq = self.ledger.push(Item::new(flow, Some(lane), content, self.log.epoch(), self.log.head()));
        Frame::Message { seq, flow, message }.encode(out);
    }

    fn handle_frame(&mut self, kind: u8, body: &[u8], lane: LaneId, now: Now) -> Result<Heard, PeerFault> {
        self.take_frame(kind, body, lane, now)
    }

    fn handle_lane_lost(&mut self, lane: LaneId) {
        self.acked.remove(&lane);
        self.tails.iter_mut().for_each(|tails| _ = tails.remove(&lane));
        let slots = &mut self.slots;
        self.ledger.lose_lane(lane, |item| item.slot.into_iter().for_each(|slot| slots.restart(slot)));
        // Their blocks come again, without names.
        self.lacked.lose_lane(lane);
        self.naming.iter_mut().for_each(Naming::handle_lane_lost);
    }

    fn handle_peer(&mut self, peer: PeerState) {
        self.ledger.clear();
        self.acked.clear();
        self.requested.clear();
        self.lacked = Lacked::default();
        self.needed.clear();
        if let Some(naming) = &mut self.naming {
            naming.meet(peer.store, Tags::new(peer.short_names_below, peer.is_of_group), peer.is_of_group);
        }
        self.strong = StrongDigests::new(self.config.digest_seed, peer.strong);
        self.diagonals.clear();
        self.tails = peer.continues.then(BTreeMap::new);
        self.log.forget_held();
        let contexts = peer.contexts.min(self.config.contexts);
        self.slots = Slots::new(contexts);
        self.compressor = Compressor::new(self.config.entropy, contexts);
        let claimed = peer.claim.as_ref().map_or(0, |claim| claim.epoch);
        let epoch = self.log.epoch().max(claimed) + 1;
        if self.log.capacity() != peer.capacity {
            self.quotas = Quotas::new(peer.capacity);
            if !self.log.resize(peer.capacity) {
                return self.start_epoch(epoch, "another log capacity");
            }
        }
        // Of the first log of both ends there is nothing to say.
        if claimed > 0 || !self.log.is_new() || self.log.epoch() > FIRST_EPOCH {
            match self.log.resume(peer.claim.as_ref()) {
                Ok(bytes) => self.note_start(LogStart::Resumed { bytes }),
                Err(reason) => self.start_epoch(epoch, reason),
            }
        }
    }

    fn finish_flow(&mut self, flow: FlowId) {
        self.slots.release(flow);
        self.diagonals.remove(&flow);
        self.densities.remove(&flow);
        self.spent.remove(&flow);
    }

    fn poll_control(&mut self, out: &mut Vec<u8>) -> bool {
        let worth = self.poll_worth(out);
        self.poll_probe(out) || worth
    }

    fn poll_repair(&mut self, repair: Repair, out: &mut Vec<u8>) -> bool {
        match repair {
            Repair::Lost(flow, lane) => self.put_lost(flow, lane, out),
            Repair::Block => self.put_repair(out),
            Repair::Asked => self.put_chunks(out),
            Repair::Lacked(lane) => self.put_lacked(lane, out),
            Repair::Answer { seq, lane, most } => self.put_answer(seq, lane, most, out),
        }
    }

    fn load(&self) -> EncoderLoad {
        EncoderLoad {
            kept_bytes: self.ledger.kept_bytes() + self.ledger.attached_bytes(),
            has_room: self.ledger.has_room(),
            has_repairs: self.ledger.has_repairs() || !self.requested.is_empty() || !self.needed.is_empty(),
            has_asked: !self.requested.is_empty(),
            work: self.stats.steps,
        }
    }

    fn pending(&self, flow: FlowId) -> Pending {
        Pending { items: self.ledger.unacked(flow), lost: self.ledger.has_lost(flow) }
    }

    fn poll_event(&mut self) -> Option<SendEvent> {
        self.events.pop_front()
    }

    fn stats(&self) -> SendStats {
        let memory = self.log.memory()
            + self.compressor.memory() as u64
            + self.ledger.kept_bytes()
            + self.ledger.attached_bytes()
            + self.naming.as_ref().map_or(0, Naming::memory);
        SendStats {
            hints: self.naming.as_ref().map_or(0, |naming| naming.hints().len()),
            hint_changes: self.naming.as_ref().map_or(0, |naming| naming.hints().changes()),
            store: self.naming.as_ref().is_some_and(Naming::is_met),
            epoch: self.log.epoch(),
            log_capacity: self.log.capacity(),
            log_limit: self.log.limit(),
            released: self.log.is_released(),
            curve: self.log.curve(),
            log_used: self.log.used(),
            kept: self.ledger.kept_bytes(),
            unacked: self.ledger.len() as u64,
            memory,
            ..self.stats
        }
    }

    fn resend_control_state(&mut self) {
        if self.worth.serial > 0 {
            self.tell_worth();
        }
        if let Some(naming) = &mut self.naming {
            naming.restate();
        }
    }

    fn is_naming(&self, plan: &Plan) -> bool {
        plan.layers.use_names() && self.naming.as_ref().is_some_and(Naming::is_met)
    }

    fn block_end(
        &mut self,
        flow: FlowId,
        plan: &Plan,
        bytes: &[u8],
        behind: Behind,
        most: usize,
        now: Now,
    ) -> usize {
        self.cut(flow, plan, bytes, behind, most, now)
    }

    fn asked_of(&self, seq: u64) -> Option<AskedOf> {
        let item = self.ledger.item(seq)?;
        let repairs = self.requested.contains_key(&seq);
        let lane = item.lane.filter(|lane| self.lacked.contains(*lane, seq));
        (repairs || lane.is_some()).then_some(AskedOf { flow: item.flow, repairs, lane })
    }

    fn log(&self) -> Option<&dyn EncoderLog> {
        Some(self)
    }

    fn log_mut(&mut self) -> Option<&mut dyn EncoderLog> {
        Some(self)
    }

    fn names(&self) -> Option<&dyn EncoderNames> {
        Some(self)
    }

    fn names_mut(&mut self) -> Option<&mut dyn EncoderNames> {
        Some(self)
    }
}
