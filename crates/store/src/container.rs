//! Containers: a few blocks and the directory of their chunks, the unit of checks.
//!
//! Numbers are little-endian. A container begins with a header of 32 bytes:
//!
//! | at | bytes | what |
//! |---:|---:|---|
//! | 0 | 4 | `OWCT` |
//! | 4 | 4 | bytes of the blocks, from 1 to 65,536 |
//! | 8 | 4 | bytes of the directory |
//! | 12 | 4 | number of its chunks, at most 8192 |
//! | 16 | 8 | when the first block came, in seconds of the owner's clock |
//! | 24 | 8 | check |
//!
//! The blocks follow, one behind the other, then the directory. The check is the XXH3-64 of both, seeded with the
//! XXH3-64 of the first 24 bytes and of the container's place: id of the store, number of the segment, offset. So a
//! container is valid in no other place. The directory lists chunks in runs of neighbours of one level:
//!
//! | bytes | what |
//! |---:|---|
//! | 1 | level |
//! | 2 | number of chunks in the run, at least 1 |
//! | 2 | offset of the first in the blocks; each begins at the end of the one before |
//! | 8 each | tag |
//! | 2 each | bytes − 1 |

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::Part;
use crate::bytes::{u16_at, u32_at, u64_at};

/// The place of a container; a part of its check.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) store: u64,
    pub(crate) segment: u64,
    pub(crate) at: u64,
}

/// The header's description of the bytes behind it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lengths {
    pub(crate) blocks: usize,
    pub(crate) directory: usize,
}

/// A container with a valid check.
#[derive(Debug)]
pub(crate) struct Container {
    bytes: Vec<u8>,
    blocks: usize,
    pub(crate) parts: Vec<Part>,
    pub(crate) time_s: u64,
}

impl Lengths {
    /// Reads a header; None if there is none.
    pub(crate) fn decode(header: &[u8]) -> Option<Self> {
        let blocks = u32_at(header, 4)? as usize;
        let directory = u32_at(header, 8)? as usize;
        let is_one = u32_at(header, 0)? == MAGIC
            && (1..=MAX_BLOCKS).contains(&blocks)
            && directory <= MAX_DIRECTORY
            && u32_at(header, 12)? as usize <= MAX_PARTS;
        is_one.then_some(Self { blocks, directory })
    }

    /// Returns the length of the whole container.
    pub(crate) fn total(self) -> usize {
        HEADER + self.blocks + self.directory
    }
}

impl Container {
    /// Takes the bytes of a whole container; None if anything of it is not as it was written there.
    pub(crate) fn decode(bytes: Vec<u8>, place: Place) -> Option<Self> {
        let lengths = Lengths::decode(&bytes)?;
        if lengths.total() != bytes.len() || u64_at(&bytes, 24)? != check(&bytes, place)? {
            return None;
        }
        let directory = bytes.get(HEADER + lengths.blocks..)?;
        let parts = decode_directory(directory, lengths.blocks, u32_at(&bytes, 12)? as usize)?;
        let time_s = u64_at(&bytes, 16)?;
        Some(Self { bytes, blocks: lengths.blocks, parts, time_s })
    }

    /// Returns the bytes of all its blocks.
    pub(crate) fn blocks(&self) -> &[u8] {
        self.bytes.get(HEADER..HEADER + self.blocks).unwrap_or_default()
    }

    /// Returns the chunk with this tag and length, if it is there.
    pub(crate) fn find(&self, tag: u64, len: u32) -> Option<&[u8]> {
        let part = self.parts.iter().find(|part| part.tag == tag && part.len == len)?;
        self.blocks().get(part.range())
    }
}

/// Makes a container of the blocks in `bytes`, behind room for its header; the directory follows the blocks.
pub(crate) fn close(bytes: &mut Vec<u8>, begin: usize, parts: &mut [Part], time_s: u64, place: Place) {
    let blocks = bytes.len() - begin - HEADER;
    let directory_begin = bytes.len();
    encode_directory(parts, bytes);
    let directory = bytes.len() - directory_begin;
    let mut header = [0; HEADER];
    header[..4].copy_from_slice(&MAGIC.to_le_bytes());
    header[4..8].copy_from_slice(&(blocks as u32).to_le_bytes());
    header[8..12].copy_from_slice(&(directory as u32).to_le_bytes());
    header[12..16].copy_from_slice(&(parts.len() as u32).to_le_bytes());
    header[16..24].copy_from_slice(&time_s.to_le_bytes());
    bytes[begin..begin + HEADER].copy_from_slice(&header);
    if let Some(check) = check(&bytes[begin..], place) {
        bytes[begin + 24..begin + HEADER].copy_from_slice(&check.to_le_bytes());
    }
}

fn check(container: &[u8], place: Place) -> Option<u64> {
    let mut named = [0; 48];
    named[..24].copy_from_slice(container.get(..24)?);
    named[24..32].copy_from_slice(&place.store.to_le_bytes());
    named[32..40].copy_from_slice(&place.segment.to_le_bytes());
    named[40..].copy_from_slice(&place.at.to_le_bytes());
    Some(xxh3_64_with_seed(container.get(HEADER..)?, xxh3_64(&named)))
}

fn encode_directory(parts: &mut [Part], into: &mut Vec<u8>) {
    parts.sort_unstable_by_key(|part| (part.level, part.start));
    let continues = |a: &Part, b: &Part| a.level == b.level && a.start + a.len == b.start;
    for run in parts.chunk_by(continues) {
        let Some(first) = run.first() else { continue };
        into.push(first.level);
        into.extend_from_slice(&(run.len() as u16).to_le_bytes());
        into.extend_from_slice(&(first.start as u16).to_le_bytes());
        run.iter().for_each(|part| into.extend_from_slice(&part.tag.to_le_bytes()));
        run.iter().for_each(|part| into.extend_from_slice(&((part.len - 1) as u16).to_le_bytes()));
    }
}

fn decode_directory(mut directory: &[u8], blocks: usize, count: usize) -> Option<Vec<Part>> {
    let mut parts = Vec::with_capacity(count);
    while let Some(&level) = directory.first() {
        let (run, mut start) = (u16_at(directory, 1)? as usize, u32::from(u16_at(directory, 3)?));
        for i in 0..run {
            let tag = u64_at(directory, RUN + 8 * i)?;
            let len = u32::from(u16_at(directory, RUN + 8 * run + 2 * i)?) + 1;
            parts.push(Part { tag, level, start, len });
            start += len;
        }
        if run == 0 || start as usize > blocks {
            return None;
        }
        directory = directory.get(RUN + 10 * run..)?;
    }
    (parts.len() == count).then_some(parts)
}

/// Bytes before the blocks.
pub(crate) const HEADER: usize = 32;

/// The most bytes of blocks.
pub(crate) const MAX_BLOCKS: usize = 65_536;

/// The most chunks of a block: a tree of 64 KiB with leaves of 16 bytes and two children each has 8191.
pub const MAX_PARTS: usize = 8192;

/// The most bytes of a directory: every chunk a run of its own.
pub(crate) const MAX_DIRECTORY: usize = MAX_PARTS * (RUN + 10);

/// The longest container.
pub(crate) const MAX_CONTAINER: usize = HEADER + MAX_BLOCKS + MAX_DIRECTORY;

/// Bytes before the tags of a run.
const RUN: usize = 5;

const MAGIC: u32 = u32::from_le_bytes(*b"OWCT");

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PLACE: Place = Place { store: 1, segment: 2, at: 3 };

    fn any_parts() -> impl Strategy<Value = Vec<Part>> {
        let part = (any::<u64>(), 0u8..5, 0u32..900, 1u32..100).prop_map(|(tag, level, start, len)| Part {
            tag,
            level,
            start,
            len,
        });
        proptest::collection::vec(part, 0..50)
    }

    fn encoded(blocks: &[u8], parts: &mut [Part]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER];
        bytes.extend_from_slice(blocks);
        close(&mut bytes, 0, parts, 77, PLACE);
        bytes
    }

    proptest! {
        #[test]
        fn container_holds_its_content(
            blocks in proptest::collection::vec(any::<u8>(), 1000..1200),
            mut parts in any_parts(),
        ) {
            let bytes = encoded(&blocks, &mut parts);
            let container = Container::decode(bytes, PLACE).unwrap();
            prop_assert_eq!(container.blocks(), &blocks);
            prop_assert_eq!(container.time_s, 77);
            prop_assert_eq!(&container.parts, &parts);
            for part in &parts {
                prop_assert_eq!(container.find(part.tag, part.len).unwrap(), &blocks[part.range()]);
            }
        }

        #[test]
        fn a_changed_bit_is_noticed(mut parts in any_parts(), at: prop::sample::Index, bit in 0..8) {
            let mut bytes = encoded(&[7; 1000], &mut parts);
            let at = at.index(bytes.len());
            bytes[at] ^= 1u8 << bit;
            prop_assert!(Container::decode(bytes, PLACE).is_none());
        }

        #[test]
        fn any_bytes_are_a_directory_or_none(
            directory in proptest::collection::vec(any::<u8>(), 0..200), count in 0usize..20,
        ) {
            for part in decode_directory(&directory, 5000, count).into_iter().flatten() {
                prop_assert!(part.range().end <= 5000);
            }
        }
    }

    #[test]
    fn a_container_holds_in_its_own_place_alone() {
        let bytes = encoded(&[7; 1000], &mut []);
        for place in [Place { store: 9, ..PLACE }, Place { segment: 9, ..PLACE }, Place { at: 9, ..PLACE }] {
            assert!(Container::decode(bytes.clone(), place).is_none(), "{place:?}");
        }
    }
}
