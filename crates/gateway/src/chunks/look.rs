//! Looking at the store from time to time, on its own thread.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;

use oncewire_store::Store;

use super::slot::{Held, PoolOf};
use super::{ChunkStore, Seen, Tally};

/// Says that a look is under way, for as long as it is there: also if the look is never made, or ends badly.
struct Looking(Arc<Mutex<Seen>>);

impl Drop for Looking {
    fn drop(&mut self) {
        self.0.lock().looking = false;
    }
}

impl ChunkStore {
    /// Has the thread that writes look at the store before it does anything else, and sync it; unless it has not come to
    /// the last look yet, which then syncs, too. Who waits for a disk that hangs is told to wait no longer.
    pub(crate) fn look(&self, sync: bool) {
        self.seen.lock().sync_is_due |= sync;
        let slot = self.slot.read();
        let Some(PoolOf(pool)) = slot.pool() else { return };
        let held = Held::of(&pool.load(), self.hangs_after);
        if held.any() {
            // Readers that work go on with what they are asked for.
            let away = if held.reads { pool.turn_away() } else { pool.turn_away_patient() };
            // Who is told may ask for something else at once.
            drop(slot);
            return away.tell();
        }
        if std::mem::replace(&mut self.seen.lock().looking, true) {
            return;
        }
        let looking = Looking(Arc::clone(&self.seen));
        let tally = Arc::clone(&self.tally);
        // There is never another one that goes first.
        let _ = pool.ingest_first(move |store| look_at(store, &looking.0, &tally));
    }
}

fn look_at(store: &Store, seen: &Mutex<Seen>, tally: &Tally) {
    let sync = seen.lock().sync_is_due;
    let synced = if sync { store.sync() } else { Ok(()) };
    if sync {
        // Nothing was put meanwhile, for that is done by this thread.
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
    // It takes milliseconds, so not more often than things change.
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

/// Notes what the store has now; a look finds that out with its next sync.
pub(super) fn note_stat(store: &Store, seen: &Mutex<Seen>) {
    // In this order: what changes meanwhile is looked at again.
    let counts = store.counts();
    let stat = store.stat();
    let mut seen = seen.lock();
    (seen.stat, seen.stat_counts, seen.counts) = (Some(stat), counts, counts);
}

/// What becomes of a trouble that passes.
const TRIED_AGAIN: &str = "it is tried again with every sync, each five seconds";

/// Syncs from one to the next after which a disk is asked again for what it refused: with one every five seconds, a
/// minute, since a disk may take seconds to refuse.
const TRY_AGAIN_EVERY: u64 = 12;
