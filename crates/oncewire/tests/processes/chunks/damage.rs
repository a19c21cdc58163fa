//! Stores deleted, damaged, or closed to users without the key.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::BufRead as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::common::origin::Origin;
use crate::common::pair::Pair;
use crate::common::wait::{LIMIT, eventually};
use crate::pair;

use super::{
    FILE, assert_cold, assert_warm, fetch, options, segments, store_directory, wait_until_damaged,
    wait_until_on_disk, wait_until_stored,
};

/// Says whether bytes occur, from one occurrence of the first of them to the next.
fn holds(mut bytes: &[u8], part: &[u8]) -> bool {
    let mut passed_over = Vec::new();
    while bytes.read_until(part[0], &mut passed_over).unwrap() > 0 {
        if bytes.starts_with(&part[1..]) {
            return true;
        }
        passed_over.clear();
    }
    false
}

#[test]
fn deleted_store_costs_no_more_than_none() {
    let origin = Origin::server();
    let mut pair = pair(&options(&origin));
    fetch(&pair, FILE);
    pair.branch.kill();
    fs::remove_dir_all(store_directory(&pair)).unwrap();
    pair.branch.start();
    pair.wait_until_up();
    assert_cold(fetch(&pair, FILE), "after the store was deleted");
    assert_warm(&pair, "when it is filled again");
    let cleared = eventually("the store is cleared", LIMIT, || pair.branch.clear_cache_in_time(&[]));
    assert!(cleared["store"].is_u64(), "{cleared}");
    assert_cold(fetch(&pair, FILE), "after it was cleared");
    wait_until_stored(&pair);
    let one = eventually("logs are cleared", LIMIT, || pair.branch.clear_cache_in_time(&["--peer", "hub"]));
    assert_eq!(one["store"], Value::Null, "chunks are not sorted by peers");
    pair.branch.terminate();
    assert!(pair.branch.wait(LIMIT).success());
    let config = pair.branch.config().to_str().unwrap();
    assert!(pair.branch.run(&["store", "stat", "-c", config]).status.success());
    let cleared = pair.branch.clear_cache(&[]).unwrap();
    assert!(cleared["store"].as_u64().unwrap() > 0, "{cleared}");
    assert!(!store_directory(&pair).exists());
}

/// A pair stopped in order, with a file in the branch's store.
fn stopped_with_a_store(origin: &Origin) -> Pair {
    let mut pair = pair(&options(origin));
    fetch(&pair, FILE);
    wait_until_on_disk(&pair);
    pair.branch.terminate();
    assert!(pair.branch.wait(LIMIT).success());
    pair
}

#[test]
fn damaged_store_is_noticed_and_its_damage_never_used() {
    let origin = Origin::server();
    let mut pair = stopped_with_a_store(&origin);
    let directory = store_directory(&pair);
    for segment in segments(&directory) {
        let file = File::options().read(true).write(true).open(segment).unwrap();
        // Here and there; the directories lie at the end.
        for at in (300_000..6 << 20).step_by(1 << 20) {
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 0x40], at).unwrap();
        }
    }
    let config = pair.branch.config().to_str().unwrap().to_owned();
    let verified = pair.branch.run(&["store", "verify", "--json", "-c", &config]);
    assert_eq!(verified.status.code(), Some(1), "{}", String::from_utf8_lossy(&verified.stderr));
    let report: Value = serde_json::from_slice(&verified.stdout).unwrap();
    assert!(!report["damaged"].as_array().unwrap().is_empty(), "{report}");
    pair.branch.start();
    pair.wait_until_up();
    fetch(&pair, FILE);
    wait_until_damaged(&pair);
    assert_eq!(pair.branch.counter("mismatches"), 0, "what is damaged is found out before it is used");
    pair.branch.terminate();
    assert!(pair.branch.wait(LIMIT).success());
    let compacted = pair.branch.run(&["store", "compact", "--json", "-c", &config]);
    assert!(compacted.status.success(), "{}", String::from_utf8_lossy(&compacted.stderr));
    let verified = pair.branch.run(&["store", "verify", "--path", directory.to_str().unwrap()]);
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
}

/// The logs of the branch, by the names of their files.
fn logs(pair: &Pair) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = |directory: &Path| fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let directories = entries(&pair.dir.path().join("branch-state/logs"));
    let files = directories.flat_map(|directory| entries(&directory).collect::<Vec<_>>());
    files.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

/// With another key, or without, the branch does not start, as a check tells, and the logs are as they were.
fn assert_refused(pair: &Pair) {
    let before = logs(pair);
    assert!(before.values().any(|file| file.len() > 1 << 20), "there are logs");
    for command in [&["check"][..], &["run"], &["store", "stat"]] {
        let arguments = [command, &["-c", pair.branch.config().to_str().unwrap()]].concat();
        let refused = pair.branch.run(&arguments);
        let command = command[0];
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{command}: {said}");
        let config = pair.branch.config().display().to_string();
        assert!(said.contains(&format!("{config}: line ")), "{command}: {said}");
        assert!(said.contains("encrypt_key_file: "), "{command}: {said}");
    }
    assert!(logs(pair) == before, "logs changed at a start that was refused");
}

#[test]
fn store_with_lost_files_is_not_called_sound() {
    let origin = Origin::server();
    let pair = stopped_with_a_store(&origin);
    let config = pair.branch.config().to_str().unwrap().to_owned();
    let run = |what: &str| {
        let ended = pair.branch.run(&["store", what, "--json", "-c", &config]);
        let report: Value = serde_json::from_slice(&ended.stdout).unwrap();
        (ended.status.code(), report)
    };
    let (code, sound) = run("verify");
    assert_eq!(code, Some(0), "{sound}");
    let segment = segments(&store_directory(&pair)).into_iter().next().unwrap();
    let len = fs::metadata(&segment).unwrap().len();
    File::options().write(true).open(&segment).unwrap().set_len(len / 3).unwrap();
    let (code, report) = run("verify");
    let said = report["damaged"][0].as_str().unwrap_or_default();
    assert!(code == Some(1) && said.contains("containers with it"), "{report}");
    fs::remove_file(&segment).unwrap();
    std::os::unix::fs::symlink("/dev/null", &segment).unwrap();
    let (code, report) = run("verify");
    let said = report["unreadable"][0].as_str().unwrap_or_default();
    assert!(code == Some(1) && said.contains("no regular file"), "{report}");
    let (code, report) = run("compact");
    let said = report["left"][0].as_str().unwrap_or_default();
    assert!(code == Some(1) && said.contains("no regular file"), "{report}");
    assert!(segment.symlink_metadata().unwrap().is_symlink(), "it stays");
}

#[test]
fn encrypted_store_shows_nothing_and_needs_its_key() {
    let origin = Origin::server();
    let mut pair = pair(&options(&origin));
    let config = fs::read_to_string(pair.branch.config()).unwrap();
    let [key, other] = ["storage.key", "other.key"].map(|name| pair.dir.path().join(name));
    for key in [&key, &other] {
        let made = pair.branch.run(&["keygen", "--encrypt-key", "--out", key.to_str().unwrap()]);
        assert!(made.status.success());
    }
    let keyed = config.replace("[gateway]\n", "[gateway]\nencrypt_key_file = \"storage.key\"\n");
    // In clear text first: with a key, it is not taken up and not removed.
    fetch(&pair, FILE);
    wait_until_on_disk(&pair);
    let restart = |pair: &mut Pair, config: &str| {
        pair.branch.terminate();
        assert!(pair.branch.wait(LIMIT).success());
        pair.branch.write_config(config);
    };
    restart(&mut pair, &keyed);
    assert_refused(&pair);
    let directory = store_directory(&pair);
    let part = &FILE.answer()[1 << 20..(1 << 20) + 64];
    let shows =
        |directory: &Path| segments(directory).iter().any(|path| holds(&fs::read(path).unwrap(), part));
    assert!(shows(&directory), "what is in clear text is found so");
    fs::remove_dir_all(&directory).unwrap();
    pair.branch.start();
    pair.wait_until_up();
    fetch(&pair, FILE);
    assert_warm(&pair, "from an encrypted store");
    wait_until_on_disk(&pair);
    restart(&mut pair, &keyed.replace("storage.key", "other.key"));
    assert_refused(&pair);
    pair.branch.write_config(&config);
    assert_refused(&pair);
    assert!(!shows(&directory));
    let directory = directory.to_str().unwrap();
    let refused = pair.branch.run(&["store", "stat", "--path", directory]);
    assert_eq!(refused.status.code(), Some(2));
    let stat = ["store", "stat", "--json", "--path", directory, "--encrypt-key-file", key.to_str().unwrap()];
    let stat: Value = serde_json::from_slice(&pair.branch.run(&stat).stdout).unwrap();
    assert_eq!(stat["encrypted"], true);
    assert!(stat["levels"][0]["bytes"].as_u64().unwrap() >= FILE.len as u64 / 10 * 9, "{stat}");
}
