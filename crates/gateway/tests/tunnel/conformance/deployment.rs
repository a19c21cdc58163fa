//! The list's network: a server, gateways, and an address per way.
//!
//! Two gateways stand before the same hub: one in the client's router, with `forward`, `socks5` and `tproxy`,
//! and one on the client's own host, with `redirect`. Rules take in by the address, so a direct connection
//! needs only another.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use oncewire_gateway::daemon::Gateway;
use oncewire_keys::{Identity, PublicKey};
use oncewire_report::LinkState;
use oncewire_testnet::{Family, Host, Line, Network};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use super::Way;
use crate::common::{LIMIT, alone, start, within};

/// The network, and the gateways in it.
pub(super) struct Deployment {
    // Gateways end before their hosts.
    branch: Located,
    laptop: Located,
    hub: Option<Located>,
    pub(super) network: Network,
    _dir: TempDir,
}

/// More keys for the gateways, each with the end of its line.
#[derive(Default)]
pub(super) struct Keys {
    /// `[gateway]` of each.
    pub(super) gateway: &'static str,
    /// Each `[[intercept]]` with `forward`.
    pub(super) forward: &'static str,
    /// `[link]` of each, with the section's head.
    pub(super) link: &'static str,
}

/// A gateway in a host, with a runtime of threads there.
struct Located {
    runtime: Runtime,
    gateway: Option<Gateway>,
}

impl Deployment {
    /// Builds the network and starts the gateways; none, with the reason printed, if that is not possible.
    pub(super) fn start(keys: &Keys) -> Option<Self> {
        if let Some(lacking) = PROGRAMS.iter().find(|program| !is_there(program)) {
            let ci = std::env::var_os("CI").is_some_and(|value| value == "true");
            assert!(!ci, "missing: {lacking}");
            println!("skipped: missing: {lacking}; scripts/test installs it");
            return None;
        }
        let network = Network::builder().line(Line::Plain).build_or_skip()?;
        prepare(&network);
        let dir = tempfile::tempdir().unwrap();
        let key =
            |name: &str| Identity::create(&dir.path().join(format!("{name}.key"))).unwrap().public_key();
        let public = ["branch", "laptop", "hub"].map(key);
        let tunnel = SocketAddr::new(network.host("hub").ip(Family::V4), 7400);
        let located = |host: &str, config: String| Located::start(network.host(host), dir.path(), config);
        let hub = located("hub", hub(&public, tunnel, keys));
        let dialling = |name: &str, intercepts: String| {
            format!(
                "[gateway]\nname = \"{name}\"\nkey_file = \"{name}.key\"\n{}\
                 [[peer]]\nname = \"hub\"\npublic_key = \"{}\"\naddress = \"{tunnel}\"\n{CACHE}{}{intercepts}",
                keys.gateway, public[2], keys.link
            )
        };
        let branch = located("branch", dialling("branch", branch_intercepts(&network, keys.forward)));
        let laptop = located("client", dialling("laptop", redirects()));
        let deployment = Self { branch, laptop, hub: Some(hub), network, _dir: dir };
        for located in [&deployment.branch, &deployment.laptop] {
            let gateway = located.gateway.as_ref().unwrap();
            assert!(located.runtime.block_on(gateway.wait_up("hub", LIMIT)), "no link");
        }
        Some(deployment)
    }

    /// Ends the hub and waits until the others miss it.
    pub(super) fn lose_hub(&mut self) {
        self.hub = None;
        for located in [&self.branch, &self.laptop] {
            let gateway = located.gateway.as_ref().unwrap();
            located.runtime.block_on(within(alone(gateway)));
        }
    }

    /// Has unanswered connects end after some seconds at every host, or, as usual, after two minutes.
    pub(super) fn set_hasty(&self, hasty: bool) {
        let [retries, linear] = if hasty { [1, 0] } else { [6, 4] };
        for host in ["client", "branch", "hub"] {
            let set = format!(
                "echo {retries} > /proc/sys/net/ipv4/tcp_syn_retries; \
                 echo {linear} > /proc/sys/net/ipv4/tcp_syn_linear_timeouts"
            );
            self.network.host(host).sh(&set);
        }
    }

    /// Has a host fall silent from now on, as if it had lost its power.
    pub(super) fn vanish(&self, host: &str) {
        self.network.host(host).sh("nft 'table inet vanished {
             chain in { type filter hook input priority 0; policy drop; iif lo accept; }
             chain out { type filter hook output priority 0; policy drop; oif lo accept; }
             }'");
    }

    /// Whether every host has acknowledged all bytes sent to it, lanes aside.
    pub(super) fn is_silent(&self) -> bool {
        let ss = format!("ss -Htn state established {NO_LANE}");
        let silent = |host: &str| {
            let sockets = self.network.host(host).sh(&ss);
            sockets.lines().all(|socket| socket.split_whitespace().nth(1) == Some("0"))
        };
        ["client", "branch", "hub", "server"].into_iter().all(silent)
    }

    /// Whether a gateway on a way waits for the answer of a server on this port.
    pub(super) fn is_connecting(&self, way: Way, server_port: u16) -> bool {
        let ss = format!("ss -Htn state syn-sent 'dport = :{server_port}'");
        let near = if matches!(way, Way::Redirect(_)) { "client" } else { "branch" };
        [near, "hub"].iter().any(|host| !self.network.host(host).sh(&ss).is_empty())
    }

    /// Whether links that are up have no flow, and gateways on routers no socket but their lanes'. While the
    /// other gateway is away, the end of a flow is kept for it.
    pub(super) fn is_idle(&self) -> bool {
        let gateways = [&self.branch, &self.laptop].into_iter().chain(&self.hub);
        let statuses = gateways.filter_map(|located| Some(located.gateway.as_ref()?.status()));
        let mut peers = statuses.flat_map(|status| status.peers);
        let ss = format!("ss -Htn state connected exclude time-wait {NO_LANE}");
        peers.all(|peer| peer.state != LinkState::Up || peer.flows_open == 0)
            && ["branch", "hub"].iter().all(|host| self.network.host(host).sh(&ss).is_empty())
    }

    /// Whether the client's socket and the one writing its bytes to the server both wait for a window to
    /// open: only the kernel's timer for that runs there.
    pub(super) fn is_stopped(&self, client_port: u16, server_port: u16) -> bool {
        let sockets = |host: &str, filter: &str| {
            let ss = format!("ss -Htno state established '( {filter} )'");
            self.network.host(host).sh(&ss)
        };
        let to_server = format!("dport = :{server_port}");
        let all = [
            sockets("client", &format!("sport = :{client_port} or {to_server}")),
            sockets("branch", &to_server),
            sockets("hub", &to_server),
        ]
        .concat();
        !all.is_empty() && all.lines().all(|socket| socket.contains("timer:(persist"))
    }
}

impl Located {
    fn start(host: &Host, dir: &Path, config: String) -> Self {
        let build = || Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = host.enter(build).unwrap();
        let dir = dir.to_owned();
        // A gateway's own threads and programs are to be in the host as well.
        let started = runtime.spawn(async move { start(&dir, &config).await });
        let gateway = runtime.block_on(started).unwrap().unwrap();
        Self { runtime, gateway: Some(gateway) }
    }
}

impl Drop for Located {
    fn drop(&mut self) {
        let Some(gateway) = self.gateway.take() else { return };
        let ended = self.runtime.spawn(gateway.shutdown(Duration::ZERO));
        // A failing test has another message.
        let _ = self.runtime.block_on(ended);
    }
}

fn is_there(program: &str) -> bool {
    std::process::Command::new(program).arg("-V").output().is_ok()
}

/// Returns the client's destination on a way, or its request to the proxy; the host is missing if not
/// `reachable`.
pub(super) fn address(way: Way, reachable: bool, port: u16) -> SocketAddr {
    let (block, family) = match way {
        Way::Direct | Way::Forward | Way::Socks5 => (DIRECT, Family::V4),
        Way::Tproxy(family) => (TPROXY, family),
        Way::Held(family) => (HELD, family),
        Way::Redirect(family) => (REDIRECT, family),
    };
    let host = block + u16::from(!reachable);
    let ip = match family {
        Family::V4 => format!("198.18.2.{host}"),
        Family::V6 => format!("fd18:2::{host:x}"),
    };
    SocketAddr::new(ip.parse().unwrap(), port)
}

/// Returns the first of a way's own four ports.
pub(super) fn first_port(way: Way) -> u16 {
    let number = match way {
        Way::Direct => 0,
        Way::Forward => 1,
        Way::Socks5 => 2,
        Way::Tproxy(Family::V4) => 3,
        Way::Tproxy(Family::V6) => 4,
        Way::Redirect(Family::V4) => 5,
        Way::Redirect(Family::V6) => 6,
        Way::Held(Family::V4) => 7,
        Way::Held(Family::V6) => 8,
    };
    8000 + 10 * number
}

/// Gives the server its addresses. Connections not taken in, for a late sign of life, wait for the next try
/// instead of passing by.
fn prepare(network: &Network) {
    for block in [DIRECT, TPROXY, REDIRECT, HELD] {
        network.host("server").sh(&format!(
            "ip addr add 198.18.2.{block}/24 dev eth0; ip addr add fd18:2::{block:x}/64 dev eth0 nodad"
        ));
        let absent = block + 1;
        network.host("hub").sh(&format!(
            "ip route add unreachable 198.18.2.{absent}; ip -6 route add unreachable fd18:2::{absent:x}"
        ));
    }
    network.host("branch").sh(&guard("forward", TPROXY, ""));
    network.host("branch").sh(&guard("forward", HELD, ""));
    // Packets of the gateway on this host carry its mark.
    network.host("client").sh(&guard("output", REDIRECT, "meta mark != 0x6f780000"));
}

fn guard(hook: &str, block: u16, but: &str) -> String {
    let [v4, v6] = networks(block);
    format!(
        "nft 'table inet guard-{block} {{ chain guard {{ type filter hook {hook} priority 0;
         tcp flags & (syn | ack) == syn ip daddr {v4} {but} drop
         tcp flags & (syn | ack) == syn ip6 daddr {v6} {but} drop
         }}; }}'"
    )
}

fn networks(block: u16) -> [String; 2] {
    [format!("198.18.2.{block}/28"), format!("fd18:2::{block:x}/124")]
}

fn hub([branch, laptop, _]: &[PublicKey; 3], tunnel: SocketAddr, keys: &Keys) -> String {
    let Keys { gateway, link, .. } = keys;
    format!(
        "[gateway]\nname = \"hub\"\nkey_file = \"hub.key\"\nlisten = [\"{tunnel}\"]\n{gateway}\
         [[peer]]\nname = \"branch\"\npublic_key = \"{branch}\"\n\
         [[peer]]\nname = \"laptop\"\npublic_key = \"{laptop}\"\n{CACHE}{link}"
    )
}

fn branch_intercepts(network: &Network, more: &str) -> String {
    let lan = network.host("branch").lan_ip(Family::V4);
    let mut config = format!(
        "[[intercept]]\nmode = \"socks5\"\nlisten = \"{lan}:{SOCKS_PORT}\"\nallow_from = [\"198.18.1.0/24\"]\n"
    );
    let first = first_port(Way::Forward);
    for port in first..first + 4 {
        // The last of them leads to a missing host.
        let target = address(Way::Forward, port < first + 3, port);
        config += &format!(
            "[[intercept]]\nmode = \"forward\"\nlisten = \"{lan}:{port}\"\ntarget = \"{target}\"\n{more}"
        );
    }
    for (block, port, hold) in [(TPROXY, 15001, false), (HELD, 15002, true)] {
        let [v4, v6] = networks(block);
        config += &format!(
            "[[intercept]]\nmode = \"tproxy\"\nlisten = \"127.0.0.1:{port}\"\ninterfaces = [\"lan0\"]\n\
             networks = [\"{v4}\", \"{v6}\"]\nhold_syn = {hold}\n"
        );
    }
    config
}

fn redirects() -> String {
    let [v4, v6] = networks(REDIRECT);
    format!(
        "[[intercept]]\nmode = \"redirect\"\nlisten = \"127.0.0.1:15001\"\nnetworks = [\"{v4}\", \"{v6}\"]\n"
    )
}

/// Returns the SOCKS proxy's address for the client.
pub(super) fn proxy(network: &Network) -> SocketAddr {
    SocketAddr::new(network.host("branch").lan_ip(Family::V4), SOCKS_PORT)
}

/// Returns a `forward`'s address for the client.
pub(super) fn forward(network: &Network, port: u16) -> SocketAddr {
    let lan: IpAddr = network.host("branch").lan_ip(Family::V4);
    SocketAddr::new(lan, port)
}

/// The last number of the server's address for ways without rules, for `tproxy` without and with `hold_syn`,
/// and for `redirect`; the next one is unused.
const DIRECT: u16 = 16;
const TPROXY: u16 = 32;
const HELD: u16 = 64;
const REDIRECT: u16 = 48;

/// For interception, and for looking at sockets.
const PROGRAMS: [&str; 2] = ["nft", "ss"];

/// For `ss`: everything but traffic between gateways.
const NO_LANE: &str = "'( sport != :7400 and dport != :7400 )'";

const SOCKS_PORT: u16 = 1080;
const CACHE: &str = "[cache]\nmemory = \"256 MiB\"\nlog_memory = \"4 MiB\"\n";
