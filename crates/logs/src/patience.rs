//! Time limits for the log disk, and the messages at their end.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use oncewire_host::slow_disk::{self, DISK_LIMIT, READ_LIMIT};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::health::PersistError;

/// Reasons for unopened logs in spite of a directory for them.
#[derive(Clone, Debug, Default)]
pub struct PersistFailure(Arc<Mutex<Option<PersistError>>>);

impl PersistFailure {
    /// Returns the reason as a sentence; none as long as all were opened.
    pub fn why(&self) -> Option<String> {
        self.unkept().map(|unkept| unkept.why)
    }

    /// Returns the reason, and since when it holds.
    pub fn unkept(&self) -> Option<PersistError> {
        self.0.lock().clone()
    }

    pub(super) fn say(&self, why: String) {
        *self.0.lock() = Some(PersistError::now(why));
    }

    /// They are kept again.
    pub fn take_back(&self) {
        *self.0.lock() = None;
    }
}

/// Time limits of a start; slower operations are left to the disk.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For the directory; a working disk gives it at once.
    pub taking: Duration,
    /// For all logs together.
    pub reading: Duration,
    /// Runs with the state directory before logs are opened, on the thread that opens them; default nothing. In tests
    /// it waits, as a disk that hangs.
    pub before_opening: fn(&Path),
}

impl Default for Patience {
    fn default() -> Self {
        Self { taking: DISK_LIMIT, reading: READ_LIMIT, before_opening: |_| () }
    }
}

/// Reason for a missing result of a disk operation.
#[derive(Debug)]
pub(super) enum Unfinished<T> {
    /// There will be none.
    Failed(String),
    /// It takes too long; the result may still come.
    Late(String, oneshot::Receiver<T>),
}

/// Runs a disk operation, but waits no longer than that.
pub(super) async fn within<T: Send + 'static>(
    limit: Duration,
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Unfinished<T>> {
    let mut running = slow_disk::run(name, work);
    match timeout(limit, &mut running).await {
        Ok(done) => done.map_err(|_| Unfinished::Failed(format!("the thread {name} could not do its work"))),
        Err(_) => Err(Unfinished::Late(format!("its disk takes longer than {limit:?}"), running)),
    }
}
