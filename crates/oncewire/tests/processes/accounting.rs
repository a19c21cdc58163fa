//! Counts of `status`, compared with an independent counter.

use std::io::Read;
use std::net::TcpStream;

use crate::common::data;
use crate::common::origin::{Origin, receipt, upload};
use crate::common::pair::{Options, Pair};
use crate::common::wait::{LIMIT, eventually};
use crate::pair;

#[test]
fn status_and_the_relay_count_the_same() {
    let sink = Origin::sink();
    let pair = pair(&Options::to(sink.address()).without_adapting());
    let old = data::text(70, 6 << 20);
    let new = data::edited(&old, 71, 300);
    let noise = data::random(72, 4 << 20);
    let mut delivered = 0;
    for (file, what) in
        [(&old, "first"), (&old, "again"), (&new, "edited"), (&noise, "noise"), (&noise, "again")]
    {
        let before = pair.relay.carried();
        let answer = receipt(file);
        assert_eq!(upload(pair.forward(), file).unwrap(), answer, "{what}");
        delivered += (file.len() + answer.len()) as u64;
        let crossed = pair.relay.carried() - before;
        println!("{what}: {} bytes, {crossed} crossed", file.len());
    }
    let carried = settled(&pair);
    for (name, gateway) in [("branch", &pair.branch), ("hub", &pair.hub)] {
        let peer = gateway.peer();
        assert_eq!(peer["delivered"].as_u64(), Some(delivered), "{name}");
        let counted = 1.0 - carried as f64 / delivered as f64;
        let said = peer["savings"].as_f64().unwrap();
        assert!((said - counted).abs() <= 0.005, "{name} says {said}, the relay {counted}: {peer}");
        let wire = peer["wire"].as_u64().unwrap();
        assert!(wire.abs_diff(carried) <= carried / 200 + 4096, "{name}: {wire} wire, {carried} carried");
    }
    // 20 MB, all known already except the first text and the first noise.
    assert!(carried < 7 << 20, "{carried} bytes crossed");
}

#[test]
fn incompressible_bytes_cost_next_to_nothing() {
    let sink = Origin::sink();
    let pair = pair(&Options::to(sink.address()).without_adapting());
    let before = settled(&pair);
    let noise = data::random(73, 16 << 20);
    upload(pair.forward(), &noise).unwrap();
    let crossed = settled(&pair) - before;
    let growth = crossed as f64 / noise.len() as f64 - 1.0;
    // Framing, acknowledgements and TLS together.
    assert!(growth < 0.015, "{:.3} % more than the bytes themselves", growth * 100.0);
}

#[test]
fn uncoded_flow_has_its_reason() {
    let (plain, sink) = (Origin::sink(), Origin::sink());
    let options = Options {
        targets: vec![plain.address(), sink.address()],
        branch: format!("[[policy]]\nmatch = {{ ports = [{}] }}\ncodec = \"none\"\n", plain.address().port()),
        ..Options::default()
    };
    let pair = pair(&options);
    let file = data::text(74, 1 << 20);
    for forward in &pair.forwards {
        assert_eq!(upload(*forward, &file).unwrap(), receipt(&file));
    }
    let status = pair.branch.ask("status").unwrap();
    let rows = status["flows_not_coded"].as_array().unwrap();
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!(rows[0]["peer"], "hub");
    assert_eq!(rows[0]["outcome"], "uncoded");
    assert_eq!(rows[0]["count"], 1);
    assert!(rows[0]["destination"].as_str().unwrap().contains(&plain.address().port().to_string()));
    assert!(!rows[0]["reason"].as_str().unwrap().is_empty());
}

#[test]
fn metrics_and_health_are_served() {
    let origin = Origin::echo();
    let pair = pair(&Options::to(origin.address()));
    let metrics = get(&pair, "/metrics");
    assert!(metrics.starts_with("HTTP/1.1 200"), "{metrics}");
    assert!(metrics.contains("oncewire_") && metrics.contains("hub"), "{metrics}");
    assert!(get(&pair, "/health").starts_with("HTTP/1.1 200"));
    assert!(get(&pair, "/nothing").starts_with("HTTP/1.1 404"));
}

fn get(pair: &Pair, path: &str) -> String {
    let mut stream = TcpStream::connect(pair.branch.admin()).unwrap();
    std::io::Write::write_all(
        &mut stream,
        format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes(),
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The relay's bytes once the last acknowledgements are through.
fn settled(pair: &Pair) -> u64 {
    let (mut last, mut still) = (0, 0);
    eventually("the link falls silent", LIMIT, || {
        let now = pair.relay.carried();
        still = if now == last { still + 1 } else { 0 };
        last = now;
        (still == 20).then_some(now)
    })
}
