//! A gateway's store on full, failing and hanging disks.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use oncewire_codec::wanax::LEAST_SHARED;
use oncewire_codec::wanax::{NameKey, Shape, Tree};
use oncewire_store::{Backend, Memory};

use super::*;

mod at_rest;
mod keys;
mod moody;
mod neighbours;
mod opening;
mod reads;

use moody::{Mood, Moody};

fn store_on(backend: Arc<dyn Backend>) -> ChunkStore {
    opening_on(backend, Duration::from_secs(60))
}

/// A store opened with this limit of waiting.
fn opening_on(backend: Arc<dyn Backend>, patience: Duration) -> ChunkStore {
    let path = PathBuf::from("memory");
    let settings = StoreSettings { path, disk: 64 << 20, index_memory: 1 << 20, read_latency: None };
    ChunkStore::open_on(&settings, None, |_| Ok(backend), patience).unwrap()
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

/// For each of these blocks, whether the store denies having it.
fn absent<const N: usize>(store: &ChunkStore, numbers: [u8; N]) -> [bool; N] {
    let key = NameKey::new([7; 32]);
    let chunks = numbers.map(|number| Sought { tag: key.tag(&block(number)), len: 65_536 });
    let places = store.places(&chunks, store.may_be_elsewhere(&key));
    places.iter().map(|place| *place == ChunkPlace::Absent).collect::<Vec<_>>().try_into().unwrap()
}

#[tokio::test]
async fn new_chunks_are_reported_and_two_levels_shared() {
    let key = NameKey::new([7; 32]);
    for shape in ["mrc:2:32", "mrc:4:64", "mrc:8:128"] {
        let (neighbours, mut news) = Neighbours::of_one_to_tell(key.clone());
        let store = store_on(Arc::new(Memory::default())).telling(neighbours);
        let shape: Shape = shape.parse().unwrap();
        store.put(block(1), key.clone(), shape);
        let chunks = news.recv().await.unwrap().chunks;
        let mut tree = Tree::new(shape);
        let large = tree.grow(&block(1)).iter().filter(|node| node.len >= LEAST_SHARED);
        let levels: Vec<u8> = large.map(|node| node.level).collect();
        let shared = levels.iter().filter(|level| **level <= 1).count();
        let told = |is_shared| chunks.iter().filter(|chunk| chunk.is_shared == is_shared).count();
        assert_eq!((told(true), told(false)), (shared, levels.len() - shared), "{shape}");
        assert_eq!(told(false) == 0, shape == Shape::default());
    }
}

/// Waits for a condition; other threads need milliseconds.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

#[test]
fn new_chunks_are_reported_and_cleared_ones_forgotten() {
    let store = store_on(Arc::new(Memory::default()));
    (0..4).for_each(|number| put(&store, number));
    put(&store, 0);
    until("it is counted", || {
        store.look(true);
        let report = store.report();
        report.waiting_bytes == 0 && report.levels.first().is_some_and(|level| level.chunks == 4)
    });
    let report = store.report();
    assert_eq!((report.puts, report.known, report.dropped), (5, 1, 0), "{report:?}");
    assert_eq!((report.levels.len(), report.levels[3].bytes), (4, 4 << 16), "{report:?}");
    assert_eq!((report.state, store.state().taking), (StoreCondition::Open, true));
    assert_eq!(absent(&store, [0, 3, 4, 9]), [false, false, true, true]);
    assert!(store.clear().blocking_recv().unwrap().unwrap() > 0);
    // At once, without a look.
    let report = store.report();
    assert_eq!((report.segments, report.used, report.levels.len()), (0, 0, 0), "{report:?}");
    assert_eq!((&report.indexed[..], report.oldest_secs), (&[0; 3][..], None), "{report:?}");
    assert_eq!(store.state().age_secs, 0);
    assert_eq!(absent(&store, [0, 3]), [true; 2]);
}

#[test]
fn store_with_neighbours_denies_no_chunk() {
    let key = NameKey::new([7; 32]);
    let store = store_on(Arc::new(Memory::default()));
    assert_eq!(absent(&store, [1]), [true]);
    let store = store.telling(Neighbours::of_one_to_ask(NameKey::new([8; 32])).0);
    assert_eq!(absent(&store, [1]), [true], "they are of another group");
    assert_eq!(absent(&store.telling(Neighbours::of_one_to_ask(key).0), [1]), [false]);
}

#[test]
fn failing_disk_is_reported_and_links_see_a_full_store() {
    let memory = Memory::default();
    let store = store_on(Arc::new(memory.clone()));
    assert!(store.state().taking);
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
fn full_disk_is_reported_and_retried() {
    let memory = Memory::default();
    let store = store_on(Arc::new(memory.clone()));
    memory.set_room(Some(1 << 16));
    put(&store, 1);
    until("it is noticed", || {
        store.look(true);
        store.report().state == StoreCondition::ReadOnly
    });
    assert!(store.report().reason.is_some_and(|why| why.contains("tried again")) && !store.state().taking);
    memory.set_room(None);
    until("it goes on by itself", || {
        store.look(true);
        store.report().state == StoreCondition::Open && store.state().taking
    });
    put(&store, 2);
    until("it takes chunks", || {
        store.look(true);
        store.report().levels.first().is_some_and(|level| level.chunks == 1)
    });
}

#[test]
fn look_between_syncs_stays_counted_by_the_next() {
    let store = store_on(Arc::new(Memory::default()));
    put(&store, 1);
    let done = |store: &ChunkStore| store.report().waiting_bytes == 0 && !store.seen.lock().looking;
    until("it was put and looked at", || done(&store));
    let all_written = |store: &oncewire_store::Store| store.sync().unwrap();
    assert!(store.slot.read().pool().is_some_and(|PoolOf(pool)| pool.ingest(0, all_written).is_ok()));
    store.look(false);
    until("it was looked at without a sync", || done(&store));
    store.look(true);
    until("it was looked at with one", || done(&store));
    assert_eq!(store.report().levels.first().map(|level| level.chunks), Some(1));
}

#[test]
fn unusable_directory_leaves_the_gateway_without_a_store() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "no directory").unwrap();
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
fn oversized_store_files_are_reported_with_a_remedy() {
    let memory: Arc<dyn Backend> = Arc::new(Memory::default());
    let path = PathBuf::from("memory");
    let large = StoreSettings { path, disk: 1 << 30, index_memory: 1 << 20, read_latency: None };
    let open = |settings: &StoreSettings| {
        let memory = Arc::clone(&memory);
        ChunkStore::open_on(settings, None, |_| Ok(memory), Duration::from_secs(60)).unwrap()
    };
    close(&open(&large));
    let store = open(&StoreSettings { disk: 100 << 20, ..large });
    let report = store.report();
    let reason = report.reason.unwrap_or_default();
    assert_eq!(report.state, StoreCondition::Failed);
    let least = (128_u64 << 20).to_string();
    assert!(
        reason.contains("`store_disk`") && reason.contains(&least) && reason.contains("cache clear"),
        "{reason}"
    );
    let refused = store.clear().blocking_recv().unwrap().unwrap_err();
    assert!(refused.starts_with("is not open (") && refused.contains(&reason), "its files stay: {refused}");
}

#[test]
fn store_in_use_is_an_error_and_stays_untouched() {
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

fn close(store: &ChunkStore) {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(store.close());
}

#[test]
fn hanging_disk_holds_bounded_work_and_no_caller() {
    let disk = Moody::new(Mood::Works);
    let store = store_on(Arc::new(disk.clone()));
    until("it was looked at", || store.state().taking && !store.seen.lock().looking);
    disk.set(Mood::Holds);
    let (plain, key) = (block(1), NameKey::new([7; 32]));
    (0..1024).for_each(|_| store.put(plain.clone(), key.clone(), Shape::default()));
    let report = store.report();
    // One job is always taken: nothing is too large for the queue.
    assert!(report.waiting_bytes <= (32 << 20) + (66 << 10), "{report:?}");
    assert!(report.dropped > 0 && report.puts + report.dropped == 1024, "{report:?}");
    disk.set(Mood::Works);
    until("what waited is done", || store.report().waiting_bytes == 0);
    until("it is open", || store.report().state == StoreCondition::Open);
}

/// Puts blocks, and waits until they are on the disk.
fn fill(store: &ChunkStore, blocks: u8) {
    (0..blocks).for_each(|number| put(store, number));
    until("all is written", || {
        store.look(true);
        store.report().levels.first().is_some_and(|level| level.chunks == u64::from(blocks))
    });
    until("nothing is under way", || store.report().waiting_bytes == 0 && !store.seen.lock().looking);
}

/// The first root of a block, as a peer would name it.
fn root(number: u8) -> (Name, u32) {
    let plain = block(number);
    let root = Tree::new(Shape::default()).grow(&plain).iter().find(|node| node.level == 0).copied().unwrap();
    (NameKey::new([7; 32]).name(&plain.slice(root.range())), root.len)
}

/// Asks for a block, and counts the answer: [found, not given].
fn ask(store: &ChunkStore, number: u8, answers: &Arc<[AtomicU64; 2]>) -> bool {
    let ((name, len), answers) = (root(number), Arc::clone(answers));
    store.lend(name, len, NameKey::new([7; 32]), move |found| {
        answers[usize::from(found.is_none())].fetch_add(1, Relaxed);
    })
}

/// Asks as a link does, behind queued puts, but for a block never put.
fn ask_in_vain(store: &ChunkStore, answers: &Arc<[AtomicU64; 2]>) -> bool {
    let answers = Arc::clone(answers);
    let reply = move |outcome: ReadOutcome| {
        answers[usize::from(!matches!(outcome, Ok(Some(_))))].fetch_add(1, Relaxed);
    };
    store.try_read((1, 65_536), |_| true, |_| false, reply)
}

#[test]
fn stalled_readers_are_bypassed_until_they_return() {
    let disk = Moody::new(Mood::Works);
    let mut store = store_on(Arc::new(disk.clone()));
    fill(&store, 8);
    store.hangs_after = Duration::from_millis(1);
    let answers: Arc<[AtomicU64; 2]> = Arc::default();
    disk.set(Mood::HoldsReads);
    // One for each reader, some waiting for a reader, and then no more are taken.
    let mut asked = 0;
    until("nothing is asked of it any more", || {
        asked += u64::from(ask(&store, (asked % 8) as u8, &answers));
        store.report().state == StoreCondition::Hanging
    });
    assert!(!ask(&store, 1, &answers), "it is not asked");
    assert_eq!(store.state(), StoreState::default(), "links are told that there is nothing");
    assert!(store.report().oldest_read_ms >= 1 && store.report().reason.is_some());
    store.look(false);
    // Four are at the disk, and the waiting ones are refused.
    until("who waited is told", || answers[1].load(Relaxed) == asked - 4);
    disk.set(Mood::Works);
    until("those that the disk held are served", || answers[0].load(Relaxed) == 4);
    store.hangs_after = Duration::from_secs(60);
    until("it is used again", || ask(&store, 2, &answers) && store.state().taking);
    until("all are served", || store.report().queue == 0);
    assert_eq!(store.report().state, StoreCondition::Open);
}

#[test]
fn gateway_ends_at_once_despite_a_hanging_disk() {
    let disk = Moody::new(Mood::Works);
    let mut store = store_on(Arc::new(disk.clone()));
    fill(&store, 1);
    store.hangs_after = Duration::from_millis(1);
    disk.set(Mood::Holds);
    put(&store, 9);
    until("it hangs", || {
        store.look(true);
        store.report().state == StoreCondition::Hanging
    });
    assert!(!store.state().taking);
    let begun = Instant::now();
    close(&store);
    assert!(begun.elapsed() < DISK_LIMIT, "nobody waited for the disk");
    disk.set(Mood::Works);
}

#[test]
fn panicked_look_is_followed_by_another() {
    let disk = Moody::new(Mood::Works);
    let store = store_on(Arc::new(disk.clone()));
    fill(&store, 1);
    disk.set(Mood::Panics);
    put(&store, 2);
    store.look(true);
    until("the look has ended", || !store.seen.lock().looking);
    disk.set(Mood::Works);
    until("the next one sees something", || {
        store.look(true);
        store.report().puts == 2 && store.seen.lock().counts.stored == 2
    });
}

#[test]
fn refused_block_is_stored_on_its_next_arrival() {
    let memory = Memory::default();
    let store = store_on(Arc::new(memory.clone()));
    // More than a segment has.
    fill(&store, 100);
    let answers: Arc<[AtomicU64; 2]> = Arc::default();
    memory.fail_reads_of("0000000000000001.seg", Some(5));
    assert!(ask(&store, 0, &answers));
    until("the disk refused it", || answers[1].load(Relaxed) == 1);
    put(&store, 0);
    until("it is stored again", || store.report().replaced == 1);
    assert!(ask(&store, 0, &answers));
    until("it is found where it is now", || answers[0].load(Relaxed) == 1);
    let counts = store.slot.read().pool().map(|PoolOf(pool)| pool.store().counts()).unwrap();
    // A read overtaken by a look is retried behind it.
    assert!(counts.unreadable > 0 && counts.faults == 0, "{counts:?}");
    assert_eq!(store.report().state, StoreCondition::Open);
}

/// Holds the writing thread until the sender is dropped or used, and fills its queue on request.
fn hold(store: &ChunkStore, fill: bool) -> std::sync::mpsc::Sender<()> {
    let (release, wait) = std::sync::mpsc::channel::<()>();
    let (begun, has_begun) = std::sync::mpsc::channel();
    let slot = store.slot.read();
    let PoolOf(pool) = slot.pool().unwrap();
    pool.ingest(1, move |_| {
        begun.send(()).unwrap();
        let _ = wait.recv();
    })
    .unwrap();
    has_begun.recv_timeout(Duration::from_secs(60)).unwrap();
    while fill && pool.ingest(1, |_| {}).is_ok() {}
    release
}

#[test]
fn sync_is_done_despite_full_queue_and_late_look() {
    let store = store_on(Arc::new(Memory::default()));
    let is_idle = |store: &ChunkStore| !store.seen.lock().looking;
    until("it was looked at", || store.state().taking && is_idle(&store));
    let syncs = || store.tally.syncs.load(Relaxed);
    for fill in [false, true] {
        let (before, release) = (syncs(), hold(&store, fill));
        store.look(false);
        assert!(store.seen.lock().looking, "a look is always taken");
        // The sync finds a look still waiting, and is not lost.
        store.look(true);
        drop(release);
        until("it has synced", || syncs() == before + 1 && is_idle(&store));
        store.look(false);
        until("it was looked at again", || is_idle(&store));
        assert_eq!(syncs(), before + 1, "once");
    }
}

#[test]
fn held_writer_refuses_its_waiters_and_readers_go_on() {
    let mut store = store_on(Arc::new(Memory::default()));
    fill(&store, 8);
    store.hangs_after = Duration::from_millis(1);
    let (here, absent): (Arc<[AtomicU64; 2]>, Arc<[AtomicU64; 2]>) = Default::default();
    let release = hold(&store, true);
    until("it hangs", || store.report().state == StoreCondition::Hanging);
    assert!(ask_in_vain(&store, &absent));
    until("it was looked for in vain", || {
        store.report().oldest_read_ms == 0 && {
            store.look(false);
            absent[1].load(Relaxed) == 1
        }
    });
    assert!(ask(&store, 3, &here));
    until("what is there is read", || here[0].load(Relaxed) == 1);
    drop(release);
    until("all is done", || store.report().queue == 0);
}

#[test]
fn neighbour_gets_absence_despite_queued_puts_or_held_writer() {
    let store = store_on(Arc::new(Memory::default()));
    fill(&store, 8);
    let answers: Arc<[AtomicU64; 2]> = Arc::default();
    let release = hold(&store, false);
    (100..150).for_each(|number| put(&store, number));
    assert!(ask(&store, 120, &answers) && ask(&store, 3, &answers));
    until("it is told what is there and what is not", || {
        [0, 1].map(|at| answers[at].load(Relaxed)) == [1, 1]
    });
    drop(release);
    until("all is put", || store.report().waiting_bytes == 0);
    assert!(ask(&store, 120, &answers));
    until("it is there", || answers[0].load(Relaxed) == 2);
    let release = hold(&store, false);
    let oldest_job = || store.slot.read().pool().map(|PoolOf(pool)| pool.load().oldest_job);
    until("the writer has been held for long", || oldest_job() > Some(DONE_SOON));
    assert!(ask(&store, 200, &answers));
    until("it is told that it is not there", || answers[1].load(Relaxed) == 2);
    drop(release);
}

#[test]
fn long_clearing_is_reported_as_clearing() {
    let disk = Moody::new(Mood::Works);
    let mut store = store_on(Arc::new(disk.clone()));
    fill(&store, 8);
    store.hangs_after = Duration::from_millis(1);
    disk.set(Mood::Holds);
    let cleared = store.clear();
    until("it is told", || store.report().state == StoreCondition::Clearing);
    disk.set(Mood::Works);
    assert!(cleared.blocking_recv().unwrap().unwrap() > 0);
    until("it is over", || store.report().state == StoreCondition::Open);
}

/// A store with blocks of these times, one in each segment.
fn of_times(times_s: impl Iterator<Item = u64>) -> ChunkStore {
    let memory = Memory::default();
    let options = open::options(1 << 20, 64 << 20, None);
    let (key, mut cutter) = (NameKey::new([7; 32]), Cutter::default());
    for (number, time_s) in times_s.enumerate() {
        let (store, _) = oncewire_store::Store::open(Arc::new(memory.clone()), &options).unwrap();
        cutter.put(&store, &block(number as u8), (&key, Shape::default()), time_s);
        store.close().unwrap();
    }
    store_on(Arc::new(memory))
}

#[test]
fn clock_once_ahead_makes_the_store_no_younger() {
    const DAY: u64 = 86_400;
    let now = names::unix_time_s();
    let ages = |times_s: &[u64]| of_times(times_s.iter().copied()).state().age_secs;
    // As it should be; a second may have passed.
    assert!((3 * DAY..3 * DAY + 60).contains(&ages(&[now - 3 * DAY, now - 2 * DAY, now])));
    // All of it by a clock a month ahead, and half of it, before and after time has caught up.
    assert!(ages(&[now + 28 * DAY, now + 30 * DAY]) >= 2 * DAY);
    assert!(ages(&[now + 30 * DAY, now + 30 * DAY, now - 2 * DAY, now]) >= 2 * DAY);
    assert!(ages(&[now - 10, now - 9, now - 2 * DAY, now - DAY]) >= 2 * DAY);
    // New chunks are not dated before the others.
    let store = of_times([now + 30 * DAY].into_iter());
    put(&store, 100);
    let horizon = |store: &ChunkStore| store.slot.read().pool().map(|PoolOf(pool)| pool.store().horizon());
    until("it is there", || {
        store.look(true);
        store.report().levels.first().is_some_and(|level| level.chunks == 2)
    });
    assert_eq!(horizon(&store).unwrap().oldest_s, Some(now + 30 * DAY));
}

#[test]
fn links_get_the_true_time_of_a_fast_disk() {
    let us = Duration::from_micros;
    for (service_us, stalled_us, told_us) in [
        (0, 0, 0),
        (14, 0, 100),
        (250, 0, 200),
        // Its readers wait for a CPU, or it has stalled.
        (14, 49_999, 100),
        (14, 50_000, 50_000),
        // A disk with one arm is behind as soon as no read comes back.
        (2_000, 0, 2_000),
        (2_000, 9_000, 9_000),
    ] {
        let load = Load { service_time: us(service_us), stalled: us(stalled_us), ..Load::default() };
        assert_eq!(told(&load), us(told_us), "{service_us} {stalled_us}");
    }
}
