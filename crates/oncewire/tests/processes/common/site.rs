//! Gateways of one site and trust group, behind an emulated line, and their hubs.

use std::fmt::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};

use oncewire_testnet::{Family, Line, LinkParams, Network};
use serde_json::Value;
use tempfile::TempDir;

use super::gateway::{Gateway, keygen};
use super::network::TUNNEL;
use super::wait::{LIMIT, eventually};

/// The setup of a site.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The site's line, with these settings each way.
    pub(crate) line: LinkParams,
    /// Gateways of the site: the first on its router, the others on hosts of its LAN.
    pub(crate) members: usize,
    /// Hubs, each with a server behind it.
    pub(crate) hubs: usize,
    /// Whether all of them are of one trust group.
    pub(crate) grouped: bool,
    /// TOML at the end of all configurations.
    pub(crate) all: String,
}

/// One of the gateways, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seat {
    /// A gateway of the site.
    Member(usize),
    /// A hub.
    Hub(usize),
}

/// The gateways of a site and its hubs, running. The members dial the hubs, and each the members before it.
pub(crate) struct Site {
    members: Vec<Gateway>,
    hubs: Vec<Gateway>,
    grouped: bool,
    /// Behind the gateways; they end first.
    pub(crate) network: Network,
    /// Keys, configurations, states and logs.
    dir: TempDir,
}

impl Site {
    /// Starts all gateways and waits until they have met. `None`, with the reason printed, if skipped.
    pub(crate) fn start(binary: &Path, plan: &Plan) -> Option<Self> {
        Self::start_with(binary, plan, false)
    }

    /// As [`Self::start`], but the members are not told of each other: they find each other on the LAN.
    pub(crate) fn start_finding(binary: &Path, plan: &Plan) -> Option<Self> {
        Self::start_with(binary, plan, true)
    }

    fn start_with(binary: &Path, plan: &Plan, finding: bool) -> Option<Self> {
        let count = |number: usize| u8::try_from(number).unwrap();
        let network = Network::builder()
            .clients_each(count(plan.members))
            .hubs(count(plan.hubs))
            .line(Line::emulated(&plan.line))
            .build_or_skip()?;
        let dir = tempfile::tempdir().unwrap();
        let keys = Keys::make(binary, dir.path(), plan);
        let gateway = |seat: Seat| {
            let text = format!("{}{}", config(&network, &keys, plan, (seat, finding)), plan.all);
            Gateway::new(binary, dir.path(), &seat.name(), ADMIN.parse().unwrap(), &text)
        };
        let members = (0..plan.members).map(|at| gateway(Seat::Member(at))).collect();
        let hubs = (0..plan.hubs).map(|at| gateway(Seat::Hub(at))).collect();
        let mut site = Self { members, hubs, grouped: plan.grouped, network, dir };
        site.seats().into_iter().for_each(|seat| site.launch(seat));
        site.wait_until_met();
        Some(site)
    }

    /// All gateways, the hubs first.
    fn seats(&self) -> Vec<Seat> {
        let members = (0..self.members.len()).map(Seat::Member);
        (0..self.hubs.len()).map(Seat::Hub).chain(members).collect()
    }

    /// A gateway; queries to it must come from its host, by [`status`](Self::status).
    pub(crate) fn gateway(&self, seat: Seat) -> &Gateway {
        match seat {
            Seat::Member(at) => &self.members[at],
            Seat::Hub(at) => &self.hubs[at],
        }
    }

    /// The same, to stop or start it.
    pub(crate) fn gateway_mut(&mut self, seat: Seat) -> &mut Gateway {
        match seat {
            Seat::Member(at) => &mut self.members[at],
            Seat::Hub(at) => &mut self.hubs[at],
        }
    }

    /// A gateway's status.
    pub(crate) fn status(&self, seat: Seat) -> Option<Value> {
        self.network.host(&seat.host()).launch(|| self.gateway(seat).ask("status"))
    }

    /// A counter of a gateway's group.
    pub(crate) fn group(&self, seat: Seat, key: &str) -> Option<u64> {
        self.status(seat)?["groups"][0][key].as_u64()
    }

    /// Listens at the server behind a hub.
    pub(crate) fn listen(&self, hub: usize) -> TcpListener {
        let address = server(&self.network, hub);
        self.network.host(&numbered("server", hub)).enter(|| TcpListener::bind(address).unwrap())
    }

    /// Connects a client of the site to the server behind a hub, by way of a gateway or, if `None`, without.
    pub(crate) fn connect(&self, member: Option<usize>, hub: usize) -> TcpStream {
        let to = match member {
            Some(at) => {
                let gateway = self.network.host(&Seat::Member(at).host());
                SocketAddr::new(gateway.lan_ip(Family::V4), port(hub))
            }
            None => server(&self.network, hub),
        };
        let client = self.network.host(&numbered("client", self.members.len() - 1));
        let stream = client.enter(|| TcpStream::connect(to).unwrap());
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream
    }

    /// The bytes on the line, packets' headers included: from the site, and to it.
    pub(crate) fn crossed(&self) -> [u64; 2] {
        let wan = self.network.wan();
        [&wan.up, &wan.down].map(|way| way.counters().carried_bytes)
    }

    /// Waits until all others have heard of all content stored by a gateway of the site since its start.
    pub(crate) fn wait_told(&self, member: usize) {
        let from = Seat::Member(member);
        eventually("all is told", LIMIT, || {
            let status = self.status(from)?;
            let (store, group) = (&status["store"], &status["groups"][0]);
            let stored = store["waiting_bytes"] == 0;
            let told = group["announced"].as_u64()?;
            let all = told + group["not_announced"].as_u64()? == group["new"].as_u64()? && told > 0;
            let mut others = self.seats().into_iter().filter(|seat| *seat != from);
            (stored && all && others.all(|seat| self.group(seat, "heard") >= Some(told))).then_some(())
        });
    }

    /// Chunks given by a gateway of the site to the only other one, and those it took.
    pub(crate) fn given(&self, member: usize) -> [u64; 2] {
        let [own, other] = [member, 1 - member].map(Seat::Member);
        [self.group(own, "given"), self.group(other, "taken")].map(Option::unwrap_or_default)
    }

    /// Waits until the content given by a gateway since `before` is stored at the other.
    pub(crate) fn wait_given(&self, member: usize, before: [u64; 2]) {
        let other = Seat::Member(1 - member);
        eventually("all is given", LIMIT, || {
            let [given, taken] = self.given(member);
            let stored = self.status(other)?["store"]["waiting_bytes"] == 0;
            (stored && given > before[0] && taken - before[1] >= given - before[0]).then_some(())
        });
    }

    /// A gateway's state directory.
    pub(crate) fn state(&self, seat: Seat) -> PathBuf {
        self.dir.path().join(format!("{}-state", seat.name()))
    }

    /// Chunks named by the hubs and absent at the site.
    pub(crate) fn absent(&self) -> u64 {
        let hubs = (0..self.hubs.len()).map(|at| self.status(Seat::Hub(at)).unwrap());
        hubs.flat_map(|status| status["peers"].as_array().unwrap().clone())
            .filter_map(|peer| peer["out"]["names"]["absent"].as_u64())
            .sum()
    }

    /// Starts a stopped gateway.
    pub(crate) fn launch(&mut self, seat: Seat) {
        let Self { members, hubs, network, .. } = self;
        let gateway = match seat {
            Seat::Member(at) => &mut members[at],
            Seat::Hub(at) => &mut hubs[at],
        };
        network.host(&seat.host()).launch(|| gateway.start());
    }

    /// Waits until all links are up and all neighbours know each other.
    pub(crate) fn wait_until_met(&self) {
        eventually("all have met", LIMIT, || {
            let met = self.seats().into_iter().all(|seat| self.has_met(seat).unwrap_or_default());
            met.then_some(())
        });
    }

    fn has_met(&self, seat: Seat) -> Option<bool> {
        let status = self.status(seat)?;
        let up = status["peers"].as_array()?.iter().all(|peer| peer["state"] == "up");
        let neighbours = match seat {
            Seat::Member(_) if self.grouped => self.members.len() as u64 - 1,
            _ => 0,
        };
        let known = if self.grouped { status["groups"][0]["neighbours"].as_u64()? } else { 0 };
        Some(up && known >= neighbours)
    }
}

impl Seat {
    fn name(self) -> String {
        match self {
            Self::Member(at) => numbered("member", at),
            Self::Hub(at) => numbered("hub", at),
        }
    }

    /// Its host.
    fn host(self) -> String {
        match self {
            Self::Member(0) => "branch".into(),
            Self::Member(at) => numbered("client", at - 1),
            Self::Hub(at) => numbered("hub", at),
        }
    }
}

/// The public keys of all gateways.
struct Keys(Vec<(Seat, String)>);

impl Keys {
    fn make(binary: &Path, dir: &Path, plan: &Plan) -> Self {
        let seats = (0..plan.members).map(Seat::Member).chain((0..plan.hubs).map(Seat::Hub));
        let key = |seat: Seat| keygen(binary, &dir.join(seat.name()).with_extension("key"));
        let keys = seats.map(|seat| (seat, key(seat))).collect();
        if plan.grouped {
            let mut command = std::process::Command::new(binary);
            command.args(["keygen", "--group", "--out"]).arg(dir.join("group.key"));
            assert!(command.status().unwrap().success());
        }
        Self(keys)
    }
}

/// Writes a gateway's configuration; `finding` says whether members find each other.
fn config(network: &Network, keys: &Keys, plan: &Plan, (own, finding): (Seat, bool)) -> String {
    let name = own.name();
    let is_member = |seat| matches!(seat, Seat::Member(_));
    let site = "site = \"town\"\n";
    let mut text = format!(
        "[gateway]\nname = \"{name}\"\nkey_file = \"{name}.key\"\nadmin = \"{ADMIN}\"\nstate = \"{name}-state\"\n\
         listen = \"0.0.0.0:{TUNNEL}\"\n{}",
        if is_member(own) { site } else { "" }
    );
    for (peer, key) in &keys.0 {
        // Hubs are dialled by members alone, members by those behind them.
        let address = match (own, *peer) {
            (Seat::Hub(_), Seat::Hub(_)) => continue,
            (Seat::Member(_), Seat::Member(_)) if finding => continue,
            (Seat::Member(own), Seat::Member(peer)) if own == peer || !plan.grouped => continue,
            (Seat::Member(own), Seat::Member(at)) if at < own => Some(lan(network, at)),
            (Seat::Member(_), Seat::Hub(at)) => Some(hub(network, at)),
            _ => None,
        };
        let _ = writeln!(text, "[[peer]]\nname = \"{}\"\npublic_key = \"{key}\"", peer.name());
        if let Some(address) = address {
            let _ = writeln!(text, "address = \"{address}\"");
        }
        if plan.grouped {
            text += "group = \"all\"\n";
            text += if is_member(*peer) { site } else { "" };
        }
    }
    if plan.grouped {
        text += "[[group]]\nname = \"all\"\nkey_file = \"group.key\"\n";
        text += match own {
            Seat::Member(0) if finding => "discover = [\"lan0\"]\n",
            Seat::Member(_) if finding => "discover = [\"eth0\"]\n",
            _ => "",
        };
    }
    let hubs = if is_member(own) { plan.hubs } else { 0 };
    for at in 0..hubs {
        let (listen, target) = (port(at), server(network, at));
        let _ = writeln!(
            text,
            "[[intercept]]\nmode = \"forward\"\nlisten = \"0.0.0.0:{listen}\"\ntarget = \"{target}\"\npeer = \"{}\"",
            Seat::Hub(at).name()
        );
    }
    text
}

/// A site gateway's address for its neighbours' lanes.
fn lan(network: &Network, member: usize) -> SocketAddr {
    SocketAddr::new(network.host(&Seat::Member(member).host()).lan_ip(Family::V4), TUNNEL)
}

/// A hub's address for lanes.
fn hub(network: &Network, at: usize) -> SocketAddr {
    SocketAddr::new(network.host(&Seat::Hub(at).host()).ip(Family::V4), TUNNEL)
}

/// The address of the server behind a hub.
fn server(network: &Network, hub: usize) -> SocketAddr {
    SocketAddr::new(network.host(&numbered("server", hub)).ip(Family::V4), port(hub))
}

/// The port of each gateway of the site for the server behind a hub, and of this server.
fn port(hub: usize) -> u16 {
    8080 + u16::try_from(hub).unwrap()
}

/// The first has no number.
fn numbered(name: &str, at: usize) -> String {
    if at == 0 { name.into() } else { format!("{name}{}", at + 1) }
}

/// Each host has a loopback interface of its own.
const ADMIN: &str = "127.0.0.1:7411";
