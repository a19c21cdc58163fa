//! The making of the stored files, by this build or by another one.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use super::{
    PIECE, STORED, assert_finds_chunks, assert_resumes, configurations, fetch, golden, options, reports,
    server, wait_until_stored,
};
use crate::binary;
use crate::common::gateway::keygen;
use crate::common::origin::Request;
use crate::common::pair::{Pair, copy_folder};
use crate::common::wait::LIMIT;

/// Makes a pair's keys and states in `to`.
fn make_state(binary: &Path, to: &Path, is_sealed: bool) {
    let (keys, origin) = (tempfile::tempdir().unwrap(), server());
    for (kind, file) in [("--group", "group.key"), ("--encrypt-key", "storage.key")] {
        let file = keys.path().join(file);
        let made = Command::new(binary).args(["keygen", kind, "--out"]).arg(file).output().unwrap();
        assert!(made.status.success(), "{made:?}");
    }
    let mut pair = Pair::start_with(binary, &options(&origin, keys.path().into(), is_sealed));
    // A second epoch: a log without a past begins with the first.
    fetch(&pair, Request { seed: 69, len: 1000 });
    for gateway in [&pair.branch, &pair.hub] {
        gateway.clear_cache(&[]).unwrap();
    }
    pair.wait_until_up();
    fetch(&pair, PIECE);
    wait_until_stored(&pair);
    let epoch = pair.hub.peer()["out"]["epoch"].as_u64().unwrap();
    assert!(epoch > 1, "{}", pair.hub.peer());
    for gateway in [&mut pair.branch, &mut pair.hub] {
        gateway.terminate();
        assert!(gateway.wait(LIMIT).success());
    }
    let dir = pair.dir.path();
    let _ = std::fs::remove_dir_all(to);
    for folder in ["branch-state", "hub-state"] {
        copy_folder(&dir.join(folder), &to.join(folder));
    }
    for file in ["branch.key", "hub.key", "group.key", "storage.key"] {
        std::fs::copy(dir.join(file), to.join(file)).unwrap();
    }
    let [branch, hub] = ["branch.key", "hub.key"].map(|file| keygen(binary, &to.join(file)));
    let facts = json!({"branch": branch, "hub": hub, "epoch": epoch});
    std::fs::write(to.join("facts.json"), format!("{facts:#}\n")).unwrap();
}

#[test]
fn golden_files_are_made_and_read() {
    let dir = tempfile::tempdir().unwrap();
    let given = std::env::var_os("ONCEWIRE_GOLDEN").map(PathBuf::from);
    let (maker, to) = match &given {
        Some(given) => (given.as_path(), golden()),
        None => (binary(), dir.path().into()),
    };
    for name in STORED {
        let (to, is_sealed) = (to.join(name), name == "sealed");
        make_state(maker, &to, is_sealed);
        assert_resumes(&to, is_sealed);
        assert_finds_chunks(&to, is_sealed);
    }
    configurations::make(maker, &to);
    reports::make(maker, &to);
}
