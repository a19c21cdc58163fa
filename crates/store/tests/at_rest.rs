//! Stores opened at rest, for a look or a rewrite, and cleared ones.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{block, open, options, parts, sealed, whole};
use oncewire_store::{
    Backend, Directory, Faults, IndexMemory, Inserted, MIN_SEGMENT_BYTES, Memory, OpenError, Opened, Options,
    Progress, Store, StoreFiles,
};

const LENS: [usize; 60] = [60_000; 60];

fn fill(store: &Store, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let block = block(number, 60_000);
        assert!(matches!(store.insert(&block, &parts(&block), number), Inserted::Stored { .. }));
    }
}

/// A store of several segments, closed in order.
fn closed(options: &Options) -> Memory {
    let memory = Memory::default();
    let store = open(&memory, options);
    fill(&store, 0..60);
    store.close().unwrap();
    memory
}

/// As opened by tools, without knowledge of its capacity and index memory.
fn at_rest(capacity: u64) -> Options {
    let index = IndexMemory { coarse: 1 << 12, medium: 1 << 12, fine: 1 << 12 };
    Options { capacity, index, at_rest: true, ..options(4) }
}

fn reopened(memory: &Memory, options: &Options) -> (Store, Opened) {
    Store::open(Arc::new(memory.clone()), options).unwrap()
}

#[test]
fn look_at_a_store_finds_its_index_and_leaves_it() {
    for capacity in [0, 1 << 20, 1 << 60] {
        let memory = closed(&options(200));
        let files = memory.list().unwrap();
        let (store, opened) = reopened(&memory, &at_rest(capacity));
        assert!(opened.index_kept && opened.notes.is_empty(), "{opened:?}");
        assert_eq!(whole(&store, &LENS).len(), 60, "nothing goes");
        assert_eq!(store.verify(&Progress::default()).unwrap().damaged.len(), 0);
        store.close().unwrap();
        assert_eq!(memory.list().unwrap(), files);
        let (store, opened) = reopened(&memory, &options(200));
        assert!(opened.index_kept);
        assert_eq!(whole(&store, &LENS).len(), 60);
    }
}

#[test]
fn killed_look_changes_nothing() {
    let memory = closed(&options(200));
    drop(reopened(&memory, &at_rest(0)));
    assert!(reopened(&memory, &options(200)).1.index_kept);
}

#[test]
fn store_after_a_kill_is_unchanged_by_a_look() {
    let memory = Memory::default();
    let store = open(&memory, &options(200));
    fill(&store, 0..60);
    store.sync().unwrap();
    drop(store);
    let (store, opened) = reopened(&memory, &Options { at_rest: true, ..options(8) });
    assert!(!opened.index_kept);
    assert_eq!(whole(&store, &LENS).len(), 60);
    store.close().unwrap();
    assert!(memory.list().unwrap().iter().all(|(name, _)| name != "index"), "no index is saved");
}

#[test]
fn store_rewritten_at_rest_keeps_its_index_layout() {
    let memory = closed(&options(200));
    let (store, _) = reopened(&memory, &at_rest(0));
    let compacted = store.compact(None, &Progress::default()).unwrap();
    assert_eq!((compacted.superseded, whole(&store, &LENS).len()), (0, 60));
    store.close().unwrap();
    let (store, opened) = reopened(&memory, &options(200));
    assert!(opened.index_kept, "{opened:?}");
    assert_eq!(whole(&store, &LENS).len(), 60);
}

#[test]
fn rewriting_keeps_the_reported_content_within_the_requested_size() {
    let memory = closed(&options(200));
    let (store, _) = reopened(&memory, &at_rest(0));
    let all = store.compact(None, &Progress::default()).unwrap();
    let taken = || {
        let is_counted = |name: &str| name.ends_with(".seg") || name.ends_with(".summary");
        let files = memory.list().unwrap().into_iter().filter(|(name, _)| is_counted(name));
        files.map(|(_, bytes)| bytes).sum::<u64>()
    };
    assert_eq!(all.after, taken(), "{all:?}");
    let most = all.after - all.after / 4;
    let fewer = store.compact(Some(most), &Progress::default()).unwrap();
    assert!(fewer.after <= most && fewer.kept < all.kept, "{fewer:?}");
    store.close().unwrap();
    assert_eq!(taken(), fewer.after);
}

#[test]
fn emptied_segment_is_not_a_refused_one() {
    for options in [options(200), sealed(7, 200)] {
        for len in [0, 100, 5000] {
            let memory = closed(&options);
            let files = memory.list().unwrap();
            let (emptied, _) = files.iter().find(|(name, _)| name.ends_with(".seg")).unwrap();
            memory.truncate(emptied, len).unwrap();
            let (store, opened) = reopened(&memory, &Options { at_rest: true, ..options.clone() });
            assert_eq!((opened.set_aside, store.set_aside()), (0, 0), "{opened:?}");
            let verified = store.verify(&Progress::default()).unwrap();
            assert_eq!((verified.damaged.len(), verified.unreadable.len()), (1, 0), "{verified:?}");
            let compacted = store.compact(None, &Progress::default()).unwrap();
            let [damaged, left, lost] =
                [&compacted.damaged, &compacted.left, &compacted.lost].map(Faults::len);
            assert_eq!((damaged, left, lost), (1, 0, 0), "{compacted:?}");
            store.close().unwrap();
            assert!(memory.list().unwrap().iter().all(|(name, _)| name != emptied), "it is gone");
        }
    }
}

#[test]
fn saved_index_does_not_outlive_its_segments() {
    let memory = closed(&options(200));
    let (store, _) = reopened(&memory, &at_rest(0));
    store.compact(None, &Progress::default()).unwrap();
    // Killed before anything was saved anew.
    drop(store);
    let (store, opened) = reopened(&memory, &options(200));
    assert!(!opened.index_kept);
    assert_eq!(whole(&store, &LENS).len(), 60);
}

#[test]
fn horizon_is_earliest_and_latest_time_in_any_order() {
    let memory = Memory::default();
    let store = open(&memory, &options(200));
    assert_eq!((store.horizon().oldest_s, store.horizon().newest_s), (None, None));
    fill(&store, 40..60);
    fill(&store, 10..40);
    store.sync().unwrap();
    assert_eq!((store.horizon().oldest_s, store.horizon().newest_s), (Some(10), Some(59)));
}

/// All files with their content.
fn contents(memory: &Memory) -> Vec<(String, Vec<u8>)> {
    let read = |(name, len): (String, u64)| {
        let mut bytes = vec![0; len as usize];
        memory.read(&name, 0, &mut bytes).unwrap();
        (name, bytes)
    };
    memory.list().unwrap().into_iter().map(read).collect()
}

#[test]
fn look_changes_nothing_for_any_content() {
    let segment = |number: u64| format!("{number:016x}.seg");
    for options in [options(40), sealed(1, 40)] {
        for harm in 0..6 {
            let memory = Memory::default();
            let store = Store::open(Arc::new(memory.clone()), &options).unwrap().0;
            fill(&store, 0..20);
            store.sync().unwrap();
            if harm == 5 {
                store.close().unwrap()
            } else {
                drop(store)
            }
            match harm {
                0 => memory.damage("store", |bytes| bytes[20] ^= 1),
                1 => memory.damage(&segment(2), |bytes| bytes[0] ^= 1),
                2 => memory.rename(&segment(2), &segment(0xff)).unwrap(),
                3 => memory.create(&segment(0xff), 8192).unwrap(),
                _ => {}
            }
            let before = contents(&memory);
            let at_rest = Options { at_rest: true, ..options.clone() };
            let (store, _) = Store::open(Arc::new(memory.clone()), &at_rest).unwrap();
            let there = store.verify(&Progress::default()).unwrap().containers;
            store.close().unwrap();
            assert!(there > 0 && contents(&memory) == before, "{harm}");
        }
    }
}

#[test]
fn compacting_to_a_size_lets_the_oldest_go() {
    let memory = Memory::default();
    let store = open(&memory, &options(40));
    fill(&store, 0..100);
    store.sync().unwrap();
    let (before, size) = (store.stat().containers, 6 * MIN_SEGMENT_BYTES);
    let compacted = store.compact(Some(size), &Progress::default()).unwrap();
    assert_eq!(compacted.kept + compacted.superseded + compacted.let_go, before, "{compacted:?}");
    assert!(compacted.let_go > 0 && compacted.kept == store.stat().containers, "{compacted:?}");
    assert!(compacted.after <= size + MIN_SEGMENT_BYTES, "{compacted:?}");
    let there = whole(&store, &[60_000; 100]);
    assert_eq!(there, (there[0]..100).collect::<Vec<_>>());
    assert!(there.len() > 10);
    // Times are those of the blocks, not of the rewriting.
    assert!(store.horizon().oldest_s.unwrap() <= there[0] && there[0] > 0);
}

#[test]
fn of_one_large_segment_as_much_goes_as_has_to() {
    let memory = Memory::default();
    let store = open(&memory, &Options { segment_bytes: 1 << 26, ..options(4000) });
    fill(&store, 0..100);
    let all = store.compact(None, &Progress::default()).unwrap();
    assert_eq!(memory.list().unwrap().iter().filter(|(name, _)| name.ends_with(".seg")).count(), 1);
    for share in [3, 2, 1] {
        let (most, before) = (all.after / 4 * share, store.stat().containers);
        let compacted = store.compact(Some(most), &Progress::default()).unwrap();
        assert_eq!(compacted.kept + compacted.superseded + compacted.let_go, before, "{compacted:?}");
        assert!(compacted.after <= most, "{compacted:?} of {most}");
        // A container holds several blocks, and goes as one.
        assert!(compacted.after + all.after / 8 > most, "{compacted:?} of {most}");
        let there = whole(&store, &[60_000; 100]);
        assert_eq!(there, (there[0]..100).collect::<Vec<_>>());
    }
}

#[test]
fn files_of_others_are_left_alone() {
    for name in ["store", "index"] {
        let memory = Memory::default();
        memory.create(name, 0).unwrap();
        memory.write(name, 0, b"what somebody wrote down").unwrap();
        let before = contents(&memory);
        let open = |at_rest| Store::open(Arc::new(memory.clone()), &Options { at_rest, ..options(40) }).err();
        let (looked, begun) = (open(true).unwrap(), open(false).unwrap());
        assert!(matches!(looked, OpenError::None(_)), "{looked}");
        assert!(begun.to_string().contains(&format!("`{name}` is not of one")), "{begun}");
        assert!(contents(&memory) == before);
    }
}

/// A disk with a count of removals.
#[derive(Clone, Default)]
struct Counting(Memory, Arc<[AtomicUsize; 2]>);

#[test]
fn cleared_store_is_empty_and_goes_on() {
    let disk = Counting::default();
    let (store, _) = Store::open(Arc::new(disk.clone()), &options(200)).unwrap();
    fill(&store, 0..60);
    let count = |at: usize| disk.1[at].swap(0, Ordering::Relaxed);
    (0..2).for_each(|at| _ = count(at));
    assert!(store.clear().unwrap() > 60 * 60_000);
    assert_eq!((count(0), count(1)), (0, 1), "all files at once");
    assert_eq!((whole(&store, &LENS).len(), store.stat().file_bytes), (0, 0));
    assert_eq!(store.horizon().oldest_s, None);
    fill(&store, 0..5);
    assert_eq!(whole(&store, &LENS), [0, 1, 2, 3, 4]);
    store.close().unwrap();
    let (store, opened) = reopened(&disk.0, &options(200));
    assert!(opened.index_kept);
    assert_eq!(whole(&store, &LENS), [0, 1, 2, 3, 4]);
}

#[test]
fn the_files_of_a_store_are_removed_and_no_others() {
    let dir = tempfile::tempdir().unwrap();
    assert!(StoreFiles::find(&dir.path().join("none")).unwrap().is_empty());
    let (store, _) = Store::open(Arc::new(Directory::open(dir.path()).unwrap()), &options(200)).unwrap();
    fill(&store, 0..60);
    store.close().unwrap();
    for other in ["notes.seg", "0000000000000001.seg.bak", "index.txt"] {
        std::fs::write(dir.path().join(other), "another's").unwrap();
    }
    std::fs::create_dir(dir.path().join("00000000000000ff.seg")).unwrap();
    let files = StoreFiles::find(dir.path()).unwrap();
    assert!(files.segment_bytes() > 60 * 60_000 && files.bytes() > files.segment_bytes() + 8192);
    files.remove().unwrap();
    assert!(StoreFiles::find(dir.path()).unwrap().is_empty());
    let mut left: Vec<_> =
        std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["0000000000000001.seg.bak", "00000000000000ff.seg", "index.txt", "lock", "notes.seg"]);
}

impl Backend for Counting {
    fn create(&self, name: &str, len: u64) -> io::Result<()> {
        self.0.create(name, len)
    }

    fn read(&self, name: &str, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.0.read(name, at, into)
    }

    fn write(&self, name: &str, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write(name, at, bytes)
    }

    fn truncate(&self, name: &str, len: u64) -> io::Result<()> {
        self.0.truncate(name, len)
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        self.0.sync(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.1[0].fetch_add(1, Ordering::Relaxed);
        self.0.remove(name)
    }

    fn remove_all(&self, names: &[String]) -> io::Result<()> {
        self.1[1].fetch_add(1, Ordering::Relaxed);
        self.0.remove_all(names)
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        self.0.list()
    }
}
