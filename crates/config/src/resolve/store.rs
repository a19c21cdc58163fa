//! The chunk store, in `[cache]`.

use std::path::PathBuf;
use std::time::Duration;

use super::Resolver;
use super::link;
use oncewire_store::IndexMemory;

use crate::memory::{index_memory, whole_index};
use crate::raw::RawConfig;
use crate::units::Size;
use crate::{Peer, Policies, StoreSettings};

/// Resolves the chunk store, with a part of `memory` for its index; none if there is to be none.
pub(super) fn store(resolver: &mut Resolver, raw: &RawConfig, memory: u64) -> Option<StoreSettings> {
    let cache = &raw.cache;
    let Some(disk) = &cache.store_disk else {
        refuse_keys_of_a_store(resolver, raw);
        return None;
    };
    let path = store_path(resolver, raw);
    if path.is_none() {
        let message = "store_disk: a store needs a folder; set state in [gateway], or store_path";
        resolver.problems.at(disk.span(), message);
    }
    let disk = link::read(resolver, "store_disk", Some(disk), |&Size(bytes)| match bytes {
        LEAST_STORE.. => Ok(bytes),
        _ => {
            let bytes = Size(bytes).exact();
            Err(format!("{bytes} is too little for a store; the least is {}", Size(LEAST_STORE)))
        }
    });
    let read_latency = cache.store_read_latency.as_ref();
    let read_latency = read_latency
        .and_then(|time| link::read_time(resolver, "store_read_latency", time, Duration::ZERO, MOST_LATENCY));
    let set =
        link::read(resolver, "store_index_memory", cache.store_index_memory.as_ref(), |&Size(bytes)| {
            match bytes {
                LEAST_INDEX.. => Ok(bytes),
                _ => Err(format!(
                    "{} is too little to find chunks by; the least is {}",
                    Size(bytes).exact(),
                    Size(LEAST_INDEX)
                )),
            }
        });
    let disk = disk?;
    let index_memory = read_index_memory(resolver, set.unwrap_or_else(|| index_memory(disk, memory)), disk);
    Some(StoreSettings { path: path?, disk, index_memory, read_latency })
}

/// Returns the index's use of so much memory, and warns of unused memory, or of a part of the disk beyond
/// its reach.
fn read_index_memory(resolver: &mut Resolver, bytes: u64, disk: u64) -> u64 {
    let whole = whole_index(disk);
    if bytes > whole {
        // Rounded down in this form, and readable again.
        resolver.warnings.push(format!(
            "store_index_memory: of {}, the index of a store of {} uses {} MiB at most, and no more is taken; set it \
             to that or less, or raise store_disk",
            Size(bytes),
            Size(disk),
            whole >> 20,
        ));
    }
    let bytes = bytes.min(whole);
    let reach = IndexMemory::divide(bytes, disk).reach();
    if reach < disk {
        // Rounded up in this form, and readable again.
        let needed = IndexMemory::needed(disk).div_ceil(1 << 20);
        resolver.warnings.push(format!(
            "store_disk: of {}, an index of {} finds about the youngest {} again, in chunks of the default sizes; set \
             store_index_memory to {needed} MiB or more, of memory, or lower store_disk",
            Size(disk),
            Size(bytes),
            Size(reach)
        ));
    }
    bytes
}

/// Returns the directory of the store.
pub(super) fn store_path(resolver: &Resolver, raw: &RawConfig) -> Option<PathBuf> {
    let of_state = || raw.gateway.get_ref().state.as_ref().map(|state| resolver.path(state).join("store"));
    raw.cache.store_path.as_ref().map(|path| resolver.path(path)).or_else(of_state)
}

/// Reports keys about a missing store.
fn refuse_keys_of_a_store(resolver: &mut Resolver, raw: &RawConfig) {
    let keys = [
        ("store_path", raw.cache.store_path.as_ref().map(toml::Spanned::span)),
        ("store_index_memory", raw.cache.store_index_memory.as_ref().map(toml::Spanned::span)),
        ("store_read_latency", raw.cache.store_read_latency.as_ref().map(toml::Spanned::span)),
    ];
    for (key, span) in keys.into_iter().filter_map(|(key, span)| Some((key, span?))) {
        let message = format!("{key}: has no effect without store_disk; set store_disk or remove it");
        resolver.problems.at(span, message);
    }
}

/// Reports memory for unused hints.
pub(super) fn check_hints(
    resolver: &mut Resolver,
    raw: &RawConfig,
    policies: Option<&Policies>,
    peers: Option<&[Peer]>,
) {
    let Some(hints) = &raw.cache.hint_memory else { return };
    let (Some(policies), Some(peers)) = (policies, peers) else { return };
    let name_chunks = |peer: &Peer| policies.name_chunks(&peer.name, peer.settings.usual());
    if !peers.iter().any(name_chunks) {
        let message = "hint_memory: has no effect where no codec is \"auto\" or \"wanax\"; remove it";
        resolver.problems.at(hints.span(), message);
    }
}

/// Some segments of one group of blocks each; with fewer, giving up one would leave nothing.
const LEAST_STORE: u64 = 64 << 20;
/// Some thousand chunks of each size.
const LEAST_INDEX: u64 = 64 << 10;
/// Beyond it a read has no waiter.
const MOST_LATENCY: Duration = Duration::from_secs(10);
