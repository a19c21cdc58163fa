//! Stores on disks with refused reads.

use std::ops::Range;
use std::sync::Arc;

use oncewire_store::{Backend as _, Inserted, Memory, Options, Store};

use super::{block, open, parts, whole};

pub(crate) const LEN: usize = 60_000;

pub(crate) fn insert(store: &Store, number: u64) -> Inserted {
    let block = block(number, LEN);
    store.insert(&block, &parts(&block), number)
}

/// A store on a disk in memory with this many blocks, with ends at those of segments, closed or left as after a kill.
pub(crate) fn left(options: &Options, blocks: u64, closed: bool) -> Memory {
    let memory = Memory::default();
    let store = open(&memory, options);
    (0..blocks).for_each(|number| assert!(matches!(insert(&store, number), Inserted::Stored { .. })));
    store.sync().unwrap();
    if closed {
        store.close().unwrap();
    }
    memory
}

pub(crate) fn name(number: u64) -> String {
    format!("{number:016x}.seg")
}

pub(crate) fn names(memory: &Memory) -> Vec<String> {
    memory.list().unwrap().into_iter().map(|(name, _)| name).collect()
}

/// Takes the summaries away, so a start has to read containers.
pub(crate) fn without_summaries(memory: &Memory) {
    let is_one = |name: &String| name.ends_with(".summary");
    names(memory).iter().filter(|name| is_one(name)).for_each(|name| memory.remove(name).unwrap());
}

/// The blocks there, none wrong.
pub(crate) fn there(store: &Store, blocks: usize) -> Vec<u64> {
    whole(store, &vec![LEN; blocks])
}

/// A store of 20 blocks on a disk with refusals in the second segment, and other moods besides.
pub(crate) fn with_a_bad_place(options: &Options, hidden: Range<u64>) -> (Memory, Store) {
    let memory = left(options, 20, true);
    let store = Store::open(Arc::new(super::hiding(&memory, name(2), hidden)), options).unwrap().0;
    (memory, store)
}
