//! `[[policy]]`.

use oncewire_codec::{MarkerKind, Plan};
use toml::Spanned;

use super::Resolver;
use crate::raw::{RawConfig, RawPolicy, Text};
use crate::units::Size;
use crate::{Codec, CodecSettings, PathChoice, Peer, Policies, Policy, explain, settings};

impl Resolver {
    /// Resolves one rule.
    pub(super) fn policy(&mut self, raw: &Spanned<RawPolicy>, config: &RawConfig) -> Option<Policy> {
        let section = raw.span();
        let raw = raw.get_ref();
        let conditions = &raw.conditions;
        let lists = [
            ("ports", conditions.ports.as_ref().map(Vec::len)),
            ("networks", conditions.networks.as_ref().map(Vec::len)),
            ("peers", conditions.peers.as_ref().map(Vec::len)),
        ];
        for (key, _) in lists.into_iter().filter(|(_, len)| *len == Some(0)) {
            let message = format!(
                "match.{key}: the list is empty, so that no flow matches; name some, or remove the key for all"
            );
            self.problems.at(section.clone(), message);
        }
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
        let path = self.path_choice(raw.path.as_ref());
        let codec = match (&raw.codec, path) {
            (Some(codec), _) => self.problems.check(codec.span(), "codec", Codec::parse(codec.get_ref())),
            (None, Some(PathChoice::Link)) => {
                let message = "`codec` is missing in [[policy]]; set it to \"auto\", \"endre\", \"wanax\" or \"none\", or set \
                               path = \"direct\"";
                self.problems.at(section, message);
                None
            }
            // A flow outside the link needs none; the value of `path` may be unknown.
            (None, _) => Some(Codec::None),
        };
        let priority = self.read("priority", raw.priority.as_ref(), |text| settings::priority(text));
        let changes = self.changes_of_policy(raw);
        let log_memory = self.read("log_memory", raw.log_memory.as_ref(), |log| settings::log_quota(log.0));
        match (path?, codec?) {
            (PathChoice::Direct, _) => self.refuse_keys_of_links(raw),
            (PathChoice::Link, Codec::None) => self.refuse_keys_of_coding(raw, "codec \"none\""),
            (PathChoice::Link, Codec::Wanax) => self.refuse_keys_of_the_log(raw, "codec \"wanax\""),
            (PathChoice::Link, Codec::Auto | Codec::Endre) => {}
        }
        Some(Policy { ports, networks, peers, path: path?, codec: codec?, priority, changes, log_memory })
    }

    /// Reads whether flows take a link.
    fn path_choice(&mut self, text: Option<&Text>) -> Option<PathChoice> {
        let Some(text) = text else { return Some(PathChoice::Link) };
        match text.get_ref().as_str() {
            "link" => Some(PathChoice::Link),
            "direct" => Some(PathChoice::Direct),
            other => {
                let message = explain::unknown_value(other, &["link", "direct"], &[]);
                self.problems.at_value(text.span(), format_args!("path: {message}"));
                None
            }
        }
    }

    /// Reports keys about links for flows without one.
    fn refuse_keys_of_links(&mut self, raw: &RawPolicy) {
        let direct = "path \"direct\"";
        let keys = [("codec", raw.codec.as_ref()), ("priority", raw.priority.as_ref())];
        for (key, text) in keys.into_iter().filter_map(|(key, text)| Some((key, text?))) {
            self.problems.at(text.span(), format_args!("{key}: has no effect with {direct}; remove it"));
        }
        self.refuse_keys_of_coding(raw, direct);
    }

    /// Reports keys about coding for uncoded flows.
    fn refuse_keys_of_coding(&mut self, raw: &RawPolicy, why: &str) {
        if let Some(entropy) = &raw.entropy {
            self.problems.at(entropy.span(), format_args!("entropy: has no effect with {why}; remove it"));
        }
        self.refuse_keys_of_the_log(raw, why);
    }

    /// Reports keys about the log for flows without references to it.
    fn refuse_keys_of_the_log(&mut self, raw: &RawPolicy, why: &str) {
        let keys = [
            ("markers", raw.markers.as_ref().map(Spanned::span)),
            ("matching", raw.matching.as_ref().map(Spanned::span)),
            ("period", raw.period.as_ref().map(Spanned::span)),
            ("log_memory", raw.log_memory.as_ref().map(Spanned::span)),
        ];
        for (key, span) in keys {
            if let Some(span) = span {
                self.problems.at(span, format_args!("{key}: has no effect with {why}; remove it"));
            }
        }
    }

    /// Warns of unused marker bytes: they are chosen for peers, and markers by rules, too.
    pub(super) fn warn_of_unused_samples(
        &mut self,
        raw: &RawConfig,
        defaults: &CodecSettings,
        policies: Option<&Policies>,
        peers: Option<&[Peer]>,
    ) {
        let (Some(policies), Some(peers)) = (policies, peers) else { return };
        let samples = |plan: Plan| plan.markers == MarkerKind::SampleByte;
        let used_by =
            |peer: &Peer| policies.plans(&peer.name, peer.settings.plan()).any(|(_, plan)| samples(plan));
        let unused = "has no effect without markers = \"samplebyte\"";
        let by_default = raw.codec.sample_bytes.is_some() && !samples(defaults.plan());
        if by_default && !peers.iter().any(used_by) {
            self.warnings.push(format!("sample_bytes in [codec]: {unused}"));
        }
        let own = raw.peer.iter().zip(peers).filter(|(raw, _)| raw.get_ref().sample_bytes.is_some());
        for (_, peer) in own.filter(|(_, peer)| !used_by(peer)) {
            self.warnings.push(format!("sample_bytes of peer {:?}: {unused}", peer.name));
        }
    }

    /// Reports rules with a larger part of the log than the log: an impossible promise.
    pub(super) fn check_quotas(&mut self, raw: &RawConfig, rules: &[Option<Policy>], peers: &[Peer]) {
        for (raw, rule) in raw.policy.iter().zip(rules) {
            let (Some(log_memory), Some(rule)) = (&raw.get_ref().log_memory, rule) else { continue };
            let concerned = peers.iter().filter(|peer| rule.concerns(&peer.name));
            let Some(largest) = concerned.map(|peer| peer.settings.log_memory).max() else { continue };
            if rule.log_memory.is_some_and(|bytes| bytes > largest) {
                let message = format!(
                    "log_memory: {} is more than the log of any peer that this rule concerns, which has {}; lower it, \
                     or remove it to let the rule's flows take all",
                    Size(log_memory.get_ref().0).exact(),
                    Size(largest).exact(),
                );
                self.problems.at(log_memory.span(), message);
            }
        }
    }
}
