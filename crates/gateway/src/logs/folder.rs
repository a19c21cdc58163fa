//! The state folder of this process, and what becomes of it while its disk hangs.

use std::fs::{self, TryLockError};
use std::future::pending;
use std::iter::repeat_with;
use std::mem::take;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use oncewire_store::Opening;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout_at;

use super::at_rest::{self, ClearError};
use super::disk::{OsFolder, explained, open_private};
use super::hints::Turns;
use super::patience::{NotKept, Patience, Unfinished, within};
use super::writer::{Closing, Queue, Settled};
use super::{LogOwner, PeerLogs, Place};
use crate::identity::PublicKey;
use crate::slow_disk::{self, DISK_LIMIT, READ_LIMIT};
use crate::telemetry::ClearedReport;

/// The logs of all peers of this process. Ended, or dropped with its last clone, it writes what still waits.
#[derive(Clone)]
pub(crate) struct Logs {
    place: Place,
    /// Of all hints, also those of peers that have ended.
    turns: Turns,
    not_kept: NotKept,
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
    /// One for those who were there at the start, and one for those of each reload that brought new ones, as long as
    /// any of them is there.
    queues: Vec<Writing>,
    /// None if the folder could not be taken: nothing is kept then.
    lock: Option<Arc<fs::File>>,
    /// The disk was waited for in vain, and may yet touch files: no more are opened.
    hangs: bool,
    /// What it was waited for in vain, and nobody waits for yet.
    late: Vec<Late>,
}

/// What ends once the disk has done with it; brings the folder if that is what was late.
type Late = Pin<Box<dyn Future<Output = Option<fs::File>> + Send>>;

/// Tells what was removed of peers of the past, or what could not be.
pub(crate) type PastCleared = oneshot::Receiver<Result<Vec<ClearedReport>, ClearError>>;

/// A thread that writes logs; dropped, it writes what still waits.
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
    /// Makes the state folder this process's own, and touches no log yet. A disk that fails, or takes longer than there
    /// is patience for, is no error.
    ///
    /// # Errors
    /// If another gateway uses the folder, which is a mistake of the configuration and no damage.
    pub(crate) async fn take(place: Place, patience: Patience) -> Result<Taken, StateInUse> {
        let state = place.state.clone();
        let shared = Shared { open: Mutex::new(Some(Open::default())), is_late: Notify::new() };
        let (turns, not_kept) = (Turns::default(), NotKept::default());
        let logs = Self { place, turns, not_kept, shared: Arc::new(shared) };
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

    /// Finds and writes the logs of further peers, as [`Taken::open`]; one entry for each owner, in order. Whoever
    /// wrote any of them before has closed it ([`Logs::closed`]).
    pub(crate) async fn open_more(&self, owners: Vec<LogOwner>) -> Vec<PeerLogs> {
        self.with(|open| open.queues.retain(|writing| !writing.0.has_ended()));
        let opened = self.find(&owners, READ_LIMIT).await;
        opened.unwrap_or_else(|why| self.give_up("the logs of new peers are not kept", &why, owners.len()))
    }

    /// Writes the logs of peers that run without, now that the disk answers; as [`Logs::open_more`], but what is there
    /// is forgotten. None if they are still not kept.
    pub(crate) async fn open_anew(&self, owners: Vec<LogOwner>) -> Option<Vec<PeerLogs>> {
        let owners: Vec<_> = owners.into_iter().map(|owner| LogOwner { anew: true, ..owner }).collect();
        let opened = self.find(&owners, READ_LIMIT).await;
        opened.inspect_err(|why| drop(self.give_up("logs are still not kept", why, owners.len()))).ok()
    }

    /// Waits until the disk, having been waited for in vain, has done all that was begun.
    ///
    /// Dropped before, it leaves it as one that hangs.
    pub(crate) async fn answered(&self) {
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

    /// Reads all that is there of these owners' logs; an error says why nothing is kept of them.
    async fn find(&self, owners: &[LogOwner], limit: Duration) -> Result<Vec<PeerLogs>, String> {
        let Some(lock) = self.with(|open| open.lock.clone().filter(|_| !open.hangs)).flatten() else {
            return Err("its disk failed or took too long before".to_owned());
        };
        let (place, owners, turns) = (self.place.clone(), owners.to_vec(), self.turns.clone());
        let opened = within(limit, "logs-open", move || place.open(&owners, lock, &turns)).await;
        let opened = opened.map_err(|unfinished| self.leave(unfinished, opened_late))?;
        let (writing, logs) = opened.map_err(|error| error.to_string())?;
        let mut writing = Some(writing);
        self.with(|open| open.queues.extend(writing.take()));
        match writing {
            None => Ok(logs),
            Some(_) => Err("the gateway ends".to_owned()),
        }
    }

    /// Leaves what takes too long to the disk, and says why it is not waited for; `rest` is what is to be done with its
    /// result, should it ever come.
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

    /// Says what is not kept, in the log and to whoever asks, and returns logs of nothing.
    fn give_up(&self, what: &str, why: &str, count: usize) -> Vec<PeerLogs> {
        let hangs = self.with(|open| open.hangs).unwrap_or(false);
        let until = if hangs { "its disk answers" } else { "the next start" };
        let why = format!("until {until}, {what}: {}: {why}", self.place.state.display());
        tracing::warn!("{why}");
        self.not_kept.say(why);
        repeat_with(|| PeerLogs { later: true, ..PeerLogs::default() }).take(count).collect()
    }

    /// Returns where it is said why logs are not kept.
    pub(crate) fn not_kept(&self) -> NotKept {
        self.not_kept.clone()
    }

    /// Waits until logs are closed ([`LogWriter::close`](super::LogWriter::close)), but not for a disk that hangs.
    pub(crate) async fn closed(&self, logs: impl IntoIterator<Item = Settled>) {
        let end = tokio::time::Instant::now() + DISK_LIMIT;
        for mut closed in logs {
            // An answer that cannot come means that the writing has ended by itself.
            if timeout_at(end, &mut closed).await.is_err() {
                self.wait_later(Box::pin(async move {
                    let _ = closed.await;
                    None
                }));
            }
        }
    }

    /// Begins to remove the logs of all peers that have none of these keys; none if the folder is not this process's, or
    /// its disk was waited for in vain.
    pub(crate) fn clear_past(&self, keys: Vec<PublicKey>) -> Option<PastCleared> {
        let lock = self.with(|open| open.lock.clone().filter(|_| !open.hangs)).flatten()?;
        let state = self.place.state.clone();
        Some(slow_disk::run("logs-clear", move || {
            let cleared = at_rest::clear_past(&state, &keys);
            // Until then nobody else may use it.
            drop(lock);
            cleared
        }))
    }

    /// Writes what still waits and has the disk keep it; takes as long as the disk does, within limits. Nothing is
    /// kept afterwards.
    pub(crate) fn finish(&self) {
        let end = Instant::now() + DISK_LIMIT;
        let Some(open) = self.shared.open.lock().take() else { return };
        open.queues.iter().for_each(|writing| {
            writing.0.close(Closing::Sync);
        });
        if !open.queues.iter().all(|writing| writing.0.wait_for_end(end)) {
            tracing::warn!("the disk takes too long to write the last of the logs; it is left to it");
        }
    }

    /// Ends as a crash would, but writes what still waits.
    pub(crate) fn end(&self) {
        let open = self.shared.open.lock().take();
        // Without the lock: it waits for the threads that write.
        drop(open);
    }

    /// None once it has ended.
    fn with<R>(&self, act: impl FnOnce(&mut Open) -> R) -> Option<R> {
        self.shared.open.lock().as_mut().map(act)
    }
}

/// A state folder that is this process's own, unless its disk is at fault.
pub(crate) struct Taken {
    logs: Logs,
    /// An error says why it is not.
    taken: Result<(), String>,
    /// How long its logs are waited for.
    reading: Duration,
}

impl Taken {
    /// Finds the peers' logs and starts to write them; one entry for each owner, in order. Whatever fails, or takes
    /// longer than there is patience for, is logged and costs a cold start.
    pub(crate) async fn open(self, owners: Vec<LogOwner>) -> (Logs, Vec<PeerLogs>) {
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

/// The folder may be another process's by now: then it is not taken.
fn taken_late(taken: oneshot::Receiver<Result<fs::File, TryLockError>>) -> Late {
    Box::pin(async move { taken.await.ok()?.ok() })
}

/// What was found is of an earlier process, and this one's links have gone on without: it is closed unread.
fn opened_late<T: Send + 'static>(opened: oneshot::Receiver<T>) -> Late {
    Box::pin(async move {
        if let Ok(opened) = opened.await {
            let _ = slow_disk::run("logs-close", move || drop(opened)).await;
        }
        None
    })
}

/// The state folder is another process's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("another oncewire uses the folder")]
pub(crate) struct StateInUse;

/// Makes the state folder this process's own, as long as the returned file is open.
pub(super) fn take_state(state: &Path) -> Result<fs::File, TryLockError> {
    let open = |_| open_private(&state.join("lock"), Opening::Made).map_err(|error| explained(state, error));
    let lock = OsFolder::create(state.to_owned()).and_then(open).map_err(TryLockError::Error)?;
    lock.try_lock()?;
    Ok(lock)
}

#[cfg(test)]
pub(super) mod tests;
