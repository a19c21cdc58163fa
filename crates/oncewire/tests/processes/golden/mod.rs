//! Keys, states, configurations and reports of an earlier build (`tests/golden`), with this build.
//!
//! `scripts/golden BINARY` makes the files anew: for a new version of a format only. Their keys are for these
//! tests alone.

mod configurations;
mod make;
mod reports;
mod shape;

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::common::data;
use crate::common::gateway::{Gateway, keygen};
use crate::common::origin::{Origin, Request};
use crate::common::pair::{Options, Pair};
use crate::common::wait::{LIMIT, eventually};
use crate::{binary, pair};

/// The folder of the stored files.
fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// Length of the stored content.
const LEN: usize = 40_000;

/// The stored content: one piece of the server's answers.
const PIECE: Request = Request { seed: 70, len: LEN };

/// A stored pair in clear text, and one with encrypted logs and store.
const STORED: [&str; 2] = ["clear", "sealed"];

/// A server; its answers are the piece of a request's seed, repeated up to the request's length.
fn server() -> Origin {
    Origin::start(|mut stream| {
        if let Some(request) = Request::read(&mut stream) {
            let _ = std::io::Write::write_all(&mut stream, &answer(request));
        }
    })
}

fn answer(request: Request) -> Vec<u8> {
    data::random(request.seed, LEN).into_iter().cycle().take(request.len).collect()
}

/// The configuration of a stored pair with other ports.
fn options(origin: &Origin, stored: PathBuf, is_sealed: bool) -> Options {
    let cache = "[[group]]\nname = \"all\"\nkey_file = \"group.key\"\n[link]\nshed = false\n\
         [cache]\nmemory = \"256 MiB\"\nlog_memory = \"512 KiB\"\nhint_memory = \"64 KiB\"\n";
    Options {
        stored: Some(stored),
        gateway_keys: if is_sealed { "encrypt_key_file = \"storage.key\"\n" } else { "" }.into(),
        peer_keys: "group = \"all\"\n".into(),
        branch: "store_disk = \"64 MiB\"\nstore_index_memory = \"64 KiB\"\n".into(),
        ..Options::to(origin.address())
    }
    .without_adapting()
    .with(cache)
}

/// Fetches an answer, compares it, and returns its bytes on the link.
fn fetch(pair: &Pair, request: Request) -> u64 {
    let before = pair.relay.carried();
    let got = eventually("a transfer works", LIMIT, || {
        request.fetch(pair.forward()).ok().filter(|got| got.len() == request.len)
    });
    data::assert_same(&got, &answer(request), "what was fetched");
    pair.relay.carried() - before
}

fn store_of(gateway: &Gateway) -> Value {
    gateway.ask("status").unwrap()["store"].clone()
}

fn wait_until_stored(pair: &Pair) {
    eventually("what came is stored", LIMIT, || (store_of(&pair.branch)["waiting_bytes"] == 0).then_some(()));
}

/// A stored pair's facts.
fn facts(stored: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(stored.join("facts.json")).unwrap()).unwrap()
}

/// Expects no complaint about the states, and a sound store.
#[track_caller]
fn assert_sound(pair: &Pair) {
    for gateway in [&pair.branch, &pair.hub] {
        let log = gateway.whole_log();
        let complaint = |line: &&str| {
            (line.contains(" WARN ") || line.contains(" ERROR ")) && line.contains("-state")
                || line.contains("starts over")
        };
        let complaints: Vec<&str> = log.lines().filter(complaint).collect();
        assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    }
    let log = pair.branch.whole_log();
    assert!(log.contains("index_kept=true"), "{log}");
    let store = store_of(&pair.branch);
    assert_eq!(store["state"], "open");
    for key in ["damaged", "unreadable", "set_aside", "given_up", "write_errors"] {
        assert_eq!(store[key], 0, "{key}: {store}");
    }
}

/// Expects a stored pair's identities, epoch and bytes in this build.
fn assert_resumes(stored: &Path, is_sealed: bool) {
    let (facts, origin) = (facts(stored), server());
    let pair = pair(&options(&origin, stored.into(), is_sealed));
    for name in ["branch", "hub"] {
        let key = keygen(binary(), &pair.dir.path().join(format!("{name}.key")));
        assert_eq!(facts[name], key, "public key of {name}");
    }
    let many = Request { len: 20 * LEN, ..PIECE };
    let wire = fetch(&pair, many);
    assert!(wire < many.len as u64 / 100, "{wire} bytes crossed for {}", many.len);
    let [out, inbound] = [pair.hub.peer()["out"].clone(), pair.branch.peer()["in"].clone()];
    assert_eq!((&out["epoch"], &inbound["epoch"]), (&facts["epoch"], &facts["epoch"]));
    assert!(out["copied"].as_u64().unwrap() > many.len as u64 / 100 * 99, "{out}");
    assert_eq!((&out["log_resumes"], &inbound["log_resumes"]), (&1.into(), &1.into()));
    assert_sound(&pair);
}

/// Expects that a stored pair without its logs names its chunks and finds them.
fn assert_finds_chunks(stored: &Path, is_sealed: bool) {
    let (dir, origin) = (tempfile::tempdir().unwrap(), server());
    crate::common::pair::copy_folder(stored, dir.path());
    for name in ["branch", "hub"] {
        for peer in std::fs::read_dir(dir.path().join(format!("{name}-state/logs"))).unwrap() {
            for file in ["in.log", "in.idx", "out.log", "out.idx"] {
                std::fs::remove_file(peer.as_ref().unwrap().path().join(file)).unwrap();
            }
        }
    }
    let pair = pair(&options(&origin, dir.path().into(), is_sealed));
    eventually("the stored hints are loaded", LIMIT, || {
        (pair.hub.peer()["out"]["names"]["hints"].as_u64()? > 0).then_some(())
    });
    fetch(&pair, PIECE);
    let most = LEN as u64 / 10 * 9;
    let named = pair.hub.peer()["out"]["names"]["bytes"].as_u64().unwrap();
    assert!(named >= most, "{named} bytes named: {}", pair.hub.peer());
    eventually("the named chunks are found", LIMIT, || {
        (store_of(&pair.branch)["found_bytes"].as_u64()? >= most).then_some(())
    });
    assert_eq!(store_of(&pair.branch)["absent"], 0);
    assert_sound(&pair);
}

#[test]
fn stored_logs_resume_in_their_epoch() {
    STORED.iter().for_each(|name| assert_resumes(&golden().join(name), *name == "sealed"));
}

#[test]
fn stored_chunks_are_named_and_found() {
    STORED.iter().for_each(|name| assert_finds_chunks(&golden().join(name), *name == "sealed"));
}
