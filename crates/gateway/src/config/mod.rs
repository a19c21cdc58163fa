//! The configuration: as typed (`raw`), and as meant ([`Config`]).
//!
//! `docs/reference/configuration.md` describes every key. Nothing is clamped or ignored in silence: what cannot be done as
//! written is an error with file, line, column and a way out, and all errors are reported at once.

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

pub use oncewire_codec::pace::Adapt;
use oncewire_codec::wire::{Destination, Host};
use tracing::level_filters::LevelFilter;

use self::typed::Typed;
use crate::group_key::GroupKey;
use crate::identity::{Identity, PublicKey};
use crate::storage_key::StorageKey;

pub(crate) use capture::both_families;
pub use capture::{Capture, PortRange, RulesBy, Scope};
pub use codec::Codec;
pub(crate) use memory::{ContextMemory, KeptLogs, index_memory, log_demand};
pub use memory::{LogBudget, MemoryPlan, SetMemory};
pub(crate) use network::unnamed;
pub use network::{Access, Network, NetworkError};
pub use policy::{PathChoice, Policies, Policy, PolicyOutcome, Usual};
pub use problem::{ConfigError, Problem};
pub use sample::SampleBytes;
pub(crate) use secrets::same as same_secret;
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
    /// Where flows are taken in, in the file's order.
    pub intercepts: Vec<Intercept>,
    /// Which flows cross a link, and which are coded.
    pub policies: Policies,
    /// The lines of the file where its rules begin, from 1.
    pub policy_lines: Vec<usize>,
    /// Line and column of `encrypt_key_file`, or else of what says where things are kept.
    pub(crate) key_place: (usize, usize),
    /// The bytes for everything that grows with peers and flows.
    pub memory: u64,
    /// What of it is set for each peer.
    pub set_memory: SetMemory,
    /// What of it is for logs.
    pub log_budget: LogBudget,
    /// How long both logs of a peer go unused before their memory is given back, if they are on disk; default 10 min.
    pub log_idle: Duration,
    /// The chunk store; default none.
    pub store: Option<StoreSettings>,
    /// How gateways of the same site are looked for; default not at all.
    pub discovery: Option<Discovery>,
    /// What is allowed but probably not wanted, for `check` and the log.
    pub warnings: Vec<String>,
    /// The files that nobody else may read, with the keys that name them.
    pub private_files: Vec<(&'static str, PathBuf)>,
}

/// This gateway.
#[derive(Clone, Debug)]
pub struct Gateway {
    /// The name in logs and `status`.
    pub name: String,
    /// The file that the key pair was read from.
    pub key_file: PathBuf,
    /// The key pair.
    pub identity: Identity,
    /// Where peers reach us; empty if we only dial out.
    pub listen: Vec<SocketAddr>,
    /// Where `status` and metrics are served; none if nowhere.
    pub admin: Option<Admin>,
    /// The folder of what survives a restart; none if nothing does.
    pub state: Option<PathBuf>,
    /// What is kept there is encrypted with this; none leaves it in clear text.
    pub encrypt_key: Option<StorageKey>,
    /// How long flows may go on after a request to stop; default 30 s.
    pub drain: Duration,
    /// Whom `run` becomes if root starts it; none stays who it is.
    pub user: Option<String>,
    /// After how long without progress the process aborts itself; default 10 s, none never.
    pub watchdog: Option<Duration>,
    /// After how long a silence an application's host is probed; default 60 s, none never.
    pub keepalive: Option<Duration>,
    /// How much is logged; none leaves it to the command line.
    pub log_level: Option<LevelFilter>,
    /// The networks behind this gateway, which peers are told; at most [`MAX_NETWORKS`].
    ///
    /// [`MAX_NETWORKS`]: oncewire_codec::wire::MAX_NETWORKS
    pub announce: Vec<Network>,
    /// The place where it stands, whose gateways are its neighbours; none if it has none.
    pub site: Option<String>,
    /// The place of the routing rule that leads taken-in packets here; none has the default.
    pub rule_priority: Option<u32>,
    /// The mark of packets that rules lead here; none has one by the gateway's name.
    pub mark: Option<u32>,
}

/// A trust group, whose members share the chunks in their stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The name by which peers are put into it, unique.
    pub name: String,
    /// What its members have in common.
    pub key: GroupKey,
}

/// How other gateways of the site are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovery {
    /// The UDP port where gateways tell each other where they are; default 7400.
    pub port: u16,
    /// The groups whose members are looked for.
    pub groups: Vec<Looked>,
    /// What whoever is found is configured as, but for name, key, address, group and site.
    pub found: Peer,
}

/// Where the members of a group are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Looked {
    /// The group.
    pub group: Group,
    /// The interfaces on which gateways announce themselves by multicast.
    pub interfaces: Vec<String>,
    /// Gateways that are told of this one, and tell of those that they know.
    pub seeds: Vec<Destination>,
}

/// The admin interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// Where it listens.
    pub listen: SocketAddr,
    /// The token that requests must carry; none asks for none, which is possible on loopback only.
    pub token: Option<String>,
}

/// The chunk store of a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreSettings {
    /// Its folder; default `store` in the state folder.
    pub path: PathBuf,
    /// The bytes of disk that it may take.
    pub disk: u64,
    /// The bytes of memory that its index takes, of `[cache] memory`.
    pub index_memory: u64,
    /// How long the disk is to seem to take for each read, for trials; default none.
    pub read_latency: Option<Duration>,
}

/// Where logs and chunks are kept, and whose.
#[derive(Clone, Debug)]
pub struct Caches {
    /// Where a running gateway is asked.
    pub admin: Option<Admin>,
    /// The folder of what survives a restart; none if nothing does.
    pub state: Option<PathBuf>,
    /// The folder of the chunk store, if there is to be one.
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
    /// Where to dial it; none if it dials us.
    pub address: Option<Destination>,
    /// The group that both are in; none if they share nothing with others.
    pub group: Option<Group>,
    /// The place where it stands; its neighbours are the peers of the same group and site.
    pub site: Option<String>,
    /// The networks behind it, for `peer = "auto"`; what it announces changes nothing about them.
    pub networks: Vec<Network>,
    /// The networks of which it may announce parts; none if it may announce nothing.
    pub accept_networks: Option<Vec<Network>>,
    /// The networks that it is told to be behind us: of `[gateway] announce` those in which it may reach something.
    pub told: Vec<Network>,
    /// What it may reach by way of us.
    pub access: Access,
    /// The networks of the clients in whose name we connect for it, as it asks; default none.
    pub allow_sources: Vec<Network>,
    /// The codec's settings for what we send to it.
    pub settings: CodecSettings,
    /// What the effort of coding is traded for while coding holds up what we send; default savings.
    pub adapt: Adapt,
    /// The settings of the link.
    pub link: LinkSettings,
    /// Its share of the memory.
    pub memory: MemoryPlan,
    /// Whether it was found and stands in no file: it carries no flows.
    pub found: bool,
}

impl Peer {
    /// Says whether it is a neighbour of a gateway that stands at `site`.
    pub(crate) fn is_near(&self, site: Option<&str>) -> bool {
        site.is_some() && self.group.is_some() && self.site.as_deref() == site
    }

    /// Returns where it is dialled, if that is an address and no name.
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
    /// The silence after which a peer counts as dead; none means max(10 s, 8 × smoothed round trip).
    pub dead_after: Option<Duration>,
    /// The kernel's congestion control on lanes; default `bbr`.
    pub congestion: String,
    /// Whether `congestion` was asked for, so that its absence is worth a warning.
    pub congestion_chosen: bool,
    /// Bits a second that is sent at most, all lanes together; none means as much as there is room for.
    pub rate_limit: Option<u64>,
    /// Bytes that a flow sends before it counts as bulk, where no rule says what it is; default 1 MiB.
    pub bulk_after: u64,
    /// The most lanes for flows; default 64.
    pub max_lanes: u32,
    /// Whether chunks are asked for over the network where that is quicker than the disk; default yes.
    pub shed: bool,
}

/// A place where flows are taken in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intercept {
    /// How.
    pub mode: Mode,
    /// Where applications connect to.
    pub listen: SocketAddr,
    /// Which way flows go.
    pub peer: PeerChoice,
    /// Who may use a proxy; empty asks for no name and password.
    pub users: Users,
    /// From where it may be used; none means from anywhere.
    pub allow_from: Option<Vec<Network>>,
    /// What becomes of new flows while the peer is gone; default direct for transparent modes, else refuse.
    pub on_peer_loss: OnPeerLoss,
}

/// How flows are taken in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Every connection goes to one destination.
    Forward {
        /// That destination, resolved at the far end.
        target: Destination,
        /// Whether the server is told who the client is, by PROXY protocol version 2; default no.
        proxy_protocol: bool,
    },
    /// A SOCKS 5 proxy.
    Socks5,
    /// An HTTP proxy.
    Http,
    /// Connections that pass through this machine, as they are.
    Tproxy(Capture),
    /// Connections of this machine, or through it, whose destination is changed to ours.
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

    /// Returns what a transparent mode takes in.
    pub fn capture(&self) -> Option<&Capture> {
        match self {
            Self::Forward { .. } | Self::Socks5 | Self::Http => None,
            Self::Tproxy(capture) | Self::Redirect(capture) => Some(capture),
        }
    }
}

/// Which peer a flow goes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerChoice {
    /// The peer of this name.
    Named(String),
    /// The best of the peers that front the destination; see `docs/internals/peering.md`.
    Auto,
}

/// What becomes of new flows while their peer is gone.
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

/// Reads the text of a configuration, which may come by a pipe.
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
    /// Says that what is kept on disk was not written with the key that is configured.
    pub fn wrong_key(&self, why: &impl fmt::Display) -> ConfigError {
        let problem = Problem { place: Some(self.key_place), message: format!("encrypt_key_file: {why}") };
        ConfigError { path: self.path.clone(), problems: vec![problem] }
    }

    /// Reads a configuration file and everything it names.
    ///
    /// # Errors
    /// All that is wrong with it, with places.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = read(path)?;
        let mut config = Self::parse(&text, path)?;
        config.warnings.extend(secrets::exposure(path, &config));
        Ok(config)
    }

    /// Reads a configuration from its text; `path` stands in messages and is what relative paths are relative to.
    ///
    /// # Errors
    /// All that is wrong with it, with places.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let typed = Typed::read(text).map_err(|error| ConfigError::syntax(path, text, &error))?;
        resolve::resolve(typed, path, text)
    }

    /// Reads only where the admin interface is and its token, as `status` needs it: other keys' files need not be
    /// readable.
    ///
    /// # Errors
    /// If the file is no configuration or says nothing valid about `admin`.
    pub fn load_admin(path: &Path) -> Result<Option<Admin>, ConfigError> {
        let text = read(path)?;
        let typed = Typed::read(&text).map_err(|error| ConfigError::syntax(path, &text, &error))?;
        resolve::admin_alone(typed, path, &text)
    }

    /// Reads only where logs are kept and who has some, as `cache clear` needs it: other keys' files need not be
    /// readable.
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

    /// Returns the peer that presented a key.
    pub fn peer_of_key(&self, key: &PublicKey) -> Option<&Peer> {
        self.peers.iter().find(|peer| peer.public_keys.contains(key))
    }

    /// Returns a group by the name that it has here, if it has another: its key is what it is.
    pub(crate) fn called_now(&self, group: &Group) -> Group {
        let looked =
            self.discovery.iter().flat_map(|discovery| &discovery.groups).map(|looked| &looked.group);
        let mut known = looked.chain(self.peers.iter().filter_map(|peer| peer.group.as_ref()));
        known.find(|known| known.key == group.key).unwrap_or(group).clone()
    }
}
