//! `[[peer]]`.

use oncewire_codec::adapt::UnknownAdapt;
use oncewire_keys::PublicKey;
use toml::Spanned;

use super::Resolver;
use super::group;
use super::link;
use crate::raw::{RawAdapt, RawConfig, RawPeer, Text};
use crate::{Access, Adapt, CodecSettings, Gateway, Group, LinkSettings, MemoryPlan, Peer};

/// Resolves one peer but for its share of the memory, for a gateway at `here`.
pub(super) fn peer(
    resolver: &mut Resolver,
    raw: &Spanned<RawPeer>,
    defaults: &CodecSettings,
    adapt: Adapt,
    link: &LinkSettings,
    groups: &[Group],
    here: Option<&str>,
) -> Option<Peer> {
    let raw = raw.get_ref();
    let name = resolver.name("name", &raw.name);
    let public_keys = public_keys(resolver, raw);
    if raw.public_key.texts().is_empty() {
        resolver.problems.at_value(
            raw.name.span(),
            "public_key: the list is empty; give the line that the peer's keygen printed",
        );
    }
    let address = raw.address.as_ref().map(|address| resolver.destination("address", address));
    let networks =
        raw.networks.as_ref().map(|texts| resolver.networks("networks", texts)).unwrap_or_default();
    let accept = raw.accept_networks.as_ref().map(|texts| resolver.networks("accept_networks", texts));
    let allow = raw.allow.as_ref().map(|texts| resolver.networks("allow", texts));
    let deny = raw.deny.as_ref().map(|texts| resolver.networks("deny", texts)).unwrap_or_default();
    let allow_sources =
        raw.allow_sources.as_ref().map(|texts| resolver.networks("allow_sources", texts)).unwrap_or_default();
    let (group, site) = group::group_of_peer(resolver, raw, groups);
    let settings = link::codec_of_peer(resolver, raw, defaults);
    let rate_limit = link::rate_limit(resolver, raw.rate_limit.as_ref());
    let mut peer = Peer {
        name: name?,
        public_keys,
        address: match address {
            Some(address) => Some(address?),
            None => None,
        },
        group,
        site,
        networks,
        accept_networks: accept,
        told: Vec::new(),
        access: Access { allow, deny },
        allow_sources,
        settings,
        adapt: read_adapt(resolver, raw.adapt.as_ref()).unwrap_or(adapt),
        link: LinkSettings { rate_limit, ..link.clone() },
        memory: MemoryPlan::default(),
        found: false,
    };
    // Settings of all links are meant for the line, not for a LAN.
    if rate_limit.is_none() && !peer.is_near(here) {
        peer.link.rate_limit = link.rate_limit;
    }
    Some(peer)
}

/// Reads `adapt`, if it is there.
pub(super) fn read_adapt(resolver: &mut Resolver, raw: Option<&Spanned<RawAdapt>>) -> Option<Adapt> {
    let raw = raw?;
    let read = match &*raw.get_ref().0 {
        "true" => Ok(Adapt::Savings),
        "false" => Ok(Adapt::Off),
        text => text.parse().map_err(|why: UnknownAdapt| format!("{text:?} is no effort: {why}")),
    };
    resolver.problems.check(raw.span(), "adapt", read)
}

/// Reads a peer's keys; bad ones are reported and left out.
pub(super) fn public_keys(resolver: &mut Resolver, raw: &RawPeer) -> Vec<PublicKey> {
    let read = |text: &Text| {
        let read = text.get_ref().parse::<PublicKey>();
        resolver.problems.check(text.span(), "public_key", read)
    };
    raw.public_key.texts().iter().filter_map(read).collect()
}

/// Checks the peers against each other and against this gateway.
pub(super) fn check_peers(
    resolver: &mut Resolver,
    raw: &RawConfig,
    gateway: Option<&Gateway>,
    peers: &[Option<Peer>],
) {
    let listens = raw.gateway.get_ref().listen.as_ref().is_some_and(|listen| !listen.texts().is_empty());
    for (at, peer) in raw.peer.iter().enumerate() {
        let peer = peer.get_ref();
        let name = peer.name.get_ref();
        let earlier = raw.peer.iter().take(at).any(|earlier| earlier.get_ref().name.get_ref() == name);
        if earlier {
            resolver
                .problems
                .at(peer.name.span(), format_args!("name: there are two peers of the name {name:?}"));
        }
        if peer.address.is_none() && !listens {
            resolver.problems.at(
                peer.name.span(),
                format_args!(
                    "address: neither can we reach {name:?} nor it us; set its address, or listen in [gateway]"
                ),
            );
        }
        check_keys(resolver, peer, at, gateway, peers);
    }
}

/// Reports keys identical to our own or another peer's.
fn check_keys(
    resolver: &mut Resolver,
    peer: &RawPeer,
    at: usize,
    gateway: Option<&Gateway>,
    peers: &[Option<Peer>],
) {
    for text in peer.public_key.texts() {
        let Ok(key) = text.get_ref().parse::<PublicKey>() else { continue };
        if gateway.is_some_and(|gateway| gateway.identity.public_key() == key) {
            resolver.problems.at(
                text.span(),
                "public_key: this is our own key; give the line that the peer's keygen printed",
            );
        }
        let others = peers.iter().take(at).flatten();
        if let Some(other) = others.into_iter().find(|other| other.public_keys.contains(&key)) {
            let message =
                format!("public_key: peer {:?} has this key already; each peer has its own", other.name);
            resolver.problems.at(text.span(), message);
        }
    }
}
