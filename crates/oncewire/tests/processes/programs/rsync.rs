//! rsync against its own daemon, both ways.

use rustix::process::Signal;

use super::{Service, command, missing, run};
use crate::common::data;
use crate::common::pair::Options;
use crate::common::wait::free_address;
use crate::pair;

#[test]
fn rsync_fetches_and_sends_through_forward() {
    if missing(&["rsync"]) {
        return;
    }
    let (dir, address) = (tempfile::tempdir().unwrap(), free_address());
    let at = |name: &str| dir.path().join(name);
    std::fs::create_dir(at("module")).unwrap();
    for file in 0..30u64 {
        std::fs::write(at("module").join(format!("file{file}")), data::text(120 + file, 50_000)).unwrap();
    }
    let config = format!(
        "use chroot = no\npid file = {0}/pid\n[files]\npath = {0}/module\nread only = no\n{1}",
        dir.path().display(),
        if rustix::process::geteuid().is_root() { "uid = 0\ngid = 0\n" } else { "" }
    );
    std::fs::write(at("rsyncd.conf"), config).unwrap();
    let mut daemon = command("rsync");
    daemon.args(["--daemon", "--no-detach", "--address", "127.0.0.1", "--port", &address.port().to_string()]);
    daemon.arg("--config").arg(at("rsyncd.conf"));
    let _service = Service::start(&mut daemon, address, &at("log"), Signal::TERM);
    let pair = pair(&Options::to(address));
    let there = format!("rsync://{}/files/", pair.forward());
    let here = format!("{}/", at("here").display());

    run(command("rsync").args(["-a", &there, &here]));
    std::fs::write(at("here").join("new"), data::random(121, 300_000)).unwrap();
    run(command("rsync").args(["-a", &here, &there]));
    let names: Vec<_> =
        std::fs::read_dir(at("module")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 31);
    for name in names {
        let (got, sent) = (at("here").join(&name), at("module").join(&name));
        data::assert_same(&std::fs::read(got).unwrap(), &std::fs::read(sent).unwrap(), &format!("{name:?}"));
    }
}
