//! Looking at the store from time to time, on its own thread.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use oncewire_store::Store;

use super::{ChunkStore, PoolOf};

impl ChunkStore {
    /// Has the thread that writes look at the store, and sync it; unless it has not come to the last look yet.
    pub(crate) fn look(&self, sync: bool) {
        if std::mem::replace(&mut self.seen.lock().looking, true) {
            return;
        }
        let (seen, tally) = (Arc::clone(&self.seen), Arc::clone(&self.tally));
        let job = move |store: &Store| {
            let synced = if sync { store.sync() } else { Ok(()) };
            let (trouble, horizon, counts) = (store.trouble(), store.horizon(), store.counts());
            let trouble = trouble.or_else(|| synced.err().map(|error| error.to_string()));
            tally.oldest_s.store(horizon.oldest_s.unwrap_or(0), Relaxed);
            tally.taking.store(trouble.is_none(), Relaxed);
            let changed = {
                let seen = seen.lock();
                seen.stat.is_none() || sync && seen.stat_counts != counts
            };
            // It counts the whole index, so not more often than things change.
            let stat = changed.then(|| store.stat());
            let mut seen = seen.lock();
            if let (None, Some(why)) = (&seen.trouble, &trouble) {
                tracing::error!("the chunk store takes nothing more: {why}");
            }
            if stat.is_some() {
                (seen.stat, seen.stat_counts) = (stat, counts);
            }
            (seen.counts, seen.trouble, seen.looking) = (counts, trouble, false);
        };
        let pool = self.pool.read();
        if pool.as_ref().is_none_or(|PoolOf(pool)| pool.ingest(0, job).is_err()) {
            self.seen.lock().looking = false;
        }
    }
}
