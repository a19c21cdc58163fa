//! `[[intercept]]`.

use std::net::SocketAddr;

use toml::Spanned;

use super::Resolver;
use super::capture;
use crate::explain::{self, list_plain};
use crate::raw::{OneOrMany, RawConfig, RawIntercept, Text};
use crate::{Intercept, Mode, OnPeerLoss, PeerChoice, Scope, Users};

/// Resolves one entry point of flows.
pub(super) fn intercept(
    resolver: &mut Resolver,
    raw: &Spanned<RawIntercept>,
    config: &RawConfig,
) -> Option<Intercept> {
    let raw = raw.get_ref();
    let mode = mode(resolver, raw);
    let listen = resolver.socket("listen", &raw.listen);
    let peer = peer_choice(resolver, raw, config);
    // In transparent modes they are predicates, not passwords; in unknown modes their meaning is unknown.
    let name = raw.mode.get_ref().as_str();
    let transparent = ["tproxy", "redirect"].contains(&name);
    let is_proxy = ["forward", "socks5", "http"].contains(&name);
    let users = raw.users.as_ref().filter(|_| is_proxy).map(|users| read_users(resolver, users));
    let allow_from = raw.allow_from.as_ref().map(|texts| resolver.networks("allow_from", texts.get_ref()));
    let on_peer_loss = match &raw.on_peer_loss {
        None if transparent => Some(OnPeerLoss::Direct),
        None => Some(OnPeerLoss::Refuse),
        Some(text) => on_peer_loss(resolver, text),
    };
    if transparent {
        check_own_end(resolver, raw, mode.as_ref(), listen);
    } else {
        check_proxy(resolver, raw, mode.as_ref(), listen);
    }
    Some(Intercept {
        mode: mode?,
        listen: listen?,
        peer: peer?,
        users: match users {
            Some(users) => users?,
            None => Users::default(),
        },
        allow_from,
        on_peer_loss: on_peer_loss?,
    })
}

fn mode(resolver: &mut Resolver, raw: &RawIntercept) -> Option<Mode> {
    let name = raw.mode.get_ref().as_str();
    let mode = match name {
        "forward" => {
            let Some(target) = &raw.target else {
                let message =
                    "target: mode forward needs one; set it to HOST:PORT as the far gateway knows it";
                resolver.problems.at(raw.mode.span(), message);
                return None;
            };
            capture::refuse_capture(resolver, raw, name);
            let target = resolver.destination("target", target);
            let proxy_protocol = proxy_protocol(resolver, raw.proxy_protocol.as_ref());
            return Some(Mode::Forward { target: target?, proxy_protocol });
        }
        "socks5" => Mode::Socks5,
        "http" => Mode::Http,
        "tproxy" => Mode::Tproxy(capture::capture(resolver, raw, true)?),
        "redirect" => Mode::Redirect(capture::capture(resolver, raw, false)?),
        _ => {
            let known = ["forward", "socks5", "http", "tproxy", "redirect"];
            let message = explain::unknown_value(name, &known, &[]);
            resolver.problems.at_value(raw.mode.span(), format_args!("mode: {message}"));
            return None;
        }
    };
    if let Some(target) = &raw.target {
        let message =
            format!("target: has no effect with mode {name}, where applications name it; remove it");
        resolver.problems.at(target.span(), message);
    }
    if let Some(text) = &raw.proxy_protocol {
        let message = format!("proxy_protocol: has no effect with mode {name}; remove it");
        resolver.problems.at(text.span(), message);
    }
    if mode.capture().is_none() {
        capture::refuse_capture(resolver, raw, name);
    }
    Some(mode)
}

/// Reads the server's version of the PROXY protocol, if any.
fn proxy_protocol(resolver: &mut Resolver, text: Option<&Text>) -> bool {
    if let Some(text) = text.filter(|text| text.get_ref() != "v2") {
        let message = explain::unknown_value(text.get_ref(), &["v2"], &[]);
        resolver.problems.at_value(text.span(), format_args!("proxy_protocol: {message}"));
    }
    text.is_some()
}

/// Checks a transparent mode's listening address: rules name the port, and the other family's socket has
/// the same.
fn check_own_end(
    resolver: &mut Resolver,
    raw: &RawIntercept,
    mode: Option<&Mode>,
    listen: Option<SocketAddr>,
) {
    let (Some(mode), Some(listen)) = (mode, listen) else { return };
    if listen.port() == 0 {
        resolver.problems.at(raw.listen.span(), "listen: rules lead to a fixed port; choose one");
    }
    let beyond = matches!(mode, Mode::Redirect(capture) if capture.scope == Scope::Gateway);
    if beyond && !listen.ip().is_unspecified() {
        let message = "listen: redirect with scope gateway leads to the address of the interface; listen on \
                       0.0.0.0, and let the firewall keep strangers from the port";
        resolver.problems.at(raw.listen.span(), message);
    }
    if !beyond && !listen.ip().is_loopback() {
        let message = "listen: rules lead to loopback; listen on 127.0.0.1, which stands for ::1 too";
        resolver.problems.at(raw.listen.span(), message);
    }
}

fn peer_choice(resolver: &mut Resolver, raw: &RawIntercept, config: &RawConfig) -> Option<PeerChoice> {
    let named = raw.peer.as_ref().filter(|peer| peer.get_ref() != "auto");
    match named {
        Some(text) => peer_name(resolver, "peer", text, config).map(PeerChoice::Named),
        None => {
            if config.peer.is_empty() {
                let span = raw.peer.as_ref().map_or_else(|| raw.mode.span(), Spanned::span);
                resolver.problems.at(span, "peer: there is no [[peer]] that flows could go to");
            }
            Some(PeerChoice::Auto)
        }
    }
}

/// Reads the name of an existing peer.
pub(super) fn peer_name(
    resolver: &mut Resolver,
    key: &str,
    text: &Text,
    config: &RawConfig,
) -> Option<String> {
    let name = text.get_ref();
    let known: Vec<&str> = config.peer.iter().map(|peer| peer.get_ref().name.get_ref().as_str()).collect();
    if known.contains(&name.as_str()) {
        return Some(name.clone());
    }
    let message = match explain::closest(name, &known) {
        Some(meant) => format!("{key}: there is no peer {name:?}; did you mean \"{meant}\"?"),
        None => format!("{key}: there is no peer {name:?}; peers are {}", list_plain(&known)),
    };
    resolver.problems.at(text.span(), message);
    None
}

fn read_users(resolver: &mut Resolver, raw: &OneOrMany) -> Option<Users> {
    let read = match raw {
        OneOrMany::One(file) => Users::from_file(&resolver.private_file("users in [[intercept]]", file)),
        OneOrMany::Many(entries) => Users::from_entries(entries.iter().map(|entry| entry.get_ref().as_str())),
    };
    let span = match raw {
        OneOrMany::One(file) => file.span(),
        OneOrMany::Many(entries) => entries.first().map_or(0..0, Spanned::span),
    };
    resolver.problems.check(span, "users", read)
}

fn on_peer_loss(resolver: &mut Resolver, text: &Text) -> Option<OnPeerLoss> {
    match text.get_ref().as_str() {
        "direct" => Some(OnPeerLoss::Direct),
        "refuse" => Some(OnPeerLoss::Refuse),
        other => {
            let message = format!("on_peer_loss: {other:?} is neither \"direct\" nor \"refuse\"");
            resolver.problems.at_value(text.span(), message);
            None
        }
    }
}

/// Checks the access to a proxy: one open to strangers must require something.
fn check_proxy(resolver: &mut Resolver, raw: &RawIntercept, mode: Option<&Mode>, listen: Option<SocketAddr>) {
    let Some(mode) = mode else { return };
    if let (Mode::Forward { .. }, Some(OneOrMany::One(text))) = (mode, &raw.users) {
        resolver.problems.at(text.span(), "users: has no effect with mode forward; use allow_from");
        return;
    }
    if let (Mode::Forward { .. }, Some(_)) = (mode, &raw.users) {
        resolver.problems.at(raw.mode.span(), "users: has no effect with mode forward; use allow_from");
        return;
    }
    let no_users = raw.users.as_ref().is_none_or(|users| users.texts().is_empty());
    let beyond = listen.is_some_and(|listen| !listen.ip().to_canonical().is_loopback());
    if beyond && no_users && raw.allow_from.is_none() && !matches!(mode, Mode::Forward { .. }) {
        let message = "listen: a proxy beyond loopback is open to strangers; set users or allow_from, or listen on \
                       127.0.0.1";
        resolver.problems.at(raw.listen.span(), message);
    }
}
