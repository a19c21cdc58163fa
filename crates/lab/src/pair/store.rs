//! A chunk store in memory, which answers at once.

use std::collections::BTreeMap;

use bytes::Bytes;
use oncewire_codec::contract::{StoreReply, StoreRequest};
use oncewire_codec::wanax::{Name, Tree};

/// All chunks of the blocks that were put.
#[derive(Default)]
pub(super) struct MemoryStore {
    chunks: BTreeMap<Name, Bytes>,
    tree: Option<Tree>,
}

impl MemoryStore {
    /// Does what is asked for; returns the answer of a read.
    pub(super) fn handle(&mut self, request: StoreRequest) -> Option<StoreReply> {
        match request {
            StoreRequest::Read { ticket, name, len, .. } => {
                let found = self.chunks.get(&name).filter(|chunk| chunk.len() == len as usize);
                Some(match found {
                    Some(bytes) => StoreReply::Found { ticket, bytes: bytes.clone() },
                    None => StoreReply::Absent { ticket },
                })
            }
            StoreRequest::Peek { ticket, .. } => Some(StoreReply::each_apart(ticket)),
            StoreRequest::Put { plain, key, shape } => {
                let tree = match &mut self.tree {
                    Some(tree) if tree.shape() == shape => tree,
                    other => other.insert(Tree::new(shape)),
                };
                for node in tree.grow(&plain) {
                    let chunk = plain.slice(node.range());
                    self.chunks.entry(key.name(&chunk)).or_insert(chunk);
                }
                None
            }
        }
    }

    /// Loses everything, and does not say so.
    pub(super) fn clear(&mut self) {
        self.chunks.clear();
    }
}
