//! A peer's availability, and waiting for it.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::time::Instant;

use oncewire_codec::Now;
use oncewire_link::Link;

use super::Peer;

/// Whether flows can be opened, and since when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reach {
    /// Whether the link is up.
    pub(super) up: bool,
    /// Whether the peer is draining: it announced an end of new flows, and has not come anew since.
    pub(super) leaving: bool,
    pub(super) since: Now,
}

impl Reach {
    fn takes_flows(&self) -> bool {
        self.up && !self.leaving
    }
}

impl Peer {
    /// Brings `reach` in line with the link; under the lock: receivers of other news must find it current.
    pub(super) fn note_reach(self: &Arc<Self>, link: &Link) {
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
            self.log_reach(up);
        }
        if leaving
            && !before.leaving
            && let Some(held_back) = self.leaving_log.due()
        {
            let peer = self.name();
            tracing::info!(peer, held_back, "the peer takes no new flows: it stops, or begins anew");
        }
    }

    /// Logs the link's state: a few changes at once, then the state at the end of each period.
    fn log_reach(self: &Arc<Self>, up: bool) {
        let log = |peer: &Self, up, held_back| {
            let held_back = (held_back > 0).then_some(held_back);
            tracing::info!(peer = peer.name(), held_back, "link {}", if up { "up" } else { "down" });
        };
        if let Some(held_back) = self.reach_log.due() {
            return log(self, up, held_back);
        }
        if self.reach_unsaid.swap(true, Relaxed) {
            return;
        }
        let peer = Arc::downgrade(self);
        self.tasks.spawn(async move {
            let Some(peer) = peer.upgrade() else { return };
            let held_back = peer.reach_log.next().await;
            // Before the read: later changes must be reported again.
            peer.reach_unsaid.store(false, Relaxed);
            let up = peer.reach.borrow().up;
            log(&peer, up, held_back);
        });
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

    /// Whether its link is up.
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
