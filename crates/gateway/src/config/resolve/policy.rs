//! `[[policy]]`.

use toml::Spanned;

use super::Resolver;
use crate::config::raw::{RawConfig, RawPolicy};
use crate::config::{Codec, Policy};

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
        let codec = self.problems.check(raw.codec.span(), "codec", Codec::parse(raw.codec.get_ref()))?;
        Some(Policy { ports, networks, peers, codec })
    }
}
