//! Where the store is between the start of a gateway and its end: being opened, open, or gone.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use oncewire_store::Progress;
use oncewire_store::pool::{Load, Pool};

/// What there is of a store.
#[derive(Debug, Default)]
pub(super) enum Slot {
    /// A thread looks through its files, which may take minutes.
    Opening(Opening),
    /// It is read and written.
    Open(PoolOf),
    /// It could not be opened, or is closed.
    #[default]
    None,
}

/// A store that is being opened.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) progress: Arc<Progress>,
    pub(super) thread: Option<JoinHandle<()>>,
}

/// The threads that work on the store.
pub(super) struct PoolOf(pub(super) Pool);

impl Slot {
    /// Returns the store if it is open.
    pub(super) fn pool(&self) -> Option<&PoolOf> {
        match self {
            Self::Open(pool) => Some(pool),
            Self::Opening(_) | Self::None => None,
        }
    }

    /// Ends what there is, as long as that takes: not on a thread that others wait for.
    pub(super) fn close(self) -> std::io::Result<()> {
        match self {
            Self::Opening(Opening { progress, thread }) => {
                progress.cancel();
                // What panics there was reported.
                thread.map_or(Ok(()), |thread| thread.join().or(Ok(())))
            }
            Self::Open(PoolOf(pool)) => pool.close(),
            Self::None => Ok(()),
        }
    }
}

/// What the disk does not let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    /// No reader for so long that the gateway does without.
    pub(super) reads: bool,
    /// The thread that writes.
    pub(super) writes: bool,
}

impl Held {
    /// Says what is held that has been at it for `limit`.
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
