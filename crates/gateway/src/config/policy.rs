//! Which flows are coded: the `[[policy]]` rules, of which the first that matches decides.

use std::net::IpAddr;

use oncewire_codec::wire::{Destination, Host};

use super::network::Network;
use super::settings::Codec;

/// One `[[policy]]`: conditions, which must all hold, and what is decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The destination's ports; none means any.
    pub ports: Option<Vec<u16>>,
    /// The destination's networks; none means any. A destination that is still a name is in no network.
    pub networks: Option<Vec<Network>>,
    /// The peers' names; none means any.
    pub peers: Option<Vec<String>>,
    /// What becomes of the flow.
    pub codec: Codec,
}

/// All `[[policy]]` rules in the file's order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policies {
    /// The rules.
    pub rules: Vec<Policy>,
}

/// What the rules decide about one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyOutcome {
    /// The codec.
    pub codec: Codec,
    /// The rule that decided, counted from 1; none if no rule matches and the default holds.
    pub rule: Option<usize>,
}

impl Policies {
    /// Decides about a flow to a destination by way of a peer.
    ///
    /// The intercepting gateway decides; the connecting one asks its own rules too and may only lower the outcome
    /// to none. A destination given as a name is resolved at the far end, so rules with networks pass it by.
    pub fn decide(&self, destination: &Destination, peer: &str) -> PolicyOutcome {
        let ip = match &destination.host {
            Host::Ip(ip) => Some(*ip),
            Host::Name(_) => None,
        };
        let matching = self.rules.iter().position(|rule| rule.matches(ip, destination.port, peer));
        match matching.and_then(|at| Some((at, self.rules.get(at)?))) {
            Some((at, rule)) => PolicyOutcome { codec: rule.codec, rule: Some(at + 1) },
            None => PolicyOutcome { codec: Codec::Endre, rule: None },
        }
    }
}

impl Policy {
    fn matches(&self, ip: Option<IpAddr>, port: u16, peer: &str) -> bool {
        let in_networks =
            |networks: &Vec<Network>| ip.is_some_and(|ip| networks.iter().any(|net| net.contains(ip)));
        self.ports.as_ref().is_none_or(|ports| ports.contains(&port))
            && self.peers.as_ref().is_none_or(|peers| peers.iter().any(|name| name == peer))
            && self.networks.as_ref().is_none_or(in_networks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(host: &str, port: u16) -> Destination {
        let host = host.parse().map_or_else(|_| Host::Name(host.to_owned()), Host::Ip);
        Destination { host, port }
    }

    fn rule(codec: Codec) -> Policy {
        Policy { ports: None, networks: None, peers: None, codec }
    }

    #[test]
    fn without_rules_every_flow_is_coded() {
        let outcome = Policies::default().decide(&to("10.0.0.1", 80), "hub");
        assert_eq!(outcome, PolicyOutcome { codec: Codec::Endre, rule: None });
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let ssh = Policy { ports: Some(vec![22]), ..rule(Codec::None) };
        let rules = Policies { rules: vec![ssh, rule(Codec::Endre), rule(Codec::None)] };
        assert_eq!(
            rules.decide(&to("10.0.0.1", 22), "hub"),
            PolicyOutcome { codec: Codec::None, rule: Some(1) }
        );
        assert_eq!(
            rules.decide(&to("10.0.0.1", 80), "hub"),
            PolicyOutcome { codec: Codec::Endre, rule: Some(2) }
        );
    }

    #[test]
    fn all_conditions_of_a_rule_must_hold() {
        let narrow = Policy {
            ports: Some(vec![22, 2222]),
            networks: Some(vec!["10.0.0.0/8".parse().unwrap()]),
            peers: Some(vec!["hub".to_owned()]),
            codec: Codec::None,
        };
        let rules = Policies { rules: vec![narrow] };
        assert_eq!(rules.decide(&to("10.0.0.1", 2222), "hub").rule, Some(1));
        assert_eq!(rules.decide(&to("10.0.0.1", 80), "hub").rule, None);
        assert_eq!(rules.decide(&to("11.0.0.1", 22), "hub").rule, None);
        assert_eq!(rules.decide(&to("10.0.0.1", 22), "ship").rule, None);
    }

    #[test]
    fn a_name_is_in_no_network() {
        let everywhere = Policy { networks: Some(vec!["0.0.0.0/0".parse().unwrap()]), ..rule(Codec::None) };
        let rules = Policies { rules: vec![everywhere] };
        assert_eq!(rules.decide(&to("example.net", 80), "hub").rule, None);
    }
}
