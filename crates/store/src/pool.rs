//! Threads for reads and writes, one bounded queue for each device.
//!
//! Reads and writes have queues of their own: somebody waits for each read, while new blocks are hashed and stored in
//! the background. A planner looks at the length of the read queue and the service time before its decision to read
//! at all [Wanax §3.4]; both are available without a lock.

use std::collections::VecDeque;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::locate::brings_more;
use crate::service_time::ServiceTime;
use crate::turns::{Turn, Turns};
use crate::{Fault, Store};

/// The result of a read.
pub type ReadOutcome = Result<Option<Vec<u8>>, Fault>;

/// A queue is full; nothing was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the queue of the chunk store is full")]
pub struct Full;

/// How large a pool is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Reader threads, at least 1: one for a disk with an arm, several for a flash disk.
    pub readers: usize,
    /// The most reads waiting or being served.
    pub reads: usize,
    /// The most waiting jobs.
    pub jobs: usize,
    /// The most bytes of waiting jobs.
    pub job_bytes: u64,
}

/// How busy the device is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Reads waiting for a reader or being served; those waiting only for a job take nothing of the device.
    pub queued: usize,
    /// The share of each in the time to serve all, smoothed over some sixteen and fading without one; zero before the
    /// first. As readers share the device, this is one reader's time for a read, divided by the number of readers.
    pub service_time: Duration,
    /// Bytes of jobs waiting or in progress.
    pub ingest_bytes: u64,
    /// The age of the oldest read in progress; zero if there is none.
    pub oldest_read: Duration,
    /// The time since the last finished read, if all readers are busy; else zero. A read begun now is done no sooner.
    pub stalled: Duration,
    /// The age of the job in progress; zero if there is none.
    pub oldest_job: Duration,
}

/// A store and its threads.
pub struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    store: Store,
    limits: Limits,
    queues: Mutex<Queues>,
    /// Wakes the writing thread: for a job, or the end.
    jobs: Condvar,
    /// Wakes readers: for a read, or for the last job's end once nothing more comes. Each read new in the queue, from
    /// anywhere, wakes one of them behind the lock. An awake reader takes it instead if it is there first, and the
    /// woken one waits again; so no read is left alone while a reader waits.
    reads: Condvar,
    /// All unanswered reads.
    queued: AtomicUsize,
    /// The patient ones among them, as of the last change.
    patient: AtomicUsize,
    service_time: ServiceTime,
    ingest_bytes: AtomicU64,
    /// When the pool was started; the times below count from it.
    started: Instant,
    /// The start of each reader's present read, in nanoseconds; 0 without one.
    reading: Vec<AtomicU64>,
    /// The same of the job.
    working: AtomicU64,
}

#[derive(Default)]
struct Queues {
    reads: Turns<Read>,
    /// Reads without a find, behind jobs that may bring it.
    patient: VecDeque<Read>,
    jobs: VecDeque<(u64, Job)>,
    /// A job before these, and not counted below.
    first: Option<Job>,
    /// Jobs accepted in all, and done.
    taken: u64,
    done: u64,
    closing: bool,
}

type Job = Box<dyn FnOnce(&Store) + Send>;

type Check = Box<dyn Fn(&[u8]) -> bool + Send>;

type Reply = Box<dyn FnOnce(ReadOutcome) + Send>;

struct Read {
    tag: u64,
    len: u32,
    check: Check,
    reply: Reply,
    /// Jobs accepted before it, if their chunks must be found.
    behind: u64,
}

impl Pool {
    /// Starts the threads.
    ///
    /// # Errors
    /// If the system gives no threads.
    pub fn start(store: Store, limits: Limits) -> io::Result<Self> {
        let readers = limits.readers.max(1);
        let shared = Arc::new(Shared {
            store,
            limits,
            queues: Mutex::default(),
            jobs: Condvar::new(),
            reads: Condvar::new(),
            queued: AtomicUsize::new(0),
            patient: AtomicUsize::new(0),
            service_time: ServiceTime::default(),
            ingest_bytes: AtomicU64::new(0),
            started: Instant::now(),
            reading: (0..readers).map(|_| AtomicU64::new(0)).collect(),
            working: AtomicU64::new(0),
        });
        let mut pool = Self { shared, threads: Vec::new() };
        pool.spawn("store-put", Shared::do_jobs)?;
        for reader in 0..readers {
            pool.spawn("store-read", move |shared| shared.serve_reads(reader))?;
        }
        Ok(pool)
    }

    fn spawn(&mut self, name: &str, work: impl FnOnce(&Shared) + Send + 'static) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        self.threads.push(thread::Builder::new().name(name.to_owned()).spawn(move || work(&shared))?);
        Ok(())
    }

    /// Reads a chunk as [`Store::read`] does, on a thread of the pool, and hands the outcome to `reply` there.
    ///
    /// It finds the chunks of earlier jobs: without a find, it waits for them. Content in memory waits for no disk,
    /// and chunks of one request to the disk are read together.
    ///
    /// # Errors
    /// [`Full`] if too many wait.
    pub fn read(
        &self,
        tag: u64,
        len: u32,
        check: impl Fn(&[u8]) -> bool + Send + 'static,
        reply: impl FnOnce(ReadOutcome) + Send + 'static,
    ) -> Result<(), Full> {
        self.take(true, Read { tag, len, check: Box::new(check), reply: Box::new(reply), behind: 0 })
    }

    /// As [`Self::read`], for present content only: it waits for no job.
    ///
    /// # Errors
    /// [`Full`] if too many wait.
    pub fn read_now(
        &self,
        tag: u64,
        len: u32,
        check: impl Fn(&[u8]) -> bool + Send + 'static,
        reply: impl FnOnce(ReadOutcome) + Send + 'static,
    ) -> Result<(), Full> {
        self.take(false, Read { tag, len, check: Box::new(check), reply: Box::new(reply), behind: 0 })
    }

    fn take(&self, is_patient: bool, mut read: Read) -> Result<(), Full> {
        let turn = self.shared.store.locate(read.tag, read.len);
        let mut queues = self.shared.queues.lock();
        if self.shared.queued.load(Ordering::Relaxed) >= self.shared.limits.reads {
            return Err(Full);
        }
        self.shared.queued.fetch_add(1, Ordering::Relaxed);
        if is_patient {
            read.behind = queues.taken;
        }
        queues.reads.push(turn, read);
        drop(queues);
        self.shared.reads.notify_one();
        Ok(())
    }

    /// Does a job on the writing thread, one after the other: chunk a block and [insert](Store::insert) it, or
    /// [sync](Store::sync). `bytes` is its memory.
    ///
    /// # Errors
    /// [`Full`] if too many wait, or too many bytes; one job is always taken.
    pub fn ingest(&self, bytes: u64, job: impl FnOnce(&Store) + Send + 'static) -> Result<(), Full> {
        let mut queues = self.shared.queues.lock();
        let limits = self.shared.limits;
        let waiting = self.shared.ingest_bytes.load(Ordering::Relaxed);
        if !queues.jobs.is_empty() && (queues.jobs.len() >= limits.jobs || waiting + bytes > limits.job_bytes)
        {
            return Err(Full);
        }
        self.shared.ingest_bytes.fetch_add(bytes, Ordering::Relaxed);
        queues.taken += 1;
        queues.jobs.push_back((bytes, Box::new(job)));
        drop(queues);
        self.shared.jobs.notify_one();
        Ok(())
    }

    /// Does a job on that thread right behind the one in progress, before all waiting ones, in spite of their limit:
    /// for jobs with a time of their own. No read waits for it.
    ///
    /// # Errors
    /// [`Full`] if there is already one not yet begun.
    pub fn ingest_first(&self, job: impl FnOnce(&Store) + Send + 'static) -> Result<(), Full> {
        let mut queues = self.shared.queues.lock();
        if queues.first.is_some() {
            return Err(Full);
        }
        queues.first = Some(Box::new(job));
        drop(queues);
        self.shared.jobs.notify_one();
        Ok(())
    }

    /// Returns how busy the device is, without a lock.
    pub fn load(&self) -> Load {
        let readers = u32::try_from(self.shared.reading.len()).unwrap_or(u32::MAX).max(1);
        let now = self.shared.now_ns();
        let age = |begun: &AtomicU64| match begun.load(Ordering::Relaxed) {
            0 => 0,
            begun => now.saturating_sub(begun),
        };
        let ages = || self.shared.reading.iter().map(age);
        let patient = self.shared.patient.load(Ordering::Relaxed);
        Load {
            queued: self.shared.queued.load(Ordering::Relaxed).saturating_sub(patient),
            service_time: Duration::from_nanos(self.shared.service_time.at(now)) / readers,
            ingest_bytes: self.shared.ingest_bytes.load(Ordering::Relaxed),
            oldest_read: Duration::from_nanos(ages().max().unwrap_or(0)),
            stalled: Duration::from_nanos(ages().min().unwrap_or(0)),
            oldest_job: Duration::from_nanos(age(&self.shared.working)),
        }
    }

    /// Takes out all reads waiting for a reader or a job, so that nobody need wait for a hanging disk.
    pub fn turn_away(&self) -> TurnedAway {
        self.take_out(|queues| {
            let mut waiting = queues.reads.take();
            waiting.append(&mut queues.patient);
            waiting
        })
    }

    /// Takes out the reads waiting only for a job; readers go on with the others.
    pub fn turn_away_patient(&self) -> TurnedAway {
        self.take_out(|queues| std::mem::take(&mut queues.patient))
    }

    fn take_out(&self, which: impl FnOnce(&mut Queues) -> VecDeque<Read>) -> TurnedAway {
        let mut queues = self.shared.queues.lock();
        let waiting = which(&mut queues);
        self.shared.queued.fetch_sub(waiting.len(), Ordering::Relaxed);
        self.shared.count_patient(&queues);
        drop(queues);
        TurnedAway(waiting)
    }

    /// Gives the pool up without waiting for anything, its threads least of all: a thread held by the disk ends on
    /// its release, or with the process. The store is left as after a kill.
    pub fn abandon(mut self) {
        self.shared.finish();
        self.turn_away().tell();
        self.threads.clear();
    }

    /// Returns the store, for peeks and counters.
    pub fn store(&self) -> &Store {
        &self.shared.store
    }

    /// Finishes all waiting work, and closes the store.
    ///
    /// # Errors
    /// If the store cannot be [closed](Store::close).
    pub fn close(mut self) -> io::Result<()> {
        self.stop();
        let shared = Arc::clone(&self.shared);
        drop(self);
        match Arc::into_inner(shared) {
            Some(shared) => shared.store.close(),
            None => Err(io::Error::other("a thread of the chunk store is still there")),
        }
    }

    fn stop(&mut self) {
        self.shared.finish();
        for thread in self.threads.drain(..) {
            // Its loop catches panics.
            let _ = thread.join();
        }
    }
}

/// Reads without service.
#[must_use = "who asked is to be told"]
pub struct TurnedAway(VecDeque<Read>);

impl TurnedAway {
    /// Answers them with [`Fault::Hangs`].
    pub fn tell(self) {
        for read in self.0 {
            (read.reply)(Err(Fault::Hangs));
        }
    }
}

/// Work in progress.
struct Clocked<'a>(&'a AtomicU64);

impl Drop for Clocked<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    /// Has the threads end once there is nothing more to do.
    fn finish(&self) {
        self.queues.lock().closing = true;
        self.jobs.notify_all();
        self.reads.notify_all();
    }

    /// Notes the number of patient reads after a change.
    fn count_patient(&self, queues: &Queues) {
        self.patient.store(queues.patient.len(), Ordering::Relaxed);
    }

    /// The time since the start in nanoseconds, never 0.
    fn now_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1)
    }

    /// Notes work in progress in `begun`, for the life of the result.
    fn clocked<'a>(&self, begun: &'a AtomicU64) -> Clocked<'a> {
        begun.store(self.now_ns(), Ordering::Relaxed);
        Clocked(begun)
    }

    fn do_jobs(&self) {
        loop {
            let mut queues = self.queues.lock();
            let (bytes, job) = loop {
                if let Some(job) = queues.first.take() {
                    drop(queues);
                    self.work(job);
                    queues = self.queues.lock();
                    continue;
                }
                match queues.jobs.pop_front() {
                    Some(job) => break job,
                    None if queues.closing => return,
                    None => self.jobs.wait(&mut queues),
                }
            };
            drop(queues);
            self.work(job);
            self.ingest_bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.has_done_one();
        }
    }

    /// Does a job. A panicking one is done, too, or its waiters would wait for ever.
    fn work(&self, job: Job) {
        let _working = self.clocked(&self.working);
        let _ = panic::catch_unwind(AssertUnwindSafe(|| job(&self.store)));
    }

    /// Counts a job, and serves the reads waiting for it. Readers have no other reason to wake up, unless they are to
    /// end with the last job.
    fn has_done_one(&self) {
        let mut queues = self.queues.lock();
        queues.done += 1;
        let done = queues.done;
        let mut ready = 0;
        while queues.patient.front().is_some_and(|read| read.behind <= done) {
            if let Some(read) = queues.patient.pop_front() {
                queues.reads.push(None, read);
                ready += 1;
            }
        }
        self.count_patient(&queues);
        let is_last = queues.closing && done == queues.taken;
        drop(queues);
        if is_last {
            self.reads.notify_all();
        }
        (0..ready).for_each(|_| _ = self.reads.notify_one());
    }

    fn serve_reads(&self, reader: usize) {
        let Some(reading) = self.reading.get(reader) else { return };
        loop {
            let mut queues = self.queues.lock();
            let turn = loop {
                match queues.reads.pop() {
                    Some(turn) => break turn,
                    None if queues.closing && queues.done == queues.taken => return,
                    None => self.reads.wait(&mut queues),
                }
            };
            let done = queues.done;
            drop(queues);
            self.serve_turn(turn, done, reading);
        }
    }

    /// Serves a read, and others of the same chunk; `done` is the number of jobs done before.
    fn serve_turn(&self, turn: Turn<Read>, done: u64, reading: &AtomicU64) {
        let Turn { read, request } = turn;
        let chunk = |read: &Read| (read.tag, read.len);
        let outcome = self.look(&read, None, reading);
        let mut same = Vec::new();
        if let Some(request) = request {
            let brings = |other: &Read| matches!(outcome, Ok(Some(_))) && chunk(other) == chunk(&read);
            let mut queues = self.queues.lock();
            // Unreadable content is not at hand, and others come before the next try.
            let at_hand = outcome.is_ok() && brings_more(request);
            let (brought, others) = queues.reads.end(request, at_hand, brings);
            drop(queues);
            (0..others).for_each(|_| _ = self.reads.notify_one());
            same = brought;
        }
        let known = outcome.as_ref().ok().filter(|_| !same.is_empty()).cloned().flatten();
        self.end(read, outcome, done);
        for read in same {
            let outcome = self.look(&read, known.as_deref(), reading);
            self.end(read, outcome, done);
        }
    }

    /// Reads, unless `known` is the content.
    fn look(&self, read: &Read, known: Option<&[u8]>, reading: &AtomicU64) -> ReadOutcome {
        let (begun, mut requests) = (Instant::now(), 0);
        let _reading = self.clocked(reading);
        let look = || match known.filter(|known| (read.check)(known)) {
            Some(known) => {
                self.store.count_hit(known.len());
                Ok(Some(known.to_vec()))
            }
            None => self.store.read_telling(read.tag, read.len, &*read.check, &mut requests),
        };
        let outcome = panic::catch_unwind(AssertUnwindSafe(look));
        if requests > 0 {
            let time = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.service_time.took(time, self.now_ns());
        }
        outcome
            .unwrap_or_else(|_| Err(Fault::NotTried { file: "chunk store".to_owned(), why: "it panicked" }))
    }

    /// Hands an outcome on, unless a job may still bring the missing content.
    fn end(&self, read: Read, outcome: ReadOutcome, done: u64) {
        if !matches!(outcome, Ok(Some(_))) && read.behind > done {
            let mut queues = self.queues.lock();
            // In the order of their jobs; nearly always the last.
            if read.behind > queues.done {
                let at = queues.patient.partition_point(|other| other.behind <= read.behind);
                queues.patient.insert(at, read);
                self.count_patient(&queues);
            } else {
                queues.reads.push(None, read);
                drop(queues);
                // This reader may take another waiting read, and be long at it.
                self.reads.notify_one();
            }
            return;
        }
        self.queued.fetch_sub(1, Ordering::Relaxed);
        let _ = panic::catch_unwind(AssertUnwindSafe(|| (read.reply)(outcome)));
    }
}
