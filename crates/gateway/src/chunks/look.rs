//! Looking at the store from time to time, on its own thread.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;

use oncewire_store::Store;

use super::slot::{Held, PoolOf};
use super::{ChunkStore, Seen};

/// Says that a look is under way, for as long as it is there: also if the look is never made, or ends badly.
struct Looking(Arc<Mutex<Seen>>);

impl Drop for Looking {
    fn drop(&mut self) {
        self.0.lock().looking = false;
    }
}

impl ChunkStore {
    /// Has the thread that writes look at the store, and sync it; unless it has not come to the last look yet. Who waits
    /// for a disk that hangs is told to wait no longer.
    pub(crate) fn look(&self, sync: bool) {
        let slot = self.slot.read();
        let Some(PoolOf(pool)) = slot.pool() else { return };
        if Held::of(&pool.load(), self.hangs_after).any() {
            let away = pool.turn_away();
            // Who is told may ask for something else at once.
            drop(slot);
            return away.tell();
        }
        if std::mem::replace(&mut self.seen.lock().looking, true) {
            return;
        }
        let looking = Looking(Arc::clone(&self.seen));
        let tally = Arc::clone(&self.tally);
        let try_again = sync && (tally.syncs.fetch_add(1, Relaxed) + 1).is_multiple_of(TRY_AGAIN_EVERY);
        let job = move |store: &Store| {
            let synced = if sync { store.sync() } else { Ok(()) };
            for file in try_again.then(|| store.try_again()).into_iter().flatten() {
                tracing::error!(
                    "chunk store: {file} is given up, since the disk refuses it and no other; what was in it is \
                     fetched and stored again when it is needed"
                );
            }
            let (trouble, horizon, counts) = (store.trouble(), store.horizon(), store.counts());
            let trouble = trouble.or_else(|| synced.err().map(|error| error.to_string()));
            tally.oldest_s.store(horizon.oldest_s.unwrap_or(0), Relaxed);
            tally.taking.store(trouble.is_none(), Relaxed);
            let changed = {
                let seen = looking.0.lock();
                seen.stat.is_none() || sync && seen.stat_counts != counts
            };
            // It counts the whole index, so not more often than things change.
            let stat = changed.then(|| store.stat());
            let mut seen = looking.0.lock();
            if let (None, Some(why)) = (&seen.trouble, &trouble) {
                tracing::error!(
                    "the chunk store takes nothing more: {why}; what it has is read on, and the rest of the traffic goes \
                     without; when the disk is well, start the gateway again"
                );
            }
            if stat.is_some() {
                (seen.stat, seen.stat_counts) = (stat, counts);
            }
            (seen.counts, seen.trouble) = (counts, trouble);
        };
        // One that finds no room was none.
        let _ = pool.ingest(0, job);
    }
}

/// Syncs from one to the next after which a disk is asked again for what it refused: with one every five seconds, a
/// minute, since a disk may take seconds to refuse.
const TRY_AGAIN_EVERY: u64 = 12;
