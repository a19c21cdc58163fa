//! Health of one log's persistence, from its writer to `status`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use tokio::time::Instant;

/// Reason for deferred persistence, and its begin.
#[derive(Clone, Debug)]
pub struct PersistError {
    /// A sentence with duration, object, place and reason.
    pub why: String,
    /// The start of the trouble.
    pub since: Instant,
}

/// Fate of one log's bytes.
#[derive(Debug, Default)]
pub(super) struct Health {
    lost: AtomicU64,
    skipped: AtomicU64,
    unkept: Mutex<Option<PersistError>>,
}

impl PersistError {
    /// Not kept from now on.
    pub(super) fn now(why: String) -> Self {
        Self { why, since: Instant::now() }
    }

    /// Returns the oldest of them, with the number of others in its sentence.
    pub fn oldest(all: impl IntoIterator<Item = Self>) -> Option<Self> {
        let mut all: Vec<_> = all.into_iter().collect();
        all.sort_by_key(|unkept| unkept.since);
        let others = match all.len().saturating_sub(1) {
            0 => "",
            1 => " (and so with 1 other log)",
            more => &format!(" (and so with {more} other logs)"),
        };
        let first = all.into_iter().next()?;
        Some(Self { why: first.why + others, ..first })
    }
}

impl Health {
    /// Counts bytes lost to the next start.
    pub(super) fn lose(&self, bytes: u64) {
        self.lost.fetch_add(bytes, Relaxed);
    }

    /// Counts a skipped piece of this length; later pieces may still be written.
    pub(super) fn skip(&self, bytes: u64) {
        self.lose(bytes);
        self.skipped.fetch_add(1, Relaxed);
    }

    /// Returns the number of skipped pieces.
    pub(super) fn skipped(&self) -> u64 {
        self.skipped.load(Relaxed)
    }

    /// Returns how many bytes were counted.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }

    /// Ends its persistence.
    pub(super) fn fail(&self, why: String) {
        *self.unkept.lock() = Some(PersistError::now(why));
    }

    /// It is kept again.
    pub(super) fn recover(&self) {
        *self.unkept.lock() = None;
    }

    /// Returns the reason for deferred persistence, if any.
    pub(super) fn unkept(&self) -> Option<PersistError> {
        self.unkept.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn oldest_failure_represents_all() {
        let since = Instant::now();
        let all = [2, 1, 3].map(|second| PersistError {
            why: format!("log {second}"),
            since: since + Duration::from_secs(second),
        });
        let oldest = |count| PersistError::oldest(all[..count].to_vec()).map(|unkept| unkept.why);
        assert_eq!(oldest(0), None);
        assert_eq!(oldest(1).as_deref(), Some("log 2"));
        assert_eq!(oldest(2).as_deref(), Some("log 1 (and so with 1 other log)"));
        assert_eq!(oldest(3).as_deref(), Some("log 1 (and so with 2 other logs)"));
    }
}
