//! A chunk store for tests: in memory, and as slow, forgetful or wrong as it is told to be.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use crate::Now;
use crate::contract::{ChunkPlace, StoreReply, StoreRequest};
use crate::wanax::shed::Disk;
use crate::wanax::{Name, Tree};

/// What becomes of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// The chunk, if it is there.
    Honest,
    /// It is damaged.
    Fails,
    /// Not now.
    Refuses,
    /// Other bytes of the same length.
    Lies,
    /// Nothing is ever answered.
    Hangs,
}

#[derive(Default)]
pub(super) struct ModelStore {
    chunks: BTreeMap<Name, Bytes>,
    waiting: VecDeque<StoreRequest>,
}

impl ModelStore {
    /// Puts at once; reads wait until they are answered.
    pub(super) fn handle(&mut self, request: StoreRequest) {
        match request {
            StoreRequest::Put { plain, key, shape } => {
                for node in Tree::new(shape).grow(&plain) {
                    let chunk = plain.slice(node.range());
                    self.chunks.insert(key.name(&chunk), chunk);
                }
            }
            request => self.waiting.push_back(request),
        }
    }

    /// Answers one of the reads that wait.
    pub(super) fn answer(&mut self, pick: u64, how: Read) -> Option<StoreReply> {
        let place = pick as usize % self.waiting.len().max(1);
        let (ticket, name, len, key) = match self.waiting.remove(place)? {
            StoreRequest::Read { ticket, name, len, key } => (ticket, name, len, key),
            StoreRequest::Peek { ticket, chunks, .. } => {
                // Four chunks come together, and some from a neighbour.
                let places = (0..chunks.len() as u64).map(|at| match (pick / 7 + at) % 16 {
                    0 => ChunkPlace::Near,
                    1 => ChunkPlace::Disk { disk: (pick % 4) as u16, read: None },
                    // Rightly or wrongly.
                    2 => ChunkPlace::Absent,
                    _ => ChunkPlace::Disk { disk: 0, read: Some(pick % 64 + at / 4) },
                });
                let places = places.take(pick as usize / 11 % 64).collect();
                let disk = Disk { queued: 3, service_time: Now::from_millis(pick % 9) };
                let places = StoreReply::Places { ticket, places, neighbours: vec![disk; 2] };
                return Some(places).filter(|_| how != Read::Hangs);
            }
            StoreRequest::Put { .. } => return None,
        };
        let found = self.chunks.get(&name).filter(|chunk| chunk.len() == len as usize);
        assert!(found.is_none_or(|chunk| key.matches(&name, chunk)));
        match (how, found) {
            (Read::Hangs, _) => None,
            (Read::Fails, _) => Some(StoreReply::Failed { ticket }),
            (Read::Refuses, _) => Some(StoreReply::Busy { ticket }),
            (Read::Lies, _) => Some(StoreReply::Found { ticket, bytes: vec![7; len as usize].into() }),
            (Read::Honest, Some(bytes)) => Some(StoreReply::Found { ticket, bytes: bytes.clone() }),
            (Read::Honest, None) => Some(StoreReply::Absent { ticket }),
        }
    }

    /// Loses one chunk in so many.
    pub(super) fn lose(&mut self, one_in: u64, mut pick: impl FnMut(u64) -> u64) {
        self.chunks.retain(|_, _| pick(one_in) != 0);
    }

    pub(super) fn waiting(&self) -> u32 {
        self.waiting.len() as u32
    }
}
