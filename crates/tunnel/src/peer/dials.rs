//! A peer's lanes between peer and dialler: wanted, short-lived, stable.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use oncewire_codec::wire::Destination;
use oncewire_report::LinkState;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Results of dialling, and of lanes.
#[derive(Debug, Default)]
pub(crate) struct Dials {
    /// Wakes the dialler: the link wants lanes, or lost one.
    wake: Notify,
    short_lived: AtomicU64,
    has_stable: AtomicBool,
    /// Why there is no link, if known.
    trouble: Mutex<Option<(LinkState, String)>>,
    /// Remote address of the last dialled lane.
    address: Mutex<Option<SocketAddr>>,
}

impl Dials {
    /// Wakes the dialler.
    pub(super) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Waits for work for the dialler.
    pub(crate) async fn wanted(&self) {
        self.wake.notified().await;
    }

    /// Notes the remote address of a dialled lane.
    pub(crate) fn note_address(&self, address: Option<SocketAddr>) {
        if address.is_some() {
            *self.address.lock() = address;
        }
    }

    /// Whether a destination is the address dialled last.
    pub(super) fn is_at(&self, destination: &Destination) -> bool {
        let known = self.address.lock().map(|at| SocketAddr::new(at.ip().to_canonical(), at.port()));
        known.is_some_and(|known| Destination::from(known) == *destination)
    }

    /// Counts a lost lane.
    pub(super) fn note_lost(&self, short_lived: bool) {
        if short_lived {
            self.short_lived.fetch_add(1, Relaxed);
        } else {
            self.has_stable.store(true, Relaxed);
        }
    }

    /// Reports a stable lane to the dialler: the peer takes lanes.
    pub(crate) fn note_stable(&self) {
        self.has_stable.store(true, Relaxed);
        self.wake();
    }

    /// Takes the number of short-lived lanes, refusals in all but name.
    pub(crate) fn take_short_lived(&self) -> u64 {
        self.short_lived.swap(0, Relaxed)
    }

    /// Whether a lane has been stable since the last call.
    pub(crate) fn take_stable(&self) -> bool {
        self.has_stable.swap(false, Relaxed)
    }

    /// Records why there is no link.
    pub(crate) fn note_trouble(&self, state: LinkState, reason: String) {
        *self.trouble.lock() = Some((state, reason));
    }

    /// Forgets why there was no link.
    pub(super) fn forget_trouble(&self) {
        *self.trouble.lock() = None;
    }

    /// Why there is no link, if known.
    pub(super) fn trouble(&self) -> Option<(LinkState, String)> {
        self.trouble.lock().clone()
    }
}
