//! A network with or without gateways, and a client in it.

use std::fs;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use oncewire_testnet::{Family, Line, LinkParams, Network, Process, Queue};
use tempfile::TempDir;

use crate::Taken;
use crate::services::{Content, PORTS, TABLE};
use crate::workloads::Workload;

/// How connections cross the link.
#[derive(Clone, Copy)]
pub(crate) enum Crossing {
    Direct,
    Gateways { codec: &'static str },
}

/// A network in which everything runs.
pub(crate) struct Deployment {
    // Programs end before their hosts.
    _programs: Vec<Process>,
    network: Network,
    server: IpAddr,
    dir: TempDir,
    environment: Vec<(&'static str, String)>,
}

impl Deployment {
    /// Builds the network and starts everything; `None`, with the reason printed, where that cannot be.
    pub(crate) fn start(crossing: Crossing, loss: f64, seed: u64, content: &Content) -> Option<Self> {
        let line = LinkParams {
            rate_bits_per_s: Some(20_000_000),
            delay: Duration::from_millis(25),
            loss,
            queue: Queue::Time(Duration::from_millis(100)),
            seed,
            ..LinkParams::default()
        };
        let network = Network::builder().line(Line::emulated(&line)).congestion("cubic").build_or_skip()?;
        let server = network.host("server").ip(Family::V4);
        let dir = tempfile::tempdir().expect("a folder for the client");
        let mut programs = content.serve(network.host("server"));
        for port in PORTS {
            wait_for("a service", || network.host("server").enter(|| connects((server, port).into())));
        }
        network.host("server").sh(&format!("psql -X -q -h {server} -U postgres -d postgres -c \"{TABLE}\""));
        if let Crossing::Gateways { codec } = crossing {
            programs.extend(gateways(&network, &dir, codec));
        }
        let environment = vec![
            ("SERVER", server.to_string()),
            ("CONTENT", content.at("").display().to_string()),
            ("KEYS", content.at("keys").display().to_string()),
        ];
        Some(Self { _programs: programs, network, server, dir, environment })
    }

    /// Runs a workload once.
    pub(crate) fn run(&self, workload: &Workload) -> Taken {
        let place = tempfile::tempdir_in(&self.dir).expect("an empty folder");
        let mut command = Command::new("sh");
        command.args(["-c", &workload.line]).current_dir(&place).envs(self.environment.clone());
        let (before, start) = (self.wire(), Instant::now());
        let output = self.network.host("client").run(&mut command).expect("sh starts");
        let time = start.elapsed();
        assert!(
            output.status.success(),
            "{} at {}: {}",
            workload.name,
            self.server,
            String::from_utf8_lossy(&output.stderr)
        );
        Taken { time, wire: self.wire() - before }
    }

    fn wire(&self) -> u64 {
        let wan = self.network.wan();
        wan.up.counters().carried_bytes + wan.down.counters().carried_bytes
    }
}

/// Starts the pair and waits until it takes connections in.
fn gateways(network: &Network, dir: &TempDir, codec: &str) -> Vec<Process> {
    let binary = env!("CARGO_BIN_EXE_oncewire");
    let at = |name: &str| dir.path().join(name);
    let key = |name: &str| {
        let output = Command::new(binary).args(["keygen", "--out"]).arg(at(name)).output().expect("keygen");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    let (branch_key, hub_key) = (key("branch.key"), key("hub.key"));
    let hub = network.host("hub").ip(Family::V4);
    let common = format!("[[policy]]\ncodec = \"{codec}\"\n[cache]\nmemory = \"1 GiB\"\n");
    let configs = [
        (
            "hub",
            format!(
                "[gateway]\nname = \"hub\"\nkey_file = \"hub.key\"\nlisten = [\"0.0.0.0:7400\"]\n\
                 [[peer]]\nname = \"branch\"\npublic_key = \"{branch_key}\"\n{common}"
            ),
        ),
        (
            "branch",
            format!(
                "[gateway]\nname = \"branch\"\nkey_file = \"branch.key\"\nadmin = \"127.0.0.1:7411\"\n\
                 [[peer]]\nname = \"hub\"\npublic_key = \"{hub_key}\"\naddress = \"{hub}:7400\"\n\
                 [[intercept]]\nmode = \"tproxy\"\nlisten = \"127.0.0.1:15001\"\ninterfaces = [\"lan0\"]\n\
                 ports = {PORTS:?}\npeer = \"hub\"\n{common}"
            ),
        ),
    ];
    let start = |(name, config): (&str, String)| {
        let path = at(&format!("{name}.toml"));
        fs::write(&path, config).expect("a configuration");
        let mut command = Command::new(binary);
        command.args(["run", "-c"]).arg(path).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(fs::File::create(at(&format!("{name}.log"))).expect("a log"));
        network.host(name).spawn(&mut command).expect("a gateway starts")
    };
    let programs = configs.into_iter().map(start).collect();
    wait_for("the link", || {
        let status = format!("{binary} status --admin 127.0.0.1:7411 --json");
        let output = network.host("branch").run(Command::new("sh").args(["-c", &status]));
        output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("\"state\":\"up\""))
    });
    programs
}

fn connects(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok()
}

#[allow(clippy::disallowed_methods, reason = "the condition lies in another process, which cannot wake us")]
fn wait_for(what: &str, mut ready: impl FnMut() -> bool) {
    let start = Instant::now();
    while !ready() {
        assert!(start.elapsed() < Duration::from_secs(30), "{what} does not come up");
        std::thread::sleep(Duration::from_millis(20));
    }
}
