//! Upkeep of peers, the chunk store and hints, while the gateway runs.

use std::sync::Arc;
use std::time::Duration;

use oncewire_tunnel::chunks::ChunkStore;
use oncewire_tunnel::peer::{HintsSaved, Peer};
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::watch;
use tokio::time::Instant;

use super::state::State;

/// Checks peers and the store, syncs the store, and saves the knowledge of peers' stores, for as long as the
/// gateway runs.
pub(super) async fn run(mut state: watch::Receiver<Arc<State>>, store: Option<Arc<ChunkStore>>) {
    let mut hints: Vec<Watched> = Vec::new();
    for turn in 0_u64.. {
        let now = Arc::clone(&state.borrow_and_update());
        now.peering.look();
        if let Some(store) = &store {
            store.look(turn.is_multiple_of(SYNC_EVERY));
            now.peers.iter().for_each(Peer::tell_store_state);
        }
        hints = now.peers.iter().map(|peer| Watched::of(peer, &mut hints)).collect();
        for watched in &mut hints {
            watched.save_if_due();
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// State of a peer's hints from one look to the next.
struct Watched {
    peer: Arc<Peer>,
    /// Count of changes at the last save.
    saved: u64,
    due: Instant,
    /// Receiver of a running save's size.
    saving: Option<HintsSaved>,
}

impl Watched {
    fn of(peer: &Arc<Peer>, before: &mut Vec<Self>) -> Self {
        match before.iter().position(|known| Arc::ptr_eq(&known.peer, peer)) {
            Some(at) => before.swap_remove(at),
            None => {
                let due = Instant::now() + SAVE_EVERY;
                Self { peer: Arc::clone(peer), saved: 0, due, saving: None }
            }
        }
    }

    /// Begins to save them if there is anything new, but not while the disk is busy with the last.
    fn save_if_due(&mut self) {
        if let Some(saving) = &mut self.saving {
            let saved = match saving.try_recv() {
                Ok(saved) => saved.ok(),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Closed) => None,
            };
            if saved.is_none() {
                // Hints refused by the disk are still new.
                self.saved = 0;
            }
            let bytes = saved.unwrap_or(0);
            // At most a megabyte a second, for any amount of hints.
            self.due = Instant::now() + SAVE_EVERY.max(Duration::from_secs(bytes >> 20));
            self.saving = None;
        }
        let changes = self.peer.status().link.out.hint_changes;
        if changes == self.saved || Instant::now() < self.due {
            return;
        }
        self.saving = self.peer.save_hints();
        self.due = Instant::now() + SAVE_EVERY;
        self.saved = changes;
    }
}

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Looks from one sync to the next: the possible loss of a power cut.
const SYNC_EVERY: u64 = 5;

/// A killed process's possible loss of knowledge of peers' stores, in time.
const SAVE_EVERY: Duration = Duration::from_secs(5);
