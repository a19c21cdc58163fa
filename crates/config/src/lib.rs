//! The configuration: as typed (`raw`), and as meant ([`Config`]).
//!
//! `docs/reference/configuration.md` describes every key. Nothing is clamped or ignored in silence: an
//! impossible setting is an error with file, line, column and a way out, and all errors are reported at once.

mod capture;
mod codec;
mod explain;
mod folders;
mod machine;
mod memory;
mod network;
mod policy;
mod problem;
mod raw;
mod resolve;
mod sample;
mod secrets;
mod settings;
mod typed;
pub mod units;
mod wording;

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use oncewire_codec::adapt::Adapt;
use oncewire_codec::wire::{Destination, Host};
use oncewire_keys::{GroupKey, Identity, PublicKey, StorageKey};
use tracing::level_filters::LevelFilter;

use self::typed::Typed;

pub use capture::both_families;
pub use capture::{Capture, PortRange, RulesBy, Scope};
pub use codec::Codec;
pub use memory::{ContextMemory, KeptLogs, index_memory, log_demand};
pub use memory::{LogBudget, MAX_FOUND, MemoryPlan, SetMemory};
pub use network::unnamed;
pub use network::{Access, Network, NetworkError};
pub use policy::{PathChoice, Policies, Policy, PolicyOutcome, Usual};
pub use problem::{ConfigError, Problem};
pub use sample::SampleBytes;
pub use secrets::same as same_secret;
pub use secrets::{Users, read_token};
pub use settings::{CodecSettings, Entropy, Matchings, PlanChanges, SetError};

/// The configuration as meant: defaults filled in, overrides applied, files read, contradictions excluded.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file it was read from.
    pub path: PathBuf,
    /// This gateway.
    pub gateway: Gateway,
    /// The peers, in the file's order.
    pub peers: Vec<Peer>,
    /// Entry points of flows, in the file's order.
    pub intercepts: Vec<Intercept>,
    /// Rules for the path and the coding of flows.
    pub policies: Policies,
    /// First lines of its rules in the file, from 1.
    pub policy_lines: Vec<usize>,
    /// Line and column of `encrypt_key_file`, or else of the storage setting.
    pub key_place: (usize, usize),
    /// Memory budget of everything growing with peers and flows.
    pub memory: u64,
    /// Its parts fixed for each peer.
    pub set_memory: SetMemory,
    /// Its part for logs.
    pub log_budget: LogBudget,
    /// How long both logs of a peer go unused before their memory is given back, if they are on disk; default 10 min.
    pub log_idle: Duration,
    /// The chunk store; default none.
    pub store: Option<StoreSettings>,
    /// Discovery of gateways of the same site; default off.
    pub discovery: Option<Discovery>,
    /// Permitted but probably unwanted settings, for `check` and the log.
    pub warnings: Vec<String>,
    /// Files private to their owner, with their keys.
    pub private_files: Vec<(&'static str, PathBuf)>,
}

/// This gateway.
#[derive(Clone, Debug)]
pub struct Gateway {
    /// The name in logs and `status`.
    pub name: String,
    /// File of the key pair.
    pub key_file: PathBuf,
    /// The key pair.
    pub identity: Identity,
    /// Listening addresses for peers; empty if we only dial out.
    pub listen: Vec<SocketAddr>,
    /// Address of `status` and metrics; none if not served.
    pub admin: Option<Admin>,
    /// Directory of state surviving a restart; none without such state.
    pub state: Option<PathBuf>,
    /// Encryption key of that state; none leaves it in clear text.
    pub encrypt_key: Option<StorageKey>,
    /// How long flows may go on after a request to stop; default 30 s.
    pub drain: Duration,
    /// Account of `run` under root; none leaves it unchanged.
    pub user: Option<String>,
    /// Time without progress until the process aborts; default 10 s, none never.
    pub watchdog: Option<Duration>,
    /// Silence of an application's host until it is probed; default 2 h, none never.
    pub keepalive: Option<Duration>,
    /// Level of logging; none leaves it to the command line.
    pub log_level: Option<LevelFilter>,
    /// The networks behind this gateway, announced to peers; at most [`MAX_NETWORKS`].
    ///
    /// [`MAX_NETWORKS`]: oncewire_codec::wire::MAX_NETWORKS
    pub announce: Vec<Network>,
    /// Its site; gateways of the same site are its neighbours; none if it has none.
    pub site: Option<String>,
    /// Priority of the routing rule for intercepted packets; none is the default.
    pub rule_priority: Option<u32>,
    /// Mark of packets led here by rules; none derives one from the gateway's name.
    pub mark: Option<u32>,
}

/// A trust group: its members share the chunks in their stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Unique name, referred to by peers.
    pub name: String,
    /// Secret shared by its members.
    pub key: GroupKey,
}

/// Discovery of the site's other gateways.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovery {
    /// UDP port of discovery; default 7400.
    pub port: u16,
    /// Groups with discovery.
    pub groups: Vec<Looked>,
    /// Configuration of discovered gateways, but for name, key, address, group and site.
    pub found: Peer,
}

/// Discovery of a group's members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Looked {
    /// The group.
    pub group: Group,
    /// Interfaces of multicast announcements.
    pub interfaces: Vec<String>,
    /// Gateways told of this one; they tell of the ones they know.
    pub seeds: Vec<Destination>,
}

/// The admin interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// Listening address.
    pub listen: SocketAddr,
    /// Token required of requests; none requires none, on loopback only.
    pub token: Option<String>,
}

/// The chunk store of a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreSettings {
    /// Its directory; default `store` in the state directory.
    pub path: PathBuf,
    /// Its bytes of disk.
    pub disk: u64,
    /// Bytes of its index, out of `[cache] memory`.
    pub index_memory: u64,
    /// Simulated time of each disk read, for trials; default none.
    pub read_latency: Option<Duration>,
}

/// Place and owners of logs and chunks.
#[derive(Clone, Debug)]
pub struct Caches {
    /// Admin address of the running gateway.
    pub admin: Option<Admin>,
    /// Directory of state surviving a restart; none without such state.
    pub state: Option<PathBuf>,
    /// The directory of the chunk store, if there is to be one.
    pub store: Option<PathBuf>,
    /// Every peer's name and keys, in the file's order.
    pub peers: Vec<(String, Vec<PublicKey>)>,
}

/// Another gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its name, unique.
    pub name: String,
    /// Its public keys, more than one while they rotate.
    pub public_keys: Vec<PublicKey>,
    /// Dialled address; none if it dials us.
    pub address: Option<Destination>,
    /// The group of both; none if they share nothing with others.
    pub group: Option<Group>,
    /// Its site; its neighbours are the peers of the same group and site.
    pub site: Option<String>,
    /// The networks behind it, for `peer = "auto"`; its announcements do not change them.
    pub networks: Vec<Network>,
    /// Networks it may announce parts of; none forbids announcements.
    pub accept_networks: Option<Vec<Network>>,
    /// Networks announced to it: the part of `[gateway] announce` with destinations it may reach.
    pub told: Vec<Network>,
    /// Destinations allowed to it by way of us.
    pub access: Access,
    /// Client networks it may ask us to connect from; default none.
    pub allow_sources: Vec<Network>,
    /// Codec settings of the direction to it.
    pub settings: CodecSettings,
    /// Trade-off of the coding effort while coding holds up the direction to it; default savings.
    pub adapt: Adapt,
    /// The settings of the link.
    pub link: LinkSettings,
    /// Its share of the memory.
    pub memory: MemoryPlan,
    /// Whether it was discovered rather than configured: it carries no flows.
    pub found: bool,
}

impl Peer {
    /// Whether it is a neighbour of a gateway at `site`.
    pub fn is_near(&self, site: Option<&str>) -> bool {
        site.is_some() && self.group.is_some() && self.site.as_deref() == site
    }

    /// Returns its dialled address, unless that is a name.
    pub fn tunnel(&self) -> Option<SocketAddr> {
        let Destination { host: Host::Ip(ip), port } = self.address.as_ref()? else { return None };
        Some(SocketAddr::new(*ip, *port))
    }
}

/// The settings of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkSettings {
    /// How long a flow waits for a lane after its own broke; default 2 min.
    pub resume_window: Duration,
    /// Silence of a dead peer; none means max(10 s, 8 × smoothed round trip).
    pub dead_after: Option<Duration>,
    /// The kernel's congestion control on lanes; default `bbr`.
    pub congestion: String,
    /// Whether `congestion` was set: its absence in the kernel is then worth a warning.
    pub congestion_chosen: bool,
    /// Maximum send rate in bits per second, all lanes together; none means no limit.
    pub rate_limit: Option<u64>,
    /// Bytes sent by a flow until it counts as bulk, without a rule on priority; default 1 MiB.
    pub bulk_after: u64,
    /// The most lanes for flows; default 64.
    pub max_lanes: u32,
    /// Whether chunks are asked for over the network when that is quicker than the disk; default yes.
    pub shed: bool,
}

/// An entry point of flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intercept {
    /// How.
    pub mode: Mode,
    /// Address for applications.
    pub listen: SocketAddr,
    /// Peer of the flows.
    pub peer: PeerChoice,
    /// Accounts of a proxy; empty requires no name and password.
    pub users: Users,
    /// Permitted client networks; none means any.
    pub allow_from: Option<Vec<Network>>,
    /// Fate of new flows while the peer is gone; default direct for transparent modes, else refuse.
    pub on_peer_loss: OnPeerLoss,
}

/// How flows are taken in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Every connection goes to one destination.
    Forward {
        /// Fixed destination, resolved at the far end.
        target: Destination,
        /// Whether the server learns the client's address, by PROXY protocol version 2; default no.
        proxy_protocol: bool,
    },
    /// A SOCKS 5 proxy.
    Socks5,
    /// An HTTP proxy.
    Http,
    /// Unchanged connections passing through this machine.
    Tproxy(Capture),
    /// Connections of this machine, or through it, with their destination changed to ours.
    Redirect(Capture),
}

impl Mode {
    /// Returns the name in the configuration.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Forward { .. } => "forward",
            Self::Socks5 => "socks5",
            Self::Http => "http",
            Self::Tproxy(_) => "tproxy",
            Self::Redirect(_) => "redirect",
        }
    }

    /// Returns the scope of a transparent mode.
    pub fn capture(&self) -> Option<&Capture> {
        match self {
            Self::Forward { .. } | Self::Socks5 | Self::Http => None,
            Self::Tproxy(capture) | Self::Redirect(capture) => Some(capture),
        }
    }
}

/// Peer of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerChoice {
    /// The peer of this name.
    Named(String),
    /// The best of the destination's peers; see `docs/internals/peering.md`.
    Auto,
}

/// Fate of new flows while their peer is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnPeerLoss {
    /// This gateway connects by itself, in the clear.
    Direct,
    /// They are refused.
    Refuse,
}

impl OnPeerLoss {
    /// Returns the name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Refuse => "refuse",
        }
    }
}

/// Reads the text of a configuration; pipes work too.
fn read(path: &Path) -> Result<String, ConfigError> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_CONFIG + 1).read_to_end(&mut bytes));
    let read = read.and_then(|len| match len as u64 <= MAX_CONFIG {
        true => Ok(()),
        false => {
            Err(io::Error::other(format!("it is longer than {MAX_CONFIG} bytes; is it the right file?")))
        }
    });
    read.map_err(|error| ConfigError::unreadable(path, &error))?;
    String::from_utf8(bytes).map_err(|error| ConfigError::no_text(path, &error))
}

/// Some hundred thousand rules; keeps a mistaken path from being read for ever.
const MAX_CONFIG: u64 = 16 << 20;

impl Config {
    /// Reports a mismatch of the configured key with the one on disk.
    pub fn wrong_key(&self, why: &impl fmt::Display) -> ConfigError {
        let problem = Problem { place: Some(self.key_place), message: format!("encrypt_key_file: {why}") };
        ConfigError { path: self.path.clone(), problems: vec![problem] }
    }

    /// Reads a configuration file and all files named by it.
    ///
    /// # Errors
    /// All its problems, with places.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = read(path)?;
        let mut config = Self::parse(&text, path)?;
        config.warnings.extend(secrets::exposure(path, &config));
        Ok(config)
    }

    /// Reads a configuration from its text; `path` stands in messages and is the base of relative paths.
    ///
    /// # Errors
    /// All its problems, with places.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let typed = Typed::read(text).map_err(|error| ConfigError::syntax(path, text, &error))?;
        resolve::resolve(typed, path, text)
    }

    /// Reads only the admin address and token, for `status`: other keys' files need not be readable.
    ///
    /// # Errors
    /// If the file is no configuration or says nothing valid about `admin`.
    pub fn load_admin(path: &Path) -> Result<Option<Admin>, ConfigError> {
        let text = read(path)?;
        let typed = Typed::read(&text).map_err(|error| ConfigError::syntax(path, &text, &error))?;
        resolve::admin_alone(typed, path, &text)
    }

    /// Reads only the place and owners of caches, for `cache clear`: other keys' files need not be readable.
    ///
    /// # Errors
    /// If the file is no configuration, or says nothing valid about `admin` or the peers' keys.
    pub fn load_caches(path: &Path) -> Result<Caches, ConfigError> {
        let text = read(path)?;
        let typed = Typed::read(&text).map_err(|error| ConfigError::syntax(path, &text, &error))?;
        resolve::caches_alone(typed, path, &text)
    }

    /// Returns the peer of a name.
    pub fn peer(&self, name: &str) -> Option<&Peer> {
        self.peers.iter().find(|peer| peer.name == name)
    }

    /// Returns the peer with this key.
    pub fn peer_of_key(&self, key: &PublicKey) -> Option<&Peer> {
        self.peers.iter().find(|peer| peer.public_keys.contains(key))
    }

    /// Returns a group under its name here, if it has another: its key is its identity.
    pub fn called_now(&self, group: &Group) -> Group {
        let looked =
            self.discovery.iter().flat_map(|discovery| &discovery.groups).map(|looked| &looked.group);
        let mut known = looked.chain(self.peers.iter().filter_map(|peer| peer.group.as_ref()));
        known.find(|known| known.key == group.key).unwrap_or(group).clone()
    }
}
