//! Reading of a log under concurrent writes.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use oncewire_link::{LogSide, SavedLog};

use super::disk::Disk;
use super::kept::{read_index, recover, ring_name};
use super::ring::Ring;
use super::seal::Seal;

/// Compaction counter of a log's index.
#[derive(Clone, Debug, Default)]
pub(super) struct Compactions(Arc<Mutex<u64>>);

impl Compactions {
    /// Begins a compaction; nobody reads the index during it: it does not fit the joined bytes.
    pub(super) fn begin(&self) -> MutexGuard<'_, u64> {
        let mut count = self.0.lock();
        *count += 1;
        count
    }
}

/// Reads the last `held` bytes of a log. Concurrently overwritten bytes do not verify, and are left out. A
/// concurrent compaction seals joined records anew; everything is then read again.
pub(super) fn read<D: Disk>(
    (disk, compactions): (&D, &Compactions),
    side: LogSide,
    capacity: u64,
    held: u64,
    seal: &Seal,
) -> Option<SavedLog> {
    let ring = Ring { file: disk.open(ring_name(side)).ok()?, capacity };
    let index = || {
        let compacted = compactions.0.lock();
        read_index(disk, side, &ring, seal.format()).ok().map(|index| (*compacted, index.records))
    };
    let (mut compacted, records) = index()?;
    let mut found = recover(&ring, side, held, seal, &records);
    for _ in 0..MOST_AGAIN {
        if found.lost == 0 {
            break;
        }
        let Some((now, records)) = index().filter(|(now, _)| *now > compacted) else { break };
        compacted = now;
        // Not twice in memory.
        found.saved = None;
        found = recover(&ring, side, held, seal, &records);
    }
    found.saved
}

/// A busy log's index may be compacted once more while it is read again.
const MOST_AGAIN: usize = 3;
