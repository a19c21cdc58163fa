//! Two gateways in a network of namespaces, with an emulated line between them.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use oncewire_testnet::{Family, Host, Line, LinkParams, Network};
use tempfile::TempDir;

use crate::common::gateway::{Gateway, keygen};
use crate::common::wait::eventually;

/// A running pair: the client uses the branch's `forward`, the server stands behind the hub.
pub(super) struct PairInNetwork {
    branch: Gateway,
    hub: Gateway,
    /// Behind the gateways, which end first.
    pub(super) network: Network,
    _dir: TempDir,
}

impl PairInNetwork {
    /// Starts both gateways across a line with these settings each way, and waits until they have met.
    ///
    /// The tunnel crosses the line by IPv4; the client and the server have both. `None` says that it was left
    /// out, and why.
    pub(super) fn start(binary: &Path, line: &LinkParams, link: &str) -> Option<Self> {
        let network = Network::builder().line(Line::emulated(line)).build_or_skip()?;
        let dir = tempfile::tempdir().unwrap();
        let branch_key = keygen(binary, &dir.path().join("branch.key"));
        let hub_key = keygen(binary, &dir.path().join("hub.key"));
        let tunnel = SocketAddr::new(network.host("hub").ip(Family::V4), 7400);
        let mut branch = format!(
            "[gateway]\nname = \"branch\"\nkey_file = \"branch.key\"\nadmin = \"{ADMIN}\"\n\
             [[peer]]\nname = \"hub\"\npublic_key = \"{hub_key}\"\naddress = \"{tunnel}\"\n"
        );
        for family in Family::BOTH {
            let listen = SocketAddr::new(network.host("branch").lan_ip(family), PORT);
            let target = SocketAddr::new(network.host("server").ip(family), PORT);
            branch.push_str(&format!(
                "[[intercept]]\nmode = \"forward\"\nlisten = \"{listen}\"\ntarget = \"{target}\"\npeer = \"hub\"\n"
            ));
        }
        let hub = format!(
            "[gateway]\nname = \"hub\"\nkey_file = \"hub.key\"\nadmin = \"{ADMIN}\"\nlisten = [\"{tunnel}\"]\n\
             [[peer]]\nname = \"branch\"\npublic_key = \"{branch_key}\"\n"
        );
        let gateway = |name: &str, config: String| {
            let config = format!("{config}{CACHE}{link}");
            let mut gateway = Gateway::new(binary, dir.path(), name, ADMIN.parse().unwrap(), &config);
            network.host(name).launch(|| gateway.start());
            gateway
        };
        let (hub, branch) = (gateway("hub", hub), gateway("branch", branch));
        let pair = Self { branch, hub, network, _dir: dir };
        eventually("the gateways meet", LIMIT, || pair.is_up().then_some(()));
        Some(pair)
    }

    /// Whether both ends say that the link is up.
    pub(super) fn is_up(&self) -> bool {
        let up = |host: &str, gateway: &Gateway| {
            let status = self.network.host(host).launch(|| gateway.ask("status"));
            status.is_some_and(|status| status["peers"][0]["state"] == "up")
        };
        up("branch", &self.branch) && up("hub", &self.hub)
    }

    /// The sum of what both gateways count about the other.
    pub(super) fn count(&self, key: &str) -> u64 {
        [("branch", &self.branch), ("hub", &self.hub)]
            .map(|(host, gateway)| self.network.host(host).launch(|| gateway.counter(key)))
            .iter()
            .sum()
    }

    /// Listens where the branch's `forward` leads.
    pub(super) fn listen(&self, family: Family) -> TcpListener {
        let server = self.network.host("server");
        server.enter(|| TcpListener::bind((server.ip(family), PORT)).unwrap())
    }

    /// Connects from the client to the branch's `forward`.
    pub(super) fn connect(&self, family: Family) -> TcpStream {
        let to: IpAddr = self.network.host("branch").lan_ip(family);
        let connect = |client: &Host| client.enter(|| TcpStream::connect((to, PORT)).unwrap());
        let stream = connect(self.network.host("client"));
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream
    }
}

/// Each gateway has a loopback interface of its own.
const ADMIN: &str = "127.0.0.1:7411";
const PORT: u16 = 8080;
const CACHE: &str = "[cache]\nmemory = \"512 MiB\"\nlog_memory = \"64 MiB\"\n";
pub(super) const LIMIT: Duration = Duration::from_secs(60);
