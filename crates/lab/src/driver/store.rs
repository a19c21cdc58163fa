//! A chunk store on modelled disks: an index in memory, one read a chunk, puts in the background.

use std::collections::BTreeMap;

use bytes::Bytes;
use oncewire_codec::Now;
use oncewire_codec::contract::{StoreReply, StoreRequest, StoreState};
use oncewire_codec::wanax::{Name, NameKey, Shape, Tree};

use super::StoreConfig;
use super::disk::{Disk, Health};

/// What is held, and the disks on which it is.
///
/// Chunks go to disks by their tags, as they go to neighbours; all disks together are one to the codec, as many times
/// as fast.
pub(super) struct ChunkStore {
    disks: Vec<Disk<Read>>,
    /// Each with how much had been put before it.
    chunks: BTreeMap<Name, (Bytes, u64)>,
    memory: u64,
    tree: Option<Tree>,
    counts: StoreCounts,
}

/// What a store was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreCounts {
    /// Chunks that were asked for and not there.
    pub absent: u64,
    /// Reads that disks have done.
    pub reads: u64,
    /// Bytes of blocks that were new.
    pub put_bytes: u64,
}

/// A chunk that is being read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    ticket: u64,
    name: Name,
}

impl ChunkStore {
    pub(super) fn new(config: &StoreConfig) -> Self {
        let disks = (0..config.disks.max(1)).map(|_| Disk::new(config.disk)).collect();
        Self {
            disks,
            chunks: BTreeMap::new(),
            memory: config.memory,
            tree: None,
            counts: StoreCounts::default(),
        }
    }

    /// Takes a request; returns the answer, if that needs no disk.
    pub(super) fn handle(&mut self, request: StoreRequest, now: Now) -> Option<StoreReply> {
        match request {
            StoreRequest::Read { ticket, name, len, .. } => {
                let chunk = self.chunks.get(&name).filter(|(chunk, _)| chunk.len() == len as usize);
                let Some((bytes, put_before)) = chunk else {
                    self.counts.absent += 1;
                    return Some(StoreReply::Absent { ticket });
                };
                if put_before + self.memory > self.counts.put_bytes {
                    return Some(StoreReply::Found { ticket, bytes: bytes.clone() });
                }
                self.disk_of(&name).read(len, Read { ticket, name }, now);
                None
            }
            StoreRequest::Put { plain, key, shape } => {
                self.put(&plain, &key, shape);
                None
            }
        }
    }

    /// Lets idle disks begin; returns which did, and when they will be done.
    pub(super) fn begin(&mut self, now: Now) -> Vec<(usize, Now)> {
        self.disks.iter_mut().enumerate().filter_map(|(at, disk)| Some((at, disk.begin(now)?))).collect()
    }

    /// Takes what a disk has done; returns the answer, if it was a read.
    pub(super) fn finish(&mut self, disk: usize, now: Now) -> Option<StoreReply> {
        let disk = self.disks.get_mut(disk)?;
        let Read { ticket, name } = disk.finish(now)?;
        self.counts.reads += 1;
        match self.chunks.get(&name) {
            Some((chunk, _)) if disk.health != Health::Fails => {
                Some(StoreReply::Found { ticket, bytes: chunk.clone() })
            }
            _ => Some(StoreReply::Failed { ticket }),
        }
    }

    /// Returns how the store stands.
    pub(super) fn state(&self, now: Now) -> StoreState {
        let disks = self.disks.len() as u32;
        let service_time: Now = self.disks.iter().map(|disk| disk.service_time(now)).sum();
        StoreState {
            queued: self.disks.iter().map(Disk::queued).sum(),
            service_time: service_time / (disks * disks),
            // Nothing is ever dropped: what was held from the beginning of time is held.
            age_secs: FOREVER_SECS,
            taking: true,
        }
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
        for node in tree.grow(plain) {
            let Some(chunk) = plain.get(node.range()) else { continue };
            let name = key.name(chunk);
            if self.chunks.contains_key(&name) {
                continue;
            }
            self.chunks.insert(name, (plain.slice(node.range()), self.counts.put_bytes));
            // What a larger chunk holds already is found in it; nothing is written twice.
            let end = node.range().end;
            if end > covered {
                let disk = disk_index(&name, written.len());
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

    fn disk_of(&mut self, name: &Name) -> &mut Disk<Read> {
        let at = disk_index(name, self.disks.len());
        &mut self.disks[at]
    }
}

/// Chooses one of so many disks, at least one.
fn disk_index(name: &Name, disks: usize) -> usize {
    (name.tag() % disks.max(1) as u64) as usize
}

/// Ten years.
const FOREVER_SECS: u64 = 315_576_000;
