//! One log on disk: recovery at the start, then piecewise writes.
//!
//! Its index is compacted when it has grown.

use std::io;

use oncewire_codec::wire::MAX_BLOCK;
use oncewire_link::{Log, LogOffset, LogSide, LogWrite, RangeSet, SavedLog};

use super::disk::{Disk, DiskFile};
use super::index::{self, Format, HeaderError, Proof, Record};
use super::reading::Compactions;
use super::ring::Ring;
use super::seal::Seal;

/// A log persisted on disk.
pub(super) struct KeptLog<D: Disk> {
    disk: D,
    side: LogSide,
    seal: Seal,
    ring: Ring<D::File>,
    index: D::File,
    /// Buffer for the written form of bytes, if it differs.
    sealed: Vec<u8>,
    /// The index's records of the newest epoch, in its order.
    records: Vec<Record>,
    /// Records in the index, including older epochs.
    in_index: usize,
    /// Written to the ring and not yet in the index.
    pending: Vec<Record>,
    unsynced: bool,
    compactions: Compactions,
}

/// Findings on opening a log.
pub(super) struct Opened<D: Disk> {
    /// The log, unless it cannot be written.
    pub(super) log: Option<KeptLog<D>>,
    /// Its remains; every byte was read and verified.
    pub(super) saved: Option<SavedLog>,
    /// Reason for missing content.
    pub(super) trouble: Option<Trouble>,
}

/// Faults of a log on disk; they cost cached content, never more.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    #[error("it cannot be read: {0}")]
    Unreadable(io::Error),
    #[error("it cannot be written, so nothing of this run will be found by the next: {0}")]
    Unwritable(io::Error),
    #[error("its index is missing")]
    NoIndex,
    #[error("its index is far too long")]
    IndexTooLong,
    #[error(transparent)]
    Header(#[from] HeaderError),
    #[error("its index ends in the middle or is damaged, at record {0}")]
    IndexDamaged(usize),
    #[error("{0} bytes are not what was written")]
    BytesDamaged(u64),
}

impl Trouble {
    /// Whether a log to be encrypted may have clear text on disk: not if it was encrypted.
    fn may_hide_clear_text(&self) -> bool {
        !matches!(
            self,
            Self::Header(HeaderError::OtherKey | HeaderError::Capacity { .. })
                | Self::IndexDamaged(_)
                | Self::BytesDamaged(_)
                | Self::IndexTooLong
        )
    }
}

impl<D: Disk> Opened<D> {
    fn unusable(trouble: Trouble) -> Self {
        Self { log: None, saved: None, trouble: Some(trouble) }
    }
}

impl<D: Disk> KeptLog<D> {
    /// Finds the remains of a log, and makes it ready for writing; never fails, at worst nothing is left. In
    /// memory it takes at most the last `held` bytes; older ones are forgotten.
    pub(super) fn open(disk: D, side: LogSide, capacity: u64, held: u64, seal: Seal) -> Opened<D> {
        let ring = match disk.open(ring_name(side)) {
            Ok(file) => Ring { file, capacity },
            Err(error) => return Opened::unusable(Trouble::Unreadable(error)),
        };
        let (records, mut trouble) = match read_index(&disk, side, &ring, seal.format()) {
            Ok(index) => (index.records, index.damaged_at.map(Trouble::IndexDamaged)),
            Err(trouble) => (Vec::new(), trouble),
        };
        let exposed = trouble.as_ref().is_some_and(Trouble::may_hide_clear_text);
        let found = recover(&ring, side, held, &seal, &records);
        if found.lost > 0 {
            trouble.get_or_insert(Trouble::BytesDamaged(found.lost));
        }
        let (saved, records) = (found.saved, found.records);
        match Self::start(disk, side, seal, ring, records, exposed) {
            Ok(log) => Opened { log: Some(log), saved, trouble },
            Err(error) => Opened { log: None, saved, trouble: Some(Trouble::Unwritable(error)) },
        }
    }

    /// Compaction counter for concurrent readers of the log.
    pub(super) fn compactions(&self) -> Compactions {
        self.compactions.clone()
    }

    /// Begins with an index of the found records and nothing else.
    fn start(
        disk: D,
        side: LogSide,
        seal: Seal,
        mut ring: Ring<D::File>,
        records: Vec<Record>,
        exposed: bool,
    ) -> io::Result<Self> {
        if records.is_empty() && ring.file.len()? > 0 {
            if exposed && matches!(seal, Seal::Keyed { .. }) {
                ring.overwrite()?;
            }
            ring.file.set_len(0)?;
        }
        let index = disk.replace(index_name(side), &encode(side, ring.capacity, seal.format(), &records))?;
        let in_index = records.len();
        let (sealed, pending, unsynced) = (Vec::new(), Vec::new(), true);
        let compactions = Compactions::default();
        let mut log =
            Self { disk, side, seal, ring, index, sealed, records, in_index, pending, unsynced, compactions };
        if in_index > index::record_limit(log.ring.capacity) / 2 {
            log.compact()?;
        }
        Ok(log)
    }

    /// Writes a piece of the log; its record follows with the next [`KeptLog::flush`], at the latest after
    /// [`FLUSH_EVERY`] of them.
    ///
    /// # Errors
    /// The disk's error; the log must not be written again.
    pub(super) fn write(&mut self, write: &LogWrite) -> io::Result<()> {
        let place = (write.epoch, write.start);
        let closed = self.seal.close(self.side, place, &write.plain, &mut self.sealed)?;
        let Some((record, bytes)) = closed.filter(|_| write.plain.len() as u64 <= self.ring.capacity) else {
            return Ok(());
        };
        self.unsynced = true;
        self.ring.write(write.start, bytes)?;
        self.pending.push(record);
        if self.pending.len() >= FLUSH_EVERY { self.flush() } else { Ok(()) }
    }

    /// Appends the records of all written pieces to the index.
    ///
    /// # Errors
    /// As [`KeptLog::write`].
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        if self.ring.file.is_removed()? || self.index.is_removed()? {
            return Err(io::Error::new(io::ErrorKind::NotFound, "its files were removed"));
        }
        let format = self.seal.format();
        let mut bytes = Vec::with_capacity(self.pending.len() * format.record_len());
        self.pending.iter().for_each(|record| record.encode(&mut bytes));
        let end = format.header_len() + self.in_index * format.record_len();
        self.index.write_at(&bytes, end as u64)?;
        self.in_index += self.pending.len();
        for record in self.pending.drain(..) {
            if self.records.last().is_some_and(|last| last.epoch != record.epoch) {
                self.records.clear();
            }
            self.records.push(record);
        }
        if self.in_index > index::record_limit(self.ring.capacity) { self.compact() } else { Ok(()) }
    }

    /// Forgets everything, and returns the number of bytes of the files.
    ///
    /// # Errors
    /// As [`KeptLog::write`].
    pub(super) fn clear(&mut self) -> io::Result<u64> {
        let bytes = self.ring.file.len()? + self.index.len()?;
        if self.ring.file.is_removed()? {
            self.ring.file = self.disk.open(ring_name(self.side))?;
        }
        self.pending.clear();
        self.records.clear();
        self.in_index = 0;
        // First: on a full disk this makes the room for an index. Records without their bytes claim nothing.
        self.ring.file.set_len(0)?;
        let empty = encode(self.side, self.ring.capacity, self.seal.format(), &[]);
        let is_empty = bytes == empty.len() as u64;
        match self.disk.replace(index_name(self.side), &empty) {
            // An empty log frees nothing, so a full disk has no room for its index; the old index says the
            // same.
            Err(error) if is_empty && error.kind() == io::ErrorKind::StorageFull => {}
            replaced => self.index = replaced?,
        }
        self.ring.file.sync()?;
        Ok(bytes)
    }

    /// Waits until the disk has everything.
    ///
    /// # Errors
    /// As [`KeptLog::write`].
    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.flush()?;
        if std::mem::take(&mut self.unsynced) {
            // The bytes first: a record without its bytes is found out only by reading them.
            self.ring.file.sync()?;
            self.index.sync()?;
        }
        Ok(())
    }

    /// Rewrites the index with the records still in the ring, small neighbours joined.
    fn compact(&mut self) -> io::Result<()> {
        let compactions = self.compactions.clone();
        let _compacting = compactions.begin();
        let live = index::live(&self.records, self.ring.capacity);
        let mut records = Vec::new();
        for group in neighbours(&live) {
            self.join(group, &mut records)?;
        }
        if self.unsynced && matches!(self.seal, Seal::Keyed { .. }) {
            // Joined records were sealed anew: their bytes must be on the disk before their new seals.
            self.ring.file.sync()?;
        }
        // Gaps prevent joining. A peer must not cause unbounded growth, so the oldest give way.
        let surplus = records.len().saturating_sub(index::record_limit(self.ring.capacity) / 2);
        records.drain(..surplus);
        let bytes = encode(self.side, self.ring.capacity, self.seal.format(), &records);
        self.index = self.disk.replace(index_name(self.side), &bytes)?;
        self.in_index = records.len();
        self.records = records;
        Ok(())
    }

    /// Appends one record for a group of neighbours, without those failing verification.
    fn join(&mut self, group: &[Record], out: &mut Vec<Record>) -> io::Result<()> {
        let Some(first) = group.first().copied() else { return Ok(()) };
        if group.len() == 1 {
            out.push(first);
            return Ok(());
        }
        let (mut bytes, mut part) = (Vec::new(), Vec::new());
        let mut held = Vec::with_capacity(group.len());
        for record in group {
            let readable = self.ring.read(&record.range(), &mut part).is_ok();
            if readable && self.seal.open(self.side, record, &mut part) {
                held.push(*record);
                bytes.extend_from_slice(&part);
            }
        }
        let joined = match held.len() == group.len() {
            true => self.seal.close(self.side, (first.epoch, first.start), &bytes, &mut self.sealed)?,
            false => None,
        };
        let Some((joined, written)) = joined else {
            out.extend(held);
            return Ok(());
        };
        if matches!(joined.proof, Proof::Seal { .. }) {
            self.unsynced = true;
            self.ring.write(joined.start, written)?;
        }
        out.push(joined);
        Ok(())
    }
}

/// Reads the index; an error without trouble means no log.
pub(super) fn read_index<D: Disk>(
    disk: &D,
    side: LogSide,
    ring: &Ring<D::File>,
    format: Format,
) -> Result<index::Index, Option<Trouble>> {
    let unreadable = |error| Some(Trouble::Unreadable(error));
    let file = disk.open(index_name(side)).map_err(unreadable)?;
    let len = file.len().map_err(unreadable)?;
    if len == 0 {
        let bare = ring.file.len().map_err(unreadable)? == 0;
        return Err((!bare).then_some(Trouble::NoIndex));
    }
    // The header first: the length limit depends on the capacity.
    let mut bytes = vec![0; len.min(format.header_len() as u64) as usize];
    file.read_at(&mut bytes, 0).map_err(unreadable)?;
    index::check_header(side, ring.capacity, format, &bytes).map_err(|error| Some(error.into()))?;
    let longest = index::record_limit(ring.capacity).saturating_add(FLUSH_EVERY);
    let rest = usize::try_from(len - bytes.len() as u64).unwrap_or(usize::MAX);
    if rest > longest.saturating_mul(format.record_len()) {
        return Err(Some(Trouble::IndexTooLong));
    }
    bytes.resize(format.header_len() + rest, 0);
    file.read_at(&mut bytes, 0).map_err(unreadable)?;
    index::decode(side, ring.capacity, format, &bytes).map_err(|error| Some(error.into()))
}

/// Remains of a log.
#[derive(Default)]
pub(super) struct Found {
    pub(super) saved: Option<SavedLog>,
    /// The records of it.
    records: Vec<Record>,
    /// Bytes differing from the written ones.
    pub(super) lost: u64,
}

/// Reads the bytes of the records and keeps the verified ones, of the last `held` bytes.
pub(super) fn recover<F: DiskFile>(
    ring: &Ring<F>,
    side: LogSide,
    held: u64,
    seal: &Seal,
    records: &[Record],
) -> Found {
    let live = index::live(records, ring.capacity);
    let mut found = Found::default();
    let (Some(first), Ok(capacity)) = (live.first(), usize::try_from(ring.capacity)) else { return found };
    let mut saved = SavedLog { epoch: first.epoch, log: Log::new(capacity), ranges: RangeSet::default() };
    saved.log.set_limit(held);
    let end = live.iter().map(|record| record.range().end).max().unwrap_or_default();
    let floor = end.saturating_sub(saved.log.limit());
    let mut bytes = Vec::new();
    for record in live.into_iter().filter(|record| record.start >= floor) {
        if ring.read(&record.range(), &mut bytes).is_ok() && seal.open(side, &record, &mut bytes) {
            saved.log.write(LogOffset(record.start), &bytes);
            saved.ranges.insert(record.range());
            found.records.push(record);
        } else {
            found.lost += u64::from(record.len);
        }
    }
    if let Seal::Clear = seal {
        found.records = describe(&saved);
    }
    found.saved = (!saved.ranges.is_empty()).then_some(saved);
    found
}

/// Describes a log in clear text in the fewest possible records.
fn describe(saved: &SavedLog) -> Vec<Record> {
    let mut records = Vec::new();
    let mut bytes = Vec::with_capacity(MAX_BLOCK);
    for range in saved.ranges.iter() {
        for start in range.clone().step_by(MAX_BLOCK) {
            let len = (range.end - start).min(MAX_BLOCK as u64) as usize;
            bytes.clear();
            saved.log.copy_to(LogOffset(start), len, &mut bytes);
            records.extend(Record::of(saved.epoch, start, &bytes));
        }
    }
    records
}

/// Cuts records into groups of adjacent ones, each no longer than the largest block.
fn neighbours(records: &[Record]) -> impl Iterator<Item = &[Record]> {
    let mut total = 0;
    records.chunk_by(move |left, right| {
        if total == 0 {
            total = left.len as usize;
        }
        total += right.len as usize;
        let joins = left.range().end == right.start && total <= MAX_BLOCK;
        if !joins {
            total = 0;
        }
        joins
    })
}

fn encode(side: LogSide, capacity: u64, format: Format, records: &[Record]) -> Vec<u8> {
    let mut bytes = index::header(side, capacity, format);
    bytes.reserve(records.len() * format.record_len());
    records.iter().for_each(|record| record.encode(&mut bytes));
    bytes
}

pub(super) const fn ring_name(side: LogSide) -> &'static str {
    match side {
        LogSide::Out => "out.log",
        LogSide::Inbound => "in.log",
    }
}

pub(super) const fn index_name(side: LogSide) -> &'static str {
    match side {
        LogSide::Out => "out.idx",
        LogSide::Inbound => "in.idx",
    }
}

/// Records written together; a killed process loses at most as many.
pub(super) const FLUSH_EVERY: usize = 64;
