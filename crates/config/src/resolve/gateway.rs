//! `[gateway]`.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use oncewire_codec::wire::{MAX_NETWORKS, Network};
use oncewire_keys::{Identity, StorageKey};
use tracing::level_filters::LevelFilter;

use super::capture;
use super::capture::{MARKS, RULE_PRIORITIES};
use super::link;
use super::{Resolver, addresses};
use crate::raw::{RawConfig, RawGateway, Text};
use crate::{Admin, Gateway, Intercept, explain, secrets};

/// Resolves `[gateway]` and reads its key file.
pub(super) fn gateway(resolver: &mut Resolver, whole: &RawConfig) -> Option<Gateway> {
    let raw = whole.gateway.get_ref();
    let name = resolver.name("name", &raw.name);
    let key_file = resolver.private_file("key_file in [gateway]", &raw.key_file);
    let identity = resolver.problems.check(raw.key_file.span(), "key_file", Identity::load(&key_file));
    let listens = raw.listen.as_ref().map_or(&[][..], |listen| listen.texts());
    let listen = listens.iter().map(|text| resolver.socket("listen", text)).collect::<Vec<_>>();
    let admin = admin(resolver, raw);
    let announce = announce(resolver, raw);
    let encrypt_key = encrypt_key(resolver, whole);
    let (watchdog, keepalive) = (watchdog(resolver, raw), keepalive(resolver, raw));
    let log_level = log_level(resolver, raw.log_level.as_ref());
    let site = raw.site.as_ref().and_then(|site| resolver.name("site", site));
    refuse_empty_paths(
        resolver,
        [("state", raw.state.as_ref()), ("store_path", whole.cache.store_path.as_ref())],
    );
    Some(Gateway {
        name: name?,
        key_file,
        identity: identity?,
        listen: listen.into_iter().collect::<Option<_>>()?,
        admin,
        state: raw.state.as_ref().map(|state| resolver.path(state)),
        encrypt_key,
        drain: raw.drain.as_ref().map_or(DRAIN, |time| time.get_ref().0),
        user: raw.user.as_ref().map(|user| user.get_ref().clone()),
        watchdog,
        keepalive,
        log_level,
        announce,
        site,
        rule_priority: capture::of_rules(resolver, "rule_priority", whole, RULE_PRIORITIES),
        mark: capture::of_rules(resolver, "mark", whole, MARKS),
    })
}

/// Reports directories without a name: they would mean the working directory, or none.
fn refuse_empty_paths<const N: usize>(resolver: &mut Resolver, folders: [(&str, Option<&Text>); N]) {
    let named = folders.into_iter().filter_map(|(key, text)| Some((key, text?)));
    for (key, text) in named.filter(|(_, text)| text.get_ref().is_empty()) {
        let message = format!("{key}: name a folder, or remove the key");
        resolver.problems.at_value(text.span(), message);
    }
}

/// Reads the time without progress until the process aborts.
fn watchdog(resolver: &mut Resolver, raw: &RawGateway) -> Option<Duration> {
    let Some(time) = &raw.watchdog else { return Some(WATCHDOG) };
    let limit = time.get_ref().0;
    if !limit.is_zero() && limit < LEAST_WATCHDOG {
        let message = "watchdog: that is less than a busy machine may take; set 2 s or more, or 0 s for none";
        resolver.problems.at_value(time.span(), message);
    }
    (!limit.is_zero()).then_some(limit)
}

/// Reads the silence of applications' hosts until they are probed.
fn keepalive(resolver: &mut Resolver, raw: &RawGateway) -> Option<Duration> {
    let Some(time) = &raw.keepalive else { return Some(KEEPALIVE) };
    if time.get_ref().0.is_zero() {
        return None;
    }
    link::read_time(resolver, "keepalive", time, LEAST_KEEPALIVE, MOST_KEEPALIVE)
}

/// Reads how much is logged.
fn log_level(resolver: &mut Resolver, text: Option<&Text>) -> Option<LevelFilter> {
    let text = text?;
    let word = text.get_ref().as_str();
    let known = ["off", "error", "warn", "info", "debug", "trace"];
    if !known.contains(&word) {
        let message = explain::unknown_value(word, &known, &[]);
        resolver.problems.at_value(text.span(), format_args!("log_level: {message}"));
    }
    word.parse().ok()
}

/// Reads the networks announced to peers.
fn announce(resolver: &mut Resolver, raw: &RawGateway) -> Vec<Network> {
    let Some(texts) = &raw.announce else { return Vec::new() };
    if texts.get_ref().len() > MAX_NETWORKS {
        let count = texts.get_ref().len();
        let message = format!("announce: {count} networks are more than the {MAX_NETWORKS} that peers take");
        resolver.problems.at_value(texts.span(), message);
    }
    resolver.networks("announce", texts.get_ref())
}

/// Reads the encryption key of state on disk.
fn encrypt_key(resolver: &mut Resolver, whole: &RawConfig) -> Option<StorageKey> {
    let raw = whole.gateway.get_ref();
    let file = raw.encrypt_key_file.as_ref()?;
    // A chunk store may have a directory of its own.
    if raw.state.is_none() && whole.cache.store_path.is_none() {
        let message = "encrypt_key_file: has no effect without state; set state or remove it";
        resolver.problems.at(file.span(), message);
    }
    let path = resolver.private_file("encrypt_key_file in [gateway]", file);
    resolver.problems.check(file.span(), "encrypt_key_file", StorageKey::load(&path))
}

/// Resolves the admin interface and reads its token.
pub(super) fn admin(resolver: &mut Resolver, raw: &RawGateway) -> Option<Admin> {
    let token = raw.admin_token_file.as_ref().and_then(|file| {
        let token = secrets::read_token(&resolver.private_file("admin_token_file in [gateway]", file));
        resolver.problems.check(file.span(), "admin_token_file", token)
    });
    let Some(admin) = &raw.admin else {
        if let Some(file) = &raw.admin_token_file {
            resolver
                .problems
                .at(file.span(), "admin_token_file: has no effect without admin; set admin or remove it");
        }
        return None;
    };
    let listen = resolver.socket("admin", admin)?;
    if matches!(listen.ip(), IpAddr::V6(ip) if ip.is_unicast_link_local()) {
        let message = "admin: who asks by HTTP cannot name the interface of a link-local address; listen on 127.0.0.1 or \
                       another address";
        resolver.problems.at(admin.span(), message);
    } else if !listen.ip().to_canonical().is_loopback() && raw.admin_token_file.is_none() {
        let message =
            "admin: beyond loopback a token is needed; set admin_token_file, or listen on 127.0.0.1";
        resolver.problems.at(admin.span(), message);
    }
    Some(Admin { listen, token })
}

/// Reports addresses used by two listeners; port 0 is a new port each time.
pub(super) fn check_listens(resolver: &mut Resolver, raw: &RawConfig, intercepts: &[Option<Intercept>]) {
    let gateway = raw.gateway.get_ref();
    let read = |text: &Text| Vec::from_iter(addresses::socket(text.get_ref()));
    let ports = gateway.listen.iter().flat_map(|listen| listen.texts());
    let ports = ports.map(|text| ("[gateway] listen", text, read(text)));
    let admin = gateway.admin.iter().map(|text| ("[gateway] admin", text, read(text)));
    let intercepts = raw.intercept.iter().zip(intercepts).map(|(raw, intercept)| {
        let listen = &raw.get_ref().listen;
        let addresses = intercept.as_ref().map_or_else(|| read(listen), Intercept::addresses);
        ("[[intercept]] listen", listen, addresses)
    });
    let mut seen: Vec<(SocketAddr, String)> = Vec::new();
    for (key, text, addresses) in ports.chain(admin).chain(intercepts) {
        let listen = text.get_ref();
        for address in addresses {
            let written = addresses::socket(listen) == Ok(address);
            if let Some((other, whose)) = seen.iter().find(|(other, _)| clash(address, *other)) {
                let too = if written { String::new() } else { format!(", which is {address} too,") };
                let message = format!("listen: {listen}{too} clashes with {other} of {whose}");
                resolver.problems.at(text.span(), message);
                break;
            }
            let whose = if written { key.to_owned() } else { format!("{key} {listen}, which is that too") };
            seen.push((address, whose));
        }
    }
}

/// Whether two cannot both be listened on.
fn clash(one: SocketAddr, other: SocketAddr) -> bool {
    let any = one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() == other.port() && one.port() != 0 && (one == other || any && one.is_ipv4() == other.is_ipv4())
}

/// Time without progress until the process aborts, unless `watchdog` says otherwise.
const WATCHDOG: Duration = Duration::from_secs(10);

const LEAST_WATCHDOG: Duration = Duration::from_secs(2);

/// Silence of an application until it is probed, unless `keepalive` says otherwise; no less by default, RFC
/// 9293 §3.8.4, since a host sleeping for minutes goes on after waking.
const KEEPALIVE: Duration = Duration::from_secs(2 * 3600);

/// The kernel counts whole seconds, and no more than this.
const LEAST_KEEPALIVE: Duration = Duration::from_secs(1);
const MOST_KEEPALIVE: Duration = Duration::from_secs(32767);

/// How long flows may go on after a request to stop, unless `drain` says otherwise.
const DRAIN: Duration = Duration::from_secs(30);
