//! Foreign files beside the segments cost nothing of the store's content.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;

use std::sync::Arc;

use common::refused::{LEN, insert, name, names};
use common::{block, open, options, read, sealed};
use oncewire_store::{Backend as _, Fault, Inserted, Memory, Options, Progress, Store};

/// A number beyond any store of these tests, that of a segment with an end beyond all addresses, and the last of all.
const FAR: [u64; 3] = [0x10_0000, (1 << (64 - SPAN_BITS)) - 1, u64::MAX];
const SPAN_BITS: u32 = oncewire_store::MIN_SEGMENT_BYTES.next_power_of_two().trailing_zeros();

/// A store with one block, closed in order.
fn with_one(options: &Options) -> Memory {
    let memory = Memory::default();
    let store = open(&memory, options);
    assert!(matches!(insert(&store, 0), Inserted::Stored { .. }));
    store.close().unwrap();
    memory
}

/// The file of a segment with this number, of another store with the same key.
fn of_another(options: &Options, number: u64) -> Vec<u8> {
    let memory = with_one(&Options { id: 0x9999, ..options.clone() });
    let len = memory.list().unwrap().into_iter().find(|(file, _)| *file == name(1)).unwrap().1;
    let mut bytes = vec![0; len as usize];
    memory.read(&name(1), 0, &mut bytes).unwrap();
    // As its first page would be.
    bytes[24..32].copy_from_slice(&number.to_le_bytes());
    let check = xxhash_rust::xxh3::xxh3_64(&bytes[..64]);
    bytes[64..72].copy_from_slice(&check.to_le_bytes());
    bytes
}

fn put(memory: &Memory, file: &str, bytes: &[u8]) {
    memory.create(file, bytes.len() as u64).unwrap();
    memory.write(file, 0, bytes).unwrap();
}

fn has(store: &Store, number: u64) -> bool {
    read(store, &block(number, LEN)).unwrap()
}

/// Expects that a store goes on as if the file were not there; says whether it still is.
#[track_caller]
fn goes_on(memory: &Memory, options: &Options, stray: &str) -> bool {
    for start in 1..4 {
        let store = open(memory, options);
        assert!((0..start).all(|number| has(&store, number)), "{stray}, start {start}");
        assert_eq!(insert(&store, 0), Inserted::Known);
        assert!(matches!(insert(&store, start), Inserted::Stored { .. }));
        store.sync().unwrap();
        assert!(has(&store, start) && has(&store, 0), "{stray}, start {start}");
        assert!((1..=start + 1).all(|number| names(memory).contains(&name(number))), "{:?}", names(memory));
        store.close().unwrap();
    }
    names(memory).contains(&stray.to_owned())
}

#[test]
fn an_empty_file_or_garbage_beside_the_segments_costs_nothing() {
    for number in FAR {
        for options in [options(20), sealed(1, 20)] {
            for bytes in [&[][..], &[0; 8192], &[0x55; 10_000]] {
                let memory = with_one(&options);
                put(&memory, &name(number), bytes);
                goes_on(&memory, &options, &name(number));
            }
        }
    }
}

#[test]
fn foreign_segment_far_behind_costs_nothing_and_stays() {
    for number in FAR {
        for options in [options(20), sealed(1, 20)] {
            let memory = with_one(&options);
            put(&memory, &name(number), &of_another(&options, number));
            assert!(goes_on(&memory, &options, &name(number)));
        }
    }
}

#[test]
fn foreign_segment_right_behind_goes_in_its_turn() {
    let options = options(4);
    let memory = with_one(&options);
    put(&memory, &name(9), &of_another(&options, 9));
    let store = open(&memory, &options);
    assert_eq!((store.set_aside(), has(&store, 0)), (1, true));
    assert!(matches!(insert(&store, 1), Inserted::Stored { .. }));
    store.sync().unwrap();
    assert!(has(&store, 0) && names(&memory).contains(&name(10)), "{:?}", names(&memory));
    (2..200).for_each(|number| assert!(matches!(insert(&store, number), Inserted::Stored { .. })));
    assert!(!has(&store, 0) && has(&store, 199) && !names(&memory).contains(&name(9)));
}

#[test]
fn look_and_rewrite_report_strays_and_lose_nothing() {
    for number in FAR {
        for options in [options(20), sealed(1, 20)] {
            let memory = with_one(&options);
            put(&memory, &name(number), &of_another(&options, number));
            let at_rest = Options { at_rest: true, ..options.clone() };
            let store = open(&memory, &at_rest);
            let verified = store.verify(&Progress::default()).unwrap();
            let lines: Vec<String> = verified.unreadable.noted().iter().map(Fault::to_string).collect();
            assert!(lines.len() == 1 && lines[0].starts_with(&name(number)), "{lines:?}");
            assert!(verified.damaged.is_empty() && verified.containers == 1, "{verified:?}");
            let compacted = store.compact(None, &Progress::default()).unwrap();
            assert_eq!((compacted.kept, compacted.left.len(), compacted.damaged.len()), (1, 1, 0));
            assert!(has(&store, 0));
            store.close().unwrap();
            assert!(names(&memory).contains(&name(number)) && names(&memory).contains(&name(2)));
            assert!(has(&open(&memory, &options), 0));
        }
    }
}

#[test]
fn garbage_beside_the_segments_is_dropped_by_rewriting() {
    for options in [options(20), sealed(1, 20)] {
        let memory = with_one(&options);
        put(&memory, &name(FAR[0]), &[0x55; 10_000]);
        let at_rest = Options { at_rest: true, ..options.clone() };
        let store = Store::open(Arc::new(memory.clone()), &at_rest).unwrap().0;
        assert_eq!(store.verify(&Progress::default()).unwrap().damaged.len(), 1);
        assert!(names(&memory).contains(&name(FAR[0])), "who looks removes nothing");
        let compacted = store.compact(None, &Progress::default()).unwrap();
        assert_eq!((compacted.kept, compacted.left.len(), compacted.damaged.len()), (1, 0, 1));
        store.close().unwrap();
        assert!(!names(&memory).contains(&name(FAR[0])));
        assert!(has(&open(&memory, &options), 0));
    }
}
