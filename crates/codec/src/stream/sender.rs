//! The sending half: a block through log, names and entropy stage [EndRE §4, §5.2].

mod encode;
mod feedback;
mod ports;
mod recovery;

use std::collections::VecDeque;

use self::encode::Scratch;
use crate::contract::{
    Cut, Encoder, EncoderLoad, EncoderLog, EncoderNames, Heard, LogStart, Payload, PeerFault, PeerState,
    Pending, PendingChunks, Repair, SavedLog, SendEvent, SendStats, Tail,
};
use crate::endre::log_encoder::LogEncoder;
use crate::endre::matcher::MatchParams;
use crate::endre::remote_log::{RemoteLog, Settings};
use crate::entropy::{Entropy, EntropyEncoder};
use crate::transfer::{Content, Item, Outgoing};
use crate::verify::{Digests, StrongKind};
use crate::wanax::NamesConfig;
use crate::wanax::naming::{Naming, Tags};
use crate::wire::{FlowId, Frame, LaneId, Message};
use crate::{Now, Plan};

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

/// The sending half of the stream codec.
pub struct Sender {
    config: SenderConfig,
    transfer: Outgoing,
    log: LogEncoder,
    naming: Option<Naming>,
    entropy: EntropyEncoder,
    digests: Digests,
    events: VecDeque<SendEvent>,
    stats: SendStats,
    scratch: Scratch,
}

/// A log released and read again, and its table: all the slow work, done off the path.
pub struct PreparedLog(RemoteLog);

impl PreparedLog {
    /// Builds the table of what was found on disk, for a sending half of this configuration and flows of this plan.
    pub fn new(config: &SenderConfig, saved: SavedLog, plan: &Plan) -> Self {
        let mut log = RemoteLog::new(config.capacity, Settings::of(config));
        log.restore(saved, plan);
        Self(log)
    }
}

impl Sender {
    /// Starts with an empty log.
    pub fn new(config: SenderConfig) -> Self {
        let (naming, unread) = config.names.as_ref().map(Naming::new).unzip();
        Self {
            transfer: Outgoing::default(),
            log: LogEncoder::new(&config),
            naming,
            entropy: EntropyEncoder::new(config.entropy, config.contexts),
            digests: Digests::new(config.digest_seed, StrongKind::default()),
            events: unread.flatten().map(SendEvent::HintsLost).into_iter().collect(),
            stats: SendStats::default(),
            scratch: Scratch::default(),
            config,
        }
    }

    /// Starts with a log found on disk; one of another capacity is left aside.
    ///
    /// It is looked through as flows with `plan` will look for it.
    pub fn with_log(config: SenderConfig, saved: SavedLog, plan: &Plan) -> Self {
        let mut sender = Self::new(config);
        sender.log.remote.restore(saved, plan);
        sender
    }

    /// Counts and reports the start of a log.
    fn note_start(&mut self, start: LogStart) {
        self.stats.log_starts.count(start);
        self.events.push_back(SendEvent::LogStarts { epoch: self.log.remote.epoch(), start });
    }
}

impl Encoder for Sender {
    fn handle_payload(&mut self, payload: Payload, lane: LaneId, now: Now, out: &mut Vec<u8>) {
        self.encode(payload, lane, now, out);
    }

    fn handle_message(&mut self, flow: FlowId, message: Message, lane: LaneId, out: &mut Vec<u8>) {
        let content = Content::Message(message.clone());
        let (epoch, head) = (self.log.remote.epoch(), self.log.remote.head());
        let seq = self.transfer.buffer.push(Item::new(flow, Some(lane), content, epoch, head));
        Frame::Message { seq, flow, message }.encode(out);
    }

    fn handle_frame(&mut self, kind: u8, body: &[u8], lane: LaneId, now: Now) -> Result<Heard, PeerFault> {
        let (feedback, heard) = self.read_feedback(kind, body, lane)?;
        self.handle_feedback(feedback, now)?;
        Ok(heard)
    }

    fn handle_lane_lost(&mut self, lane: LaneId) {
        let entropy = &mut self.entropy;
        self.transfer.lose_lane(lane, |item| entropy.restart(item.slot));
        self.naming.iter_mut().for_each(Naming::handle_lane_lost);
    }

    fn handle_peer(&mut self, peer: PeerState) {
        self.transfer.meet(peer.continues);
        if let Some(naming) = &mut self.naming {
            naming.meet(peer.store, Tags::new(peer.short_names_below, peer.is_of_group), peer.is_of_group);
        }
        self.digests = Digests::new(self.config.digest_seed, peer.strong);
        self.entropy.meet(peer.contexts);
        if let Some(start) = self.log.meet(peer.capacity, peer.claim.as_ref()) {
            self.note_start(start);
        }
    }

    fn finish_flow(&mut self, flow: FlowId) {
        self.entropy.release(flow);
        self.log.finish_flow(flow);
        self.naming.iter_mut().for_each(|naming| naming.finish_flow(flow));
    }

    fn poll_control(&mut self, out: &mut Vec<u8>) -> bool {
        let has_savings = self.poll_savings(out);
        self.poll_probe(out) || has_savings
    }

    fn poll_repair(&mut self, repair: Repair, out: &mut Vec<u8>) -> bool {
        match repair {
            Repair::Lost(flow, lane) => self.put_lost(flow, lane, out),
            Repair::Block => self.put_repair(out),
            Repair::Chunks(lane) => self.put_chunks(lane, out),
            Repair::ChunksOf { seq, lane, most } => self.put_chunks_of(seq, lane, most, out),
        }
    }

    fn load(&self) -> EncoderLoad {
        EncoderLoad {
            kept_bytes: self.transfer.memory(),
            has_room: self.transfer.buffer.has_room(),
            has_repairs: self.transfer.has_repairs(),
            has_pending_chunks: self.transfer.chunks.has_any_lane(),
            work: self.stats.steps,
        }
    }

    fn pending(&self, flow: FlowId) -> Pending {
        let buffer = &self.transfer.buffer;
        Pending { items: buffer.unacked(flow), lost: buffer.has_lost(flow) }
    }

    fn poll_event(&mut self) -> Option<SendEvent> {
        self.events.pop_front()
    }

    fn stats(&self) -> SendStats {
        let (log, buffer, naming) = (&self.log.remote, &self.transfer.buffer, self.naming.as_ref());
        let memory =
            log.memory() + self.entropy.memory() + self.transfer.memory() + naming.map_or(0, Naming::memory);
        SendStats {
            hints: naming.map_or(0, |naming| naming.hints().len()),
            hint_changes: naming.map_or(0, |naming| naming.hints().changes()),
            store: naming.is_some_and(Naming::is_met),
            epoch: log.epoch(),
            log_capacity: log.capacity(),
            log_limit: log.limit(),
            released: log.is_released(),
            curve: log.curve(),
            log_used: log.used(),
            kept: buffer.kept_bytes(),
            unacked: buffer.len() as u64,
            memory,
            ..self.stats
        }
    }

    fn resend_control_state(&mut self) {
        self.log.savings.resend(self.stats.plain);
        self.naming.iter_mut().for_each(Naming::resend_control_state);
    }

    fn is_naming(&self, plan: &Plan) -> bool {
        plan.layers.use_names() && self.naming.as_ref().is_some_and(Naming::is_met)
    }

    fn cut(&mut self, flow: FlowId, plan: &Plan, bytes: &[u8], tail: Tail, most: usize, now: Now) -> Cut {
        self.choose_cut(flow, plan, bytes, tail, most, now)
    }

    fn pending_chunks(&self, seq: u64) -> Option<PendingChunks> {
        let item = self.transfer.buffer.item(seq)?;
        let chunks = &self.transfer.chunks;
        let any_lane = chunks.contains(None, seq);
        let lane = item.lane.filter(|lane| chunks.contains(Some(*lane), seq));
        (any_lane || lane.is_some()).then_some(PendingChunks { flow: item.flow, any_lane, lane })
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

/// Planted errors, and looks behind the contract.
#[cfg(test)]
impl Sender {
    /// Measures the window of references from the oldest unacknowledged block.
    pub(super) fn plant_error(&mut self, is_planted: bool) {
        self.log.planted_error = is_planted;
    }

    pub(super) fn has_planted_error(&self) -> bool {
        self.log.planted_error
    }

    /// Lets small logs leave as small a part free for blocks in flight as larger ones do.
    pub(super) fn set_least_in_flight(&mut self, bytes: u64) {
        self.log.remote.set_least_in_flight(bytes);
    }

    /// Has a stream of the entropy stage end as if compression had failed in it.
    pub(super) fn fail_stream(&mut self, slot: usize) {
        self.entropy.fail_stream(slot);
    }

    /// Shortens chunk hashes to so many bits, so different chunks are taken for one.
    pub(super) fn plant_collisions(&mut self, bits: u32) {
        self.log.remote.plant_collisions(bits);
    }

    /// Ranges of the log without references.
    pub(super) fn holes(&self) -> Vec<crate::wire::Range64> {
        self.log.remote.holes().iter().collect()
    }
}
