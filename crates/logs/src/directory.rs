//! This process's state directory, and its fate on a hanging disk.

use std::fs::{self, TryLockError};
use std::future::pending;
use std::iter::repeat_with;
use std::mem::take;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use oncewire_host::slow_disk::{self, DISK_LIMIT, READ_LIMIT};
use oncewire_keys::PublicKey;
use oncewire_report::ClearedReport;
use oncewire_store::Opening;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout_at;

use super::at_rest::{self, ClearError};
use super::disk::{OsDirectory, explained, open_private};
use super::hints::Turns;
use super::patience::{Patience, PersistFailure, Unfinished, within};
use super::writer::{Closing, Queue, Settled};
use super::{LogOwner, PeerLogs, Place};

/// The logs of all peers of this process. Its end, or the drop of its last clone, writes everything queued.
#[derive(Clone)]
pub struct Logs {
    place: Place,
    before_opening: fn(&Path),
    /// Of all hints, also those of ended peers.
    turns: Turns,
    not_kept: PersistFailure,
    shared: Arc<Shared>,
}

struct Shared {
    /// None once it has ended.
    open: Mutex<Option<Open>>,
    /// Something is late.
    is_late: Notify,
}

#[derive(Default)]
struct Open {
    /// One for the peers of the start, and one for each reload with new peers, as long as any of them is
    /// there.
    queues: Vec<Writing>,
    /// None if the directory could not be taken: nothing is persisted then.
    lock: Option<Arc<fs::File>>,
    /// The disk has timed out, and may yet touch files: no more are opened.
    hangs: bool,
    /// Timed-out operations without a waiter.
    late: Vec<Late>,
}

/// Completes once the disk has; brings the directory if that was the late operation.
type Late = Pin<Box<dyn Future<Output = Option<fs::File>> + Send>>;

/// Result of clearing past peers: the removed logs, or the failure.
pub(crate) type PastCleared = oneshot::Receiver<Result<Vec<ClearedReport>, ClearError>>;

/// A log-writing thread; its drop writes everything queued.
#[derive(Debug)]
pub(super) struct Writing(pub(super) Arc<Queue>);

impl Drop for Writing {
    fn drop(&mut self) {
        if self.0.close(Closing::Leave) {
            self.0.wait_for_end(Instant::now() + DISK_LIMIT);
        }
    }
}

impl Logs {
    /// Makes the state directory this process's own, and touches no log yet. A failing or slow disk is no
    /// error.
    ///
    /// # Errors
    /// If another gateway uses the directory: a mistake of the configuration, and no damage.
    pub async fn take(place: Place, patience: Patience) -> Result<Taken, StateInUse> {
        let state = place.state.clone();
        let shared = Shared { open: Mutex::new(Some(Open::default())), is_late: Notify::new() };
        let (turns, not_kept) = (Turns::default(), PersistFailure::default());
        let before_opening = patience.before_opening;
        let logs = Self { place, before_opening, turns, not_kept, shared: Arc::new(shared) };
        let taken = match within(patience.taking, "state-take", move || take_state(&state)).await {
            Ok(Ok(lock)) => {
                logs.with(|open| open.lock = Some(Arc::new(lock)));
                Ok(())
            }
            Ok(Err(TryLockError::WouldBlock)) => return Err(StateInUse),
            Ok(Err(TryLockError::Error(error))) => Err(error.to_string()),
            Err(unfinished) => Err(logs.leave(unfinished, taken_late)),
        };
        Ok(Taken { logs, taken, reading: patience.reading })
    }

    /// Finds and writes the logs of further peers, as [`Taken::open`]; one entry for each owner, in order.
    /// Earlier writers of them must have closed them ([`Logs::closed`]).
    pub async fn open_more(&self, owners: Vec<LogOwner>) -> Vec<PeerLogs> {
        self.with(|open| open.queues.retain(|writing| !writing.0.has_ended()));
        let opened = self.find(&owners, READ_LIMIT).await;
        opened.unwrap_or_else(|why| self.give_up("the logs of new peers are not kept", &why, owners.len()))
    }

    /// Starts persistence for peers without it, after the disk answers again; as [`Logs::open_more`], but old
    /// content is forgotten. None if persistence is still impossible.
    pub async fn open_anew(&self, owners: Vec<LogOwner>) -> Option<Vec<PeerLogs>> {
        let owners: Vec<_> = owners.into_iter().map(|owner| LogOwner { anew: true, ..owner }).collect();
        let opened = self.find(&owners, READ_LIMIT).await;
        opened.inspect_err(|why| drop(self.give_up("logs are still not kept", why, owners.len()))).ok()
    }

    /// Waits until a timed-out disk has completed all pending operations.
    ///
    /// Dropped earlier, it leaves the disk counted as hanging.
    pub async fn answered(&self) {
        loop {
            let late = self.with(|open| take(&mut open.late));
            if late.as_ref().is_none_or(Vec::is_empty) {
                self.shared.is_late.notified().await;
                continue;
            }
            for work in late.into_iter().flatten() {
                if let Some(lock) = work.await {
                    self.with(|open| open.lock = Some(Arc::new(lock)));
                }
            }
            let answers = self.with(|open| {
                open.hangs = !open.late.is_empty();
                !open.hangs
            });
            match answers {
                Some(true) => return,
                Some(false) => {}
                None => pending().await,
            }
        }
    }

    /// Reads everything there is of these owners' logs; an error gives the reason against persistence.
    async fn find(&self, owners: &[LogOwner], limit: Duration) -> Result<Vec<PeerLogs>, String> {
        let Some(lock) = self.with(|open| open.lock.clone().filter(|_| !open.hangs)).flatten() else {
            return Err("its disk failed or took too long before".to_owned());
        };
        let (place, owners, turns) = (self.place.clone(), owners.to_vec(), self.turns.clone());
        let before_opening = self.before_opening;
        let open = move || {
            before_opening(&place.state);
            place.open(&owners, lock, &turns)
        };
        let opened = within(limit, "logs-open", open).await;
        let opened = opened.map_err(|unfinished| self.leave(unfinished, opened_late))?;
        let (writing, logs) = opened.map_err(|error| error.to_string())?;
        let mut writing = Some(writing);
        self.with(|open| open.queues.extend(writing.take()));
        match writing {
            None => Ok(logs),
            Some(_) => Err("the gateway ends".to_owned()),
        }
    }

    /// Leaves a slow operation to the disk, and logs the reason; `rest` handles its result, should it ever
    /// come.
    fn leave<T>(&self, unfinished: Unfinished<T>, rest: impl FnOnce(oneshot::Receiver<T>) -> Late) -> String {
        match unfinished {
            Unfinished::Failed(why) => why,
            Unfinished::Late(why, result) => {
                self.wait_later(rest(result));
                why
            }
        }
    }

    fn wait_later(&self, late: Late) {
        self.with(|open| {
            open.hangs = true;
            open.late.push(late);
        });
        self.shared.is_late.notify_one();
    }

    /// Reports the loss of persistence, in the log and in the status, and returns empty logs.
    fn give_up(&self, what: &str, why: &str, count: usize) -> Vec<PeerLogs> {
        let hangs = self.with(|open| open.hangs).unwrap_or(false);
        let until = if hangs { "its disk answers" } else { "the next start" };
        let why = format!("until {until}, {what}: {}: {why}", self.place.state.display());
        tracing::warn!("{why}");
        self.not_kept.say(why);
        repeat_with(|| PeerLogs { later: true, ..PeerLogs::default() }).take(count).collect()
    }

    /// Returns the record of reasons for deferred persistence.
    pub fn not_kept(&self) -> PersistFailure {
        self.not_kept.clone()
    }

    /// Waits until logs are closed ([`LogWriter::close`](super::LogWriter::close)), but not for a hanging
    /// disk.
    pub async fn closed(&self, logs: impl IntoIterator<Item = Settled>) {
        let end = tokio::time::Instant::now() + DISK_LIMIT;
        for mut closed in logs {
            // A dropped sender means that the writing has ended by itself.
            if timeout_at(end, &mut closed).await.is_err() {
                self.wait_later(Box::pin(async move {
                    let _ = closed.await;
                    None
                }));
            }
        }
    }

    /// Begins to remove the logs of all peers with none of these keys; none if the directory is not this
    /// process's, or its disk has timed out.
    pub fn clear_past(&self, keys: Vec<PublicKey>) -> Option<PastCleared> {
        let lock = self.with(|open| open.lock.clone().filter(|_| !open.hangs)).flatten()?;
        let state = self.place.state.clone();
        Some(slow_disk::run("logs-clear", move || {
            let cleared = at_rest::clear_past(&state, &keys);
            // No other process may use it earlier.
            drop(lock);
            cleared
        }))
    }

    /// Writes and syncs everything queued; takes the disk's time, within limits. Nothing is persisted later.
    pub fn finish(&self) {
        let end = Instant::now() + DISK_LIMIT;
        let Some(open) = self.shared.open.lock().take() else { return };
        open.queues.iter().for_each(|writing| {
            writing.0.close(Closing::Sync);
        });
        if !open.queues.iter().all(|writing| writing.0.wait_for_end(end)) {
            tracing::warn!("the disk takes too long to write the last of the logs; it is left to it");
        }
    }

    /// Ends as a crash would, but writes everything queued.
    pub fn end(&self) {
        let open = self.shared.open.lock().take();
        // Without the lock: the drop waits for the writing threads.
        drop(open);
    }

    /// None once it has ended.
    fn with<R>(&self, act: impl FnOnce(&mut Open) -> R) -> Option<R> {
        self.shared.open.lock().as_mut().map(act)
    }
}

/// This process's own state directory, unless its disk is at fault.
pub struct Taken {
    logs: Logs,
    /// An error is the obstacle.
    taken: Result<(), String>,
    /// Time limit of reading its logs.
    reading: Duration,
}

impl Taken {
    /// Finds the peers' logs and starts to write them; one entry for each owner, in order. Any failure or
    /// timeout is logged and costs a cold start.
    pub async fn open(self, owners: Vec<LogOwner>) -> (Logs, Vec<PeerLogs>) {
        let Self { logs, taken, reading } = self;
        let opened = match taken {
            Ok(()) => logs.find(&owners, reading).await,
            Err(why) => Err(why),
        };
        let opened =
            opened.unwrap_or_else(|why| logs.give_up("logs start cold and are not kept", &why, owners.len()));
        (logs, opened)
    }
}

/// The directory may be another process's by now: then it is not taken.
fn taken_late(taken: oneshot::Receiver<Result<fs::File, TryLockError>>) -> Late {
    Box::pin(async move { taken.await.ok()?.ok() })
}

/// Logs found late belong to an earlier process, and this one's links have gone on without: they are closed
/// unread.
fn opened_late<T: Send + 'static>(opened: oneshot::Receiver<T>) -> Late {
    Box::pin(async move {
        if let Ok(opened) = opened.await {
            let _ = slow_disk::run("logs-close", move || drop(opened)).await;
        }
        None
    })
}

/// The state directory is another process's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("another oncewire uses the directory")]
pub struct StateInUse;

/// Makes the state directory this process's own, as long as the returned file is open.
pub(super) fn take_state(state: &Path) -> Result<fs::File, TryLockError> {
    let open = |_| open_private(&state.join("lock"), Opening::Made).map_err(|error| explained(state, error));
    let lock = OsDirectory::create(state.to_owned()).and_then(open).map_err(TryLockError::Error)?;
    lock.try_lock()?;
    Ok(lock)
}

#[cfg(test)]
pub(super) mod tests;
