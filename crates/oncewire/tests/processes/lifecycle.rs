//! The daemon and the system that it runs on: reload by signal, what the service manager hears, and privileges.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::chown;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, geteuid, kill_process};

use super::common::data::random;
use super::common::gateway::keygen;
use super::common::origin::Origin;
use super::common::pair::Options;
use super::common::wait::{LIMIT, eventually, free_address};
use super::{binary, pair};

#[test]
fn a_reload_by_signal_leaves_a_download_alone() {
    let data = random(31, 4 << 20);
    let served = data.clone();
    let origin = Origin::start(move |mut stream| {
        let _ = stream.write_all(&served);
    });
    let pair = pair(&Options::to(origin.address()));
    let mut download = TcpStream::connect(pair.forward()).unwrap();
    let mut received = vec![0; 1 << 20];
    download.read_exact(&mut received).unwrap();

    let good = fs::read_to_string(pair.branch.config()).unwrap();
    fs::write(pair.branch.config(), good.replace("[gateway]", "[gatevay]")).unwrap();
    pair.branch.reload();
    eventually("the bad file is refused", LIMIT, || {
        pair.branch.log().contains("was not reloaded and stays as it was").then_some(())
    });
    assert!(pair.branch.log().contains("gatevay"), "the reason stands there");

    let added = free_address();
    let intercept = format!(
        "\n[[intercept]]\nmode = \"forward\"\nlisten = \"{added}\"\ntarget = \"{}\"\npeer = \"hub\"\n",
        origin.address()
    );
    fs::write(pair.branch.config(), good + &intercept).unwrap();
    pair.branch.reload();
    let mut second = eventually("the added address answers", LIMIT, || TcpStream::connect(added).ok());
    let mut all = Vec::new();
    second.read_to_end(&mut all).unwrap();
    assert!(all == data, "the added interception delivers");
    download.read_to_end(&mut received).unwrap();
    assert!(received == data, "and the download went on");
}

/// A lone gateway as a service manager starts it.
struct Service {
    child: Child,
    manager: UnixDatagram,
    dir: tempfile::TempDir,
}

impl Service {
    /// Starts one with these keys in `[gateway]`; its files belong to `owner`.
    fn start(keys: &str, owner: Option<u32>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        keygen(binary(), &path("a.key"));
        fs::write(path("a.toml"), format!("[gateway]\nname = \"a\"\nkey_file = \"a.key\"\n{keys}\n"))
            .unwrap();
        let manager = UnixDatagram::bind(path("notify")).unwrap();
        manager.set_read_timeout(Some(LIMIT)).unwrap();
        if owner.is_some() {
            let all = [dir.path().to_owned(), path("a.key"), path("a.toml"), path("notify")];
            all.iter().for_each(|path: &PathBuf| chown(path, owner, owner).unwrap());
        }
        let child = Command::new(binary())
            .args(["run", "-c"])
            .arg(path("a.toml"))
            .env("NOTIFY_SOCKET", path("notify"))
            .stdin(Stdio::null())
            .stderr(fs::File::create(path("log")).unwrap())
            .spawn()
            .unwrap();
        Self { child, manager, dir }
    }

    /// Waits for a message that begins so; pings of the watchdog in between are passed over.
    fn hears(&self, start: &str) {
        let mut buffer = [0; 256];
        loop {
            let len = self.manager.recv(&mut buffer).unwrap();
            let message = String::from_utf8_lossy(&buffer[..len]).into_owned();
            if message.starts_with(start) {
                return;
            }
            assert_eq!(message, "WATCHDOG=1", "while waiting for {start}");
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Changes its configuration and waits until it has been read again.
    fn reload(&self, old: &str, new: &str) {
        let path = self.dir.path().join("a.toml");
        let config = fs::read_to_string(&path).unwrap();
        assert!(config.contains(old), "{config}");
        fs::write(path, config.replace(old, new)).unwrap();
        self.signal(Signal::HUP);
        self.hears("RELOADING=1\nMONOTONIC_USEC=");
        self.hears("READY=1");
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap()
    }

    /// A line of its /proc/PID/status.
    fn status(&self, key: &str) -> String {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with(key)).unwrap();
        line.split_once(':').unwrap().1.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_service_manager_hears_of_start_life_reload_and_stop() {
    let mut service = Service::start("", None);
    service.hears("READY=1");
    service.hears("WATCHDOG=1");
    service.signal(Signal::HUP);
    service.hears("RELOADING=1\nMONOTONIC_USEC=");
    service.hears("READY=1");
    service.signal(Signal::TERM);
    service.hears("STOPPING=1");
    assert!(service.child.wait().unwrap().success());
}

#[test]
fn a_reload_changes_how_much_is_logged() {
    let service = Service::start("log_level = \"error\"", None);
    service.hears("READY=1");
    assert!(!service.log().contains("gateway started"), "{}", service.log());
    service.reload("\"error\"", "\"info\"");
    assert!(service.log().contains("reload: the log level changed"), "{}", service.log());
    service.reload("\"info\"", "\"loud\"");
    assert!(service.log().contains("log_level: unknown value \"loud\""), "{}", service.log());
}

#[test]
fn a_gateway_that_is_told_to_stop_while_it_reads_its_configuration_again_stops() {
    let mut service = Service::start("", None);
    service.hears("READY=1");
    let config = service.dir.path().join("a.toml");
    fs::remove_file(&config).unwrap();
    // Whoever opens it waits until somebody writes.
    assert!(Command::new("mkfifo").arg(&config).status().unwrap().success());
    service.signal(Signal::HUP);
    service.hears("RELOADING=1\nMONOTONIC_USEC=");
    service.signal(Signal::INT);
    let ended = eventually("it ends", LIMIT, || service.child.try_wait().unwrap());
    assert!(ended.success());
}

#[test]
fn what_the_kernel_lacks_is_said_once() {
    let dir = tempfile::tempdir().unwrap();
    let key = keygen(binary(), &dir.path().join("b.key"));
    let peer = format!("drain = \"1 s\"\n[[peer]]\nname = \"b\"\npublic_key = \"{key}\"\n");
    let service =
        Service::start(&format!("{peer}address = \"127.0.0.1:9\"\n[link]\ncongestion = \"nobodys\""), None);
    service.hears("READY=1");
    service.reload("\"1 s\"", "\"2 s\"");
    service.reload("\"2 s\"", "\"3 s\"");
    let said = service.log().matches("does not offer congestion control").count();
    assert_eq!(said, 1, "{}", service.log());
    service.reload("nobodys", "nobodys2");
    let said = service.log().matches("does not offer congestion control").count();
    assert_eq!(said, 2, "{}", service.log());
}

#[test]
fn a_process_that_was_stopped_for_longer_than_its_watchdog_goes_on() {
    let admin = free_address();
    let service = Service::start(&format!("admin = \"{admin}\"\nwatchdog = \"2 s\""), None);
    service.hears("READY=1");
    service.signal(Signal::STOP);
    // Longer than its limit, by the clock of somebody else: nothing is heard meanwhile.
    service.manager.set_read_timeout(Some(Duration::from_millis(2500))).unwrap();
    while service.manager.recv(&mut [0; 64]).is_ok() {}
    service.manager.set_read_timeout(Some(LIMIT)).unwrap();
    service.signal(Signal::CONT);
    service.hears("WATCHDOG=1");
    assert!(health(admin).contains("ok"));
}

fn health(admin: SocketAddr) -> String {
    let mut stream = TcpStream::connect(admin).unwrap();
    stream.write_all(format!("GET /health HTTP/1.0\r\nHost: {admin}\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn root_becomes_the_user_and_keeps_what_low_ports_need() {
    if !geteuid().is_root() {
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "this test needs root");
        eprintln!("skipped: only root can become somebody else");
        return;
    }
    const NOBODY: u32 = 65534;
    assert!(fs::read_to_string("/etc/passwd").unwrap().contains("nobody:x:65534:65534:"));
    let plain = Service::start("user = \"nobody\"", Some(NOBODY));
    plain.hears("READY=1");
    assert_eq!(plain.status("Uid"), "65534 65534 65534 65534");
    assert_eq!(plain.status("Gid"), "65534 65534 65534 65534");
    assert_eq!(plain.status("Groups"), "65534");
    assert_eq!(plain.status("NoNewPrivs"), "1");
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(plain.status(set), "0000000000000000", "{set}");
    }
    for thread in fs::read_dir(format!("/proc/{}/task", plain.child.id())).unwrap() {
        let status = fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
        assert!(status.contains("\nUid:\t65534\t65534\t65534\t65534\n"), "{status}");
    }
    // CAP_NET_BIND_SERVICE is bit 10. An address of its own, so that nothing else listens there.
    let low = Service::start("user = \"nobody\"\nlisten = \"127.7.7.7:740\"", Some(NOBODY));
    low.hears("READY=1");
    for set in ["CapPrm", "CapEff", "CapBnd"] {
        assert_eq!(low.status(set), "0000000000000400", "{set}");
    }
}
