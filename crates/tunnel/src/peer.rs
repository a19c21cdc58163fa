//! One peer: its link's state machine behind a lock, and its waiters.
//!
//! Every mutation goes through `Peer::with`, which drains the link's events under the same lock and carries
//! out the urgent ones, so no wake-up is lost between a look and a wait. Parts have types and
//! state of their own: [`Availability`], [`DiskLogs`], `Dials`, `Lines`. The methods with the link stand in
//! modules by subject: `lanes`, `flows`, `logs` (between memory and disk), `stores` (chunks); `times` has the
//! tasks.

mod dials;
mod disk;
mod entry;
mod flows;
mod hints;
mod join;
mod lanes;
mod lines;
mod logs;
mod reach;
mod status;
mod stores;
pub mod times;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::Waker;

use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use tokio::time::Instant;

use oncewire_codec::Now;
use oncewire_codec::wanax::hints::PackedTag;
use oncewire_codec::wire::{Destination, FlowId, GroupFrame, LaneId, Network};
use oncewire_config::Usual;
use oncewire_host::clock::Clock;
use oncewire_host::tasks::Tasks;
use oncewire_keys::PublicKey;
use oncewire_link::{Adapt, Event, Link, LinkConfig, LogLimits, OpenRequest, StoreState};
use oncewire_logs::{LogWriter, PeerLogs, PersistError};
use oncewire_mesh::{Hearing, refusal};

use super::count::WireCounter;
use super::effort::EffortMeter;
use super::lane::signal::LaneSignal;
use super::onward::Onward;
use crate::accounts::TrafficAccounts;
use crate::chunks::ChunkStore;
use crate::flows::ahead::AheadBytes;
use crate::lane::options::LaneOptions;
use crate::neighbours::{GroupLink, Member, PendingShare};

pub(crate) use dials::Dials;
pub use disk::DiskLogs;
use entry::FlowEntry;
pub use hints::HintsSaved;
use hints::SavedHints;
pub(crate) use join::{Binding, Exchange, JoinError, LaneGone, ROLES, role_index};
use lines::Lines;
pub use reach::Availability;
pub use status::PeerStatus;

/// The shell's settings of a peer; the link's own settings lie within.
#[derive(Clone, Debug)]
pub struct PeerSettings {
    /// Its name.
    pub name: String,
    /// The keys it may present; more than one while they rotate.
    pub keys: Vec<PublicKey>,
    /// Dialled address (`host:port`, resolved at each attempt); none if only the peer dials us.
    pub address: Option<String>,
    /// Options of its lanes' connections.
    pub lanes: LaneOptions,
    /// Default coding of flows without a rule.
    pub usual: Usual,
    /// The link's settings.
    pub link: LinkConfig,
    /// The chunk store, if there is one.
    pub store: Option<Arc<ChunkStore>>,
    /// Initial limits of its logs, by memory.
    pub first_limits: LogLimits,
    /// Its trust group.
    pub group: Option<Member>,
    /// Whether it was discovered rather than configured.
    pub found: bool,
    /// Serves its offered flows, in tasks of the peer.
    pub serve: fn(Arc<Peer>, Offer),
}

/// A flow offered by a peer.
#[derive(Debug)]
pub struct Offer {
    pub(crate) flow: FlowId,
    pub(crate) serial: u64,
    pub(crate) open: OpenRequest,
}

/// A peer and its link.
pub struct Peer {
    /// Its settings.
    pub settings: PeerSettings,
    /// Destinations open to it through us; a reload may change them.
    onward: RwLock<Arc<Onward>>,
    pub(crate) wire: Arc<WireCounter>,
    pub(crate) dials: Dials,
    ours: PublicKey,
    pub(crate) accounts: Arc<TrafficAccounts>,
    clock: Clock,
    /// Tasks ending with the peer.
    pub tasks: Arc<Tasks>,
    core: Mutex<Core>,
    /// Its logs between memory and disk.
    pub logs: DiskLogs,
    /// The saved knowledge of its chunk store.
    hints: SavedHints,
    timer: Notify,
    /// Held between turns by lanes with more than one.
    long_turns: tokio::sync::Mutex<()>,
    /// Its availability.
    pub reach: Arc<Availability>,
    ending: Ending,
    effort: Arc<EffortMeter>,
    lines: Lines,
    /// Rate limit of its announcements as a group member.
    hearing: Mutex<Hearing>,
}

/// Ends of a peer, each for good.
#[derive(Debug, Default)]
struct Ending {
    /// It takes no new flows.
    draining: AtomicBool,
    /// The whole gateway stops.
    stopping: AtomicBool,
    /// Set once a reload removed the peer; lanes on their way to it are turned back.
    ended: AtomicBool,
}

/// State under the peer's lock.
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
    /// Whether our key is the smaller one, as reported to the link.
    first: bool,
    /// Writer of the link's logs, if any.
    log_writer: Option<LogWriter>,
    /// Referenceable part of both logs when their memory was given back.
    used_at_release: [u64; 2],
    /// The chunk store's state last reported to the link, if any.
    store_state: Option<StoreState>,
    /// Its share of pending bytes, unless they come from the same site.
    pending: Option<PendingShare>,
    /// Whether the link has ended for good, and has forgotten everything.
    over: bool,
    /// Bytes read ahead of applications without room for them.
    pub(crate) read_ahead: AheadBytes,
}

impl Core {
    /// Adds an entry for the waiters of a flow.
    pub(super) fn enter(&mut self, flow: FlowId) -> u64 {
        self.entered += 1;
        self.flows.insert(flow, FlowEntry::new(self.entered));
        self.entered
    }
}

/// Work for after the release of the lock.
#[derive(Default)]
struct Due {
    wakers: Vec<Waker>,
    offers: Vec<Offer>,
    dial: bool,
    /// Reachability changed, or may have.
    reach: bool,
    logs: bool,
    /// Its frames as a group member.
    said: Vec<GroupFrame>,
    /// Chunks in its store.
    stored: Vec<PackedTag>,
}

impl Peer {
    /// Makes a peer with a link that is down.
    pub fn new(
        mut settings: PeerSettings,
        onward: Onward,
        ours: PublicKey,
        clock: Clock,
        accounts: Arc<TrafficAccounts>,
        tasks: Arc<Tasks>,
        logs: PeerLogs,
    ) -> Arc<Self> {
        // Without a log writer, persisted output must not pile up in the link.
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
        let reach = Availability::new(&settings.name, clock, Arc::clone(&tasks));
        let lines = Lines::new(&settings.name);
        let hints = SavedHints::new(logs.hints);
        let logs = DiskLogs::new(logs.writer.zip(logs.reader), logs.later);
        let effort = Arc::new(EffortMeter::new(settings.link.adapt != Adapt::Off, clock));
        let peer = Arc::new(Self {
            settings,
            onward: RwLock::new(Arc::new(onward)),
            wire: Arc::default(),
            dials: Dials::default(),
            ours,
            clock,
            accounts,
            tasks,
            core: Mutex::new(core),
            logs,
            hints,
            timer: Notify::new(),
            long_turns: tokio::sync::Mutex::new(()),
            reach,
            ending: Ending::default(),
            effort,
            lines,
            hearing: Mutex::new(Hearing::new(clock.now())),
        });
        peer.touch();
        peer
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.settings.name
    }

    /// Returns its current reach through us.
    pub(crate) fn onward(&self) -> Arc<Onward> {
        Arc::clone(&self.onward.read())
    }

    /// Replaces its reach through us; connected flows go on.
    pub fn set_onward(&self, onward: Onward) {
        *self.onward.write() = Arc::new(onward);
    }

    /// Renames its group.
    pub fn rename_group(&self, name: &str) {
        if let Some(member) = &self.settings.group {
            name.clone_into(&mut member.group.write());
        }
    }

    /// Whether a destination is its dialled address: as configured, or as the configured name resolved last.
    pub(crate) fn is_dialled_at(&self, destination: &Destination) -> bool {
        let configured = self.settings.address.as_ref();
        self.dials.is_at(destination) || configured.is_some_and(|address| *address == destination.to_string())
    }

    /// Announces the networks behind us.
    pub fn announce(self: &Arc<Self>, networks: Vec<Network>) {
        self.with(|core, _| core.link.announce(networks));
    }

    /// Runs all consequences of a mutation without a change.
    pub fn touch(self: &Arc<Self>) {
        self.with(|_, _| ());
    }

    /// Runs one mutation of the link and all its consequences.
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
        // First: an answer may come at once and be followed by events.
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
                    due.offers.push(Offer { flow, serial, open });
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
                    self.lines.restarted();
                }
                Event::LogsWanted => due.logs = true,
                Event::LogsFill => self.logs.note_filled(),
                Event::Announced(networks) => self.reach.note_announced(networks),
                Event::Group(frame) => due.said.push(frame),
                Event::Stored(chunks) => due.stored.extend(chunks),
                Event::Note(note) => self.lines.note(&note),
            }
        }
        if due.reach {
            self.reach.note(&core.link);
        }
        // Under the lock: pieces are queued in log order.
        while let Some((side, write)) = core.link.poll_log_write() {
            // Without a writer the disk hangs, and they are not persisted.
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

    /// Hands on a member's frame. A request beyond the rate limit is refused, to spare its sender the wait;
    /// anything else beyond is dropped.
    fn admit(self: &Arc<Self>, member: &Member, frame: GroupFrame) {
        if self.hearing.lock().admits(&frame, self.clock.now()) {
            return member.neighbours.handle_group_frame(Arc::clone(self) as Arc<dyn GroupLink>, frame);
        }
        member.neighbours.count_rejected(&member.key, &frame);
        if let Some(refusal) = refusal(&frame) {
            // A member not taking its answers need not have them.
            _ = self.tell_group(refusal);
        }
    }

    fn carry_out(self: &Arc<Self>, due: Due) {
        for waker in due.wakers {
            waker.wake();
        }
        if due.dial {
            self.dials.wake();
        }
        if let Some(member) = &self.settings.group {
            if due.reach {
                member.neighbours.handle_link();
            }
            due.said.into_iter().for_each(|frame| self.admit(member, frame));
            if !due.stored.is_empty() {
                member.neighbours.handle_stored(Arc::clone(self) as Arc<dyn GroupLink>, due.stored);
            }
        }
        if due.logs {
            self.load_logs();
        }
        for offer in due.offers {
            (self.settings.serve)(Arc::clone(self), offer);
        }
    }

    /// Returns its status.
    pub fn status(&self) -> PeerStatus {
        PeerStatus::of(self)
    }

    /// Returns the reasons for deferred persistence, one per log.
    pub fn unkept_logs(&self) -> Vec<PersistError> {
        self.core.lock().log_writer.iter().flat_map(LogWriter::unkept).collect()
    }

    /// Whether no flow is open here and the link has delivered all its input.
    pub fn is_idle(&self) -> bool {
        let core = self.core.lock();
        core.flows.is_empty() && (!core.link.is_up() || core.link.open_flows() == 0)
    }
}
