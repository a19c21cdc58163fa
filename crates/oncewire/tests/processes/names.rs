//! A peer given by name, with the name moved to another address.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::gateway::Gateway;
use crate::common::origin::{Origin, Request};
use crate::common::pair::Options;
use crate::common::wait::{LIMIT, eventually, free_address};
use crate::pair;

#[test]
fn peer_with_a_renumbered_name_is_found_again() {
    if let Err(reason) = private_hosts() {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{reason}");
        println!("skipped: {reason}");
        return;
    }
    let origin = Origin::server();
    let mut pair = pair(&Options { straight: true, ..Options::to(origin.address()) });
    pair.branch.kill();
    let hosts = pair.dir.path().join("hosts");
    std::fs::write(&hosts, "127.0.0.9 hub.test\n").unwrap();
    let config = std::fs::read_to_string(pair.branch.config()).unwrap();
    let admin = free_address();
    let lines = config.lines().map(|line| match line.split(' ').next() {
        Some("address") => format!("address = \"hub.test:{}\"\n", pair.tunnel.port()),
        Some("admin") => format!("admin = \"{admin}\"\n"),
        _ => format!("{line}\n"),
    });
    let program = with_hosts(pair.dir.path(), &hosts);
    let mut roamer = Gateway::new(&program, pair.dir.path(), "roamer", admin, &lines.collect::<String>());
    roamer.start();
    eventually("the name is tried", LIMIT, || {
        (roamer.ask("status")?["peers"][0]["state"] == "down").then_some(())
    });
    std::fs::write(&hosts, "127.0.0.1 hub.test\n").unwrap();
    roamer.wait_until_up(LIMIT);
    let request = Request { seed: 1, len: 100_000 };
    assert!(request.fetch(pair.forward()).unwrap() == request.answer());
}

/// Says whether a process can be given a file of hosts of its own.
fn private_hosts() -> Result<(), String> {
    match Command::new("unshare").args(["-rm", "true"]).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("no namespace of mounts: {}", String::from_utf8_lossy(&output.stderr))),
        Err(error) => Err(format!("unshare: {error}")),
    }
}

/// A program equal to `oncewire` with this hosts file.
fn with_hosts(dir: &Path, hosts: &Path) -> PathBuf {
    let program = dir.join("oncewire-with-hosts");
    let script = format!(
        "#!/bin/sh\nexec unshare -rm sh -c 'mount --bind \"$0\" /etc/hosts && exec \"$@\"' '{}' '{}' \"$@\"\n",
        hosts.display(),
        crate::binary().display()
    );
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    program
}
