//! A chunk store in memory.

#![allow(unreachable_pub, reason = "each test file uses its part of the harness")]

use std::collections::BTreeMap;

use bytes::Bytes;
use oncewire_codec::wanax::{NameKey, NamesConfig, Shape, Tree};
use oncewire_codec::wire::Sought;
use oncewire_link::{ChunkPlace, LinkConfig, StoreReply, StoreRequest};

/// The configuration of a side with names, and with a store if it has an id.
pub fn naming(config: LinkConfig, store: Option<u64>) -> LinkConfig {
    let key = NameKey::new([config.instance as u8; 32]);
    let (shape, hint_memory) = (Shape::default(), 1 << 18);
    let names = Some(NamesConfig { key, group: None, shape, hint_memory, saved: None, clock_secs: 1 << 30 });
    LinkConfig { names, store, ..config }
}

/// Executes a request to the store; a read has an answer.
pub fn serve(chunks: &mut BTreeMap<u64, Bytes>, request: StoreRequest) -> Option<StoreReply> {
    match request {
        StoreRequest::Put { plain, key, shape } => {
            for node in Tree::new(shape).grow(&plain) {
                let chunk = plain.slice(node.range());
                chunks.insert(key.tag(&chunk), chunk);
            }
            None
        }
        StoreRequest::Peek { ticket, chunks: sought, .. } => {
            let place = |&Sought { tag, .. }: &Sought| match chunks.contains_key(&tag) {
                true => ChunkPlace::Disk { disk: 0, read: None },
                false => ChunkPlace::Absent,
            };
            let places = sought.iter().map(place).collect();
            Some(StoreReply::Places { ticket, places, neighbours: Vec::new() })
        }
        StoreRequest::Read { ticket, name, .. } => Some(match chunks.get(&name.tag()) {
            Some(bytes) => StoreReply::Found { ticket, bytes: bytes.clone() },
            None => StoreReply::Absent { ticket },
        }),
    }
}
