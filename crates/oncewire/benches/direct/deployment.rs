//! A network with two gateways, a server, and clients.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use oncewire_testnet::{Family, Line, Network};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use tempfile::TempDir;

use crate::BYTES;
use crate::common::gateway::{Gateway, cpu_time};
use crate::common::wait::{LIMIT, eventually};
use crate::transparent::{Told, gateways};

/// The server's addresses.
pub(crate) struct Ports {
    pub(crate) bypassed: u16,
    pub(crate) direct: u16,
    pub(crate) uncoded: u16,
}

pub(crate) const PORTS: Ports = Ports { bypassed: 8001, direct: 8002, uncoded: 8003 };

/// A client's first byte to ask for [`BYTES`]; with any other it gets bytes until it leaves.
pub(crate) const SEND: u8 = b's';

/// A running pair between a client and a server.
pub(crate) struct Deployment {
    branch: Gateway,
    hub: Gateway,
    // Behind the gateways; they end first.
    network: Network,
    server: IpAddr,
    _dir: TempDir,
}

/// While this is kept, the branch has neither pipes nor files to make some of.
pub(crate) struct Exhausted<'a> {
    deployment: &'a Deployment,
    limit: Rlimit,
    _stalled: Vec<TcpStream>,
}

impl Deployment {
    /// Builds the network and starts everything; `None`, with the reason printed, if impossible.
    pub(crate) fn start() -> Option<Self> {
        let network = Network::builder().line(Line::Plain).build_or_skip()?;
        let dir = tempfile::tempdir().expect("a directory");
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
        let Ports { bypassed, direct, uncoded } = PORTS;
        // The kernel cannot know a connection's peer, so the second rule is the gateway's.
        let policies = format!(
            "[[policy]]\nmatch = {{ ports = [{bypassed}] }}\npath = \"direct\"\n\
             [[policy]]\nmatch = {{ ports = [{direct}], peers = [\"hub\"] }}\npath = \"direct\"\n\
             [[policy]]\ncodec = \"none\"\n"
        );
        let told = Told {
            ports: &format!("[\"{bypassed}-{uncoded}\"]"),
            peer: "auto",
            policies: &policies,
            both: "[cache]\nmemory = \"512 MiB\"\n",
        };
        let [hub, branch] = gateways(&network, dir.path(), &told);
        Some(Self { branch, hub, network, server, _dir: dir })
    }

    /// Connects from the client.
    pub(crate) fn connect(&self, port: u16) -> TcpStream {
        let to = SocketAddr::new(self.server, port);
        self.network.host("client").enter(|| TcpStream::connect(to).expect("the server answers"))
    }

    /// Returns the CPU time so far of the branch, of the hub, and of this process, the home of client and server.
    pub(crate) fn processor_time(&self) -> [Duration; 3] {
        [self.branch.pid(), self.hub.pid(), std::process::id()].map(cpu_time)
    }

    /// Leaves the branch without pipes: unread connections hold all of them, and it may open no more.
    pub(crate) fn exhaust_pipes(&self) -> Exhausted<'_> {
        let mut stalled = Vec::new();
        while stalled.is_empty() || self.pipes() > stalled.len() {
            let mut stream = self.connect(PORTS.direct);
            stream.write_all(b"x").expect("the server is there");
            stalled.push(stream);
            eventually("a pipe for what is not read", LIMIT, || {
                (self.pipes() >= stalled.len()).then_some(())
            });
        }
        let maximum = getrlimit(Resource::Nofile).maximum;
        let limit = limit_files(&self.branch, Rlimit { current: Some(0), maximum });
        Exhausted { deployment: self, limit, _stalled: stalled }
    }

    /// Counts the branch's pipes; each has two ends.
    fn pipes(&self) -> usize {
        let files = fs::read_dir(format!("/proc/{}/fd", self.branch.pid())).expect("it runs").flatten();
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
        limit_files(&self.deployment.branch, self.limit);
    }
}

/// Sets a gateway's limit of files, and returns the earlier one.
fn limit_files(gateway: &Gateway, limit: Rlimit) -> Rlimit {
    let pid = i32::try_from(gateway.pid()).ok().and_then(Pid::from_raw);
    prlimit(pid, Resource::Nofile, limit).expect("limits can be set")
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
