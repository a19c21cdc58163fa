//! Intelligent load shedding: which chunks are read from a disk, and which are asked for from the far side
//! [Wanax §3.4, Algorithm 1].
//!
//! A chunk that is on a disk saves bytes, but a disk that has too much to do makes everybody wait while the network
//! idles. Both are asked at once, so what counts is the later of the two: the smallest chunks, which cost the disk as
//! much as large ones and the network least, are moved from the disk that is done last to the network as long as that
//! gets them sooner. Design and departures from the paper: `docs/design/load-shedding.md`.

use std::collections::BinaryHeap;

use crate::Now;

/// A chunk of a block, and where it can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its length in bytes.
    pub len: u32,
    /// Where it is, as far as is known.
    pub source: Source,
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
    /// Reads that it was asked for and has not done, Q in the paper.
    pub queued: u32,
    /// How long it takes for a read, S in the paper.
    pub service_time: Now,
}

/// The path to the far side as a planner sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// From asking for a chunk to its first byte, RTT in the paper.
    pub round_trip: Now,
    /// Bytes a second that the path carries, BW in the paper; 0 is not known, and nothing is shed.
    pub bytes_per_s: u64,
    /// Bytes that were asked for before and have not arrived, B in the paper.
    pub pending: u64,
}

/// Plans one block after the other; keeps its buffers, and nothing else, between them.
#[derive(Clone, Debug, Default)]
pub struct Planner {
    /// Entries on disks, those of one disk together, the smallest first.
    order: Vec<(u16, u32, u32)>,
    lines: Vec<Line>,
    /// Disks with entries, that which is done last on top.
    last: BinaryHeap<(Now, u16)>,
    sources: Vec<Source>,
}

/// What is left in `order` of one disk.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    next: usize,
    end: usize,
}

/// When the last byte of a block is there, by where it comes from; zero if nothing does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// From the disk that is done last, max(T_D) in the paper.
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
            Source::Disk(disk) => Some((*disk, entry.len, at)),
            Source::Far => None,
        }));
        self.order.sort_unstable();
        self.lines.clear();
        self.lines.resize(disks.len(), Line::default());
        self.last.clear();
        let mut next = 0;
        for group in self.order.chunk_by(|a, b| a.0 == b.0) {
            let line = Line { next, end: next + group.len() };
            next = line.end;
            let Some(&(disk, ..)) = group.first() else { continue };
            if let (Some(known), Some(place)) =
                (disks.get(usize::from(disk)), self.lines.get_mut(usize::from(disk)))
            {
                *place = line;
                self.last.push((known.time(group.len()), disk));
            }
        }
    }

    /// Moves the smallest entry of the disk that is done last to the far side, as long as it is there sooner.
    fn shed(&mut self, entries: &[Entry], disks: &[Disk], path: &Path) {
        let far = self.sources.iter().zip(entries).filter(|(source, _)| **source == Source::Far);
        let mut bytes: u64 = far.map(|(_, entry)| u64::from(entry.len)).sum();
        while let Some((time, disk)) = self.last.pop() {
            let (Some(known), Some(line)) =
                (disks.get(usize::from(disk)), self.lines.get_mut(usize::from(disk)))
            else {
                return;
            };
            let Some(&(_, len, at)) = self.order.get(line.next) else { return };
            bytes += u64::from(len);
            if path.time(bytes) >= time {
                return;
            }
            if let Some(source) = self.sources.get_mut(at as usize) {
                *source = Source::Far;
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
            match sources.iter().filter(|source| **source == Source::Disk(index)).count() {
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
    /// When the disk has done so many reads more.
    fn time(&self, reads: usize) -> Now {
        let reads = u32::try_from(reads).unwrap_or(u32::MAX).saturating_add(self.queued);
        self.service_time.saturating_mul(reads)
    }
}

impl Path {
    /// When so many bytes more have arrived; never, if the rate is not known.
    fn time(&self, bytes: u64) -> Now {
        let bytes = u128::from(self.pending) + u128::from(bytes);
        let nanos = (bytes * NANOS_PER_S).checked_div(u128::from(self.bytes_per_s));
        let nanos = nanos.and_then(|nanos| u64::try_from(nanos).ok());
        nanos.map_or(Now::MAX, |nanos| self.round_trip.saturating_add(Now::from_nanos(nanos)))
    }
}

const NANOS_PER_S: u128 = 1_000_000_000;

#[cfg(test)]
mod tests;
