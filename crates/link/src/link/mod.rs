//! The link itself: its parts, and the questions and orders of its owner.
//!
//! Each part has its own state, rules and tests: [`Identities`], [`Halves`], [`Lanes`], [`Liveness`], [`LaneSupply`],
//! [`Flows`], [`Scheduler`] and so on. The link passes news from one to the others: [`input`] has frames in, [`output`]
//! frames out, [`lanes`] lanes and time, [`flows`] applications.

mod flows;
mod input;
mod lanes;
mod output;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use oncewire_codec::Now;
use oncewire_codec::contract::{LogWrite, ReceiveEvent, SendEvent, StoreReply, StoreRequest, StoreState};
use oncewire_codec::wanax::hints::{PackedTag, SavePosition, SavedPiece};
use oncewire_codec::wanax::{NameKey, SHORT_BELOW};
use oncewire_codec::wire::{
    FlowId, Frame, GroupFrame, Hello, LaneId, LaneRole, NamesHello, Network, OLDEST, Understood, VERSION,
};

use crate::announce::Announcements;
use crate::config::LinkConfig;
use crate::event::{Event, Note};
use crate::flow::Flow;
use crate::flows::Flows;
use crate::group::GroupTalk;
use crate::halves::{Halves, LoadedLogs, LogLimits, LogSide, SavedLogs};
use crate::hello::Identities;
use crate::lanes::Lanes;
use crate::liveness::Liveness;
use crate::pacing::{Effort, Pacing};
use crate::path::PathMeter;
use crate::renewal::Renewals;
use crate::scheduler::Scheduler;
use crate::stats::{FlowStats, FlowTally, LinkStats};
use crate::supply::LaneSupply;
use crate::toll::Toll;

/// One end of a link.
pub struct Link {
    config: LinkConfig,
    identities: Identities,
    halves: Halves,
    lanes: Lanes,
    liveness: Liveness,
    supply: LaneSupply,
    renewals: Renewals,
    flows: Flows,
    announcements: Announcements,
    group: GroupTalk,
    scheduler: Scheduler,
    pacing: Pacing,
    path: PathMeter,
    toll: Toll,
    events: VecDeque<Event>,
    stats: LinkStats,
}

impl Link {
    /// Starts without a lane and with empty logs.
    pub fn new(config: LinkConfig, now: Now) -> Self {
        Self::with_logs(config, SavedLogs::default(), now)
    }

    /// Starts without a lane, and with the logs of an earlier process. They go to the preferred codec.
    pub fn with_logs(mut config: LinkConfig, saved: SavedLogs, now: Now) -> Self {
        let halves = Halves::new(&mut config, saved);
        let mut link = Self {
            identities: Identities::new(config.instance),
            halves,
            lanes: Lanes::default(),
            liveness: Liveness::new(config.dead_after, config.first, now),
            supply: LaneSupply::new(&config),
            renewals: Renewals::default(),
            flows: Flows::new(&config, config.in_flight()),
            announcements: Announcements::default(),
            group: GroupTalk::default(),
            scheduler: Scheduler::new(config.rate_limit),
            pacing: Pacing::new(&config),
            path: PathMeter::new(&config),
            toll: Toll::default(),
            events: VecDeque::new(),
            stats: LinkStats::default(),
            config,
        };
        link.want_lanes();
        link
    }

    /// The hello to send on a lane; the accepting side sends first, with placeholders for lane and role.
    pub fn hello(&self, lane: LaneId, role: LaneRole) -> Hello {
        let config = &self.config;
        let names = config.names.as_ref();
        Hello {
            version: VERSION,
            oldest: OLDEST,
            instance: self.identities.instance(),
            lane,
            role,
            digest_seed: config.secret,
            log_capacity: config.log_capacity,
            max_in_flight: config.in_flight(),
            initial_credit: config.initial_credit,
            contexts: config.contexts,
            claim: self.halves.decoder.log().and_then(|log| log.claim()),
            names: names.map(|names| NamesHello { key: names.key.clone(), shape: names.shape }),
            store: config.store,
            understands: Understood::ALL,
            // While a lane is up the peer was asked; a later instance of it is asked by a frame.
            probe: self
                .halves
                .encoder
                .names()
                .filter(|_| self.lanes.is_empty())
                .and_then(|names| names.probe()),
            short_names_below: config.store.map_or(0, |_| SHORT_BELOW),
            // The shell proves it, with its knowledge of the lane.
            group_proof: None,
            codecs: self.halves.offers(),
        }
    }

    /// Whether a lane is up.
    pub fn is_up(&self) -> bool {
        !self.lanes.is_empty()
    }

    /// Says anew whose key is the smaller, after a key was rotated; only while no flow is open.
    pub fn order_keys(&mut self, first: bool) {
        self.config.first = first;
        self.liveness.order_keys(first);
        self.flows.order_keys(first);
    }

    /// Ends the link for good, and returns its state, to be dropped outside of any hurry. The rest knows of no lane or
    /// flow, takes none, and holds no memory to speak of.
    pub fn end(&mut self, now: Now) -> Self {
        let least = LinkConfig {
            instance: self.identities.instance(),
            secret: self.config.secret,
            first: self.flows.is_first(),
            log_capacity: LinkConfig::MIN_LOG,
            ..Default::default()
        };
        let mut ended = Self::new(least, now);
        ended.announcements.drain();
        std::mem::replace(self, ended)
    }

    /// Flows that are open.
    pub fn open_flows(&self) -> usize {
        self.flows.len()
    }

    /// Takes the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Counters since the start.
    pub fn stats(&self) -> LinkStats {
        let (flow_lanes, busy) = (self.lanes.count(LaneRole::Flow), self.lanes.busy());
        let (budget, kept) = (&self.flows.windows.budget, self.halves.kept_bytes());
        LinkStats {
            up: self.is_up(),
            peer_drains: self.peer_drains(),
            version: self.identities.version(),
            codec: self.identities.version().map(|_| self.halves.id()),
            lanes_busy: busy,
            lanes_spare: flow_lanes - busy,
            lanes: self.lanes.len() as u32,
            flows_open: self.flows.len() as u64,
            flows_total: self.flows.total(),
            round_trip: self.liveness.round_trip(),
            out: self.halves.encoder.stats(),
            inbound: self.halves.decoder.stats(),
            flows_reserved: budget.reserved(kept),
            flow_bytes: budget.taken(kept),
            pace: self.pacing.stats(),
            ..self.stats.clone()
        }
    }

    /// All open flows.
    pub fn flows(&self) -> Vec<FlowStats> {
        self.flows.iter().map(|flow| self.flow_stats(flow)).collect()
    }

    /// The bytes moved by each open flow; [`Event::FlowEnded`] tells those of ended ones.
    pub fn tallies(&self) -> impl Iterator<Item = FlowTally> {
        self.flows.iter().map(Flow::tally)
    }

    /// One flow, if it is open.
    pub fn flow(&self, id: FlowId) -> Option<FlowStats> {
        self.flows.get(id).map(|flow| self.flow_stats(flow))
    }

    fn flow_stats(&self, flow: &Flow) -> FlowStats {
        let [wire_sent, wire_received] = flow.wire;
        let plan = flow.coding.plan().and_then(|plan| self.pacing.apply(&plan));
        FlowStats {
            flow: flow.id,
            name: flow.facts.name,
            opened_here: self.flows.is_ours(flow.id),
            destination: flow.facts.destination.clone(),
            source: flow.facts.source,
            outcome: flow.coding.outcome(),
            begins_after: flow.coding.cipher().map(|begun| begun.after),
            priority: flow.class(self.config.bulk_after),
            entropy: plan.map(|plan| plan.entropy_of_new()),
            effort: self.pacing.stats().reason,
            opened_at: flow.facts.opened_at,
            sent: flow.out.sent,
            received: flow.inbound.delivered(),
            wire_sent,
            wire_received,
            unacked: self.halves.encoder.pending(flow.id).items,
            waiting: flow.place.lane.is_none() && !self.is_up(),
        }
    }

    fn note(&mut self, note: Note) {
        self.events.push_back(Event::Note(note));
    }

    /// Takes the events of the encoder.
    fn drain_encoder(&mut self, now: Now) {
        while let Some(event) = self.halves.encoder.poll_event() {
            match event {
                SendEvent::Settled(flow) => self.settle(flow, now),
                SendEvent::Mismatch(flow) => self.note(Note::Mismatch(flow)),
                SendEvent::LogStarts { epoch, start } => {
                    self.note(Note::LogStarts { side: LogSide::Out, epoch, start })
                }
                SendEvent::Repaired { flow, bytes } => {
                    if let Some(flow) = self.flows.get_mut(flow) {
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

    /// Takes the events of the decoder.
    fn drain_decoder(&mut self) {
        while let Some(ReceiveEvent::LogStarts { epoch, start }) = self.halves.decoder.poll_event() {
            self.note(Note::LogStarts { side: LogSide::Inbound, epoch, start });
        }
    }

    /// Tells the shell of work for a lane, once until it has asked in vain.
    fn wake(&mut self, id: LaneId) {
        if let Some(lane) = self.lanes.get_mut(id)
            && !lane.woken
        {
            lane.woken = true;
            self.events.push_back(Event::LaneReady(id));
        }
    }

    /// Wakes the lane for frames of a role.
    fn wake_role(&mut self, role: LaneRole) {
        if let Some(lane) = self.lanes.for_role(role) {
            self.wake(lane);
        }
    }

    /// Wakes the lane for control frames.
    fn wake_control(&mut self) {
        self.wake_role(LaneRole::Control);
    }
}

/// What is remembered, and for how long.
impl Link {
    /// Sets this end's memory for each log. The peer is told; content beyond either end's memory is not referred to.
    /// Call it again now and then, also with the same limits: it is the occasion to tell the peer the logs' savings
    /// curve.
    pub fn set_log_limits(&mut self, limits: LogLimits, now: Now) {
        // The memory that is planned with the log.
        let capacity = self.config.log_capacity.max(1);
        let beside =
            u128::from(self.config.in_flight()) * u128::from(limits.out.min(capacity)) / u128::from(capacity);
        self.flows.windows.budget.set_beside(beside as u64);
        self.halves.set_limits(limits, now);
        self.wake_control();
    }

    /// Has [`Event::LogsFill`] come once, as soon as about so many more bytes of either log were remembered; 0 is never.
    pub fn tell_when_filled(&mut self, more: LogLimits) {
        self.halves.tell_when_filled(more);
    }

    /// Counts remembered bytes.
    fn note_filled(&mut self, side: LogSide, bytes: usize) {
        if self.halves.fill(side, bytes) {
            self.events.push_back(Event::LogsFill);
        }
    }

    /// Gives back the memory of both logs, with their content on disk; [`Event::LogsWanted`] asks for them once there
    /// is traffic again. Until [`Self::restore_logs`] nothing older is referred to, and blocks with such references
    /// wait.
    ///
    /// Returns false, and changes nothing, while anything is under way.
    pub fn release_logs(&mut self) -> bool {
        self.halves.release_logs()
    }

    /// Takes back the released logs, as far as they were found again.
    pub fn restore_logs(&mut self, loaded: LoadedLogs, now: Now) {
        self.halves.restore_logs(loaded, now);
        self.take_deliveries(now);
        self.wake_control();
    }

    /// Whether the logs are released and a lane with this hello is to wait until they are back: a new instance of the
    /// peer compares them with its own, and would find nothing.
    pub fn needs_logs_for(&self, peer: &Hello) -> bool {
        self.halves.is_released() && !self.identities.is_known(peer.instance)
    }

    /// Whether the logs are released and there is no lane: if another instance of the peer comes, it needs them, and
    /// waits less if they are back before it takes the link for up.
    pub fn needs_logs_to_come_up(&self) -> bool {
        self.halves.is_released() && self.lanes.is_empty()
    }

    /// Asks for released logs, once: [`Event::LogsWanted`].
    pub fn want_logs(&mut self) {
        if self.halves.want_logs() {
            self.events.push_back(Event::LogsWanted);
        }
    }

    /// Forgets the content of both logs here. Nothing of it is referred to any more, by either end; sent and
    /// unacknowledged blocks are still kept until they are acknowledged, and flows go on.
    pub fn clear_logs(&mut self, now: Now) {
        self.halves.clear_logs();
        self.drain_encoder(now);
        self.wake_control();
    }

    /// Takes the next piece of log for the disk, and its side; there is none unless [`LinkConfig::persist`] is set.
    pub fn poll_log_write(&mut self) -> Option<(LogSide, LogWrite)> {
        self.halves.poll_log_write()
    }

    /// Returns the first piece of a log's content from an offset on, of at most one block, for a disk without any of it;
    /// none if there is no more, or its bytes are not in memory.
    pub fn log_piece(&self, side: LogSide, from: u64) -> Option<LogWrite> {
        self.halves.log_piece(side, from)
    }

    /// Takes the next request for the chunk store; there is none unless [`LinkConfig::store`] is set. To be drained
    /// after every other call and before [`Self::poll_transmit`]: blocks acknowledged there count as put.
    pub fn poll_chunk_store(&mut self) -> Option<StoreRequest> {
        self.halves.decoder.store_mut().and_then(|store| store.poll_chunk_store())
    }

    /// Takes the outcome of a read.
    pub fn handle_store(&mut self, reply: StoreReply, now: Now) {
        if let Some(store) = self.halves.decoder.store_mut() {
            store.handle_store(reply, now);
        }
        self.take_deliveries(now);
        self.wake_for_feedback();
    }

    /// Takes note that a read may take so long from now on, and is answered in any case.
    pub fn handle_store_wait(&mut self, ticket: u64, time: Now, now: Now) {
        if let Some(store) = self.halves.decoder.store_mut() {
            store.handle_store_wait(ticket, time, now);
        }
    }

    /// Takes the store's state, with every change: queue and service time decide on requests over the network
    /// instead, and the peer is told of the content.
    pub fn handle_store_state(&mut self, state: StoreState, now: Now) {
        self.halves.set_store_state(state, now);
        self.wake_for_feedback();
    }

    /// Returns the bytes of outstanding chunk requests over the network; 0 while the link is down, since nothing
    /// comes, in spite of a possible resumption.
    pub fn chunks_pending(&self) -> u64 {
        self.halves.decoder.store().filter(|_| self.is_up()).map_or(0, |store| store.chunks_pending())
    }

    /// Returns a piece of the knowledge of the peer's store; [`save_by`](oncewire_codec::wanax::hints::save_by) asks
    /// for all of them and makes the next process's [`NamesConfig::saved`](oncewire_codec::wanax::NamesConfig::saved)
    /// of them.
    pub fn save_hints(&self, at: SavePosition) -> Option<SavedPiece> {
        self.halves.encoder.names()?.save_hints(at)
    }

    /// Takes the tags of chunks of at least `len` bytes readable for the peer, in its own store or a neighbour's.
    pub fn learn_chunks(&mut self, len: u32, tags: &[u64], now: Now) {
        let chunks: Vec<PackedTag> = tags.iter().map(|&tag| PackedTag::new(tag, len)).collect();
        self.learn_stored(&chunks, now);
    }

    /// Takes chunks readable for the peer in a neighbour's store, from the neighbour's [`Event::Stored`].
    pub fn learn_stored(&mut self, chunks: &[PackedTag], now: Now) {
        self.halves.handle_stored(chunks, now);
    }

    fn wake_for_feedback(&mut self) {
        if self.halves.decoder.has_urgent_frame() {
            self.wake_control();
        }
    }
}

/// Words beside the flows: to members of a trust group, networks, draining; effort for CPU.
impl Link {
    /// Says that the next hello comes with a proof that its sender holds the key of the group of
    /// [`NamesConfig::group`], and that this side's hello on that lane brought one, too. The caller has checked it.
    ///
    /// [`NamesConfig::group`]: oncewire_codec::wanax::NamesConfig::group
    pub fn handle_group_proof(&mut self) {
        self.group.handle_proof();
    }

    /// Says whether the link is up and the peer is of this side's configured group, as both have proved.
    pub fn is_of_group(&self) -> bool {
        self.is_up() && self.group.is_member()
    }

    /// Says whether the peer has a chunk store, as its last hello said.
    pub fn peer_keeps_chunks(&self) -> bool {
        self.group.keeps_chunks()
    }

    /// Says whether the peer may be able to read its neighbours' chunks: it is of the group and has a chunk store, by
    /// its last hello, or has not said anything yet. Chunks unreadable during its absence are readable after its
    /// return.
    pub fn may_read_of_group(&self) -> bool {
        !self.identities.has_peer() || self.group.is_member() && self.group.keeps_chunks()
    }

    /// Sends a frame to a peer of the group.
    ///
    /// # Errors
    /// The frame, if the peer is not of the group, is away, or too much waits for it already: for content to keep
    /// this is sooner than for answers, and for these sooner than for questions.
    pub fn tell_group(&mut self, frame: GroupFrame) -> Result<(), GroupFrame> {
        if self.lanes.is_empty() {
            return Err(frame);
        }
        let role = self.group.push(frame)?;
        self.wake_role(role);
        Ok(())
    }

    /// Takes a frame of the peer; without common membership it is passed over.
    fn handle_group(&mut self, frame: GroupFrame) {
        match self.group.is_member() {
            true => self.events.push_back(Event::Group(frame)),
            false => self.stats.passed_over += 1,
        }
    }

    /// Returns the peer's naming of chunks in its output: with the key in its hello, or between members of a group
    /// with the group's, derived by both and sent by neither.
    fn names_of(&self, hello: &Hello) -> Option<NamesHello> {
        let group = self.group_key().filter(|_| self.group.is_member());
        let key = |said: &NamesHello| group.unwrap_or(&said.key).clone();
        hello.names.as_ref().map(|said| NamesHello { key: key(said), shape: said.shape })
    }

    fn group_key(&self) -> Option<&NameKey> {
        self.config.names.as_ref()?.group.as_ref()
    }

    /// Tells the peer the networks fronted by this gateway, now and on each return; at first none. Networks beyond
    /// the first [`MAX_NETWORKS`](crate::MAX_NETWORKS) are left out.
    ///
    /// A peer of version 1 only is not told.
    pub fn announce(&mut self, networks: Vec<Network>) {
        if self.announcements.set_networks(networks) {
            self.tell_networks();
        }
    }

    /// Repeats our networks.
    fn tell_networks(&mut self) {
        if self.takes_optional_frames() {
            self.announcements.say_networks();
            self.wake_control();
        }
    }

    /// Refuses new flows from now on, and tells the peer; open ones go on.
    ///
    /// A peer of version 1 only is not told, and neither is one without knowledge of it.
    pub fn drain(&mut self) {
        if self.announcements.drain() {
            self.tell_draining();
        }
    }

    /// Repeats the draining notice, if this end drains.
    fn tell_draining(&mut self) {
        if self.announcements.is_draining() && self.takes_optional_frames() {
            self.announcements.say_draining();
            self.wake_control();
        }
    }

    /// Whether flows can be opened now: a lane is up, and the peer is not draining.
    pub fn takes_flows(&self) -> bool {
        self.is_up() && !self.peer_drains()
    }

    /// Whether the peer has said that it takes no new flows; holds beyond its last lane, until it comes anew.
    pub fn peer_drains(&self) -> bool {
        self.identities.peer_drains()
    }

    /// The peer takes no new flows.
    fn handle_draining(&mut self) {
        if self.identities.handle_draining() {
            self.events.push_back(Event::PeerDrains);
        }
    }

    /// Whether a lane is up and the peer takes optional frames.
    fn takes_optional_frames(&self) -> bool {
        self.is_up() && self.identities.takes_optional_frames()
    }

    /// Tells the accepting side's need of flow lanes.
    fn tell_lanes_needed(&mut self, needed: u32) {
        self.announcements.say(Frame::LanesWanted(needed));
        self.wake_control();
    }

    /// Takes the lanes' activity since the last call, and lowers or raises the effort of coding from now on. Without
    /// these calls every plan is carried out as it is.
    pub fn handle_load(&mut self, effort: Effort, now: Now) {
        if let Some(pace) = self.pacing.handle_load(effort, &self.halves.encoder.stats(), now) {
            self.note(Note::Paced(pace));
        }
    }

    /// Whether plans are carried out as configured.
    pub fn is_as_configured(&self) -> bool {
        self.pacing.is_as_configured()
    }
}
