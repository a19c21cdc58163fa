//! Replays a corpus as an ordinary test.

use std::path::Path;

/// Runs `body` on every file of a target's corpus, in order, and names the next one on failure.
#[track_caller]
pub(crate) fn replay(target: &str, body: fn(&[u8])) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut files: Vec<_> = std::fs::read_dir(&dir)
        .unwrap_or_else(|error| panic!("{}: {error}", dir.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", dir.display());
    for file in files {
        println!("{}", file.display());
        body(&std::fs::read(&file).unwrap());
    }
}

/// Runs `body` on `count` scripts of random bytes, each from its seed, and names the next one on failure.
#[track_caller]
pub(crate) fn random(count: u64, len: usize, body: fn(&[u8])) {
    for seed in 1..=count {
        println!("seed {seed}");
        body(&super::bodies::script::noise(seed, len));
    }
}
