//! A chunk store on modelled disks, with its index in memory: one read a chunk, puts in the background.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use oncewire_codec::Now;
use oncewire_codec::contract::{ChunkPlace, StoreReply, StoreRequest, StoreState};
use oncewire_codec::wanax::{NameKey, Shape, Tree, shed};
use oncewire_codec::wire::Sought;

use super::StoreConfig;
use super::disk::{Disk, Health};

/// The stored chunks, and their disks.
///
/// Chunks go to disks by their tags, as they go to neighbours; small ones in one container go together.
pub(super) struct ChunkStore {
    disks: Vec<Disk<Read>>,
    chunks: BTreeMap<u64, Chunk>,
    memory: u64,
    containers: bool,
    /// The number of containers, and those in memory from the last reads.
    made: u64,
    recent: VecDeque<u64>,
    tree: Option<Tree>,
    counts: StoreCounts,
}

/// Counts of requests to a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreCounts {
    /// Requested but absent chunks.
    pub absent: u64,
    /// Finished reads of disks.
    pub reads: u64,
    /// Bytes of new blocks.
    pub put_bytes: u64,
}

/// A stored chunk.
struct Chunk {
    bytes: Bytes,
    /// How much had been put before it.
    put_before: u64,
    /// The container read with it, if not alone.
    container: Option<u64>,
}

/// The content of one read.
#[derive(Clone, Debug)]
pub(super) struct Read {
    /// Tickets, and tags.
    chunks: Vec<(u64, u64)>,
    container: Option<u64>,
}

impl ChunkStore {
    pub(super) fn new(config: &StoreConfig) -> Self {
        let disks = (0..config.disks.max(1)).map(|_| Disk::new(config.disk)).collect();
        Self {
            disks,
            chunks: BTreeMap::new(),
            memory: config.memory,
            containers: config.containers,
            made: 0,
            recent: VecDeque::new(),
            tree: None,
            counts: StoreCounts::default(),
        }
    }

    /// Takes a request; returns the answer, if it needs no disk.
    pub(super) fn handle(&mut self, request: StoreRequest, now: Now) -> Option<StoreReply> {
        match request {
            StoreRequest::Read { ticket, name, len, .. } => {
                let tag = name.tag();
                let Some(chunk) = self.chunks.get(&tag).filter(|chunk| chunk.bytes.len() == len as usize)
                else {
                    self.counts.absent += 1;
                    return Some(StoreReply::Absent { ticket });
                };
                if self.is_at_hand(chunk) {
                    return Some(StoreReply::Found { ticket, bytes: chunk.bytes.clone() });
                }
                let container = chunk.container;
                let (disk, len) =
                    (self.disk_of(tag, container), if container.is_some() { CONTAINER } else { len });
                let disk = self.disks.get_mut(disk)?;
                let same = |read: &Read| container.is_some() && read.container == container;
                match disk.find(same) {
                    Some(read) => read.chunks.push((ticket, tag)),
                    None => disk.read(len, Read { chunks: vec![(ticket, tag)], container }, now),
                }
                None
            }
            StoreRequest::Peek { ticket, chunks, .. } => Some(self.places(ticket, &chunks, now)),
            StoreRequest::Put { plain, key, shape } => {
                self.put(&plain, &key, shape);
                None
            }
        }
    }

    /// Lets idle disks begin; returns those with a new request, and the time of its end.
    pub(super) fn begin(&mut self, now: Now) -> Vec<(usize, Now)> {
        self.disks.iter_mut().enumerate().filter_map(|(at, disk)| Some((at, disk.begin(now)?))).collect()
    }

    /// Takes a disk's finished request; returns the answers, if it was a read.
    pub(super) fn finish(&mut self, disk: usize, now: Now) -> Vec<StoreReply> {
        let Some(disk) = self.disks.get_mut(disk) else { return Vec::new() };
        let Some(Read { chunks, container }) = disk.finish(now) else { return Vec::new() };
        let fails = disk.health == Health::Fails;
        self.counts.reads += 1;
        if let Some(container) = container.filter(|_| !fails) {
            self.recent.push_back(container);
            if self.recent.len() > RECENT {
                self.recent.pop_front();
            }
        }
        let answer = |(ticket, tag)| match self.chunks.get(&tag) {
            Some(chunk) if !fails => StoreReply::Found { ticket, bytes: chunk.bytes.clone() },
            _ => StoreReply::Failed { ticket },
        };
        chunks.into_iter().map(answer).collect()
    }

    /// Says which reads bring chunks.
    fn places(&self, ticket: u64, chunks: &[Sought], now: Now) -> StoreReply {
        let place = |&Sought { tag, .. }: &Sought| match self.chunks.get(&tag) {
            Some(chunk) if !self.is_at_hand(chunk) => {
                let disk = self.disk_of(tag, chunk.container) as u16;
                ChunkPlace::Disk { disk, read: chunk.container }
            }
            Some(_) => ChunkPlace::Near,
            None => ChunkPlace::Absent,
        };
        let places = chunks.iter().map(place).collect();
        let seen =
            |disk: &Disk<Read>| shed::Disk { queued: disk.queued(), service_time: disk.service_time(now) };
        StoreReply::Places { ticket, places, neighbours: self.disks.iter().skip(1).map(seen).collect() }
    }

    /// Says whether a chunk is in the machine's memory.
    fn is_at_hand(&self, chunk: &Chunk) -> bool {
        chunk.put_before + self.memory > self.counts.put_bytes
            || chunk.container.is_some_and(|container| self.recent.contains(&container))
    }

    /// Returns how the own disk stands.
    pub(super) fn state(&self, now: Now) -> StoreState {
        let own = self.disks.first();
        let waiting = |own: &Disk<Read>| own.reads().map(|read| read.chunks.len() as u32).sum();
        StoreState {
            neighbours_pending: 0,
            queued: own.map_or(0, waiting),
            service_time: own.map_or(Now::ZERO, |own| own.service_time(now)),
            // Nothing is ever dropped: all chunks have been held from the beginning of time.
            age_secs: FOREVER_SECS,
            taking: true,
        }
    }

    pub(super) fn lose(&mut self) {
        self.chunks.clear();
        self.recent.clear();
    }

    pub(super) fn set_health(&mut self, health: Health) {
        self.disks.iter_mut().for_each(|disk| disk.health = health);
    }

    pub(super) fn counts(&self) -> StoreCounts {
        self.counts
    }

    fn put(&mut self, plain: &Bytes, key: &NameKey, shape: Shape) {
        let tree = match &mut self.tree {
            Some(tree) if tree.shape() == shape => tree,
            other => other.insert(Tree::new(shape)),
        };
        let mut written = vec![0; self.disks.len()];
        let mut covered = 0;
        self.made += 1;
        for node in tree.grow(plain) {
            let Some(chunk) = plain.get(node.range()) else { continue };
            let tag = key.tag(chunk);
            if self.chunks.contains_key(&tag) {
                continue;
            }
            let container = (self.containers && node.range().len() < SMALL).then_some(self.made);
            let (bytes, put_before) = (plain.slice(node.range()), self.counts.put_bytes);
            self.chunks.insert(tag, Chunk { bytes, put_before, container });
            // Chunks within a larger one are found there; nothing is written twice.
            let end = node.range().end;
            if end > covered {
                let disk = disk_index(tag, written.len());
                if let Some(written) = written.get_mut(disk) {
                    *written += (end - covered.max(node.range().start)) as u64;
                }
                covered = end;
            }
        }
        for (disk, bytes) in self.disks.iter_mut().zip(written) {
            self.counts.put_bytes += bytes;
            disk.write(bytes);
        }
    }

    fn disk_of(&self, tag: u64, container: Option<u64>) -> usize {
        match container {
            Some(container) => (container % self.disks.len().max(1) as u64) as usize,
            None => disk_index(tag, self.disks.len()),
        }
    }
}

/// Chooses one of so many disks, at least one.
fn disk_index(tag: u64, disks: usize) -> usize {
    (tag % disks.max(1) as u64) as usize
}

/// Smaller chunks lie in containers.
const SMALL: usize = 4096;
/// The read size of a container.
const CONTAINER: u32 = 64 << 10;
/// Containers in memory after a read.
const RECENT: usize = 16;
/// Ten years.
const FOREVER_SECS: u64 = 315_576_000;
