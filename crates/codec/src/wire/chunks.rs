//! Named chunks: how blocks refer to them, and how those that are not there are asked for.

use std::num::NonZeroU32;

use super::group::take_name;
use super::reader::{Reader, WireError};
use super::varint::put_varint;
use super::{MAX_BLOCK, MAX_NAMES};
use crate::entropy::Kind;
use crate::wanax::{ChunkName, SHORT_NAME_LEN, Tag48, tag_of_hash};

/// A part of a block referred to by the name of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameEntry {
    /// Where in the block the chunk stands.
    pub at: u32,
    /// How many bytes it has, 1 or more.
    pub len: u32,
    /// The level of the tree it is of.
    pub level: u8,
    /// Its name; a short one needs a strong digest of the block.
    pub name: ChunkName,
    /// Set if the chunk is in an earlier block, unacknowledged when this one was encoded: the difference of sequence
    /// numbers.
    pub behind: Option<NonZeroU32>,
}

impl NameEntry {
    /// Returns the sequence number of the block bringing the chunk, if it may still be under way, for an entry of block
    /// `seq`.
    pub fn brought_by(&self, seq: u64) -> Option<u64> {
        seq.checked_sub(self.behind?.get().into())
    }

    /// Returns the position in the block behind the chunk.
    pub const fn end(&self) -> usize {
        self.at as usize + self.len as usize
    }

    /// Returns the part of the block the chunk is.
    pub const fn range(&self) -> std::ops::Range<usize> {
        self.at as usize..self.end()
    }
}

/// A request for chunks a block refers to, answered with [`Chunks`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkRequest {
    /// The block's sequence number.
    pub seq: u64,
    /// Why.
    pub reason: ChunkReason,
    /// Which of the block's entries, rising.
    pub indexes: Vec<u32>,
}

/// Why chunks are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkReason {
    /// The store does not have them.
    Absent,
    /// The store has them, but the network is sooner.
    Shed,
}

/// Chunks asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunks<'a> {
    /// The block's sequence number.
    pub seq: u64,
    /// Which of the block's entries, rising.
    pub indexes: Vec<u32>,
    /// How the bytes are compressed, alone.
    pub entropy: Option<Kind>,
    /// The chunks, one behind the other.
    pub bytes: &'a [u8],
}

/// What a receiving half says of its chunk store; the highest serial number counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreHeld {
    /// Counts up from 1 with everything this process says of the store.
    pub serial: u64,
    /// Whether chunks are being taken.
    pub taking: bool,
    /// How long ago the oldest chunk held was put, in seconds; 0 while nothing is held.
    pub age_secs: u64,
}

/// The bit beside the level saying the block follows which brings the chunk.
const UNDER_WAY: u8 = 128;
/// The bit beside the level saying the name is short.
const SHORT: u8 = 64;
/// Beside [`SHORT`], the bit saying the next chunk stands right behind this one, and its gap is left out.
const JOINED: u8 = 32;
/// Beside [`SHORT`], the bit saying that six bytes tell the tag.
const TAG_48: u8 = 16;
/// The bits of the level of a short name; a tree has no more than 12.
const SHORT_LEVEL: u8 = 15;

/// Appends a block's entries, which are in order, as its header holds them.
pub fn encode_entries(entries: &[NameEntry], out: &mut Vec<u8>) {
    put_varint(out, entries.len() as u64);
    let (mut from, mut joined) = (0, false);
    let nexts = entries.iter().skip(1).map(Some).chain([None]);
    for (entry, next) in entries.iter().zip(nexts) {
        if !joined {
            put_varint(out, u64::from(entry.at - from));
        }
        joined = entry.name.is_short() && next.is_some_and(|next| next.at as usize == entry.end());
        put_varint(out, u64::from(entry.len));
        let under_way = if entry.behind.is_some() { UNDER_WAY } else { 0 };
        match entry.name {
            ChunkName::Full(name) => {
                out.push(entry.level & !(UNDER_WAY | SHORT) | under_way);
                out.extend_from_slice(&name.0);
            }
            ChunkName::Short(tag) => {
                let joined = if joined { JOINED } else { 0 };
                let flags = entry.level & SHORT_LEVEL | under_way | SHORT | joined;
                match Tag48::of(tag) {
                    Some(tag) => {
                        out.push(flags | TAG_48);
                        out.extend_from_slice(&tag.0);
                    }
                    None => {
                        out.push(flags);
                        out.extend_from_slice(&tag.to_le_bytes());
                    }
                }
            }
        }
        if let Some(behind) = entry.behind {
            put_varint(out, behind.get().into());
        }
        from = entry.at + entry.len;
    }
}

/// Reads a block's entries: at least one, in order, not empty, within the block.
pub(super) fn decode_entries(reader: &mut Reader<'_>, plain_len: usize) -> Result<Vec<NameEntry>, WireError> {
    let count = reader.varint_up_to(MAX_NAMES as u64, "count of names")?;
    if count == 0 {
        return Err(WireError::Invalid("count of names"));
    }
    let mut entries = Vec::with_capacity(reader.room_for(count as usize, 2 + SHORT_NAME_LEN));
    let (mut from, mut joined) = (0, false);
    for _ in 0..count {
        let gap = if joined { 0 } else { reader.varint_up_to(MAX_BLOCK as u64, "place of a name")? };
        let at = from + gap;
        let len = reader.varint_up_to(MAX_BLOCK as u64, "length of a chunk")?;
        if len == 0 || at + len > plain_len as u64 {
            return Err(WireError::Invalid("length of a chunk"));
        }
        let flags = reader.byte("level of a chunk")?;
        let (name, level) = match flags & SHORT {
            0 => (ChunkName::Full(take_name(reader)?.folded(len as u32)), flags & !UNDER_WAY),
            _ => {
                let tag = match flags & TAG_48 {
                    0 => tag_of_hash(reader.u64("short name")?, len as usize),
                    _ => Tag48(reader.array("short name")?).tag(),
                };
                (ChunkName::Short(tag), flags & SHORT_LEVEL)
            }
        };
        joined = flags & SHORT != 0 && flags & JOINED != 0;
        let behind = match flags & UNDER_WAY {
            0 => None,
            _ => Some(
                NonZeroU32::new(reader.varint_u32("distance of a block")?)
                    .ok_or(WireError::Invalid("distance of a block"))?,
            ),
        };
        let (at, len) = (at as u32, len as u32);
        entries.push(NameEntry { at, len, level, name, behind });
        from = u64::from(at + len);
    }
    Ok(entries)
}

impl ChunkRequest {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.seq);
        out.push(match self.reason {
            ChunkReason::Absent => 0,
            ChunkReason::Shed => 1,
        });
        encode_indexes(&self.indexes, out);
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let seq = reader.varint("sequence number")?;
        let reason = match reader.byte("reason of a chunk request")? {
            0 => ChunkReason::Absent,
            1 => ChunkReason::Shed,
            _ => return Err(WireError::Invalid("reason of a chunk request")),
        };
        Ok(Self { seq, reason, indexes: decode_indexes(reader)? })
    }
}

impl<'a> Chunks<'a> {
    /// Appends everything but the bytes.
    pub(super) fn encode_header(&self, out: &mut Vec<u8>) {
        put_varint(out, self.seq);
        encode_indexes(&self.indexes, out);
        out.push(match self.entropy {
            None => 0,
            Some(Kind::Lz4) => 1,
            Some(Kind::Zstd) => 2,
        });
    }

    pub(super) fn decode(mut reader: Reader<'a>) -> Result<Self, WireError> {
        let seq = reader.varint("sequence number")?;
        let indexes = decode_indexes(&mut reader)?;
        let entropy = match reader.byte("entropy stage")? {
            0 => None,
            1 => Some(Kind::Lz4),
            2 => Some(Kind::Zstd),
            _ => return Err(WireError::Invalid("entropy stage")),
        };
        Ok(Self { seq, indexes, entropy, bytes: reader.rest() })
    }
}

impl StoreHeld {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.serial);
        out.push(u8::from(self.taking));
        put_varint(out, self.age_secs);
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let serial = reader.varint("serial number")?;
        let taking = match reader.byte("state of a store")? {
            0 => false,
            1 => true,
            _ => return Err(WireError::Invalid("state of a store")),
        };
        Ok(Self { serial, taking, age_secs: reader.varint("age of a store")? })
    }
}

/// Indexes of entries: how many, the first, and the distance of each other from its neighbour, less 1.
fn encode_indexes(indexes: &[u32], out: &mut Vec<u8>) {
    put_varint(out, indexes.len() as u64);
    let mut next = 0;
    for &index in indexes {
        put_varint(out, u64::from(index - next));
        next = index + 1;
    }
}

fn decode_indexes(reader: &mut Reader<'_>) -> Result<Vec<u32>, WireError> {
    let count = reader.varint_up_to(MAX_NAMES as u64, "count of chunks")?;
    if count == 0 {
        return Err(WireError::Invalid("count of chunks"));
    }
    let mut indexes = Vec::with_capacity(reader.room_for(count as usize, 1));
    let mut next = 0;
    for _ in 0..count {
        let index = next + reader.varint_up_to(MAX_NAMES as u64, "index of a chunk")?;
        if index >= MAX_NAMES as u64 {
            return Err(WireError::Invalid("index of a chunk"));
        }
        indexes.push(index as u32);
        next = index + 1;
    }
    Ok(indexes)
}
