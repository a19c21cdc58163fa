//! The store of a gateway on disks that are full, fail or hang.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use oncewire_codec::wanax::{NameKey, Shape};
use oncewire_store::{Backend, Memory};

use super::open;
use super::*;

fn store_on(backend: Arc<dyn Backend>) -> ChunkStore {
    let path = PathBuf::from("memory");
    let settings = StoreSettings { path, disk: 64 << 20, index_memory: 1 << 20, read_latency: None };
    let opened = open::start_on(backend, &settings, None);
    let (pool, _) = opened.unwrap_or_else(|_| panic!("it opens"));
    ChunkStore::of(&settings, Some(pool), None)
}

fn block(number: u8) -> Bytes {
    let mut state = u32::from(number) + 1;
    let byte = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..65_536).map(byte).collect()
}

fn put(store: &ChunkStore, number: u8) {
    store.put(block(number), NameKey::new([7; 32]), Shape::default());
}

/// Waits until it is as it should be, which takes other threads milliseconds.
fn until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

#[test]
fn what_was_put_is_told_with_its_levels_and_forgotten_when_it_is_cleared() {
    let store = store_on(Arc::new(Memory::default()));
    (0..4).for_each(|number| put(&store, number));
    put(&store, 0);
    until("it is counted", || {
        store.look(true);
        store.report().levels.first().is_some_and(|level| level.chunks == 4)
    });
    let report = store.report();
    assert_eq!((report.puts, report.known, report.dropped), (5, 1, 0), "{report:?}");
    assert_eq!((report.levels.len(), report.levels[3].bytes), (4, 4 << 16), "{report:?}");
    assert_eq!((report.state, store.state().taking), (StoreCondition::Open, true));
    assert!(store.clear().blocking_recv().unwrap().unwrap() > 0);
    assert_eq!(store.state().age_secs, 0);
}

#[test]
fn a_disk_that_fails_is_said_and_links_are_told_that_nothing_is_taken() {
    let memory = Memory::default();
    let store = store_on(Arc::new(memory.clone()));
    until("it takes chunks", || store.state().taking);
    memory.fail_writes(Some(io::ErrorKind::Other));
    put(&store, 1);
    until("the failure is noticed", || {
        store.look(true);
        store.report().state == StoreCondition::ReadOnly
    });
    assert!(store.report().reason.is_some() && !store.state().taking);
    put(&store, 2);
    until("blocks are counted that are not taken", || store.report().dropped > 0);
}

#[test]
fn what_a_look_between_syncs_has_seen_is_still_counted_by_the_next_sync() {
    let store = store_on(Arc::new(Memory::default()));
    put(&store, 1);
    let done = |store: &ChunkStore| store.report().waiting_bytes == 0 && !store.seen.lock().looking;
    until("it was put and looked at", || done(&store));
    let all_written = |store: &oncewire_store::Store| store.sync().unwrap();
    assert!(store.pool.read().as_ref().is_some_and(|PoolOf(pool)| pool.ingest(0, all_written).is_ok()));
    store.look(false);
    until("it was looked at without a sync", || done(&store));
    store.look(true);
    until("it was looked at with one", || done(&store));
    assert_eq!(store.report().levels.first().map(|level| level.chunks), Some(1));
}

#[test]
fn a_folder_that_cannot_be_used_leaves_the_gateway_without_a_store() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "no folder").unwrap();
    let settings =
        StoreSettings { path: file.join("store"), disk: 64 << 20, index_memory: 1 << 20, read_latency: None };
    let store = ChunkStore::open(&settings, None).unwrap();
    let report = store.report();
    assert_eq!((store.id(), report.state, report.id), (None, StoreCondition::Failed, None));
    assert!(report.reason.is_some() && !store.state().taking);
    put(&store, 1);
    assert_eq!((store.report().puts, store.report().dropped), (0, 1));
}

#[test]
fn a_store_that_is_in_use_is_an_error_and_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let settings = StoreSettings { path, disk: 64 << 20, index_memory: 1 << 20, read_latency: None };
    let first = ChunkStore::open(&settings, None).unwrap();
    let refused = ChunkStore::open(&settings, None).unwrap_err();
    assert!(
        matches!(refused, OpenError::InUse { pid, .. } if pid.is_none_or(|pid| pid == std::process::id()))
    );
    put(&first, 1);
    until("it goes on", || {
        first.look(true);
        first.report().levels.first().is_some_and(|level| level.chunks == 1)
    });
}

/// A disk that hangs as long as the gate is shut.
struct Hanging {
    inner: Memory,
    open: Arc<(parking_lot::Mutex<bool>, parking_lot::Condvar)>,
}

impl Hanging {
    fn wait(&self) {
        let (open, changed) = &*self.open;
        let mut open = open.lock();
        while !*open {
            changed.wait(&mut open);
        }
    }
}

impl Backend for Hanging {
    fn create(&self, name: &str, len: u64) -> io::Result<()> {
        self.wait();
        self.inner.create(name, len)
    }

    fn read(&self, name: &str, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.wait();
        self.inner.read(name, at, into)
    }

    fn write(&self, name: &str, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.wait();
        self.inner.write(name, at, bytes)
    }

    fn truncate(&self, name: &str, len: u64) -> io::Result<()> {
        self.inner.truncate(name, len)
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        self.wait();
        self.inner.sync(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.inner.remove(name)
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        self.inner.list()
    }
}

#[test]
fn while_a_disk_hangs_a_bounded_part_waits_and_nobody_does() {
    let gate = Arc::new((parking_lot::Mutex::new(true), parking_lot::Condvar::new()));
    let store = store_on(Arc::new(Hanging { inner: Memory::default(), open: Arc::clone(&gate) }));
    until("it was looked at", || store.state().taking);
    *gate.0.lock() = false;
    let (plain, key) = (block(1), NameKey::new([7; 32]));
    (0..1024).for_each(|_| store.put(plain.clone(), key.clone(), Shape::default()));
    let report = store.report();
    // One job is always taken, so that nothing is too large for the queue.
    assert!(report.waiting_bytes <= (32 << 20) + (66 << 10), "{report:?}");
    assert!(report.dropped > 0 && report.puts + report.dropped == 1024, "{report:?}");
    *gate.0.lock() = true;
    gate.1.notify_all();
    until("what waited is done", || store.report().waiting_bytes == 0);
    assert_eq!(store.report().state, StoreCondition::Open);
}
