//! Resolution of the typed configuration.
//!
//! Values are read, defaults filled in, and contradictions found.

mod addresses;
mod capture;
mod discovery;
mod gateway;
mod group;
mod intercept;
mod link;
mod memory;
mod peer;
mod policy;
mod store;

use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use oncewire_codec::wire::Destination;

use self::memory::Beside;
use super::network::Network;
use super::problem::{ConfigError, Problems, place};
use super::raw::{RawConfig, Text};
use super::typed::Typed;
use super::units::Time;
use super::{Admin, Caches, Config, Policies};

/// State of resolving: the base directory of relative paths, and the findings.
struct Resolver {
    dir: PathBuf,
    problems: Problems,
    warnings: Vec<String>,
    private_files: Vec<(&'static str, PathBuf)>,
}

/// Resolves a whole configuration.
pub(super) fn resolve(typed: Typed, path: &Path, text: &str) -> Result<Config, ConfigError> {
    let mut resolver = Resolver::new(path);
    let Typed { raw, mut problems, mended } = typed;
    let config = raw.and_then(|raw| resolver.config(&raw, path, text));
    if !problems.is_empty() {
        problems.add_of_values(resolver.problems, &mended);
        return Err(problems.into_error(path, text));
    }
    match config {
        Some(config) if resolver.problems.is_empty() => Ok(config),
        _ => Err(resolver.problems.into_error(path, text)),
    }
}

/// Resolves the admin interface alone.
pub(super) fn admin_alone(typed: Typed, path: &Path, text: &str) -> Result<Option<Admin>, ConfigError> {
    let raw = whole(typed, path, text)?;
    let mut resolver = Resolver::new(path);
    let admin = gateway::admin(&mut resolver, raw.gateway.get_ref());
    if resolver.problems.is_empty() { Ok(admin) } else { Err(resolver.problems.into_error(path, text)) }
}

/// Resolves the settings of logs alone.
pub(super) fn caches_alone(typed: Typed, path: &Path, text: &str) -> Result<Caches, ConfigError> {
    let raw = whole(typed, path, text)?;
    let mut resolver = Resolver::new(path);
    let gateway = raw.gateway.get_ref();
    let admin = gateway::admin(&mut resolver, gateway);
    let state = gateway.state.as_ref().map(|state| resolver.path(state));
    let store = raw.cache.store_disk.as_ref().and_then(|_| store::store_path(&resolver, &raw));
    let peers = raw.peer.iter().map(toml::Spanned::get_ref);
    let peers =
        peers.map(|peer| (peer.name.get_ref().clone(), peer::public_keys(&mut resolver, peer))).collect();
    let caches = Caches { admin, state, store, peers };
    if resolver.problems.is_empty() { Ok(caches) } else { Err(resolver.problems.into_error(path, text)) }
}

/// Returns a file's content if all of it was readable.
fn whole(typed: Typed, path: &Path, text: &str) -> Result<RawConfig, ConfigError> {
    match typed.raw {
        Some(raw) if typed.problems.is_empty() => Ok(raw),
        _ => Err(typed.problems.into_error(path, text)),
    }
}

impl Resolver {
    fn new(path: &Path) -> Self {
        let dir = path.parent().map_or_else(PathBuf::new, Path::to_owned);
        Self { dir, problems: Problems::default(), warnings: Vec::new(), private_files: Vec::new() }
    }

    /// Resolves every section, to find all problems, and only then gives up for a missing one.
    fn config(&mut self, raw: &RawConfig, path: &Path, text: &str) -> Option<Config> {
        let gateway = gateway::gateway(self, raw);
        let defaults = link::codec_defaults(self, &raw.codec, &raw.cache, &raw.link);
        let link = link::link(self, &raw.link);
        let groups = group::groups(self, raw);
        let discovery = discovery::discovery(self, raw, &groups, &link);
        let site = raw.gateway.get_ref().site.as_ref().map(|site| site.get_ref().as_str());
        let adapt = peer::read_adapt(self, raw.codec.adapt.as_ref()).unwrap_or_default();
        let mut peers = Vec::new();
        for peer in &raw.peer {
            peers.push(peer::peer(self, peer, &defaults, adapt, &link, &groups, site));
        }
        peer::check_peers(self, raw, gateway.as_ref(), &peers);
        let intercepts: Vec<_> =
            raw.intercept.iter().map(|intercept| intercept::intercept(self, intercept, raw)).collect();
        gateway::check_listens(self, raw, &intercepts);
        capture::check_rules(self, raw);
        capture::check_holding(self, raw);
        let rules = raw.policy.iter().map(|policy| policy::policy(self, policy, raw)).collect::<Vec<_>>();
        let mut peers = peers.into_iter().collect::<Option<Vec<_>>>();
        if let (Some(gateway), Some(peers)) = (&gateway, &mut peers) {
            for peer in peers {
                peer.told =
                    gateway.announce.iter().filter(|net| peer.access.permits_some_of(net)).copied().collect();
            }
        }
        if let Some(peers) = &peers {
            policy::check_quotas(self, raw, &rules, peers);
        }
        let policies = rules.into_iter().collect::<Option<_>>().map(|rules| Policies { rules });
        let store = store::store(self, raw, memory::of(&raw.cache));
        store::check_hints(self, raw, policies.as_ref(), peers.as_deref());
        policy::warn_of_unused_samples(self, raw, &defaults, policies.as_ref(), peers.as_deref());
        let set_memory = memory::set_memory(self, raw, &defaults);
        let beside = Beside::of(store.as_ref(), discovery.as_ref());
        let (memory, log_budget) =
            memory::memory(self, raw, set_memory, policies.as_ref(), peers.as_deref_mut(), beside);
        let log_idle = self.log_idle(raw);
        self.warn_of_idleness(raw);
        group::warn_of_solitude(self, raw);
        Some(Config {
            path: path.to_owned(),
            gateway: gateway?,
            peers: peers?,
            intercepts: intercepts.into_iter().collect::<Option<_>>()?,
            policies: policies?,
            policy_lines: raw.policy.iter().map(|policy| place(text, policy.span().start).0).collect(),
            key_place: place(text, key_span(raw).start),
            memory,
            set_memory,
            log_budget,
            log_idle,
            store,
            discovery,
            warnings: std::mem::take(&mut self.warnings),
            private_files: std::mem::take(&mut self.private_files),
        })
    }

    /// Reads the idle time of logs until their memory is given back.
    fn log_idle(&mut self, raw: &RawConfig) -> Duration {
        let Some(time) = &raw.cache.log_idle else { return LOG_IDLE };
        let Time(idle) = *time.get_ref();
        if idle < LEAST_LOG_IDLE {
            let (idle, least) = (Time(idle), Time(LEAST_LOG_IDLE));
            let message = format_args!("log_idle: {idle} is too little to be idle for; the least is {least}");
            self.problems.at_value(time.span(), message);
        }
        if raw.gateway.get_ref().state.is_none() {
            let message = "log_idle: has no effect without state; set state in [gateway] or remove it";
            self.problems.at(time.span(), message);
        }
        idle
    }

    fn warn_of_idleness(&mut self, raw: &RawConfig) {
        if raw.peer.is_empty() {
            self.warnings.push("no [[peer]]: nothing can cross a link until one is configured".to_owned());
        }
        if raw.intercept.is_empty() && raw.gateway.get_ref().listen.is_none() {
            self.warnings.push(
                "no [[intercept]] and no listen: only peers that we dial can send flows here".to_owned(),
            );
        }
    }

    /// Returns a path as meant: relative ones start at the configuration's directory.
    fn path(&self, text: &Text) -> PathBuf {
        self.dir.join(text.get_ref())
    }

    /// Returns the path of a file private to its owner.
    fn private_file(&mut self, key: &'static str, text: &Text) -> PathBuf {
        let path = self.path(text);
        self.private_files.push((key, path.clone()));
        path
    }

    /// Reads a name of a gateway, peer, group or site.
    fn name(&mut self, key: &str, text: &Text) -> Option<String> {
        let name = text.get_ref();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let good = (1..=64).contains(&name.len()) && name.bytes().all(plain) && name != "auto";
        if !good {
            let message = "use 1 to 64 letters, digits, dots, hyphens and underscores, and not \"auto\"";
            self.problems.at_value(text.span(), format_args!("{key}: {message}"));
        }
        good.then(|| name.clone())
    }

    /// Reads an address to listen on.
    fn socket(&mut self, key: &str, text: &Text) -> Option<SocketAddr> {
        self.problems.check(text.span(), key, addresses::socket(text.get_ref()))
    }

    /// Reads a destination `HOST:PORT`.
    fn destination(&mut self, key: &str, text: &Text) -> Option<Destination> {
        self.problems.check(text.span(), key, addresses::destination(text.get_ref()))
    }

    /// Reads a list of networks; bad ones are reported and left out.
    fn networks(&mut self, key: &str, texts: &[Text]) -> Vec<Network> {
        let read = |text: &Text| self.problems.check(text.span(), key, text.get_ref().parse::<Network>());
        texts.iter().filter_map(read).collect()
    }

    /// Reads a whole number within bounds.
    fn within(&mut self, key: &str, number: &toml::Spanned<i64>, bounds: Range<i64>) -> Option<u32> {
        let value = *number.get_ref();
        let read = u32::try_from(value).ok().filter(|_| bounds.contains(&value)).ok_or_else(|| {
            format!("{value} is out of range, which is {} to {}", bounds.start, bounds.end - 1)
        });
        self.problems.check(number.span(), key, read)
    }
}

/// Returns the place of the storage key's setting, or else of the storage's.
fn key_span(raw: &RawConfig) -> Range<usize> {
    let gateway = raw.gateway.get_ref();
    let set = gateway.encrypt_key_file.as_ref().or(gateway.state.as_ref()).or(raw.cache.store_path.as_ref());
    set.map_or_else(|| raw.gateway.span(), Text::span)
}

/// How long both logs of a peer go unused before their memory is given back, unless `log_idle` says otherwise.
const LOG_IDLE: Duration = Duration::from_secs(600);

/// Logs are looked at once a second.
const LEAST_LOG_IDLE: Duration = Duration::from_secs(1);
