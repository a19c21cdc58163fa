//! A chunk store for tests: in memory, and as slow, forgetful or wrong as it is told to be.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use rand_pcg::rand_core::Rng as _;

use super::Model;
use crate::Now;
use crate::contract::{ChunkPlace, StorePort as _, StoreReply, StoreRequest, StoreState};
use crate::wanax::Tree;
use crate::wanax::path::PathRate;
use crate::wanax::shed::Disk;

/// What becomes of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Read {
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

/// The receiving side's store.
pub(crate) struct Store {
    pub(crate) id: u64,
    pub(crate) model: ModelStore,
    lies: bool,
    /// Chunks that lied, so there may be mismatches.
    pub(crate) lied: u64,
}

impl Store {
    pub(crate) fn new(lies: bool) -> Self {
        Self { id: 1, model: ModelStore::default(), lies, lied: 0 }
    }
}

#[derive(Default)]
pub(crate) struct ModelStore {
    chunks: BTreeMap<u64, Bytes>,
    waiting: VecDeque<StoreRequest>,
}

impl ModelStore {
    /// Puts at once; reads wait until they are answered.
    pub(crate) fn handle(&mut self, request: StoreRequest) {
        match request {
            StoreRequest::Put { plain, key, shape } => {
                for node in Tree::new(shape).grow(&plain) {
                    let chunk = plain.slice(node.range());
                    self.chunks.insert(key.tag(&chunk), chunk);
                }
            }
            request => self.waiting.push_back(request),
        }
    }

    /// Answers one of the reads waiting.
    fn answer(&mut self, pick: u64, how: Read) -> Option<StoreReply> {
        let place = pick as usize % self.waiting.len().max(1);
        let (ticket, name, len, key) = match self.waiting.remove(place)? {
            StoreRequest::Read { ticket, name, len, key, .. } => (ticket, name, len, key),
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
        let found = self.chunks.get(&name.tag()).filter(|chunk| chunk.len() == len as usize);
        assert!(found.is_none_or(|chunk| name.matches(chunk, &key)));
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
    fn lose(&mut self, one_in: u64, mut pick: impl FnMut(u64) -> u64) {
        self.chunks.retain(|_, _| pick(one_in) != 0);
    }

    fn waiting(&self) -> u32 {
        self.waiting.len() as u32
    }
}

impl Model {
    /// The store answers a read, or never will, or something becomes of it.
    pub(crate) fn run_store(&mut self) {
        let (pick, how) = (self.below(1 << 20), self.below(40));
        let (now, rng) = (self.now, &mut self.rng);
        let Some(Store { id, model, lies, lied }) = &mut self.store else { return };
        let how = match how {
            0 => Read::Fails,
            1 => Read::Hangs,
            3 => Read::Refuses,
            2 if *lies => Read::Lies,
            _ => Read::Honest,
        };
        if let Some(reply) = model.answer(pick, how) {
            *lied += u64::from(how == Read::Lies);
            self.receiver.handle_store(reply, now);
        }
        match pick % 400 {
            0 => model.lose(8, |bound| rng.next_u64() % bound),
            // All of it, with or without saying so.
            1 => *model = ModelStore::default(),
            2 if pick % 7 == 0 => {
                *model = ModelStore::default();
                *id += 1;
            }
            10..20 => self.receiver.handle_store_wait(pick >> 9, Now::from_millis(pick % 900), now),
            3..10 => {
                let service_time = Now::from_millis(pick >> 9 & 15);
                let (age_secs, taking) = (pick >> 5 & 255, pick % 11 != 0);
                let state = StoreState {
                    queued: model.waiting(),
                    service_time,
                    age_secs,
                    taking,
                    neighbours_pending: age_secs << 10,
                };
                self.receiver.handle_store_state(state, now);
                self.receiver.handle_path(Now::from_millis(40), PathRate::of(pick));
            }
            _ => {}
        }
        self.collect();
    }
}
