//! `oncewire cache clear`: forgotten content and continuing transfers.

use std::io::Read as _;
use std::net::TcpStream;

use crate::common::data;
use crate::common::gateway::Gateway;
use crate::common::origin::{Origin, Request};
use crate::common::pair::{Options, Pair};
use crate::common::wait::{LIMIT, eventually};
use crate::pair;

const REPEATED: Request = Request { seed: 70, len: 6 << 20 };

/// Fetches repeated content and returns its bytes on the link.
fn fetch(pair: &Pair) -> u64 {
    let before = pair.relay.carried();
    let got = eventually("a transfer works", LIMIT, || REPEATED.fetch(pair.forward()).ok());
    data::assert_same(&got, &REPEATED.answer(), "what was fetched");
    pair.relay.carried() - before
}

/// Expects that the next transfer costs as much as the first did, and the one after it next to nothing.
fn assert_cold_then_warm(pair: &Pair, first: u64, what: &str) {
    let (cold, warm) = (fetch(pair), fetch(pair));
    assert!(cold > first / 10 * 9, "{what}: {cold} bytes crossed after clearing, {first} at first");
    assert!(warm < first / 10, "{what}: {warm} bytes crossed for a repeat, {first} at first");
}

#[test]
fn a_running_gateway_forgets_at_either_end_and_learns_again() {
    let origin = Origin::server();
    let pair = pair(&Options::to(origin.address()).without_adapting());
    let first = fetch(&pair);
    assert!(fetch(&pair) < first / 10, "it is warm");
    for (gateway, name, peer) in [(&pair.hub, "hub", "branch"), (&pair.branch, "branch", "hub")] {
        for arguments in [&["--peer", peer][..], &[]] {
            let mut was_late = false;
            let report = eventually("it is cleared in time", LIMIT, || {
                let report = gateway.clear_cache_in_time(arguments);
                if report.is_none() {
                    // It is cleared all the same, and has to be there again; on so slow a disk later.
                    fetch(&pair);
                    was_late = true;
                }
                report
            });
            let cleared = &report["cleared"][0];
            assert_eq!((report["cleared"].as_array().unwrap().len(), &cleared["peer"]), (1, &peer.into()));
            assert!(cleared["memory"].as_u64().unwrap() >= REPEATED.len as u64, "{report}");
            assert!(was_late || cleared["disk"].as_u64().unwrap() > 1 << 20, "{report}");
            assert_cold_then_warm(&pair, first, name);
        }
        let again = gateway.clear_cache(&["--peer", "nobody"]);
        assert!(again.unwrap_err().contains("there is no peer \"nobody\""));
    }
}

#[test]
fn transfer_goes_on_exactly_while_logs_are_cleared() {
    let origin = Origin::server();
    let pair = pair(&Options::to(origin.address()).without_adapting());
    fetch(&pair);
    let request = Request { seed: REPEATED.seed, len: 40 << 20 };
    let mut client = TcpStream::connect(pair.forward()).unwrap();
    client.set_read_timeout(Some(LIMIT)).unwrap();
    request.send(&mut client).unwrap();
    let mut got = Vec::new();
    for turn in 0..8 {
        let part = (request.len / 10) as u64;
        client.by_ref().take(part).read_to_end(&mut got).unwrap();
        let gateway = if turn % 2 == 0 { &pair.hub } else { &pair.branch };
        eventually("it is cleared in time", LIMIT, || gateway.clear_cache_in_time(&[]));
    }
    client.read_to_end(&mut got).unwrap();
    data::assert_same(&got, &request.answer(), "what came while logs were cleared");
    let mismatches: u64 = [&pair.hub, &pair.branch].map(|gateway| gateway.counter("mismatches")).iter().sum();
    assert_eq!(mismatches, 0, "clearing is nobody's mistake");
}

#[test]
fn without_a_gateway_the_files_are_removed() {
    let origin = Origin::server();
    let mut pair = pair(&Options::to(origin.address()).without_adapting());
    let first = fetch(&pair);
    pair.branch.terminate();
    pair.hub.terminate();
    for gateway in [&mut pair.branch, &mut pair.hub] {
        assert!(gateway.wait(LIMIT).success());
    }
    let report = pair.hub.clear_cache(&[]).unwrap();
    assert_eq!(
        (&report["cleared"][0]["peer"], &report["cleared"][0]["memory"]),
        (&"branch".into(), &0.into())
    );
    assert!(report["cleared"][0]["disk"].as_u64().unwrap() > 1 << 20, "{report}");
    let logs = pair.dir.path().join("hub-state/logs");
    assert_eq!(std::fs::read_dir(logs).unwrap().count(), 0, "nothing is left");
    pair.branch.start();
    pair.hub.start();
    pair.wait_until_up();
    assert_cold_then_warm(&pair, first, "after the files were removed");
}

#[test]
fn a_gateway_without_admin_keeps_its_files_while_it_runs() {
    let origin = Origin::server();
    let pair = pair(&Options::to(origin.address()).without_adapting());
    let first = fetch(&pair);
    // As with a configuration without an admin interface, or a gateway without an answer.
    let text = std::fs::read_to_string(pair.hub.config()).unwrap();
    let silent: String =
        text.lines().filter(|line| !line.starts_with("admin")).map(|line| format!("{line}\n")).collect();
    let admin = pair.hub.admin();
    let silent = Gateway::new(crate::binary(), pair.dir.path(), "silent", admin, &silent);
    let refused = silent.clear_cache(&[]).unwrap_err();
    assert!(refused.contains("a gateway uses the directory"), "{refused}");
    assert!(fetch(&pair) < first / 10, "nothing was cleared");
}
