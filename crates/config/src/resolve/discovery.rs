//! `[[group]] discover`: the means of discovery.

use oncewire_codec::entropy::Entropy;
use oncewire_codec::wire::{Destination, Host};
use oncewire_host::scope::Scoped;
use toml::Spanned;

use super::Resolver;
use crate::raw::{RawConfig, RawGroup, Text};
use crate::{Access, Adapt, Codec, CodecSettings, Discovery, Group, LinkSettings, Looked, MemoryPlan, Peer};

/// Resolves the groups with discovery, and their means.
pub(super) fn discovery(
    resolver: &mut Resolver,
    raw: &RawConfig,
    groups: &[Group],
    link: &LinkSettings,
) -> Option<Discovery> {
    let gateway = raw.gateway.get_ref();
    let port =
        gateway.discover_port.as_ref().and_then(|port| resolver.within("discover_port", port, 0..65536));
    let looks = raw.group.iter().filter(|group| group.get_ref().discover.is_some());
    let looked: Vec<Looked> = looks.filter_map(|raw| looked(resolver, raw, groups)).collect();
    if !raw.group.iter().any(|group| group.get_ref().discover.is_some()) {
        if let Some(port) = &gateway.discover_port {
            let message = "discover_port: has no effect without [[group]] discover; set that or remove it";
            resolver.problems.at(port.span(), message);
        }
        return None;
    }
    check_looking(resolver, raw, &looked);
    let port = port.and_then(|port| u16::try_from(port).ok()).unwrap_or(PORT);
    Some(Discovery { port, groups: looked, found: found(link) })
}

fn looked(resolver: &mut Resolver, raw: &Spanned<RawGroup>, groups: &[Group]) -> Option<Looked> {
    let raw = raw.get_ref();
    let group = groups.iter().find(|group| group.name == *raw.name.get_ref())?.clone();
    let (mut interfaces, mut seeds) = (Vec::new(), Vec::new());
    for text in raw.discover.iter().flat_map(|texts| texts.get_ref()) {
        match text.get_ref().contains(':') {
            true => seeds.extend(seed(resolver, text)),
            false => interfaces.extend(interface(resolver, text)),
        }
    }
    Some(Looked { group, interfaces, seeds })
}

fn seed(resolver: &mut Resolver, text: &Text) -> Option<Destination> {
    let seed = resolver.destination("discover", text)?;
    if matches!(&seed.host, Host::Name(name) if Scoped::read(name).is_some()) {
        let message = "discover: gateways find no way to a link-local address; name another address of the seed, or an \
                       interface to look for it there";
        resolver.problems.at_value(text.span(), message);
    }
    Some(seed)
}

fn interface(resolver: &mut Resolver, text: &Text) -> Option<String> {
    let name = text.get_ref();
    // The kernel's rule for names; an address lacks its port.
    let good = (1..=15).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/')
        && name.parse::<std::net::IpAddr>().is_err();
    if !good {
        let message = format!(
            "discover: {name:?} is neither an interface such as \"eth0\" nor a gateway such as \"10.1.0.5:7400\""
        );
        resolver.problems.at_value(text.span(), message);
    }
    good.then(|| name.clone())
}

/// Reports missing settings for being discovered.
fn check_looking(resolver: &mut Resolver, raw: &RawConfig, looked: &[Looked]) {
    let gateway = raw.gateway.get_ref();
    let Some(at) = raw.group.iter().find_map(|group| group.get_ref().discover.as_ref()) else { return };
    if gateway.site.is_none() {
        let message = "discover: looks for gateways of the same site; set site in [gateway]";
        resolver.problems.at(at.span(), message);
    }
    if gateway.listen.as_ref().is_none_or(|listen| listen.texts().is_empty()) {
        let message = "discover: who finds this gateway must reach it; set listen in [gateway]";
        resolver.problems.at(at.span(), message);
    }
    if raw.cache.store_disk.is_none() {
        let message = "discover: without a chunk store there is nothing to share; set store_disk in [cache]";
        resolver.problems.at(at.span(), message);
    }
    let zero = gateway.discover_port.as_ref().filter(|port| *port.get_ref() == 0);
    if let Some(port) = zero.filter(|_| looked.iter().any(|looked| !looked.interfaces.is_empty())) {
        let message = "discover_port: gateways that find each other by multicast have one port; set one, or name \
                       seeds instead of interfaces";
        resolver.problems.at(port.span(), message);
    }
}

/// Returns the configuration of discovered gateways. Such a peer reaches nothing by way of us, and gets only
/// messages among neighbours, so its logs and tables have their minimum size. It is granted no streaming
/// context; data sent all the same is decoded block by block.
fn found(link: &LinkSettings) -> Peer {
    let settings =
        CodecSettings { codec: Codec::Wanax, log_memory: LEAST_LOG, ..CodecSettings::for_gateway() };
    let memory = MemoryPlan {
        log_sent: LEAST_LOG,
        log_received: LEAST_LOG,
        held: 2 * LEAST_LOG,
        table: LEAST_LOG / 4,
        hints: LEAST_HINTS,
        contexts: Entropy::DECODING_ALONE,
        ..MemoryPlan::default()
    };
    Peer {
        name: String::new(),
        public_keys: Vec::new(),
        address: None,
        group: None,
        site: None,
        networks: Vec::new(),
        accept_networks: None,
        told: Vec::new(),
        access: Access { allow: Some(Vec::new()), deny: Vec::new() },
        allow_sources: Vec::new(),
        settings,
        adapt: Adapt::Off,
        link: LinkSettings { rate_limit: None, ..link.clone() },
        memory,
        found: true,
    }
}

/// UDP port of discovery, unless `discover_port` says otherwise.
const PORT: u16 = 7400;
const LEAST_LOG: u64 = 256 << 10;
const LEAST_HINTS: u64 = 4096;
