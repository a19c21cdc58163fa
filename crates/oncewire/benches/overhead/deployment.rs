//! A network with all ways from client to server ready at once.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use oncewire_testnet::{Family, Line, Network, Process};
use tempfile::TempDir;

use crate::common::gateway::{Gateway, cpu_time, keygen};
use crate::common::wait::eventually;

/// How connections cross the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Direct,
    /// Two hops of a plain relay.
    Relay,
    /// One gateway; its peer does not front the server.
    Spliced,
    Uncoded,
    Coded,
    /// Coded, with a rate limit of [`LIMITED`] each way.
    Limited,
}

/// A little less than 20 Mbit/s.
pub(crate) const LIMITED: &str = "19 Mbit/s";

impl Way {
    /// This way's offset to the programs' ports.
    fn number(self) -> u16 {
        self as u16
    }

    fn port(self) -> u16 {
        SERVER + self.number()
    }

    /// The settings common to a pair, beside identities; empty: the defaults.
    fn settings(self) -> String {
        match self {
            Self::Uncoded => "[[policy]]\ncodec = \"none\"\n".into(),
            Self::Limited => format!("[link]\nrate_limit = \"{LIMITED}\"\n"),
            Self::Direct | Self::Relay | Self::Spliced | Self::Coded => String::new(),
        }
    }
}

/// A network, and its programs.
pub(crate) struct Deployment {
    /// Programs end before their hosts.
    programs: Vec<(Way, Programs)>,
    network: Network,
    _dir: TempDir,
}

/// At the branch first, then at the hub.
enum Programs {
    Hops([Process; 2]),
    Gateways(Vec<Gateway>),
}

impl Deployment {
    /// Builds the network and starts the programs for these ways; `None`, with the reason printed, if impossible.
    pub(crate) fn start(line: Line, ways: &[Way]) -> Option<Self> {
        let network = Network::builder().line(line).build_or_skip()?;
        for host in network.hosts() {
            // Lanes ask for it by default; the compared ways are to have the same.
            host.sh("sysctl -qw net.ipv4.tcp_congestion_control=bbr");
        }
        let dir = tempfile::tempdir().unwrap();
        let server = SocketAddr::new(network.host("server").ip(Family::V4), SERVER);
        let start = |&way: &Way| {
            let programs = match way {
                Way::Direct => Programs::Gateways(Vec::new()),
                Way::Relay => Programs::Hops(relay(&network, server)),
                _ => Programs::Gateways(gateways(&network, &dir, way, server)),
            };
            (way, programs)
        };
        let programs = ways.iter().map(start).collect();
        Some(Self { programs, network, _dir: dir })
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

    /// The CPU time of the programs at the branch and at the hub so far, as far as there are any.
    pub(crate) fn cpu(&self, way: Way) -> Vec<Duration> {
        match self.programs.iter().find(|(started, _)| *started == way) {
            Some((_, Programs::Hops(hops))) => hops.iter().map(|hop| cpu_time(hop.id())).collect(),
            Some((_, Programs::Gateways(gateways))) => gateways.iter().map(Gateway::cpu_time).collect(),
            None => Vec::new(),
        }
    }
}

fn relay(network: &Network, server: SocketAddr) -> [Process; 2] {
    let between = SocketAddr::new(network.host("hub").ip(Family::V4), Way::Relay.port());
    let near = SocketAddr::new(network.host("branch").lan_ip(Family::V4), Way::Relay.port());
    [("branch", near, between), ("hub", between, server)]
        .map(|(host, listen, target)| hop(network, host, listen, target))
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

/// Starts a pair and waits until it has met; its branch alone, if connections are to go direct.
fn gateways(network: &Network, dir: &TempDir, way: Way, server: SocketAddr) -> Vec<Gateway> {
    let binary = env!("CARGO_BIN_EXE_oncewire").as_ref();
    let names = ["branch", "hub"].map(|host| format!("{host}-{}", way.number()));
    let [branch, hub] = &names;
    let [branch_key, hub_key] =
        names.each_ref().map(|name| keygen(binary, &dir.path().join(format!("{name}.key"))));
    let tunnel = SocketAddr::new(network.host("hub").ip(Family::V4), TUNNEL + way.number());
    let listen = SocketAddr::new(network.host("branch").lan_ip(Family::V4), way.port());
    let admin = SocketAddr::from(([127, 0, 0, 1], ADMIN + way.number()));
    let own = |name: &str| {
        let settings = way.settings();
        format!("{settings}[gateway]\nname = \"{name}\"\nkey_file = \"{name}.key\"\nadmin = \"{admin}\"\n")
    };
    // A connection with a wait for its peer would be measured with the wait; a destination without a fronting peer
    // has none.
    let (networks, peer, loss) = match way {
        Way::Spliced => ("networks = [\"192.0.2.0/24\"]\n", "auto", "direct"),
        _ => ("", hub.as_str(), "refuse"),
    };
    let configs = [
        format!(
            "{}[[peer]]\nname = \"{hub}\"\npublic_key = \"{hub_key}\"\naddress = \"{tunnel}\"\n{networks}\
             [[intercept]]\nmode = \"forward\"\nlisten = \"{listen}\"\ntarget = \"{server}\"\npeer = \"{peer}\"\n\
             on_peer_loss = \"{loss}\"\n",
            own(branch)
        ),
        format!(
            "{}listen = [\"{tunnel}\"]\n[[peer]]\nname = \"{branch}\"\npublic_key = \"{branch_key}\"\n",
            own(hub)
        ),
    ];
    let ends = if way == Way::Spliced { 0..1 } else { 0..2 };
    let gateways: Vec<Gateway> = ends
        .map(|end| {
            let mut gateway = Gateway::new(binary, dir.path(), &names[end], admin, &configs[end]);
            network.host(["branch", "hub"][end]).launch(|| gateway.start());
            gateway
        })
        .collect();
    eventually("the branch is ready", LIMIT, || {
        let status = network.host("branch").launch(|| gateways[0].ask("status"))?;
        (way == Way::Spliced || status["peers"][0]["state"] == "up").then_some(())
    });
    gateways
}

const SERVER: u16 = 8080;
const TUNNEL: u16 = 7400;
/// Each host has a loopback interface of its own.
const ADMIN: u16 = 7411;
const LIMIT: Duration = Duration::from_secs(60);
