//! Disks refusing reads, for a moment or for good: only proven losses are forgotten.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;

use std::io;
use std::ops::Range;
use std::sync::Arc;

use common::refused::{LEN, insert, left, name, names, there, with_a_bad_place, without_summaries};
use common::{EIO, EMFILE, block, open, options, parts, read, sealed};
use oncewire_store::{
    Backend as _, Fault, Inserted, Memory, OpenError, Options, Progress, ROUNDS_TO_GIVE_UP, Store,
};

#[test]
fn refused_read_forgets_nothing() {
    let block = block(1, LEN);
    for errno in [EIO, EMFILE] {
        let memory = Memory::default();
        let store = open(&memory, &options(20));
        insert(&store, 1);
        store.sync().unwrap();
        memory.fail_reads_of(&name(1), Some(errno));
        for part in [&block[..], &block[..8192], &block[..1024], &block[..128]] {
            let fault = read(&store, part).unwrap_err();
            assert!(!fault.is_damage() && fault.to_string().starts_with("0000000000000001.seg: "), "{fault}");
        }
        memory.fail_reads_of(&name(1), None);
        assert_eq!(store.try_again(), [""; 0]);
        for part in parts(&block) {
            assert!(read(&store, &block[part.start as usize..(part.start + part.len) as usize]).unwrap());
        }
        assert_eq!(insert(&store, 1), Inserted::Known, "it is not stored again");
        assert_eq!((store.counts().faults, store.counts().unreadable), (0, 4));
    }
}

#[test]
fn failing_segment_rests_until_the_next_retry() {
    let memory = Memory::default();
    let store = open(&memory, &options(20));
    insert(&store, 1);
    store.sync().unwrap();
    let content = block(1, LEN);
    memory.fail_reads_of(&name(1), Some(EIO));
    let reads = |times: usize| {
        let before = memory.reads();
        (0..times).for_each(|_| assert!(!read(&store, &content).unwrap_err().is_damage()));
        memory.reads() - before
    };
    assert_eq!((reads(20), store.set_aside(), store.stat().set_aside), (4, 1, 1));
    assert_eq!(store.counts().disk_reads, 4, "what is not tried is no read");
    store.try_again();
    assert_eq!((store.set_aside(), reads(20), store.set_aside()), (0, 1, 1), "one more");
    memory.fail_reads_of(&name(1), None);
    assert!(read(&store, &content).is_err(), "it is not tried by itself");
    store.try_again();
    assert!(read(&store, &content).unwrap() && read(&store, &content).unwrap());
    assert_eq!(store.set_aside(), 0);
}

#[test]
fn errors_of_the_process_set_no_segment_aside() {
    let memory = Memory::default();
    let store = open(&memory, &options(20));
    insert(&store, 1);
    store.sync().unwrap();
    memory.fail_reads_of(&name(1), Some(EMFILE));
    (0..20).for_each(|_| assert!(read(&store, &block(1, LEN)).is_err()));
    assert_eq!(store.set_aside(), 0);
    memory.fail_reads_of(&name(1), None);
    assert!(read(&store, &block(1, LEN)).unwrap());
}

#[test]
fn segment_unreadable_at_a_start_is_there_at_the_next() {
    for (closed, options) in [(true, options(20)), (false, options(20)), (true, sealed(1, 20))] {
        let memory = left(&options, 20, closed);
        memory.fail_reads_of(&name(2), Some(EIO));
        let (store, opened) = Store::open(Arc::new(memory.clone()), &options).unwrap();
        assert_eq!((opened.set_aside, store.set_aside()), (1, 1), "{opened:?}");
        assert!(opened.notes.iter().any(|note| note.contains("set aside")), "{opened:?}");
        let some = there(&store, 20);
        assert!(some.len() >= 15 && some.len() < 20, "{some:?}");
        assert!(matches!(insert(&store, 20), Inserted::Stored { .. }), "it takes more");
        store.close().unwrap();
        memory.fail_reads_of(&name(2), None);
        let (store, opened) = Store::open(Arc::new(memory), &options).unwrap();
        assert_eq!((opened.set_aside, there(&store, 21).len()), (0, 21), "{opened:?}");
    }
}

#[test]
fn segment_set_aside_is_evicted_in_its_turn() {
    let memory = left(&options(6), 10, true);
    memory.fail_reads_of(&name(1), Some(EIO));
    let store = open(&memory, &options(6));
    (10..60).for_each(|number| assert!(matches!(insert(&store, number), Inserted::Stored { .. })));
    assert!(!names(&memory).contains(&name(1)));
    assert!(store.stat().file_bytes <= options(6).capacity);
}

#[test]
fn hidden_part_of_an_unsealed_segment_is_not_cut() {
    let memory = left(&options(20), 3, false);
    let long = memory.list().unwrap().iter().find(|(file, _)| *file == name(1)).unwrap().1;
    // The footer's place can be read, and then nothing else.
    let hidden = Arc::new(common::hiding(&memory, name(1), 4096..long - 4096));
    let (store, opened) = Store::open(hidden, &options(20)).unwrap();
    assert_eq!((opened.set_aside, there(&store, 3).len()), (1, 0), "{opened:?}");
    drop(store);
    assert_eq!(there(&open(&memory, &options(20)), 3).len(), 3);
}

#[test]
fn files_of_a_later_build_are_left_alone() {
    let later = |bytes: &mut Vec<u8>| {
        bytes[8] = 2;
        bytes[64..72].fill(9);
    };
    let memory = left(&options(20), 20, true);
    memory.damage(&name(2), later);
    let store = open(&memory, &options(20));
    assert_eq!(store.set_aside(), 1);
    store.close().unwrap();
    assert!(names(&memory).contains(&name(2)));
    memory.damage("store", later);
    let before = names(&memory);
    let refused = Store::open(Arc::new(memory.clone()), &options(20)).err();
    assert!(matches!(refused, Some(OpenError::Version(2))), "{refused:?}");
    assert_eq!(names(&memory), before);
}

#[test]
fn one_damaged_page_costs_no_store() {
    for options in [options(20), sealed(1, 20)] {
        let memory = left(&options, 20, true);
        for gone in [false, true] {
            match gone {
                true => memory.remove("store").unwrap(),
                false => memory.damage("store", |bytes| bytes[20] ^= 1),
            }
            let id = options.id + 1;
            let (store, opened) =
                Store::open(Arc::new(memory.clone()), &Options { id, ..options.clone() }).unwrap();
            assert_eq!((opened.new, store.id(), there(&store, 20).len()), (false, 0x1234, 20), "{opened:?}");
            assert!(opened.notes[0].contains("made again"), "{opened:?}");
            store.close().unwrap();
        }
    }
}

#[test]
fn segment_without_first_page_is_read_unless_sealed() {
    for (options, kept) in [(options(20), true), (sealed(1, 20), false)] {
        let memory = left(&options, 20, true);
        memory.damage(&name(2), |bytes| bytes[20] ^= 1);
        let (store, opened) = Store::open(Arc::new(memory.clone()), &options).unwrap();
        assert_eq!((there(&store, 20).len() == 20, names(&memory).contains(&name(2))), (kept, kept));
        assert!(opened.notes.iter().any(|note| note.contains("no valid first page")), "{opened:?}");
    }
}

#[test]
fn foreign_segment_is_set_aside_and_a_misnamed_one_removed() {
    let memory = left(&options(20), 20, true);
    let other = left(&Options { id: 77, ..options(20) }, 20, true);
    let (mut foreign, mut own) = (Vec::new(), Vec::new());
    other.damage(&name(3), |bytes| foreign.clone_from(bytes));
    memory.damage(&name(3), |bytes| own.clone_from(bytes));
    memory.damage(&name(3), |bytes| *bytes = foreign);
    memory.damage(&name(4), |bytes| *bytes = own);
    let (store, opened) = Store::open(Arc::new(memory.clone()), &options(20)).unwrap();
    assert_eq!(opened.set_aside, 1, "{opened:?}");
    assert!(names(&memory).contains(&name(3)) && !names(&memory).contains(&name(4)));
    assert!(there(&store, 20).len() >= 10);
}

#[test]
fn bad_place_is_replaced_by_repeated_content() {
    for (options, len) in [(options(20), LEN), (options(20), 128), (sealed(1, 20), LEN)] {
        let (_, store) = with_a_bad_place(&options, 20_000..28_000);
        let is_bad = |number: u64| match read(&store, &block(number, LEN)[..len]) {
            Ok(found) => !found,
            Err(fault) => matches!(fault, Fault::Io { .. }) && fault.wants_again(),
        };
        let bad: Vec<u64> = (0..20).filter(|number| is_bad(*number)).collect();
        assert_eq!(bad.len(), 1, "chunks of {len} bytes: {bad:?}");
        for number in 0..20 {
            let is_stored = matches!(insert(&store, number), Inserted::Stored { .. });
            assert_eq!(is_stored, bad.contains(&number), "block {number}");
        }
        assert_eq!((store.counts().replaced, store.counts().faults), (1, 0));
        store.sync().unwrap();
        assert!(!is_bad(bad[0]) && there(&store, 20).len() == 20);
        assert_eq!(insert(&store, bad[0]), Inserted::Known, "once is enough");
    }
}

#[test]
fn file_refused_for_long_is_given_up_and_replaced() {
    let memory = left(&options(20), 20, true);
    let store = open(&memory, &options(20));
    memory.fail_reads_of(&name(2), Some(EIO));
    let refused: Vec<u64> = (0..20).filter(|number| read(&store, &block(*number, LEN)).is_err()).collect();
    assert!(refused.len() >= 4, "{refused:?}");
    drop(store);
    memory.fail_reads_of(&name(2), None);
    let store = open(&memory, &options(20));
    memory.fail_reads_of(&name(2), Some(EIO));
    let other = (0..20).find(|number| !refused.contains(number)).unwrap();
    let ask = |number: u64| read(&store, &block(number, LEN));
    for round in 1..=ROUNDS_TO_GIVE_UP {
        assert_eq!(store.given_up(), 0, "round {round}");
        // The same one, so the others are not stored again for refusals of their own.
        (0..4).for_each(|_| assert!(ask(refused[0]).is_err()));
        assert!(ask(other).unwrap());
        let given_up = store.try_again();
        assert_eq!(given_up, if round == ROUNDS_TO_GIVE_UP { vec![name(2)] } else { vec![] });
    }
    assert_eq!((store.given_up(), store.set_aside(), store.stat().given_up), (1, 1, 1));
    // The requested ones are forgotten; the others are replaced all the same.
    for (i, number) in refused.iter().enumerate() {
        if i % 2 == 0 {
            let fault = ask(*number).unwrap_err();
            assert!(matches!(&fault, Fault::GivenUp { file } if *file == name(2)) && fault.wants_again());
            assert!(!ask(*number).unwrap(), "it is forgotten");
        }
        assert!(matches!(insert(&store, *number), Inserted::Stored { .. }), "block {number}");
    }
    assert_eq!(store.counts().given_up, refused.len().div_ceil(2) as u64);
    assert_eq!(there(&store, 20).len(), 20);
    assert!(names(&memory).contains(&name(2)), "nothing is removed");
}

#[test]
fn disk_refusing_everything_for_long_loses_nothing() {
    let memory = left(&options(20), 20, true);
    let store = open(&memory, &options(20));
    memory.fail_reads(Some(io::ErrorKind::Other));
    for _ in 0..3 * ROUNDS_TO_GIVE_UP {
        (0..20).for_each(|number| assert!(read(&store, &block(number, LEN)).is_err()));
        assert_eq!(store.try_again(), [""; 0]);
    }
    memory.fail_reads(None);
    assert_eq!((there(&store, 20).len(), store.given_up(), store.set_aside()), (20, 0, 0));
}

#[test]
fn file_read_in_between_is_not_given_up() {
    let memory = left(&options(20), 20, true);
    let store = open(&memory, &options(20));
    for round in 0..3 * ROUNDS_TO_GIVE_UP {
        let fails = round % ROUNDS_TO_GIVE_UP != 0;
        memory.fail_reads_of(&name(2), fails.then_some(EIO));
        let found = there(&store, 20).len();
        assert_eq!(found == 20, !fails, "round {round}");
        assert_eq!(store.try_again(), [""; 0], "round {round}");
    }
}

#[test]
fn opening_progress_ends_at_all_and_cancelling_costs_nothing() {
    let memory = left(&options(20), 20, false);
    let cancelled = Progress::default();
    cancelled.cancel();
    let prepared = Store::prepare(Arc::new(memory.clone()), &options(20)).unwrap();
    assert_eq!(prepared.id(), 0x1234);
    let error = prepared.open(&cancelled).err();
    let is_interrupted = |error: &OpenError| matches!(error, OpenError::Io(error) if error.kind() == io::ErrorKind::Interrupted);
    assert!(error.as_ref().is_some_and(is_interrupted), "{error:?}");
    let opening = Progress::default();
    let prepared = Store::prepare(Arc::new(memory), &options(20)).unwrap();
    let (store, opened) = prepared.open(&opening).unwrap();
    assert!(!opened.index_kept);
    assert_eq!((there(&store, 20).len(), opening.done()), (20, opening.total()));
    for work in [
        |store: &Store, progress: &Progress| _ = store.verify(progress).unwrap(),
        |store: &Store, progress: &Progress| _ = store.compact(None, progress).unwrap(),
    ] {
        let progress = Progress::default();
        work(&store, &progress);
        assert!(progress.total() > 0);
        assert_eq!(progress.done(), progress.total());
    }
}

#[test]
fn store_full_of_damage_gives_bounded_notes() {
    let memory = left(&options(120), 300, false);
    without_summaries(&memory);
    let segments = names(&memory).into_iter().filter(|name| name.ends_with(".seg"));
    for name in segments {
        memory.damage(&name, |bytes| {
            bytes.iter_mut().skip(4096 + 33).step_by(4096).for_each(|byte| *byte ^= 1)
        });
    }
    let (store, opened) = Store::open(Arc::new(memory), &options(120)).unwrap();
    assert_eq!(opened.notes.len(), 100);
    assert!(opened.notes_left_out > 0);
    assert_eq!(there(&store, 300).len(), 0);
}

/// A crashed store, with four blocks in one segment and each in a group of its own; returns the starts of the second
/// and the third in the file.
fn crashed(options: &Options) -> (Memory, Range<u64>) {
    let memory = Memory::recording();
    let store = open(&memory, options);
    let mut begins = Vec::new();
    for number in 0..4 {
        begins.push(4096 + store.counts().written_bytes.saturating_sub(4096));
        assert!(matches!(insert(&store, number), Inserted::Stored { .. }));
        store.sync().unwrap();
    }
    assert_eq!(store.stat().segments, 1);
    drop(store);
    (memory, begins[1]..begins[2])
}

#[test]
fn part_hidden_from_a_scan_is_found_at_the_next() {
    for options in [options(20), sealed(1, 20)] {
        // Its header, so it is not found; and all of its group but the header.
        for is_header in [true, false] {
            let (memory, second) = crashed(&options);
            let hidden = match is_header {
                true => second.start..second.start + 1,
                false => second.start + 4096..second.end,
            };
            let disk = Arc::new(common::hiding(&memory, name(1), hidden.clone()));
            let (store, opened) = Store::open(disk, &options).unwrap();
            assert_eq!((opened.scanned, opened.set_aside), (1, 0), "{opened:?}");
            assert!(opened.notes.iter().any(|note| note.contains("at the next start")), "{opened:?}");
            assert_eq!(there(&store, 4), [0, 2, 3], "{hidden:?}");
            store.close().unwrap();
            let (store, opened) = Store::open(Arc::new(memory.clone()), &options).unwrap();
            assert_eq!((opened.index_kept, there(&store, 4).len()), (false, 4), "{hidden:?}");
            drop(store);
        }
    }
}

#[test]
fn container_before_a_bad_place_is_read_by_its_length() {
    for options in [options(20), sealed(1, 20)] {
        let (memory, second) = crashed(&options);
        let disk = Arc::new(common::hiding(&memory, name(1), second.start..second.start + 1));
        let (store, _) = Store::open(disk, &options).unwrap();
        for number in [0, 2, 3] {
            assert!(read(&store, &block(number, LEN)[..128]).unwrap(), "block {number}");
        }
        let verified = store.verify(&Progress::default()).unwrap();
        assert_eq!((verified.containers, verified.damaged.len(), verified.unreadable.len()), (3, 0, 0));
        let compacted = store.compact(None, &Progress::default()).unwrap();
        assert_eq!((compacted.kept, compacted.lost.len(), compacted.left.len()), (3, 1, 0), "{compacted:?}");
        assert!(compacted.lost.noted()[0].to_string().contains("a part of it"), "{compacted:?}");
    }
    // Damaged bytes are no container's either; a sealed page of them does not open.
    let (memory, second) = crashed(&sealed(1, 20));
    memory.damage(&name(1), |bytes| bytes[second.start as usize] ^= 1);
    let store = open(&memory, &sealed(1, 20));
    assert!(read(&store, &block(0, LEN)[..128]).unwrap());
    assert_eq!(store.counts().faults, 0);
}

#[test]
fn small_chunks_refused_at_one_start_are_found_later() {
    let memory = left(&options(20), 20, false);
    without_summaries(&memory);
    let footer = memory.list().unwrap().iter().find(|(file, _)| *file == name(2)).unwrap().1 - 4096;
    let hidden = Arc::new(common::hiding(&memory, name(2), 4096..footer));
    let (store, opened) = Store::open(hidden, &options(20)).unwrap();
    let small =
        |store: &Store| (0..20).filter(|i| read(store, &block(*i, LEN)[..128]).unwrap_or(false)).count();
    assert!(small(&store) < 20 && opened.set_aside == 1, "{opened:?}");
    store.close().unwrap();
    assert_eq!(small(&open(&memory, &options(20))), 20);
}
