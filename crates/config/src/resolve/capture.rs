//! The scope keys of transparent `[[intercept]]` sections.

use std::net::SocketAddr;
use std::ops::{Range, RangeInclusive};

use toml::Spanned;

use super::Resolver;
use crate::capture::{self, Capture, PortRange, RulesBy, Scope};
use crate::raw::{OneOrMany, RawConfig, RawIntercept, RawPort, Text};
use crate::{Config, Intercept, Mode, both_families};

/// Resolves the scope of a transparent mode.
pub(super) fn capture(resolver: &mut Resolver, raw: &RawIntercept, tproxy: bool) -> Option<Capture> {
    let scope =
        choice(resolver, "scope", raw.scope.as_ref(), [("gateway", Scope::Gateway), ("host", Scope::Host)]);
    let sources = [("gateway", false), ("client", true)];
    let as_client = choice(resolver, "source", raw.source.as_ref(), sources);
    let by = [("install", RulesBy::Install), ("print", RulesBy::Print), ("none", RulesBy::None)];
    let rules = choice(resolver, "rules", raw.rules.as_ref(), by);
    let redirect_default = if tproxy { Scope::Gateway } else { Scope::Host };
    let texts = |texts: &Option<OneOrMany>| texts.as_ref().map_or(Vec::new(), |texts| texts.texts().to_vec());
    let interfaces = raw.interfaces.as_deref().unwrap_or_default();
    let interfaces = each(resolver, "interfaces", interfaces, capture::interface);
    let ports = ports(resolver, raw.ports.as_deref().unwrap_or_default());
    let networks = resolver.networks("networks", raw.networks.as_deref().unwrap_or_default());
    let users = each(resolver, "users", &texts(&raw.users), capture::account);
    let groups = each(resolver, "groups", raw.groups.as_deref().unwrap_or_default(), capture::account);
    let cgroups = each(resolver, "cgroups", raw.cgroups.as_deref().unwrap_or_default(), capture::cgroup);
    let capture = Capture {
        scope: scope?.unwrap_or(redirect_default),
        interfaces,
        ports,
        networks,
        users,
        groups,
        cgroups,
        as_client: as_client?.unwrap_or(false),
        hold_syn: raw.hold_syn.as_ref().is_some_and(|hold| *hold.get_ref()),
        rules: rules?.unwrap_or_default(),
    };
    check_capture(resolver, raw, tproxy, &capture);
    refuse_empty_lists(resolver, raw);
    Some(capture)
}

/// Reports empty lists: in the rules they would be no conditions, and everything would be taken in.
fn refuse_empty_lists(resolver: &mut Resolver, raw: &RawIntercept) {
    let is_empty = |texts: &Option<Vec<Text>>| texts.as_ref().is_some_and(Vec::is_empty);
    let lists = [
        ("ports", raw.ports.as_ref().is_some_and(Vec::is_empty)),
        ("networks", is_empty(&raw.networks)),
        ("users", raw.users.as_ref().is_some_and(|users| users.texts().is_empty())),
        ("groups", is_empty(&raw.groups)),
        ("cgroups", is_empty(&raw.cgroups)),
    ];
    for (key, _) in lists.into_iter().filter(|(_, is_empty)| *is_empty) {
        let message =
            format!("{key}: the list is empty; name what is to be taken in, or remove the key for all");
        resolver.problems.at(raw.mode.span(), message);
    }
}

/// Reports keys made meaningless by the mode or the scope, and missing ones.
fn check_capture(resolver: &mut Resolver, raw: &RawIntercept, tproxy: bool, capture: &Capture) {
    if tproxy && let Some(scope) = &raw.scope {
        resolver.problems.at(scope.span(), "scope: has no effect with mode tproxy; use mode redirect");
    }
    if !tproxy && let Some(hold) = &raw.hold_syn {
        resolver.problems.at(hold.span(), "hold_syn: has no effect with mode redirect; use mode tproxy");
    }
    if let Some(hold) = raw.hold_syn.as_ref().filter(|_| capture.hold_syn && capture.rules == RulesBy::None) {
        let message = "hold_syn: needs the rules that this gateway writes; install or print them";
        resolver.problems.at(hold.span(), message);
    }
    let host = capture.scope == Scope::Host;
    if !host && raw.interfaces.as_ref().is_none_or(Vec::is_empty) {
        let message = "interfaces: name those that clients' connections come in by, or what comes back from the \
                       far side is taken in too";
        resolver.problems.at(raw.mode.span(), message);
    }
    if host && let Some(text) = raw.interfaces.as_ref().and_then(|texts| texts.first()) {
        resolver
            .problems
            .at(text.span(), "interfaces: has no effect with scope host, which is about this machine");
    }
    if host && let Some(texts) = &raw.allow_from {
        resolver
            .problems
            .at(texts.span(), "allow_from: has no effect with scope host; use users, groups or cgroups");
    }
    if !host {
        let users = raw.users.as_ref().and_then(|users| users.texts().first());
        let groups = raw.groups.as_ref().and_then(|texts| texts.first());
        let cgroups = raw.cgroups.as_ref().and_then(|texts| texts.first());
        for (key, text) in [("users", users), ("groups", groups), ("cgroups", cgroups)] {
            if let Some(text) = text {
                let message =
                    format!("{key}: other hosts' are not known here; use mode redirect with scope host");
                resolver.problems.at(text.span(), message);
            }
        }
    }
    if !tproxy && capture.as_client && !host {
        let message = "source: redirect with scope gateway changes addresses; use mode tproxy";
        resolver.problems.at(raw.mode.span(), message);
    }
}

/// Reports keys exclusive to transparent modes.
pub(super) fn refuse_capture(resolver: &mut Resolver, raw: &RawIntercept, mode: &str) {
    let of =
        |texts: &Option<Vec<Text>>| texts.as_ref().map(|texts| texts.first().map_or(0..0, Spanned::span));
    let keys = [
        ("interfaces", of(&raw.interfaces)),
        ("ports", raw.ports.as_ref().map(|ports| ports.first().map_or(0..0, Spanned::span))),
        ("networks", of(&raw.networks)),
        ("source", raw.source.as_ref().map(Spanned::span)),
        ("hold_syn", raw.hold_syn.as_ref().map(Spanned::span)),
        ("scope", raw.scope.as_ref().map(Spanned::span)),
        ("groups", of(&raw.groups)),
        ("cgroups", of(&raw.cgroups)),
        ("rules", raw.rules.as_ref().map(Spanned::span)),
        ("rule_priority", raw.rule_priority.as_ref().map(Spanned::span)),
        ("mark", raw.mark.as_ref().map(Spanned::span)),
    ];
    for (key, span) in keys {
        if let Some(span) = span {
            let span = if span.is_empty() { raw.mode.span() } else { span };
            resolver.problems.at(span, format_args!("{key}: has no effect with mode {mode}; remove it"));
        }
    }
}

/// Reports interceptions holding SYNs beyond the room in packet marks.
pub(super) fn check_holding(resolver: &mut Resolver, raw: &RawConfig) {
    for hold in raw.intercept.iter().skip(1 << u8::BITS).filter_map(|raw| raw.get_ref().hold_syn.as_ref()) {
        resolver.problems.at(hold.span(), "hold_syn: only the first 256 [[intercept]] can hold");
    }
}

/// Reports a mix of loaded and printed rules: all share one table.
pub(super) fn check_rules(resolver: &mut Resolver, raw: &RawConfig) {
    let of = |by: &str| {
        let is = move |text: &&Text| text.get_ref() == by;
        raw.intercept.iter().filter_map(|raw| raw.get_ref().rules.as_ref()).find(is)
    };
    let installs = |raw: &Spanned<RawIntercept>| {
        let raw = raw.get_ref();
        let transparent = ["tproxy", "redirect"].contains(&raw.mode.get_ref().as_str());
        transparent && raw.rules.as_ref().is_none_or(|by| by.get_ref() == "install")
    };
    if let Some(printed) = of("print")
        && raw.intercept.iter().any(installs)
    {
        let message = "rules: another [[intercept]] has its rules installed, and all are in one table; print all \
                       or install all";
        resolver.problems.at(printed.span(), message);
    }
}

/// Reads a number shared by all rules of a gateway, from `[gateway]` or any `[[intercept]]`.
pub(super) fn of_rules(
    resolver: &mut Resolver,
    key: &str,
    raw: &RawConfig,
    bounds: Range<i64>,
) -> Option<u32> {
    let pick = |priority, mark| if key == "mark" { mark } else { priority };
    let gateway = raw.gateway.get_ref();
    let mut given: Vec<&Spanned<i64>> = Vec::new();
    given.extend(pick(gateway.rule_priority.as_ref(), gateway.mark.as_ref()));
    for intercept in raw.intercept.iter().map(Spanned::get_ref) {
        given.extend(pick(intercept.rule_priority.as_ref(), intercept.mark.as_ref()));
    }
    let first = *given.first()?;
    for other in given.iter().filter(|other| other.get_ref() != first.get_ref()) {
        let message = format!(
            "{key}: {} elsewhere, and all rules of a gateway share one; write it once, in [gateway]",
            first.get_ref()
        );
        resolver.problems.at_value(other.span(), message);
    }
    let value = resolver.within(key, first, bounds)?;
    let reserved = key == "mark" && (value == ERRORS_TOGGLE || OWN_MARKS.contains(&(value >> 16)));
    if reserved {
        let message = format!(
            "mark: {value:#x} is one of those that gateways give packets for other ends; choose another"
        );
        resolver.problems.at_value(first.span(), message);
    }
    (!reserved).then_some(value)
}

/// Reads one of a few words; none if it is not given, and nothing at all if it is another.
fn choice<T: Copy, const N: usize>(
    resolver: &mut Resolver,
    key: &str,
    text: Option<&Text>,
    words: [(&str, T); N],
) -> Option<Option<T>> {
    let Some(text) = text else { return Some(None) };
    let word = text.get_ref();
    let found = words.iter().find(|(known, _)| known == word).map(|(_, value)| *value);
    if found.is_none() {
        let known: Vec<String> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
        resolver
            .problems
            .at_value(text.span(), format_args!("{key}: {word:?} is none of {}", known.join(", ")));
    }
    found.map(Some)
}

/// Reads each text of a list; bad ones are reported and left out.
fn each(
    resolver: &mut Resolver,
    key: &str,
    texts: &[Text],
    read: impl Fn(&str) -> Result<String, String>,
) -> Vec<String> {
    texts.iter().filter_map(|text| resolver.problems.check(text.span(), key, read(text.get_ref()))).collect()
}

fn ports(resolver: &mut Resolver, ports: &[Spanned<RawPort>]) -> Vec<PortRange> {
    let read = |port: &Spanned<RawPort>| {
        resolver.problems.check(port.span(), "ports", port.get_ref().0.parse::<PortRange>())
    };
    ports.iter().filter_map(read).collect()
}

/// The routing rule may stand between the rules for the local and for the main table, with one ahead of it.
pub(super) const RULE_PRIORITIES: Range<i64> = 2..32_766;

/// Range of packet marks.
pub(super) const MARKS: Range<i64> = 1..1 << 32;

/// Marks with one of these upper halves have other meanings, or may be another gateway's by its name.
const OWN_MARKS: RangeInclusive<u32> = 0x6d00..=0x6fff;

/// The mark of errors differs from the other by this, and must not be 0.
const ERRORS_TOGGLE: u32 = 0x0003_0000;

impl Intercept {
    /// Returns its listening addresses.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        match self.mode.capture() {
            Some(_) => both_families(self.listen).to_vec(),
            None => vec![self.listen],
        }
    }

    /// Whether the sockets of one can serve as the other's.
    pub fn same_sockets(&self, other: &Self) -> bool {
        self.listen == other.listen && self.same_kind(other)
    }

    /// Whether connections reach both in the same way: by rules of one kind, or because they were made to
    /// them.
    pub fn same_kind(&self, other: &Self) -> bool {
        let kind = |mode: &Mode| (mode.capture().is_some(), matches!(mode, Mode::Tproxy(_)));
        kind(&self.mode) == kind(&other.mode)
    }
}

impl Config {
    /// Whether this gateway binds addresses of clients, low ports among them.
    pub fn acts_as_clients(&self) -> bool {
        let capture =
            |intercept: &Intercept| intercept.mode.capture().is_some_and(|capture| capture.as_client);
        self.intercepts.iter().any(capture) || self.peers.iter().any(|peer| !peer.allow_sources.is_empty())
    }

    /// Whether this gateway takes connections in, or makes them, under addresses of others: its own sockets
    /// must then be told from its clients'.
    pub fn is_transparent(&self) -> bool {
        let transparent = |mode: &Mode| mode.capture().is_some();
        self.intercepts.iter().any(|intercept| transparent(&intercept.mode))
            || self.peers.iter().any(|peer| !peer.allow_sources.is_empty())
    }
}
