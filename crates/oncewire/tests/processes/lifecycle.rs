//! The daemon and its system: reloads by signal, service manager, and privileges.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::chown;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, Signal, geteuid, getrlimit, kill_process, prlimit};

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

const NOBODY: u32 = 65534;

/// A lone gateway as a service manager starts it.
struct Service {
    child: Child,
    manager: UnixDatagram,
    dir: tempfile::TempDir,
}

impl Service {
    /// Starts one with these keys in `[gateway]`; its files belong to `owner`.
    fn start(keys: &str, owner: Option<u32>) -> Self {
        Self::start_with(keys, owner, |_| {})
    }

    /// The same with a changed command, by default with its log in `dir/log`.
    fn start_with(keys: &str, owner: Option<u32>, change: impl FnOnce(&mut Command)) -> Self {
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
        let mut command = Command::new(binary());
        command.args(["run", "-c"]).arg(path("a.toml")).env("NOTIFY_SOCKET", path("notify"));
        command.stdin(Stdio::null()).stderr(fs::File::create(path("log")).unwrap());
        change(&mut command);
        let child = command.spawn().unwrap();
        Self { child, manager, dir }
    }

    /// Waits for a message with this beginning; pings of the watchdog in between are passed over.
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

    /// Limits its threads to this number, as its own user may.
    fn limit_threads(&self, most: &str) {
        let mut command = Command::new("prlimit");
        command
            .arg(format!("--pid={}", self.child.id()))
            .arg(format!("--nproc={most}:"))
            .uid(NOBODY)
            .gid(NOBODY);
        assert!(command.status().unwrap().success());
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
fn gateway_stops_in_spite_of_a_reload_under_way() {
    let mut service = Service::start("", None);
    service.hears("READY=1");
    let config = service.dir.path().join("a.toml");
    fs::remove_file(&config).unwrap();
    // The opener waits for a writer.
    assert!(Command::new("mkfifo").arg(&config).status().unwrap().success());
    service.signal(Signal::HUP);
    service.hears("RELOADING=1\nMONOTONIC_USEC=");
    service.signal(Signal::INT);
    let ended = eventually("it ends", LIMIT, || service.child.try_wait().unwrap());
    assert!(ended.success());
}

#[test]
fn missing_kernel_feature_is_reported_once() {
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
fn process_stopped_beyond_its_watchdog_goes_on() {
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

/// Fills a pipe, so the next writer waits for a reader.
fn fill(pipe: &io::PipeWriter) {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    let flags = fcntl_getfl(pipe).unwrap();
    fcntl_setfl(pipe, flags | OFlags::NONBLOCK).unwrap();
    for size in [4096, 1] {
        while (&mut &*pipe).write(&vec![b'\n'; size]).is_ok() {}
    }
    fcntl_setfl(pipe, flags).unwrap();
}

#[test]
fn log_reader_hangs_and_gateway_works_and_ends() {
    let (mut reader, pipe) = io::pipe().unwrap();
    let admin = free_address();
    let keys = format!("admin = \"{admin}\"\nwatchdog = \"2 s\"");
    let mut service = Service::start_with(&keys, None, |command| {
        command.stderr(pipe.try_clone().unwrap());
    });
    service.hears("READY=1");
    fill(&pipe);
    // Each is logged before the manager hears of it.
    for _ in 0..3 {
        service.signal(Signal::HUP);
        service.hears("RELOADING=1\nMONOTONIC_USEC=");
        service.hears("READY=1");
    }
    assert!(health(admin).contains("ok"));
    service.signal(Signal::TERM);
    let ended = eventually("it ends", LIMIT, || service.child.try_wait().unwrap());
    assert!(ended.success(), "{ended}");
    drop(pipe);
    let mut log = String::new();
    reader.read_to_string(&mut log).unwrap();
    assert!(log.contains("gateway started"), "{log}");
}

#[test]
fn log_reader_goes_on_and_finds_every_line() {
    let (mut reader, pipe) = io::pipe().unwrap();
    let mut service = Service::start_with("", None, |command| {
        command.stderr(pipe.try_clone().unwrap());
    });
    service.hears("READY=1");
    fill(&pipe);
    drop(pipe);
    service.signal(Signal::HUP);
    service.hears("RELOADING=1\nMONOTONIC_USEC=");
    service.hears("READY=1");
    let mut log = String::new();
    // Room for all of it, without a reader in time.
    (&mut reader).take(32 << 10).read_to_string(&mut log).unwrap();
    service.signal(Signal::TERM);
    reader.read_to_string(&mut log).unwrap();
    assert!(service.child.wait().unwrap().success());
    let mut rest = log.as_str();
    for line in ["gateway started", "reads its configuration again", "reload: nothing changed", " stopped"] {
        rest = rest.split_once(line).unwrap_or_else(|| panic!("{line} is lacking in {log}")).1;
    }
}

#[test]
fn failed_start_logs_its_warnings_before_its_error() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let mut service = Service::start(&format!("admin = \"{address}\""), None);
    assert_eq!(service.child.wait().unwrap().code(), Some(1));
    let log = service.log();
    let last = log.lines().last().unwrap_or_default();
    assert!(last.starts_with(&format!("oncewire: cannot listen on {address}")), "{log}");
    assert!(log.lines().count() > 1, "{log}");
}

/// The user of a gateway started by root and without root's rights afterwards; otherwise the test's user.
fn other_user() -> (&'static str, Option<u32>) {
    if geteuid().is_root() { ("user = \"nobody\"", Some(NOBODY)) } else { ("", None) }
}

#[test]
fn memory_is_closed_to_cores_and_others_unless_asked_for() {
    let (keys, owner) = other_user();
    let own = owner.unwrap_or_else(|| geteuid().as_raw());
    for (value, expected) in [(None, 0), (Some("1"), own), (Some("0"), 0)] {
        let service = Service::start_with(keys, owner, |command| {
            command.env_remove("ONCEWIRE_DUMPABLE").envs(value.map(|value| ("ONCEWIRE_DUMPABLE", value)));
        });
        service.hears("READY=1");
        // Files closed to others by the kernel belong to root there.
        let memory = fs::metadata(format!("/proc/{}/mem", service.child.id())).unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::uid(&memory), expected, "{value:?}");
    }
}

#[test]
fn file_at_its_size_limit_costs_only_its_writes() {
    let service = Service::start("", None);
    service.hears("READY=1");
    let pid = Some(Pid::from_child(&service.child));
    let maximum = getrlimit(Resource::Fsize).maximum;
    let before = prlimit(pid, Resource::Fsize, Rlimit { current: Some(0), maximum }).unwrap();
    for _ in 0..2 {
        service.signal(Signal::HUP);
        service.hears("RELOADING=1\nMONOTONIC_USEC=");
        service.hears("READY=1");
    }
    assert!(!service.log().contains("nothing changed"), "{}", service.log());
    prlimit(pid, Resource::Fsize, before).unwrap();
    service.signal(Signal::HUP);
    service.hears("RELOADING=1\nMONOTONIC_USEC=");
    service.hears("READY=1");
    eventually("lines that are lacking are told", LIMIT, || {
        service.log().contains("log lines are lacking").then_some(())
    });
}

#[test]
fn dialling_without_threads_waits_and_names_the_limit() {
    let (keys, owner) = other_user();
    if owner.is_none() {
        eprintln!("skipped: the limit may hold for other programs of this user");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let key = keygen(binary(), &dir.path().join("b.key"));
    let port = free_address().port();
    let keys =
        format!("{keys}\n[[peer]]\nname = \"b\"\npublic_key = \"{key}\"\naddress = \"localhost:{port}\"");
    let service = Service::start(&keys, owner);
    service.hears("READY=1");
    let most = getrlimit(Resource::Nproc).maximum.map_or("unlimited".to_owned(), |most| most.to_string());
    service.limit_threads("0");
    let told = "no thread can be started (oncewire-name)";
    eventually("the limit is named", LIMIT, || service.log().contains(told).then_some(()));
    let log = service.log();
    assert!(log.contains("TasksMax") && !log.contains("panicked"), "{log}");
    service.limit_threads(&most);
    eventually("it is dialled again", LIMIT, || {
        let log = service.log();
        let (_, since) = log.split_once(told)?;
        since.contains("refused").then_some(())
    });
    let log = service.log();
    assert_eq!((log.matches(told).count(), log.matches("panicked").count()), (1, 0), "{log}");
}

#[test]
fn too_small_limit_of_memory_keeps_a_gateway_from_starting() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let key = keygen(binary(), &path("b.key"));
    keygen(binary(), &path("a.key"));
    let config = format!(
        "[gateway]\nname = \"a\"\nkey_file = \"a.key\"\nlisten = \"127.0.0.1:0\"\n[[peer]]\nname = \"b\"\n\
         public_key = \"{key}\"\n[cache]\nmemory = \"512 MiB\"\n"
    );
    fs::write(path("a.toml"), config).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -v 500000 && exec \"$@\"", "sh"]).arg(binary()).args(["run", "-c"]);
    let ended = command.arg(path("a.toml")).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{said}");
    for part in ["may have 488.3 MiB (`ulimit -v`)", "memory = \"512 MiB\"", "LimitAS=", "lower `memory`"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn root_becomes_the_user_and_keeps_low_ports() {
    if !geteuid().is_root() {
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "this test needs root");
        eprintln!("skipped: only root can become somebody else");
        return;
    }
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
    // CAP_NET_BIND_SERVICE is bit 10. An address of its own, without other listeners.
    let low = Service::start("user = \"nobody\"\nlisten = \"127.7.7.7:740\"", Some(NOBODY));
    low.hears("READY=1");
    for set in ["CapPrm", "CapEff", "CapBnd"] {
        assert_eq!(low.status(set), "0000000000000400", "{set}");
    }
}
