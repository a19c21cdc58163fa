//! A chunk store in memory, with immediate answers.

use std::collections::BTreeMap;

use bytes::Bytes;
use oncewire_codec::contract::{ChunkPlace, StoreReply, StoreRequest, StoreState};
use oncewire_codec::wanax::Tree;
use oncewire_codec::wire::Sought;

/// All chunks of the stored blocks.
#[derive(Default)]
pub(super) struct MemoryStore {
    chunks: BTreeMap<u64, Chunk>,
    tree: Option<Tree>,
    /// The number of stored blocks.
    puts: u64,
    /// The present time.
    clock_secs: u64,
}

struct Chunk {
    bytes: Bytes,
    /// The number of its block, from 0, and the time.
    put: u64,
    put_secs: u64,
}

impl MemoryStore {
    /// Executes a request; returns the answer of a read.
    pub(super) fn handle(&mut self, request: StoreRequest) -> Option<StoreReply> {
        match request {
            StoreRequest::Read { ticket, name, len, .. } => {
                let found = self.chunks.get(&name.tag()).filter(|chunk| chunk.bytes.len() == len as usize);
                Some(match found {
                    Some(chunk) => StoreReply::Found { ticket, bytes: chunk.bytes.clone() },
                    None => StoreReply::Absent { ticket },
                })
            }
            StoreRequest::Peek { ticket, chunks, .. } => {
                let place = |&Sought { tag, .. }: &Sought| match self.chunks.contains_key(&tag) {
                    true => ChunkPlace::Disk { disk: 0, read: None },
                    false => ChunkPlace::Absent,
                };
                let places = chunks.iter().map(place).collect();
                Some(StoreReply::Places { ticket, places, neighbours: Vec::new() })
            }
            StoreRequest::Put { plain, key, shape } => {
                let tree = match &mut self.tree {
                    Some(tree) if tree.shape() == shape => tree,
                    other => other.insert(Tree::new(shape)),
                };
                let (put, put_secs) = (self.puts, self.clock_secs);
                self.puts += 1;
                for node in tree.grow(&plain) {
                    let bytes = plain.slice(node.range());
                    self.chunks.entry(key.tag(&bytes)).or_insert(Chunk { bytes, put, put_secs });
                }
                None
            }
        }
    }

    /// Loses the content of blocks for which `is_lost` holds, without a word.
    pub(super) fn lose(&mut self, is_lost: impl Fn(u64) -> bool) {
        self.chunks.retain(|_, chunk| !is_lost(chunk.put));
    }

    /// Sets the clock.
    pub(super) fn set_clock(&mut self, secs: u64) {
        self.clock_secs = secs;
    }

    /// Returns how it stands.
    pub(super) fn state(&self) -> StoreState {
        let oldest = self.chunks.values().map(|chunk| chunk.put_secs).min();
        let age_secs = oldest.map_or(0, |oldest| self.clock_secs.saturating_sub(oldest));
        StoreState { age_secs, taking: true, ..StoreState::default() }
    }
}
