//! `[cache] memory`: its parts, and remedies for too little of it.

use std::iter;
use std::ops::Range;

use toml::Spanned;

use super::Resolver;
use super::link;
use crate::memory::MAX_FOUND;
use crate::memory::{self, ContextMemory, KeptLogs, Least, MIN_CONTEXTS, SetMemory};
use crate::raw::{RawCache, RawConfig, Text};
use crate::units::Size;
use crate::{CodecSettings, Discovery, LogBudget, Peer, Policies, StoreSettings, machine, settings};

/// The part of `memory` outside the file's peers.
pub(super) struct Beside {
    memory: u64,
    /// The store's bytes of disk, and its index's bytes of memory.
    index: Option<(u64, u64)>,
    /// Its purpose, following a number of peers.
    what: String,
}

impl Beside {
    pub(super) fn of(store: Option<&StoreSettings>, discovery: Option<&Discovery>) -> Self {
        let what = match (store, discovery) {
            (None, _) => String::new(),
            (Some(_), None) => " and a store".to_owned(),
            (Some(_), Some(_)) => format!(", a store and {MAX_FOUND} gateways that may be found"),
        };
        let index = store.map(|store| (store.disk, store.index_memory));
        Self { memory: memory::beside_peers(store, discovery), index, what }
    }

    fn index_memory(&self) -> u64 {
        self.index.map_or(0, |(_, taken)| taken)
    }
}

/// A reducible part of the needed memory.
struct Part {
    bytes: u64,
    /// Its purpose.
    what: &'static str,
    /// Its key.
    key: &'static str,
    /// The key's place.
    span: Option<Range<usize>>,
    /// How it is made smaller.
    way: &'static str,
}

/// Returns the value of `memory`, or its default.
pub(super) fn of(cache: &RawCache) -> u64 {
    cache.memory.as_ref().map_or_else(|| machine::memory().bytes / 4, |memory| memory.get_ref().0)
}

/// Reads the fixed settings of each peer.
pub(super) fn set_memory(resolver: &mut Resolver, raw: &RawConfig, defaults: &CodecSettings) -> SetMemory {
    let flow_memory =
        link::read(resolver, "flow_memory", raw.link.flow_memory.as_ref(), |&Size(bytes)| match bytes {
            LEAST_FLOWS.. => Ok(bytes),
            _ => {
                let [bytes, least] = [Size(bytes), Size(LEAST_FLOWS)].map(Size::exact);
                Err(format!("{bytes} is too little for flows to go on; the least is {least}"))
            }
        });
    let logs = raw.cache.log_memory.is_some()
        || raw.link.max_in_flight.is_some()
        || raw.peer.iter().any(|peer| peer.get_ref().log_memory.is_some())
        || raw.policy.iter().any(|policy| policy.get_ref().log_memory.is_some());
    SetMemory { flow_memory, hint_memory: defaults.hint_memory, logs }
}

/// Shares `[cache] memory`, less the part `beside` peers, out among them; returns it with its part for
/// logs.
pub(super) fn memory(
    resolver: &mut Resolver,
    raw: &RawConfig,
    set_memory: SetMemory,
    policies: Option<&Policies>,
    peers: Option<&mut [Peer]>,
    beside: Beside,
) -> (u64, LogBudget) {
    let memory = of(&raw.cache);
    let there = machine::memory();
    if memory > there.bytes {
        resolver.warnings.push(format!(
            "memory: {} is more than the {} that {} lets a process use; once it is used, the kernel \
             ends the gateway, so set less",
            Size(memory),
            Size(there.bytes),
            there.owner(),
        ));
    }
    let (Some(policies), Some(peers)) = (policies, peers) else {
        return (memory, LogBudget::default());
    };
    let site = raw.gateway.get_ref().site.as_ref().map(|site| site.get_ref().as_str());
    let for_peers = memory.saturating_sub(beside.memory);
    let none_kept = KeptLogs::new();
    match memory::share_among(peers, for_peers, policies, site, set_memory, &none_kept) {
        Ok(logs) => (memory, logs),
        Err(least) => {
            refuse_memory(resolver, raw, memory, peers.len() as u64, least, &beside);
            (memory, LogBudget::default())
        }
    }
}

/// Reports too little memory for so many peers.
fn refuse_memory(
    resolver: &mut Resolver,
    raw: &RawConfig,
    memory: u64,
    peers: u64,
    least: Least,
    beside: &Beside,
) {
    let needed = match beside.index {
        // More memory has it take more.
        Some((disk, taken)) if raw.cache.store_index_memory.is_none() => {
            memory::with_index(least.total().saturating_add(beside.memory - taken), disk)
        }
        _ => least.total().saturating_add(beside.memory),
    };
    let parts = parts(raw, peers, least, beside);
    let Some(Part { bytes, what, key, span, way }) = parts.into_iter().max_by_key(|part| part.bytes) else {
        return;
    };
    let set = raw.cache.memory.as_ref();
    let there = machine::memory();
    let which = match set {
        Some(_) => String::new(),
        None => format!(", a quarter of the {} of {},", Size(there.bytes), there.owner()),
    };
    let memory = Size(memory);
    let short = match &span {
        Some(_) => format!("{key}: memory of {memory}"),
        None => format!("memory: {memory}"),
    };
    let span = span.or_else(|| set.map(Spanned::span)).unwrap_or_else(|| raw.gateway.span());
    let s = if peers == 1 { "" } else { "s" };
    // Rounded up in this form, and readable again.
    let (for_whom, whole) = (&beside.what, needed.div_ceil(1 << 20));
    resolver.problems.at(
        span,
        format_args!(
            "{short}{which} is too small for {peers} peer{s}{for_whom}, even if all logs are as small as can be; \
             the largest part of what is needed is {} for {what}: {way}, or set memory to at least {whole} MiB",
            Size(bytes),
        ),
    );
}

/// Returns the reducible parts of the needed memory.
fn parts(raw: &RawConfig, peers: u64, least: Least, beside: &Beside) -> Vec<Part> {
    let size = |size: &Option<Spanned<Size>>| size.as_ref().map(Spanned::span);
    let index = &raw.cache.store_index_memory;
    let found = raw.group.iter().find_map(|group| group.get_ref().discover.as_ref());
    let mut parts = vec![
        Part {
            bytes: least.flows,
            what: "flow_memory",
            key: "flow_memory",
            span: size(&raw.link.flow_memory),
            way: "lower that",
        },
        Part {
            bytes: least.hints,
            what: "hint_memory",
            key: "hint_memory",
            span: size(&raw.cache.hint_memory),
            way: "lower that",
        },
        Part {
            bytes: least.logs,
            what: "logs and tables",
            key: "log_memory",
            span: largest_log(raw),
            way: "lower log_memory, which sets the size of tables",
        },
        Part {
            bytes: beside.memory - beside.index_memory(),
            what: "gateways that may be found",
            key: "discover",
            span: found.map(Spanned::span),
            way: "remove discover",
        },
    ];
    // Below this no level takes less.
    if least.contexts > peers.saturating_mul(MIN_CONTEXTS) {
        parts.push(Part {
            bytes: least.contexts,
            what: "contexts of the entropy stage",
            key: "entropy",
            span: highest_level(raw),
            way: "choose a lower level of entropy",
        });
    }
    if index.is_some() {
        parts.push(Part {
            bytes: beside.index_memory(),
            what: "store_index_memory",
            key: "store_index_memory",
            span: size(index),
            way: "lower that",
        });
    }
    parts
}

/// Returns the place of the largest log's setting.
fn largest_log(raw: &RawConfig) -> Option<Range<usize>> {
    let of_peers = raw.peer.iter().filter_map(|peer| peer.get_ref().log_memory.as_ref());
    let largest = raw.cache.log_memory.iter().chain(of_peers).max_by_key(|size| *size.get_ref());
    largest.map(Spanned::span)
}

/// Returns the place of the entropy stage with the largest contexts.
fn highest_level(raw: &RawConfig) -> Option<Range<usize>> {
    let of_peers = raw.peer.iter().filter_map(|peer| peer.get_ref().entropy.as_ref());
    let of_rules = raw.policy.iter().filter_map(|policy| policy.get_ref().entropy.as_ref());
    let contexts = |text: &&Text| {
        settings::entropy(text.get_ref()).map_or(0, |entropy| ContextMemory::of(iter::once(entropy)).least())
    };
    raw.codec.entropy.iter().chain(of_peers).chain(of_rules).max_by_key(contexts).map(Spanned::span)
}

/// The first grant for a flow.
const LEAST_FLOWS: u64 = 256 << 10;
