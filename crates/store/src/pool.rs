//! Threads that read and write, one bounded queue for each device.
//!
//! Reads and writes have queues of their own: reads are what somebody waits for, new blocks are hashed and put into the
//! store behind everybody's back. The length of the queue of reads and the time that one takes are what a planner asks
//! for before it decides to read at all [Wanax §3.4]; they are read without a lock.

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

/// What a read ends with.
pub type ReadOutcome = Result<Option<Vec<u8>>, Fault>;

/// A queue is full; nothing was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the queue of the chunk store is full")]
pub struct Full;

/// How large a pool is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Threads that read, at least 1: one for a disk with an arm, several for a flash disk.
    pub readers: usize,
    /// Reads that may wait, those included that are being served.
    pub reads: usize,
    /// Jobs that may wait.
    pub jobs: usize,
    /// Bytes of jobs that may wait.
    pub job_bytes: u64,
}

/// How busy the device is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Reads that wait for a reader or are being served; those that wait for a job alone take nothing of the device.
    pub queued: usize,
    /// What each adds to the time in which all are served, smoothed over some sixteen and ever less without one; zero before
    /// the first. As readers share the device, it is how long one of them waits for a read, divided by how many they are.
    pub service_time: Duration,
    /// Bytes of jobs that wait or are being done.
    pub ingest_bytes: u64,
    /// How long the read has been going on that is oldest; zero if none is.
    pub oldest_read: Duration,
    /// For how long no read has been finished although all readers are at one; else zero. A read that begins now is
    /// done no sooner.
    pub stalled: Duration,
    /// How long the job has been going on that is being done; zero if none is.
    pub oldest_job: Duration,
}

/// A store and the threads that work on it.
pub struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    store: Store,
    limits: Limits,
    queues: Mutex<Queues>,
    /// What the thread that writes waits on: a job, or the end.
    jobs: Condvar,
    /// What readers wait on: a read, or that the last job is done once nothing more comes. Each read that gets into the
    /// queue, from wherever, wakes one of them behind the lock. One that was awake takes it instead if it is there first,
    /// and the one that was woken waits again; so a read is never left to nobody while a reader waits.
    reads: Condvar,
    /// All reads that were taken and not answered.
    queued: AtomicUsize,
    /// Those of them that are patient, as of the last change.
    patient: AtomicUsize,
    service_time: ServiceTime,
    ingest_bytes: AtomicU64,
    /// When the pool was started; the times below count from it.
    started: Instant,
    /// When each reader began the read that it is at, in nanoseconds; 0 while it is at none.
    reading: Vec<AtomicU64>,
    /// The same of the job.
    working: AtomicU64,
}

#[derive(Default)]
struct Queues {
    reads: Turns<Read>,
    /// Reads that found nothing, behind jobs that may bring it.
    patient: VecDeque<Read>,
    jobs: VecDeque<(u64, Job)>,
    /// A job that goes before these, and is not counted below.
    first: Option<Job>,
    /// Jobs that were ever taken, and done.
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
    /// Jobs that were taken before it, if what they bring must be found.
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
    /// It finds what the jobs bring that were taken before it: if it finds nothing, it waits for them. What is in memory
    /// waits for no disk, and what one request to the disk brings is read together.
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

    /// As [`Self::read`], but what is not there yet is not there: it waits for no job.
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

    /// Does a job on the thread that writes, one after the other: chunk a block and [insert](Store::insert) it, or
    /// [sync](Store::sync). `bytes` is what it keeps in memory.
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

    /// Does a job on that thread as soon as the one is done that it is at, before all that wait, and however many those
    /// are: what has its time. No read waits for it.
    ///
    /// # Errors
    /// [`Full`] if there is one already that has not begun.
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

    /// Takes all reads out that wait for a reader or a job, so that nobody need wait for a disk that hangs.
    pub fn turn_away(&self) -> TurnedAway {
        self.take_out(|queues| {
            let mut waiting = queues.reads.take();
            waiting.append(&mut queues.patient);
            waiting
        })
    }

    /// Takes those out that found nothing and wait for a job that may bring it; readers go on with the others.
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

    /// Gives the pool up without waiting for anything, its threads least of all: one that the disk holds ends when the
    /// disk lets it, or with the process. The store is left as a killed process leaves it.
    pub fn abandon(mut self) {
        self.shared.finish();
        self.turn_away().tell();
        self.threads.clear();
    }

    /// Returns the store, to peek into it and to see what it counts.
    pub fn store(&self) -> &Store {
        &self.shared.store
    }

    /// Finishes everything that waits, and closes the store.
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
            // Its loop catches what panics.
            let _ = thread.join();
        }
    }
}

/// Reads that will not be served.
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

/// Something that goes on.
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

    /// Notes how many are patient after that has changed.
    fn count_patient(&self, queues: &Queues) {
        self.patient.store(queues.patient.len(), Ordering::Relaxed);
    }

    /// The time since the start in nanoseconds, never 0.
    fn now_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1)
    }

    /// Notes in `begun` that something goes on, for as long as what is returned is there.
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

    /// Does a job. One that panics is done, too, or everybody who waits for it would wait for ever.
    fn work(&self, job: Job) {
        let _working = self.clocked(&self.working);
        let _ = panic::catch_unwind(AssertUnwindSafe(|| job(&self.store)));
    }

    /// Counts a job, and has the reads served that waited for it. Readers have nothing else to wake up for, unless they
    /// are to end with the last job.
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

    /// Serves a read, and those that want the same chunk; `done` is how many jobs were done before.
    fn serve_turn(&self, turn: Turn<Read>, done: u64, reading: &AtomicU64) {
        let Turn { read, request } = turn;
        let chunk = |read: &Read| (read.tag, read.len);
        let outcome = self.look(&read, None, reading);
        let mut same = Vec::new();
        if let Some(request) = request {
            let brings = |other: &Read| matches!(outcome, Ok(Some(_))) && chunk(other) == chunk(&read);
            let mut queues = self.queues.lock();
            // What could not be read is not at hand, and others come before it is tried again.
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

    /// Reads, unless it is what is `known`.
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

    /// Hands an outcome on, unless a job may still bring what was not found.
    fn end(&self, read: Read, outcome: ReadOutcome, done: u64) {
        if !matches!(outcome, Ok(Some(_))) && read.behind > done {
            let mut queues = self.queues.lock();
            // In the order of what they wait for; nearly always the last.
            if read.behind > queues.done {
                let at = queues.patient.partition_point(|other| other.behind <= read.behind);
                queues.patient.insert(at, read);
                self.count_patient(&queues);
            } else {
                queues.reads.push(None, read);
                drop(queues);
                // This reader may take another one that waits, and be long at it.
                self.reads.notify_one();
            }
            return;
        }
        self.queued.fetch_sub(1, Ordering::Relaxed);
        let _ = panic::catch_unwind(AssertUnwindSafe(|| (read.reply)(outcome)));
    }
}
