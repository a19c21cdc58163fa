//! The index of a persisted log: a header and records, as bytes.
//!
//! The format stands in the [module doc](super).

use std::ops::Range;

use xxhash_rust::xxh3::xxh3_64;

use oncewire_codec::wire::MAX_BLOCK;
use oncewire_link::{LogSide, RangeSet};

/// One written range of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) epoch: u64,
    pub(super) start: u64,
    /// From 1 to [`MAX_BLOCK`].
    pub(super) len: u32,
    pub(super) proof: Proof,
}

/// Proof of a record's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proof {
    /// XXH3-64 of bytes in clear text.
    Digest(u64),
    /// Opens sealed bytes together with the key.
    Seal { salt: [u8; 16], tag: [u8; 16] },
}

/// The two forms of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// Of a log in clear text.
    Clear,
    /// A log encrypted with the key of this name.
    Sealed { key: [u8; 16] },
}

impl Format {
    pub(super) const fn version(self) -> u32 {
        match self {
            Self::Clear => CLEAR_VERSION,
            Self::Sealed { .. } => SEALED_VERSION,
        }
    }

    pub(super) const fn header_len(self) -> usize {
        match self {
            Self::Clear => 32,
            Self::Sealed { .. } => 48,
        }
    }

    pub(super) const fn record_len(self) -> usize {
        match self {
            Self::Clear => 32,
            Self::Sealed { .. } => 56,
        }
    }
}

/// Content of an index: the records of the newest epoch, in order of writing.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Index {
    pub(super) records: Vec<Record>,
    /// Number of the record at a premature end of reading.
    pub(super) damaged_at: Option<usize>,
}

/// Why an index is unreadable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum HeaderError {
    #[error("its index does not begin as one does")]
    NotAnIndex,
    #[error("it is of format {0}, and this version reads formats {CLEAR_VERSION} and {SEALED_VERSION}")]
    Version(u32),
    #[error("it is {saved} bytes large, and log_memory is now {wanted}")]
    Capacity { saved: u64, wanted: u64 },
    #[error("it is in clear text, and encrypt_key_file is set now; it is overwritten and begins anew")]
    Clear,
    #[error("it is encrypted, and encrypt_key_file is not set; it begins anew in clear text")]
    Sealed,
    #[error(
        "it is encrypted with another key than that of encrypt_key_file, and begins anew; if the key was not \
             changed on purpose, correct encrypt_key_file"
    )]
    OtherKey,
}

impl Record {
    /// Describes written bytes in clear text; none if their length is not a block's.
    pub(super) fn of(epoch: u64, start: u64, bytes: &[u8]) -> Option<Self> {
        Self::new(epoch, start, bytes.len(), Proof::Digest(xxh3_64(bytes)))
    }

    /// Describes a range; none if it can be no block's.
    pub(super) fn new(epoch: u64, start: u64, len: usize, proof: Proof) -> Option<Self> {
        let record = Self { epoch, start, len: u32::try_from(len).ok()?, proof };
        record.is_possible().then_some(record)
    }

    pub(super) fn range(&self) -> Range<u64> {
        self.start..self.start.saturating_add(u64::from(self.len))
    }

    /// Whether these clear-text bytes match the written ones.
    pub(super) fn matches(&self, bytes: &[u8]) -> bool {
        bytes.len() == self.len as usize && self.proof == Proof::Digest(xxh3_64(bytes))
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let at = out.len();
        out.extend(self.epoch.to_le_bytes());
        out.extend(self.start.to_le_bytes());
        match self.proof {
            Proof::Digest(digest) => out.extend(digest.to_le_bytes()),
            Proof::Seal { salt, tag } => [salt, tag].iter().for_each(|part| out.extend(part)),
        }
        out.extend(self.len.to_le_bytes());
        let check = short_check(out.get(at..).unwrap_or_default());
        out.extend(check.to_le_bytes());
    }

    fn decode(format: Format, bytes: &[u8]) -> Option<Self> {
        let (body, check) = bytes.split_last_chunk()?;
        let (epoch, rest) = body.split_first_chunk()?;
        let (start, rest) = rest.split_first_chunk()?;
        let (proof, rest) = rest.split_at_checked(rest.len().checked_sub(4)?)?;
        let proof = match format {
            Format::Clear => Proof::Digest(u64::from_le_bytes(proof.try_into().ok()?)),
            Format::Sealed { .. } => {
                let (salt, tag) = proof.split_first_chunk()?;
                Proof::Seal { salt: *salt, tag: tag.try_into().ok()? }
            }
        };
        let record = Self {
            epoch: u64::from_le_bytes(*epoch),
            start: u64::from_le_bytes(*start),
            len: u32::from_le_bytes(rest.try_into().ok()?),
            proof,
        };
        (u32::from_le_bytes(*check) == short_check(body) && record.is_possible()).then_some(record)
    }

    fn is_possible(&self) -> bool {
        (1..=MAX_BLOCK).contains(&(self.len as usize))
            && self.start.checked_add(u64::from(self.len)).is_some()
    }
}

/// Encodes the header of an index.
pub(super) fn header(side: LogSide, capacity: u64, format: Format) -> Vec<u8> {
    let mut out = Vec::with_capacity(format.header_len());
    out.extend(MAGIC);
    out.extend(format.version().to_le_bytes());
    out.extend(side_number(side).to_le_bytes());
    out.extend(capacity.to_le_bytes());
    if let Format::Sealed { key } = format {
        out.extend(key);
    }
    out.extend(xxh3_64(&out).to_le_bytes());
    out
}

/// Reads an index.
///
/// # Errors
/// If it belongs to another log; a cut or wrong record is no error, it ends the reading.
pub(super) fn decode(
    side: LogSide,
    capacity: u64,
    format: Format,
    bytes: &[u8],
) -> Result<Index, HeaderError> {
    check_header(side, capacity, format, bytes)?;
    let rest = bytes.get(format.header_len()..).unwrap_or_default();
    let chunks = rest.chunks_exact(format.record_len());
    let (count, cut) = (chunks.len(), !chunks.remainder().is_empty());
    let mut index = Index::default();
    for (number, chunk) in chunks.enumerate() {
        let Some(record) = Record::decode(format, chunk) else {
            index.damaged_at = Some(number);
            return Ok(index);
        };
        // Offsets mean something within one epoch only, and a number may come again after a cold start: the
        // last run of records with one epoch counts.
        if index.records.last().is_some_and(|last| last.epoch != record.epoch) {
            index.records.clear();
        }
        index.records.push(record);
    }
    index.damaged_at = cut.then_some(count);
    Ok(index)
}

/// Whether an index is that of this log, by its header.
///
/// # Errors
/// The mismatch.
pub(super) fn check_header(
    side: LogSide,
    capacity: u64,
    format: Format,
    bytes: &[u8],
) -> Result<(), HeaderError> {
    let ours = header(side, capacity, format);
    if bytes.starts_with(&ours) {
        return Ok(());
    }
    let number = |range: Range<usize>| bytes.get(range).and_then(|bytes| bytes.try_into().ok());
    // The version precedes the check: another version may lay out the rest as it likes.
    if !bytes.starts_with(&MAGIC) {
        return Err(HeaderError::NotAnIndex);
    }
    let version = number(8..12).map(u32::from_le_bytes).ok_or(HeaderError::NotAnIndex)?;
    if version != format.version() {
        return Err(match version {
            CLEAR_VERSION => HeaderError::Clear,
            SEALED_VERSION => HeaderError::Sealed,
            other => HeaderError::Version(other),
        });
    }
    let head = bytes.get(..format.header_len()).ok_or(HeaderError::NotAnIndex)?;
    let (body, check) = head.split_last_chunk().ok_or(HeaderError::NotAnIndex)?;
    if u64::from_le_bytes(*check) != xxh3_64(body) {
        return Err(HeaderError::NotAnIndex);
    }
    let saved = body.get(16..24).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes);
    if matches!(format, Format::Sealed { key } if body.get(24..40) != Some(&key)) {
        return Err(HeaderError::OtherKey);
    }
    if saved == capacity {
        return Err(HeaderError::NotAnIndex);
    }
    Err(HeaderError::Capacity { saved, wanted: capacity })
}

/// Selects the records still possible in a ring of `capacity` bytes, in the order of offsets and without
/// overlaps: later records win, and a partly overwritten record is left out.
pub(super) fn live(records: &[Record], capacity: u64) -> Vec<Record> {
    let highest = records.iter().map(|record| record.range().end).max().unwrap_or_default();
    let floor = highest.saturating_sub(capacity);
    let mut claimed = RangeSet::default();
    let mut live = Vec::new();
    for record in records.iter().rev() {
        // A later record's claim on these offsets holds, even if its bytes are gone.
        if record.start >= floor && !claimed.overlaps(&record.range()) {
            live.push(*record);
        }
        claimed.insert(record.range());
    }
    live.sort_unstable_by_key(|record| record.start);
    live
}

/// The most records in an index before its compaction: four times the need of a full ring with small
/// neighbours joined (two for each largest block).
pub(super) fn record_limit(capacity: u64) -> usize {
    let needed = capacity.div_ceil(MAX_BLOCK as u64).saturating_mul(2);
    usize::try_from(needed.saturating_mul(4)).unwrap_or(usize::MAX).max(MIN_RECORD_LIMIT)
}

fn short_check(bytes: &[u8]) -> u32 {
    (xxh3_64(bytes) & u64::from(u32::MAX)) as u32
}

pub(super) fn side_number(side: LogSide) -> u32 {
    match side {
        LogSide::Out => 0,
        LogSide::Inbound => 1,
    }
}

const CLEAR_VERSION: u32 = 1;

const SEALED_VERSION: u32 = 2;

const MAGIC: [u8; 8] = *b"owlogidx";

const MIN_RECORD_LIMIT: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: u64 = 1 << 20;

    const FORMATS: [Format; 2] = [Format::Clear, Format::Sealed { key: [3; 16] }];

    fn record(format: Format, epoch: u64, start: u64, len: usize) -> Record {
        let proof = match format {
            Format::Clear => Proof::Digest(start ^ 77),
            Format::Sealed { .. } => Proof::Seal { salt: [start as u8; 16], tag: [9; 16] },
        };
        Record::new(epoch, start, len, proof).unwrap()
    }

    fn encoded(format: Format, records: &[Record]) -> Vec<u8> {
        let mut out = header(LogSide::Out, CAPACITY, format);
        records.iter().for_each(|record| record.encode(&mut out));
        out
    }

    #[test]
    fn records_come_back_and_fill_their_size() {
        for format in FORMATS {
            let record = |start, len| record(format, 3, start, len);
            let records = [record(0, 10), record(10, MAX_BLOCK), record(u64::MAX - 9, 9)];
            let bytes = encoded(format, &records);
            assert_eq!(bytes.len(), format.header_len() + 3 * format.record_len());
            let index = decode(LogSide::Out, CAPACITY, format, &bytes).unwrap();
            assert_eq!(index, Index { records: records.to_vec(), damaged_at: None });
        }
    }

    #[test]
    fn index_format_equals_its_golden_bytes() {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let mut out = Vec::new();
        Record::of(1, 2, b"oncewire").unwrap().encode(&mut out);
        assert_eq!(hex(&out), GOLDEN_RECORD);
        assert_eq!(hex(&header(LogSide::Inbound, CAPACITY, Format::Clear)), GOLDEN_HEADER);
        let [_, sealed] = FORMATS;
        out.clear();
        record(sealed, 1, 2, 8).encode(&mut out);
        assert_eq!(hex(&out), GOLDEN_SEALED_RECORD);
        assert_eq!(hex(&header(LogSide::Inbound, CAPACITY, sealed)), GOLDEN_SEALED_HEADER);
    }

    #[test]
    fn any_flipped_bit_of_a_record_ends_the_reading_there() {
        for format in FORMATS {
            let record = |start, len| record(format, 3, start, len);
            let records = [record(0, 10), record(10, 20), record(30, 5)];
            let bytes = encoded(format, &records);
            for bit in 0..format.record_len() * 8 {
                let mut flipped = bytes.clone();
                flipped[format.header_len() + format.record_len() + bit / 8] ^= 1 << (bit % 8);
                let index = decode(LogSide::Out, CAPACITY, format, &flipped).unwrap();
                assert_eq!(index, Index { records: records[..1].to_vec(), damaged_at: Some(1) }, "bit {bit}");
            }
        }
    }

    #[test]
    fn file_cut_anywhere_keeps_the_records_before_the_cut() {
        for format in FORMATS {
            let records = [record(format, 3, 0, 10), record(format, 3, 10, 20)];
            let bytes = encoded(format, &records);
            for len in 0..bytes.len() {
                let index = decode(LogSide::Out, CAPACITY, format, &bytes[..len]);
                match len.checked_sub(format.header_len()) {
                    None => assert_eq!(index, Err(HeaderError::NotAnIndex)),
                    Some(rest) => {
                        let (whole, over) = (rest / format.record_len(), rest % format.record_len());
                        let damaged_at = (over > 0).then_some(whole);
                        assert_eq!(index.unwrap(), Index { records: records[..whole].to_vec(), damaged_at });
                    }
                }
            }
        }
    }

    #[test]
    fn foreign_header_is_refused_by_name() {
        for format in FORMATS {
            let bytes = encoded(format, &[]);
            let refused = |side, capacity, bytes: &[u8]| decode(side, capacity, format, bytes).unwrap_err();
            let capacity = HeaderError::Capacity { saved: CAPACITY, wanted: 5 };
            assert_eq!(refused(LogSide::Out, 5, &bytes), capacity);
            assert_eq!(refused(LogSide::Inbound, CAPACITY, &bytes), HeaderError::NotAnIndex);
            let mut later = bytes.clone();
            later[8] = 3;
            assert_eq!(refused(LogSide::Out, CAPACITY, &later), HeaderError::Version(3));
            for at in 12..format.header_len() {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1;
                assert_eq!(refused(LogSide::Out, CAPACITY, &flipped), HeaderError::NotAnIndex, "byte {at}");
            }
        }
    }

    #[test]
    fn log_of_another_form_or_key_is_refused() {
        let [clear, sealed] = FORMATS;
        let refused = |as_format, bytes: &[u8]| decode(LogSide::Out, CAPACITY, as_format, bytes).unwrap_err();
        assert_eq!(refused(sealed, &encoded(clear, &[])), HeaderError::Clear);
        assert_eq!(refused(clear, &encoded(sealed, &[])), HeaderError::Sealed);
        let other = Format::Sealed { key: [4; 16] };
        assert_eq!(refused(other, &encoded(sealed, &[])), HeaderError::OtherKey);
    }

    #[test]
    fn only_the_last_run_of_one_epoch_counts() {
        for format in FORMATS {
            let record = |epoch, start| record(format, epoch, start, 4);
            let bytes = encoded(format, &[record(1, 0), record(2, 0), record(1, 9), record(1, 13)]);
            let index = decode(LogSide::Out, CAPACITY, format, &bytes).unwrap();
            assert_eq!(index.records, [record(1, 9), record(1, 13)]);
        }
    }

    #[test]
    fn zeros_are_no_record() {
        for format in FORMATS {
            let mut bytes = encoded(format, &[record(format, 1, 0, 4)]);
            bytes.resize(bytes.len() + 4 * format.record_len(), 0);
            let index = decode(LogSide::Out, CAPACITY, format, &bytes).unwrap();
            assert_eq!(index.damaged_at, Some(1));
        }
    }

    #[test]
    fn later_records_win_and_lost_ones_are_left_out() {
        let record = |start, len| record(Format::Clear, 1, start, len);
        let (old, cut) = (record(0, 50), record(60, 50));
        let (covered, whole, last) = (record(120, 20), record(110, 40), record(150, 10));
        assert_eq!(live(&[old, cut, covered, whole, last], 80), [whole, last]);
        assert_eq!(live(&[old, cut, covered, whole, last], 100), [cut, whole, last]);
        assert_eq!(live(&[whole, covered], 1000), [covered]);
        assert_eq!(live(&[], 80), []);
    }

    const GOLDEN_RECORD: &str = "01000000000000000200000000000000353a52060d26613908000000f830c349";

    const GOLDEN_HEADER: &str = "6f776c6f67696478010000000100000000001000000000007b5589ce888a77cc";

    const GOLDEN_SEALED_RECORD: &str = concat!(
        "0100000000000000020000000000000002020202020202020202020202020202",
        "0909090909090909090909090909090908000000fe0eb2b2"
    );

    const GOLDEN_SEALED_HEADER: &str = concat!(
        "6f776c6f6769647802000000010000000000100000000000",
        "03030303030303030303030303030303d81cbd06e4d20e0c"
    );
}
