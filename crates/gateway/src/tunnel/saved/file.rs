//! One log on disk: a ring of bytes, and an index of what lies in it.
//!
//! `NAME.ring` holds the byte of log offset *o* at *o* mod capacity. `NAME.index` is a header and then one record of
//! 32 bytes for each piece, in the order of writing; a piece is written before its record. Numbers are little-endian:
//!
//! | header | bytes | record | bytes |
//! |---|---|---|---|
//! | `oncewire log 1` and two zeros | 16 | epoch | 8 |
//! | capacity | 8 | start | 8 |
//! | XXH3 of the above | 8 | XXH3 of the piece, the fields above and the length hashed before it | 8 |
//! | | | length, and its complement | 4 + 4 |
//!
//! Reading takes the last epoch's records whose pieces still have their digest, so a crash at any point, or a file
//! that was tampered with or cut, costs pieces and never gives wrong ones.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use oncewire_codec::cache::{Log, LogOffset, RangeSet};
use oncewire_link::{LogWrite, SavedLog};
use xxhash_rust::xxh3::Xxh3Default;

use super::{StateError, remove_if_there};

/// A log being written.
#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    capacity: u64,
    ring: File,
    index: File,
    records: VecDeque<Record>,
    /// Records in the index file, dead ones included.
    stored: usize,
    /// The end of the highest piece of the epoch.
    highest: u64,
    /// The disk failed; said once, and nothing is written any more.
    failed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Record {
    epoch: u64,
    start: u64,
    digest: u64,
    len: u32,
}

impl LogFile {
    /// Opens or makes the two files, and returns what they hold.
    ///
    /// # Errors
    /// If a file cannot be opened, read or made.
    pub(super) fn open(path: &Path, capacity: u64) -> Result<(Self, Option<SavedLog>), StateError> {
        let error = |source| StateError::Io { path: path.to_owned(), source };
        let capacity = capacity.max(1);
        let ring = open_private(&path.with_extension_added("ring")).map_err(error)?;
        let index_path = path.with_extension_added("index");
        let mut index = open_private(&index_path).map_err(error)?;
        let mut bytes = Vec::new();
        index.read_to_end(&mut bytes).map_err(error)?;
        let records = parse_index(&bytes, capacity);
        let mut file = Self {
            path: path.to_owned(),
            capacity,
            ring,
            index,
            records: VecDeque::new(),
            stored: 0,
            highest: 0,
            failed: false,
        };
        let saved = file.recover(records.unwrap_or_default());
        file.rewrite_index().map_err(error)?;
        Ok((file, saved))
    }

    /// Writes a piece; a disk that fails ends the saving of this log, not the link.
    pub(super) fn write(&mut self, write: &LogWrite) {
        if self.failed || write.plain.is_empty() || write.plain.len() as u64 > self.capacity {
            return;
        }
        if let Err(error) = self.try_write(write) {
            self.failed = true;
            tracing::error!(path = %self.path.display(), %error, "the log cannot be saved; a restart will be cold");
        }
    }

    fn try_write(&mut self, write: &LogWrite) -> io::Result<()> {
        if self.records.back().is_some_and(|last| last.epoch != write.epoch) {
            self.records.clear();
            self.highest = 0;
            self.rewrite_index()?;
        }
        let at = write.start % self.capacity;
        let first = write.plain.len().min(usize::try_from(self.capacity - at).unwrap_or(usize::MAX));
        let (first, second) = write.plain.split_at(first);
        self.ring.write_all_at(first, at)?;
        self.ring.write_all_at(second, 0)?;
        let record = Record {
            epoch: write.epoch,
            start: write.start,
            digest: digest(write.epoch, write.start, &write.plain),
            len: u32::try_from(write.plain.len()).unwrap_or_default(),
        };
        self.index.write_all_at(&record.to_bytes(), record_place(self.stored))?;
        self.stored += 1;
        self.keep(record);
        if self.stored > SPARE_RECORDS.max(2 * self.records.len()) {
            self.rewrite_index()?;
        }
        Ok(())
    }

    fn keep(&mut self, record: Record) {
        self.highest = self.highest.max(record.end());
        self.records.push_back(record);
        let floor = self.highest.saturating_sub(self.capacity);
        // Pieces arrive nearly in order, so the dead ones are at the front.
        while self.records.front().is_some_and(|oldest| oldest.start < floor)
            || self.records.len() > MAX_RECORDS
        {
            self.records.pop_front();
        }
    }

    /// Reads the pieces that are whole; what is not is forgotten.
    fn recover(&mut self, records: Vec<Record>) -> Option<SavedLog> {
        let epoch = records.last()?.epoch;
        let of_epoch = || records.iter().filter(|record| record.epoch == epoch);
        let floor = of_epoch().map(Record::end).max()?.saturating_sub(self.capacity);
        let mut log = Log::new(usize::try_from(self.capacity).ok()?);
        let mut ranges = RangeSet::default();
        let mut plain = Vec::new();
        for record in of_epoch().filter(|record| record.start >= floor) {
            if self.read(record, &mut plain).is_ok() && digest(epoch, record.start, &plain) == record.digest {
                log.write(LogOffset(record.start), &plain);
                ranges.insert(record.start..record.end());
                self.keep(*record);
            }
        }
        (!ranges.is_empty()).then_some(SavedLog { epoch, log, ranges })
    }

    fn read(&self, record: &Record, plain: &mut Vec<u8>) -> io::Result<()> {
        plain.clear();
        plain.resize(record.len as usize, 0);
        let at = record.start % self.capacity;
        let first = plain.len().min(usize::try_from(self.capacity - at).unwrap_or(usize::MAX));
        let (first, second) = plain.split_at_mut(first);
        self.ring.read_exact_at(first, at)?;
        self.ring.read_exact_at(second, 0)
    }

    /// Writes an index of the live records only, and puts it in the old one's place.
    fn rewrite_index(&mut self) -> io::Result<()> {
        let path = self.path.with_extension_added("index");
        let fresh = self.path.with_extension_added("index.new");
        remove_if_there(&fresh)?;
        let mut index = open_private(&fresh)?;
        let mut bytes = header(self.capacity).to_vec();
        bytes.extend(self.records.iter().flat_map(Record::to_bytes));
        index.write_all(&bytes)?;
        fs::rename(&fresh, &path)?;
        self.index = index;
        self.stored = self.records.len();
        Ok(())
    }
}

impl Record {
    fn end(&self) -> u64 {
        self.start.saturating_add(u64::from(self.len))
    }

    fn to_bytes(&self) -> [u8; RECORD] {
        let mut bytes = [0; RECORD];
        let fields = [self.epoch, self.start, self.digest, u64::from(self.len) | u64::from(!self.len) << 32];
        for (field, place) in fields.iter().zip(bytes.chunks_exact_mut(8)) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8], capacity: u64) -> Option<Self> {
        let mut fields =
            bytes.chunks_exact(8).filter_map(|field| field.try_into().ok().map(u64::from_le_bytes));
        let (epoch, start, digest, lens) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        let (len, complement) = (lens as u32, (lens >> 32) as u32);
        let fits = len == !complement && len > 0 && u64::from(len) <= capacity && start <= u64::MAX / 2;
        fits.then_some(Self { epoch, start, digest, len })
    }
}

/// Reads an index up to the first record that is not whole; none if it is of another form or capacity.
fn parse_index(bytes: &[u8], capacity: u64) -> Option<Vec<Record>> {
    let records = bytes.strip_prefix(header(capacity).as_slice())?;
    Some(records.chunks_exact(RECORD).map_while(|record| Record::from_bytes(record, capacity)).collect())
}

fn header(capacity: u64) -> [u8; RECORD] {
    let mut bytes = [0; RECORD];
    let (magic, rest) = bytes.split_at_mut(16);
    magic.copy_from_slice(MAGIC);
    let (size, check) = rest.split_at_mut(8);
    size.copy_from_slice(&capacity.to_le_bytes());
    check.copy_from_slice(&digest(0, capacity, MAGIC).to_le_bytes());
    bytes
}

fn digest(epoch: u64, start: u64, plain: &[u8]) -> u64 {
    let mut hash = Xxh3Default::new();
    hash.update(&epoch.to_le_bytes());
    hash.update(&start.to_le_bytes());
    hash.update(&(plain.len() as u64).to_le_bytes());
    hash.update(plain);
    hash.digest()
}

fn record_place(at: usize) -> u64 {
    (RECORD + at * RECORD) as u64
}

fn open_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Appends an extension; [`Path::with_extension`] would take part of a peer's name for one.
trait WithExtension {
    fn with_extension_added(&self, extension: &str) -> PathBuf;
}

impl WithExtension for Path {
    fn with_extension_added(&self, extension: &str) -> PathBuf {
        let mut name = self.as_os_str().to_owned();
        name.push(".");
        name.push(extension);
        name.into()
    }
}

const MAGIC: &[u8; 16] = b"oncewire log 1\0\0";

/// Bytes of a record, and of the header.
const RECORD: usize = 32;

/// The index is rewritten when more than half of it, and more than this many records, are dead.
const SPARE_RECORDS: usize = 16 << 10;

/// Pieces that are remembered per log; tiny ones may fill this before the ring is full.
const MAX_RECORDS: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    const CAPACITY: u64 = 10_000;

    fn piece(epoch: u64, start: u64, len: usize) -> LogWrite {
        let plain: Vec<u8> = (0..len as u64).map(|i| (epoch * 31 + (start + i) * 7 % 251) as u8).collect();
        LogWrite { epoch, start, plain: Bytes::from(plain) }
    }

    fn reopen(path: &Path) -> Option<SavedLog> {
        LogFile::open(path, CAPACITY).unwrap().1
    }

    /// Every byte that is claimed is the one that was written.
    fn check(saved: &SavedLog) {
        for range in saved.ranges.iter() {
            let len = (range.end - range.start) as usize;
            let mut plain = Vec::new();
            saved.log.copy_to(LogOffset(range.start), len, &mut plain);
            assert_eq!(plain, piece(saved.epoch, range.start, len).plain, "{range:?}");
        }
    }

    #[test]
    fn a_ring_that_wrapped_many_times_holds_its_last_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hub.out");
        let (mut file, saved) = LogFile::open(&path, CAPACITY).unwrap();
        assert!(saved.is_none());
        for at in 0..500 {
            file.write(&piece(1, at * 300, 300));
        }
        drop(file);
        let saved = reopen(&path).unwrap();
        check(&saved);
        assert_eq!(saved.ranges.iter().collect::<Vec<_>>(), [140_100..150_000]);
    }

    #[test]
    fn pieces_may_come_in_any_order_and_leave_holes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hub.in");
        let (mut file, _) = LogFile::open(&path, CAPACITY).unwrap();
        for start in [2000, 0, 1000, 5000] {
            file.write(&piece(3, start, 1000));
        }
        drop(file);
        let saved = reopen(&path).unwrap();
        check(&saved);
        assert_eq!(saved.ranges.iter().collect::<Vec<_>>(), [0..3000, 5000..6000]);
    }

    #[test]
    fn a_new_epoch_forgets_the_old_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hub.out");
        let (mut file, _) = LogFile::open(&path, CAPACITY).unwrap();
        file.write(&piece(1, 0, 5000));
        file.write(&piece(2, 100, 50));
        drop(file);
        let saved = reopen(&path).unwrap();
        check(&saved);
        assert_eq!((saved.epoch, saved.ranges.iter().collect::<Vec<_>>()), (2, vec![100..150]));
    }

    #[test]
    fn damage_costs_pieces_and_never_gives_wrong_bytes() {
        for victim in ["hub.out.ring", "hub.out.index"] {
            for at in (0..1600).step_by(13) {
                let dir = tempfile::tempdir().unwrap();
                let path = dir.path().join("hub.out");
                let (mut file, _) = LogFile::open(&path, CAPACITY).unwrap();
                (0..40).for_each(|n| file.write(&piece(1, n * 40, 40)));
                drop(file);
                let victim = dir.path().join(victim);
                let mut bytes = fs::read(&victim).unwrap();
                let Some(byte) = bytes.get_mut(at) else { continue };
                *byte ^= 0x55;
                fs::write(&victim, &bytes).unwrap();
                if let Some(saved) = reopen(&path) {
                    check(&saved);
                    let left: u64 = saved.ranges.iter().map(|range| range.end - range.start).sum();
                    assert!(left < 1600, "a changed byte {at} went unnoticed");
                }
            }
        }
    }

    #[test]
    fn files_that_were_cut_anywhere_are_read_as_far_as_they_go() {
        for len in (0..1400).step_by(41) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("hub.out");
            let (mut file, _) = LogFile::open(&path, CAPACITY).unwrap();
            (0..40).for_each(|n| file.write(&piece(1, n * 40, 40)));
            drop(file);
            OpenOptions::new()
                .write(true)
                .open(dir.path().join("hub.out.index"))
                .unwrap()
                .set_len(len)
                .unwrap();
            reopen(&path).iter().for_each(check);
        }
    }

    #[test]
    fn another_capacity_starts_cold() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hub.out");
        let (mut file, _) = LogFile::open(&path, CAPACITY).unwrap();
        file.write(&piece(1, 0, 5000));
        drop(file);
        assert!(LogFile::open(&path, 2 * CAPACITY).unwrap().1.is_none());
    }
}
