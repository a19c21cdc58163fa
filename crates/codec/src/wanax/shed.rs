//! Intelligent load shedding: chunks read from a disk, and chunks requested from the far side [Wanax §3.4, Algorithm
//! 1].
//!
//! A chunk on a disk saves bytes, but an overloaded disk makes everybody wait while the network idles. Both are asked
//! at once, so the later of the two counts: the reads of the fewest bytes, as costly for the disk as others and cheap
//! for the network, are moved from the slowest disk to the network as long as this gets them sooner. A disk taking next
//! to no time for a read is never shed of any: the bottleneck is elsewhere then, and bytes on the network are the
//! savings. Design and departures from the paper: `docs/internals/load-shedding.md`.

use std::collections::{BTreeSet, BinaryHeap};

use crate::Now;

/// A chunk of a block, and where it can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its length in bytes.
    pub len: u32,
    /// Where it is, as far as is known.
    pub source: Source,
    /// The read of its disk bringing it. Entries of one disk with the same number come with one read, so moving some of
    /// them saves nothing.
    pub read: u64,
}

/// Where a chunk comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The disk at this index of the disks planned for: the own one, or that of a neighbour.
    Disk(u16),
    /// The far side, across the network.
    Far,
}

/// A disk as a planner sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Reads it was asked for and has not done, Q in the paper.
    pub queued: u32,
    /// How long it takes for a read, S in the paper.
    pub service_time: Now,
}

/// The path to the far side as a planner sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// From asking for a chunk to its first byte, RTT in the paper.
    pub round_trip: Now,
    /// Bytes a second the path carries, BW in the paper; 0 is not known, and nothing is shed.
    pub bytes_per_s: u64,
    /// Bytes that were asked for before and have not arrived, B in the paper.
    pub pending: u64,
    /// Bytes others have asked for over the same line, beyond what they had when `bytes_per_s` was learnt.
    pub others: u64,
}

/// Plans one block after the other; keeps its buffers, and nothing else, between them.
#[derive(Clone, Debug, Default)]
pub struct Planner {
    /// Entries on disks by disk and read.
    order: Vec<(u16, u64, u32)>,
    /// Reads, those of one disk together, the smallest first.
    reads: Vec<Read>,
    lines: Vec<Line>,
    /// Disks with entries, the slowest on top.
    last: BinaryHeap<(Now, u16)>,
    sources: Vec<Source>,
}

/// What one read brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Read {
    disk: u16,
    bytes: u64,
    /// Its first entry, and where its entries stand in `order`.
    first: u32,
    begin: usize,
    end: usize,
}

/// What is left in `reads` of one disk.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    next: usize,
    end: usize,
}

/// When the last byte of a block is there, by where it comes from; zero if nothing does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// From the disk done last, max(T_D) in the paper.
    pub disks: Now,
    /// From the far side, T_N in the paper.
    pub network: Now,
}

impl Planner {
    /// Returns where each entry is to come from, in the order of `entries`.
    ///
    /// An entry that is on no disk of `disks` comes from the far side; without a known path nothing else does. Takes
    /// O(n log n), and no memory once it has planned as many entries.
    pub fn plan(&mut self, entries: &[Entry], disks: &[Disk], path: &Path) -> &[Source] {
        self.sources.clear();
        self.sources.extend(entries.iter().map(|entry| match entry.source {
            Source::Disk(disk) if usize::from(disk) < disks.len() => entry.source,
            _ => Source::Far,
        }));
        if path.bytes_per_s > 0 {
            self.line_up(entries, disks);
            self.shed(entries, disks, path);
        }
        &self.sources
    }

    /// Sorts what is on disks.
    fn line_up(&mut self, entries: &[Entry], disks: &[Disk]) {
        self.order.clear();
        let on_disk = self.sources.iter().zip(entries).zip(0..);
        self.order.extend(on_disk.filter_map(|((source, entry), at)| match source {
            Source::Disk(disk) => Some((*disk, entry.read, at)),
            Source::Far => None,
        }));
        self.order.sort_unstable();
        self.reads.clear();
        let mut begin = 0;
        for read in self.order.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
            let Some(&(disk, _, first)) = read.first() else { continue };
            let lens = read.iter().filter_map(|(.., at)| entries.get(*at as usize));
            let bytes = lens.map(|entry| u64::from(entry.len)).sum();
            let end = begin + read.len();
            self.reads.push(Read { disk, bytes, first, begin, end });
            begin = end;
        }
        self.reads.sort_unstable();
        self.lines.clear();
        self.lines.resize(disks.len(), Line::default());
        self.last.clear();
        let mut next = 0;
        for group in self.reads.chunk_by(|a, b| a.disk == b.disk) {
            let line = Line { next, end: next + group.len() };
            next = line.end;
            let Some(&Read { disk, .. }) = group.first() else { continue };
            if let (Some(known), Some(place)) =
                (disks.get(usize::from(disk)), self.lines.get_mut(usize::from(disk)))
            {
                *place = line;
                if known.is_slow() {
                    self.last.push((known.time(group.len()), disk));
                }
            }
        }
    }

    /// Moves the read of the disk done last which brings the least to the far side, as long as all of it is there
    /// sooner.
    fn shed(&mut self, entries: &[Entry], disks: &[Disk], path: &Path) {
        let far = self.sources.iter().zip(entries).filter(|(source, _)| **source == Source::Far);
        let mut bytes: u64 = far.map(|(_, entry)| u64::from(entry.len)).sum();
        while let Some((time, disk)) = self.last.pop() {
            let (Some(known), Some(line)) =
                (disks.get(usize::from(disk)), self.lines.get_mut(usize::from(disk)))
            else {
                return;
            };
            let Some(read) = self.reads.get(line.next) else { return };
            bytes += read.bytes;
            if path.time(bytes) >= time {
                return;
            }
            for (.., at) in self.order.get(read.begin..read.end).unwrap_or_default() {
                if let Some(source) = self.sources.get_mut(*at as usize) {
                    *source = Source::Far;
                }
            }
            line.next += 1;
            if line.next < line.end {
                self.last.push((known.time(line.end - line.next), disk));
            }
        }
    }
}

impl Expected {
    /// Says what comes of a plan.
    pub fn of(entries: &[Entry], sources: &[Source], disks: &[Disk], path: &Path) -> Self {
        let times = disks.iter().zip(0..).filter_map(|(disk, index)| {
            let there = entries.iter().zip(sources).filter(|(_, source)| **source == Source::Disk(index));
            match there.map(|(entry, _)| entry.read).collect::<BTreeSet<u64>>().len() {
                0 => None,
                reads => Some(disk.time(reads)),
            }
        });
        let far = entries.iter().zip(sources).filter(|(_, source)| **source == Source::Far);
        let bytes = far.map(|(entry, _)| u64::from(entry.len)).reduce(|all, len| all + len);
        Self {
            disks: times.max().unwrap_or_default(),
            network: bytes.map_or(Now::ZERO, |bytes| path.time(bytes)),
        }
    }

    /// When the block is complete.
    pub fn complete(&self) -> Now {
        self.disks.max(self.network)
    }
}

impl Disk {
    /// Says whether it may be shed of reads: it takes so long for each that transfers wait for it.
    pub fn is_slow(&self) -> bool {
        self.service_time >= LEAST_SLOW
    }

    /// When the disk has done so many reads more.
    fn time(&self, reads: usize) -> Now {
        let reads = u32::try_from(reads).unwrap_or(u32::MAX).saturating_add(self.queued);
        self.service_time.saturating_mul(reads)
    }
}

impl Path {
    /// Returns the arrival of so many bytes more; never, if the rate is not known. Before the last of them comes as
    /// much of others' requests, if there is as much, since sharers of a line take turns.
    pub fn time(&self, bytes: u64) -> Now {
        let own = u128::from(self.pending) + u128::from(bytes);
        let bytes = own + own.min(self.others.into());
        let nanos = (bytes * NANOS_PER_S).checked_div(u128::from(self.bytes_per_s));
        let nanos = nanos.and_then(|nanos| u64::try_from(nanos).ok());
        nanos.map_or(Now::MAX, |nanos| self.round_trip.saturating_add(Now::from_nanos(nanos)))
    }
}

/// A disk taking less for a read holds nobody up: chunks of 64 KiB come from it with more than 1 Gbit/s, and a read is
/// then mostly CPU time, as on the network.
pub const LEAST_SLOW: Now = Now::from_micros(500);
const NANOS_PER_S: u128 = 1_000_000_000;

#[cfg(test)]
mod tests;
