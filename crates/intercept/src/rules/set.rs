//! The rules of a gateway as data.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use oncewire_config::{self as config, Capture, Config, Mode, Network, RulesBy, Scope};

use super::exclusions::Exclusions;
use super::queue::QueueBy;

/// The rules of one gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleSet {
    pub(super) gateway: String,
    pub(super) takers: Vec<Taker>,
    /// Whether answers to connections from clients' addresses must be led here.
    pub(super) in_clients_names: bool,
    pub(super) by: RulesBy,
    /// Ways of older connections still to be supported, without present interceptions of these ways.
    pub(super) kept: BTreeSet<How>,
    /// Whether connections from clients' addresses may go on without new ones.
    pub(super) keeps_names: bool,
    /// Whether their frames may have to be lifted from bridges without other frames.
    pub(super) keeps_bridges: bool,
    /// Permitted silence of an open connection.
    pub(super) silence: Duration,
    /// Whether there are bridges with frames to lift.
    pub(super) bridged: bool,
    /// The existing control groups.
    pub(super) cgroups: Groups,
    /// The way of held packets into their queue.
    pub(super) queue_by: QueueBy,
    /// Whether sets can be keyed by quotes in ICMP errors.
    pub(super) quoted_keys: bool,
    /// The mark of packets for sockets here, if configured.
    pub(super) mark: Option<u32>,
    /// Priority of its routing rule.
    pub(super) priority: u32,
}

/// One interception.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Taker {
    pub(super) how: How,
    pub(super) capture: Capture,
    /// The networks of the clients; none means any.
    pub(super) from: Option<Vec<Network>>,
    /// This gateway's listening port.
    pub(super) port: u16,
    /// Its exclusions.
    pub(super) excluded: Exclusions,
    /// The bridge ports among its named interfaces, each with its bridge.
    pub(super) ports: BTreeMap<String, String>,
    /// Its place in the configuration, if it holds SYNs.
    pub(super) hold: Option<u8>,
}

/// How packets reach this gateway's socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum How {
    /// As they are.
    Tproxy,
    /// With another destination, on their way through.
    Redirect,
    /// With another destination, as they leave this machine.
    RedirectOwn,
}

/// The control groups named by rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Groups {
    /// Their tree's place below nftables' root.
    pub(super) below: &'static str,
    /// Numbers of existing groups, by their paths.
    pub(super) there: BTreeMap<String, u64>,
}

impl Groups {
    /// Returns a condition for each existing one; any of them suffices.
    pub(super) fn conditions(&self, paths: &[String]) -> Vec<String> {
        let there = paths.iter().filter(|path| self.there.contains_key(*path));
        let condition = |path: &String| {
            let level = path.split('/').count();
            format!("socket cgroupv2 level {level} \"{}{path}\" ", self.below)
        };
        there.map(condition).collect()
    }
}

impl RuleSet {
    /// Returns the rules needed by a configuration; none if it needs none, or the operator has others.
    pub fn of(config: &Config) -> Option<Self> {
        let mut takers = Vec::new();
        // Another gateway's way to the same hub; the addresses of a name are the router's to know.
        let tunnels: Vec<SocketAddr> = config.peers.iter().filter_map(config::Peer::tunnel).collect();
        let mut by = RulesBy::Install;
        let mut in_clients_names = config.peers.iter().any(|peer| !peer.allow_sources.is_empty());
        for (at, intercept) in config.intercepts.iter().enumerate() {
            let Some(capture) = intercept.mode.capture() else { continue };
            if capture.rules == RulesBy::None {
                continue;
            }
            by = capture.rules;
            in_clients_names |= capture.as_client;
            let how = match (&intercept.mode, capture.scope) {
                (Mode::Redirect(_), Scope::Host) => How::RedirectOwn,
                (Mode::Redirect(_), Scope::Gateway) => How::Redirect,
                _ => How::Tproxy,
            };
            let excluded = Exclusions::of(&config.policies, &intercept.peer, &tunnels);
            let excluded = excluded.with_unnamed(config::unnamed(&capture.networks));
            let hold = u8::try_from(at).ok().filter(|_| capture.hold_syn);
            let taker = Taker::new(how, capture.clone(), intercept.listen.port());
            takers.push(Taker { from: intercept.allow_from.clone(), excluded, hold, ..taker });
        }
        let needed = in_clients_names || !takers.is_empty();
        // A host silent for longer is probed, and answers.
        let silence = config.gateway.keepalive.map_or(LONGEST_SILENCE, |time| 2 * time + SOME_PROBES);
        needed.then(|| Self { takers, in_clients_names, silence, ..Self::without_rules(config, by) })
    }

    /// Returns a set without rules, for a gateway with possible earlier ones.
    pub fn none(config: &Config) -> Self {
        Self::without_rules(config, RulesBy::Install)
    }

    pub(super) fn without_rules(config: &Config, by: RulesBy) -> Self {
        let gateway = &config.gateway;
        let priority = gateway.rule_priority.unwrap_or(DEFAULT_PRIORITY);
        Self { mark: gateway.mark, priority, ..Self::empty(&gateway.name, by) }
    }

    /// Returns these rules with support for connections taken in by older rules: they go on unchanged.
    pub(super) fn after(wanted: Option<Self>, old: &Self) -> Option<Self> {
        let mut kept: BTreeSet<How> = old.ways().chain(old.kept.iter().copied()).collect();
        if kept.is_empty() {
            return wanted;
        }
        let wanted = wanted.unwrap_or_else(|| Self {
            mark: old.mark,
            priority: old.priority,
            ..Self::empty(&old.gateway, old.by)
        });
        // Its own ways make no difference.
        wanted.ways().for_each(|way| _ = kept.remove(&way));
        Some(Self {
            kept,
            keeps_names: old.leads_back() && !wanted.in_clients_names,
            keeps_bridges: old.bridged,
            ..wanted
        })
    }

    /// Returns the ways of interception, with repetitions.
    pub(super) fn ways(&self) -> impl Iterator<Item = How> {
        // Answers take the same way as `tproxy` connections.
        let answers = self.in_clients_names.then_some(How::Tproxy);
        self.takers.iter().map(|taker| taker.how).chain(answers)
    }

    /// Whether packets of this machine to clients are led back to it.
    pub(super) fn leads_back(&self) -> bool {
        self.in_clients_names || self.keeps_names
    }

    /// Makes a set without rules.
    pub(super) fn empty(gateway: &str, by: RulesBy) -> Self {
        Self {
            gateway: gateway.to_owned(),
            takers: Vec::new(),
            in_clients_names: false,
            by,
            kept: BTreeSet::new(),
            keeps_names: false,
            keeps_bridges: false,
            silence: LONGEST_SILENCE,
            bridged: false,
            cgroups: Groups::default(),
            queue_by: QueueBy::default(),
            quoted_keys: true,
            mark: None,
            priority: DEFAULT_PRIORITY,
        }
    }

    /// Returns their loader.
    pub fn by(&self) -> RulesBy {
        self.by
    }

    /// Returns the name of the table, in the family `inet` and, with bridges, in `bridge`.
    pub fn table(&self) -> String {
        format!("oncewire-{}", self.gateway)
    }

    /// Whether packets must be routed to sockets here though their destination is elsewhere.
    pub(super) fn needs_routes(&self) -> bool {
        let kept = self.in_clients_names || self.kept.contains(&How::Tproxy);
        kept || self.takers.iter().any(|taker| taker.how == How::Tproxy)
    }

    /// Returns the mark of such packets; by default the number of the routing table.
    pub(super) fn mark(&self) -> u32 {
        self.mark.unwrap_or_else(|| self.routing_table())
    }

    /// Returns the number of the routing table: a hash of the gateway's name (FNV-1a), to keep gateways on
    /// one machine apart.
    pub(super) fn routing_table(&self) -> u32 {
        0x6f77_0000 | hash(&self.gateway)
    }
}

/// Returns the mark of a gateway's signs of life.
pub(super) fn beat_mark(gateway: &str) -> u32 {
    0x6f75_0000 | hash(gateway)
}

/// Returns sixteen bits unique among gateways on one machine, by their names (FNV-1a).
pub(super) fn hash(gateway: &str) -> u32 {
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let hash = gateway.bytes().fold(0x811c_9dc5, step);
    (hash >> 16) ^ (hash & 0xffff)
}

impl Taker {
    /// Makes one for clients from anywhere.
    pub(super) fn new(how: How, capture: Capture, port: u16) -> Self {
        Self {
            how,
            capture,
            from: None,
            port,
            excluded: Exclusions::default(),
            ports: BTreeMap::new(),
            hold: None,
        }
    }
}

/// The routing rule's default priority, for lack of `rule_priority`: ahead of VPNs and of programs balancing
/// uplinks.
const DEFAULT_PRIORITY: u32 = 90;

/// Permitted silence of unprobed connections: the kernel's memory of translated ones.
const LONGEST_SILENCE: Duration = Duration::from_secs(5 * 24 * 3600);

/// Until an unanswering connection is given up.
const SOME_PROBES: Duration = Duration::from_secs(10 * 60);
