//! The promises of a store, on a disk in memory.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use common::{block, mixed, open, options, parts, read, sealed, tag, whole};
use oncewire_store::{IndexMemory, Inserted, Memory, OpenError, Options, Part, Progress, Store};

fn insert(store: &Store, number: u64, len: usize) -> Inserted {
    let block = block(number, len);
    store.insert(&block, &parts(&block), number)
}

fn lens(count: usize) -> Vec<usize> {
    (0..count as u64).map(|i| 1 + mixed(i) as usize % 65_536).collect()
}

fn insert_all(store: &Store, lens: &[usize]) {
    for (i, len) in lens.iter().enumerate() {
        assert!(matches!(insert(store, i as u64, *len), Inserted::Stored { .. }), "block {i}");
    }
}

#[test]
fn chunks_of_all_levels_are_found_before_and_after_writing() {
    let store = open(&Memory::default(), &options(8));
    let block = block(1, 60_000);
    let parts = parts(&block);
    assert_eq!(store.insert(&block, &parts, 5), Inserted::Stored { new: parts.len() as u32, moved: 0 });
    for synced in [false, true] {
        for part in &parts {
            assert!(store.peek(part.tag, part.len));
            let content = &block[part.start as usize..(part.start + part.len) as usize];
            assert!(read(&store, content).unwrap(), "synced: {synced}, {part:?}");
        }
        store.sync().unwrap();
    }
    assert!(!read(&store, b"what was never there").unwrap());
}

#[test]
fn known_block_is_not_stored_again_and_shared_chunks_move() {
    let store = open(&Memory::default(), &options(8));
    let first = block(1, 50_000);
    store.insert(&first, &parts(&first), 0);
    assert_eq!(store.insert(&first, &parts(&first), 0), Inserted::Known);
    let mut second = first.clone();
    second[0] ^= 1;
    let Inserted::Stored { new, moved } = store.insert(&second, &parts(&second), 0) else { panic!() };
    // The root, and a chunk of each level, hold the changed byte.
    assert_eq!((new, moved), (4, parts(&second).len() as u32 - 4));
    assert_eq!((store.counts().known, store.counts().stored), (1, 2));
}

#[test]
fn place_of_a_chunk_predicts_its_reads() {
    let memory = Memory::default();
    let store = open(&memory, &options(8));
    insert_all(&store, &[65_536; 20]);
    let locate = |chunk: &[u8]| store.locate(tag(chunk), chunk.len() as u32);
    let (first, last) = (block(3, 65_536), block(19, 65_536));
    assert_eq!([locate(&last), locate(&last[..8192]), locate(&last[..128])], [None; 3], "not written yet");
    store.sync().unwrap();
    let before = memory.reads();
    assert_eq!(locate(&block(99, 65_536)), None, "it never was there");
    let large = [&first[..8192], &first[8192..16_384], &last[..8192]].map(locate);
    let small = [&first[..128], &first[1024..2048], &first[65_408..]].map(locate);
    let other = locate(&block(4, 65_536)[..128]);
    let different: BTreeSet<Option<u64>> = large.into_iter().chain([small[0], other]).collect();
    assert_eq!(different.len(), 5, "{different:?}");
    assert!(!different.contains(&None));
    assert_eq!(small, [small[0]; 3], "one container");
    assert!(read(&store, &first[..128]).unwrap());
    assert_eq!(locate(&first[1024..2048]), None, "its container was read a moment ago");
    assert_eq!(locate(&first[..8192]), large[0], "which large ones are not taken from");
    assert_eq!(memory.reads() - before, 1, "asking where a chunk is takes no read");
}

#[test]
fn large_chunk_takes_one_read_and_small_neighbours_share_one() {
    let memory = Memory::default();
    let store = open(&memory, &options(8));
    let lens = [65_536; 20];
    insert_all(&store, &lens);
    store.sync().unwrap();
    let before = memory.reads();
    for i in 0..20 {
        assert!(read(&store, &block(i, 65_536)).unwrap());
        assert!(read(&store, &block(i, 65_536)[8192..16_384]).unwrap());
    }
    assert_eq!(memory.reads() - before, 40);
    let before = memory.reads();
    for i in 0..20 {
        for part in parts(&block(i, 65_536)).iter().filter(|part| part.level >= 2) {
            assert!(
                read(&store, &block(i, 65_536)[part.start as usize..(part.start + part.len) as usize])
                    .unwrap()
            );
        }
    }
    assert_eq!(memory.reads() - before, 20);
    assert_eq!(store.counts().disk_reads, 60);
}

#[test]
fn the_oldest_segment_goes_when_the_capacity_is_reached() {
    let memory = Memory::default();
    let store = open(&memory, &options(4));
    let lens = lens(100);
    insert_all(&store, &lens);
    let there = whole(&store, &lens);
    let first = there[0];
    assert!(first > 0 && there.len() < 100);
    assert_eq!(there, (first..100).collect::<Vec<_>>(), "what is left are the youngest");
    let horizon = store.horizon();
    // Each block came at its number's time.
    assert!(horizon.oldest_s.unwrap() <= first && horizon.oldest_s.unwrap() > 0);
    assert!(horizon.evicted_segments > 0);
    assert!(store.stat().file_bytes <= options(4).capacity);
}

#[test]
fn closed_store_has_everything_and_its_index() {
    let memory = Memory::default();
    let lens = lens(40);
    let store = open(&memory, &options(20));
    insert_all(&store, &lens);
    let before = store.stat();
    store.close().unwrap();
    let (store, opened) = Store::open(Arc::new(memory.clone()), &options(20)).unwrap();
    assert!(opened.index_kept && !opened.new && opened.scanned == 0 && opened.notes.is_empty());
    assert_eq!(whole(&store, &lens), (0..40).collect::<Vec<_>>());
    assert_eq!(store.stat().indexed, before.indexed);
    assert_eq!((store.id(), store.horizon().oldest_s), (0x1234, Some(0)));
}

#[test]
fn store_without_index_is_rebuilt_from_footers() {
    let memory = Memory::default();
    let lens = lens(40);
    let store = open(&memory, &options(20));
    insert_all(&store, &lens);
    store.sync().unwrap();
    let before = store.stat();
    store.close().unwrap();
    memory.damage("index", |bytes| *bytes.last_mut().unwrap() ^= 1);
    memory.damage("index", |bytes| bytes[5000] ^= 1);
    let (store, opened) = Store::open(Arc::new(memory.clone()), &options(20)).unwrap();
    assert!(!opened.index_kept && opened.scanned == 0);
    assert_eq!(whole(&store, &lens), (0..40).collect::<Vec<_>>());
    for (i, len) in lens.iter().enumerate() {
        let block = block(i as u64, *len);
        for part in parts(&block) {
            assert!(read(&store, &block[part.start as usize..(part.start + part.len) as usize]).unwrap());
        }
    }
    let after = store.stat();
    assert_eq!(
        (after.indexed, after.levels, after.containers),
        (before.indexed, before.levels, before.containers)
    );
}

#[test]
fn empty_part_of_a_segment_takes_few_reads() {
    for options in [options(2), sealed(1, 2)] {
        let segment_bytes = 16 << 20;
        let options = Options { segment_bytes, capacity: 2 * segment_bytes, ..options };
        let memory = Memory::default();
        let store = open(&memory, &options);
        insert_all(&store, &[60_000; 3]);
        store.sync().unwrap();
        drop(store);
        let before = memory.reads();
        let store = open(&memory, &options);
        let reads = memory.reads() - before;
        // Two for each 64 of its 4096 pages, and some more.
        assert!(reads < 200, "{reads} reads");
        assert_eq!(whole(&store, &[60_000; 3]).len(), 3);
    }
}

#[test]
fn index_left_by_an_older_start_is_not_taken_up() {
    let memory = Memory::default();
    let store = open(&memory, &options(20));
    insert_all(&store, &lens(10));
    store.close().unwrap();
    // It is opened, and killed at once.
    drop(open(&memory, &options(20)));
    let (store, opened) = Store::open(Arc::new(memory), &options(20)).unwrap();
    assert!(!opened.index_kept);
    assert_eq!(whole(&store, &lens(10)).len(), 10);
}

#[test]
fn many_short_segments_of_a_store_are_found() {
    let (memory, lens) = (Memory::default(), [60_000; 150]);
    for (i, len) in lens.into_iter().enumerate() {
        let store = open(&memory, &options(20));
        insert(&store, i as u64, len);
        store.close().unwrap();
    }
    let store = open(&memory, &options(20));
    assert!(store.stat().segments > 130);
    assert_eq!(whole(&store, &lens).len() as u64, store.stat().segments);
}

#[test]
fn less_capacity_than_last_time_lets_the_oldest_go() {
    let memory = Memory::default();
    let store = open(&memory, &options(20));
    let lens = lens(60);
    insert_all(&store, &lens);
    store.close().unwrap();
    let store = open(&memory, &options(2));
    let there = whole(&store, &lens);
    assert!(!there.is_empty() && there.len() < 40);
    assert_eq!(there, (there[0]..60).collect::<Vec<_>>());
    assert!(store.stat().file_bytes <= options(2).capacity);
}

#[test]
fn a_full_disk_shrinks_the_store_and_traffic_goes_on() {
    let memory = Memory::default();
    let store = open(&memory, &options(20));
    memory.set_room(Some(10 * oncewire_store::MIN_SEGMENT_BYTES));
    let lens = lens(300);
    insert_all(&store, &lens);
    assert_eq!(store.trouble(), None);
    let there = whole(&store, &lens);
    assert!(there.contains(&299) && !there.contains(&0));
    // Not even the index has room.
    store.close().unwrap();
    let (store, opened) = Store::open(Arc::new(memory), &options(20)).unwrap();
    assert!(opened.index_kept);
    assert!(whole(&store, &lens).contains(&299));
}

#[test]
fn failed_write_stops_the_store_and_written_content_is_readable() {
    let memory = Memory::default();
    let store = open(&memory, &options(20));
    let lens = lens(20);
    insert_all(&store, &lens);
    store.sync().unwrap();
    memory.fail_writes(Some(io::ErrorKind::Other));
    insert(&store, 20, 60_000);
    assert!(store.sync().is_err());
    assert!(store.trouble().is_some());
    assert_eq!(insert(&store, 21, 100), Inserted::Refused);
    assert_eq!(whole(&store, &lens), (0..20).collect::<Vec<_>>());
    assert!(!read(&store, &block(20, 60_000)).unwrap(), "what was lost is not there");
    assert_eq!(store.counts().write_errors, 1);
    assert!(store.close().is_err());
}

#[test]
fn flipped_bit_is_an_error_with_file_and_offset() {
    let memory = Memory::default();
    let store = open(&memory, &options(20));
    insert(&store, 1, 60_000);
    store.sync().unwrap();
    memory.damage("0000000000000001.seg", |bytes| bytes[30_000] ^= 4);
    let fault = read(&store, &block(1, 60_000)).unwrap_err();
    assert_eq!(fault.to_string(), "0000000000000001.seg: offset 4096: container fails its check");
    let verified = store.verify(&Progress::default()).unwrap();
    assert_eq!((verified.containers, verified.bytes, verified.damaged.len()), (1, 0, 1));
    assert_eq!(verified.damaged.noted()[0].to_string(), fault.to_string());
}

#[test]
fn content_stored_again_replaces_damaged_content() {
    let memory = Memory::default();
    let store = open(&memory, &options(20));
    insert(&store, 1, 60_000);
    store.sync().unwrap();
    memory.damage("0000000000000001.seg", |bytes| bytes[30_000] ^= 4);
    assert!(read(&store, &block(1, 60_000)).is_err());
    assert!(matches!(insert(&store, 1, 60_000), Inserted::Stored { .. }));
    assert!(read(&store, &block(1, 60_000)).unwrap());
}

#[test]
fn another_chunk_with_a_similar_tag_is_not_handed_out() {
    let store = open(&Memory::default(), &options(8));
    let content = block(1, 8192);
    let own = Part { tag: mixed(7), level: 0, start: 0, len: 8192 };
    store.insert(&content, &[own], 0);
    for sync in [false, true] {
        // The same tag, other content: the check says no.
        assert!(store.read(own.tag, 8192, &|_| false).unwrap().is_none());
        assert!(matches!(store.insert(&content, &[own], 0), Inserted::Stored { .. }), "it is forgotten");
        if sync {
            store.sync().unwrap();
        }
    }
    assert_eq!(store.read(own.tag, 8192, &|bytes| bytes == content).unwrap().unwrap(), content);
}

#[test]
fn invalid_blocks_are_refused() {
    let store = open(&Memory::default(), &options(8));
    let part = |start, len| Part { tag: 1, level: 0, start, len };
    assert_eq!(store.insert(&[], &[], 0), Inserted::Refused);
    assert_eq!(store.insert(&[0; 65_537], &[], 0), Inserted::Refused);
    assert_eq!(store.insert(&[0; 100], &[part(0, 0)], 0), Inserted::Refused);
    assert_eq!(store.insert(&[0; 100], &[part(1, 100)], 0), Inserted::Refused);
    assert_eq!(store.insert(&[0; 100], &[part(u32::MAX, 2)], 0), Inserted::Refused);
    assert_eq!(store.insert(&[0; 65_536], &[part(0, 1); 8193], 0), Inserted::Refused);
    assert!(matches!(store.insert(&[0; 65_536], &[part(7, 1); 8192], 0), Inserted::Stored { .. }));
    store.sync().unwrap();
    assert_eq!(store.counts().refused, 6);
}

#[test]
fn impossible_sizes_are_said_before_anything_is_written() {
    let memory = Memory::default();
    let open = |options: Options| Store::open(Arc::new(memory.clone()), &options).err();
    assert!(matches!(open(Options { segment_bytes: 4096, ..options(8) }), Some(OpenError::Segments(4096))));
    assert!(matches!(open(Options { capacity: 0, ..options(8) }), Some(OpenError::Capacity { .. })));
}

#[test]
fn compacting_drops_damaged_and_superseded_content_only() {
    let memory = Memory::default();
    let store = open(&memory, &options(40));
    let root = |number| parts(&block(number, 65_536))[0];
    for i in 0..30 {
        store.insert(&block(i, 65_536), &[root(i)], i);
    }
    // Other blocks take the tags of the first ten along, so nothing is found at the old place by them any more.
    for i in 0..10 {
        store.insert(&block(100 + i, 65_536), &[root(100 + i), root(i)], i);
    }
    store.sync().unwrap();
    memory.damage("0000000000000006.seg", |bytes| bytes[30_000] ^= 4);
    let before = store.stat().file_bytes;
    let compacted = store.compact(None, &Progress::default()).unwrap();
    assert!(compacted.after < before, "{compacted:?}");
    assert_eq!((compacted.kept, compacted.superseded, compacted.damaged.len()), (29, 10, 1), "{compacted:?}");
    assert_eq!(
        compacted.damaged.noted()[0].to_string(),
        "0000000000000006.seg: offset 4096: container fails its check"
    );
    store.close().unwrap();
    let store = open(&memory, &options(40));
    assert_eq!(store.verify(&Progress::default()).unwrap().damaged.len(), 0);
    let there = (10..30).chain(100..110).filter(|i| read(&store, &block(*i, 65_536)).unwrap()).count();
    assert_eq!(there, 29);
}

#[test]
fn compacting_ends_with_small_chunks_out_of_reach() {
    // As many containers as the index of small chunks reaches, and some more.
    for blocks in [256, 257, 262, 267, 268] {
        let memory = Memory::default();
        let few = IndexMemory { coarse: 1 << 16, medium: 64, fine: 64 };
        let store = open(&memory, &Options { index: few, ..options(400) });
        for number in 0..blocks {
            let block = block(number, 60_000);
            let root = Part { tag: tag(&block), level: 0, start: 0, len: 60_000 };
            assert!(matches!(store.insert(&block, &[root], number), Inserted::Stored { .. }));
        }
        store.sync().unwrap();
        let (done, outcome) = mpsc::channel();
        thread::spawn(move || done.send(store.compact(None, &Progress::default()).map(|done| done.kept)));
        let kept = outcome.recv_timeout(Duration::from_secs(60)).expect("it ends");
        assert_eq!(kept.unwrap(), blocks);
    }
}

/// Fills a store with 300 blocks, with a name for the small chunk at each one's beginning too, and 256 container
/// numbers in a slot of the tables.
fn more_containers_than_a_slot_can_number() -> (Memory, Store) {
    let memory = Memory::default();
    let few = IndexMemory { coarse: 1 << 16, medium: 4096, fine: 64 };
    let store = open(&memory, &Options { index: few, ..options(400) });
    for number in 0..300 {
        let block = block(number, 60_000);
        let parts = parts(&block);
        let small = parts.iter().find(|part| part.len == 1024).unwrap();
        assert!(matches!(store.insert(&block, &[parts[0], *small], number), Inserted::Stored { .. }));
    }
    (memory, store)
}

/// The small chunk at a block's beginning.
fn small(number: u64) -> Vec<u8> {
    block(number, 60_000)[..1024].to_vec()
}

#[test]
fn compacting_keeps_small_chunks_beyond_the_numbers_of_slots() {
    let (_memory, store) = more_containers_than_a_slot_can_number();
    // Blocks equal to small chunks, in containers of their own.
    store.sync().unwrap();
    for number in 400..440 {
        let block = small(number);
        store.insert(&block, &[parts(&block)[0]], number);
    }
    store.sync().unwrap();
    let there = || (0..300).chain(400..440).filter(|number| read(&store, &small(*number)).unwrap()).count();
    let before = there();
    assert!(before > 260, "{before}");
    let compacted = store.compact(None, &Progress::default()).unwrap();
    assert_eq!((compacted.kept, compacted.superseded, there()), (301, 0, before), "{compacted:?}");
}

#[test]
fn compacting_past_damage_loses_one_container_alone() {
    let (memory, store) = more_containers_than_a_slot_can_number();
    store.sync().unwrap();
    let there = || (0..300).filter(|number| read(&store, &small(*number)).unwrap()).collect::<Vec<u64>>();
    let before = there();
    memory.damage("0000000000000030.seg", |bytes| {
        let check = bytes.len() - 4;
        [20_000, check].into_iter().for_each(|at| bytes[at] ^= 1);
    });
    let compacted = store.compact(None, &Progress::default()).unwrap();
    assert!(before.len() > 220 && compacted.damaged.len() == 2, "{compacted:?}");
    let after = there();
    let lost: Vec<u64> = before.into_iter().filter(|number| !after.contains(number)).collect();
    assert_eq!(lost.len(), 1, "{lost:?}");
}

#[test]
fn sealed_store_serves_and_shows_nothing_on_disk() {
    let memory = Memory::default();
    let lens = lens(60);
    let store = open(&memory, &sealed(1, 20));
    insert_all(&store, &lens);
    store.sync().unwrap();
    let before = memory.reads();
    assert!(read(&store, &block(3, lens[3])).unwrap());
    assert_eq!(memory.reads() - before, 1);
    store.close().unwrap();
    assert!(!memory.holds(&block(3, 16)) && !memory.holds(b"OWCT") && !memory.holds(b"owfooter"));
    let (store, opened) = Store::open(Arc::new(memory.clone()), &sealed(1, 20)).unwrap();
    assert!(opened.index_kept);
    assert_eq!(whole(&store, &lens), (0..60).collect::<Vec<_>>());
    assert!(store.stat().encrypted);
    drop(store);
    // And once more without the index, removed by an opening of the store.
    let (store, opened) = Store::open(Arc::new(memory.clone()), &sealed(1, 20)).unwrap();
    assert!(!opened.index_kept);
    assert_eq!(whole(&store, &lens), (0..60).collect::<Vec<_>>());
    memory.damage("0000000000000001.seg", |bytes| bytes[30_000] ^= 4);
    assert!(lens.iter().enumerate().any(|(i, len)| read(&store, &block(i as u64, *len)).is_err()));
}

#[test]
fn another_key_or_none_opens_nothing_and_costs_nothing() {
    for (first, second) in
        [(sealed(1, 20), sealed(2, 20)), (sealed(1, 20), options(20)), (options(20), sealed(1, 20))]
    {
        let memory = Memory::default();
        let store = open(&memory, &first);
        insert_all(&store, &lens(5));
        store.close().unwrap();
        let refused = Store::open(Arc::new(memory.clone()), &second).err();
        assert!(matches!(refused, Some(OpenError::OtherKey)), "{refused:?}");
        assert_eq!(whole(&open(&memory, &first), &lens(5)).len(), 5, "it is as it was");
    }
}

#[test]
fn small_index_forgets_small_chunks_and_keeps_roots() {
    let index = IndexMemory { coarse: 1 << 16, medium: 1 << 10, fine: 1 << 10 };
    let store = open(&Memory::default(), &Options { index, ..options(100) });
    let lens = [65_536; 100];
    insert_all(&store, &lens);
    assert_eq!(whole(&store, &lens).len(), 100);
    let has_fine = |i| store.peek(tag(&block(i, 65_536)[..128]), 128);
    assert!((0..90).filter(|i| has_fine(*i)).count() < 3);
    assert!(store.counts().displaced > 0);
}

#[test]
fn old_small_chunks_go_before_they_look_younger() {
    let memory = Memory::default();
    // A slot of these tables numbers 256 containers, and each block takes one.
    let few = IndexMemory { coarse: 1 << 16, medium: 4096, fine: 1 << 14 };
    let options = Options { index: few, ..options(400) };
    let mut store = open(&memory, &options);
    for number in 0..700 {
        let block = block(number, 60_000);
        let parts = parts(&block);
        let small = [1024, 128].map(|len| *parts.iter().find(|part| part.len == len).unwrap());
        let parts = [parts[0], small[0], small[1]];
        assert!(matches!(store.insert(&block, &parts, number), Inserted::Stored { .. }));
        if number % 111 == 110 {
            store.close().unwrap();
            store = open(&memory, &options);
        }
        if number % 50 == 0 {
            assert_found_or_not_known(&store, number);
        }
    }
}

/// Of small chunks, the youngest 200 are found, and no other one is claimed to be there.
fn assert_found_or_not_known(store: &Store, last: u64) {
    for (number, len) in (0..=last).flat_map(|number| [(number, 1024), (number, 128)]) {
        let chunk = &block(number, 60_000)[..len];
        let is_known = store.peek(tag(chunk), len as u32);
        assert!(is_known || number + 200 < last, "{number} of {last}");
        assert!(!is_known || read(store, chunk).unwrap(), "{number} of {last}");
    }
}

#[test]
fn concurrent_readers_find_everything_not_evicted() {
    let store = open(&Memory::default(), &options(3));
    let (published, done) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        for reader in 0..3u64 {
            let (store, published, done) = (&store, &published, &done);
            scope.spawn(move || {
                for round in 0.. {
                    let is_last = done.load(Ordering::Acquire);
                    let count = published.load(Ordering::Acquire);
                    let Some(number) = mixed((reader << 32) | round).checked_rem(count) else { continue };
                    // The youngest more often than all others.
                    let number = if round % 2 == 0 { count - 1 - number % 8.min(count) } else { number };
                    let block = block(number, 20_000);
                    let content = if round % 3 == 0 { &block[..] } else { &block[1024..2048] };
                    let is_there = read(store, content).unwrap();
                    assert!(is_there || store.horizon().oldest_s.unwrap() > number, "{number} of {count}");
                    if is_last {
                        return;
                    }
                }
            });
        }
        for number in 0..300 {
            insert(&store, number, 20_000);
            published.store(number + 1, Ordering::Release);
            if number % 10 == 0 {
                store.sync().unwrap();
            }
        }
        done.store(true, Ordering::Release);
    });
    assert!(store.counts().evicted_segments > 0);
}

#[test]
fn content_beyond_small_chunks_reach_is_read_verified_and_compacted() {
    // No room for small chunks, so the offsets of old containers are left to the footers.
    let index = IndexMemory { coarse: 1 << 18, medium: 64, fine: 64 };
    let options = Options { index, ..options(200) };
    let memory = Memory::default();
    let store = open(&memory, &options);
    let lens = [40_000; 400];
    insert_all(&store, &lens);
    assert_eq!(whole(&store, &lens).len(), 400);
    store.close().unwrap();
    let (store, opened) = Store::open(Arc::new(memory.clone()), &options).unwrap();
    assert!(opened.index_kept);
    assert_eq!(store.verify(&Progress::default()).unwrap().containers, 400);
    memory.damage("0000000000000001.seg", |bytes| bytes[30_000] ^= 4);
    let fault = read(&store, &block(0, 40_000)).unwrap_err();
    assert_eq!(fault.to_string(), "0000000000000001.seg: offset 4096: container fails its check");
    assert_eq!(store.verify(&Progress::default()).unwrap().damaged.len(), 1);
    let compacted = store.compact(None, &Progress::default()).unwrap();
    assert_eq!((compacted.kept, compacted.damaged.len()), (399, 1));
    assert_eq!(whole(&store, &lens), (1..400).collect::<Vec<_>>());
}
