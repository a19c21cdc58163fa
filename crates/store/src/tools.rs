//! What an operator does with a store: look at it, read everything, make it smaller.

use std::io;
use std::sync::Arc;

use crate::container::{Container, HEADER};
use crate::index::{Class, IndexMemory};
use crate::segment::{LEVELS, Level, Segment};
use crate::writer::Writer;
use crate::{Fault, Horizon, Part, Progress, Store};

/// What a store has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Tells this store from any other.
    pub id: u64,
    /// Bytes of disk that it may take.
    pub capacity: u64,
    /// Bytes of disk that its segments take.
    pub file_bytes: u64,
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// Number of segments.
    pub segments: u64,
    /// Of those, the ones that are [set aside](Store::set_aside).
    pub set_aside: u64,
    /// Number of containers, the units that are checked.
    pub containers: u64,
    /// Whether it is encrypted.
    pub encrypted: bool,
    /// How far it reaches back.
    pub horizon: Horizon,
    /// When its newest container was begun.
    pub newest_s: Option<u64>,
    /// Chunks on disk by level, those that lie there more than once counted each time.
    pub levels: [Level; LEVELS],
    /// Memory of the index.
    pub index: IndexMemory,
    /// Entries of the index that count, large, medium and small chunks.
    pub indexed: [u64; 3],
    /// Entries that it has room for.
    pub slots: [u64; 3],
}

/// What reading everything has found.
#[derive(Debug, Default)]
pub struct Verified {
    /// Containers that were read.
    pub containers: u64,
    /// Bytes of their blocks, as far as they are sound.
    pub bytes: u64,
    /// What is damaged.
    pub damaged: Vec<Fault>,
    /// What the disk did not let be read; it may be sound.
    pub unreadable: Vec<Fault>,
}

/// What rewriting has done.
#[derive(Debug, Default)]
pub struct Compacted {
    /// Containers that were written again.
    pub kept: u64,
    /// Containers of which everything is found elsewhere, or nowhere any more.
    pub superseded: u64,
    /// What was damaged, and is gone.
    pub damaged: Vec<Fault>,
    /// Bytes of disk before.
    pub before: u64,
    /// Bytes of disk afterwards.
    pub after: u64,
}

/// Why rewriting ended before all was done.
enum Halt {
    Read(Fault),
    Write(io::Error),
}

impl Store {
    /// Returns what it has; counts the whole index.
    pub fn stat(&self) -> Stat {
        let mut levels = [Level::default(); LEVELS];
        let (mut containers, mut newest_s) = (0, None);
        let ring: Vec<Arc<Segment>> = self.ring.read().iter().cloned().collect();
        for segment in &ring {
            let extent = segment.extent.read();
            containers += u64::from(extent.containers);
            newest_s = if extent.containers == 0 { newest_s } else { Some(extent.newest_s) };
            for (sum, level) in levels.iter_mut().zip(extent.levels) {
                sum.chunks = sum.chunks.saturating_add(level.chunks);
                sum.bytes += level.bytes;
            }
        }
        let (addresses, numbers) = (self.index.addresses.window(), self.index.containers.window());
        let index = &self.index;
        Stat {
            id: self.id,
            capacity: self.capacity,
            file_bytes: self.file_bytes(),
            segment_bytes: self.segment_bytes,
            segments: ring.len() as u64,
            set_aside: ring.iter().filter(|segment| segment.is_aside()).count() as u64,
            containers,
            encrypted: self.sealer.is_some(),
            horizon: self.horizon(),
            newest_s,
            levels,
            index: index.memory(),
            indexed: [index.coarse.live(addresses), index.medium.live(numbers), index.fine.live(numbers)],
            slots: [index.coarse.slots(), index.medium.slots(), index.fine.slots()],
        }
    }

    /// Reads every container that is on the disk and compares it with its check; `progress` counts bytes of files.
    ///
    /// # Errors
    /// If what is in memory cannot be written first, or it is cancelled.
    pub fn verify(&self, progress: &Progress) -> io::Result<Verified> {
        self.sync()?;
        let mut verified = Verified::default();
        let ring: Vec<Arc<Segment>> = self.ring.read().iter().cloned().collect();
        progress.begin(self.file_bytes());
        for segment in ring {
            let mut left = segment.extent.read().file_len;
            self.verify_segment(&segment, &mut verified, &mut |bytes| {
                left -= bytes.min(left);
                progress.advance(bytes)
            })?;
            // Its footer, and what else is no container.
            progress.advance(left)?;
        }
        Ok(verified)
    }

    fn verify_segment(
        &self,
        segment: &Segment,
        verified: &mut Verified,
        advance: &mut dyn FnMut(u64) -> io::Result<()>,
    ) -> io::Result<()> {
        if segment.is_closed {
            let file = segment.file.name().to_owned();
            verified.unreadable.push(Fault::NotTried { file, why: "it was set aside at the start" });
        }
        let was_shed = match segment.recall() {
            Ok(was_shed) => was_shed,
            Err(fault) => {
                verified.unreadable.push(fault);
                return Ok(());
            }
        };
        let containers = segment.extent.read().containers as usize;
        for i in 0..containers {
            verified.containers += 1;
            match self.load(segment, i) {
                Ok(container) => {
                    let bytes = container.map_or(0, |container| container.blocks().len() as u64);
                    verified.bytes += bytes;
                    advance(bytes)?;
                }
                Err(fault) if fault.is_damage() => verified.damaged.push(fault),
                Err(fault) => verified.unreadable.push(fault),
            }
            // Else four bad places would hide the rest of the file.
            segment.try_again();
        }
        if was_shed {
            segment.shed();
        }
        Ok(())
    }

    /// Writes everything again that is sound and still found by the index, in its order, and lets the old segments go.
    ///
    /// With `shrink_to` the oldest go first until the rest takes no more bytes of disk. It takes the room of two segments
    /// beyond the capacity meanwhile. Work for a time when nobody else writes. `progress` counts bytes of files.
    ///
    /// # Errors
    /// If the disk refuses, or it is cancelled; what was not written again yet stays where it is. It ends at the first
    /// place that the disk does not let be read: what lies there may be sound, and is not given up.
    pub fn compact(&self, shrink_to: Option<u64>, progress: &Progress) -> io::Result<Compacted> {
        let mut writer = self.writing();
        if let Some(trouble) = &writer.stopped {
            return Err(io::Error::other(trouble.clone()));
        }
        self.seal(&mut writer)?;
        let mut compacted = Compacted { before: self.file_bytes(), ..Compacted::default() };
        while shrink_to.is_some_and(|bytes| self.file_bytes() > bytes) && self.evict_before(&writer, u64::MAX)
        {
        }
        let old: Vec<Arc<Segment>> = self.ring.read().iter().cloned().collect();
        progress.begin(self.file_bytes());
        writer.slack = 2;
        let done = old.iter().try_for_each(|segment| {
            let bytes = segment.extent.read().file_len;
            self.rewrite(&mut writer, segment, &mut compacted)?;
            progress.advance(bytes).map_err(Halt::Write)
        });
        writer.slack = 0;
        compacted.after = self.file_bytes();
        match done {
            Ok(()) => Ok(compacted),
            Err(Halt::Read(fault)) => {
                self.sync_locked(&mut writer)?;
                let why = format!("{fault}; it is left where it is, with all that came behind it");
                Err(io::Error::other(why))
            }
            Err(Halt::Write(error)) => {
                self.stop(&mut writer, &error);
                Err(error)
            }
        }
    }

    /// Writes what is worth keeping of a segment to the end of the ring, and lets the segment go.
    fn rewrite(&self, writer: &mut Writer, segment: &Segment, compacted: &mut Compacted) -> Result<(), Halt> {
        if segment.is_closed {
            let file = segment.file.name().to_owned();
            return Err(Halt::Read(Fault::NotTried { file, why: "it was set aside at the start" }));
        }
        segment.recall().map_err(Halt::Read)?;
        let containers = segment.extent.read().containers as usize;
        for i in 0..containers {
            let container = match self.load(segment, i) {
                Ok(Some(container)) => container,
                Ok(None) => continue,
                Err(fault) if fault.is_damage() => {
                    compacted.damaged.push(fault);
                    continue;
                }
                Err(fault) => return Err(Halt::Read(fault)),
            };
            let live = self.live_parts(segment, i, &container);
            if live.is_empty() {
                compacted.superseded += 1;
                continue;
            }
            self.append(writer, container.blocks(), &live, container.time_s).map_err(Halt::Write)?;
            self.close_container(writer);
            compacted.kept += 1;
        }
        self.sync_locked(writer).map_err(Halt::Write)?;
        self.evict_before(writer, segment.number + 1);
        Ok(())
    }

    /// Returns the chunks of a container that the index finds in it.
    fn live_parts(&self, segment: &Segment, index: usize, container: &Container) -> Vec<Part> {
        let Ok(Some((start, _))) = segment.container(index) else { return Vec::new() };
        let blocks = self.address(segment.number, start + HEADER as u32);
        let number = segment.first_container + index as u64;
        let is_live = |part: &Part| {
            let class = Class::of(part.len);
            let here = if class == Class::Coarse { blocks + u64::from(part.start) } else { number };
            self.index.places(part.tag, class).contains(&here)
        };
        container.parts.iter().copied().filter(is_live).collect()
    }
}
