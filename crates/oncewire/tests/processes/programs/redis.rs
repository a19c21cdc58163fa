//! Redis: small requests in a hurry, pipelines, and large values.

use std::process::Stdio;

use rustix::process::Signal;

use super::{Service, command, missing, run};
use crate::common::data;
use crate::common::pair::Options;
use crate::common::wait::free_address;
use crate::pair;

#[test]
fn redis_answers_through_forward() {
    if missing(&["redis-server", "redis-cli"]) {
        return;
    }
    let (dir, address) = (tempfile::tempdir().unwrap(), free_address());
    let mut server = command("redis-server");
    server.current_dir(dir.path()).args(["--bind", "127.0.0.1", "--port", &address.port().to_string()]);
    server.args(["--save", "", "--appendonly", "no", "--daemonize", "no"]);
    let _service = Service::start(&mut server, address, &dir.path().join("log"), Signal::TERM);
    let pair = pair(&Options::to(address));
    let cli = || {
        let mut cli = command("redis-cli");
        cli.args(["-h", "127.0.0.1", "-p", &pair.forward().port().to_string()]);
        cli
    };

    // A value as large as a file, from standard input, and back.
    let value = data::text(110, 4_000_000);
    let file = dir.path().join("value");
    std::fs::write(&file, &value).unwrap();
    let input = || Stdio::from(std::fs::File::open(&file).unwrap());
    assert_eq!(run(cli().args(["-x", "SET", "large"]).stdin(input())).trim(), "OK");
    let back = run(cli().args(["--raw", "GET", "large"]));
    data::assert_same(back.strip_suffix('\n').unwrap_or(&back).as_bytes(), &value, "the value");

    // Ten thousand requests without waiting for an answer.
    let requests: String = (0..10_000).map(|key| format!("SET key:{key} {}\r\n", key * 7)).collect();
    std::fs::write(dir.path().join("requests"), requests).unwrap();
    let pipe = std::fs::File::open(dir.path().join("requests")).unwrap();
    let report = run(cli().arg("--pipe").stdin(Stdio::from(pipe)));
    assert!(report.contains("errors: 0, replies: 10000"), "{report}");
    assert_eq!(run(cli().args(["GET", "key:9999"])).trim(), "69993");
    assert_eq!(run(cli().arg("DBSIZE")).trim(), "10001");
}

#[test]
fn redis_subscribers_hear_at_once() {
    use std::io::{BufRead, BufReader};
    if missing(&["redis-server", "redis-cli"]) {
        return;
    }
    let (dir, address) = (tempfile::tempdir().unwrap(), free_address());
    let mut server = command("redis-server");
    server.current_dir(dir.path()).args(["--bind", "127.0.0.1", "--port", &address.port().to_string()]);
    server.args(["--save", "", "--appendonly", "no", "--daemonize", "no"]);
    let _service = Service::start(&mut server, address, &dir.path().join("log"), Signal::TERM);
    let pair = pair(&Options::to(address));
    let port = pair.forward().port().to_string();
    let mut listener =
        command("redis-cli").args(["-p", &port, "SUBSCRIBE", "news"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(listener.stdout.take().unwrap()).lines();
    assert_eq!(lines.by_ref().take(3).last().unwrap().unwrap(), "1");
    for number in 0..20 {
        run(command("redis-cli").args(["-p", &port, "PUBLISH", "news", &format!("item {number}")]));
        assert_eq!(lines.by_ref().take(3).last().unwrap().unwrap(), format!("item {number}"));
    }
    listener.kill().unwrap();
    listener.wait().unwrap();
}
