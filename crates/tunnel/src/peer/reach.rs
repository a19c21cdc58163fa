//! A peer's availability, and waiting for it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use oncewire_codec::Now;
use oncewire_codec::wire::Network;
use oncewire_host::clock::Clock;
use oncewire_host::log_throttle::LogThrottle;
use oncewire_host::tasks::Tasks;
use oncewire_link::Link;
use tokio::sync::watch;
use tokio::time::Instant;

use super::lines::burst;

/// Whether a peer takes flows, and the networks behind it.
#[derive(Debug)]
pub struct Availability {
    peer: String,
    clock: Clock,
    /// Tasks ending with the peer.
    tasks: Arc<Tasks>,
    reach: watch::Sender<Reach>,
    /// The networks behind it by its announcement; none until the first.
    announced: watch::Sender<Option<Vec<Network>>>,
    /// A peer can come and go at any rate.
    changes: LogThrottle,
    /// A change is held back for a later report.
    is_unsaid: AtomicBool,
    leaving: LogThrottle,
}

/// Whether flows can be opened, and since when.
#[derive(Clone, Copy, Debug)]
struct Reach {
    /// Whether the link is up.
    up: bool,
    /// Whether the peer is draining: it announced an end of new flows, and has not come anew since.
    leaving: bool,
    since: Now,
}

impl Reach {
    fn takes_flows(&self) -> bool {
        self.up && !self.leaving
    }
}

impl Availability {
    /// A link that is down.
    pub(super) fn new(peer: &str, clock: Clock, tasks: Arc<Tasks>) -> Arc<Self> {
        Arc::new(Self {
            peer: peer.to_owned(),
            clock,
            tasks,
            reach: watch::Sender::new(Reach { up: false, leaving: false, since: clock.now() }),
            announced: watch::Sender::new(None),
            changes: burst(),
            is_unsaid: AtomicBool::new(false),
            leaving: LogThrottle::default(),
        })
    }

    /// Brings it in line with the link; under the link's lock: receivers of other news must find it current.
    pub(super) fn note(self: &Arc<Self>, link: &Link) {
        let (up, leaving) = (link.is_up(), link.peer_drains());
        let mut before = None;
        self.reach.send_if_modified(|reach| {
            let changed = (reach.up, reach.leaving) != (up, leaving);
            if changed {
                before = Some(*reach);
                *reach = Reach { up, leaving, since: self.clock.now() };
            }
            changed
        });
        let Some(before) = before else { return };
        if before.up != up {
            self.log(up);
        }
        if leaving
            && !before.leaving
            && let Some(held_back) = self.leaving.due()
        {
            let peer = &self.peer;
            tracing::info!(peer, held_back, "the peer takes no new flows: it stops, or begins anew");
        }
    }

    /// Logs the link's state: a few changes at once, then the state at the end of each period.
    fn log(self: &Arc<Self>, up: bool) {
        if let Some(held_back) = self.changes.due() {
            return self.log_now(up, held_back);
        }
        if self.is_unsaid.swap(true, Relaxed) {
            return;
        }
        let availability = Arc::downgrade(self);
        self.tasks.spawn(async move {
            let Some(this) = availability.upgrade() else { return };
            let held_back = this.changes.next().await;
            // Before the read: later changes must be reported again.
            this.is_unsaid.store(false, Relaxed);
            let up = this.reach.borrow().up;
            this.log_now(up, held_back);
        });
    }

    fn log_now(&self, up: bool, held_back: u64) {
        let held_back = (held_back > 0).then_some(held_back);
        tracing::info!(peer = self.peer, held_back, "link {}", if up { "up" } else { "down" });
    }

    /// Takes the peer's announced networks; under the link's lock: the last announcement must win.
    pub(super) fn note_announced(&self, networks: Vec<Network>) {
        self.announced.send_replace(Some(networks));
    }

    /// Returns the receiver of the peer's announced networks.
    pub(crate) fn announced(&self) -> watch::Receiver<Option<Vec<Network>>> {
        self.announced.subscribe()
    }

    /// Waits until the peer takes flows, for at most `limit`; returns whether it does.
    pub async fn wait_up(&self, limit: Duration) -> bool {
        tokio::time::timeout(limit, self.up()).await.is_ok()
    }

    /// Waits for a link under repair or restart, until it has taken no flows for `grace`: later callers do
    /// not wait.
    pub async fn wait_repaired(&self, grace: Duration) {
        let _ = tokio::time::timeout_at(self.end_of(grace), self.up()).await;
    }

    /// As [`Self::wait_repaired`], and until the peer has announced its networks, with a limit of `grace`
    /// once it is up.
    pub async fn wait_heard(&self, grace: Duration) {
        self.wait_repaired(grace).await;
        if self.takes_flows() {
            let mut announced = self.announced.subscribe();
            // An error means the end of the gateway.
            let heard = announced.wait_for(Option::is_some);
            let _ = tokio::time::timeout_at(self.end_of(grace), heard).await;
        }
    }

    /// Waits until the link has been away for `grace`.
    pub(crate) async fn lost(&self, grace: Duration) {
        let mut reach = self.reach.subscribe();
        // An error means the end of the gateway and all its waiters.
        while reach.wait_for(|reach| !reach.up).await.is_ok() {
            let repaired =
                tokio::time::timeout_at(self.end_of(grace), reach.wait_for(|reach| reach.up)).await;
            if repaired.is_err() {
                return;
            }
        }
    }

    /// Waits until the peer takes flows.
    async fn up(&self) {
        let mut reach = self.reach.subscribe();
        // An error means the end of the gateway.
        let _ = reach.wait_for(Reach::takes_flows).await;
    }

    /// Returns the end of a `grace` time in the link's present state.
    fn end_of(&self, grace: Duration) -> Instant {
        let since = self.reach.borrow().since;
        self.clock.instant(since + grace)
    }

    /// Whether the link is up.
    pub fn is_up(&self) -> bool {
        self.reach.borrow().up
    }

    /// Whether the link is up and the peer takes new flows.
    pub(crate) fn takes_flows(&self) -> bool {
        self.reach.borrow().takes_flows()
    }

    /// Whether the peer has announced an end of new flows; it may be gone by now, but has not come anew.
    pub fn is_leaving(&self) -> bool {
        self.reach.borrow().leaving
    }
}
