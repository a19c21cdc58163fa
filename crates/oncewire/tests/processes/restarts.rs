//! Both gateways' reports on their logs after a restart of one.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};

use serde_json::Value;

use crate::common::data;
use crate::common::gateway::Gateway;
use crate::common::origin::Origin;
use crate::common::pair::{Options, Pair};
use crate::common::wait::{LIMIT, eventually};
use crate::pair;

const LEN: usize = 3 << 20;

#[test]
fn both_gateways_say_the_same_after_the_branch_was_restarted() {
    say_the_same("branch");
}

#[test]
fn both_gateways_say_the_same_after_the_hub_was_restarted() {
    say_the_same("hub");
}

fn say_the_same(restarted: &str) {
    let origin = Origin::echo();
    let mut pair = pair(&Options::to(origin.address()).without_adapting());
    cross(&pair);
    for gateway in [&pair.branch, &pair.hub] {
        for half in ["out", "in"] {
            assert_eq!(
                gateway.peer()[half]["log_start"],
                Value::Null,
                "of a first log there is nothing to say"
            );
        }
        assert!(!gateway.whole_log().contains("the log of what is"), "{}", gateway.log());
    }
    for is_kept in [true, false] {
        let said = [&pair.branch, &pair.hub].map(|gateway| gateway.whole_log().len());
        let gateway = if restarted == "hub" { &mut pair.hub } else { &mut pair.branch };
        gateway.terminate();
        assert!(gateway.wait(LIMIT).success());
        if !is_kept {
            std::fs::remove_dir_all(pair.dir.path().join(format!("{restarted}-state"))).unwrap();
        }
        let gateway = if restarted == "hub" { &mut pair.hub } else { &mut pair.branch };
        gateway.start();
        pair.wait_until_up();
        cross(&pair);
        let ends = [(&pair.branch, said[0]), (&pair.hub, said[1])];
        for [from, to] in [[ends[0], ends[1]], [ends[1], ends[0]]] {
            agree(from, to, is_kept);
        }
        let counted = |end: &Gateway, half: &str, key: &str| end.peer()[half][key].as_u64().unwrap();
        for (end, half) in
            [(&pair.branch, "out"), (&pair.branch, "in"), (&pair.hub, "out"), (&pair.hub, "in")]
        {
            let counts = ["log_resumes", "log_restarts"].map(|key| counted(end, half, key));
            // The restarted one counts from 0 again.
            let is_new = std::ptr::eq(end, if restarted == "hub" { &pair.hub } else { &pair.branch });
            let expected = match (is_kept, is_new) {
                (true, _) => [1, 0],
                (false, true) => [0, 1],
                (false, false) => [1, 1],
            };
            assert_eq!(counts, expected, "{half}, {restarted} was restarted, its log is kept: {is_kept}");
        }
    }
}

/// Sends bytes through both gateways and back.
fn cross(pair: &Pair) {
    let sent = data::random(90, LEN);
    let back = eventually("a transfer works", LIMIT, || {
        let mut client = TcpStream::connect(pair.forward()).ok()?;
        client.set_read_timeout(Some(LIMIT)).ok()?;
        let mut writer = client.try_clone().ok()?;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _ = writer.write_all(&sent).and_then(|()| writer.shutdown(Shutdown::Write));
            });
            let mut back = Vec::new();
            client.read_to_end(&mut back).ok().map(|_| back)
        })
    });
    data::assert_same(&back, &sent, "what came back");
}

/// Compares the sending and the receiving end's reports on one direction's log, each from a place in its own log on.
fn agree((from, from_place): (&Gateway, usize), (to, to_place): (&Gateway, usize), is_kept: bool) {
    let (out, inbound) = (&from.peer()["out"]["log_start"], &to.peer()["in"]["log_start"]);
    assert_eq!((&out["resumed"], &inbound["resumed"]), (&is_kept.into(), &is_kept.into()), "{out} {inbound}");
    let [out_bytes, in_bytes] = [out, inbound].map(|start| start["bytes"].as_u64().unwrap());
    match is_kept {
        true => assert!(out_bytes > LEN as u64 / 2 && out_bytes <= in_bytes, "{out} {inbound}"),
        false => assert!(out["reason"].is_string() && inbound["reason"].is_string(), "{out} {inbound}"),
    }
    let lines = [(from, from_place, "sent to", out_bytes), (to, to_place, "received from", in_bytes)];
    let epochs = lines.map(|(gateway, place, direction, bytes)| {
        let log = gateway.whole_log();
        let of = format!("the log of what is {direction} the peer ");
        let lines: Vec<&str> = log[place..].lines().filter(|line| line.contains(&of)).collect();
        let [line] = lines[..] else { panic!("{lines:?} in\n{log}") };
        let phrase = if is_kept { "is resumed in epoch " } else { "starts over as epoch " };
        let (_, rest) = line.split_once(phrase).unwrap_or_else(|| panic!("no {phrase:?} in {line}"));
        let (epoch, rest) = rest.split_once(": ").unwrap();
        assert!(!is_kept || rest.contains(&format!("{bytes} bytes")), "{line}");
        epoch.to_owned()
    });
    assert_eq!(epochs[0], epochs[1]);
    let epoch = [&from.peer()["out"]["epoch"], &to.peer()["in"]["epoch"]].map(Value::to_string);
    assert_eq!(epoch, epochs);
}
