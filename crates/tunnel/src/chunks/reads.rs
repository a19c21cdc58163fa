//! Outcomes of links' chunk reads.

use std::sync::atomic::{AtomicU64, Ordering};

use oncewire_report::StoreReport;
use oncewire_store::Fault;
use oncewire_store::pool::ReadOutcome;

/// Reads of links since the start, each counted as asked for before any other count. They include neither
/// loans to neighbours nor the store's second look at the same read.
#[derive(Debug, Default)]
pub(super) struct Reads {
    asked: AtomicU64,
    found: AtomicU64,
    found_bytes: AtomicU64,
    absent: AtomicU64,
    damaged: AtomicU64,
    unreadable: AtomicU64,
    turned_away: AtomicU64,
}

impl Reads {
    /// Counts the start of a read.
    pub(super) fn begin(&self) {
        self.asked.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a read refused by the store.
    pub(super) fn turn_away(&self) {
        add(&self.turned_away, 1);
    }

    /// Counts an outcome.
    pub(super) fn end(&self, outcome: &ReadOutcome) {
        let ended = match outcome {
            Ok(Some(bytes)) => {
                add(&self.found_bytes, bytes.len() as u64);
                &self.found
            }
            Ok(None) => &self.absent,
            Err(Fault::Damaged { .. } | Fault::Broken { .. } | Fault::GivenUp { .. }) => &self.damaged,
            Err(Fault::Hangs) => &self.turned_away,
            Err(Fault::Io { .. } | Fault::NotTried { .. }) => &self.unreadable,
        };
        add(ended, 1);
    }

    /// Reports them. Running reads count as asked for only.
    pub(super) fn report(&self) -> StoreReport {
        let now = |count: &AtomicU64| count.load(Ordering::Acquire);
        let ended = StoreReport {
            found: now(&self.found),
            found_bytes: now(&self.found_bytes),
            absent: now(&self.absent),
            damaged: now(&self.damaged),
            unreadable: now(&self.unreadable),
            turned_away: now(&self.turned_away),
            ..StoreReport::default()
        };
        // Last: a read ending meanwhile must not be counted as ended alone.
        StoreReport { reads: now(&self.asked), ..ended }
    }
}

/// Adds to an outcome; a reader of the sum also sees its request.
fn add(count: &AtomicU64, n: u64) {
    count.fetch_add(n, Ordering::Release);
}
