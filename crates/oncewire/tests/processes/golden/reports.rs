//! Keys and types in the reports of an earlier build.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use serde_json::Value;

use super::shape::Shape;
use super::{PIECE, fetch, golden, options, server, wait_until_stored};
use crate::binary;
use crate::common::data;
use crate::common::gateway::Gateway;
use crate::common::origin::Request;
use crate::common::pair::{Options, Pair};
use crate::common::wait::{LIMIT, eventually, pause};

/// The shapes of all reports, by command.
type Shapes = BTreeMap<String, Shape>;

/// Writes the shapes of the reports of `binary`.
pub(super) fn make(binary: &Path, golden: &Path) {
    let shapes = collect(binary, golden, &|_| true);
    let json: Value = shapes.iter().map(|(name, shape)| (name.clone(), shape.to_json())).collect();
    std::fs::write(golden.join("reports.json"), format!("{json:#}\n")).unwrap();
}

/// Has a pair in many situations, and the tools, report; a running pair until `is_enough`.
fn collect(binary: &Path, golden: &Path, is_enough: &dyn Fn(&Shapes) -> bool) -> Shapes {
    let mut shapes = Shapes::new();
    let (origin, uncoded) = (server(), server());
    let port = uncoded.address().port();
    let policy = format!("[[policy]]\nmatch = {{ ports = [{port}] }}\ncodec = \"none\"\n");
    let options = options(&origin, golden.join("clear"), false);
    let targets = vec![origin.address(), uncoded.address()];
    let branch = options.branch.clone() + &policy;
    let mut pair = Pair::start_with(binary, &Options { targets, branch, ..options });
    sample(&mut shapes, &pair);
    fetch(&pair, PIECE);
    fetch(&pair, Request { seed: 71, ..PIECE });
    PIECE.fetch(pair.forwards[1]).unwrap();
    pair.hub.terminate();
    assert!(pair.hub.wait(LIMIT).success());
    sample_one(&mut shapes, &pair.branch);
    pair.hub.start();
    pair.wait_until_up();
    let held = pair.forwards.iter().map(|&forward| hold(forward)).collect::<Vec<_>>();
    eventually("all flows are open and measured", LIMIT, || {
        let flows = |gateway: &Gateway| gateway.ask("flows").unwrap()["flows"].as_array().unwrap().len();
        let is_whole = [&pair.branch, &pair.hub]
            .iter()
            .all(|gateway| gateway.peer()["rtt_ms"].is_number() && flows(gateway) == held.len());
        is_whole.then_some(())
    });
    let begun = Instant::now();
    sample(&mut shapes, &pair);
    while !is_enough(&shapes) && begun.elapsed() < LIMIT {
        pause();
        sample(&mut shapes, &pair);
    }
    drop(held);
    wait_until_stored(&pair);
    add(&mut shapes, "cache clear", &pair.branch.clear_cache(&[]).unwrap());
    fetch(&pair, PIECE);
    wait_until_stored(&pair);
    pair.branch.terminate();
    assert!(pair.branch.wait(LIMIT).success());
    tools(&mut shapes, binary, pair.dir.path());
    shapes
}

/// Adds the reports of the commands without a running gateway.
fn tools(shapes: &mut Shapes, binary: &Path, dir: &Path) {
    std::fs::write(dir.join("content"), data::text(72, 200_000)).unwrap();
    let store = ["--json", "-c", "branch.toml"];
    for (name, arguments) in [
        ("store stat", &store[..]),
        ("store verify", &store),
        ("store compact", &store),
        ("measure", &["--json", "content"]),
        ("train", &["--json", "content", "content"]),
    ] {
        let words = name.split(' ').chain(arguments.iter().copied());
        let output = Command::new(binary).current_dir(dir).args(words).output().unwrap();
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        add(shapes, name, &serde_json::from_slice(&output.stdout).unwrap());
    }
}

fn add(shapes: &mut Shapes, name: &str, value: &Value) {
    shapes.entry(name.to_owned()).or_default().add(value);
}

fn sample(shapes: &mut Shapes, pair: &Pair) {
    sample_one(shapes, &pair.branch);
    sample_one(shapes, &pair.hub);
}

/// Adds what one gateway reports at the moment.
fn sample_one(shapes: &mut Shapes, gateway: &Gateway) {
    for command in ["status", "flows"] {
        add(shapes, command, &gateway.ask(command).unwrap());
    }
    let text = metrics(gateway.admin());
    let kinds: BTreeMap<&str, &str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
    let shape = shapes.entry("metrics".to_owned()).or_default();
    for line in text.lines().filter(|line| !line.starts_with('#') && line.contains(' ')) {
        let (name, labels) = line.split_once('{').unwrap_or((line.split(' ').next().unwrap(), ""));
        let family = ["_total", "_info"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        let labels: Vec<&str> = labels
            .split('"')
            .step_by(2)
            .filter_map(|part| part.trim_start_matches(',').strip_suffix('='))
            .collect();
        let kind = kinds.get(family).or(kinds.get(name)).copied().unwrap_or("untyped");
        shape.add_metric(format!("{name}{{{}}}", labels.join(",")), kind);
    }
}

fn metrics(admin: SocketAddr) -> String {
    let mut stream = TcpStream::connect(admin).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text.split_once("\r\n\r\n").unwrap().1.replace('\r', "")
}

/// Opens a flow that stays: half a request has no answer.
fn hold(forward: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(forward).unwrap();
    stream.write_all(&[0; 8]).unwrap();
    stream
}

#[test]
fn reports_keep_their_stored_keys_and_types() {
    let stored: Value =
        serde_json::from_slice(&std::fs::read(golden().join("reports.json")).unwrap()).unwrap();
    let stored = stored.as_object().unwrap();
    let faults = |shapes: &Shapes, names: &[&str]| -> Vec<String> {
        let all = stored.iter().filter(|(name, _)| names.is_empty() || names.contains(&name.as_str()));
        all.flat_map(|(name, shape)| {
            let later = shapes.get(name).cloned().unwrap_or_default();
            Shape::from_json(shape).faults(&later).into_iter().map(move |fault| format!("{name}: {fault}"))
        })
        .collect()
    };
    let shapes =
        collect(binary(), &golden(), &|shapes| faults(shapes, &["status", "flows", "metrics"]).is_empty());
    let faults = faults(&shapes, &[]);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
