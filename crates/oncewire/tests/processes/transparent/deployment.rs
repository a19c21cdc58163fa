//! Two gateways on a network of namespaces: `client – branch – core – hub – server`.

use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::time::{Duration, Instant};

use oncewire_testnet::{Family, Host, Line, Network};
use serde_json::Value;
use tempfile::TempDir;

use super::connection::{self, Connection};
use super::tproxy;
use crate::binary;
use crate::common::gateway::{Gateway, keygen};
use crate::common::wait::eventually;

/// The parts of a deployment beside the common ones.
pub(super) struct Plan<'a> {
    /// The host of the branch's gateway.
    pub(super) on: &'a str,
    /// More keys of its `[gateway]`.
    pub(super) gateway: &'a str,
    /// Its `[[intercept]]`s, and further settings.
    pub(super) intercepts: &'a str,
    /// More keys of the hub's `[gateway]`.
    pub(super) hub: &'a str,
    /// More keys of the hub's `[[peer]]`.
    pub(super) peer: &'a str,
}

impl Default for Plan<'_> {
    fn default() -> Self {
        Self { on: "branch", gateway: "", intercepts: "", hub: "", peer: "" }
    }
}

/// A network with a gateway on two of its hosts.
pub(super) struct Deployment {
    // Gateways end before their hosts.
    pub(super) branch: Gateway,
    pub(super) hub: Gateway,
    pub(super) branch_key: String,
    /// The beginning of the branch's configuration; interceptions follow.
    head: String,
    on: String,
    pub(super) network: Network,
    _dir: TempDir,
}

impl Deployment {
    /// Builds the usual network and configures both gateways; none, with the reason printed, if impossible.
    pub(super) fn new(plan: &Plan<'_>) -> Option<Self> {
        if !connection::has_nft() {
            return None;
        }
        Some(Self::over(Network::builder().line(Line::Plain).build_or_skip()?, plan))
    }

    /// The usual network, with a branch as a router, and the hub's address at servers.
    pub(super) fn of_routers() -> Option<Self> {
        Self::new(&Plan { intercepts: &tproxy("gateway"), ..Plan::default() })
    }

    /// Configures both gateways on a network, and starts the servers.
    pub(super) fn over(network: Network, plan: &Plan<'_>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let key = |name: &str| keygen(binary(), &dir.path().join(format!("{name}.key")));
        let (branch_key, hub_key) = (key("branch"), key("hub"));
        let table = |name: &str, more: &str| {
            format!(
                "[gateway]\nname = \"{name}\"\nkey_file = \"{name}.key\"\nadmin = \"{ADMIN}\"\n\
                 listen = \"0.0.0.0:7400\"\n{more}"
            )
        };
        let hub_address = network.host("hub").ip(Family::V4);
        let head = format!(
            "{}{CACHE}[[peer]]\nname = \"hub\"\npublic_key = \"{hub_key}\"\naddress = \"{hub_address}:7400\"\n",
            table("branch", plan.gateway)
        );
        let peer = plan.peer;
        let hub = format!(
            "{}{CACHE}[[peer]]\nname = \"branch\"\npublic_key = \"{branch_key}\"\n{peer}",
            table("hub", plan.hub)
        );
        let branch = format!("{head}{}", plan.intercepts);
        let gateway = |name, config: &str| Gateway::new(binary(), dir.path(), name, ADMIN, config);
        let (branch, hub) = (gateway("branch", &branch), gateway("hub", &hub));
        let deployment = Self { branch, hub, branch_key, head, on: plan.on.to_owned(), network, _dir: dir };
        for port in PORTS {
            for server in deployment.servers() {
                connection::serve(deployment.network.host("server"), SocketAddr::new(server, port));
            }
        }
        deployment
    }

    /// Starts both gateways and waits for the link and the rules.
    pub(super) fn start(&mut self) {
        let Self { branch, hub, on, network, .. } = self;
        network.host("hub").launch(|| hub.start());
        network.host(on).launch(|| {
            branch.start();
            branch.wait_until_up(LIMIT);
        });
        for gateway in [branch, hub] {
            let started = || gateway.log().contains("gateway started").then_some(());
            eventually("rules are loaded", LIMIT, started);
        }
    }

    /// Starts, intercepts new connections with the client's name, and stops, while connections from before the start
    /// stay as they are; those are returned. `loaded` stands in the rules meanwhile.
    pub(super) fn take_in_beside_older(&mut self, loaded: &str) -> [Connection; 2] {
        let (clients, hubs, servers) = (self.clients(), self.hubs(), self.servers());
        let mut older = servers.map(|server| self.connect(server, PORTS[0]).unwrap());
        self.start();
        for ((client, hub), server) in clients.into_iter().zip(hubs).zip(servers) {
            let mut taken = self.connect_as(server, PORTS[0], hub);
            taken.say("by way of the link");
            let other = self.connect(server, PORTS[1]).unwrap();
            assert_eq!(other.seen_as.ip(), client, "a port that is not named");
        }
        for older in &mut older {
            assert_eq!(older.seen_as, older.local());
            older.say("as if nothing had happened");
        }
        assert!(self.rules(&["--installed"]).contains(loaded));
        self.branch.terminate();
        self.wait_until_direct();
        self.branch.wait(LIMIT);
        older
    }

    /// Gives the branch other interceptions, and waits for its report on them.
    pub(super) fn reload(&mut self, intercepts: &str) -> String {
        let before = self.branch.whole_log().len();
        std::fs::write(self.branch.config(), self.with(intercepts)).unwrap();
        self.branch.reload();
        eventually("the gateway says what it did", LIMIT, || {
            let log = self.branch.whole_log();
            let said = log.get(before..)?;
            let told = ["reload: ", "was not reloaded"].iter().any(|word| said.contains(word));
            (told && said.ends_with('\n')).then(|| said.to_owned())
        })
    }

    /// The branch's configuration with other interceptions.
    pub(super) fn with(&self, intercepts: &str) -> String {
        format!("{}{intercepts}", self.head)
    }

    /// The name of the host of the branch's gateway.
    pub(super) fn on(&self) -> &str {
        &self.on
    }

    /// The host of the branch's gateway.
    pub(super) fn gateway_host(&self) -> &Host {
        self.network.host(&self.on)
    }

    /// The client, by family.
    pub(super) fn clients(&self) -> [IpAddr; 2] {
        Family::BOTH.map(|family| self.network.host("client").ip(family))
    }

    /// The hub as servers see it.
    pub(super) fn hubs(&self) -> [IpAddr; 2] {
        Family::BOTH.map(|family| self.network.host("hub").lan_ip(family))
    }

    /// The server, by family.
    pub(super) fn servers(&self) -> [IpAddr; 2] {
        Family::BOTH.map(|family| self.network.host("server").ip(family))
    }

    /// Connects from the client; none if it fails, or the server ends it without a word.
    pub(super) fn connect(&self, server: IpAddr, port: u16) -> Option<Connection> {
        Connection::open(self.network.host("client"), SocketAddr::new(server, port), LIMIT)
    }

    /// Connects from the client until the server sees the expected address.
    pub(super) fn connect_as(&self, server: IpAddr, port: u16, seen_as: IpAddr) -> Connection {
        let server = SocketAddr::new(server, port);
        eventually(&format!("{server} sees a connection from {seen_as}"), LIMIT, || {
            Connection::open(self.network.host("client"), server, TRY)
                .filter(|connection| connection.seen_as.ip() == seen_as)
        })
    }

    /// Connects from the client until the branch reports an intercepted connection.
    pub(super) fn taken_in(&self, server: IpAddr) -> Connection {
        eventually("a connection is taken in", LIMIT, || {
            let before = self.taken_count();
            let connection = self.connect(server, PORTS[0])?;
            (self.taken_count() > before).then_some(connection)
        })
    }

    /// The branch's own count of intercepted connections.
    pub(super) fn taken_count(&self) -> u64 {
        let rows = self.status()["intercepts"].as_array().unwrap().clone();
        rows.iter().map(|row| row["connections"].as_u64().unwrap()).sum()
    }

    /// The branch's status.
    pub(super) fn status(&self) -> Value {
        eventually("the branch answers", LIMIT, || self.gateway_host().launch(|| self.branch.ask("status")))
    }

    /// The output of `oncewire rules` with more arguments.
    pub(super) fn rules(&self, more: &[&str]) -> String {
        let mut command = Command::new(binary());
        command.args(["rules", "-c"]).arg(self.branch.config()).args(more);
        self.command(&mut command)
    }

    /// Runs a command on the host of the branch's gateway and returns its output.
    pub(super) fn command(&self, command: &mut Command) -> String {
        let output = self.gateway_host().run(command).unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}: {said}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Waits until new connections of both families no longer pass a gateway, and prints the time.
    pub(super) fn wait_until_direct(&self) {
        let start = Instant::now();
        for (client, server) in self.clients().into_iter().zip(self.servers()) {
            self.connect_as(server, PORTS[0], client);
        }
        println!("new connections are direct after {:.2?}", start.elapsed());
    }
}

/// Each gateway has a loopback interface of its own.
pub(super) const ADMIN: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 7411);
const CACHE: &str = "[cache]\nmemory = \"256 MiB\"\nlog_memory = \"16 MiB\"\n";
/// The servers' ports.
pub(super) const PORTS: [u16; 2] = [8080, 9090];
/// The time for anything that must come, on the busiest machine.
pub(super) const LIMIT: Duration = Duration::from_secs(60);
/// The time up to another attempt, if a first one may fail.
pub(super) const TRY: Duration = Duration::from_secs(2);
