//! Looking after peers, the chunk store, and what is known of peers' stores, while the gateway runs.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::watch;
use tokio::time::Instant;

use super::state::State;
use crate::chunks::ChunkStore;
use crate::tunnel::peer::{HintsSaved, Peer};

/// Has peers and the store looked at, the store synced, and what is known of peers' stores saved, for as long as the
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

/// What is known of a peer's hints from one look to the next.
struct Watched {
    peer: Arc<Peer>,
    /// Changes of them when they were saved last.
    saved: u64,
    due: Instant,
    /// What tells how many bytes that took, as long as they are being saved.
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
                // What the disk refused is still new.
                self.saved = 0;
            }
            let bytes = saved.unwrap_or(0);
            // No more than a megabyte a second, however much is known.
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

/// Looks from one sync to the next: what a power cut may cost.
const SYNC_EVERY: u64 = 5;

/// What a killed process may lose of what it knew of peers' stores, in time.
const SAVE_EVERY: Duration = Duration::from_secs(5);
