//! A network with two gateways, a server, and clients.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use oncewire_testnet::{Family, Line, Network};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use tempfile::TempDir;

use crate::BYTES;

/// Where the server listens.
pub(crate) struct Ports {
    pub(crate) bypassed: u16,
    pub(crate) direct: u16,
    pub(crate) uncoded: u16,
}

pub(crate) const PORTS: Ports = Ports { bypassed: 8001, direct: 8002, uncoded: 8003 };

/// A client that begins with this byte is sent [`BYTES`]; any other is sent bytes for as long as it stays.
pub(crate) const SEND: u8 = b's';

/// A running pair between a client and a server.
pub(crate) struct Deployment {
    branch: Running,
    hub: Running,
    // Behind the gateways, which end first.
    network: Network,
    server: IpAddr,
    _dir: TempDir,
}

/// A gateway.
struct Running(Child);

/// While this is kept, the branch has neither pipes nor files to make some of.
pub(crate) struct Exhausted<'a> {
    deployment: &'a Deployment,
    limit: Rlimit,
    _stalled: Vec<TcpStream>,
}

impl Deployment {
    /// Builds the network and starts everything; `None`, with the reason printed, where that cannot be.
    pub(crate) fn start() -> Option<Self> {
        let network = Network::builder().line(Line::Plain).build_or_skip()?;
        let dir = tempfile::tempdir().expect("a folder");
        let server = network.host("server").ip(Family::V4);
        for port in [PORTS.bypassed, PORTS.direct, PORTS.uncoded] {
            let listener =
                network.host("server").enter(|| TcpListener::bind((server, port)).expect("a port"));
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    std::thread::spawn(move || serve(stream));
                }
            });
        }
        let (hub, branch) = gateways(&network, &dir);
        Some(Self { branch, hub, network, server, _dir: dir })
    }

    /// Connects from the client.
    pub(crate) fn connect(&self, port: u16) -> TcpStream {
        let to = SocketAddr::new(self.server, port);
        self.network.host("client").enter(|| TcpStream::connect(to).expect("the server answers"))
    }

    /// Returns the processor time so far of the branch, of the hub, and of this process, where client and server are.
    pub(crate) fn processor_time(&self) -> [f64; 3] {
        [self.branch.0.id(), self.hub.0.id(), std::process::id()].map(processor_time)
    }

    /// Leaves the branch without pipes: connections that nobody reads hold all of them, and it may open no more.
    pub(crate) fn exhaust_pipes(&self) -> Exhausted<'_> {
        let mut stalled = Vec::new();
        while stalled.is_empty() || self.pipes() > stalled.len() {
            let mut stream = self.connect(PORTS.direct);
            stream.write_all(b"x").expect("the server is there");
            stalled.push(stream);
            wait_for("a pipe for what is not read", || self.pipes() >= stalled.len());
        }
        let maximum = getrlimit(Resource::Nofile).maximum;
        let limit = self.branch.limit_files(Rlimit { current: Some(0), maximum });
        Exhausted { deployment: self, limit, _stalled: stalled }
    }

    /// Counts the pipes that the branch has, of which each has two ends.
    fn pipes(&self) -> usize {
        let files = fs::read_dir(format!("/proc/{}/fd", self.branch.0.id())).expect("it runs").flatten();
        let mut pipes: Vec<_> = files
            .filter_map(|file| fs::read_link(file.path()).ok())
            .filter(|link| link.to_string_lossy().starts_with("pipe:"))
            .collect();
        pipes.sort();
        pipes.chunk_by(|a, b| a == b).filter(|ends| ends.len() == 2).count()
    }
}

impl Drop for Exhausted<'_> {
    fn drop(&mut self) {
        self.deployment.branch.limit_files(self.limit);
    }
}

impl Running {
    /// Sets how many files it may have, and returns what held before.
    fn limit_files(&self, limit: Rlimit) -> Rlimit {
        let pid = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw);
        prlimit(pid, Resource::Nofile, limit).expect("limits can be set")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serve(mut stream: TcpStream) {
    let mut first = [0];
    if stream.read_exact(&mut first).is_err() {
        return;
    }
    let block = vec![7; 256 << 10];
    let mut left = if first == [SEND] { BYTES } else { usize::MAX };
    while left > 0 {
        let some = left.min(block.len());
        if stream.write_all(&block[..some]).is_err() {
            return;
        }
        left -= some;
    }
}

/// Starts the pair and waits until it takes connections in.
fn gateways(network: &Network, dir: &TempDir) -> (Running, Running) {
    let binary = env!("CARGO_BIN_EXE_oncewire");
    let at = |name: &str| dir.path().join(name);
    let key = |name: &str| {
        let output = Command::new(binary).args(["keygen", "--out"]).arg(at(name)).output().expect("keygen");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    let (branch_key, hub_key) = (key("branch.key"), key("hub.key"));
    let (hub, Ports { bypassed, direct, uncoded }) = (network.host("hub").ip(Family::V4), PORTS);
    let start = |name: &str, config: String| {
        let path = at(&format!("{name}.toml"));
        fs::write(&path, config + "[cache]\nmemory = \"512 MiB\"\n").expect("a configuration");
        let mut command = Command::new(binary);
        command.args(["run", "-c"]).arg(path).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(fs::File::create(at(&format!("{name}.log"))).expect("a log"));
        Running(network.host(name).launch(|| command.spawn().expect("a gateway starts")))
    };
    let hub_runs = start(
        "hub",
        format!(
            "[gateway]\nname = \"hub\"\nkey_file = \"hub.key\"\nlisten = [\"0.0.0.0:7400\"]\n\
             [[peer]]\nname = \"branch\"\npublic_key = \"{branch_key}\"\n"
        ),
    );
    // Which peer a connection would take is not for the kernel to know, so the second rule is the gateway's.
    let branch_runs = start(
        "branch",
        format!(
            "[gateway]\nname = \"branch\"\nkey_file = \"branch.key\"\nadmin = \"127.0.0.1:7411\"\n\
             [[peer]]\nname = \"hub\"\npublic_key = \"{hub_key}\"\naddress = \"{hub}:7400\"\n\
             [[intercept]]\nmode = \"tproxy\"\nlisten = \"127.0.0.1:15001\"\ninterfaces = [\"lan0\"]\n\
             ports = [\"{bypassed}-{uncoded}\"]\npeer = \"auto\"\n\
             [[policy]]\nmatch = {{ ports = [{bypassed}] }}\npath = \"direct\"\n\
             [[policy]]\nmatch = {{ ports = [{direct}], peers = [\"hub\"] }}\npath = \"direct\"\n\
             [[policy]]\ncodec = \"none\"\n"
        ),
    );
    wait_for("the link", || {
        let status = format!("{binary} status --admin 127.0.0.1:7411 --json");
        let output = network.host("branch").run(Command::new("sh").args(["-c", &status]));
        output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("\"state\":\"up\""))
    });
    (hub_runs, branch_runs)
}

/// Reads the seconds of processor time that a process has used.
fn processor_time(process: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).expect("it runs");
    // Behind the name, which may hold anything, the 12th and 13th field are user and system time.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    ticks as f64 / TICKS_PER_S
}

#[allow(clippy::disallowed_methods, reason = "the condition lies in another process, which cannot wake us")]
fn wait_for(what: &str, mut ready: impl FnMut() -> bool) {
    let start = Instant::now();
    while !ready() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}: not yet");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Of Linux, wherever it runs.
const TICKS_PER_S: f64 = 100.0;
