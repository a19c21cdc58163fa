//! Exclusions of one interception by policy.

use std::fmt::Write as _;
use std::net::SocketAddr;

use oncewire_config::{Network, PathChoice, PeerChoice, Policies};

use super::words::{joined, networks};

/// One interception's exclusions by policy: the first matching clause decides, and a connection without a
/// match is taken in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Exclusions(pub(super) Vec<Clause>);

/// One policy's certain decision, or a peer's tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Clause {
    /// The policy's number, from 1; none for clauses without a policy.
    pub(super) policy: Option<usize>,
    /// Its conditions, for people.
    pub(super) conditions: String,
    pub(super) ports: Option<Vec<u16>>,
    pub(super) networks: Option<Vec<Network>>,
    pub(super) passes: bool,
}

impl Exclusions {
    /// Compiles the policies for flows to one peer, or to any, behind the tunnels' addresses.
    pub(super) fn of(policies: &Policies, peer: &PeerChoice, tunnels: &[SocketAddr]) -> Self {
        let mut clauses: Vec<Clause> = tunnels.iter().map(Clause::of_tunnel).collect();
        for (at, rule) in policies.rules.iter().enumerate() {
            let passes = rule.path == PathChoice::Direct;
            let certain = match (&rule.peers, peer) {
                (None, _) => true,
                (Some(peers), PeerChoice::Named(name)) if peers.contains(name) => true,
                (Some(_), PeerChoice::Named(_)) => continue,
                (Some(_), PeerChoice::Auto) => false,
            };
            if rule.matches_nothing() {
                continue;
            }
            if !certain && passes {
                // For the other peers, later rules decide, and if these exclude too, all do.
                continue;
            }
            // A rule with a possible inclusion for some peer takes the flow in here.
            let (ports, networks) = (rule.ports.clone(), rule.networks.clone());
            let decides_all = ports.is_none() && networks.is_none();
            clauses.push(Clause {
                policy: Some(at + 1),
                conditions: rule.conditions(),
                ports,
                networks,
                passes,
            });
            if decides_all {
                break;
            }
        }
        let last = clauses.iter().rposition(|clause| clause.passes).map_or(0, |at| at + 1);
        clauses.truncate(last);
        Self(clauses)
    }

    /// Leaves networks alone first of all: their hosts are near the client, and gateways connect to none of
    /// them unless named.
    pub(super) fn with_unnamed(mut self, networks: Vec<Network>) -> Self {
        if !networks.is_empty() {
            self.0.insert(0, Clause::of_unnamed(networks));
        }
        self
    }

    /// Whether everything is taken in.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Writes the chain of this name; it ends with this verdict for bypassed packets, and returns for others.
    /// Of all chains met by a packet only one `counts` it.
    pub(super) fn chain(&self, text: &mut String, name: &str, passed: &str, counts: bool) {
        let _ = writeln!(text, "\tchain {name} {{");
        for clause in &self.0 {
            let Clause { policy, ports, passes, .. } = clause;
            let why = match (policy, ports) {
                (Some(policy), _) => format!("policy {policy}"),
                (None, Some(_)) => "tunnel".to_owned(),
                (None, None) => "near".to_owned(),
            };
            let ports = ports
                .as_ref()
                .and_then(|ports| joined(&ports.iter().map(u16::to_string).collect::<Vec<_>>()));
            let ports = ports.map_or_else(String::new, |ports| format!("tcp dport {ports} "));
            let verdict = match (passes, policy) {
                (true, Some(policy)) if counts => format!("counter name \"policy-{policy}\" {passed}"),
                (true, _) => passed.to_owned(),
                (false, _) => "return".to_owned(),
            };
            for networks in networks(None, clause.networks.as_deref()) {
                let _ = writeln!(text, "\t\t{networks}{ports}{verdict} comment \"{why}\"");
            }
        }
        text.push_str("\t}\n");
    }
}

impl Clause {
    fn of_unnamed(networks: Vec<Network>) -> Self {
        let conditions = "link-local addresses and metadata services".to_owned();
        Self { policy: None, conditions, ports: None, networks: Some(networks), passes: true }
    }

    fn of_tunnel(address: &SocketAddr) -> Self {
        let network = Network::around(address.ip(), if address.is_ipv4() { 32 } else { 128 });
        let (ports, networks) = (Some(vec![address.port()]), Some(vec![network]));
        Self { policy: None, conditions: format!("tunnel at {address}"), ports, networks, passes: true }
    }
}
