//! How far something has come that takes long, for whoever waits for it.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How much of a long piece of work is done; shared between who does it and who looks.
///
/// What a unit is, the work says: bytes of segments where all is read, segments where a store is opened.
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

    /// Returns how many units there are in all; 0 while that is not known.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Returns the share that is done, from 0 to 1; 0 while it is not known.
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

    /// Counts what was done.
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
