//! `[[policy]]`.

use oncewire_codec::{MarkerKind, Plan};
use toml::Spanned;

use super::Resolver;
use super::intercept;
use super::link;
use crate::raw::{RawConfig, RawPolicy, Text};
use crate::units::Size;
use crate::{Codec, CodecSettings, PathChoice, Peer, Policies, Policy, explain, settings};

/// Resolves one rule.
pub(super) fn policy(
    resolver: &mut Resolver,
    raw: &Spanned<RawPolicy>,
    config: &RawConfig,
) -> Option<Policy> {
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
        resolver.problems.at(section.clone(), message);
    }
    let port = |resolver: &mut Resolver, port: &Spanned<i64>| {
        resolver.within("ports", port, 1..65536).and_then(|port| u16::try_from(port).ok())
    };
    let ports =
        conditions.ports.as_ref().map(|ports| ports.iter().filter_map(|p| port(resolver, p)).collect());
    let networks = conditions.networks.as_ref().map(|texts| resolver.networks("networks", texts));
    let peers = conditions.peers.as_ref().map(|texts| {
        texts.iter().filter_map(|text| intercept::peer_name(resolver, "peers", text, config)).collect()
    });
    let path = path_choice(resolver, raw.path.as_ref());
    let codec = match (&raw.codec, path) {
        (Some(codec), _) => resolver.problems.check(codec.span(), "codec", Codec::parse(codec.get_ref())),
        (None, Some(PathChoice::Link)) => {
            let message = "`codec` is missing in [[policy]]; set it to \"auto\", \"endre\", \"wanax\" or \"none\", or set \
                           path = \"direct\"";
            resolver.problems.at(section, message);
            None
        }
        // A flow outside the link needs none; the value of `path` may be unknown.
        (None, _) => Some(Codec::None),
    };
    let priority = link::read(resolver, "priority", raw.priority.as_ref(), |text| settings::priority(text));
    let changes = link::changes_of_policy(resolver, raw);
    let log_memory =
        link::read(resolver, "log_memory", raw.log_memory.as_ref(), |log| settings::log_quota(log.0));
    match (path?, codec?) {
        (PathChoice::Direct, _) => refuse_keys_of_links(resolver, raw),
        (PathChoice::Link, Codec::None) => refuse_keys_of_coding(resolver, raw, "codec \"none\""),
        (PathChoice::Link, Codec::Wanax) => refuse_keys_of_the_log(resolver, raw, "codec \"wanax\""),
        (PathChoice::Link, Codec::Auto | Codec::Endre) => {}
    }
    Some(Policy { ports, networks, peers, path: path?, codec: codec?, priority, changes, log_memory })
}

/// Reads whether flows take a link.
fn path_choice(resolver: &mut Resolver, text: Option<&Text>) -> Option<PathChoice> {
    let Some(text) = text else { return Some(PathChoice::Link) };
    match text.get_ref().as_str() {
        "link" => Some(PathChoice::Link),
        "direct" => Some(PathChoice::Direct),
        other => {
            let message = explain::unknown_value(other, &["link", "direct"], &[]);
            resolver.problems.at_value(text.span(), format_args!("path: {message}"));
            None
        }
    }
}

/// Reports keys about links for flows without one.
fn refuse_keys_of_links(resolver: &mut Resolver, raw: &RawPolicy) {
    let direct = "path \"direct\"";
    let keys = [("codec", raw.codec.as_ref()), ("priority", raw.priority.as_ref())];
    for (key, text) in keys.into_iter().filter_map(|(key, text)| Some((key, text?))) {
        resolver.problems.at(text.span(), format_args!("{key}: has no effect with {direct}; remove it"));
    }
    refuse_keys_of_coding(resolver, raw, direct);
}

/// Reports keys about coding for uncoded flows.
fn refuse_keys_of_coding(resolver: &mut Resolver, raw: &RawPolicy, why: &str) {
    if let Some(entropy) = &raw.entropy {
        resolver.problems.at(entropy.span(), format_args!("entropy: has no effect with {why}; remove it"));
    }
    refuse_keys_of_the_log(resolver, raw, why);
}

/// Reports keys about the log for flows without references to it.
fn refuse_keys_of_the_log(resolver: &mut Resolver, raw: &RawPolicy, why: &str) {
    let keys = [
        ("markers", raw.markers.as_ref().map(Spanned::span)),
        ("matching", raw.matching.as_ref().map(Spanned::span)),
        ("period", raw.period.as_ref().map(Spanned::span)),
        ("log_memory", raw.log_memory.as_ref().map(Spanned::span)),
    ];
    for (key, span) in keys {
        if let Some(span) = span {
            resolver.problems.at(span, format_args!("{key}: has no effect with {why}; remove it"));
        }
    }
}

/// Warns of unused marker bytes: they are chosen for peers, and markers by rules, too.
pub(super) fn warn_of_unused_samples(
    resolver: &mut Resolver,
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
        resolver.warnings.push(format!("sample_bytes in [codec]: {unused}"));
    }
    let own = raw.peer.iter().zip(peers).filter(|(raw, _)| raw.get_ref().sample_bytes.is_some());
    for (_, peer) in own.filter(|(_, peer)| !used_by(peer)) {
        resolver.warnings.push(format!("sample_bytes of peer {:?}: {unused}", peer.name));
    }
}

/// Reports rules with a larger part of the log than the log: an impossible promise.
pub(super) fn check_quotas(
    resolver: &mut Resolver,
    raw: &RawConfig,
    rules: &[Option<Policy>],
    peers: &[Peer],
) {
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
            resolver.problems.at(log_memory.span(), message);
        }
    }
}
