//! Operator's tools: statistics and verification.

use std::io;
use std::sync::Arc;

use crate::index::IndexMemory;
use crate::segment::{LEVELS, Level, Segment};
use crate::{Fault, Faults, Horizon, Progress, Store};

/// The content of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Tells this store from any other.
    pub id: u64,
    /// The most bytes of disk for it.
    pub capacity: u64,
    /// Bytes of disk of its segments and their summaries.
    pub file_bytes: u64,
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// Number of segments.
    pub segments: u64,
    /// Those of them [set aside](Store::set_aside).
    pub set_aside: u64,
    /// Those of them [given up](Store::given_up).
    pub given_up: u64,
    /// Number of containers, the units of checks.
    pub containers: u64,
    /// Whether it is encrypted.
    pub encrypted: bool,
    /// How far it reaches back.
    pub horizon: Horizon,
    /// Chunks on disk by level, repeated ones counted each time.
    pub levels: [Level; LEVELS],
    /// Memory of the index.
    pub index: IndexMemory,
    /// Valid entries of the index, large, medium and small chunks; of large tables an estimate.
    pub indexed: [u64; 3],
    /// Entries with room in it.
    pub slots: [u64; 3],
}

/// The findings of a full read.
#[derive(Debug, Default)]
pub struct Verified {
    /// Containers read.
    pub containers: u64,
    /// Bytes of their blocks, as far as they are sound.
    pub bytes: u64,
    /// Damaged content.
    pub damaged: Faults,
    /// Content refused by the disk; it may be sound.
    pub unreadable: Faults,
}

impl Store {
    /// Returns its statistics, in some milliseconds at most: of a large index a part is counted.
    pub fn stat(&self) -> Stat {
        let mut levels = [Level::default(); LEVELS];
        let mut containers = 0;
        let ring: Vec<Arc<Segment>> = self.ring.read().iter().cloned().collect();
        for segment in &ring {
            let extent = segment.extent.read();
            containers += u64::from(extent.containers);
            for (sum, level) in levels.iter_mut().zip(extent.levels) {
                sum.chunks = sum.chunks.saturating_add(level.chunks);
                sum.bytes += level.bytes;
            }
        }
        let index = &self.index;
        Stat {
            id: self.id,
            capacity: self.capacity,
            file_bytes: self.file_bytes(),
            segment_bytes: self.segment_bytes,
            segments: ring.len() as u64,
            set_aside: ring.iter().filter(|segment| segment.is_aside()).count() as u64,
            given_up: ring.iter().filter(|segment| segment.is_given_up()).count() as u64,
            containers,
            encrypted: self.sealer.is_some(),
            horizon: self.horizon(),
            levels,
            index: index.memory(),
            indexed: index.live(),
            slots: [index.coarse.slots(), index.medium.slots(), index.fine.slots()],
        }
    }

    /// Reads every container on the disk and compares it with its check; `progress` counts bytes of files.
    ///
    /// # Errors
    /// If the content of memory cannot be written first, or it is cancelled.
    pub fn verify(&self, progress: &Progress) -> io::Result<Verified> {
        self.sync()?;
        let mut verified = Verified::default();
        let ring: Vec<Arc<Segment>> = self.ring.read().iter().cloned().collect();
        verified.unreadable.append(self.passed_over());
        verified.damaged.append(self.gone());
        progress.begin(self.file_bytes());
        for segment in ring {
            let mut left = segment.file_bytes();
            self.verify_segment(&segment, &mut verified, &mut |bytes| {
                left -= bytes.min(left);
                progress.advance(bytes)
            })?;
            // Its footer, and everything else but containers.
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
        if let Some(why) = segment.closed {
            verified.unreadable.push(Fault::NotTried { file: segment.file.name().to_owned(), why });
            return Ok(());
        }
        let was_shed = match segment.recall() {
            Ok(was_shed) => was_shed,
            Err(fault) => {
                verified.unreadable.push(fault);
                return Ok(());
            }
        };
        let containers = segment.extent.read().containers as usize;
        let mut refused = 0;
        for i in 0..containers {
            if refused == MOST_REFUSED {
                // Each takes as long as the disk tries.
                let (file, why) = (segment.file.name().to_owned(), "too much of it before was refused");
                verified.unreadable.push(Fault::NotTried { file, why });
                break;
            }
            verified.containers += 1;
            match self.load(segment, i) {
                Ok(container) => {
                    refused = 0;
                    let bytes = container.map_or(0, |container| container.blocks().len() as u64);
                    verified.bytes += bytes;
                    advance(bytes)?;
                }
                Err(fault) if fault.is_damage() => verified.damaged.push(fault),
                Err(fault) => {
                    refused += 1;
                    verified.unreadable.push(fault);
                }
            }
            // Else four bad places would hide the rest of the file.
            segment.ask_again();
        }
        if refused < MOST_REFUSED {
            let checked = [segment.check_footer(), self.check_first_page(segment)];
            checked.into_iter().filter_map(Result::err).for_each(|fault| verified.unreadable.push(fault));
            segment.ask_again();
        }
        segment.flaw().into_iter().for_each(|fault| verified.damaged.push(fault));
        if was_shed {
            segment.shed();
        }
        Ok(())
    }
}

/// Containers refused in a row before the rest of a segment is not tried.
const MOST_REFUSED: u32 = 64;
