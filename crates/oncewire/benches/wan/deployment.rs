//! A network with or without gateways, and a client in it.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use oncewire_testnet::{Family, Line, LinkParams, Network, Process, Queue};
use tempfile::TempDir;

use crate::Taken;
use crate::common::gateway::Gateway;
use crate::common::wait::{LIMIT, eventually};
use crate::services::{Content, PORTS, TABLE};
use crate::transparent::{Told, gateways};
use crate::workloads::Workload;

/// How connections cross the link.
#[derive(Clone, Copy)]
pub(crate) enum Crossing {
    Direct,
    Gateways { codec: &'static str },
}

/// A network with all programs.
pub(crate) struct Deployment {
    // Programs end before their hosts.
    _programs: (Vec<Process>, Option<[Gateway; 2]>),
    network: Network,
    server: IpAddr,
    dir: TempDir,
    environment: Vec<(&'static str, String)>,
}

impl Deployment {
    /// Builds the network and starts everything; `None`, with the reason printed, if impossible.
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
        let dir = tempfile::tempdir().expect("a directory for the client");
        let programs = content.serve(network.host("server"));
        for port in PORTS {
            eventually("a service", LIMIT, || {
                network.host("server").enter(|| connects((server, port).into())).then_some(())
            });
        }
        network.host("server").sh(&format!("psql -X -q -h {server} -U postgres -d postgres -c \"{TABLE}\""));
        let gateways = match crossing {
            Crossing::Direct => None,
            Crossing::Gateways { codec } => {
                let both = format!("[[policy]]\ncodec = \"{codec}\"\n[cache]\nmemory = \"1 GiB\"\n");
                let told = Told { ports: &format!("{PORTS:?}"), peer: "hub", policies: "", both: &both };
                Some(gateways(&network, dir.path(), &told))
            }
        };
        let environment = vec![
            ("SERVER", server.to_string()),
            ("CONTENT", content.at("").display().to_string()),
            ("KEYS", content.at("keys").display().to_string()),
        ];
        Some(Self { _programs: (programs, gateways), network, server, dir, environment })
    }

    /// Runs a workload once.
    pub(crate) fn run(&self, workload: &Workload) -> Taken {
        let place = tempfile::tempdir_in(&self.dir).expect("an empty directory");
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

fn connects(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok()
}
