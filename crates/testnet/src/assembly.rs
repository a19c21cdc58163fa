//! Puts a network together.
//!
//! The commands of `ip` are collected first, then run by one process for all interfaces and one for each namespace,
//! all of those at once.
//!
//! Interfaces have different indexes across namespaces. If both ends of a pair have the same one, Linux takes up to a
//! second to notice the carrier, and IPv6 waits for it.

use std::fmt::Write as _;
use std::sync::Arc;

use crate::addresses::Pair;
use crate::driver::{Direction, Ends, Layout, Wan, packet_ends, tun_end};
use crate::host::Host;
use crate::namespace::{Cage, Namespace};
use crate::programs::Batch;
use crate::{Error, Line, LinkParams, Network, Shell};

/// A network under construction.
pub(crate) struct Assembly {
    cage: Arc<Cage>,
    congestion: Option<String>,
    spaces: Vec<Space>,
    /// For `ip`: all pairs of interfaces.
    pairs: String,
    next_index: u32,
    sites: u8,
    emulated: Vec<Emulated>,
    /// The number of end hosts in a bridged network so far; none for a routed one.
    bridged: Option<u8>,
}

/// A namespace and its commands.
struct Space {
    namespace: Arc<Namespace>,
    /// For `ip`.
    commands: String,
    /// For `tc`.
    shaping: String,
    /// `None` for a namespace other than a host's.
    host: Option<Host>,
}

/// A line for the emulator.
struct Emulated {
    gateway: String,
    up: LinkParams,
    down: LinkParams,
    ends: UnopenedEnds,
}

enum UnopenedEnds {
    /// Descriptors at the site and at the core.
    Tun(Ends),
    /// The namespace, and the interfaces towards the site and the core.
    Packet(usize, [u32; 2]),
}

/// The space of the core, the first to be made.
const CORE: usize = 0;

impl Assembly {
    /// Makes the core.
    pub(crate) fn new(congestion: Option<String>, bridged: bool) -> Result<Self, Error> {
        let cage = Cage::new().map_err(|error| Error::from_io("a process namespace", &error))?;
        let mut assembly = Self {
            cage: Arc::new(cage),
            congestion,
            spaces: Vec::new(),
            pairs: String::new(),
            next_index: 100,
            sites: 0,
            emulated: Vec::new(),
            bridged: bridged.then_some(0),
        };
        assembly.add_host("core", None, None, None)?;
        if bridged {
            assembly.add_bridge(CORE);
        }
        Ok(assembly)
    }

    /// Adds a site: its gateway, its hosts, and the line to the core.
    pub(crate) fn add_site(&mut self, gateway: &str, hosts: Vec<String>, line: &Line) -> Result<(), Error> {
        self.sites += 1;
        let site = self.sites;
        if self.bridged.is_some() {
            return self.add_bridged_site(gateway, hosts, line);
        }
        let inward = Pair::lan(site, 1);
        let at = self.add_host(gateway, Some(gateway), Some(inward), Some(Pair::line(site, 1)))?;
        self.add_lan(at, gateway, site, hosts)?;
        self.add_line(at, gateway, line)?;
        self.address(at, "lan0", inward);
        self.address(at, "wan0", Pair::line(site, 1));
        self.address(CORE, gateway, Pair::line(site, 2));
        let Pair { v4, v6 } = Pair::line(site, 2);
        self.command(at, format_args!("route add default via {v4}\nroute add ::/0 via {v6}"));
        let Pair { v4, v6 } = Pair::line(site, 1);
        self.command(
            CORE,
            format_args!("route add 198.18.{site}.0/24 via {v4}\nroute add fd18:{site:x}::/64 via {v6}"),
        );
        Ok(())
    }

    /// Adds a site with a bridge for its gateway.
    fn add_bridged_site(&mut self, gateway: &str, hosts: Vec<String>, line: &Line) -> Result<(), Error> {
        let address = Pair::lan(1, self.sites);
        let at = self.add_host(gateway, Some(gateway), Some(address), Some(address))?;
        self.add_lan(at, gateway, self.sites, hosts)?;
        self.add_line(at, gateway, line)?;
        self.add_bridge(at);
        for port in ["lan0", "wan0"] {
            self.command(at, format_args!("link set {port} master br0 up"));
        }
        self.address(at, "br0", address);
        self.command(CORE, format_args!("link set {gateway} master br0 up"));
        Ok(())
    }

    fn add_bridge(&mut self, at: usize) {
        self.command(at, format_args!("link add br0 type bridge forward_delay 0\nlink set br0 up"));
    }

    /// Does all of it.
    pub(crate) fn build(self) -> Result<Network, Error> {
        let core = self.spaces.first().map(|space| space.namespace.clone());
        let core = core.ok_or_else(|| Error::Failed("there is no core".into()))?;
        inside(&core, || Batch::start("ip", &self.pairs)?.finish())?;
        self.batches("ip", |space| &space.commands)?;
        self.batches("tc", |space| &space.shaping)?;
        let mut lines = Vec::new();
        for line in self.emulated {
            let ends = match line.ends {
                UnopenedEnds::Tun(ends) => ends,
                UnopenedEnds::Packet(at, interfaces) => self.spaces.get(at).map_or_else(
                    || Err(Error::Failed("the line is nowhere".into())),
                    |space| open_packet_ends(&space.namespace, interfaces),
                )?,
            };
            let up = Direction::start(&format!("{} up", line.gateway), line.up, ends.clone())?;
            let down = Direction::start(&format!("{} down", line.gateway), line.down, ends.turned())?;
            lines.push((line.gateway, Wan { up, down }));
        }
        let namespaces = self.spaces.iter().map(|space| space.namespace.clone()).collect();
        let mut hosts: Vec<Host> = self.spaces.into_iter().filter_map(|space| space.host).collect();
        // Hosts were made gateway first; people read from client to server.
        hosts.sort_by_key(|host| place(host.name()));
        Ok(Network::new(hosts, lines, namespaces))
    }

    /// Runs a program in every namespace with commands, all at once.
    fn batches(&self, program: &str, of: impl Fn(&Space) -> &String + Sync) -> Result<(), Error> {
        let busy = self.spaces.iter().filter(|space| !of(space).is_empty());
        let started: Vec<_> =
            busy.map(|space| inside(&space.namespace, || Batch::start(program, of(space)))).collect();
        started.into_iter().try_for_each(|batch| batch?.finish())
    }

    fn add_lan(&mut self, gateway: usize, name: &str, site: u8, hosts: Vec<String>) -> Result<(), Error> {
        let switch = if hosts.len() > 1 { Some(self.add_switch(gateway)?) } else { None };
        for (number, host) in (2..).zip(hosts) {
            let address = self.host_address(site, number)?;
            let at = self.add_host(&host, Some(name), Some(address), None)?;
            let port = format!("port{number}");
            let (space, interface) = switch.map_or((gateway, "lan0"), |switch| (switch, port.as_str()));
            self.pair((space, interface), (at, "eth0"));
            if let Some(switch) = switch {
                self.command(switch, format_args!("link set {port} master br0 up"));
            }
            self.address(at, "eth0", address);
            if self.bridged.is_some() {
                continue;
            }
            let Pair { v4, v6 } = Pair::lan(site, 1);
            let congestion =
                self.congestion.as_ref().map_or_else(String::new, |name| format!(" congctl {name}"));
            self.command(
                at,
                format_args!("route add default via {v4}{congestion}\nroute add ::/0 via {v6}{congestion}"),
            );
        }
        Ok(())
    }

    /// Returns the address of an end host: its own network's, or the next of the only one.
    fn host_address(&mut self, site: u8, number: u8) -> Result<Pair, Error> {
        let Some(hosts) = &mut self.bridged else { return Ok(Pair::lan(site, number)) };
        // Gateways have the numbers up to there.
        let next = hosts.checked_add(1).filter(|next| *next < u8::MAX - MOST_SITES);
        *hosts = next.ok_or_else(|| Error::Failed("a bridged network has too many hosts".into()))?;
        Ok(Pair::lan(1, MOST_SITES + *hosts))
    }

    /// Adds a bridge in a namespace of its own, with the gateway's LAN interface at its first port.
    fn add_switch(&mut self, gateway: usize) -> Result<usize, Error> {
        let switch = self.add_space(None, Settings::Silent)?;
        self.pair((gateway, "lan0"), (switch, "port1"));
        self.add_bridge(switch);
        self.command(switch, format_args!("link set port1 master br0 up"));
        Ok(switch)
    }

    fn add_line(&mut self, at: usize, gateway: &str, line: &Line) -> Result<(), Error> {
        match line {
            Line::Plain => {
                self.pair((at, "wan0"), (CORE, gateway));
            }
            Line::TokenBucket { rate_bits_per_s } => {
                self.pair((at, "wan0"), (CORE, gateway));
                self.shape(at, "wan0", *rate_bits_per_s);
                self.shape(CORE, gateway, *rate_bits_per_s);
            }
            Line::Emulated { up, down, shell } => {
                let ends = self.add_emulated(at, gateway, *shell)?;
                // A packet too large for one of the two ways would vanish there without an error.
                let mtu = up.mtu.min(down.mtu);
                for (at, interface) in [(at, "wan0"), (CORE, gateway)] {
                    self.command(at, format_args!("link set {interface} mtu {mtu}"));
                }
                let (up, down) = (up.clone(), down.clone());
                self.emulated.push(Emulated { gateway: gateway.into(), up, down, ends });
            }
        }
        Ok(())
    }

    fn add_emulated(&mut self, at: usize, gateway: &str, shell: Shell) -> Result<UnopenedEnds, Error> {
        if shell != Shell::Packet {
            match self.add_tun(at, gateway) {
                Err(Error::Missing(_)) if shell == Shell::Any => {}
                other => return other,
            }
        }
        let middle = self.add_space(None, Settings::Silent)?;
        let [_, site] = self.pair((at, "wan0"), (middle, "site"));
        let [_, core] = self.pair((CORE, gateway), (middle, "core"));
        self.command(middle, format_args!("link set site up\nlink set core up"));
        // The emulator carries the packets of a wire, so segments are cut before it.
        self.command(at, format_args!("link set wan0 gso_max_segs 1"));
        self.command(CORE, format_args!("link set {gateway} gso_max_segs 1"));
        Ok(UnopenedEnds::Packet(middle, [site, core]))
    }

    fn add_tun(&mut self, at: usize, gateway: &str) -> Result<UnopenedEnds, Error> {
        let open = |at: usize, name: &str| {
            let space = self.spaces.get(at).ok_or_else(|| Error::Failed("there is no such host".into()))?;
            inside(&space.namespace, || {
                tun_end(name).map_err(|error| Error::from_io("a TUN interface (/dev/net/tun)", &error))
            })
        };
        let (from, into) = (open(at, "wan0")?, open(CORE, gateway)?);
        for (at, interface) in [(at, "wan0"), (CORE, gateway)] {
            self.command(at, format_args!("link set {interface} txqueuelen {TUN_QUEUE}"));
        }
        Ok(UnopenedEnds::Tun(Ends { from, into, layout: Layout::Bare }))
    }

    fn add_host(
        &mut self,
        name: &str,
        site: Option<&str>,
        lan: Option<Pair>,
        line: Option<Pair>,
    ) -> Result<usize, Error> {
        // Gateways have a line; so does the core, without a LAN.
        let routes = line.is_some() || lan.is_none();
        let settings = match (routes, self.bridged) {
            (false, _) => Settings::EndHost,
            (true, None) => Settings::Router,
            (true, Some(_)) => Settings::Bridge,
        };
        let at = self.add_space(None, settings)?;
        if let Some(space) = self.spaces.get_mut(at) {
            let (namespace, cage) = (space.namespace.clone(), self.cage.clone());
            space.host =
                Some(Host { name: name.into(), site: site.map(Into::into), lan, line, namespace, cage });
        }
        Ok(at)
    }

    fn add_space(&mut self, host: Option<Host>, settings: Settings) -> Result<usize, Error> {
        let namespace = Namespace::new().map_err(|error| Error::from_io("a network namespace", &error))?;
        inside(&namespace, || settings.apply())?;
        let commands = "link set lo up\n".into();
        self.spaces.push(Space { namespace: Arc::new(namespace), commands, shaping: String::new(), host });
        Ok(self.spaces.len() - 1)
    }

    /// Joins two namespaces by a pair of interfaces, and returns their indexes.
    fn pair(&mut self, one: (usize, &str), other: (usize, &str)) -> [u32; 2] {
        let indexes = [self.next_index, self.next_index + 1];
        self.next_index += 2;
        let mut end = |(at, name): (usize, &str), index: u32, kind: &str| {
            let path = self.spaces.get(at).map(|space| space.namespace.path()).unwrap_or_default();
            let _ = write!(self.pairs, "{name} index {index} netns {path} {kind}");
        };
        let [one_index, other_index] = indexes;
        end((one.0, &format!("link add name {}", one.1)), one_index, "type veth peer name ");
        end(other, other_index, "\n");
        indexes
    }

    /// Gives an interface its addresses and sets it up.
    fn address(&mut self, at: usize, interface: &str, Pair { v4, v6 }: Pair) {
        self.command(
            at,
            format_args!(
                "addr add {v4}/24 dev {interface}\naddr add {v6}/64 dev {interface} nodad\nlink set {interface} up"
            ),
        );
    }

    fn shape(&mut self, at: usize, interface: &str, rate_bits_per_s: u64) {
        // Five milliseconds' worth, and never less than a few packets.
        let burst = (rate_bits_per_s / 8 / 200).max(16_384);
        if let Some(space) = self.spaces.get_mut(at) {
            let _ = writeln!(
                space.shaping,
                "qdisc add dev {interface} root tbf rate {rate_bits_per_s}bit burst {burst} latency 100ms"
            );
        }
    }

    fn command(&mut self, at: usize, command: std::fmt::Arguments<'_>) {
        if let Some(space) = self.spaces.get_mut(at) {
            let _ = writeln!(space.commands, "{command}");
        }
    }
}

/// Settings of a namespace before it has an interface.
#[derive(Clone, Copy)]
enum Settings {
    EndHost,
    Router,
    /// Its packets are no business of its IP stack.
    Bridge,
    /// Without addresses of its own.
    Silent,
}

impl Settings {
    /// Writes them for the namespace of the calling thread.
    fn apply(self) -> Result<(), Error> {
        let mut settings = vec![
            ("ipv4/conf/all/rp_filter", "0"),
            ("ipv4/conf/default/rp_filter", "0"),
            ("ipv6/conf/all/accept_dad", "0"),
            ("ipv6/conf/default/accept_dad", "0"),
        ];
        match self {
            Self::EndHost => {}
            // Without such a setting, the default is right.
            Self::Bridge => settings.extend(
                BRIDGE
                    .into_iter()
                    .filter(|(name, _)| std::path::Path::new("/proc/sys/net").join(name).exists()),
            ),
            Self::Router => settings.extend([("ipv4/ip_forward", "1"), ("ipv6/conf/all/forwarding", "1")]),
            Self::Silent => settings.extend([("ipv6/conf/default/disable_ipv6", "1")]),
        }
        for (name, value) in settings {
            std::fs::write(format!("/proc/sys/net/{name}"), value)
                .map_err(|error| Error::from_io(&format!("/proc/sys/net/{name}"), &error))?;
        }
        Ok(())
    }
}

fn open_packet_ends(middle: &Namespace, interfaces: [u32; 2]) -> Result<Ends, Error> {
    let [from, into] = inside(middle, || {
        packet_ends(interfaces).map_err(|error| Error::from_io("a packet socket", &error))
    })?;
    Ok(Ends { from, into, layout: Layout::Framed })
}

fn inside<T: Send>(
    namespace: &Namespace,
    body: impl FnOnce() -> Result<T, Error> + Send,
) -> Result<T, Error> {
    namespace.enter(body).map_err(|error| Error::from_io("a network namespace", &error))?
}

/// The place of a host between the clients and the servers.
fn place(name: &str) -> usize {
    let kind = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
    ["client", "branch", "core", "hub", "server"]
        .iter()
        .position(|known| *known == kind)
        .unwrap_or(usize::MAX)
}

/// Frames in a bridge do not meet rules for packets.
const BRIDGE: [(&str, &str); 3] = [
    ("bridge/bridge-nf-call-iptables", "0"),
    ("bridge/bridge-nf-call-ip6tables", "0"),
    ("bridge/bridge-nf-call-arptables", "0"),
];

/// The most branches and hubs, together half the room of an address.
pub(crate) const MOST_SITES: u8 = 100;

/// Packets waiting in the kernel for the emulator: enough for a short delay of it.
const TUN_QUEUE: u32 = 10_000;
