//! One peer: its link's state machine behind a lock, and who waits for what of it.
//!
//! Every mutation goes through [`Peer::with`], which drains the link's events under the same lock and carries out
//! what cannot wait, so no wake-up is lost between a look and a wait. What is asked of a peer stands in the modules by
//! subject: [`lanes`], [`flows`], [`logs`] (between memory and disk), [`stores`] (chunks), [`times`] (deadlines and pacing),
//! [`reach`] (whether it is up, and waiting for that), [`status`].

mod flows;
mod lanes;
mod logs;
mod reach;
mod status;
mod stores;
mod times;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use oncewire_codec::Now;
use oncewire_codec::wanax::hints::PackedTag;
use oncewire_codec::wanax::neighbours::{Hearing, refusal};
use oncewire_codec::wire::{Destination, FlowId, GroupFrame, LaneId, Network};
use oncewire_link::{Adapt, Event, Link, LinkConfig, LogLimits, Note, OpenRequest, StoreState};

use super::clock::Clock;
use super::count::WireCounter;
use super::effort::EffortMeter;
use super::lane::LaneSignal;
use super::onward::{self, Onward};
use super::seldom::Seldom;
use super::tasks::Tasks;
use crate::chunks::ChunkStore;
use crate::config::Usual;
use crate::flows::Flow;
use crate::flows::ahead::AheadBytes;
use crate::identity::PublicKey;
use crate::ledger::Ledger;
use crate::logs::{HintFile, LogWriter, PeerLogs};
use crate::neighbours::{Member, PendingShare};
use crate::sockets::LaneOptions;
use crate::telemetry::LinkState;

use flows::FlowEntry;
pub(crate) use lanes::{Binding, Exchange, JoinError, LaneGone, ROLES, role_index};
use logs::{Kept, Share};
use reach::Reach;
pub(crate) use stores::HintsSaved;

/// What the shell must know of a peer; the link's own settings lie within.
#[derive(Clone, Debug)]
pub(crate) struct PeerSettings {
    pub(crate) name: String,
    /// The keys it may present; more than one while they rotate.
    pub(crate) keys: Vec<PublicKey>,
    /// Where to dial it (`host:port`, resolved at each attempt); none if only it dials us.
    pub(crate) address: Option<String>,
    pub(crate) lanes: LaneOptions,
    /// How flows are coded of which no rule says otherwise.
    pub(crate) usual: Usual,
    pub(crate) link: LinkConfig,
    /// The chunk store, if there is one.
    pub(crate) store: Option<Arc<ChunkStore>>,
    /// How much of its logs there is memory for at first.
    pub(crate) first_limits: LogLimits,
    /// The trust group that it is in.
    pub(crate) group: Option<Member>,
    /// Whether it was found and stands in no file.
    pub(crate) found: bool,
}

/// A peer and its link.
pub(crate) struct Peer {
    pub(crate) settings: PeerSettings,
    /// What it may reach through us, which a reload may change.
    onward: RwLock<Arc<Onward>>,
    pub(crate) wire: Arc<WireCounter>,
    /// Wakes the dialler: the link wants lanes, or lost one.
    pub(crate) dial: Notify,
    ours: PublicKey,
    pub(crate) ledger: Arc<Ledger>,
    clock: Clock,
    /// What ends with the peer.
    pub(crate) tasks: Arc<Tasks>,
    core: Mutex<Core>,
    /// Where the logs are on disk, if anywhere.
    kept: OnceLock<Kept>,
    /// Whether they may be kept later if they are not.
    may_keep: bool,
    /// Where what is known of the peer's store is saved, if anywhere.
    hints: OnceLock<HintFile>,
    /// Whether the disk refused to save it the last time.
    hints_fail: AtomicBool,
    /// Whether the logs are on disk only.
    released: watch::Sender<bool>,
    /// What they ask for then.
    share: watch::Sender<Share>,
    /// Told when logs need a look at how much memory they have.
    filling: Notify,
    timer: Notify,
    /// Held between the turns of lanes that have more than one.
    long_turns: tokio::sync::Mutex<()>,
    reach: watch::Sender<Reach>,
    /// The networks behind it, as it announces them; none before it has spoken.
    announced: watch::Sender<Option<Vec<Network>>>,
    trouble: Mutex<Option<(LinkState, String)>>,
    /// Where the last lane that was dialled leads.
    dialled_at: Mutex<Option<SocketAddr>>,
    /// Takes no new flows.
    draining: AtomicBool,
    /// The whole gateway stops.
    stopping: AtomicBool,
    /// Set once a reload took the peer away; lanes that were on their way to it are turned back.
    ended: AtomicBool,
    short_lived: AtomicU64,
    lived_on: AtomicBool,
    effort: Arc<EffortMeter>,
    pace_log: Seldom,
    /// A peer can come and go at any rate.
    reach_log: Seldom,
    /// A change is held back, and said later.
    reach_unsaid: AtomicBool,
    leaving_log: Seldom,
    /// What comes with each new lane or store.
    note_log: Seldom,
    /// A link that breaks loses its lanes one by one.
    resume_log: Seldom,
    /// Two gateways with one key may restart each other's links without end.
    restart_log: Seldom,
    /// A peer can ask for any number of blocks again.
    mismatch_log: Seldom,
    /// Applications at either end can ask for what is denied at any rate.
    denied_log: Seldom,
    /// Each instance of it may be none of its group.
    group_log: Seldom,
    /// How much it is listened to as a member of a group that tells what is new.
    hearing: Mutex<Hearing>,
}

/// What the peer's lock protects.
pub(crate) struct Core {
    pub(crate) link: Link,
    pub(crate) flows: HashMap<FlowId, FlowEntry>,
    lanes: HashMap<LaneId, Arc<LaneSignal>>,
    wanted: [u32; 3],
    /// The instance of the peer, and when its first lane joined.
    met: Option<(u64, Instant)>,
    /// Flows so far.
    entered: u64,
    armed: Option<Now>,
    /// Whether our key is the smaller one, as the link was told.
    first: bool,
    /// Where the link's logs are saved, if anywhere.
    log_writer: Option<LogWriter>,
    /// What of both logs could be referred to when their memory was given back.
    used_at_release: [u64; 2],
    /// What the link was told last of the chunk store, if anything.
    store_state: Option<StoreState>,
    /// What it waits for, unless that comes from the same site.
    pending: Option<PendingShare>,
    /// Whether the link has ended for good, and remembers nothing.
    over: bool,
    /// What flows have read of applications while there was no room.
    pub(crate) read_ahead: AheadBytes,
}

/// What is carried out after the lock is released.
#[derive(Default)]
struct Due {
    wakers: Vec<Waker>,
    offers: Vec<(FlowId, u64, OpenRequest)>,
    dial: bool,
    /// Who can be reached changed, or may have.
    reach: bool,
    logs: bool,
    /// What it says as a member of a group.
    said: Vec<GroupFrame>,
    /// What it has in its store.
    stored: Vec<PackedTag>,
}

impl Peer {
    pub(crate) fn new(
        mut settings: PeerSettings,
        onward: Onward,
        ours: PublicKey,
        clock: Clock,
        ledger: Arc<Ledger>,
        tasks: Arc<Tasks>,
        logs: PeerLogs,
    ) -> Arc<Self> {
        // What nobody takes to disk must not pile up in the link.
        settings.link.persist = logs.writer.is_some() || logs.later;
        settings.link.store = settings.store.as_ref().and_then(|store| store.id());
        let is_near = settings.group.as_ref().is_some_and(|member| member.is_near);
        let store = settings.store.as_ref().filter(|_| !is_near);
        let pending = store.and_then(|store| store.pending_share());
        let mut config = settings.link.clone();
        if let Some(names) = &mut config.names {
            names.saved = logs.saved_hints;
        }
        let mut link = Link::with_logs(config, logs.saved, clock.now());
        link.set_log_limits(settings.first_limits, clock.now());
        let core = Core {
            link,
            flows: HashMap::new(),
            lanes: HashMap::new(),
            wanted: [0; 3],
            met: None,
            entered: 0,
            armed: None,
            first: settings.link.first,
            log_writer: logs.writer.clone(),
            used_at_release: [0; 2],
            store_state: None,
            pending,
            over: false,
            read_ahead: AheadBytes::default(),
        };
        let may_keep = logs.later;
        let kept = logs.writer.zip(logs.reader).map(|(writer, reader)| Kept::new(writer, reader));
        kept.iter().for_each(Kept::note_whole);
        let effort = Arc::new(EffortMeter::new(settings.link.adapt != Adapt::Off, clock));
        let peer = Arc::new(Self {
            settings,
            onward: RwLock::new(Arc::new(onward)),
            ours,
            wire: Arc::default(),
            dial: Notify::new(),
            clock,
            ledger,
            tasks,
            core: Mutex::new(core),
            may_keep,
            kept: kept.map(OnceLock::from).unwrap_or_default(),
            hints: logs.hints.map(OnceLock::from).unwrap_or_default(),
            hints_fail: AtomicBool::new(false),
            released: watch::Sender::new(false),
            share: watch::Sender::new(Share::Idle),
            filling: Notify::new(),
            timer: Notify::new(),
            long_turns: tokio::sync::Mutex::new(()),
            reach: watch::Sender::new(Reach { up: false, leaving: false, since: clock.now() }),
            announced: watch::Sender::new(None),
            trouble: Mutex::new(None),
            dialled_at: Mutex::new(None),
            draining: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            short_lived: AtomicU64::new(0),
            lived_on: AtomicBool::new(false),
            effort,
            pace_log: Seldom::default(),
            reach_log: Seldom::bursts(BURST, BURST_PERIOD),
            reach_unsaid: AtomicBool::new(false),
            leaving_log: Seldom::default(),
            note_log: Seldom::bursts(BURST, BURST_PERIOD),
            resume_log: Seldom::default(),
            restart_log: Seldom::default(),
            mismatch_log: Seldom::default(),
            denied_log: Seldom::bursts(BURST, BURST_PERIOD),
            group_log: Seldom::default(),
            hearing: Mutex::new(Hearing::new(clock.now())),
        });
        peer.touch();
        peer
    }

    pub(crate) fn name(&self) -> &str {
        &self.settings.name
    }

    /// Returns what it may reach through us now.
    pub(crate) fn onward(&self) -> Arc<Onward> {
        Arc::clone(&self.onward.read())
    }

    /// Lets it reach something else from now on; flows that are connected go on.
    pub(crate) fn set_onward(&self, onward: Onward) {
        *self.onward.write() = Arc::new(onward);
    }

    /// Calls the group that it is in by another name.
    pub(crate) fn rename_group(&self, name: &str) {
        if let Some(member) = &self.settings.group {
            name.clone_into(&mut member.group.write());
        }
    }

    /// Notes where a lane that was dialled leads.
    pub(crate) fn note_dialled(&self, address: Option<SocketAddr>) {
        if address.is_some() {
            *self.dialled_at.lock() = address;
        }
    }

    /// Says whether a destination is where it is dialled: as configured, or as the name that is configured resolved last.
    pub(crate) fn is_dialled_at(&self, destination: &Destination) -> bool {
        let known = self.dialled_at.lock().map(|at| SocketAddr::new(at.ip().to_canonical(), at.port()));
        let is_known = known.is_some_and(|known| Destination::from(known) == *destination);
        is_known || self.settings.address.as_ref().is_some_and(|address| *address == destination.to_string())
    }

    /// Tells it which networks are behind us.
    pub(crate) fn announce(self: &Arc<Self>, networks: Vec<Network>) {
        self.with(|core, _| core.link.announce(networks));
    }

    /// Goes through all that every mutation goes through, and changes nothing.
    pub(crate) fn touch(self: &Arc<Self>) {
        self.with(|_, _| ());
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

    fn drain(self: &Arc<Self>, core: &mut Core, due: &mut Due) {
        // First, since an answer may come at once and be followed by events.
        self.feed_store(core);
        while let Some(event) = core.link.poll_event() {
            match event {
                Event::LaneReady(lane) => {
                    if let Some(signal) = core.lanes.get(&lane) {
                        signal.wake();
                    }
                }
                Event::LookAtLane(lane) => {
                    if let Some(report) = core.lanes.get(&lane).and_then(|signal| signal.report()) {
                        core.link.handle_lane_report(lane, &report, self.clock.now());
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
                Event::FlowOutcome(flow) => self.note_outcome(core, flow),
                Event::FlowEnded(tally) => self.count_ended([*tally]),
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
                Event::Up | Event::Down | Event::PeerDrains => due.reach = true,
                Event::PeerRestarted => {
                    due.reach = true;
                    if let Some(held_back) = self.restart_log.due() {
                        let peer = self.name();
                        tracing::warn!(
                            peer,
                            held_back,
                            "the peer was restarted, or began its link anew; its old flows were reset"
                        );
                    }
                }
                Event::Note(
                    note @ (Note::Paced(_) | Note::Resumed { .. } | Note::WentOn | Note::Mismatch(_)),
                ) => {
                    let log = match note {
                        Note::Paced(_) => &self.pace_log,
                        Note::Mismatch(_) => &self.mismatch_log,
                        _ => &self.resume_log,
                    };
                    if let Some(held_back) = log.due() {
                        tracing::info!(peer = self.name(), held_back, "{note}");
                    }
                }
                Event::LogsWanted => due.logs = true,
                Event::LogsFill => self.filling.notify_one(),
                // Under the lock, so that the last word is the last.
                Event::Announced(networks) => _ = self.announced.send_replace(Some(networks)),
                Event::Group(frame) => due.said.push(frame),
                Event::Stored(chunks) => due.stored.extend(chunks),
                Event::Note(note) => {
                    if let Some(held_back) = self.note_log.due() {
                        let held_back = (held_back > 0).then_some(held_back);
                        tracing::info!(peer = self.name(), held_back, "{note}");
                    }
                }
            }
        }
        if due.reach {
            self.note_reach(&core.link);
        }
        // Under the lock, so that pieces are queued in the order in which they were remembered.
        while let Some((side, write)) = core.link.poll_log_write() {
            // Without a writer the disk hangs, and they are not kept.
            if let Some(writer) = &core.log_writer {
                writer.write(side, write);
            }
        }
        let next = core.link.poll_timeout();
        if next.is_some_and(|next| core.armed.is_none_or(|armed| next < armed)) {
            core.armed = next;
            self.timer.notify_one();
        }
    }

    /// Hands on what a member says. Who asks beyond what it is listened to for is told no, so that it need not wait; the
    /// rest is dropped.
    fn hear(self: &Arc<Self>, member: &Member, frame: GroupFrame) {
        if self.hearing.lock().admits(&frame, self.clock.now()) {
            return member.neighbours.handle_said(self, frame);
        }
        member.neighbours.count_unheard(&member.key, &frame);
        if let Some(refusal) = refusal(&frame) {
            // One that does not take its answers need not have them.
            _ = self.tell_group(refusal);
        }
    }

    fn carry_out(self: &Arc<Self>, due: Due) {
        for waker in due.wakers {
            waker.wake();
        }
        if due.dial {
            self.dial.notify_one();
        }
        if let Some(member) = &self.settings.group {
            if due.reach {
                member.neighbours.handle_link();
            }
            due.said.into_iter().for_each(|frame| self.hear(member, frame));
            if !due.stored.is_empty() {
                member.neighbours.handle_stored(self, due.stored);
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

    /// Returns where the networks appear that the peer announces.
    pub(crate) fn announced(&self) -> watch::Receiver<Option<Vec<Network>>> {
        self.announced.subscribe()
    }

    /// Says whether no flow is open here and the link has delivered what it was given.
    pub(crate) fn is_idle(&self) -> bool {
        let core = self.core.lock();
        core.flows.is_empty() && (!core.link.is_up() || core.link.open_flows() == 0)
    }
}

/// Lines about a peer's coming and going in each [`BURST_PERIOD`].
const BURST: u32 = 8;

const BURST_PERIOD: Duration = Duration::from_secs(60);
