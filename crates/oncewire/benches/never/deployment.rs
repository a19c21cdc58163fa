//! A network in which every way from the client to the server is ready at once.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use oncewire_testnet::{Family, Line, Network, Process};
use tempfile::TempDir;

use crate::common::gateway::{Gateway, keygen};
use crate::common::wait::eventually;

/// How connections cross the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Direct,
    Relay,
    Uncoded,
    Coded,
}

impl Way {
    pub(crate) const ALL: [Self; 4] = [Self::Direct, Self::Relay, Self::Uncoded, Self::Coded];

    /// What the two programs of this way add to the ports of their own.
    fn number(self) -> u16 {
        match self {
            Self::Direct => 0,
            Self::Relay => 1,
            Self::Uncoded => 2,
            Self::Coded => 3,
        }
    }

    fn port(self) -> u16 {
        SERVER + self.number()
    }
}

/// A network, and what runs in it.
pub(crate) struct Deployment {
    /// Programs end before their hosts.
    hops: [Process; 2],
    pairs: Vec<(Way, [Gateway; 2])>,
    network: Network,
    _dir: TempDir,
}

impl Deployment {
    /// Builds the network and starts everything; `None`, with the reason printed, where that cannot be.
    pub(crate) fn start() -> Option<Self> {
        let line = Line::TokenBucket { rate_bits_per_s: 1_000_000_000 };
        let network = Network::builder().line(line).build_or_skip()?;
        for host in network.hosts() {
            // Lanes ask for it by default; what is compared with them is to have the same.
            host.sh("sysctl -qw net.ipv4.tcp_congestion_control=bbr");
        }
        let dir = tempfile::tempdir().unwrap();
        let server = SocketAddr::new(network.host("server").ip(Family::V4), SERVER);
        let between = SocketAddr::new(network.host("hub").ip(Family::V4), Way::Relay.port());
        let near = SocketAddr::new(network.host("branch").lan_ip(Family::V4), Way::Relay.port());
        let hops = [("branch", near, between), ("hub", between, server)]
            .map(|(host, listen, target)| hop(&network, host, listen, target));
        let pairs = [Way::Uncoded, Way::Coded].map(|way| (way, pair(&network, &dir, way, server)));
        Some(Self { hops, pairs: pairs.into(), network, _dir: dir })
    }

    /// Listens at the server.
    pub(crate) fn listen(&self) -> TcpListener {
        let server = self.network.host("server");
        server.enter(|| TcpListener::bind((server.ip(Family::V4), SERVER)).unwrap())
    }

    /// Connects from the client to the server.
    pub(crate) fn connect(&self, way: Way) -> TcpStream {
        let to: IpAddr = match way {
            Way::Direct => self.network.host("server").ip(Family::V4),
            _ => self.network.host("branch").lan_ip(Family::V4),
        };
        let stream = self.network.host("client").enter(|| TcpStream::connect((to, way.port())));
        let stream = stream.unwrap_or_else(|error| panic!("{way:?}: {error}"));
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// The CPU time that the program at the branch and the one at the hub have taken so far.
    pub(crate) fn cpu(&self, way: Way) -> [Duration; 2] {
        match self.pairs.iter().find(|(paired, _)| *paired == way) {
            Some((_, gateways)) => gateways.each_ref().map(|gateway| cpu(gateway.pid())),
            None if way == Way::Relay => self.hops.each_ref().map(|hop| cpu(hop.id())),
            None => [Duration::ZERO; 2],
        }
    }
}

fn hop(network: &Network, host: &str, listen: SocketAddr, target: SocketAddr) -> Process {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["hop", &listen.to_string(), &target.to_string()]);
    let process = network.host(host).spawn(command.stdin(Stdio::piped())).unwrap();
    eventually("a hop listens", LIMIT, || {
        network.host(host).enter(|| TcpStream::connect(listen)).is_ok().then_some(())
    });
    process
}

/// Starts a pair with the defaults, all but the rule for `codec`, and waits until it has met.
fn pair(network: &Network, dir: &TempDir, way: Way, server: SocketAddr) -> [Gateway; 2] {
    let binary = env!("CARGO_BIN_EXE_oncewire").as_ref();
    let codec = if way == Way::Coded { "auto" } else { "none" };
    let names = ["branch", "hub"].map(|host| format!("{host}-{codec}"));
    let [branch, hub] = &names;
    let [branch_key, hub_key] =
        names.each_ref().map(|name| keygen(binary, &dir.path().join(format!("{name}.key"))));
    let tunnel = SocketAddr::new(network.host("hub").ip(Family::V4), TUNNEL + way.number());
    let listen = SocketAddr::new(network.host("branch").lan_ip(Family::V4), way.port());
    let admin = SocketAddr::from(([127, 0, 0, 1], ADMIN + way.number()));
    let own = |name: &str| {
        format!(
            "[[policy]]\ncodec = \"{codec}\"\n\
             [gateway]\nname = \"{name}\"\nkey_file = \"{name}.key\"\nadmin = \"{admin}\"\n"
        )
    };
    let configs = [
        format!(
            "{}[[peer]]\nname = \"{hub}\"\npublic_key = \"{hub_key}\"\naddress = \"{tunnel}\"\n\
             [[intercept]]\nmode = \"forward\"\nlisten = \"{listen}\"\ntarget = \"{server}\"\npeer = \"{hub}\"\n",
            own(branch)
        ),
        format!(
            "{}listen = [\"{tunnel}\"]\n[[peer]]\nname = \"{branch}\"\npublic_key = \"{branch_key}\"\n",
            own(hub)
        ),
    ];
    let gateways = [0, 1].map(|end| {
        let mut gateway = Gateway::new(binary, dir.path(), &names[end], admin, &configs[end]);
        network.host(["branch", "hub"][end]).launch(|| gateway.start());
        gateway
    });
    eventually("the gateways meet", LIMIT, || {
        let status = network.host("branch").launch(|| gateways[0].ask("status"))?;
        (status["peers"][0]["state"] == "up").then_some(())
    });
    gateways
}

/// The CPU time of a process, of all its threads in user space and in the kernel.
fn cpu(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // The name before these numbers may contain anything but this.
    let numbers: Vec<&str> = stat.rsplit(") ").next().unwrap().split_whitespace().collect();
    let ticks: u64 = [11, 12].iter().map(|&field: &usize| numbers[field].parse::<u64>().unwrap()).sum();
    Duration::from_millis(1000 * ticks / TICKS_PER_SECOND)
}

const SERVER: u16 = 8080;
const TUNNEL: u16 = 7400;
/// Each host has a loopback interface of its own.
const ADMIN: u16 = 7411;
/// Of these times under `/proc`, on every architecture that we build for.
const TICKS_PER_SECOND: u64 = 100;
const LIMIT: Duration = Duration::from_secs(60);
