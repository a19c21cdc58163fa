//! `[[policy]]`.

use toml::Spanned;

use super::Resolver;
use crate::config::raw::{RawConfig, RawPolicy};
use crate::config::units::Size;
use crate::config::{Codec, Peer, Policy, settings};

impl Resolver {
    /// Resolves one rule.
    pub(super) fn policy(&mut self, raw: &Spanned<RawPolicy>, config: &RawConfig) -> Option<Policy> {
        let raw = raw.get_ref();
        let conditions = &raw.conditions;
        let port = |resolver: &mut Self, port: &Spanned<i64>| {
            resolver.within("ports", port, 1..65536).and_then(|port| u16::try_from(port).ok())
        };
        let ports =
            conditions.ports.as_ref().map(|ports| ports.iter().filter_map(|p| port(self, p)).collect());
        let networks = conditions.networks.as_ref().map(|texts| self.networks("networks", texts));
        let peers = conditions
            .peers
            .as_ref()
            .map(|texts| texts.iter().filter_map(|text| self.peer_name("peers", text, config)).collect());
        let codec = self.problems.check(raw.codec.span(), "codec", Codec::parse(raw.codec.get_ref()));
        let priority = self.read("priority", raw.priority.as_ref(), |text| settings::priority(text));
        let changes = self.changes_of_policy(raw);
        let log_memory = self.read("log_memory", raw.log_memory.as_ref(), |log| settings::log_quota(log.0));
        if codec == Some(Codec::None) {
            self.refuse_keys_without_codec(raw);
        }
        Some(Policy { ports, networks, peers, codec: codec?, priority, changes, log_memory })
    }

    /// Reports keys about the coding of flows that are not coded.
    fn refuse_keys_without_codec(&mut self, raw: &RawPolicy) {
        let keys = [
            ("entropy", raw.entropy.as_ref().map(Spanned::span)),
            ("markers", raw.markers.as_ref().map(Spanned::span)),
            ("matching", raw.matching.as_ref().map(Spanned::span)),
            ("period", raw.period.as_ref().map(Spanned::span)),
            ("log_memory", raw.log_memory.as_ref().map(Spanned::span)),
        ];
        for (key, span) in keys {
            if let Some(span) = span {
                let message = format!("{key}: has no effect with codec \"none\"; remove it");
                self.problems.at(span, message);
            }
        }
    }

    /// Reports rules whose part of the log is larger than the log, which would promise what cannot be.
    pub(super) fn check_quotas(&mut self, raw: &RawConfig, rules: &[Option<Policy>], peers: &[Peer]) {
        for (raw, rule) in raw.policy.iter().zip(rules) {
            let (Some(log_memory), Some(rule)) = (&raw.get_ref().log_memory, rule) else { continue };
            let concerned = peers.iter().filter(|peer| rule.concerns(&peer.name));
            let Some(largest) = concerned.map(|peer| peer.settings.log_memory).max() else { continue };
            if rule.log_memory.is_some_and(|bytes| bytes > largest) {
                let message = format!(
                    "log_memory: {} is more than the log of any peer that this rule concerns, which has {}; lower it, \
                     or remove it to let the rule's flows take all",
                    Size(log_memory.get_ref().0),
                    Size(largest),
                );
                self.problems.at(log_memory.span(), message);
            }
        }
    }
}
