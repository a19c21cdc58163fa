//! Periodic checks of the store, on its own thread.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;

use oncewire_store::Store;

use super::slot::{Held, PoolOf};
use super::{ChunkStore, Seen, Tally};

/// Marks a look as pending for as long as it lives: also if the look is never made, or panics.
struct Looking(Arc<Mutex<Seen>>);

impl Drop for Looking {
    fn drop(&mut self) {
        self.0.lock().looking = false;
    }
}

impl ChunkStore {
    /// Has the writing thread look at the store ahead of its other jobs, and sync it; a look still queued
    /// gets the sync instead. Waiters on a hanging disk are refused.
    pub fn look(&self, sync: bool) {
        self.seen.lock().sync_is_due |= sync;
        let slot = self.slot.read();
        let Some(PoolOf(pool)) = slot.pool() else { return };
        let held = Held::of(&pool.load(), self.hangs_after);
        if held.any() {
            // Working readers go on with their queue.
            let away = if held.reads { pool.turn_away() } else { pool.turn_away_patient() };
            // A refused waiter may send another request at once.
            drop(slot);
            return away.tell();
        }
        if std::mem::replace(&mut self.seen.lock().looking, true) {
            return;
        }
        let looking = Looking(Arc::clone(&self.seen));
        let tally = Arc::clone(&self.tally);
        // There is never a second job in front.
        let _ = pool.ingest_first(move |store| look_at(store, &looking.0, &tally));
    }
}

fn look_at(store: &Store, seen: &Mutex<Seen>, tally: &Tally) {
    let sync = seen.lock().sync_is_due;
    let synced = if sync { store.sync() } else { Ok(()) };
    if sync {
        // No put came in between: this thread does them.
        seen.lock().sync_is_due = false;
        let syncs = tally.syncs.fetch_add(1, Relaxed) + 1;
        let given_up = if syncs.is_multiple_of(TRY_AGAIN_EVERY) { store.try_again() } else { Vec::new() };
        for file in given_up {
            tracing::error!(
                "chunk store: {file} is given up, since the disk refuses it and no other; what was in it is fetched and \
                 stored again when it is needed"
            );
        }
    }
    let (trouble, horizon, counts) = (store.trouble(), store.horizon(), store.counts());
    let trouble = trouble.or_else(|| synced.err().map(|error| error.to_string()));
    let passes = store.is_held_up();
    let trouble = trouble.map(|why| if passes { format!("{why}; {TRIED_AGAIN}") } else { why });
    tally.oldest_s.store(horizon.oldest_s.unwrap_or(0), Relaxed);
    tally.taking.store(trouble.is_none(), Relaxed);
    let changed = {
        let seen = seen.lock();
        seen.stat.is_none() || sync && seen.stat_counts != counts
    };
    // It takes milliseconds, so only after changes.
    let stat = changed.then(|| store.stat());
    let mut seen = seen.lock();
    let was_final = seen.trouble.is_some() && !seen.passes;
    match (&seen.trouble, &trouble) {
        // Once with each sync at most.
        (None, Some(why)) if passes => tracing::warn!(
            "the chunk store takes nothing for now: {why}; what was not written is dropped, and what it has is read on"
        ),
        (_, Some(why)) if !passes && !was_final => tracing::error!(
            "the chunk store takes nothing more: {why}; what it has is read on, and the rest of the traffic goes without; \
             when the disk is well, start the gateway again"
        ),
        (Some(_), None) => tracing::info!("the chunk store takes chunks again"),
        _ => {}
    }
    if stat.is_some() {
        (seen.stat, seen.stat_counts) = (stat, counts);
    }
    (seen.counts, seen.trouble, seen.passes) = (counts, trouble, passes);
}

/// Notes the store's present statistics; a look does so with its next sync.
pub(super) fn note_stat(store: &Store, seen: &Mutex<Seen>) {
    // In this order: concurrent changes get another look.
    let counts = store.counts();
    let stat = store.stat();
    let mut seen = seen.lock();
    (seen.stat, seen.stat_counts, seen.counts) = (Some(stat), counts, counts);
}

/// Fate of a transient trouble.
const TRIED_AGAIN: &str = "it is tried again with every sync, each five seconds";

/// Syncs between two retries of segments that the disk refused to read: with a sync every five seconds, a
/// minute, since a disk may take seconds to refuse.
const TRY_AGAIN_EVERY: u64 = 12;
