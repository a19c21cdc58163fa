//! A peer's link and the chunk stores of both ends.

use std::sync::Arc;

use oncewire_link::StoreReply;

use super::{Core, Peer};

impl Peer {
    /// Gives the link what became of a read; from any thread.
    pub(crate) fn handle_chunk(self: &Arc<Self>, reply: StoreReply) {
        self.with(|core, now| core.link.handle_store(reply, now));
    }

    /// Tells the link how the store stands, if that is not what it was told last.
    pub(crate) fn tell_store_state(self: &Arc<Self>) {
        if self.settings.store.is_some() {
            self.touch();
        }
    }

    /// Hands the link's requests to the store, and tells it how that stands. Under the lock, so that puts are queued
    /// before anything is acknowledged; nothing here waits.
    pub(super) fn feed_store(self: &Arc<Self>, core: &mut Core) {
        let Some(store) = &self.settings.store else { return };
        while let Some(request) = core.link.poll_chunk_store() {
            if let Some(reply) = store.serve(self, request) {
                core.link.handle_store(reply, self.clock.now());
            }
        }
        let state = store.state();
        if state != core.store_state {
            core.store_state = state;
            core.link.handle_store_state(state, self.clock.now());
        }
    }

    /// Saves what is known of the peer's store beside the logs, if they are kept; returns how many bytes that is.
    pub(crate) async fn save_hints(self: &Arc<Self>) -> u64 {
        let Some(file) = self.hints.clone() else { return 0 };
        let peer = Arc::clone(self);
        let save = move || {
            let saved = file.write(|| peer.core.lock().link.save_hints());
            saved.inspect_err(|error| {
                tracing::warn!(peer = peer.name(), %error, "cannot save what is known of its chunk store");
            })
        };
        // A panic there was reported by the thread that had it.
        tokio::task::spawn_blocking(save).await.ok().and_then(Result::ok).unwrap_or(0) as u64
    }
}
