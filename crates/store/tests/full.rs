//! Full disks.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use common::{Meddled, Op, block, open, options, parts, whole};
use oncewire_store::{Backend, Inserted, Memory, Progress, Store};

const LEN: usize = 60_000;

fn insert(store: &Store, number: u64) -> Inserted {
    let block = block(number, LEN);
    store.insert(&block, &parts(&block), number)
}

#[test]
fn compacting_on_a_full_disk_fails_and_keeps_the_rest() {
    let memory = Memory::default();
    let store = open(&memory, &options(200));
    (0..60).for_each(|number| assert!(matches!(insert(&store, number), Inserted::Stored { .. })));
    store.sync().unwrap();
    let there = whole(&store, &[LEN; 60]);
    let used: u64 = memory.list().unwrap().iter().map(|(_, len)| len).sum();
    memory.set_room(Some(used + 100_000));
    let error = store.compact(None, &Progress::default()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    drop(store);
    memory.set_room(None);
    assert_eq!(whole(&open(&memory, &options(200)), &[LEN; 60]), there);
}

#[test]
fn large_index_costs_no_content_on_a_full_disk() {
    let memory = Memory::default();
    let store = open(&memory, &options(200));
    (0..12).for_each(|number| assert!(matches!(insert(&store, number), Inserted::Stored { .. })));
    store.sync().unwrap();
    let used = |memory: &Memory| memory.list().unwrap().iter().map(|(_, len)| len).sum::<u64>();
    memory.set_room(Some(used(&memory)));
    let error = store.close().unwrap_err();
    assert!(error.kind() == io::ErrorKind::StorageFull && error.to_string().contains("index.new"), "{error}");
    assert!(memory.list().unwrap().iter().all(|(name, _)| !name.starts_with("index")));
    let (store, opened) = Store::open(Arc::new(memory), &options(200)).unwrap();
    assert_eq!((opened.index_kept, whole(&store, &[LEN; 12]).len()), (false, 12));
}

#[test]
fn oldest_segments_give_way_to_a_footer_without_room() {
    // A disk without reservation of room, and at one time without any for a footer.
    let (memory, has_refused) = (Memory::default(), Arc::new(AtomicBool::default()));
    let (disk, once) = (memory.clone(), Arc::clone(&has_refused));
    let meddle = move |op: Op, name: &str, at: u64, len: usize| {
        // Groups are longer, and there is something to give way by then.
        let is_footer = op == Op::Write && name.ends_with(".seg") && at > 0 && len < LEN;
        let has_older = disk.list()?.iter().filter(|(name, _)| name.ends_with(".seg")).count() > 2;
        let refuses = is_footer && has_older && !once.swap(true, Relaxed);
        if refuses { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    };
    let (store, _) = Store::open(Arc::new(Meddled(memory, Box::new(meddle))), &options(200)).unwrap();
    (0..60).for_each(|number| assert!(matches!(insert(&store, number), Inserted::Stored { .. })));
    assert!(has_refused.load(Relaxed) && store.trouble().is_none());
    assert_eq!(store.counts().evicted_segments, 1);
    assert_eq!(whole(&store, &[LEN; 60]).last(), Some(&59));
}

/// A store of twenty segments.
fn grown(disk: Arc<dyn Backend>) -> Store {
    let (store, _) = Store::open(disk, &options(200)).unwrap();
    (0..79).for_each(|number| assert!(matches!(insert(&store, number), Inserted::Stored { .. })));
    store.sync().unwrap();
    assert_eq!((whole(&store, &[LEN; 79]).len(), store.stat().segments), (79, 20));
    store
}

#[test]
fn disk_keeping_removed_room_costs_a_part_of_the_store() {
    // Removals give no room back: a snapshot has it, or another program takes it.
    let is_full = Arc::new(AtomicBool::default());
    let refuses = Arc::clone(&is_full);
    let meddle = move |op: Op, _: &str, _: u64, _: usize| match op {
        Op::Create | Op::Write if refuses.load(Relaxed) => Err(io::ErrorKind::StorageFull.into()),
        _ => Ok(()),
    };
    let store = grown(Arc::new(Meddled(Memory::default(), Box::new(meddle))));
    is_full.store(true, Relaxed);
    let held = (79..100).find(|number| insert(&store, *number) == Inserted::Refused);
    assert!(held.is_some() && store.is_held_up());
    // Three with the room of a whole one together, and one more as it is held up.
    assert!(store.counts().evicted_segments <= 4, "{:?}", store.counts());
    assert!(whole(&store, &[LEN; 79]).len() >= 60);
    // As many again at the first sync, and ever fewer later: this is an hour and a half.
    (0..1000).for_each(|_| assert!(store.sync().is_err()));
    assert!(store.counts().evicted_segments <= 17, "{:?}", store.counts());
    is_full.store(false, Relaxed);
    store.sync().unwrap();
    assert!(matches!(insert(&store, 100), Inserted::Stored { .. }));
}

#[test]
fn late_full_disk_gets_room_from_many_short_segments() {
    let (memory, is_full) = (Memory::default(), Arc::new(AtomicBool::default()));
    let refuses = Arc::clone(&is_full);
    let meddle = move |op: Op, _: &str, _: u64, _: usize| match op {
        Op::Sync if refuses.load(Relaxed) => Err(io::ErrorKind::StorageFull.into()),
        _ => Ok(()),
    };
    let disk: Arc<dyn Backend> = Arc::new(Meddled(memory.clone(), Box::new(meddle)));
    for number in 0..40 {
        let (store, _) = Store::open(Arc::clone(&disk), &options(200)).unwrap();
        insert(&store, number);
        store.close().unwrap();
    }
    let (store, _) = Store::open(disk, &options(200)).unwrap();
    insert(&store, 40);
    store.sync().unwrap();
    insert(&store, 41);
    let used: u64 = memory.list().unwrap().iter().map(|(_, len)| len).sum();
    memory.set_room(Some(used));
    is_full.store(true, Relaxed);
    store.sync().unwrap_err();
    is_full.store(false, Relaxed);
    memory.set_room(Some(used - oncewire_store::MIN_SEGMENT_BYTES / 2));
    store.sync().unwrap();
    assert!(!store.is_held_up() && matches!(insert(&store, 42), Inserted::Stored { .. }));
    assert!(whole(&store, &[LEN; 40]).len() >= 20);
}

#[test]
fn full_disk_without_removals_costs_nothing_more() {
    let memory = Memory::default();
    let store = grown(Arc::new(memory.clone()));
    memory.fail_writes(Some(io::ErrorKind::StorageFull));
    insert(&store, 79);
    assert!(store.sync().is_err() && store.is_held_up());
    memory.fail_writes(None);
    let there = whole(&store, &[LEN; 79]);
    assert!(there.len() >= 68, "{there:?}");
    store.sync().unwrap();
    assert!(matches!(insert(&store, 100), Inserted::Stored { .. }));
}

/// A disk that notices its lack of room at a sync, and has then dropped the pages to be written.
fn delaying(memory: &Memory, is_full: &Arc<AtomicBool>) -> Arc<Meddled> {
    let (disk, is_full) = (memory.clone(), Arc::clone(is_full));
    let unsynced = Mutex::<Vec<(String, u64, usize)>>::default();
    let meddle = move |op: Op, name: &str, at: u64, len: usize| match op {
        Op::Write => {
            unsynced.lock().unwrap().push((name.to_owned(), at, len));
            Ok(())
        }
        Op::Sync => {
            let of_file: Vec<_> = unsynced.lock().unwrap().extract_if(.., |(of, ..)| of == name).collect();
            if !is_full.load(Relaxed) {
                return Ok(());
            }
            for (_, at, len) in of_file {
                disk.damage(name, |bytes| bytes[at as usize..at as usize + len].fill(0));
            }
            Err(io::ErrorKind::StorageFull.into())
        }
        _ => Ok(()),
    };
    Arc::new(Meddled(memory.clone(), Box::new(meddle)))
}

#[test]
fn content_dropped_at_a_sync_is_lost_and_writing_resumes() {
    for older in [0, 20] {
        let is_full = Arc::new(AtomicBool::default());
        let disk = delaying(&Memory::default(), &is_full);
        let (store, _) = Store::open(Arc::clone(&disk) as Arc<dyn Backend>, &options(200)).unwrap();
        let insert = |number| insert(&store, number);
        let lens = vec![LEN; older as usize + 20];
        (0..older + 2).for_each(|number| assert!(matches!(insert(number), Inserted::Stored { .. })));
        store.sync().unwrap();
        let before = whole(&store, &lens);
        (older + 2..older + 4).for_each(|number| assert!(matches!(insert(number), Inserted::Stored { .. })));
        is_full.store(true, Relaxed);
        assert_eq!(store.sync().unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert!(store.is_held_up() && store.trouble().is_some());
        assert_eq!(insert(older + 4), Inserted::Refused);
        let there = whole(&store, &lens);
        assert!(there.iter().all(|number| before.contains(number)), "{there:?} of {before:?}");
        assert_eq!(
            there.contains(&(older + 1)),
            older > 0,
            "what was synced stays, unless nothing else can give way"
        );
        assert_eq!(store.counts().faults, 0, "nothing is believed to be there that is not");
        is_full.store(false, Relaxed);
        store.sync().unwrap();
        assert_eq!((store.is_held_up(), store.trouble()), (false, None));
        (older + 2..older + 6).for_each(|number| assert!(matches!(insert(number), Inserted::Stored { .. })));
        let there = whole(&store, &lens);
        assert!((older + 2..older + 6).all(|number| there.contains(&number)), "{there:?}");
        store.close().unwrap();
        let (store, opened) = Store::open(disk as Arc<dyn Backend>, &options(200)).unwrap();
        assert_eq!((opened.index_kept, whole(&store, &lens)), (true, there));
    }
}
