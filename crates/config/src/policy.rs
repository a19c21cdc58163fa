//! `[[policy]]` rules for the path and coding of flows.
//!
//! The first match decides.

use std::fmt::Display;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::IpAddr;

use oncewire_codec::wire::{Destination, Host};
use oncewire_codec::{Plan, Quota};
use oncewire_link::Priority;

use super::codec::Codec;
use super::network::Network;
use super::settings::{Matchings, PlanChanges};

/// One `[[policy]]`: conditions, all to be met, and a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The destination's ports; none means any.
    pub ports: Option<Vec<u16>>,
    /// The destination's networks; none means any. A still unresolved name is in no network.
    pub networks: Option<Vec<Network>>,
    /// The peers' names; none means any.
    pub peers: Option<Vec<String>>,
    /// Whether the flow goes over the peer's link at all; default yes.
    pub path: PathChoice,
    /// Coding of the flow on the link; none for a flow outside the link.
    pub codec: Codec,
    /// Urgency of the sent direction; none means by the bytes sent.
    pub priority: Option<Priority>,
    /// Differences of its coding from its peer's.
    pub changes: PlanChanges,
    /// The most bytes of the peer's log for all flows of this rule together; none means all of them.
    pub log_memory: Option<u64>,
}

/// Whether flows cross a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathChoice {
    /// They go by way of the peer.
    #[default]
    Link,
    /// The gateway connects intercepted flows by itself, or the kernel forwards them and the gateway never
    /// sees them.
    Direct,
}

/// All `[[policy]]` rules in the file's order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policies {
    /// The rules.
    pub rules: Vec<Policy>,
}

/// Default coding of flows to a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usual {
    /// Whether they are coded at all.
    pub coded: bool,
    /// Its plan, here or for coding rules over an uncoded default.
    pub plan: Plan,
}

/// The rules' decision about one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyOutcome {
    /// Whether the flow crosses a link.
    pub path: PathChoice,
    /// The deciding rule, counted from 1; none if no rule matches and the default holds.
    pub rule: Option<usize>,
}

impl Policies {
    /// Decides on the coding of the sent direction of a flow by way of a peer with `usual` as its default;
    /// none: not at all. See [`Policies::decide`].
    pub fn plan(&self, destination: &Destination, peer: &str, usual: Usual) -> Option<Plan> {
        let outcome = self.decide(destination, Some(peer));
        let number = outcome.rule.and_then(|rule| rule.checked_sub(1));
        match number.and_then(|number| self.rules.get(number)) {
            Some(rule) => rule.plan(usual.plan),
            None => usual.coded.then_some(usual.plan),
        }
    }

    /// Returns the urgency of the sent direction of a flow by way of a peer; none: by the bytes sent. See
    /// [`Policies::decide`].
    pub fn priority(&self, destination: &Destination, peer: &str) -> Option<Priority> {
        let number = self.decide(destination, Some(peer)).rule?.checked_sub(1)?;
        self.rules.get(number)?.priority
    }

    /// Returns every coding of flows to a peer under these rules, with the number of the rule, counted from
    /// 1; without one the peer's own.
    pub fn plans(&self, peer: &str, plan: Plan) -> impl Iterator<Item = (Option<usize>, Plan)> {
        let concerned = self.rules.iter().enumerate().filter(move |(_, rule)| rule.concerns(peer));
        let ruled = concerned.filter_map(move |(at, rule)| Some((Some(at + 1), rule.plan(plan)?)));
        std::iter::once((None, plan)).chain(ruled)
    }

    /// Returns the ways of identifying repeats needed by flows to a peer under these rules.
    pub fn matchings(&self, peer: &str, plan: Plan) -> Matchings {
        self.plans(peer, plan).map(|(_, plan)| plan).collect()
    }

    /// Whether flows to a peer may name chunks.
    pub fn name_chunks(&self, peer: &str, usual: Usual) -> bool {
        let mut plans = self.plans(peer, usual.plan);
        plans.any(|(rule, plan)| plan.layers.use_names() && (rule.is_some() || usual.coded))
    }

    /// Decides about a flow to a destination by way of a peer, or of none if no peer fronts the destination.
    ///
    /// The intercepting gateway decides; the connecting one asks its own rules too and may only lower the
    /// outcome to none. A destination given as a name is resolved at the far end, so rules with networks pass
    /// it by.
    pub fn decide(&self, destination: &Destination, peer: Option<&str>) -> PolicyOutcome {
        let ip = match &destination.host {
            Host::Ip(ip) => Some(*ip),
            Host::Name(_) => None,
        };
        let matching = self.rules.iter().position(|rule| rule.matches(ip, destination.port, peer));
        match matching.and_then(|at| Some((at, self.rules.get(at)?))) {
            Some((at, rule)) => PolicyOutcome { path: rule.path, rule: Some(at + 1) },
            None => PolicyOutcome { path: PathChoice::Link, rule: None },
        }
    }
}

impl Policy {
    /// Whether flows to a peer can be decided by this rule.
    pub fn concerns(&self, peer: &str) -> bool {
        self.peers.as_ref().is_none_or(|peers| peers.iter().any(|name| name == peer))
    }

    /// Whether one of its lists is empty: then no flow matches.
    pub fn matches_nothing(&self) -> bool {
        self.ports.as_ref().is_some_and(Vec::is_empty)
            || self.networks.as_ref().is_some_and(Vec::is_empty)
            || self.peers.as_ref().is_some_and(Vec::is_empty)
    }

    /// Writes the conditions for people, such as `ports 22 and networks 10.0.0.0/8`.
    pub fn conditions(&self) -> String {
        let mut conditions = Vec::new();
        conditions.extend(self.ports.as_ref().map(|ports| format!("ports {}", joined(ports))));
        conditions.extend(self.networks.as_ref().map(|networks| format!("networks {}", joined(networks))));
        conditions.extend(self.peers.as_ref().map(|peers| format!("peers {}", joined(peers))));
        if conditions.is_empty() { "everything".to_owned() } else { conditions.join(" and ") }
    }

    /// Returns the coding of this rule's flows; none if they are uncoded.
    fn plan(&self, plan: Plan) -> Option<Plan> {
        let quota = self.log_memory.map(|bytes| Quota { class: self.class(), bytes });
        let layers = self.codec.layers()?;
        Some(Plan { layers, quota, ..self.changes.apply(plan) })
    }

    /// Identifies the rule's flows by its conditions: the same ones in every configuration with the rule, as
    /// the log stays.
    fn class(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.ports, &self.networks, &self.peers).hash(&mut hasher);
        hasher.finish()
    }

    fn matches(&self, ip: Option<IpAddr>, port: u16, peer: Option<&str>) -> bool {
        let in_networks =
            |networks: &Vec<Network>| ip.is_some_and(|ip| networks.iter().any(|net| net.contains(ip)));
        self.ports.as_ref().is_none_or(|ports| ports.contains(&port))
            && (self.peers.is_none() || peer.is_some_and(|peer| self.concerns(peer)))
            && self.networks.as_ref().is_none_or(in_networks)
    }
}

fn joined(items: &[impl Display]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use oncewire_codec::Layers;
    use oncewire_codec::entropy::Entropy;

    use super::*;

    fn to(host: &str, port: u16) -> Destination {
        let host = host.parse().map_or_else(|_| Host::Name(host.to_owned()), Host::Ip);
        Destination { host, port }
    }

    fn rule(codec: Codec) -> Policy {
        Policy {
            ports: None,
            networks: None,
            peers: None,
            path: PathChoice::Link,
            codec,
            priority: None,
            changes: PlanChanges::default(),
            log_memory: None,
        }
    }

    fn direct() -> Policy {
        Policy { path: PathChoice::Direct, ..rule(Codec::None) }
    }

    #[test]
    fn without_rules_every_flow_is_coded() {
        let outcome = Policies::default().decide(&to("10.0.0.1", 80), Some("hub"));
        assert_eq!(outcome, PolicyOutcome { path: PathChoice::Link, rule: None });
    }

    #[test]
    fn first_matching_rule_decides() {
        let ssh = Policy { ports: Some(vec![22]), ..rule(Codec::None) };
        let rules = Policies { rules: vec![ssh, rule(Codec::Endre), rule(Codec::None)] };
        let path = PathChoice::Link;
        assert_eq!(rules.decide(&to("10.0.0.1", 22), Some("hub")), PolicyOutcome { path, rule: Some(1) });
        assert_eq!(rules.decide(&to("10.0.0.1", 80), Some("hub")), PolicyOutcome { path, rule: Some(2) });
    }

    #[test]
    fn flow_without_a_peer_skips_rules_with_peers() {
        let of_hub = Policy { peers: Some(vec!["hub".to_owned()]), ..direct() };
        let rules = Policies { rules: vec![of_hub, Policy { ports: Some(vec![22]), ..direct() }] };
        let path = |port, peer| rules.decide(&to("10.0.0.1", port), peer).path;
        assert_eq!((path(22, None), path(80, None)), (PathChoice::Direct, PathChoice::Link));
        assert_eq!((path(80, Some("hub")), path(80, Some("ship"))), (PathChoice::Direct, PathChoice::Link));
    }

    #[test]
    fn direct_rule_prevents_coding_at_the_connecting_end() {
        let rules = Policies { rules: vec![direct()] };
        let usual = Usual { coded: true, plan: Plan::default() };
        assert_eq!(rules.plan(&to("10.0.0.1", 80), "branch", usual), None);
        assert_eq!(rules.plans("branch", Plan::default()).count(), 1);
    }

    #[test]
    fn all_conditions_of_a_rule_must_hold() {
        let narrow = Policy {
            ports: Some(vec![22, 2222]),
            networks: Some(vec!["10.0.0.0/8".parse().unwrap()]),
            peers: Some(vec!["hub".to_owned()]),
            ..rule(Codec::None)
        };
        let rules = Policies { rules: vec![narrow] };
        assert_eq!(rules.decide(&to("10.0.0.1", 2222), Some("hub")).rule, Some(1));
        assert_eq!(rules.decide(&to("10.0.0.1", 80), Some("hub")).rule, None);
        assert_eq!(rules.decide(&to("11.0.0.1", 22), Some("hub")).rule, None);
        assert_eq!(rules.decide(&to("10.0.0.1", 22), Some("ship")).rule, None);
    }

    #[test]
    fn rule_changes_only_its_own_settings() {
        let peers = Plan { period: 128, ..Plan::default() };
        let changes = PlanChanges { entropy: Some(Entropy::Lz4), ..PlanChanges::default() };
        let backups =
            Policy { ports: Some(vec![873]), changes, log_memory: Some(1 << 20), ..rule(Codec::Endre) };
        let ssh = Policy { ports: Some(vec![22]), ..rule(Codec::None) };
        let rules = Policies { rules: vec![ssh, backups] };
        let quota = Some(Quota { class: rules.rules[1].class(), bytes: 1 << 20 });
        let backup = Plan { entropy: Entropy::Lz4, quota, ..peers };
        let usual = Usual { coded: true, plan: peers };
        assert_eq!(rules.plan(&to("10.0.0.1", 873), "hub", usual), Some(backup));
        assert_eq!(rules.plan(&to("10.0.0.1", 22), "hub", usual), None);
        assert_eq!(rules.plan(&to("10.0.0.1", 80), "hub", usual), Some(peers));
        let uncoded = Usual { coded: false, ..usual };
        assert_eq!(rules.plan(&to("10.0.0.1", 873), "hub", uncoded), Some(backup), "the rule decides");
        assert_eq!(rules.plan(&to("10.0.0.1", 80), "hub", uncoded), None);
        let all: Vec<_> = rules.plans("hub", peers).collect();
        assert_eq!(all, [(None, peers), (Some(2), backup)]);
    }

    #[test]
    fn log_quota_follows_its_rule_across_positions() {
        let quota = |rules: &[&Policy], port| {
            let rules = Policies { rules: rules.iter().copied().cloned().collect() };
            let usual = Usual { coded: true, plan: Plan::default() };
            rules.plan(&to("10.0.0.1", port), "hub", usual).unwrap().quota.unwrap()
        };
        let part =
            |port, bytes| Policy { ports: Some(vec![port]), log_memory: Some(bytes), ..rule(Codec::Endre) };
        let (backups, mail, more) = (part(873, 1 << 20), part(25, 1 << 20), part(873, 2 << 20));
        let before = quota(&[&backups, &mail], 873);
        assert_eq!(quota(&[&mail, &backups], 873), before);
        assert_eq!(quota(&[&mail, &more], 873), Quota { bytes: 2 << 20, ..before });
        assert_ne!(quota(&[&backups, &mail], 25).class, before.class);
    }

    #[test]
    fn rule_chooses_layers_over_its_peer() {
        let peers = Usual { coded: true, plan: Plan { layers: Layers::Log, ..Plan::default() } };
        for (codec, layers) in [
            (Codec::Auto, Some(Layers::Both)),
            (Codec::Wanax, Some(Layers::Names)),
            (Codec::Endre, Some(Layers::Log)),
            (Codec::None, None),
        ] {
            let rules = Policies { rules: vec![rule(codec)] };
            let plan = rules.plan(&to("10.0.0.1", 80), "hub", peers);
            assert_eq!(plan.map(|plan| plan.layers), layers, "{codec}");
        }
    }

    #[test]
    fn deciding_rule_also_gives_the_priority() {
        let ssh =
            Policy { ports: Some(vec![22]), priority: Some(Priority::Interactive), ..rule(Codec::None) };
        let rules = Policies { rules: vec![ssh, rule(Codec::Endre)] };
        assert_eq!(rules.priority(&to("10.0.0.1", 22), "hub"), Some(Priority::Interactive));
        assert_eq!(rules.priority(&to("10.0.0.1", 80), "hub"), None);
        assert_eq!(Policies::default().priority(&to("10.0.0.1", 22), "hub"), None);
    }

    #[test]
    fn names_match_no_network() {
        let everywhere = Policy { networks: Some(vec!["0.0.0.0/0".parse().unwrap()]), ..rule(Codec::None) };
        let rules = Policies { rules: vec![everywhere] };
        assert_eq!(rules.decide(&to("example.net", 80), Some("hub")).rule, None);
    }
}
