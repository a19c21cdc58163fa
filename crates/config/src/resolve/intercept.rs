//! `[[intercept]]`.

use std::net::SocketAddr;

use toml::Spanned;

use super::Resolver;
use crate::explain::{self, list_plain};
use crate::raw::{OneOrMany, RawConfig, RawIntercept, Text};
use crate::{Intercept, Mode, OnPeerLoss, PeerChoice, Scope, Users};

impl Resolver {
    /// Resolves one entry point of flows.
    pub(super) fn intercept(&mut self, raw: &Spanned<RawIntercept>, config: &RawConfig) -> Option<Intercept> {
        let raw = raw.get_ref();
        let mode = self.mode(raw);
        let listen = self.socket("listen", &raw.listen);
        let peer = self.peer_choice(raw, config);
        // In transparent modes they are predicates, not passwords; in unknown modes their meaning is unknown.
        let name = raw.mode.get_ref().as_str();
        let transparent = ["tproxy", "redirect"].contains(&name);
        let is_proxy = ["forward", "socks5", "http"].contains(&name);
        let users = raw.users.as_ref().filter(|_| is_proxy).map(|users| self.users(users));
        let allow_from = raw.allow_from.as_ref().map(|texts| self.networks("allow_from", texts.get_ref()));
        let on_peer_loss = match &raw.on_peer_loss {
            None if transparent => Some(OnPeerLoss::Direct),
            None => Some(OnPeerLoss::Refuse),
            Some(text) => self.on_peer_loss(text),
        };
        if transparent {
            self.check_own_end(raw, mode.as_ref(), listen);
        } else {
            self.check_proxy(raw, mode.as_ref(), listen);
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

    fn mode(&mut self, raw: &RawIntercept) -> Option<Mode> {
        let name = raw.mode.get_ref().as_str();
        let mode = match name {
            "forward" => {
                let Some(target) = &raw.target else {
                    let message =
                        "target: mode forward needs one; set it to HOST:PORT as the far gateway knows it";
                    self.problems.at(raw.mode.span(), message);
                    return None;
                };
                self.refuse_capture(raw, name);
                let target = self.destination("target", target);
                let proxy_protocol = self.proxy_protocol(raw.proxy_protocol.as_ref());
                return Some(Mode::Forward { target: target?, proxy_protocol });
            }
            "socks5" => Mode::Socks5,
            "http" => Mode::Http,
            "tproxy" => Mode::Tproxy(self.capture(raw, true)?),
            "redirect" => Mode::Redirect(self.capture(raw, false)?),
            _ => {
                let known = ["forward", "socks5", "http", "tproxy", "redirect"];
                let message = explain::unknown_value(name, &known, &[]);
                self.problems.at_value(raw.mode.span(), format_args!("mode: {message}"));
                return None;
            }
        };
        if let Some(target) = &raw.target {
            let message =
                format!("target: has no effect with mode {name}, where applications name it; remove it");
            self.problems.at(target.span(), message);
        }
        if let Some(text) = &raw.proxy_protocol {
            let message = format!("proxy_protocol: has no effect with mode {name}; remove it");
            self.problems.at(text.span(), message);
        }
        if mode.capture().is_none() {
            self.refuse_capture(raw, name);
        }
        Some(mode)
    }

    /// Reads the server's version of the PROXY protocol, if any.
    fn proxy_protocol(&mut self, text: Option<&Text>) -> bool {
        if let Some(text) = text.filter(|text| text.get_ref() != "v2") {
            let message = explain::unknown_value(text.get_ref(), &["v2"], &[]);
            self.problems.at_value(text.span(), format_args!("proxy_protocol: {message}"));
        }
        text.is_some()
    }

    /// Checks a transparent mode's listening address: rules name the port, and the other family's socket has
    /// the same.
    fn check_own_end(&mut self, raw: &RawIntercept, mode: Option<&Mode>, listen: Option<SocketAddr>) {
        let (Some(mode), Some(listen)) = (mode, listen) else { return };
        if listen.port() == 0 {
            self.problems.at(raw.listen.span(), "listen: rules lead to a fixed port; choose one");
        }
        let beyond = matches!(mode, Mode::Redirect(capture) if capture.scope == Scope::Gateway);
        if beyond && !listen.ip().is_unspecified() {
            let message = "listen: redirect with scope gateway leads to the address of the interface; listen on \
                           0.0.0.0, and let the firewall keep strangers from the port";
            self.problems.at(raw.listen.span(), message);
        }
        if !beyond && !listen.ip().is_loopback() {
            let message = "listen: rules lead to loopback; listen on 127.0.0.1, which stands for ::1 too";
            self.problems.at(raw.listen.span(), message);
        }
    }

    fn peer_choice(&mut self, raw: &RawIntercept, config: &RawConfig) -> Option<PeerChoice> {
        let named = raw.peer.as_ref().filter(|peer| peer.get_ref() != "auto");
        match named {
            Some(text) => self.peer_name("peer", text, config).map(PeerChoice::Named),
            None => {
                if config.peer.is_empty() {
                    let span = raw.peer.as_ref().map_or_else(|| raw.mode.span(), Spanned::span);
                    self.problems.at(span, "peer: there is no [[peer]] that flows could go to");
                }
                Some(PeerChoice::Auto)
            }
        }
    }

    /// Reads the name of an existing peer.
    pub(super) fn peer_name(&mut self, key: &str, text: &Text, config: &RawConfig) -> Option<String> {
        let name = text.get_ref();
        let known: Vec<&str> =
            config.peer.iter().map(|peer| peer.get_ref().name.get_ref().as_str()).collect();
        if known.contains(&name.as_str()) {
            return Some(name.clone());
        }
        let message = match explain::closest(name, &known) {
            Some(meant) => format!("{key}: there is no peer {name:?}; did you mean \"{meant}\"?"),
            None => format!("{key}: there is no peer {name:?}; peers are {}", list_plain(&known)),
        };
        self.problems.at(text.span(), message);
        None
    }

    fn users(&mut self, raw: &OneOrMany) -> Option<Users> {
        let read = match raw {
            OneOrMany::One(file) => Users::from_file(&self.private_file("users in [[intercept]]", file)),
            OneOrMany::Many(entries) => {
                Users::from_entries(entries.iter().map(|entry| entry.get_ref().as_str()))
            }
        };
        let span = match raw {
            OneOrMany::One(file) => file.span(),
            OneOrMany::Many(entries) => entries.first().map_or(0..0, Spanned::span),
        };
        self.problems.check(span, "users", read)
    }

    fn on_peer_loss(&mut self, text: &Text) -> Option<OnPeerLoss> {
        match text.get_ref().as_str() {
            "direct" => Some(OnPeerLoss::Direct),
            "refuse" => Some(OnPeerLoss::Refuse),
            other => {
                let message = format!("on_peer_loss: {other:?} is neither \"direct\" nor \"refuse\"");
                self.problems.at_value(text.span(), message);
                None
            }
        }
    }

    /// Checks the access to a proxy: one open to strangers must require something.
    fn check_proxy(&mut self, raw: &RawIntercept, mode: Option<&Mode>, listen: Option<SocketAddr>) {
        let Some(mode) = mode else { return };
        if let (Mode::Forward { .. }, Some(OneOrMany::One(text))) = (mode, &raw.users) {
            self.problems.at(text.span(), "users: has no effect with mode forward; use allow_from");
            return;
        }
        if let (Mode::Forward { .. }, Some(_)) = (mode, &raw.users) {
            self.problems.at(raw.mode.span(), "users: has no effect with mode forward; use allow_from");
            return;
        }
        let no_users = raw.users.as_ref().is_none_or(|users| users.texts().is_empty());
        let beyond = listen.is_some_and(|listen| !listen.ip().to_canonical().is_loopback());
        if beyond && no_users && raw.allow_from.is_none() && !matches!(mode, Mode::Forward { .. }) {
            let message = "listen: a proxy beyond loopback is open to strangers; set users or allow_from, or listen on \
                           127.0.0.1";
            self.problems.at(raw.listen.span(), message);
        }
    }
}
