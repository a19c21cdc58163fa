//! Disks refusing changes, for a while or for good, and the store's reaction.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use common::{EIO, EMFILE, Meddled, Op, block, open, options, parts, read, sealed, whole};
use oncewire_store::{Backend, Inserted, MIN_SEGMENT_BYTES, Memory, Options, Progress, Store};

const LEN: usize = 60_000;

fn insert(store: &Store, number: u64) -> Inserted {
    let block = block(number, LEN);
    store.insert(&block, &parts(&block), number)
}

fn is_stored(store: &Store, number: u64) -> bool {
    matches!(insert(store, number), Inserted::Stored { .. })
}

fn segments(disk: &impl Backend) -> Vec<(String, u64)> {
    disk.list().unwrap().into_iter().filter(|(name, _)| name.ends_with(".seg")).collect()
}

fn opened(memory: &Memory, meddle: common::Meddle, options: &Options) -> Store {
    Store::open(Arc::new(Meddled(memory.clone(), meddle)), options).unwrap().0
}

/// Every chunk of the blocks is there.
fn assert_all_found(store: &Store, numbers: impl Iterator<Item = u64>) {
    for number in numbers {
        let block = block(number, LEN);
        for part in parts(&block) {
            let chunk = &block[part.start as usize..(part.start + part.len) as usize];
            assert!(read(store, chunk).unwrap(), "block {number}, {} bytes at {}", part.len, part.start);
        }
    }
}

#[test]
fn store_stopped_during_a_hold_asks_the_disk_no_more() {
    let memory = Memory::default();
    let store = open(&memory, &options(20));
    assert!(is_stored(&store, 0));
    memory.fail_writes(Some(io::ErrorKind::StorageFull));
    store.sync().unwrap_err();
    assert!(store.is_held_up());
    memory.fail_writes(Some(io::ErrorKind::ReadOnlyFilesystem));
    let error = store.sync().unwrap_err();
    let stopped = (false, Some(error.to_string()), store.counts().write_errors);
    memory.fail_writes(None);
    let before = memory.list().unwrap();
    for _ in 0..3 {
        store.sync().unwrap();
        assert_eq!((store.is_held_up(), store.trouble(), store.counts().write_errors), stopped);
        assert_eq!(insert(&store, 1), Inserted::Refused);
    }
    assert_eq!(memory.list().unwrap(), before);
    store.clear().unwrap_err();
    store.close().unwrap_err();
}

#[test]
fn files_left_by_a_clear_go_with_the_next() {
    for options in [options(20), sealed(1, 20)] {
        let memory = Memory::default();
        let store = open(&memory, &options);
        (0..8).for_each(|number| assert!(is_stored(&store, number)));
        let before = segments(&memory);
        assert!(before.len() > 1);
        memory.fail_writes(Some(io::ErrorKind::Other));
        for _ in 0..2 {
            assert!(store.clear().unwrap_err().to_string().starts_with("removing "));
            assert_eq!(segments(&memory), before, "neither more nor less");
        }
        memory.fail_writes(None);
        assert_eq!((store.trouble(), whole(&store, &[LEN; 8]).len()), (None, 0));
        (8..12).for_each(|number| assert!(is_stored(&store, number)));
        store.sync().unwrap();
        assert_all_found(&store, 8..12);
        let there: u64 = segments(&memory).iter().map(|(_, len)| len).sum();
        assert_eq!(store.clear().unwrap(), there, "with those of before");
        assert_eq!((segments(&memory), whole(&store, &[LEN; 12]).len()), (vec![], 0));
        assert!(is_stored(&store, 3));
        store.close().unwrap();
        assert_eq!(whole(&open(&memory, &options), &[LEN; 12]), [3]);
    }
}

#[test]
fn one_unremovable_file_keeps_no_others() {
    let (memory, stays) = (Memory::default(), Arc::new(AtomicBool::new(true)));
    let refuses = Arc::clone(&stays);
    let meddle = move |op: Op, name: &str, _: u64, _: usize| {
        let is_it = op == Op::Remove && name == "0000000000000002.seg" && refuses.load(Relaxed);
        if is_it { Err(io::Error::from_raw_os_error(EIO)) } else { Ok(()) }
    };
    let store = opened(&memory, Box::new(meddle), &options(20));
    (0..20).for_each(|number| assert!(is_stored(&store, number)));
    for _ in 0..2 {
        store.clear().unwrap_err();
        let names: Vec<String> = segments(&memory).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["0000000000000002.seg"]);
    }
    stays.store(false, Relaxed);
    assert!(store.clear().unwrap() > 0);
    assert_eq!(segments(&memory), []);
}

#[test]
fn nothing_is_written_for_a_clear_and_no_page_twice() {
    let (memory, refuse_in) = (Memory::default(), Arc::new(AtomicU64::new(u64::MAX)));
    let written = Arc::new(Mutex::<Vec<(String, u64, usize)>>::default());
    let (log, left) = (Arc::clone(&written), Arc::clone(&refuse_in));
    let meddle = move |op: Op, name: &str, at: u64, len: usize| {
        if op == Op::Write {
            log.lock().unwrap().push((name.to_owned(), at, len));
        }
        let refuses = matches!(op, Op::Write | Op::Sync) && left.fetch_sub(1, Relaxed) == 0;
        if refuses { Err(io::Error::from_raw_os_error(EIO)) } else { Ok(()) }
    };
    for allowed in 0..4_u64 {
        refuse_in.store(u64::MAX, Relaxed);
        let store = opened(&memory, Box::new(meddle.clone()), &sealed(1, 20));
        (0..3).for_each(|number| assert!(is_stored(&store, number)));
        let before = written.lock().unwrap().len();
        refuse_in.store(allowed, Relaxed);
        store.clear().unwrap();
        assert_eq!(written.lock().unwrap().len(), before);
        refuse_in.store(u64::MAX, Relaxed);
        (10..13).for_each(|number| assert!(is_stored(&store, number)));
        store.sync().unwrap();
        assert_all_found(&store, 10..13);
        store.clear().unwrap();
        drop(store);
        let written = std::mem::take(&mut *written.lock().unwrap());
        for (i, (file, at, len)) in
            written.iter().enumerate().filter(|(_, (file, ..))| file.ends_with(".seg"))
        {
            let overlaps = |(other, from, many): &&(String, u64, usize)| {
                other == file && *from < at + *len as u64 && *at < from + *many as u64
            };
            assert_eq!(written[..i].iter().find(overlaps), None, "{file} at {at}");
        }
    }
}

#[test]
fn store_stops_if_compaction_cannot_seal_it() {
    let memory = Memory::default();
    let store = open(&memory, &options(20));
    (0..3).for_each(|number| assert!(is_stored(&store, number)));
    memory.fail_writes(Some(io::ErrorKind::Other));
    store.compact(None, &Progress::default()).unwrap_err();
    memory.fail_writes(None);
    assert!(store.trouble().is_some() && !store.is_held_up());
    assert_eq!(insert(&store, 3), Inserted::Refused, "what of its segment is on the disk is not known");
}

#[test]
fn content_dropped_by_a_hold_is_forgotten() {
    // Unwritten, or unsynced content.
    for (blocks, syncs) in [(1, false), (3, false), (3, true)] {
        let (memory, refused) = (Memory::default(), Arc::new(Mutex::new(None)));
        let refuses = Arc::clone(&refused);
        let meddle = move |op: Op, _: &str, _: u64, _: usize| match *refuses.lock().unwrap() {
            Some(refused) if refused == op => Err(io::Error::from_raw_os_error(EMFILE)),
            _ => Ok(()),
        };
        let store = opened(&memory, Box::new(meddle), &options(20));
        assert!(is_stored(&store, 0));
        store.sync().unwrap();
        // One equal to a small chunk, too.
        let small = block(100, 1000);
        (1..=blocks).for_each(|number| assert!(is_stored(&store, number)));
        assert!(matches!(store.insert(&small, &parts(&small), 1), Inserted::Stored { .. }));
        *refused.lock().unwrap() = Some(if syncs { Op::Sync } else { Op::Write });
        store.sync().unwrap_err();
        assert!(store.is_held_up());
        *refused.lock().unwrap() = None;
        for number in 1..=blocks {
            let block = block(number, LEN);
            assert!(parts(&block).iter().all(|part| !store.peek(part.tag, part.len)), "block {number}");
        }
        store.sync().unwrap();
        assert_eq!(insert(&store, 0), Inserted::Known);
        (1..=blocks).for_each(|number| assert!(is_stored(&store, number), "block {number}"));
        assert!(matches!(store.insert(&small, &parts(&small), 1), Inserted::Stored { .. }));
        assert_all_found(&store, 0..=blocks);
    }
}

#[test]
fn content_unwritten_at_a_failure_is_unknown() {
    let (memory, fails) = (Memory::default(), Arc::new(AtomicBool::default()));
    let refuses = Arc::clone(&fails);
    let meddle = move |op: Op, name: &str, _: u64, _: usize| {
        let is_it = op == Op::Write && name.ends_with(".seg") && refuses.load(Relaxed);
        if is_it { Err(io::Error::from_raw_os_error(EIO)) } else { Ok(()) }
    };
    let store = opened(&memory, Box::new(meddle), &options(20));
    assert!(is_stored(&store, 0));
    fails.store(true, Relaxed);
    store.sync().unwrap_err();
    let block = block(0, LEN);
    assert!(store.trouble().is_some() && parts(&block).iter().all(|part| !store.peek(part.tag, part.len)));
}

#[test]
fn segments_left_without_descriptors_give_their_room_back_first() {
    let (memory, errno) = (Memory::default(), Arc::new(AtomicI32::new(0)));
    let refuses = Arc::clone(&errno);
    let meddle = move |op: Op, name: &str, _: u64, _: usize| match refuses.load(Relaxed) {
        errno if errno != 0 && op != Op::Read && name.ends_with(".seg") => {
            Err(io::Error::from_raw_os_error(errno))
        }
        _ => Ok(()),
    };
    let store = opened(&memory, Box::new(meddle), &options(8));
    for number in 0..24 {
        assert!(is_stored(&store, number));
        store.sync().unwrap();
        errno.store(EMFILE, Relaxed);
        for _ in 0..3 {
            store.sync().err().map_or_else(|| assert!(!store.is_held_up()), |_| assert!(store.is_held_up()));
        }
        assert!(store.is_held_up(), "block {number}");
        errno.store(0, Relaxed);
        store.sync().unwrap();
        assert!(!store.is_held_up());
    }
    assert_eq!(store.counts().evicted_segments, 0);
    assert_eq!(whole(&store, &[LEN; 24]).len(), 24);
    assert!(store.stat().file_bytes < 8 * MIN_SEGMENT_BYTES);
    store.close().unwrap();
    let (store, reopened) = Store::open(Arc::new(memory), &options(8)).unwrap();
    assert_eq!((reopened.index_kept, whole(&store, &[LEN; 24]).len()), (true, 24));
}

#[test]
fn file_without_a_written_first_page_is_removed() {
    let (memory, fails) = (Memory::default(), Arc::new(AtomicBool::new(true)));
    let refuses = Arc::clone(&fails);
    let meddle = move |op: Op, name: &str, _: u64, _: usize| {
        let is_it = op == Op::Write && name.ends_with(".seg") && refuses.load(Relaxed);
        if is_it { Err(io::Error::from_raw_os_error(EMFILE)) } else { Ok(()) }
    };
    let store = opened(&memory, Box::new(meddle), &options(20));
    assert_eq!(insert(&store, 0), Inserted::Refused);
    assert_eq!((store.is_held_up(), segments(&memory)), (true, vec![]));
    store.close().unwrap();
    let (store, reopened) = Store::open(Arc::new(memory), &options(20)).unwrap();
    assert!(reopened.index_kept && store.trouble().is_none());
}
