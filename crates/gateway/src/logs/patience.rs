//! How long the disk of logs is waited for, and what is said when it was in vain.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::health::Unkept;
use crate::slow_disk::{self, DISK_LIMIT, READ_LIMIT};

/// Why logs were not opened though there is a folder for them.
#[derive(Clone, Debug, Default)]
pub(crate) struct NotKept(Arc<Mutex<Option<Unkept>>>);

impl NotKept {
    /// Returns the reason as a sentence; none as long as all were opened.
    pub(crate) fn why(&self) -> Option<String> {
        self.unkept().map(|unkept| unkept.why)
    }

    /// Returns the reason, and since when it holds.
    pub(crate) fn unkept(&self) -> Option<Unkept> {
        self.0.lock().clone()
    }

    pub(super) fn say(&self, why: String) {
        *self.0.lock() = Some(Unkept::now(why));
    }

    /// They are kept again.
    pub(crate) fn take_back(&self) {
        *self.0.lock() = None;
    }
}

/// How long a start waits for the disk; what takes longer is left to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// For the folder, which a disk that works gives at once.
    pub(crate) taking: Duration,
    /// For all logs together.
    pub(crate) reading: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { taking: DISK_LIMIT, reading: READ_LIMIT }
    }
}

/// Why there is no result of what waits for the disk.
#[derive(Debug)]
pub(super) enum Unfinished<T> {
    /// There will be none.
    Failed(String),
    /// It takes too long; the result may still come.
    Late(String, oneshot::Receiver<T>),
}

/// Runs what waits for the disk, but waits no longer than that.
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
