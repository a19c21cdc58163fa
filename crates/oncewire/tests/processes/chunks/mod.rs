//! The chunk store through real gateways: content beyond the log, found on disk.
//!
//! `ONCEWIRE_KILLS=20 cargo test -p oncewire --test processes chunks::kills` kills more often.

mod damage;
mod disks;

use std::fs;
use std::io::Read as _;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use serde_json::Value;

use crate::common::data;
use crate::common::gateway::Gateway;
use crate::common::origin::{Origin, Request};
use crate::common::pair::{Options, Pair};
use crate::common::wait::{LIMIT, eventually};
use crate::pair;

/// Eight times the log's size.
const FILE: Request = Request { seed: 90, len: 8 << 20 };

/// A pair with a log too small to save repeats without a store, and with stores read under any load.
fn options(origin: &Origin) -> Options {
    Options::to(origin.address()).without_adapting().with(CACHE).with("[link]\nshed = false\n")
}

const CACHE: &str = "[cache]\nmemory = \"512 MiB\"\nlog_memory = \"1 MiB\"\nstore_disk = \"256 MiB\"\n";

/// Fetches a file and returns its bytes on the link.
fn fetch(pair: &Pair, file: Request) -> u64 {
    let before = pair.relay.carried();
    let got = eventually("a transfer works", LIMIT, || {
        file.fetch(pair.forward()).ok().filter(|got| got.len() == file.len)
    });
    data::assert_same(&got, &file.answer(), "what was fetched");
    pair.relay.carried() - before
}

/// Expects that next to nothing crosses for a stored file, as soon as no read of it is late: on a busy machine some
/// may be.
#[track_caller]
fn assert_warm(pair: &Pair, what: &str) {
    let begun = Instant::now();
    let mut wires = Vec::new();
    while begun.elapsed() < LIMIT {
        wait_until_stored(pair);
        wires.push(fetch(pair, FILE));
        if wires.last().is_some_and(|wire| is_warm(*wire)) {
            return;
        }
    }
    panic!(
        "{what}: {wires:?} bytes crossed for {}: {} {}",
        FILE.len,
        pair.branch.peer(),
        store_of(&pair.branch)
    );
}

/// Waits until the branch has stored all received content.
fn wait_until_stored(pair: &Pair) {
    eventually("what came is stored", LIMIT, || (store_of(&pair.branch)["waiting_bytes"] == 0).then_some(()));
}

/// Expects savings from a killed gateway, also on a machine so busy that many a read is late.
#[track_caller]
fn assert_outlives(pair: &mut Pair, gateway: fn(&mut Pair) -> &mut Gateway, what: &str) {
    let mut wires = Vec::new();
    for _ in 0..8 {
        gateway(pair).kill();
        gateway(pair).start();
        pair.wait_until_up();
        wires.push(fetch(pair, FILE));
        if wires.last().is_some_and(|wire| *wire < FILE.len as u64 / 2) {
            return;
        }
    }
    panic!("{what}: {wires:?} bytes crossed for {}", FILE.len);
}

fn is_warm(wire: u64) -> bool {
    wire < FILE.len as u64 / 30
}

/// Expects that the file crosses once, and no more in spite of all faults of the store.
#[track_caller]
fn assert_cold(wire: u64, what: &str) {
    let whole = FILE.len as u64;
    assert!((whole..whole / 100 * 110).contains(&wire), "{what}: {wire} bytes crossed for {whole}");
}

fn store_of(gateway: &Gateway) -> Value {
    gateway.ask("status").unwrap()["store"].clone()
}

fn store_directory(pair: &Pair) -> PathBuf {
    pair.dir.path().join("branch-state/store")
}

fn segments(store: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(store).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "seg")).collect()
}

/// Waits until a killed branch would have the file on disk, except blocks left out by a busy machine.
fn wait_until_on_disk(pair: &Pair) {
    eventually("the store has the file", LIMIT, || {
        let root = store_of(&pair.branch)["levels"][0]["bytes"].as_u64()?;
        (root >= FILE.len as u64 / 10 * 9).then_some(())
    });
}

/// Waits until a killed branch would have the whole file on disk, and a killed hub know of it.
fn wait_until_kept(pair: &Pair) {
    let now = SystemTime::now();
    // Something more, so known state is saved once more.
    fetch(pair, Request { seed: 91, len: 1 << 10 });
    wait_until_on_disk(pair);
    let peers = pair.dir.path().join("hub-state/logs");
    let hints = fs::read_dir(peers).unwrap().next().unwrap().unwrap().path().join("hints");
    eventually("what is known of the store is saved", LIMIT, || {
        let saved = fs::metadata(&hints).ok()?.modified().ok()?;
        (saved > now).then_some(())
    });
}

/// Waits until a read has noticed the damage; abandoned reads notice it, too.
fn wait_until_damaged(pair: &Pair) {
    eventually("damage is found out", LIMIT, || {
        store_of(&pair.branch)["damaged"].as_u64().filter(|damaged| *damaged > 0)
    });
}

#[test]
fn content_beyond_the_log_is_on_disk_after_a_kill() {
    let origin = Origin::server();
    let mut pair = pair(&options(&origin));
    assert_cold(fetch(&pair, FILE), "the first time");
    assert_warm(&pair, "the second time");
    let hub = pair.hub.peer();
    assert_eq!(hub["out"]["codec"], "auto");
    let named = hub["out"]["names"]["bytes"].as_u64().unwrap();
    assert!(named >= FILE.len as u64 / 10 * 9, "{hub}");
    wait_until_kept(&pair);
    assert_outlives(&mut pair, |pair| &mut pair.hub, "after the hub was killed");
    assert_outlives(&mut pair, |pair| &mut pair.branch, "after the branch was killed");
    let text =
        String::from_utf8(pair.branch.run(&["status", "-c", pair.branch.config().to_str().unwrap()]).stdout);
    let text = text.unwrap();
    assert!(text.contains("chunk store") && text.contains("named"), "{text}");
}

#[test]
fn a_limit_on_the_line_costs_names_little() {
    let origin = Origin::server();
    let thin = "[codec]\ncodec = \"wanax\"\nentropy = \"none\"\nadapt = false\n\
                [link]\nshed = false\nrate_limit = \"8 Mbit/s\"\n";
    let pair = pair(&Options::to(origin.address()).with(CACHE).with(thin));
    let file = Request { seed: 92, len: 2 << 20 };
    assert!(fetch(&pair, file) > file.len as u64);
    // Unless the machine is so busy that many a read is late.
    eventually("the file again saves 97 %", LIMIT, || {
        wait_until_stored(&pair);
        (fetch(&pair, file) < file.len as u64 * 3 / 100).then_some(())
    });
}

/// With load shedding, a gateway's default: pages of memory delay nobody.
#[test]
fn stored_noise_crosses_once_with_an_idle_disk() {
    let origin = Origin::server();
    let options = Options::to(origin.address()).without_adapting().with(CACHE);
    let file = Request { seed: 97, len: 64_000_000 };
    for rate_bytes_per_s in [None, Some(25_000_000)] {
        let pair = pair(&Options { rate_bytes_per_s, ..options.clone() });
        fetch(&pair, file);
        // A store behind its input drops some and has it the next time, and a busy machine reads late.
        eventually("all but a two-hundredth is saved", LIMIT * 2, || {
            wait_until_stored(&pair);
            let wire = fetch(&pair, file);
            let names = &pair.branch.peer()["in"]["names"];
            println!("{wire} bytes crossed at {rate_bytes_per_s:?} bytes a second; {names}");
            (wire * 200 <= file.len as u64).then_some(())
        });
    }
}

#[test]
fn kills_in_mid_transfer_never_change_a_byte() {
    let origin = Origin::server();
    let mut pair = pair(&options(&origin).with("resume_window = \"2 s\"\n"));
    let kills = std::env::var("ONCEWIRE_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(4);
    let mut rng = data::Rng::new(7);
    for turn in 0..kills {
        let mut client = TcpStream::connect(pair.forward()).unwrap();
        client.set_read_timeout(Some(LIMIT)).unwrap();
        FILE.send(&mut client).unwrap();
        let mut got = vec![0; rng.below(FILE.len)];
        client.read_exact(&mut got).unwrap();
        data::assert_same(&got, &FILE.answer()[..got.len()], "what came before the kill");
        let gateway = if turn % 2 == 0 { &mut pair.branch } else { &mut pair.hub };
        gateway.kill();
        gateway.start();
        pair.wait_until_up();
        fetch(&pair, FILE);
    }
    assert_warm(&pair, "after all kills");
}

#[test]
fn each_rule_has_its_own_codec() {
    let origins: Vec<Origin> = (0..3).map(|_| Origin::server()).collect();
    let rules: String = (origins.iter().zip(["endre", "none", "wanax"]))
        .map(|(origin, codec)| {
            let port = origin.address().port();
            format!("[[policy]]\nmatch = {{ ports = [{port}] }}\ncodec = \"{codec}\"\n")
        })
        .collect();
    let targets = origins.iter().map(Origin::address).collect();
    let options = Options { targets, ..Options::default() }.without_adapting().with(CACHE);
    let pair = pair(&options.with("[link]\nshed = false\n").with(&rules));
    let ask = |at: usize, seed| {
        let file = Request { seed, ..FILE };
        let before = pair.relay.carried();
        let got = eventually("a transfer works", LIMIT, || file.fetch(pair.forwards[at]).ok());
        data::assert_same(&got, &file.answer(), "what was fetched");
        pair.relay.carried() - before
    };
    for (at, what) in ["endre", "none"].into_iter().enumerate() {
        // The log is too small for it, and the store is not asked.
        let seed = 120 + at as u64;
        assert_cold(ask(at, seed), what);
        assert_cold(ask(at, seed), what);
    }
    let named = |pair: &Pair| pair.hub.peer()["out"]["names"]["bytes"].as_u64().unwrap();
    assert_eq!(named(&pair), 0, "{}", pair.hub.peer());
    let before = pair.hub.peer()["out"]["remembered"].as_u64().unwrap();
    assert_cold(ask(2, 122), "wanax");
    eventually("names save", LIMIT, || {
        wait_until_stored(&pair);
        is_warm(ask(2, 122)).then_some(())
    });
    assert!(named(&pair) > 0);
    assert_eq!(pair.hub.peer()["out"]["remembered"].as_u64().unwrap(), before, "nothing goes to the log");
}

#[test]
fn names_alone_without_a_store_are_said_in_the_status() {
    let origin = Origin::server();
    let without = "[cache]\nmemory = \"512 MiB\"\nlog_memory = \"1 MiB\"\n";
    let options =
        Options::to(origin.address()).with("[codec]\ncodec = \"wanax\"\nadapt = false\n").with(without);
    let pair = pair(&options);
    fetch(&pair, FILE);
    let peer = pair.hub.peer();
    assert_eq!((&peer["out"]["codec"], &peer["out"]["names"]["store"]), (&"wanax".into(), &false.into()));
    let config = pair.hub.config().to_str().unwrap();
    let text = String::from_utf8(pair.hub.run(&["status", "-c", config]).stdout).unwrap();
    assert!(text.contains("it has no chunk store, so nothing is named"), "{text}");
    let error = pair.hub.run(&["store", "stat", "-c", config]);
    assert_eq!(error.status.code(), Some(2));
}

#[test]
fn a_store_in_use_is_left_to_its_gateway() {
    let origin = Origin::server();
    let pair = pair(&options(&origin));
    let config = pair.branch.config().to_str().unwrap();
    let stat = pair.branch.run(&["store", "stat", "--json", "-c", config]);
    let stat: Value = serde_json::from_slice(&stat.stdout).unwrap();
    assert_eq!(stat["size"], 256 << 20, "the gateway answers");
    for command in ["verify", "compact"] {
        let refused = pair.branch.run(&["store", command, "-c", config]);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        let pid = format!("process {} uses this chunk store", pair.branch.pid());
        assert!(refused.status.code() == Some(1) && said.contains(&pid), "{command}: {said}");
    }
    let nowhere = pair.branch.run(&["store", "verify", "--path", pair.dir.path().to_str().unwrap()]);
    assert!(String::from_utf8_lossy(&nowhere.stderr).contains("there is no chunk store"));
}
