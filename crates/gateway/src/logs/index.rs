//! The index of a kept log: a header and records, as bytes. The format stands in the [module doc](super).

use std::ops::Range;

use xxhash_rust::xxh3::xxh3_64;

use oncewire_codec::wire::MAX_BLOCK;
use oncewire_link::{LogSide, RangeSet};

/// One range of a log that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) epoch: u64,
    pub(super) start: u64,
    /// From 1 to [`MAX_BLOCK`].
    pub(super) len: u32,
    pub(super) digest: u64,
}

/// What stands in an index: the records of the newest epoch, in the order in which they were written.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Index {
    pub(super) records: Vec<Record>,
    /// The number of the record at which reading ended before the end of the file.
    pub(super) damaged_at: Option<usize>,
}

/// Why an index cannot be read at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum HeaderError {
    #[error("its index does not begin as one does")]
    NotAnIndex,
    #[error("it is of format {0}, and this version reads format {VERSION}")]
    Version(u32),
    #[error("it is {saved} bytes large, and log_memory is now {wanted}")]
    Capacity { saved: u64, wanted: u64 },
}

impl Record {
    /// Describes bytes that were written; none if they are no block's.
    pub(super) fn of(epoch: u64, start: u64, bytes: &[u8]) -> Option<Self> {
        let record = Self { epoch, start, len: u32::try_from(bytes.len()).ok()?, digest: xxh3_64(bytes) };
        record.is_possible().then_some(record)
    }

    pub(super) fn range(&self) -> Range<u64> {
        self.start..self.start.saturating_add(u64::from(self.len))
    }

    /// Says whether these are the bytes that were written.
    pub(super) fn matches(&self, bytes: &[u8]) -> bool {
        bytes.len() == self.len as usize && xxh3_64(bytes) == self.digest
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let at = out.len();
        out.extend(self.epoch.to_le_bytes());
        out.extend(self.start.to_le_bytes());
        out.extend(self.digest.to_le_bytes());
        out.extend(self.len.to_le_bytes());
        let check = short_check(out.get(at..).unwrap_or_default());
        out.extend(check.to_le_bytes());
    }

    fn decode(bytes: &[u8; RECORD_LEN]) -> Option<Self> {
        let (body, check) = bytes.split_last_chunk()?;
        let (epoch, rest) = body.split_first_chunk()?;
        let (start, rest) = rest.split_first_chunk()?;
        let (digest, rest) = rest.split_first_chunk()?;
        let record = Self {
            epoch: u64::from_le_bytes(*epoch),
            start: u64::from_le_bytes(*start),
            digest: u64::from_le_bytes(*digest),
            len: u32::from_le_bytes(rest.try_into().ok()?),
        };
        (u32::from_le_bytes(*check) == short_check(body) && record.is_possible()).then_some(record)
    }

    fn is_possible(&self) -> bool {
        (1..=MAX_BLOCK).contains(&(self.len as usize))
            && self.start.checked_add(u64::from(self.len)).is_some()
    }
}

/// Encodes the header of an index.
pub(super) fn header(side: LogSide, capacity: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_LEN);
    out.extend(MAGIC);
    out.extend(VERSION.to_le_bytes());
    out.extend(side_number(side).to_le_bytes());
    out.extend(capacity.to_le_bytes());
    out.extend(xxh3_64(&out).to_le_bytes());
    out
}

/// Reads an index.
///
/// # Errors
/// If it is not that of this log; a record that is cut or wrong is no error, it ends the reading.
pub(super) fn decode(side: LogSide, capacity: u64, bytes: &[u8]) -> Result<Index, HeaderError> {
    let (head, rest) = bytes.split_first_chunk::<HEADER_LEN>().ok_or(HeaderError::NotAnIndex)?;
    check_header(side, capacity, head)?;
    let (chunks, cut) = rest.as_chunks::<RECORD_LEN>();
    let mut index = Index::default();
    for (number, chunk) in chunks.iter().enumerate() {
        let Some(record) = Record::decode(chunk) else {
            index.damaged_at = Some(number);
            return Ok(index);
        };
        // Offsets mean something within one epoch only, and a number may come again after a cold start: what
        // counts is the last run of records that share one.
        if index.records.last().is_some_and(|last| last.epoch != record.epoch) {
            index.records.clear();
        }
        index.records.push(record);
    }
    index.damaged_at = (!cut.is_empty()).then_some(chunks.len());
    Ok(index)
}

fn check_header(side: LogSide, capacity: u64, head: &[u8; HEADER_LEN]) -> Result<(), HeaderError> {
    let ours = header(side, capacity);
    if head.as_slice() == ours {
        return Ok(());
    }
    let number = |range: Range<usize>| head.get(range).and_then(|bytes| bytes.try_into().ok());
    // The version comes before the check: another version may lay out what follows as it likes.
    if !head.starts_with(&MAGIC) {
        return Err(HeaderError::NotAnIndex);
    }
    let version = number(8..12).map_or(0, u32::from_le_bytes);
    if version != VERSION {
        return Err(HeaderError::Version(version));
    }
    let (body, check) = head.split_at(HEADER_LEN - 8);
    let saved = body.last_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    if check != xxh3_64(body).to_le_bytes() || saved == capacity {
        return Err(HeaderError::NotAnIndex);
    }
    Err(HeaderError::Capacity { saved, wanted: capacity })
}

/// Picks what can still be in a ring of `capacity` bytes, in the order of offsets and without overlaps: later
/// records win, and a record of which others took a part is left out.
pub(super) fn live(records: &[Record], capacity: u64) -> Vec<Record> {
    let highest = records.iter().map(|record| record.range().end).max().unwrap_or_default();
    let floor = highest.saturating_sub(capacity);
    let mut claimed = RangeSet::default();
    let mut live = Vec::new();
    for record in records.iter().rev() {
        // Whatever a later record says of these offsets holds, even if its bytes are gone.
        if record.start >= floor && !claimed.overlaps(&record.range()) {
            live.push(*record);
        }
        claimed.insert(record.range());
    }
    live.sort_unstable_by_key(|record| record.start);
    live
}

/// Says how many records an index may hold before it is compacted: four times what a full ring needs once small
/// neighbours are joined, which is two for each largest block.
pub(super) fn record_limit(capacity: u64) -> usize {
    let needed = capacity.div_ceil(MAX_BLOCK as u64).saturating_mul(2);
    usize::try_from(needed.saturating_mul(4)).unwrap_or(usize::MAX).max(MIN_RECORD_LIMIT)
}

fn short_check(bytes: &[u8]) -> u32 {
    (xxh3_64(bytes) & u64::from(u32::MAX)) as u32
}

fn side_number(side: LogSide) -> u32 {
    match side {
        LogSide::Out => 0,
        LogSide::Inbound => 1,
    }
}

pub(super) const HEADER_LEN: usize = 32;

pub(super) const RECORD_LEN: usize = 32;

pub(super) const VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"owlogidx";

const MIN_RECORD_LIMIT: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: u64 = 1 << 20;

    fn record(epoch: u64, start: u64, len: usize) -> Record {
        Record::of(epoch, start, &vec![7; len]).unwrap()
    }

    fn encoded(records: &[Record]) -> Vec<u8> {
        let mut out = header(LogSide::Out, CAPACITY);
        records.iter().for_each(|record| record.encode(&mut out));
        out
    }

    #[test]
    fn records_come_back_and_fill_their_size() {
        let records = [record(3, 0, 10), record(3, 10, MAX_BLOCK), record(3, u64::MAX - 9, 9)];
        let bytes = encoded(&records);
        assert_eq!(bytes.len(), HEADER_LEN + 3 * RECORD_LEN);
        let index = decode(LogSide::Out, CAPACITY, &bytes).unwrap();
        assert_eq!(index, Index { records: records.to_vec(), damaged_at: None });
    }

    #[test]
    fn the_format_does_not_change_by_accident() {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let mut out = Vec::new();
        Record::of(1, 2, b"oncewire").unwrap().encode(&mut out);
        assert_eq!(hex(&out), GOLDEN_RECORD);
        assert_eq!(hex(&header(LogSide::Inbound, CAPACITY)), GOLDEN_HEADER);
    }

    #[test]
    fn any_flipped_bit_of_a_record_ends_the_reading_there() {
        let records = [record(3, 0, 10), record(3, 10, 20), record(3, 30, 5)];
        let bytes = encoded(&records);
        for bit in 0..RECORD_LEN * 8 {
            let mut flipped = bytes.clone();
            flipped[HEADER_LEN + RECORD_LEN + bit / 8] ^= 1 << (bit % 8);
            let index = decode(LogSide::Out, CAPACITY, &flipped).unwrap();
            assert_eq!(index, Index { records: records[..1].to_vec(), damaged_at: Some(1) }, "bit {bit}");
        }
    }

    #[test]
    fn a_file_cut_anywhere_keeps_the_records_before_the_cut() {
        let records = [record(3, 0, 10), record(3, 10, 20)];
        let bytes = encoded(&records);
        for len in 0..bytes.len() {
            let index = decode(LogSide::Out, CAPACITY, &bytes[..len]);
            match len.checked_sub(HEADER_LEN) {
                None => assert_eq!(index, Err(HeaderError::NotAnIndex)),
                Some(rest) => {
                    let whole = rest / RECORD_LEN;
                    let damaged_at = (rest % RECORD_LEN > 0).then_some(whole);
                    assert_eq!(index.unwrap(), Index { records: records[..whole].to_vec(), damaged_at });
                }
            }
        }
    }

    #[test]
    fn a_header_of_something_else_is_refused_by_name() {
        let bytes = encoded(&[]);
        let capacity = HeaderError::Capacity { saved: CAPACITY, wanted: 5 };
        assert_eq!(decode(LogSide::Out, 5, &bytes), Err(capacity));
        assert_eq!(decode(LogSide::Inbound, CAPACITY, &bytes), Err(HeaderError::NotAnIndex));
        let mut later = bytes.clone();
        later[8] = 2;
        assert_eq!(decode(LogSide::Out, CAPACITY, &later), Err(HeaderError::Version(2)));
        let mut flipped = bytes;
        flipped[20] ^= 1;
        assert_eq!(decode(LogSide::Out, CAPACITY, &flipped), Err(HeaderError::NotAnIndex));
    }

    #[test]
    fn only_the_last_run_of_one_epoch_counts() {
        let bytes = encoded(&[record(1, 0, 4), record(2, 0, 4), record(1, 9, 4), record(1, 13, 4)]);
        let index = decode(LogSide::Out, CAPACITY, &bytes).unwrap();
        assert_eq!(index.records, [record(1, 9, 4), record(1, 13, 4)]);
    }

    #[test]
    fn zeros_are_no_record() {
        let mut bytes = encoded(&[record(1, 0, 4)]);
        bytes.resize(bytes.len() + 4 * RECORD_LEN, 0);
        assert_eq!(decode(LogSide::Out, CAPACITY, &bytes).unwrap().damaged_at, Some(1));
    }

    #[test]
    fn later_records_win_and_what_the_ring_lost_is_left_out() {
        let (old, cut) = (record(1, 0, 50), record(1, 60, 50));
        let (covered, whole, last) = (record(1, 120, 20), record(1, 110, 40), record(1, 150, 10));
        assert_eq!(live(&[old, cut, covered, whole, last], 80), [whole, last]);
        assert_eq!(live(&[old, cut, covered, whole, last], 100), [cut, whole, last]);
        assert_eq!(live(&[whole, covered], 1000), [covered]);
        assert_eq!(live(&[], 80), []);
    }

    const GOLDEN_RECORD: &str = "01000000000000000200000000000000353a52060d26613908000000f830c349";

    const GOLDEN_HEADER: &str = "6f776c6f67696478010000000100000000001000000000007b5589ce888a77cc";
}
