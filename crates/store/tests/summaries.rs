//! Starts without a clean end, with summaries and without.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use common::{EIO, EMFILE, Meddled, Op, block, open, options, parts, read, sealed, whole};
use oncewire_store::{Backend, IndexMemory, Inserted, Memory, Opened, Options, Progress, Store};
use xxhash_rust::xxh3::xxh3_64_with_seed;

const LEN: usize = 60_000;

fn fill(store: &Store, numbers: Range<u64>) {
    for number in numbers {
        let block = block(number, LEN);
        assert!(matches!(store.insert(&block, &parts(&block), number), Inserted::Stored { .. }));
    }
}

/// The same with enough index for no line of it ever to be full.
fn roomy(options: Options) -> Options {
    Options { index: IndexMemory { coarse: 1 << 16, medium: 1 << 18, fine: 1 << 20 }, ..options }
}

/// The remains of a process killed after storing and syncing these blocks.
fn left(options: &Options, numbers: Range<u64>) -> Memory {
    let memory = Memory::default();
    let store = open(&memory, options);
    fill(&store, numbers);
    store.sync().unwrap();
    memory
}

fn reopened(disk: &Memory, options: &Options) -> (Store, Opened) {
    Store::open(Arc::new(disk.clone()), options).unwrap()
}

fn files(memory: &Memory, ending: &str) -> Vec<String> {
    let names = memory.list().unwrap().into_iter().map(|(name, _)| name);
    names.filter(|name| name.ends_with(ending)).collect()
}

/// Counts the present chunks of these blocks, of all sizes; none is wrong.
fn chunks(store: &Store, numbers: Range<u64>) -> usize {
    let found = |number| {
        let block = block(number, LEN);
        let content = |part: oncewire_store::Part| &block[part.start as usize..][..part.len as usize];
        parts(&block).into_iter().filter(|part| read(store, content(*part)).unwrap_or(false)).count()
    };
    numbers.map(found).sum()
}

fn all(numbers: Range<u64>) -> usize {
    numbers.map(|number| parts(&block(number, LEN)).len()).sum()
}

/// Opens a store and counts the reads of segments and of summaries.
fn reads(memory: &Memory, options: &Options) -> (Store, [u64; 2]) {
    let counts: Arc<[AtomicU64; 2]> = Arc::default();
    let count = Arc::clone(&counts);
    let meddle = move |op: Op, name: &str, _: u64, _: usize| {
        for (count, ending) in count.iter().zip([".seg", ".summary"]) {
            count.fetch_add(u64::from(op == Op::Read && name.ends_with(ending)), Relaxed);
        }
        Ok(())
    };
    let disk = Meddled(memory.clone(), Box::new(meddle));
    let (store, _) = Store::open(Arc::new(disk), options).unwrap();
    (store, [0, 1].map(|i| counts[i].load(Relaxed)))
}

/// The number of reads to find the content of sealed segments: one of each footer, and with a key one of each first
/// page.
fn ends(options: &Options, segments: u64) -> u64 {
    if options.sealer.is_some() { 2 * segments } else { segments }
}

#[test]
fn unclean_start_reads_containers_of_the_last_segment_only() {
    for options in [roomy(options(200)), roomy(sealed(1, 200))] {
        let memory = left(&options, 0..60);
        let (store, [of_segments, of_summaries]) = reads(&memory, &options);
        let segments = store.stat().segments;
        assert!(segments > 10);
        // The last is read in pieces, and the rest of its room, too.
        let least = ends(&options, segments);
        assert!((least..least + 20).contains(&of_segments), "{of_segments} reads of {segments} segments");
        assert_eq!(of_summaries, segments);
        assert_eq!(chunks(&store, 0..60), all(0..60));
        assert_eq!(store.counts().faults, 0);
    }
}

#[test]
fn repeated_chunks_are_at_their_newest_place_after_unclean_start() {
    let memory = Memory::default();
    let options = options(6);
    let store = open(&memory, &options);
    fill(&store, 0..1);
    // The leaves of the first block come again in each later one, and the block itself is evicted.
    for variant in 1..60 {
        let mut again = block(0, LEN);
        again[..8].copy_from_slice(&u64::to_le_bytes(variant));
        assert!(matches!(store.insert(&again, &parts(&again), variant), Inserted::Stored { .. }));
    }
    store.sync().unwrap();
    assert!(store.counts().evicted_segments > 0);
    drop(store);
    let (store, opened) = reopened(&memory, &options);
    assert!(!opened.index_kept && !read(&store, &block(0, LEN)).unwrap());
    assert!(
        read(&store, &block(0, LEN)[1024..1152]).unwrap()
            && read(&store, &block(0, LEN)[1024..2048]).unwrap()
    );
}

#[test]
fn segment_left_by_a_crash_is_scanned_once() {
    for options in [options(200), sealed(1, 200)] {
        let memory = left(&options, 0..3);
        for (start, scanned) in [1, 0, 0].into_iter().enumerate() {
            let (store, opened) = reopened(&memory, &options);
            assert_eq!((opened.scanned, chunks(&store, 0..3)), (scanned, all(0..3)), "start {start}");
        }
        // Each crash leaves another.
        for crash in 1..4 {
            let (store, opened) = reopened(&memory, &options);
            assert_eq!(opened.scanned, usize::from(crash > 1), "{opened:?}");
            fill(&store, 3 * crash..3 * crash + 3);
            store.sync().unwrap();
        }
        let (store, opened) = reopened(&memory, &options);
        assert_eq!((opened.scanned, opened.segments, chunks(&store, 0..12)), (1, 4, all(0..12)));
        store.close().unwrap();
        let (store, opened) = reopened(&memory, &options);
        assert!(opened.index_kept);
        assert_eq!(store.verify(&Progress::default()).unwrap().damaged.len(), 0);
        store.compact(None, &Progress::default()).unwrap();
        drop(store);
        // The segment with the rewritten content is closed.
        let (store, opened) = reopened(&memory, &options);
        assert_eq!((opened.scanned, chunks(&store, 0..12)), (0, all(0..12)));
        assert!(files(&memory, ".summary").len() <= files(&memory, ".seg").len());
    }
}

#[test]
fn segment_different_from_its_summary_is_scanned() {
    let memory = left(&options(200), 0..3);
    drop(reopened(&memory, &options(200)));
    let name = &files(&memory, ".seg")[0];
    memory.damage(name, |bytes| bytes.truncate(bytes.len() / 4096 / 2 * 4096));
    let (store, opened) = reopened(&memory, &options(200));
    assert_eq!((opened.scanned, store.stat().containers, store.counts().faults), (1, 1, 0));
    assert_eq!(chunks(&store, 0..1), all(0..1));
}

/// Ways to make something else of a summary.
const HARMS: [fn(&mut Vec<u8>); 9] = [
    |bytes| bytes[0] ^= 1,
    |bytes| bytes[30] ^= 1,
    |bytes| bytes[4096 + 9] ^= 1,
    |bytes| bytes[4096 + 21] ^= 0x80,
    |bytes| bytes[4096 + 60] ^= 1,
    |bytes| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
    },
    |bytes| bytes.truncate(8192),
    |bytes| bytes[4096..].fill(0),
    |bytes| bytes.clear(),
];

#[test]
fn unsound_summary_is_made_anew_from_containers() {
    for options in [options(200), sealed(1, 200)] {
        for (i, harm) in HARMS.into_iter().enumerate() {
            let memory = left(&options, 0..20);
            files(&memory, ".summary").iter().for_each(|name| memory.damage(name, harm));
            let (store, [of_segments, _]) = reads(&memory, &options);
            assert!(of_segments > 2 * store.stat().segments + 4, "harm {i}: {of_segments}");
            assert_eq!(chunks(&store, 0..20), all(0..20), "harm {i}");
            drop(store);
            let (store, [of_segments, _]) = reads(&memory, &options);
            // One has no footer, and so its first page is looked for.
            let segments = store.stat().segments;
            assert_eq!(of_segments, ends(&options, segments - 1) + 2, "harm {i}");
            assert_eq!(chunks(&store, 0..20), all(0..20), "harm {i}");
        }
    }
}

#[test]
fn a_summary_of_another_segment_or_store_is_not_believed() {
    let memory = left(&options(200), 0..20);
    let of_other = left(&Options { id: 9, ..options(200) }, 100..120);
    let names = files(&memory, ".summary");
    let contents = |memory: &Memory, name: &str| {
        let mut contents = Vec::new();
        memory.damage(name, |bytes| contents.clone_from(bytes));
        contents
    };
    let (second, other) = (contents(&memory, &names[1]), contents(&of_other, &names[2]));
    memory.damage(&names[0], |bytes| *bytes = second);
    memory.damage(&names[2], |bytes| *bytes = other);
    let (store, _) = reopened(&memory, &options(200));
    assert_eq!((chunks(&store, 0..20), store.counts().absent), (all(0..20), 0));
}

/// Makes a segment as of an early build: a footer without the counts of small chunks.
fn as_by_an_early_build(bytes: &mut [u8], number: u64, id: u64) {
    let trailer = bytes.len() - 24;
    if !bytes[trailer..].starts_with(b"owfooter") {
        return;
    }
    let len = u32::from_le_bytes(bytes[trailer + 8..trailer + 12].try_into().unwrap()) as usize;
    let footer = bytes[trailer - len..trailer - 8].to_vec();
    bytes[trailer - len..trailer - len + 8].fill(0);
    bytes[trailer - len + 8..trailer].copy_from_slice(&footer);
    bytes[trailer + 8..trailer + 12].copy_from_slice(&(len as u32 - 8).to_le_bytes());
    let check = xxh3_64_with_seed(&footer, id.wrapping_add(number));
    bytes[trailer + 16..].copy_from_slice(&check.to_le_bytes());
}

#[test]
fn store_of_a_build_without_summaries_gets_them() {
    let options = roomy(options(200));
    let memory = left(&options, 0..60);
    files(&memory, ".summary").iter().for_each(|name| memory.remove(name).unwrap());
    for (number, name) in (1..).zip(files(&memory, ".seg")) {
        memory.damage(&name, |bytes| as_by_an_early_build(bytes, number, options.id));
    }
    let (store, opened) = reopened(&memory, &options);
    assert_eq!((opened.scanned, chunks(&store, 0..60)), (1, all(0..60)), "{opened:?}");
    drop(store);
    let (store, [of_segments, _]) = reads(&memory, &options);
    let least = ends(&options, store.stat().segments - 1) + 2;
    assert_eq!((of_segments, chunks(&store, 0..60)), (least, all(0..60)));
}

#[test]
fn index_of_another_layout_is_made_from_containers() {
    let memory = left(&options(200), 0..20);
    let index = IndexMemory { coarse: 1 << 15, medium: 1 << 15, fine: 1 << 19 };
    let (store, _) = reopened(&memory, &Options { index, ..options(200) });
    assert_eq!(chunks(&store, 0..20), all(0..20));
}

#[test]
fn start_from_containers_indexes_only_numbers_of_slots() {
    // A slot of these tables numbers 256 containers.
    let index = IndexMemory { coarse: 1 << 16, medium: 4096, fine: 64 };
    let options = Options { index, ..options(400) };
    let memory = Memory::default();
    let store = open(&memory, &options);
    for number in 0..300 {
        let block = block(number, LEN);
        let small = *parts(&block).iter().find(|part| part.len == 1024).unwrap();
        assert!(matches!(store.insert(&block, &[parts(&block)[0], small], number), Inserted::Stored { .. }));
    }
    store.sync().unwrap();
    drop(store);
    files(&memory, ".summary").iter().for_each(|name| memory.remove(name).unwrap());
    let (store, _) = reopened(&memory, &options);
    let small = |number| block(number, LEN)[..1024].to_vec();
    let peeked: Vec<u64> = (0..300).filter(|number| store.peek(common::tag(&small(*number)), 1024)).collect();
    let there: Vec<u64> = (0..300).filter(|number| read(&store, &small(*number)).unwrap()).collect();
    assert_eq!(peeked, there);
    assert!(there.len() > 220, "{}", there.len());
}

#[test]
fn summaries_last_as_long_as_their_index_entries() {
    let memory = Memory::default();
    // Room for the fine chunks of some 8 blocks, and for the medium ones of some 16.
    let index = IndexMemory { coarse: 1 << 15, medium: 1 << 12, fine: 1 << 14 };
    let options = Options { index, ..options(40) };
    let store = open(&memory, &options);
    let segments = |memory: &Memory, ending| -> BTreeSet<String> {
        files(memory, ending).iter().map(|name| name.split('.').next().unwrap().to_owned()).collect()
    };
    for number in 0..400 {
        fill(&store, number..number + 1);
        assert!(segments(&memory, ".summary").is_subset(&segments(&memory, ".seg")), "block {number}");
        assert!(files(&memory, ".summary").len() <= 8, "block {number}");
    }
    assert!(store.counts().evicted_segments > 0 && files(&memory, ".summary").len() >= 4);
    let before = chunks(&store, 370..400);
    store.sync().unwrap();
    drop(store);
    // One without a segment.
    memory.create(&format!("{:016x}.summary", 0xffff), 8192).unwrap();
    let (store, [_, of_summaries]) = reads(&memory, &options);
    assert!(of_summaries <= 8, "{of_summaries}");
    let after = chunks(&store, 370..400);
    assert!(after * 100 > before * 98, "{after} of {before}");
    assert!(segments(&memory, ".summary").is_subset(&segments(&memory, ".seg")));
    assert!(store.clear().unwrap() > 0);
    assert_eq!(files(&memory, ".summary"), [""; 0]);
}

#[test]
fn store_of_large_chunks_has_no_summaries_and_scans_nothing() {
    let memory = Memory::default();
    let store = open(&memory, &options(200));
    for number in 0..40 {
        let block = block(number, LEN);
        let root = &parts(&block)[..1];
        assert!(matches!(store.insert(&block, root, number), Inserted::Stored { .. }));
    }
    store.sync().unwrap();
    drop(store);
    assert_eq!(files(&memory, ".summary"), [""; 0]);
    let (store, [of_segments, _]) = reads(&memory, &options(200));
    assert!(of_segments <= store.stat().segments + 12, "{of_segments}");
    assert_eq!(whole(&store, &[LEN; 40]).len(), 40);
}

#[test]
fn disk_without_summaries_costs_only_a_slow_start() {
    let full = || io::ErrorKind::StorageFull.into();
    let errors: [fn() -> io::Error; 3] =
        [full, || io::Error::from_raw_os_error(EIO), || io::Error::from_raw_os_error(EMFILE)];
    for error in errors {
        for refused in [Op::Create, Op::Write] {
            let memory = Memory::default();
            let meddle = move |op: Op, name: &str, _: u64, _: usize| {
                if op == refused && name.ends_with(".summary") { Err(error()) } else { Ok(()) }
            };
            let disk = Arc::new(Meddled(memory.clone(), Box::new(meddle)));
            for start in 0..3 {
                let (store, opened) =
                    Store::open(Arc::clone(&disk) as Arc<dyn Backend>, &options(200)).unwrap();
                assert_eq!(chunks(&store, 0..12 * start), all(0..12 * start), "{opened:?}");
                fill(&store, 12 * start..12 * start + 12);
                store.sync().unwrap();
                assert_eq!((store.trouble(), store.counts().write_errors), (None, 0));
            }
            assert_eq!(files(&memory, ".summary"), [""; 0]);
        }
    }
}

#[test]
fn start_after_a_killed_start_finds_everything() {
    for options in [options(200), sealed(1, 200)] {
        let mut changes = 0;
        for dies_at in 0.. {
            let memory = left(&options, 0..12);
            files(&memory, ".summary").iter().take(1).for_each(|name| memory.remove(name).unwrap());
            let done = Arc::new(Mutex::new(0));
            let count = Arc::clone(&done);
            let meddle = move |op: Op, _: &str, _: u64, _: usize| {
                let mut done = count.lock().unwrap();
                *done += u64::from(op != Op::Read);
                if *done > dies_at { Err(io::Error::from_raw_os_error(EIO)) } else { Ok(()) }
            };
            // With any result.
            let _ = Store::open(Arc::new(Meddled(memory.clone(), Box::new(meddle))), &options);
            let (store, _) = reopened(&memory, &options);
            assert_eq!((chunks(&store, 0..12), store.counts().faults), (all(0..12), 0), "at {dies_at}");
            changes = *done.lock().unwrap();
            if changes <= dies_at {
                break;
            }
        }
        assert!(changes > 6, "{changes} changes");
    }
}

fn taken(memory: &Memory) -> u64 {
    let files = memory.list().unwrap().into_iter();
    files.filter(|(name, _)| name.ends_with(".seg") || name.ends_with(".summary")).map(|(_, len)| len).sum()
}

#[test]
fn store_with_summaries_stays_within_its_capacity() {
    for options in [roomy(options(6)), roomy(sealed(1, 6))] {
        let memory = Memory::default();
        let store = open(&memory, &options);
        for number in 0..120 {
            fill(&store, number..number + 1);
            let summaries = files(&memory, ".summary").len();
            assert!(taken(&memory) <= options.capacity, "block {number}, {summaries} summaries");
            assert_eq!(store.stat().file_bytes, taken(&memory), "block {number}");
        }
        assert!(store.counts().evicted_segments > 0);
        // Each has its summary except the open one, with its room reserved.
        assert_eq!(store.stat().segments, 1 + files(&memory, ".summary").len() as u64);
        store.sync().unwrap();
        drop(store);
        let (store, _) = reopened(&memory, &options);
        assert!(taken(&memory) <= options.capacity);
        assert_eq!(store.stat().file_bytes, taken(&memory));
        store.close().unwrap();
        let (store, opened) = reopened(&memory, &options);
        assert!(opened.index_kept);
        assert_eq!(store.stat().file_bytes, taken(&memory));
        store.compact(None, &Progress::default()).unwrap();
        assert_eq!(store.stat().file_bytes, taken(&memory));
    }
}

#[test]
fn store_new_to_summaries_evicts_a_segment_for_them() {
    let options = roomy(options(200));
    let memory = left(&options, 0..60);
    let (store, _) = reopened(&memory, &options);
    let all = store.stat();
    drop(store);
    let segments: u64 =
        memory.list().unwrap().iter().filter(|(name, _)| name.ends_with(".seg")).map(|(_, len)| len).sum();
    files(&memory, ".summary").iter().for_each(|name| memory.remove(name).unwrap());
    // All of the disk is its segments', as an earlier build filled it.
    let (store, _) = reopened(&memory, &Options { capacity: segments, ..options });
    assert!(taken(&memory) <= segments, "{} of {segments}", taken(&memory));
    assert_eq!(store.stat().segments, all.segments - 1);
    assert_eq!(files(&memory, ".summary").len() as u64, all.segments - 1);
}

#[test]
fn summary_without_segment_is_removed_at_the_next_start() {
    let memory = Memory::recording();
    let options = roomy(options(3));
    let store = open(&memory, &options);
    fill(&store, 0..60);
    drop(store);
    let numbers = |memory: &Memory, ending: &str| -> BTreeSet<String> {
        files(memory, ending).iter().map(|name| name.split('.').next().unwrap().to_owned()).collect()
    };
    let mut orphans = 0;
    for changes in 0..=memory.changes() {
        let crashed = memory.after_kill(changes, |len| len);
        let is_orphaned = !numbers(&crashed, ".summary").is_subset(&numbers(&crashed, ".seg"));
        orphans += usize::from(is_orphaned);
        if !is_orphaned {
            continue;
        }
        // Also with the index found again: a start after an unclean end, and one after that.
        let (store, _) = reopened(&crashed, &options);
        assert!(numbers(&crashed, ".summary").is_subset(&numbers(&crashed, ".seg")), "after {changes}");
        assert_eq!(store.stat().file_bytes, taken(&crashed), "after {changes}");
        store.close().unwrap();
        crashed.create(&format!("{:016x}.summary", 0xffff), 8192).unwrap();
        let (_, opened) = reopened(&crashed, &options);
        assert!(opened.index_kept && numbers(&crashed, ".summary").is_subset(&numbers(&crashed, ".seg")));
    }
    assert!(orphans > 5, "{orphans} moments between the two removals");
}
