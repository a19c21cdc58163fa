//! The store's place from opening to its end.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use oncewire_store::Progress;
use oncewire_store::pool::{Load, Pool};

/// State of a store.
#[derive(Debug, Default)]
pub(super) enum Slot {
    /// A thread is scanning its files, perhaps for minutes.
    Opening(Opening),
    /// It is read and written.
    Open(PoolOf),
    /// It could not be opened, or is closed.
    #[default]
    None,
}

/// A store under opening.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) progress: Arc<Progress>,
    pub(super) thread: Option<JoinHandle<()>>,
}

/// The store's worker threads.
pub(super) struct PoolOf(pub(super) Pool);

impl Slot {
    /// Returns the store if it is open.
    pub(super) fn pool(&self) -> Option<&PoolOf> {
        match self {
            Self::Open(pool) => Some(pool),
            Self::Opening(_) | Self::None => None,
        }
    }

    /// Ends it, with all the time needed: call on a thread free to block.
    pub(super) fn close(self) -> std::io::Result<()> {
        match self {
            Self::Opening(Opening { progress, thread }) => {
                progress.cancel();
                // A panic there was reported already.
                thread.map_or(Ok(()), |thread| thread.join().or(Ok(())))
            }
            Self::Open(PoolOf(pool)) => pool.close(),
            Self::None => Ok(()),
        }
    }
}

/// Operations held by the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    /// All readers, for longer than the gateway's patience.
    pub(super) reads: bool,
    /// The writing thread.
    pub(super) writes: bool,
}

impl Held {
    /// Returns the operations held for `limit` or longer.
    pub(super) fn of(load: &Load, limit: Duration) -> Self {
        Self { reads: load.stalled >= limit, writes: load.oldest_job >= limit }
    }

    pub(super) fn any(self) -> bool {
        self.reads || self.writes
    }
}

impl std::fmt::Debug for PoolOf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pool")
    }
}
