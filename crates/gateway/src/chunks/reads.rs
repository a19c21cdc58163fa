//! What became of the chunks that links asked the store for.

use std::sync::atomic::{AtomicU64, Ordering};

use oncewire_store::Fault;
use oncewire_store::pool::ReadOutcome;

use crate::telemetry::StoreReport;

/// Reads of links since the start, each counted as asked for before it is counted as anything else. What neighbours are
/// lent is no part of them, and neither is a second look of the store at the same read.
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
    /// Counts a read that begins.
    pub(super) fn begin(&self) {
        self.asked.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one that the store did not take.
    pub(super) fn turn_away(&self) {
        add(&self.turned_away, 1);
    }

    /// Counts what one ended with.
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

    /// Tells them. Those that go on are asked for, and nothing else yet.
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
        // Last, or one that ends meanwhile would be among those that ended alone.
        StoreReport { reads: now(&self.asked), ..ended }
    }
}

/// Adds to what ended; who sees it sees, too, that it was asked for.
fn add(count: &AtomicU64, n: u64) {
    count.fetch_add(n, Ordering::Release);
}
