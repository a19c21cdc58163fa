//! Two gateways in a network of namespaces, with an emulated line between them.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use oncewire_testnet::{Family, Host, Line, LinkParams, Network};
use tempfile::TempDir;

use super::gateway::{Gateway, keygen};
use super::programs::missing;
use super::wait::{LIMIT, eventually};

/// One of the two gateways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The clients' side.
    Branch,
    /// The servers' side.
    Hub,
}

impl Place {
    /// Both, the branch first.
    pub(crate) const BOTH: [Self; 2] = [Self::Branch, Self::Hub];

    /// The name of its host.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Branch => "branch",
            Self::Hub => "hub",
        }
    }
}

/// The setup of a pair in a network.
#[derive(Clone, Debug, Default)]
pub(crate) struct Setup {
    /// The branch's line, with these settings each way.
    pub(crate) line: LinkParams,
    /// TOML at the end of both configurations.
    pub(crate) both: String,
    /// Whether the branch intercepts by every mode, and not by `forward` alone; this needs `nft`.
    pub(crate) every_mode: bool,
}

/// A running pair: clients use the branch, the server stands behind the hub.
pub(crate) struct PairInNetwork {
    branch: Gateway,
    hub: Gateway,
    /// Behind the gateways; they end first.
    pub(crate) network: Arc<Network>,
    configs: [String; 2],
    /// Keys, configurations, states and logs.
    dir: TempDir,
}

impl PairInNetwork {
    /// Starts both gateways and waits until they have met. `None`, with the reason printed, if skipped.
    ///
    /// The tunnel crosses the line by IPv4; the client and the server have both.
    pub(crate) fn start(binary: &Path, setup: &Setup) -> Option<Self> {
        let mut pair = Self::configure(binary, setup)?;
        Place::BOTH.into_iter().for_each(|place| pair.launch(place));
        eventually("the gateways meet", LIMIT, || pair.is_up().then_some(()));
        Some(pair)
    }

    /// Builds the network and writes configurations; nothing runs in it yet.
    pub(crate) fn configure(binary: &Path, setup: &Setup) -> Option<Self> {
        if setup.every_mode && missing(&["nft"]) {
            return None;
        }
        let network = Network::builder().line(Line::emulated(&setup.line)).build_or_skip()?;
        let dir = tempfile::tempdir().unwrap();
        let [branch_key, hub_key] = Place::BOTH.map(|place| {
            let file = dir.path().join(place.name()).with_extension("key");
            keygen(binary, &file)
        });
        let tunnel = SocketAddr::new(network.host("hub").ip(Family::V4), TUNNEL);
        let configs = [
            format!(
                "{}[[peer]]\nname = \"hub\"\npublic_key = \"{hub_key}\"\naddress = \"{tunnel}\"\n{}",
                gateway_table("branch", ""),
                intercepts(&network, setup.every_mode)
            ),
            format!(
                "{}[[peer]]\nname = \"branch\"\npublic_key = \"{branch_key}\"\n",
                gateway_table("hub", &format!("listen = [\"{tunnel}\"]\n"))
            ),
        ]
        .map(|config| {
            let cache = if setup.both.contains("[cache]") { "" } else { CACHE };
            format!("{config}{cache}{}", setup.both)
        });
        let [branch, hub] = [0, 1].map(|at| {
            let name = Place::BOTH[at].name();
            Gateway::new(binary, dir.path(), name, ADMIN.parse().unwrap(), &configs[at])
        });
        Some(Self { branch, hub, network: Arc::new(network), configs, dir })
    }

    /// Starts a stopped gateway.
    pub(crate) fn launch(&mut self, place: Place) {
        let Self { branch, hub, network, .. } = self;
        let gateway = if place == Place::Branch { branch } else { hub };
        network.host(place.name()).launch(|| gateway.start());
    }

    /// A gateway; queries to it must come from its host, by [`at`](Self::at).
    pub(crate) fn gateway(&self, place: Place) -> &Gateway {
        match place {
            Place::Branch => &self.branch,
            Place::Hub => &self.hub,
        }
    }

    /// The same, to stop or start it.
    pub(crate) fn gateway_mut(&mut self, place: Place) -> &mut Gateway {
        match place {
            Place::Branch => &mut self.branch,
            Place::Hub => &mut self.hub,
        }
    }

    /// Does something with a gateway from within its host.
    pub(crate) fn at<T: Send>(&self, place: Place, work: impl FnOnce(&Gateway) -> T + Send) -> T {
        let gateway = self.gateway(place);
        self.network.host(place.name()).launch(|| work(gateway))
    }

    /// The directory of a gateway's state.
    pub(crate) fn state(&self, place: Place) -> PathBuf {
        self.dir.path().join(format!("{}-state", place.name()))
    }

    /// The configuration of a gateway at its start.
    pub(crate) fn config(&self, place: Place) -> &str {
        &self.configs[place as usize]
    }

    /// Whether both ends report the link as up.
    pub(crate) fn is_up(&self) -> bool {
        Place::BOTH.into_iter().all(|place| {
            let status = self.at(place, |gateway| gateway.ask("status"));
            status.is_some_and(|status| status["peers"][0]["state"] == "up")
        })
    }

    /// Waits until each end reports the link as down.
    pub(crate) fn wait_until_down(&self) {
        for place in Place::BOTH {
            eventually(&format!("the {} has noticed", place.name()), LIMIT, || {
                let status = self.at(place, |gateway| gateway.ask("status"))?;
                (status["peers"][0]["state"] != "up").then_some(())
            });
        }
    }

    /// The sum of both gateways' counts about the other.
    pub(crate) fn count(&self, key: &str) -> u64 {
        Place::BOTH.map(|place| self.at(place, |gateway| gateway.counter(key))).iter().sum()
    }

    /// Has the core answer everything between the gateways with a reset, or lets it through again: lanes break with
    /// the next packet, and dialling is refused at once.
    pub(crate) fn set_rejecting(&self, rejecting: bool) {
        let rules: String = ["dport", "sport"]
            .map(|port| format!("add rule inet wall forward tcp {port} {TUNNEL} reject with tcp reset\n"))
            .concat();
        let line = match rejecting {
            true => format!(
                "nft -f - <<'END'\nadd table inet wall\n\
                 add chain inet wall forward {{ type filter hook forward priority 0; }}\n{rules}END"
            ),
            false => "nft delete table inet wall".into(),
        };
        self.network.host("core").sh(&line);
    }

    /// The server's address with `port`.
    pub(crate) fn server(&self, family: Family, port: u16) -> SocketAddr {
        SocketAddr::new(self.network.host("server").ip(family), port)
    }

    /// Listens at the server.
    pub(crate) fn listen_on(&self, family: Family, port: u16) -> TcpListener {
        let address = self.server(family, port);
        self.network.host("server").enter(|| TcpListener::bind(address).unwrap())
    }

    /// Listens at the target of the branch's `forward`.
    pub(crate) fn listen(&self, family: Family) -> TcpListener {
        self.listen_on(family, FORWARDED)
    }

    /// Connects from the client to the branch's `forward`.
    pub(crate) fn connect(&self, family: Family) -> TcpStream {
        let to: IpAddr = self.network.host("branch").lan_ip(family);
        let connect = |client: &Host| client.enter(|| TcpStream::connect((to, FORWARDED)).unwrap());
        let stream = connect(self.network.host("client"));
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream
    }
}

fn gateway_table(name: &str, keys: &str) -> String {
    format!(
        "[gateway]\nname = \"{name}\"\nkey_file = \"{name}.key\"\nadmin = \"{ADMIN}\"\n\
         state = \"{name}-state\"\n{keys}"
    )
}

/// The branch's interceptions.
fn intercepts(network: &Network, every_mode: bool) -> String {
    let mut toml = String::new();
    let mut add = |mode: &str, listen: String, keys: &str| {
        let _ =
            writeln!(toml, "[[intercept]]\nmode = \"{mode}\"\nlisten = \"{listen}\"\npeer = \"hub\"\n{keys}");
    };
    for family in Family::BOTH {
        let listen = |port| SocketAddr::new(network.host("branch").lan_ip(family), port).to_string();
        let target = SocketAddr::new(network.host("server").ip(family), FORWARDED);
        add("forward", listen(FORWARDED), &format!("target = \"{target}\""));
        if every_mode {
            let clients = "allow_from = [\"198.18.1.0/24\", \"fd18:1::/64\"]";
            add("socks5", listen(SOCKS), clients);
            add("http", listen(HTTP), clients);
        }
    }
    if every_mode {
        let passing = "interfaces = [\"lan0\"]";
        let ports = format!("ports = {TPROXY:?}\n{passing}");
        add("tproxy", "127.0.0.1:15001".into(), &ports);
        let ports = format!("ports = [{REDIRECT}]\n{passing}\nscope = \"gateway\"");
        add("redirect", "0.0.0.0:15002".into(), &ports);
        add("redirect", "127.0.0.1:15003".into(), &format!("ports = [{OWN}]"));
    }
    toml
}

/// Each gateway has a loopback interface of its own.
const ADMIN: &str = "127.0.0.1:7411";
/// The hub's port for lanes.
pub(crate) const TUNNEL: u16 = 7400;
/// The server's port behind `forward`, and the port of `forward`.
pub(crate) const FORWARDED: u16 = 8080;
/// The server's ports intercepted by `tproxy`.
pub(crate) const TPROXY: [u16; 3] = [8081, 8091, 8092];
/// The server's port for redirected connections through the branch.
pub(crate) const REDIRECT: u16 = 8082;
/// The server's port for redirected connections of the branch's own programs.
pub(crate) const OWN: u16 = 8083;
/// The branch's SOCKS5 proxy.
pub(crate) const SOCKS: u16 = 1080;
/// The branch's HTTP proxy.
pub(crate) const HTTP: u16 = 3128;
const CACHE: &str = "[cache]\nmemory = \"512 MiB\"\nlog_memory = \"64 MiB\"\n";
