//! Progress of long work.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The done share of a long piece of work, for its worker and its observers.
///
/// The unit depends on the work: bytes of segments for a full read, segments for the opening of a store.
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicU64,
    total: AtomicU64,
    cancelled: AtomicBool,
}

impl Progress {
    /// Returns how many units are done.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Returns the total of units; 0 while unknown.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Returns the done share, from 0 to 1; 0 while unknown.
    pub fn share(&self) -> f64 {
        match self.total() {
            0 => 0.0,
            total => (self.done() as f64 / total as f64).min(1.0),
        }
    }

    /// Has the work end before it is done, with an error, as soon as it looks.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    pub(crate) fn begin(&self, total: u64) {
        self.done.store(0, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
    }

    /// Counts finished units.
    ///
    /// # Errors
    /// [`io::ErrorKind::Interrupted`] if the work is to end.
    pub(crate) fn advance(&self, units: u64) -> io::Result<()> {
        self.done.fetch_add(units, Ordering::Relaxed);
        match self.cancelled.load(Ordering::Relaxed) {
            true => Err(io::ErrorKind::Interrupted.into()),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_between_nothing_and_all() {
        let progress = Progress::default();
        assert_eq!(progress.share(), 0.0, "not known yet");
        progress.begin(4);
        progress.advance(1).unwrap();
        assert_eq!(progress.share(), 0.25);
        progress.advance(9).unwrap();
        assert_eq!((progress.done(), progress.share()), (10, 1.0));
        progress.cancel();
        assert!(progress.advance(0).is_err());
    }
}
