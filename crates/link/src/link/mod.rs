//! The link: its state, its construction, and its queries.
//!
//! The verbs stand in the modules by phase: [`lane_verbs`] (lanes come and go), [`input`] (frames in), [`output`]
//! (frames out), [`flow_verbs`] (applications), [`liveness`] (time), [`log_verbs`] (the logs), [`networks`]
//! (announced networks), [`answers`] (requested chunks, under a limit), [`draining`] (no new flows), [`going_on`]
//! (flows on another lane), [`pacing`] (effort for CPU), [`renewing`] (a lane in another's place), [`resets`] (the
//! peer's, in wait for bytes), [`group`] (talk in a trust group), [`store_verbs`] (the chunk store), [`windows`]
//! (flow control of the peer).

mod answers;
mod draining;
mod flow_verbs;
mod going_on;
mod group;
mod input;
mod keepalive;
mod lane_verbs;
mod liveness;
mod log_verbs;
mod networks;
mod output;
mod pacing;
mod renewing;
mod resets;
mod store_verbs;
mod windows;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use oncewire_codec::Now;
use oncewire_codec::contract::{Decoder, Encoder, LogWrite, ReceiveEvent, SavedLog, SendEvent};
use oncewire_codec::stream::PreparedLog;
use oncewire_codec::wanax::SHORT_BELOW;
use oncewire_codec::wanax::path::PathEstimate;
use oncewire_codec::wire::{FlowId, Frame, Hello, LaneId, LaneRole, NamesHello, OLDEST, Understood, VERSION};

use crate::arrivals::Arrivals;
use crate::budget::Budget;
use crate::codecs::{CodecFactory, Codecs, sender_config};
use crate::config::LinkConfig;
use crate::dead::DeadLanes;
use crate::event::{Event, Note};
use crate::flow::Flow;
use crate::lanes::Lanes;
use crate::learned::LearnedWindow;
use crate::limit::Limiter;
use crate::renewal::Renewals;
use crate::room::LaneRoom;
use crate::stats::{FlowStats, FlowTally, LinkStats};
use crate::toll::Toll;
use group::GroupTalk;
use liveness::RoundTrip;
use networks::Announcements;
pub use pacing::Effort;
use pacing::Pacing;

/// One end of a link.
pub struct Link {
    config: LinkConfig,
    peer: Option<Peer>,
    /// Instances of the peer in whose place another came, since this end is this instance.
    superseded: VecDeque<u64>,
    codecs: Codecs,
    /// The codec of both halves.
    codec: Arc<dyn CodecFactory>,
    sender: Box<dyn Encoder + Send>,
    receiver: Box<dyn Decoder + Send>,
    lanes: Lanes,
    dead: DeadLanes,
    flows: BTreeMap<FlowId, Flow>,
    next_flow: u32,
    /// Behind the highest received sequence number.
    next_seen: u64,
    /// Unsequenced frames for the control lane.
    control: VecDeque<Frame<'static>>,
    /// Flows with an unsent grant.
    credit_due: BTreeSet<FlowId>,
    /// Resets in wait for earlier bytes, by the end of their wait.
    resets: BTreeSet<(Now, FlowId)>,
    budget: Budget,
    learned_window: LearnedWindow,
    /// Whether sending stopped because too much is unacknowledged.
    out_of_room: bool,
    round_trip: RoundTrip,
    path: PathEstimate,
    arrivals: Arrivals,
    down_since: Option<Now>,
    /// Whether the logs' memory is given back, and whether they have been asked for since.
    released: Option<Wanted>,
    /// How many more bytes of either log are remembered before [`Event::LogsFill`]; 0 if it is not wanted.
    until_told: LogLimits,
    draining: bool,
    lanes_wanted: BTreeMap<LaneRole, u32>,
    /// At the dialling side: how many flow lanes the peer has use for.
    peer_needs_lanes: u32,
    /// At the accepting side: how many flow lanes the peer was last asked for.
    told_lanes_needed: u32,
    /// Since when fewer are needed.
    needs_fewer: Option<Now>,
    announcements: Announcements,
    group_talk: GroupTalk,
    pacing: Pacing,
    limiter: Option<Limiter>,
    renewals: Renewals,
    lane_room: LaneRoom,
    toll: Toll,
    events: VecDeque<Event>,
    stats: LinkStats,
}

/// Logs of an earlier process.
#[derive(Debug, Default)]
pub struct SavedLogs {
    /// The log of this side's output.
    pub out: Option<SavedLog>,
    /// The log of this side's input.
    pub inbound: Option<SavedLog>,
}

/// One of the two logs of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogSide {
    /// This side's output.
    Out,
    /// This side's input.
    Inbound,
}

/// How many of the last bytes of each log this end has memory for; at most the log's capacity counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLimits {
    /// Of this side's output.
    pub out: u64,
    /// Of this side's input.
    pub inbound: u64,
}

/// Whether released logs have been asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    No,
    Yes,
}

/// Logs read again after a release, with all slow work done.
#[derive(Default)]
pub struct LoadedLogs {
    out: Option<PreparedLog>,
    inbound: Option<SavedLog>,
}

impl LoadedLogs {
    /// Prepares the found logs for a link of this configuration whose ends have agreed on `capacity`; takes as long
    /// as hashing all of it.
    pub fn new(config: &LinkConfig, saved: SavedLogs, capacity: u64) -> Self {
        let sender = sender_config(config);
        Self {
            out: saved.out.map(|log| PreparedLog::new(&sender, log, &config.plan)),
            inbound: saved.inbound.map(|log| log.fit(capacity)),
        }
    }
}

/// The content of the peer's last hello.
struct Peer {
    instance: u64,
    /// The protocol version of both ends.
    version: u16,
    initial_credit: u64,
    understands: Understood,
    /// Whether it takes no new flows.
    drains: bool,
}

impl Link {
    /// Starts without a lane and with empty logs.
    pub fn new(config: LinkConfig, now: Now) -> Self {
        Self::with_logs(config, SavedLogs::default(), now)
    }

    /// Starts without a lane, and with what was found of the logs of an earlier process.
    pub fn with_logs(mut config: LinkConfig, saved: SavedLogs, now: Now) -> Self {
        let codecs = Codecs::new(&config);
        let codec = codecs.preferred();
        let (sender, receiver) = (codec.encoder(&config, saved.out), codec.decoder(&config, saved.inbound));
        if let Some(names) = &mut config.names {
            // The sending half took it up, and nobody reads it again.
            names.saved = None;
        }
        let mut link = Self {
            peer: None,
            superseded: VecDeque::new(),
            codecs,
            codec,
            sender,
            receiver,
            lanes: Lanes::default(),
            dead: DeadLanes::default(),
            flows: BTreeMap::new(),
            // A random start: a peer that restarts does not meet its old flows, of which the other side may still
            // be telling applications.
            next_flow: (config.instance as u32) & !1 | u32::from(!config.first),
            next_seen: 0,
            control: VecDeque::new(),
            credit_due: BTreeSet::new(),
            resets: BTreeSet::new(),
            budget: Budget::new(config.flow_memory),
            learned_window: LearnedWindow::default(),
            out_of_room: false,
            round_trip: RoundTrip::default(),
            path: PathEstimate::default(),
            arrivals: Arrivals::default(),
            down_since: Some(now),
            released: None,
            until_told: LogLimits { out: 0, inbound: 0 },
            draining: false,
            lanes_wanted: BTreeMap::new(),
            peer_needs_lanes: 0,
            told_lanes_needed: 0,
            needs_fewer: None,
            announcements: Announcements::default(),
            group_talk: GroupTalk::default(),
            pacing: Pacing::new(&config),
            limiter: config.rate_limit.map(Limiter::new),
            renewals: Renewals::default(),
            lane_room: LaneRoom::new(config.max_lanes),
            toll: Toll::default(),
            events: VecDeque::new(),
            stats: LinkStats::default(),
            config,
        };
        link.budget.set_beside(link.in_flight());
        link.want_lanes();
        link
    }

    /// The hello to send on a lane; the accepting side sends first, with placeholders for lane and role.
    pub fn hello(&self, lane: LaneId, role: LaneRole) -> Hello {
        let capacity = self.config.log_capacity;
        Hello {
            version: VERSION,
            oldest: OLDEST,
            instance: self.config.instance,
            lane,
            role,
            digest_seed: self.config.secret,
            log_capacity: capacity,
            max_in_flight: self.in_flight(),
            initial_credit: self.config.initial_credit,
            contexts: self.config.contexts,
            claim: self.receiver.log().and_then(|log| log.claim()),
            names: self
                .config
                .names
                .as_ref()
                .map(|names| NamesHello { key: names.key.clone(), shape: names.shape }),
            store: self.config.store,
            understands: Understood::ALL,
            // While a lane is up the peer was asked; another instance of it that comes meanwhile is asked by a frame.
            probe: self.sender.names().filter(|_| self.lanes.is_empty()).and_then(|names| names.probe()),
            short_names_below: self.config.store.map_or(0, |_| SHORT_BELOW),
            // The shell proves it, which knows the lane.
            group_proof: None,
            codecs: self.codecs.offers(&self.config),
        }
    }

    /// The bound on log bytes that are not acknowledged.
    fn in_flight(&self) -> u64 {
        self.config.max_in_flight.unwrap_or(self.config.log_capacity / 4)
    }

    /// Whether a lane is up.
    pub fn is_up(&self) -> bool {
        !self.lanes.is_empty()
    }

    /// Says anew whose key is the smaller, after a key was rotated; only while no flow is open.
    pub fn order_keys(&mut self, first: bool) {
        self.config.first = first;
        self.next_flow = self.next_flow & !1 | u32::from(!first);
    }

    /// Ends the link for good, and returns its content, to be dropped at a place with time for it. The rest here
    /// knows of no lane or flow, takes none, and holds no memory to speak of.
    pub fn end(&mut self, now: Now) -> Self {
        let LinkConfig { instance, secret, first, .. } = self.config;
        let least =
            LinkConfig { instance, secret, first, log_capacity: LinkConfig::MIN_LOG, ..Default::default() };
        let mut ended = Self::new(least, now);
        ended.draining = true;
        std::mem::replace(self, ended)
    }

    /// The number of open flows.
    pub fn open_flows(&self) -> usize {
        self.flows.len()
    }

    /// Takes the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Takes the next piece of log for the disk, and its side; there is none unless [`LinkConfig::persist`] is set.
    pub fn poll_log_write(&mut self) -> Option<(LogSide, LogWrite)> {
        let out = self.sender.log_mut().and_then(|log| log.poll_log_write());
        out.map(|write| (LogSide::Out, write)).or_else(|| {
            let inbound = self.receiver.log_mut().and_then(|log| log.poll_log_write());
            inbound.map(|write| (LogSide::Inbound, write))
        })
    }

    /// Returns the first piece of a log's content from an offset on, of at most one block, for an empty disk; none if
    /// there is no more, or its bytes are not in memory.
    pub fn log_piece(&self, side: LogSide, from: u64) -> Option<LogWrite> {
        match side {
            LogSide::Out => self.sender.log().and_then(|log| log.log_piece(from)),
            LogSide::Inbound => self.receiver.log().and_then(|log| log.log_piece(from)),
        }
    }

    /// Counters since the start.
    pub fn stats(&self) -> LinkStats {
        let flow_lanes = self.lanes.count(LaneRole::Flow);
        LinkStats {
            up: self.is_up(),
            peer_drains: self.peer_drains(),
            version: self.peer.as_ref().map(|peer| peer.version),
            codec: self.peer.as_ref().map(|_| self.codec.id()),
            lanes_busy: self.lanes.busy(),
            lanes_spare: flow_lanes - self.lanes.busy(),
            lanes: self.lanes.len() as u32,
            flows_open: self.flows.len() as u64,
            round_trip: self.round_trip.smoothed(),
            out: self.sender.stats(),
            inbound: self.receiver.stats(),
            flows_reserved: self.budget.reserved(self.sender.load().kept_bytes),
            flow_bytes: self.budget.taken(self.sender.load().kept_bytes),
            pace: self.pacing.stats(),
            ..self.stats.clone()
        }
    }

    /// All open flows.
    pub fn flows(&self) -> Vec<FlowStats> {
        self.flows.values().map(|flow| self.flow_stats(flow)).collect()
    }

    /// The traffic of each open flow; [`Event::FlowEnded`] has that of ended ones.
    pub fn tallies(&self) -> impl Iterator<Item = FlowTally> {
        self.flows.values().map(Flow::tally)
    }

    fn flow_stats(&self, flow: &Flow) -> FlowStats {
        let [wire_sent, wire_received] = flow.wire;
        let plan = flow.plan.filter(|_| flow.cipher.is_none()).and_then(|plan| self.pacing.apply(&plan));
        FlowStats {
            flow: flow.id,
            name: flow.name,
            opened_here: self.is_ours(flow.id),
            destination: flow.destination.clone(),
            source: flow.source,
            outcome: flow.outcome(),
            begins_after: flow.plan.and(flow.cipher).map(|begun| begun.after),
            priority: flow.priority(self.config.bulk_after),
            entropy: plan.map(|plan| plan.entropy_of_new()),
            effort: self.pacing.stats().reason,
            opened_at: flow.opened_at,
            sent: flow.out.sent,
            received: flow.delivered_in,
            wire_sent,
            wire_received,
            unacked: self.sender.pending(flow.id).items,
            waiting: flow.lane.is_none() && !self.is_up(),
        }
    }

    /// One flow, if it is open.
    pub fn flow(&self, id: FlowId) -> Option<FlowStats> {
        self.flows.get(&id).map(|flow| self.flow_stats(flow))
    }

    /// Whether this side opened the flow.
    fn is_ours(&self, id: FlowId) -> bool {
        (id.0 & 1 == 0) == self.config.first
    }

    fn note(&mut self, note: Note) {
        self.events.push_back(Event::Note(note));
    }

    /// Takes the sending half's events.
    fn drain_sender(&mut self, now: Now) {
        while let Some(event) = self.sender.poll_event() {
            match event {
                SendEvent::Settled(flow) => self.settle(flow, now),
                SendEvent::Mismatch(flow) => self.note(Note::Mismatch(flow)),
                SendEvent::LogStarts { epoch, start } => {
                    self.note(Note::LogStarts { side: LogSide::Out, epoch, start })
                }
                SendEvent::Repaired { flow, bytes } => {
                    if let Some(flow) = self.flows.get_mut(&flow) {
                        flow.wire[0] += bytes;
                    }
                }
                SendEvent::Stored(chunks) => self.events.push_back(Event::Stored(chunks)),
                SendEvent::HintsLost(error) => self.note(Note::HintsLost(error)),
                SendEvent::StoreDoubted { absent, believed } => {
                    self.note(Note::StoreDoubted { absent, believed })
                }
            }
        }
    }

    /// Takes the receiving half's events.
    fn drain_receiver(&mut self) {
        while let Some(ReceiveEvent::LogStarts { epoch, start }) = self.receiver.poll_event() {
            self.note(Note::LogStarts { side: LogSide::Inbound, epoch, start });
        }
    }

    /// A flow has nothing unacknowledged: it gives its lane back, and is forgotten if it is done.
    fn settle(&mut self, id: FlowId, now: Now) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        if !flow.out.can_send()
            && let Some(lane) = flow.lane.take()
            && let Some(lane) = self.lanes.get_mut(lane)
        {
            lane.settle(now);
        }
        self.forget_if_done(id);
    }

    /// Forgets a flow of no use to either end.
    fn forget_if_done(&mut self, id: FlowId) {
        let done = self.flows.get(&id).is_some_and(Flow::is_done) && self.sender.pending(id).items == 0;
        if !done {
            return;
        }
        if let Some(flow) = self.flows.remove(&id) {
            self.budget.give_back(flow.window.growth());
            self.credit_due.remove(&id);
            if let Some(reset) = flow.reset {
                self.resets.remove(&(reset.deadline, id));
            }
            self.leave_lane(&flow);
            self.sender.finish_flow(id);
            self.events.push_back(Event::FlowEnded(Box::new(flow.tally())));
        }
    }

    fn leave_lane(&mut self, flow: &Flow) {
        if let Some(lane) = flow.lane.and_then(|lane| self.lanes.get_mut(lane)) {
            lane.flows = lane.flows.saturating_sub(1);
            lane.turns.remove(flow.id);
        }
    }

    /// Tells the shell that a lane has something to send, once until it has found nothing.
    fn wake(&mut self, id: LaneId) {
        if let Some(lane) = self.lanes.get_mut(id)
            && !lane.woken
        {
            lane.woken = true;
            self.events.push_back(Event::LaneReady(id));
        }
    }

    /// Wakes the lane of control frames.
    fn wake_control(&mut self) {
        if let Some(lane) = self.lanes.for_role(LaneRole::Control) {
            self.wake(lane);
        }
    }

    /// Gives a flow with something to send its turn on a lane.
    fn schedule(&mut self, id: FlowId) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        if !flow.out.can_send() && !self.sender.pending(id).lost {
            return;
        }
        if flow.lane.is_none() {
            let last = flow.last_lane.filter(|_| self.codec.capabilities().needs_order);
            let Some(lane) = self.lanes.for_flow(last, self.lane_room.lanes()) else { return };
            flow.lane = Some(lane);
            flow.last_lane = Some(lane);
            flow.queued_on_lane = false;
            if let Some(lane) = self.lanes.get_mut(lane) {
                lane.flows += 1;
                lane.used = flow.opened_at.max(lane.used);
            }
            self.want_lanes();
        }
        let Some(flow) = self.flows.get_mut(&id) else { return };
        let class = flow.priority(self.config.bulk_after);
        let Some(lane) = flow.lane else { return };
        if !std::mem::replace(&mut flow.queued_on_lane, true)
            && let Some(lane) = self.lanes.get_mut(lane)
        {
            lane.turns.push_back(class, id);
        }
        self.wake(lane);
    }
}
