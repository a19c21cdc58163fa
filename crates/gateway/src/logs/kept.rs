//! One log on disk: found again at the start, written piece by piece, its index compacted when it has grown.

use std::io;
use std::ops::Range;

use oncewire_codec::wire::MAX_BLOCK;
use oncewire_link::{Log, LogOffset, LogSide, LogWrite, RangeSet, SavedLog};

use super::disk::{Disk, DiskFile};
use super::index::{self, HEADER_LEN, HeaderError, RECORD_LEN, Record};

/// A log whose writes go to disk.
pub(super) struct KeptLog<D: Disk> {
    disk: D,
    side: LogSide,
    ring: Ring<D::File>,
    index: D::File,
    /// What the index says of the newest epoch, in its order.
    records: Vec<Record>,
    /// Records in the index, those of older epochs included.
    in_index: usize,
    /// Written to the ring and not yet in the index.
    pending: Vec<Record>,
    unsynced: bool,
}

/// What was found when a log was opened.
pub(super) struct Opened<D: Disk> {
    /// The log, unless it cannot be written.
    pub(super) log: Option<KeptLog<D>>,
    /// What is left of it; every byte was read and verified.
    pub(super) saved: Option<SavedLog>,
    /// Why something, or all of it, is not there.
    pub(super) trouble: Option<Trouble>,
}

/// What can be wrong with a log on disk; it costs what was remembered, never more.
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

impl<D: Disk> Opened<D> {
    fn unusable(trouble: Trouble) -> Self {
        Self { log: None, saved: None, trouble: Some(trouble) }
    }
}

impl<D: Disk> KeptLog<D> {
    /// Finds what is left of a log, and makes it ready to be written; never fails, at worst nothing is left.
    pub(super) fn open(disk: D, side: LogSide, capacity: u64) -> Opened<D> {
        let ring = match disk.open(ring_name(side)) {
            Ok(file) => Ring { file, capacity },
            Err(error) => return Opened::unusable(Trouble::Unreadable(error)),
        };
        let (records, mut trouble) = match read_index(&disk, side, &ring) {
            Ok(index) => (index.records, index.damaged_at.map(Trouble::IndexDamaged)),
            Err(trouble) => (Vec::new(), trouble),
        };
        let (saved, lost) = recover(&ring, &records);
        if lost > 0 {
            trouble.get_or_insert(Trouble::BytesDamaged(lost));
        }
        match Self::start(disk, side, ring, saved.as_ref()) {
            Ok(log) => Opened { log: Some(log), saved, trouble },
            Err(error) => Opened { log: None, saved, trouble: Some(Trouble::Unwritable(error)) },
        }
    }

    /// Begins with an index of what was found and nothing else.
    fn start(disk: D, side: LogSide, mut ring: Ring<D::File>, saved: Option<&SavedLog>) -> io::Result<Self> {
        if saved.is_none() && ring.file.len()? > 0 {
            ring.file.set_len(0)?;
        }
        let records = saved.map(describe).unwrap_or_default();
        let index = disk.replace(index_name(side), &encode(side, ring.capacity, &records))?;
        let in_index = records.len();
        Ok(Self { disk, side, ring, index, records, in_index, pending: Vec::new(), unsynced: true })
    }

    /// Writes a piece of the log; its record follows with the next [`KeptLog::flush`], at the latest after
    /// [`FLUSH_EVERY`] of them.
    ///
    /// # Errors
    /// What the disk says; the log is not to be written again then.
    pub(super) fn write(&mut self, write: &LogWrite) -> io::Result<()> {
        let Some(record) = Record::of(write.epoch, write.start, &write.plain) else { return Ok(()) };
        if u64::from(record.len) > self.ring.capacity {
            return Ok(());
        }
        self.unsynced = true;
        self.ring.write(write.start, &write.plain)?;
        self.pending.push(record);
        if self.pending.len() >= FLUSH_EVERY { self.flush() } else { Ok(()) }
    }

    /// Says in the index what has been written.
    ///
    /// # Errors
    /// As [`KeptLog::write`].
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let mut bytes = Vec::with_capacity(self.pending.len() * RECORD_LEN);
        self.pending.iter().for_each(|record| record.encode(&mut bytes));
        let end = HEADER_LEN + self.in_index * RECORD_LEN;
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

    /// Waits until the disk has everything.
    ///
    /// # Errors
    /// As [`KeptLog::write`].
    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.flush()?;
        if std::mem::take(&mut self.unsynced) {
            // The bytes first: a record without its bytes is only found out by reading them.
            self.ring.file.sync()?;
            self.index.sync()?;
        }
        Ok(())
    }

    /// Writes the index anew with what is still in the ring, small neighbours joined.
    fn compact(&mut self) -> io::Result<()> {
        let live = index::live(&self.records, self.ring.capacity);
        let mut records = Vec::new();
        for group in neighbours(&live) {
            self.join(group, &mut records);
        }
        // Gaps prevent joining. What a peer can cause must not grow without bound, so the oldest give way.
        let surplus = records.len().saturating_sub(index::record_limit(self.ring.capacity) / 2);
        records.drain(..surplus);
        self.index =
            self.disk.replace(index_name(self.side), &encode(self.side, self.ring.capacity, &records))?;
        self.in_index = records.len();
        self.records = records;
        Ok(())
    }

    /// Appends one record for a group of neighbours; those that do not verify any more are left out.
    fn join(&self, group: &[Record], out: &mut Vec<Record>) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { return };
        if group.len() == 1 {
            out.push(*first);
            return;
        }
        let mut bytes = Vec::new();
        let readable = self.ring.read(&(first.start..last.range().end), &mut bytes).is_ok();
        let holds = |record: &Record| {
            let at = (record.start - first.start) as usize;
            bytes.get(at..at + record.len as usize).is_some_and(|bytes| record.matches(bytes))
        };
        match Record::of(first.epoch, first.start, &bytes) {
            Some(joined) if readable && group.iter().all(holds) => out.push(joined),
            _ => out.extend(group.iter().filter(|record| holds(record))),
        }
    }
}

/// The bytes of a log: those of offset `o` lie at `o` modulo the capacity.
struct Ring<F> {
    file: F,
    capacity: u64,
}

impl<F: DiskFile> Ring<F> {
    fn write(&mut self, start: u64, bytes: &[u8]) -> io::Result<()> {
        let at = start % self.capacity;
        let (first, second) = bytes.split_at(self.before_the_end(at, bytes.len()));
        self.file.write_at(first, at)?;
        if second.is_empty() { Ok(()) } else { self.file.write_at(second, 0) }
    }

    /// Replaces what is in the buffer by the bytes of a range.
    fn read(&self, range: &Range<u64>, buffer: &mut Vec<u8>) -> io::Result<()> {
        let (at, len) = (range.start % self.capacity, (range.end - range.start) as usize);
        buffer.clear();
        buffer.resize(len, 0);
        let (first, second) = buffer.split_at_mut(self.before_the_end(at, len));
        self.file.read_at(first, at)?;
        if second.is_empty() { Ok(()) } else { self.file.read_at(second, 0) }
    }

    fn before_the_end(&self, at: u64, len: usize) -> usize {
        usize::try_from(self.capacity - at).unwrap_or(usize::MAX).min(len)
    }
}

/// Reads the index; an error without trouble is a log that never was.
fn read_index<D: Disk>(
    disk: &D,
    side: LogSide,
    ring: &Ring<D::File>,
) -> Result<index::Index, Option<Trouble>> {
    let unreadable = |error| Some(Trouble::Unreadable(error));
    let file = disk.open(index_name(side)).map_err(unreadable)?;
    let len = file.len().map_err(unreadable)?;
    if len == 0 {
        let bare = ring.file.len().map_err(unreadable)? == 0;
        return Err((!bare).then_some(Trouble::NoIndex));
    }
    // The header first: what is too long depends on the capacity.
    let mut bytes = vec![0; len.min(HEADER_LEN as u64) as usize];
    file.read_at(&mut bytes, 0).map_err(unreadable)?;
    index::decode(side, ring.capacity, &bytes).map_err(|error| Some(error.into()))?;
    let longest = index::record_limit(ring.capacity).saturating_add(FLUSH_EVERY).saturating_mul(RECORD_LEN);
    let rest = usize::try_from(len - bytes.len() as u64).unwrap_or(usize::MAX);
    if rest > longest {
        return Err(Some(Trouble::IndexTooLong));
    }
    bytes.resize(HEADER_LEN + rest, 0);
    file.read_at(&mut bytes, 0).map_err(unreadable)?;
    index::decode(side, ring.capacity, &bytes).map_err(|error| Some(error.into()))
}

/// Reads what the records speak of and keeps what verifies; also returns how many bytes did not.
fn recover<F: DiskFile>(ring: &Ring<F>, records: &[Record]) -> (Option<SavedLog>, u64) {
    let live = index::live(records, ring.capacity);
    let (Some(first), Ok(capacity)) = (live.first(), usize::try_from(ring.capacity)) else {
        return (None, 0);
    };
    let mut saved = SavedLog { epoch: first.epoch, log: Log::new(capacity), ranges: RangeSet::default() };
    let (mut bytes, mut lost) = (Vec::new(), 0);
    for record in &live {
        if ring.read(&record.range(), &mut bytes).is_ok() && record.matches(&bytes) {
            saved.log.write(LogOffset(record.start), &bytes);
            saved.ranges.insert(record.range());
        } else {
            lost += u64::from(record.len);
        }
    }
    let saved = (!saved.ranges.is_empty()).then_some(saved);
    (saved, lost)
}

/// Describes a log in as few records as there can be.
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

/// Cuts records into groups that touch each other and together are no longer than the largest block.
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

fn encode(side: LogSide, capacity: u64, records: &[Record]) -> Vec<u8> {
    let mut bytes = index::header(side, capacity);
    bytes.reserve(records.len() * RECORD_LEN);
    records.iter().for_each(|record| record.encode(&mut bytes));
    bytes
}

pub(super) fn ring_name(side: LogSide) -> &'static str {
    match side {
        LogSide::Out => "out.log",
        LogSide::Inbound => "in.log",
    }
}

pub(super) fn index_name(side: LogSide) -> &'static str {
    match side {
        LogSide::Out => "out.idx",
        LogSide::Inbound => "in.idx",
    }
}

/// Records that are written together; a process that is killed loses at most as many.
pub(super) const FLUSH_EVERY: usize = 64;
