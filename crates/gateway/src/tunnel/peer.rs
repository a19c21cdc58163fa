//! One peer: its link's state machine behind a lock, and who waits for what of it.
//!
//! Every mutation goes through [`Peer::with`], which drains the link's events under the same lock and carries out
//! what cannot wait, so no wake-up is lost between a look and a wait.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::Waker;
use std::time::Duration;

use bytes::BytesMut;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use oncewire_codec::Now;
use oncewire_codec::wire::{FlowId, Hello, LaneId, LaneRole, ResetReason};
use oncewire_link::{
    Event, FlowStats, LaneRefused, Link, LinkConfig, LinkStats, LogLimits, Note, OpenRefused, OpenRequest,
    ProtocolError,
};

use super::clock::Clock;
use super::count::WireCounter;
use super::effort::{EffortMeter, PACING};
use super::lane::LaneSignal;
use super::onward::{self, Onward};
use super::seldom::Seldom;
use super::tasks::Tasks;
use crate::flows::Flow;
use crate::identity::PublicKey;
use crate::ledger::{Ledger, Tally};
use crate::logs::{Cleared, LogReader, LogWriter, PeerLogs};
use crate::sockets::LaneOptions;
use crate::telemetry::LinkState;

/// What the shell must know of a peer; the link's own settings lie within.
#[derive(Clone, Debug)]
pub(crate) struct PeerSettings {
    pub(crate) name: String,
    /// The keys it may present; more than one while they rotate.
    pub(crate) keys: Vec<PublicKey>,
    /// Where to dial it (`host:port`, resolved at each attempt); none if only it dials us.
    pub(crate) address: Option<String>,
    pub(crate) lanes: LaneOptions,
    pub(crate) link: LinkConfig,
    /// How much of its logs there is memory for at first.
    pub(crate) first_limits: LogLimits,
    /// What it may reach through us.
    pub(crate) onward: Onward,
}

/// Counters and state of a peer at one moment.
#[derive(Debug)]
pub(crate) struct PeerStatus {
    pub(crate) name: String,
    pub(crate) state: LinkState,
    /// Why it is not up, as a sentence.
    pub(crate) reason: Option<String>,
    pub(crate) wire_received: u64,
    pub(crate) wire_sent: u64,
    pub(crate) link: LinkStats,
    /// Log bytes that were not saved, sent and received; none if logs end with the process.
    pub(crate) not_saved: Option<[u64; 2]>,
}

/// A peer and its link.
pub(crate) struct Peer {
    pub(crate) settings: PeerSettings,
    pub(crate) wire: Arc<WireCounter>,
    /// Wakes the dialler: the link wants lanes, or lost one.
    pub(crate) dial: Notify,
    ours: PublicKey,
    pub(crate) ledger: Arc<Ledger>,
    clock: Clock,
    pub(super) tasks: Arc<Tasks>,
    core: Mutex<Core>,
    /// Where the logs are on disk, if anywhere.
    pub(super) kept: Option<(LogWriter, LogReader)>,
    /// Whether the logs are on disk only.
    pub(super) released: watch::Sender<bool>,
    timer: Notify,
    up: watch::Sender<bool>,
    /// Held while `up` is brought in line with the link, so that it ends as the link is, whoever comes last.
    up_order: Mutex<()>,
    trouble: Mutex<Option<(LinkState, String)>>,
    draining: AtomicBool,
    short_lived: AtomicU64,
    effort: Arc<EffortMeter>,
    pace_log: Seldom,
}

/// What the peer's lock protects.
pub(crate) struct Core {
    pub(crate) link: Link,
    pub(crate) flows: HashMap<FlowId, FlowEntry>,
    lanes: HashMap<LaneId, Arc<LaneSignal>>,
    wanted: [u32; 3],
    /// Flows so far.
    entered: u64,
    armed: Option<Now>,
    /// Whether our key is the smaller one, as the link was told.
    first: bool,
    /// Where the link's logs are saved, if anywhere.
    log_writer: Option<LogWriter>,
}

/// Who waits for a flow.
pub(crate) struct FlowEntry {
    serial: u64,
    pub(crate) tally: Tally,
    pub(crate) reader: Option<Waker>,
    pub(crate) writer: Option<Waker>,
    pub(crate) writable: bool,
    /// This gateway ends the flow; the link no longer knows it.
    pub(crate) ended: bool,
}

/// What is carried out after the lock is released.
#[derive(Default)]
struct Due {
    wakers: Vec<Waker>,
    offers: Vec<(FlowId, u64, OpenRequest)>,
    dial: bool,
    up: bool,
    logs: bool,
}

/// Why a lane did not join its link.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JoinError {
    #[error("its lane id is in use")]
    Duplicate,
    #[error("the peer changed its key while flows of the old one wait to resume")]
    KeyChanged,
    #[error("{0}")]
    Refused(LaneRefused),
}

/// The lane is no longer one of the link's.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LaneGone {
    #[error("the link closed the lane")]
    Closed,
    #[error("{0}")]
    Protocol(ProtocolError),
}

impl Peer {
    pub(crate) fn new(
        mut settings: PeerSettings,
        ours: PublicKey,
        clock: Clock,
        ledger: Arc<Ledger>,
        tasks: Arc<Tasks>,
        logs: PeerLogs,
    ) -> Arc<Self> {
        // What nobody takes to disk must not pile up in the link.
        settings.link.persist = logs.writer.is_some();
        let mut link = Link::with_logs(settings.link.clone(), logs.saved, clock.now());
        link.set_log_limits(settings.first_limits, clock.now());
        let core = Core {
            link,
            flows: HashMap::new(),
            lanes: HashMap::new(),
            wanted: [0; 3],
            entered: 0,
            armed: None,
            first: settings.link.first,
            log_writer: logs.writer.clone(),
        };
        let effort = Arc::new(EffortMeter::new(settings.link.adapt, clock));
        let peer = Arc::new(Self {
            settings,
            ours,
            wire: Arc::default(),
            dial: Notify::new(),
            clock,
            ledger,
            tasks,
            core: Mutex::new(core),
            kept: logs.writer.zip(logs.reader),
            released: watch::Sender::new(false),
            timer: Notify::new(),
            up: watch::Sender::new(false),
            up_order: Mutex::new(()),
            trouble: Mutex::new(None),
            draining: AtomicBool::new(false),
            short_lived: AtomicU64::new(0),
            effort,
            pace_log: Seldom::default(),
        });
        peer.with(|_, _| ());
        peer
    }

    pub(crate) fn name(&self) -> &str {
        &self.settings.name
    }

    /// Runs one mutation of the link and everything that follows from it.
    pub(crate) fn with<R>(self: &Arc<Self>, mutate: impl FnOnce(&mut Core, Now) -> R) -> R {
        let mut due = Due::default();
        let result = {
            let mut core = self.core.lock();
            let result = mutate(&mut core, self.clock.now());
            self.drain(&mut core, &mut due);
            result
        };
        self.carry_out(due);
        result
    }

    fn drain(&self, core: &mut Core, due: &mut Due) {
        while let Some(event) = core.link.poll_event() {
            match event {
                Event::LaneReady(lane) => {
                    if let Some(signal) = core.lanes.get(&lane) {
                        signal.wake();
                    }
                }
                Event::FlowReadable(flow) => {
                    let waker = core.flows.get_mut(&flow).and_then(|entry| entry.reader.take());
                    due.wakers.extend(waker);
                }
                Event::FlowWritable(flow) => {
                    if let Some(entry) = core.flows.get_mut(&flow) {
                        entry.writable = true;
                        due.wakers.extend(entry.writer.take());
                    }
                }
                Event::FlowOffered { flow, open } => {
                    let serial = core.enter(flow);
                    due.offers.push((flow, serial, open));
                }
                Event::CloseLane(lane, reason) => {
                    if let Some(signal) = core.lanes.remove(&lane) {
                        tracing::debug!(peer = self.name(), lane = lane.0, %reason, "lane closed");
                        signal.close();
                    }
                }
                Event::LanesWanted { role, count } => {
                    core.wanted[role_index(role)] = count;
                    due.dial = true;
                }
                Event::Up | Event::Down => due.up = true,
                Event::PeerRestarted => {
                    tracing::warn!(peer = self.name(), "the peer was restarted; its old flows were reset");
                }
                Event::Note(note @ Note::Paced(_)) => {
                    if let Some(held_back) = self.pace_log.due() {
                        tracing::info!(peer = self.name(), held_back, "{note}");
                    }
                }
                Event::LogsWanted => due.logs = true,
                Event::Note(note) => tracing::info!(peer = self.name(), "{note}"),
            }
        }
        if let Some(writer) = &core.log_writer {
            // Under the lock, so that pieces are queued in the order in which they were remembered.
            while let Some((side, write)) = core.link.poll_store() {
                writer.write(side, write);
            }
        }
        let next = core.link.poll_timeout();
        if next.is_some_and(|next| core.armed.is_none_or(|armed| next < armed)) {
            core.armed = next;
            self.timer.notify_one();
        }
    }

    fn carry_out(self: &Arc<Self>, due: Due) {
        for waker in due.wakers {
            waker.wake();
        }
        if due.dial {
            self.dial.notify_one();
        }
        if due.up {
            let _order = self.up_order.lock();
            let up = self.core.lock().link.is_up();
            if self.up.send_replace(up) != up {
                tracing::info!(peer = self.name(), "link {}", if up { "up" } else { "down" });
            }
        }
        if due.logs {
            self.load_logs();
        }
        for (flow, serial, open) in due.offers {
            let flow = Flow::new(Arc::clone(self), flow, serial);
            self.tasks.spawn(onward::serve(Arc::clone(self), flow, open));
        }
    }

    /// Opens a flow to a destination that the peer reaches.
    ///
    /// # Errors
    /// If the link is down, full or this gateway is ending.
    pub(crate) fn open(self: &Arc<Self>, request: OpenRequest) -> Result<Flow, OpenRefused> {
        let (id, serial) = self.with(|core, now| {
            let id = core.link.open_flow(request, now)?;
            let serial = core.enter(id);
            self.look(core, id);
            Ok((id, serial))
        })?;
        Ok(Flow::new(Arc::clone(self), id, serial))
    }

    /// Waits until the link is up, for at most `limit`; says whether it is.
    pub(crate) async fn wait_up(&self, limit: Duration) -> bool {
        let mut up = self.up.subscribe();
        tokio::time::timeout(limit, up.wait_for(|up| *up)).await.is_ok_and(|seen| seen.is_ok())
    }

    pub(crate) fn is_up(&self) -> bool {
        *self.up.borrow()
    }

    /// Encodes this side's hello.
    pub(crate) fn hello(&self, lane: LaneId, role: LaneRole) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        self.core.lock().link.hello(lane, role).encode(&mut out);
        out
    }

    /// Registers a lane after both hellos; `theirs` is the key that the peer presented on it.
    ///
    /// # Errors
    /// If the link does not take it, or its id is in use.
    pub(crate) fn lane_up(
        self: &Arc<Self>,
        theirs: PublicKey,
        hello: &Hello,
        lane: LaneId,
        role: LaneRole,
    ) -> Result<Arc<LaneSignal>, JoinError> {
        let signal = Arc::new(LaneSignal::new(lane, &self.effort));
        self.with(|core, now| {
            if core.lanes.contains_key(&lane) {
                return Err(JoinError::Duplicate);
            }
            self.order_keys(core, theirs)?;
            // Before the call, so that a LaneReady for it finds it.
            core.lanes.insert(lane, Arc::clone(&signal));
            let joined = core.link.handle_lane_up(hello, lane, role, now).map_err(JoinError::Refused);
            if joined.is_err() {
                core.lanes.remove(&lane);
            } else {
                let wanted = &mut core.wanted[role_index(role)];
                *wanted = wanted.saturating_sub(1);
            }
            joined
        })?;
        *self.trouble.lock() = None;
        Ok(signal)
    }

    /// Which key is smaller decides who gives flows which numbers; a rotated key may turn that around.
    fn order_keys(&self, core: &mut Core, theirs: PublicKey) -> Result<(), JoinError> {
        let first = self.ours < theirs;
        if core.first == first {
            return Ok(());
        }
        if !core.flows.is_empty() || !core.lanes.is_empty() {
            return Err(JoinError::KeyChanged);
        }
        core.link.order_keys(first);
        core.first = first;
        Ok(())
    }

    /// Tells the link that a lane ended, unless the link closed it.
    pub(crate) fn lane_lost(self: &Arc<Self>, lane: &LaneSignal, short_lived: bool) {
        if short_lived {
            self.short_lived.fetch_add(1, Relaxed);
        }
        self.with(|core, now| {
            if core.lanes.remove(&lane.id).is_some() {
                core.link.handle_lane_lost(lane.id, now);
            }
        });
        self.dial.notify_one();
    }

    /// Hands received bytes to the link.
    ///
    /// # Errors
    /// If the lane is to be closed.
    pub(crate) fn input(self: &Arc<Self>, lane: LaneId, input: &mut BytesMut) -> Result<(), LaneGone> {
        self.with(|core, now| {
            if !core.lanes.contains_key(&lane) {
                return Err(LaneGone::Closed);
            }
            core.link.handle_input(lane, input, now).map_err(LaneGone::Protocol)
        })
    }

    /// Appends what the lane's socket takes next; false if there is nothing.
    pub(crate) fn transmit(self: &Arc<Self>, lane: LaneId, out: &mut Vec<u8>) -> bool {
        self.with(|core, now| {
            // Here rather than by the timer alone, which is late when processors are scarce.
            self.pace(core, now);
            core.lanes.contains_key(&lane) && self.effort.encode(|| core.link.poll_transmit(lane, now, out))
        })
    }

    /// Returns how many lanes to dial by role, and how many there are.
    pub(crate) fn lanes_wanted(&self) -> ([u32; 3], usize) {
        let core = self.core.lock();
        (core.wanted, core.lanes.len())
    }

    /// Takes the number of lanes that ended right after they began, which is a refusal in all but name.
    pub(crate) fn take_short_lived(&self) -> u64 {
        self.short_lived.swap(0, Relaxed)
    }

    /// Records why there is no link.
    pub(crate) fn trouble(&self, state: LinkState, reason: String) {
        *self.trouble.lock() = Some((state, reason));
    }

    /// Forgets a flow's waiters.
    pub(crate) fn forget(self: &Arc<Self>, flow: FlowId, serial: u64) {
        let entry = self.with(|core, _| match core.flows.get(&flow) {
            Some(entry) if entry.serial == serial => core.flows.remove(&flow),
            // A peer that restarted numbers its flows anew, and was quicker than this one's end.
            _ => None,
        });
        drop(entry);
    }

    /// Refuses new flows from now on.
    pub(crate) fn drain_flows(self: &Arc<Self>) {
        self.draining.store(true, Relaxed);
        self.with(|core, _| core.link.drain());
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Relaxed)
    }

    /// Resets every flow that is still open, at both ends.
    pub(crate) fn reset_flows(self: &Arc<Self>) {
        let wakers = self.with(|core, now| {
            let mut wakers = Vec::new();
            for (id, entry) in &mut core.flows {
                entry.ended = true;
                core.link.abort_flow(*id, ResetReason::Shutdown, now);
                wakers.extend(entry.reader.take().into_iter().chain(entry.writer.take()));
            }
            wakers
        });
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Says whether no flow is open here and the link has delivered what it was given.
    pub(crate) fn is_idle(&self) -> bool {
        let core = self.core.lock();
        core.flows.is_empty() && (!core.link.is_up() || core.link.open_flows() == 0)
    }

    /// Lets every lane write what it has and end.
    pub(crate) fn close_lanes(&self) {
        let core = self.core.lock();
        core.lanes.values().for_each(|lane| lane.close());
    }

    pub(crate) fn lane_count(&self) -> usize {
        self.core.lock().lanes.len()
    }

    pub(crate) fn status(&self) -> PeerStatus {
        let (link, not_saved) = {
            let core = self.core.lock();
            (core.link.stats(), core.log_writer.as_ref().map(LogWriter::skipped))
        };
        let trouble = self.trouble.lock().clone();
        let idle = if self.settings.address.is_some() { LinkState::Connecting } else { LinkState::Down };
        let (state, reason) = match (link.up, trouble) {
            (true, _) => (LinkState::Up, None),
            (false, Some((state, reason))) => (state, Some(reason)),
            (false, None) => (idle, None),
        };
        PeerStatus {
            name: self.settings.name.clone(),
            state,
            reason,
            wire_received: self.wire.received(),
            wire_sent: self.wire.sent(),
            link,
            not_saved,
        }
    }

    /// Forgets both logs here, in memory at once and on disk as soon as the results come. Returns how many bytes of
    /// them could be referred to.
    pub(crate) fn clear_logs(self: &Arc<Self>) -> (u64, Option<[Cleared; 2]>) {
        self.with(|core, now| {
            let stats = core.link.stats();
            core.link.clear_logs(now);
            // Under the lock, so that it comes behind all that was remembered before and ahead of what is next.
            let on_disk = core.log_writer.as_ref().map(LogWriter::clear);
            (stats.out.log_used + stats.inbound.log_used, on_disk)
        })
    }

    /// Lists the open flows, each with its age.
    pub(crate) fn flows(&self) -> Vec<(FlowStats, Duration)> {
        let flows = self.core.lock().link.flows();
        let now = self.clock.now();
        let aged = |flow: FlowStats| {
            let age = now.saturating_sub(flow.opened_at);
            (flow, age)
        };
        flows.into_iter().map(aged).collect()
    }

    /// Asks the link what becomes of a flow, while that may still change.
    pub(crate) fn look(&self, core: &mut Core, id: FlowId) {
        let Some(entry) = core.flows.get_mut(&id).filter(|entry| entry.tally.is_curious()) else { return };
        if let Some(flow) = core.link.flow(id) {
            let (name, outcome) = (self.name(), flow.outcome);
            entry.tally.learn(&self.ledger, name, &flow.destination, outcome, flow.opened_here);
        }
    }

    /// Tells the link what encoding takes while there is something to encode; runs as long as the gateway.
    pub(crate) async fn run_pacing(self: Arc<Self>) {
        loop {
            self.effort.busy().await;
            // What was before belongs to no stretch of work.
            self.effort.take();
            loop {
                tokio::time::sleep(PACING).await;
                self.effort.look_around();
                if self.with(|core, now| self.pace(core, now)) {
                    break;
                }
            }
        }
    }

    /// Tells the link what was done if it is time to, and returns whether there is nothing more to tell.
    fn pace(&self, core: &mut Core, now: Now) -> bool {
        let Some(effort) = self.effort.take_due() else { return false };
        core.link.handle_load(effort, now);
        effort.active.is_zero() && core.link.is_as_configured()
    }

    /// Calls the link whenever its next deadline has come; runs as long as the gateway.
    pub(crate) async fn run_timer(self: Arc<Self>) {
        loop {
            let next = {
                let mut core = self.core.lock();
                core.armed = core.link.poll_timeout();
                core.armed
            };
            match next {
                None => self.timer.notified().await,
                Some(at) => {
                    tokio::select! {
                        () = tokio::time::sleep_until(self.clock.instant(at)) => {
                            self.with(|core, now| core.link.handle_timeout(now));
                        }
                        () = self.timer.notified() => {}
                    }
                }
            }
        }
    }
}

impl Core {
    /// Makes room for those who wait for a flow.
    fn enter(&mut self, flow: FlowId) -> u64 {
        self.entered += 1;
        self.flows.insert(flow, FlowEntry::new(self.entered));
        self.entered
    }
}

impl FlowEntry {
    fn new(serial: u64) -> Self {
        Self { serial, tally: Tally::default(), reader: None, writer: None, writable: true, ended: false }
    }
}

/// Where the counts of a role lie.
pub(crate) fn role_index(role: LaneRole) -> usize {
    match role {
        LaneRole::Control => 0,
        LaneRole::Repair => 1,
        LaneRole::Flow => 2,
    }
}

/// The roles in the order in which they are dialled.
pub(crate) const ROLES: [LaneRole; 3] = [LaneRole::Control, LaneRole::Repair, LaneRole::Flow];
