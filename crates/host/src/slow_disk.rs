//! Work on possibly hanging disks, on detached threads.
//!
//! Neither the runtime nor the end of the process waits for them.

use std::time::Duration;

use tokio::sync::oneshot;

use crate::threads;

/// Runs work on a thread of its own. The result never comes if the thread cannot be started, or panics.
pub fn run<T: Send + 'static>(name: &str, work: impl FnOnce() -> T + Send + 'static) -> oneshot::Receiver<T> {
    let (done, result) = oneshot::channel();
    let work = move || {
        // The waiter may have gone.
        let _ = done.send(work());
    };
    if let Err(error) = threads::start(name, work) {
        tracing::warn!("{error}");
    }
    result
}

/// How long a gateway on start, stop or reload waits for a possibly hanging disk.
pub const DISK_LIMIT: Duration = Duration::from_secs(10);

/// Time limit of reading logs, at a start and later: some gigabytes of a slow disk.
pub const READ_LIMIT: Duration = Duration::from_secs(60);
