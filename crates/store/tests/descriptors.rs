//! A process with hardly any descriptors: alone, since the limit is process-wide.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;

use std::fs::File;
use std::sync::Arc;

use common::{block, options, parts, whole};
use oncewire_store::{Directory, IndexMemory, Inserted, Options, Store};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const LEN: usize = 60_000;

#[test]
fn store_beyond_the_limit_of_descriptors_forgets_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let directory = Arc::new(Directory::open(dir.path()).unwrap());
    let roomy = IndexMemory { coarse: 1 << 17, medium: 1 << 16, fine: 1 << 18 };
    let (store, _) = Store::open(directory, &Options { index: roomy, ..options(200) }).unwrap();
    let blocks = 400;
    for number in 0..blocks {
        let block = block(number, LEN);
        assert!(matches!(store.insert(&block, &parts(&block), number), Inserted::Stored { .. }));
    }
    store.sync().unwrap();
    assert!(store.stat().segments > 70);
    let lens = vec![LEN; blocks as usize];
    let all = || whole(&store, &lens).len() as u64;
    let before = getrlimit(Resource::Nofile);
    // The directory has 64 of them open, and gives one back whenever it needs another.
    let taken = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
    setrlimit(Resource::Nofile, Rlimit { current: Some(taken), ..before }).unwrap();
    let hoard: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    assert_eq!(all(), blocks, "it makes do with what it has");
    for number in blocks..blocks + 50 {
        let block = block(number, LEN);
        assert!(matches!(store.insert(&block, &parts(&block), number), Inserted::Stored { .. }), "{number}");
    }
    let newest = whole(&store, &[LEN; 450]).iter().filter(|number| **number >= blocks).count();
    assert_eq!((newest, store.trouble()), (50, None), "new segments too");
    setrlimit(Resource::Nofile, Rlimit { current: Some(3), ..before }).unwrap();
    let served = all();
    assert!(served < blocks, "{served} of {blocks} were read although nothing can be opened");
    assert!(store.counts().unreadable > 0);
    let refused = (blocks + 50..).map(|number| {
        let block = block(number, LEN);
        store.insert(&block, &parts(&block), number)
    });
    assert_eq!(refused.take(100).last(), Some(Inserted::Refused), "no file can be opened to write to");
    assert!(store.is_held_up() && store.trouble().is_some() && store.sync().is_err());
    setrlimit(Resource::Nofile, before).unwrap();
    drop(hoard);
    store.sync().unwrap();
    assert_eq!((store.is_held_up(), store.trouble()), (false, None), "it goes on by itself");
    let last = block(1000, LEN);
    assert!(matches!(store.insert(&last, &parts(&last), 1000), Inserted::Stored { .. }));
    store.sync().unwrap();
    assert_eq!((store.set_aside(), store.counts().faults), (0, 0));
    assert_eq!(all(), blocks, "nothing was forgotten");
}
