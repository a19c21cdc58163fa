//! Kills, power cuts and damage: a store may forget, and may not lie.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex};

use common::{block, mixed, open, options, parts, read, sealed, tag, whole};
use oncewire_store::{Backend, Inserted, MIN_SEGMENT_BYTES, Memory, OpenError, Options, Progress, Store};
use proptest::prelude::*;

const BLOCKS: u64 = 24;

/// Lengths of the blocks of a run.
fn lens() -> Vec<usize> {
    (0..BLOCKS).map(|i| 1 + mixed(i) as usize % 65_536).collect()
}

/// Inserts all blocks, syncs after every seventh, and closes the store; returns after how many changes of the disk how
/// many blocks were promised to survive a power cut, and the lengths.
fn recorded(memory: &Memory, options: &Options) -> Vec<(usize, u64)> {
    let store = open(memory, options);
    let mut promises = vec![(0, 0)];
    for (i, len) in lens().into_iter().enumerate() {
        let block = block(i as u64, len);
        assert!(matches!(store.insert(&block, &parts(&block), i as u64), Inserted::Stored { .. }));
        if i % 7 == 6 {
            store.sync().unwrap();
            promises.push((memory.changes(), i as u64 + 1));
        }
    }
    store.close().unwrap();
    promises.push((memory.changes(), BLOCKS));
    promises
}

/// Opens the remains and checks the promised content, if nothing had to go for want of room.
fn check(left: &Memory, options: &Options, promised: u64, context: &str) {
    let (store, opened) = Store::open(Arc::new(left.clone()), options).unwrap();
    let there = whole(&store, &lens());
    assert!(there.len() as u64 >= promised, "{context}: {} of {promised} blocks, {opened:?}", there.len());
    assert!((0..promised).all(|i| there.contains(&i)), "{context}: {there:?}");
    // The index of small chunks has room for all of them.
    for (i, len) in lens().into_iter().enumerate().take(promised as usize) {
        let block = block(i as u64, len);
        assert!(read(&store, &block[..len.min(128)]).unwrap(), "{context}: a leaf of {i}, {opened:?}");
        assert!(read(&store, &block[..len.min(1024)]).unwrap(), "{context}: a part of {i}, {opened:?}");
    }
    // It goes on.
    let more = block(1000, 50_000);
    assert!(matches!(store.insert(&more, &parts(&more), 0), Inserted::Stored { .. }));
    store.close().unwrap();
    let (store, opened) = Store::open(Arc::new(left.clone()), options).unwrap();
    assert!(opened.index_kept, "{context}: {opened:?}");
    assert!(read(&store, &more).unwrap(), "{context}");
    assert_eq!(store.verify(&Progress::default()).unwrap().damaged.len(), 0, "{context}");
}

fn promised(promises: &[(usize, u64)], changes: usize) -> u64 {
    promises.iter().take_while(|(at, _)| *at <= changes).last().map_or(0, |(_, blocks)| *blocks)
}

#[test]
fn kill_at_any_write_loses_only_unsynced_content() {
    let memory = Memory::recording();
    let promises = recorded(&memory, &options(20));
    for changes in 0..=memory.changes() {
        for eighths in [0, 3, 8] {
            let left = memory.after_kill(changes, |len| len * eighths / 8);
            // The last change may be half made, so its promise does not count yet.
            let promised = promised(&promises, changes.saturating_sub(usize::from(eighths < 8)));
            check(&left, &options(20), promised, &format!("killed after {changes}, {eighths}/8 of the last"));
        }
    }
}

#[test]
fn power_cut_at_any_write_loses_only_unsynced_content() {
    for options in [options(20), sealed(1, 20)] {
        let memory = Memory::recording();
        let promises = recorded(&memory, &options);
        for changes in 0..=memory.changes() {
            let mut seed = changes as u64;
            let left = memory.after_power_cut(changes, || {
                seed = mixed(seed);
                seed.is_multiple_of(2)
            });
            let context = format!("power cut after {changes}, sealed: {}", options.sealer.is_some());
            check(&left, &options, promised(&promises, changes), &context);
        }
    }
}

#[test]
fn evicting_store_is_never_wrong_after_any_kill() {
    let memory = Memory::recording();
    recorded(&memory, &options(2));
    for changes in 0..=memory.changes() {
        check(&memory.after_kill(changes, |len| len / 2), &options(2), 0, &format!("killed after {changes}"));
    }
}

/// Notes the written pages of a file, and stops the test if one is written twice: sealing relies on it.
#[derive(Clone, Default)]
struct Once(Memory, Arc<Mutex<BTreeSet<(String, u64)>>>);

impl Backend for Once {
    fn create(&self, name: &str, len: u64) -> io::Result<()> {
        self.1.lock().unwrap().retain(|(of, _)| of != name);
        self.0.create(name, len)
    }

    fn read(&self, name: &str, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.0.read(name, at, into)
    }

    fn write(&self, name: &str, at: u64, bytes: &[u8]) -> io::Result<()> {
        assert!(at.is_multiple_of(4096) && bytes.len().is_multiple_of(4096));
        for page in at / 4096..(at + bytes.len() as u64) / 4096 {
            assert!(
                self.1.lock().unwrap().insert((name.to_owned(), page)),
                "{name}: page {page} comes again"
            );
        }
        self.0.write(name, at, bytes)
    }

    fn truncate(&self, name: &str, len: u64) -> io::Result<()> {
        self.0.truncate(name, len)
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        self.0.sync(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.1.lock().unwrap().retain(|(of, _)| of != from && of != to);
        self.0.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.1.lock().unwrap().retain(|(of, _)| of != name);
        self.0.remove(name)
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        self.0.list()
    }
}

#[test]
fn no_page_is_ever_written_twice() {
    let disk = Once::default();
    for run in 0..10 {
        let store = open(&disk, &sealed(1, 3));
        for i in 0..20 {
            let block = block(20 * run + i, 40_000);
            store.insert(&block, &parts(&block), i);
            if i % 4 == 0 {
                store.sync().unwrap();
            }
        }
        if run % 3 == 0 {
            store.compact(None, &Progress::default()).unwrap();
            store.close().unwrap();
        }
    }
}

#[derive(Clone, Debug)]
enum Damage {
    Flip { file: prop::sample::Index, at: prop::sample::Index, bit: u8 },
    Cut { file: prop::sample::Index, at: prop::sample::Index },
    Fill { file: prop::sample::Index, at: prop::sample::Index, bytes: Vec<u8> },
    Copy { from: prop::sample::Index, to: prop::sample::Index },
}

fn damage() -> impl Strategy<Value = Damage> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        4 => (index(), index(), 0..8u8).prop_map(|(file, at, bit)| Damage::Flip { file, at, bit }),
        1 => (index(), index()).prop_map(|(file, at)| Damage::Cut { file, at }),
        2 => (index(), index(), proptest::collection::vec(any::<u8>(), 1..5000))
            .prop_map(|(file, at, bytes)| Damage::Fill { file, at, bytes }),
        1 => (index(), index()).prop_map(|(from, to)| Damage::Copy { from, to }),
    ]
}

fn inflict(memory: &Memory, damage: &Damage) {
    let files = memory.list().unwrap();
    let name = |index: &prop::sample::Index| files[index.index(files.len())].0.clone();
    let change = |file, change: &dyn Fn(&mut Vec<u8>)| memory.damage(&name(file), |bytes| change(bytes));
    match damage {
        Damage::Flip { file, at, bit } => change(file, &|bytes| {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] ^= 1 << bit;
            }
        }),
        Damage::Cut { file, at } => change(file, &|bytes| bytes.truncate(at.index(bytes.len() + 1))),
        Damage::Fill { file, at, bytes: new } => change(file, &|bytes| {
            let at = at.index(bytes.len() + 1);
            let end = bytes.len().min(at + new.len());
            let len = end - at;
            bytes[at..end].copy_from_slice(&new[..len]);
        }),
        Damage::Copy { from, to } => {
            let mut copy = Vec::new();
            memory.damage(&name(from), |bytes| copy.clone_from(bytes));
            change(to, &|bytes| bytes.clone_from(&copy));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn any_content_of_files_gives_nothing_wrong(
        damages in proptest::collection::vec(damage(), 1..12), closed: bool,
    ) {
        let memory = Memory::default();
        let store = open(&memory, &options(20));
        for (i, len) in lens().into_iter().enumerate() {
            let block = block(i as u64, len);
            store.insert(&block, &parts(&block), i as u64);
        }
        if closed {
            store.close().unwrap();
        } else {
            store.sync().unwrap();
            drop(store);
        }
        damages.iter().for_each(|damage| inflict(&memory, damage));
        let (store, opened) = match Store::open(Arc::new(memory.clone()), &options(20)) {
            // Files with the look of a later build are not touched.
            Err(OpenError::Version(_)) => return Ok(()),
            opened => opened.unwrap(),
        };
        // `read` compares content; errors are fine.
        for (i, len) in lens().into_iter().enumerate() {
            let block = block(i as u64, len);
            for part in parts(&block) {
                let _ = read(&store, &block[part.start as usize..(part.start + part.len) as usize]);
            }
        }
        store.verify(&Progress::default()).unwrap();
        let compacted = store.compact(None, &Progress::default());
        prop_assert_eq!(compacted.is_err(), opened.set_aside > 0);
        if compacted.is_ok() {
            prop_assert_eq!(store.verify(&Progress::default()).unwrap().damaged.len(), 0);
        }
        store.close().unwrap();
    }
}

#[derive(Clone, Debug)]
enum Step {
    Insert {
        block: u64,
        len: usize,
    },
    /// Blocks equal but for their first bytes.
    Variant {
        block: u64,
        variant: u8,
    },
    Read {
        block: u64,
    },
    Sync,
    Reopen,
    Kill,
    Compact,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..40u64, 1..65_537usize).prop_map(|(block, len)| Step::Insert { block, len }),
        4 => (0..10u64, 0..4u8).prop_map(|(block, variant)| Step::Variant { block, variant }),
        4 => (0..40u64).prop_map(|block| Step::Read { block }),
        1 => Just(Step::Sync),
        1 => Just(Step::Reopen),
        1 => Just(Step::Kill),
        1 => Just(Step::Compact),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// The model knows every inserted root, and those that must still be there: beyond the reach of any eviction and
    /// any kill.
    #[test]
    fn store_is_a_map_with_permitted_losses(steps in proptest::collection::vec(step(), 1..60)) {
        let memory = Memory::default();
        let options = options(6);
        let mut store = open(&memory, &options);
        let mut model: BTreeMap<u64, (Vec<u8>, bool)> = BTreeMap::new();
        let mut evicted = 0;
        for step in &steps {
            let insert = |store: &Store, model: &mut BTreeMap<_, (Vec<u8>, bool)>, block: Vec<u8>| {
                store.insert(&block, &parts(&block), 1);
                model.insert(tag(&block), (block, false));
            };
            match step {
                Step::Insert { block: number, len } => insert(&store, &mut model, block(*number, *len)),
                Step::Variant { block: number, variant } => {
                    let mut block = block(*number, 65_536);
                    block[0] = *variant;
                    insert(&store, &mut model, block);
                }
                Step::Read { block: number } => {
                    read(&store, &block(*number, 65_536)).unwrap();
                }
                Step::Sync => {
                    store.sync().unwrap();
                    model.values_mut().for_each(|(_, synced)| *synced = true);
                }
                Step::Reopen => {
                    store.close().unwrap();
                    store = open(&memory, &options);
                }
                Step::Kill => {
                    drop(store);
                    store = open(&memory, &options);
                    model.retain(|_, (_, synced)| *synced);
                }
                Step::Compact => {
                    store.compact(None, &Progress::default()).unwrap();
                    model.values_mut().for_each(|(_, synced)| *synced = true);
                }
            }
            evicted = evicted.max(store.counts().evicted_segments);
            let inserted: usize = model.values().map(|(block, _)| block.len()).sum();
            let all_fit = (inserted as u64) < 2 * MIN_SEGMENT_BYTES && evicted == 0;
            for (block, _) in model.values() {
                let there = read(&store, block).unwrap();
                prop_assert!(there || !all_fit, "{step:?}: a block of {} bytes is gone", block.len());
            }
        }
    }
}
