//! Verification and compaction on a disk refusing reads.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;

use std::sync::Arc;

use common::refused::{left, name, names, there, with_a_bad_place};
use common::{EIO, EMFILE, block, open, options, parts, sealed};
use oncewire_store::{Memory, Options, Progress, Store};

/// A store of 200 containers in a few files: one holds the blocks of one insert, and takes three pages here.
fn of_many_containers() -> (Memory, Options, Store) {
    let memory = Memory::default();
    let options = Options { segment_bytes: 2 << 20, ..options(40) };
    let store = open(&memory, &options);
    for number in 0..200 {
        let block = block(number, 9000);
        store.insert(&block, &parts(&block), number);
        store.sync().unwrap();
    }
    (memory, options, store)
}

#[test]
fn unreadable_content_is_no_damage_and_unreadable_files_stay() {
    let memory = left(&options(40), 20, true);
    let store = open(&memory, &options(40));
    memory.fail_reads_of(&name(2), Some(EIO));
    let progress = Progress::default();
    let verified = store.verify(&progress).unwrap();
    assert!(verified.damaged.is_empty() && verified.unreadable.len() >= 4, "{verified:?}");
    let compacted = store.compact(None, &Progress::default()).unwrap();
    assert_eq!((compacted.left.len(), compacted.lost.len()), (1, 0), "{compacted:?}");
    assert!(compacted.left.noted()[0].to_string().starts_with(&name(2)), "{compacted:?}");
    let stay = names(&memory);
    assert!(stay.contains(&name(2)) && !stay.contains(&name(1)) && !stay.contains(&name(3)), "{stay:?}");
    memory.fail_reads_of(&name(2), None);
    assert_eq!(there(&store, 20).len(), 20);
    store.close().unwrap();
    let store = open(&memory, &options(40));
    assert_eq!(there(&store, 20).len(), 20, "also by the index");
    store.compact(None, &Progress::default()).unwrap();
    assert_eq!(there(&store, 20).len(), 20);
    assert!(!names(&memory).contains(&name(2)));
}

#[test]
fn fully_refused_file_is_tried_in_part() {
    let (memory, _, store) = of_many_containers();
    let whole = store.verify(&Progress::default()).unwrap();
    memory.fail_reads_of(&name(1), Some(EIO));
    let verified = store.verify(&Progress::default()).unwrap();
    let last = verified.unreadable.noted().last().unwrap().to_string();
    assert!(verified.unreadable.len() == 65 && last.contains("refused"), "{verified:?}");
    assert!(verified.containers < whole.containers && verified.damaged.is_empty());
}

#[test]
fn many_refusals_are_counted_and_the_first_listed() {
    let (memory, options, store) = of_many_containers();
    let of_first = store.stat().containers;
    // The first container can be read, and then nothing.
    let hidden = Arc::new(common::hiding(&memory, name(1), 4 * 4096..2 << 20));
    store.close().unwrap();
    let (store, opened) = Store::open(hidden, &options).unwrap();
    assert!(opened.index_kept);
    let compacted = store.compact(None, &Progress::default()).unwrap();
    assert!(compacted.lost.len() > 120 && compacted.lost.len() < of_first, "{compacted:?}");
    assert_eq!(compacted.lost.noted().len(), 100);
    assert_eq!(compacted.lost.left_out(), compacted.lost.len() - 100);
    assert_eq!((compacted.kept + compacted.lost.len(), compacted.left.len()), (200, 0));
}

#[test]
fn compacting_passes_bad_places_and_reports_losses() {
    for options in [options(40), sealed(1, 40)] {
        let (memory, store) = with_a_bad_place(&options, 20_000..28_000);
        let before = store.stat().containers;
        let compacted = store.compact(None, &Progress::default()).unwrap();
        assert_eq!((compacted.lost.len(), compacted.left.len()), (1, 0), "{compacted:?}");
        assert!(compacted.lost.noted()[0].to_string().starts_with(&name(2)), "{compacted:?}");
        assert_eq!(compacted.kept, before - 1, "{compacted:?}");
        assert!(!names(&memory).contains(&name(2)));
        assert_eq!(there(&store, 20).len(), 19, "one container is one block here");
        assert!(
            store.trouble().is_none() && store.verify(&Progress::default()).unwrap().unreadable.is_empty()
        );
    }
}

#[test]
fn compacting_without_descriptors_loses_nothing() {
    let memory = left(&options(40), 20, true);
    let store = open(&memory, &options(40));
    memory.fail_reads_of(&name(2), Some(EMFILE));
    let refused = store.compact(None, &Progress::default()).unwrap_err();
    assert!(refused.to_string().contains(&name(2)), "{refused}");
    memory.fail_reads_of(&name(2), None);
    assert_eq!(there(&store, 20).len(), 20);
}
