//! Opening the chunk store, and its obstacles.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};

use oncewire_config::StoreSettings;
use oncewire_host::threads;
use oncewire_keys::StorageKey;
use oncewire_store::pool::{Limits, Pool};
use oncewire_store::{
    Backend, Directory, DirectoryError, Horizon, IndexMemory, Opened, Options, Prepared, Progress, Sealer,
    Slow, Store,
};

use super::clock::StoreClock;
use super::slot::{Opening, PoolOf, Slot};
use super::{ChunkStore, Seen, Tally};
use crate::neighbours::Neighbours;

/// Reasons against opening a store, each for an operator to decide; damage is none.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process uses it.
    #[error("{path}: {who} uses this chunk store; stop it, or give each gateway a store of its own",
            path = .path.display(), who = whose(*.pid))]
    InUse {
        /// Its directory.
        path: PathBuf,
        /// The process, if known.
        pid: Option<u32>,
    },
    /// Encrypted with another key, encrypted without being configured so, or the reverse.
    #[error("{path}: the chunk store is {}; set `encrypt_key_file` as it was, or remove the directory to begin anew",
            if *.keyed { "in clear text or encrypted with another key than that of `encrypt_key_file`" }
            else { "encrypted, and `encrypt_key_file` is not set" },
            path = .path.display())]
    OtherKey {
        /// Its directory.
        path: PathBuf,
        /// Whether a key is set.
        keyed: bool,
    },
}

fn whose(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

/// How opening ended without a store.
pub(super) enum NotOpened {
    Refused(OpenError),
    /// Its directory cannot be used.
    NotTaken(DirectoryError),
    /// The disk is at fault.
    Failed(String),
}

impl ChunkStore {
    /// Opens the store, or makes one. Waits for the disk, for seconds at most: call on a thread free to
    /// block. Slower work goes on without the caller. An unusable store is reported, and is none.
    ///
    /// # Errors
    /// Questions for an operator; nothing was changed then.
    pub fn open(settings: &StoreSettings, key: Option<&StorageKey>) -> Result<Self, OpenError> {
        Self::open_on(settings, key.cloned(), backend, PATIENCE)
    }

    /// The same on the disk given by `backend`; `patience` limits the whole wait.
    pub(super) fn open_on(
        settings: &StoreSettings,
        key: Option<StorageKey>,
        backend: impl FnOnce(&StoreSettings) -> Result<Arc<dyn Backend>, NotOpened> + Send + 'static,
        patience: Duration,
    ) -> Result<Self, OpenError> {
        let progress = Arc::new(Progress::default());
        let mut store = Self::of(settings, None, None);
        let ((known, when_known), (opened, when_opened)) = (mpsc::channel(), mpsc::channel::<()>());
        let opener = Opener {
            settings: settings.clone(),
            progress: Arc::clone(&progress),
            slot: Arc::clone(&store.slot),
            seen: Arc::clone(&store.seen),
            tally: Arc::clone(&store.tally),
            clock: Arc::clone(&store.clock),
        };
        *store.slot.write() = Slot::Opening(Opening { progress, thread: None });
        let work = move || {
            let prepared =
                backend(&opener.settings).and_then(|backend| opener.prepare(backend, key.as_ref()));
            let prepared = match prepared {
                Ok(prepared) => prepared,
                // The waiter has gone, or handles the reason itself.
                Err(why) => {
                    let _ = known.send(Err(why));
                    return;
                }
            };
            let _ = known.send(Ok(prepared.id()));
            opener.open(prepared);
            drop(opened);
        };
        let thread = threads::start("store-open", work);
        let failed = |why: &dyn std::fmt::Display| NotOpened::Failed(why.to_string());
        let id = thread.map_err(|error| failed(&error)).and_then(|thread| {
            if let Slot::Opening(opening) = &mut *store.slot.write() {
                opening.thread = Some(thread);
            }
            when_known.recv_timeout(HANGS_AFTER).unwrap_or_else(|_| Err(failed(&"the disk hangs")))
        });
        match id {
            Ok(id) => store.id = Some(id),
            Err(why) => {
                if let Slot::Opening(opening) = std::mem::take(&mut *store.slot.write()) {
                    opening.progress.cancel();
                }
                store.give_up(why)?;
                return Ok(store);
            }
        }
        if when_opened.recv_timeout(patience) == Err(mpsc::RecvTimeoutError::Timeout) {
            let path = settings.path.display();
            tracing::info!(%path, "the chunk store is still being opened; chunks are named once it is open");
        }
        store.look(true);
        Ok(store)
    }

    fn give_up(&self, why: NotOpened) -> Result<(), OpenError> {
        let why = match why {
            NotOpened::Refused(refused) => return Err(refused),
            NotOpened::NotTaken(why) => why.to_string(),
            NotOpened::Failed(why) => why,
        };
        report_failure(&self.settings.path, &why);
        self.seen.lock().trouble = Some(why);
        Ok(())
    }

    /// Sets the receivers of news about its content.
    pub fn telling(mut self, neighbours: Neighbours) -> Self {
        self.neighbours = Some(neighbours);
        self
    }

    pub(super) fn of(settings: &StoreSettings, pool: Option<Pool>, trouble: Option<String>) -> Self {
        let pool_is_there = pool.is_some();
        let store = Self {
            settings: settings.clone(),
            id: pool.as_ref().map(|pool| pool.store().id()),
            slot: Arc::new(RwLock::new(pool.map_or(Slot::None, |pool| Slot::Open(PoolOf(pool))))),
            cutter: Arc::default(),
            clock: Arc::default(),
            // It takes chunks until a look finds otherwise.
            tally: Arc::new(Tally { taking: AtomicBool::new(pool_is_there), ..Tally::default() }),
            seen: Arc::new(Mutex::new(Seen { trouble, ..Seen::default() })),
            hangs_after: HANGS_AFTER,
            neighbours: None,
        };
        store.look(true);
        store
    }
}

/// Opens a store on a thread of its own, and puts it into the gateway's slot.
struct Opener {
    settings: StoreSettings,
    progress: Arc<Progress>,
    slot: Arc<RwLock<Slot>>,
    seen: Arc<Mutex<Seen>>,
    tally: Arc<Tally>,
    clock: Arc<StoreClock>,
}

impl Opener {
    /// Identifies the store.
    fn prepare(&self, backend: Arc<dyn Backend>, key: Option<&StorageKey>) -> Result<Prepared, NotOpened> {
        let options = options(self.settings.index_memory, self.settings.disk, key);
        let prepared = Store::prepare(backend, &options);
        prepared.map_err(|error| not_opened(error, key.is_some(), &self.settings.path))
    }

    /// Scans it, and puts it in its place, unless the gateway has given it up meanwhile.
    fn open(&self, prepared: Prepared) {
        let path = &self.settings.path;
        let opened =
            prepared.open(&self.progress).map_err(|error| error.to_string()).and_then(|(store, opened)| {
                let pool = Pool::start(store, limits(&self.settings)).map_err(|error| error.to_string())?;
                Ok((pool, opened))
            });
        let mut slot = self.slot.write();
        if !matches!(*slot, Slot::Opening(_)) {
            drop(slot);
            if let Ok(Err(error)) = opened.map(|(pool, _)| pool.close()) {
                tracing::warn!("chunk store: {error}; the next start looks through it anew");
            }
            return;
        }
        match opened {
            Ok((pool, opened)) => {
                report(path, &opened);
                self.tally.taking.store(true, Relaxed);
                let Horizon { oldest_s, newest_s, .. } = pool.store().horizon();
                self.tally.oldest_s.store(oldest_s.unwrap_or(0), Relaxed);
                let ahead_s = self.clock.go_on_from(newest_s.unwrap_or(0));
                if ahead_s > LITTLE_S {
                    let path = path.display();
                    tracing::warn!(
                        %path,
                        "the newest chunk of the chunk store is of a time in {ahead_s} s: the clock was ahead then, or is \
                         behind now; ages are counted on from there"
                    );
                }
                *slot = Slot::Open(PoolOf(pool));
            }
            Err(why) => {
                report_failure(path, &why);
                self.seen.lock().trouble = Some(why);
                *slot = Slot::None;
            }
        }
    }
}

/// Takes the directory of a store to be opened.
fn backend(settings: &StoreSettings) -> Result<Arc<dyn Backend>, NotOpened> {
    let directory = take(&settings.path)?;
    Ok(match settings.read_latency {
        None => directory,
        Some(latency) => Arc::new(Slow::new(directory, latency, MODEL_BYTES_PER_S)),
    })
}

fn limits(settings: &StoreSettings) -> Limits {
    let readers = if settings.read_latency.is_some() { 1 } else { READERS };
    Limits { readers, reads: MOST_READS, jobs: MOST_JOBS, job_bytes: MOST_JOB_BYTES }
}

/// Locks the directory of a store for this process.
pub(super) fn take(path: &Path) -> Result<Arc<Directory>, NotOpened> {
    Directory::open(path).map(Arc::new).map_err(|error| match error {
        DirectoryError::InUse(path) => NotOpened::Refused(OpenError::InUse { pid: holder(&path), path }),
        DirectoryError::ReadOnly(_) | DirectoryError::InTheWay(_) | DirectoryError::Io { .. } => {
            NotOpened::NotTaken(error)
        }
    })
}

/// Opens a store in a directory.
pub(super) fn open(
    backend: Arc<dyn Backend>,
    options: &Options,
    path: &Path,
) -> Result<(Store, Opened), NotOpened> {
    Store::open(backend, options).map_err(|error| not_opened(error, options.sealer.is_some(), path))
}

pub(super) fn not_opened(error: oncewire_store::OpenError, keyed: bool, path: &Path) -> NotOpened {
    match error {
        oncewire_store::OpenError::OtherKey => {
            NotOpened::Refused(OpenError::OtherKey { path: path.to_owned(), keyed })
        }
        oncewire_store::OpenError::Capacity { capacity, segment_bytes } => NotOpened::Failed(format!(
            "it was made with files of {segment_bytes} bytes, and `store_disk`, {capacity} bytes, is less than two of \
             them: raise `store_disk` to {least} bytes or more, or clear the store by `oncewire cache clear` while the \
             gateway is stopped, to begin anew with smaller files",
            least = 2 * segment_bytes,
        )),
        error => NotOpened::Failed(error.to_string()),
    }
}

/// Returns the options for opening a store of so many bytes.
pub(super) fn options(index_memory: u64, disk: u64, key: Option<&StorageKey>) -> Options {
    let salts = || {
        let mut salt = [0; 16];
        getrandom::fill(&mut salt).map_err(std::io::Error::other)?;
        Ok(salt)
    };
    let sealer = key.map(|key| Arc::new(Sealer::new(&key.derive("oncewire chunk store"), salts)));
    let most = (disk / MOST_SEGMENTS).clamp(LARGE_SEGMENT, MOST_SEGMENT);
    let segment_bytes = (disk / LEAST_SEGMENTS).clamp(LEAST_SEGMENT, most) / PAGE * PAGE;
    let index = IndexMemory::divide(index_memory, disk);
    Options { capacity: disk, segment_bytes, index, id: crate::dialer::random(), sealer, at_rest: false }
}

/// Logs the findings.
fn report(path: &Path, opened: &Opened) {
    let path = path.display();
    for note in &opened.notes {
        tracing::warn!(%path, "chunk store: {note}");
    }
    if opened.notes_left_out > 0 {
        tracing::warn!(%path, "chunk store: {} lines more like these", opened.notes_left_out);
    }
    match opened.new {
        true => tracing::info!(%path, "a new chunk store begins"),
        false => {
            let (segments, index_kept) = (opened.segments, opened.index_kept);
            tracing::info!(%path, segments, index_kept, "found the chunk store of an earlier run");
        }
    }
}

fn report_failure(path: &Path, why: &str) {
    tracing::error!(path = %path.display(), "the chunk store is not used: {why}");
}

/// Returns the process holding a store's lock, from /proc.
fn holder(path: &Path) -> Option<u32> {
    let lock = std::fs::metadata(path.join("lock")).ok()?;
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    holder_of(&locks, lock.dev(), lock.ino())
}

/// Finds the holder of a file's lock in a list of locks: `1: FLOCK ADVISORY WRITE PID MAJOR:MINOR:INODE 0
/// EOF`.
fn holder_of(locks: &str, device: u64, inode: u64) -> Option<u32> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let wanted = format!("{major:02x}:{minor:02x}:{inode}");
    let holder = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let at = fields.iter().position(|field| *field == wanted)?;
        fields.get(at.checked_sub(1)?)?.parse().ok().filter(|pid| *pid > 0)
    };
    locks.lines().find_map(holder)
}

/// Clock corrections up to this many seconds are not logged.
const LITTLE_S: u64 = 60;

/// Longer than any operation of a working disk, even with repeated retries of a bad sector.
const HANGS_AFTER: Duration = Duration::from_secs(10);

/// How long a start waits for a store: a fast one is there from the first byte on.
const PATIENCE: Duration = Duration::from_secs(3);

/// A flash disk serves several reads at a time; more of them wait no shorter on a disk with one arm.
const READERS: usize = 4;
/// Reads beyond are refused. It has room for eight links at their limit of requests, with one read serving
/// several blocks; each takes some hundred bytes of memory.
const MOST_READS: usize = 16 * 1024;
/// Queued blocks; further ones are dropped.
const MOST_JOBS: usize = 4096;
const MOST_JOB_BYTES: u64 = 32 << 20;

/// With so many segments, giving up the oldest costs a sixteenth of the content.
const LEAST_SEGMENTS: u64 = 16;
const LEAST_SEGMENT: u64 = 1 << 20;
/// Segments are no larger as long as there are not too many of them.
const LARGE_SEGMENT: u64 = 64 << 20;
/// A start reads the first page of each, so a terabyte should not have too many.
const MOST_SEGMENTS: u64 = 4096;
/// The format's limit.
const MOST_SEGMENT: u64 = 4 << 30;
const PAGE: u64 = 4096;

/// Read throughput of the slow-disk model beside its seeks, in bytes per second.
const MODEL_BYTES_PER_S: u64 = 100 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_holder_is_found_by_inode() {
        let locks = "1: POSIX  ADVISORY  WRITE 100 fe:00:7 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 4711 fe:00:77 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 0 fe:00:78 0 EOF\n";
        let device = rustix::fs::makedev(0xfe, 0);
        assert_eq!(holder_of(locks, device, 77), Some(4711));
        assert_eq!(holder_of(locks, device, 78), None, "of another namespace");
        assert_eq!(holder_of(locks, device, 79), None);
    }

    #[test]
    fn store_size_is_whole_segments() {
        for (disk, segment_bytes) in [
            (64 << 20, 4 << 20),
            (100_000_000, 6_246_400),
            (100 << 30, 64 << 20),
            (1 << 40, 256 << 20),
            (1 << 50, 4 << 30),
        ] {
            let options = options(1 << 20, disk, None);
            assert!(
                options.segment_bytes.is_multiple_of(PAGE) && options.capacity >= 2 * options.segment_bytes
            );
            assert_eq!(options.segment_bytes, segment_bytes, "of {disk}");
        }
    }
}
