//! The log-writing thread and its bounded queue.
//!
//! Tunnels hand over log pieces and never wait. Pieces without room in the queue are skipped, and leave a
//! hole in the log for a later run, unless they are handed over once more.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use oncewire_host::limits::with_advice;
use oncewire_link::{LogSide, LogWrite};

use super::disk::Disk;
use super::health::{Health, PersistError};
use super::kept::KeptLog;

/// Hands one peer's pieces of log to the writing thread.
#[derive(Clone, Debug)]
pub struct LogWriter {
    queue: Arc<Queue>,
    /// By side: the log's place among the [`Keeper`]'s, and its health.
    logs: Arc<[(usize, Arc<Health>); 2]>,
}

/// Result of a clearing: the number of bytes of a log's files, or the error.
pub type Cleared = oneshot::Receiver<io::Result<u64>>;

/// Tells whether all queued pieces of a peer's logs are on disk.
pub type Settled = oneshot::Receiver<bool>;

impl LogWriter {
    /// Writes the logs at these places, the outbound one first.
    pub(super) fn new(queue: Arc<Queue>, logs: [(usize, Arc<Health>); 2]) -> Self {
        Self { queue, logs: Arc::new(logs) }
    }

    /// Queues a piece to be written; if the disk cannot keep up, or the writing has ended, it is skipped. Never waits.
    pub fn write(&self, side: LogSide, write: LogWrite) {
        let [out, inbound] = &*self.logs;
        let (place, health) = match side {
            LogSide::Out => out,
            LogSide::Inbound => inbound,
        };
        let bytes = write.plain.len() as u64;
        if !self.queue.push(*place, write) {
            health.skip(bytes);
        }
    }

    /// Returns the number of skipped pieces of both logs: each is a hole, unless it is written later.
    pub fn skipped(&self) -> u64 {
        self.logs.iter().map(|(_, health)| health.skipped()).sum()
    }

    /// Queues the clearing of both logs, behind all earlier pieces. Never waits.
    pub fn clear(&self) -> [Cleared; 2] {
        self.logs.each_ref().map(|(place, _)| self.queue.clear(*place))
    }

    /// Returns the bytes lost to a slow or failed disk, by side: sent, received.
    pub fn lost(&self) -> [u64; 2] {
        self.logs.each_ref().map(|(_, health)| health.lost())
    }

    /// Returns the reasons for deferred persistence, one per affected log.
    pub fn unkept(&self) -> impl Iterator<Item = PersistError> {
        self.logs.iter().filter_map(|(_, health)| health.unkept())
    }

    /// Has both logs synced and released for another opener; tells the completion. Later writes here are
    /// dropped. Never waits.
    pub fn close(&self) -> Settled {
        let [(out, _), (inbound, _)] = &*self.logs;
        let (done, closed) = oneshot::channel();
        self.queue.add(Job::Close { places: [*out, *inbound], done });
        closed
    }

    /// Has everything queued so far put on disk; tells whether both logs are persisted there. Never waits.
    pub fn settle(&self) -> Settled {
        let [(out, _), (inbound, _)] = &*self.logs;
        self.queue.settle([*out, *inbound])
    }
}

impl LogWriter {
    /// Has the queue refuse everything, as under a slow disk, or accept again; for tests.
    pub fn stall(&self, stalls: bool) {
        let bytes = &self.queue.bytes;
        match stalls {
            true => bytes.fetch_add(MAX_QUEUED, Relaxed),
            false => bytes.fetch_sub(MAX_QUEUED, Relaxed),
        };
    }
}

/// Pieces queued for writing.
#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    wake: Condvar,
    ended: Condvar,
    /// Of all unwritten pieces.
    bytes: AtomicUsize,
    skipped_bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Job>,
    closing: Option<Closing>,
    ended: bool,
}

/// A job for a log.
#[derive(Debug)]
enum Job {
    Write { place: usize, write: LogWrite },
    Clear { place: usize, done: oneshot::Sender<io::Result<u64>> },
    Settle { places: [usize; 2], done: oneshot::Sender<bool> },
    Close { places: [usize; 2], done: oneshot::Sender<bool> },
}

/// End of the writing, once everything queued is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closing {
    /// The system writes back at its own time.
    Leave,
    /// All writes are to survive a power cut.
    Sync,
}

impl Queue {
    /// Takes a piece to be written; false if it was skipped, because too much waits already or the writing ends.
    pub(super) fn push(&self, place: usize, write: LogWrite) -> bool {
        let cost = cost(&write);
        if self.bytes.fetch_add(cost, Relaxed) + cost > MAX_QUEUED {
            self.bytes.fetch_sub(cost, Relaxed);
            self.skipped_bytes.fetch_add(write.plain.len() as u64, Relaxed);
            return false;
        }
        let added = self.add(Job::Write { place, write });
        if !added {
            self.bytes.fetch_sub(cost, Relaxed);
        }
        added
    }

    fn clear(&self, place: usize) -> Cleared {
        let (done, cleared) = oneshot::channel();
        self.add(Job::Clear { place, done });
        cleared
    }

    fn settle(&self, places: [usize; 2]) -> Settled {
        let (done, settled) = oneshot::channel();
        self.add(Job::Settle { places, done });
        settled
    }

    /// Adds a job, unless the writing ends.
    fn add(&self, job: Job) -> bool {
        let mut state = self.state.lock();
        if state.closing.is_some() {
            return false;
        }
        state.waiting.push_back(job);
        if state.waiting.len() == 1 {
            self.wake.notify_one();
        }
        true
    }

    /// Waits for pieces, the end, or a moment.
    fn take(&self, until: Instant) -> (VecDeque<Job>, Option<Closing>) {
        let mut state = self.state.lock();
        while state.waiting.is_empty() && state.closing.is_none() {
            if self.wake.wait_until(&mut state, until).timed_out() {
                break;
            }
        }
        (std::mem::take(&mut state.waiting), state.closing)
    }

    fn written(&self, write: &LogWrite) {
        self.bytes.fetch_sub(cost(write), Relaxed);
    }

    /// Takes nothing more, and has everything queued written; false on a repeated call. Never waits.
    pub(super) fn close(&self, closing: Closing) -> bool {
        let mut state = self.state.lock();
        let first = state.closing.is_none();
        state.closing.get_or_insert(closing);
        self.wake.notify_one();
        first
    }

    /// Takes nothing more, unless something waits; returns whether it has closed.
    fn close_if_empty(&self) -> bool {
        let mut state = self.state.lock();
        if state.waiting.is_empty() {
            state.closing.get_or_insert(Closing::Leave);
        }
        state.closing.is_some()
    }

    /// Whether the writing has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.state.lock().ended
    }

    /// Waits for the end of the writing, but no longer than that; returns whether it has ended.
    pub(super) fn wait_for_end(&self, end: Instant) -> bool {
        let mut state = self.state.lock();
        while !state.ended && !self.ended.wait_until(&mut state, end).timed_out() {}
        state.ended
    }

    fn report_skipped(&self) {
        let bytes = self.skipped_bytes.swap(0, Relaxed);
        if bytes > 0 {
            tracing::warn!(
                bytes,
                "the disk is slower than the tunnels; a restart would not find all of the logs"
            );
        }
    }
}

/// Writes queued pieces until the queue is closed, or every log is; at the end the files are closed and
/// `held` is dropped.
pub(super) fn run<D: Disk, H>(queue: &Arc<Queue>, keeper: Keeper<D>, held: H) {
    // Locals are dropped last to first, parameters after them.
    let _ended = EndedOnDrop(Arc::clone(queue));
    let (_held, mut keeper) = (held, keeper);
    let mut sync_at = Instant::now() + SYNC_EVERY;
    loop {
        let (batch, closing) = queue.take(sync_at);
        for job in batch {
            match job {
                Job::Write { place, write } => {
                    keeper.write(place, &write);
                    queue.written(&write);
                }
                // The caller may have gone.
                Job::Clear { place, done } => drop(done.send(keeper.clear(place))),
                Job::Settle { places, done } => {
                    keeper.sync();
                    let _ = done.send(places.into_iter().all(|place| keeper.keeps(place)));
                }
                Job::Close { places, done } => {
                    keeper.sync();
                    places.into_iter().for_each(|place| keeper.let_go(place));
                    let _ = done.send(true);
                }
            }
        }
        keeper.flush();
        match closing {
            Some(Closing::Sync) => return keeper.sync(),
            Some(Closing::Leave) => return,
            // Later pieces for them are dropped, and no other peers are written here.
            None if keeper.is_done() && queue.close_if_empty() => return,
            None if Instant::now() >= sync_at => {
                keeper.sync();
                queue.report_skipped();
                sync_at = Instant::now() + SYNC_EVERY;
            }
            None => {}
        }
    }
}

/// Reports the thread's end, however it came.
struct EndedOnDrop(Arc<Queue>);

impl Drop for EndedOnDrop {
    fn drop(&mut self) {
        self.0.state.lock().ended = true;
        self.0.ended.notify_all();
    }
}

/// The open logs; a log with a failing disk is given up, and traffic goes on.
pub(super) struct Keeper<D: Disk> {
    logs: Vec<Entry<D>>,
}

struct Entry<D: Disk> {
    /// The name in messages.
    name: String,
    log: Option<KeptLog<D>>,
    /// Whether the disk failed it: nothing more of it is persisted, unless it is cleared.
    given_up: bool,
    /// Whether it was let go of.
    closed: bool,
    health: Arc<Health>,
}

impl<D: Disk> Keeper<D> {
    pub(super) fn new() -> Self {
        Self { logs: Vec::new() }
    }

    /// Adds a log under its name for messages; returns its place.
    pub(super) fn add(&mut self, name: String, log: Option<KeptLog<D>>) -> usize {
        self.logs.push(Entry { name, log, given_up: false, closed: false, health: Arc::default() });
        self.logs.len() - 1
    }

    /// Adds a log not to be opened, for `why`, and never released; returns its place.
    pub(super) fn add_unopened(&mut self, name: String, why: &str) -> usize {
        let place = self.add(name, None);
        self.fail_to_open(place, why);
        self.let_go(place);
        place
    }

    /// Records the reason for a missing log at a place.
    pub(super) fn fail_to_open(&self, place: usize, why: &str) {
        if let Some(entry) = self.logs.get(place) {
            entry.health.fail(format!("until the next start, nothing of {} is kept: {why}", entry.name));
        }
    }

    /// Returns a place with its log's health.
    pub(super) fn watched(&self, place: usize) -> (usize, Arc<Health>) {
        (place, self.logs.get(place).map(|entry| Arc::clone(&entry.health)).unwrap_or_default())
    }

    pub(super) fn write(&mut self, place: usize, write: &LogWrite) {
        if let Some(entry) = self.logs.get_mut(place) {
            entry.attempt(|log| log.write(write));
            if entry.log.is_none() || entry.given_up {
                entry.health.lose(write.plain.len() as u64);
            }
        }
    }

    /// Whether a log is still written.
    fn keeps(&self, place: usize) -> bool {
        self.logs.get(place).is_some_and(|entry| entry.log.is_some() && !entry.given_up)
    }

    /// Closes a log's files.
    fn let_go(&mut self, place: usize) {
        if let Some(entry) = self.logs.get_mut(place) {
            entry.log = None;
            entry.closed = true;
        }
    }

    /// Whether every log was released.
    fn is_done(&self) -> bool {
        self.logs.iter().all(|entry| entry.closed)
    }

    pub(super) fn flush(&mut self) {
        self.logs.iter_mut().for_each(|entry| entry.attempt(KeptLog::flush));
    }

    pub(super) fn sync(&mut self) {
        self.logs.iter_mut().for_each(|entry| entry.attempt(KeptLog::sync));
    }

    /// Clears a log, also one given up, and returns the number of bytes of its files.
    ///
    /// # Errors
    /// The disk's error; parts of the log may still be there.
    fn clear(&mut self, place: usize) -> io::Result<u64> {
        let Some(entry) = self.logs.get_mut(place) else { return Ok(0) };
        let log = entry.log.as_mut().ok_or_else(|| io::Error::other("the log could not be opened"))?;
        let cleared = log.clear().inspect_err(|error| {
            tracing::warn!(log = entry.name, %error, "cannot clear the log");
        });
        match &cleared {
            Ok(_) => entry.take_up(),
            Err(error) => entry.give_up(&format!("it cannot be cleared: {error}")),
        }
        cleared
    }
}

impl<D: Disk> Entry<D> {
    fn attempt(&mut self, action: impl FnOnce(&mut KeptLog<D>) -> io::Result<()>) {
        let log = self.log.as_mut().filter(|_| !self.given_up);
        if let Some(Err(error)) = log.map(action) {
            let (log, error) = (&self.name, with_advice(&error));
            tracing::warn!(
                log,
                error,
                "cannot write the log; until the next start, or until it is cleared, nothing more of it is kept"
            );
            self.give_up(&format!("it cannot be written: {error}"));
        }
    }

    fn give_up(&mut self, why: &str) {
        self.given_up = true;
        let until = "until the next start, or until it is cleared (`oncewire cache clear`)";
        self.health.fail(format!("{until}, nothing more of {} is kept: {why}", self.name));
    }

    fn take_up(&mut self) {
        self.given_up = false;
        self.health.recover();
    }
}

/// A small piece takes more than its bytes: the entry, and the buffer behind its slice.
fn cost(write: &LogWrite) -> usize {
    write.plain.len() + 1024
}

/// The most unwritten bytes in the queue.
const MAX_QUEUED: usize = 64 << 20;

/// Interval of syncs: the possible loss of a power cut.
const SYNC_EVERY: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests;
