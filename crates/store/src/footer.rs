//! Footers: a segment's description at the end of its file.
//!
//! To seal a segment, a footer is put behind its last group and the file cut behind the footer, so it ends with its
//! trailer of 24 bytes:
//!
//! | bytes | what |
//! |---:|---|
//! | 8 | `owfooter` |
//! | 4 | bytes of the footer, up to here |
//! | 4 | zeros |
//! | 8 | XXH3-64 of the footer, seeded with the id of the store plus the segment's number |
//!
//! The footer: number of containers, number of large chunks, end of the last container (4 bytes each), times of the
//! oldest and the newest container (8 each), 16 levels of number of chunks (4) and their bytes (8), the offset of
//! each container (4), of each chunk of at least 4 KiB its tag (8) and offset (4), and the numbers of chunks from 512
//! bytes to 4 KiB and of smaller ones (4 each; a footer of an early build ends before them). The index of large
//! chunks is rebuilt from it; that of smaller ones from [summaries](crate::summary).

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::Fault;
use crate::bytes::{u32_at, u64_at};
use crate::paged::{PAGE, Paged};
use crate::segment::{Coarse, Extent, LEVELS, Level};

impl Extent {
    /// Makes a footer of whole pages.
    pub(crate) fn footer(&self, coarse: &[Coarse], payload: usize, seed: u64) -> Vec<u8> {
        let len = footer_len(self.starts.len(), coarse.len());
        let mut footer = vec![0; (len + TRAILER).next_multiple_of(payload) - len - TRAILER];
        let begin = footer.len();
        self.encode(coarse, &mut footer);
        let check = xxh3_64_with_seed(&footer[begin..], seed);
        footer.extend_from_slice(MAGIC);
        footer.extend_from_slice(&(len as u32).to_le_bytes());
        footer.extend_from_slice(&[0; 4]);
        footer.extend_from_slice(&check.to_le_bytes());
        footer
    }

    /// Appends a footer.
    pub(crate) fn encode(&self, coarse: &[Coarse], footer: &mut Vec<u8>) {
        footer.extend_from_slice(&(self.starts.len() as u32).to_le_bytes());
        footer.extend_from_slice(&(coarse.len() as u32).to_le_bytes());
        footer.extend_from_slice(&self.end.to_le_bytes());
        footer.extend_from_slice(&self.oldest_s.to_le_bytes());
        footer.extend_from_slice(&self.newest_s.to_le_bytes());
        for level in &self.levels {
            footer.extend_from_slice(&level.chunks.to_le_bytes());
            footer.extend_from_slice(&level.bytes.to_le_bytes());
        }
        self.starts.iter().for_each(|start| footer.extend_from_slice(&start.to_le_bytes()));
        for (tag, at) in coarse {
            footer.extend_from_slice(&tag.to_le_bytes());
            footer.extend_from_slice(&at.to_le_bytes());
        }
        let small = self.small.unwrap_or_default();
        small.into_iter().for_each(|chunks| footer.extend_from_slice(&chunks.to_le_bytes()));
    }

    /// Reads the footer of a file, if it has one.
    ///
    /// # Errors
    /// If the disk refuses; a damaged footer counts as none.
    pub(crate) fn read(file: &Paged, file_len: u64, seed: u64) -> Result<Option<(Self, Vec<Coarse>)>, Fault> {
        let sound = |read: Result<Vec<u8>, Fault>| match read {
            Ok(bytes) => Ok(Some(bytes)),
            Err(fault) if fault.is_damage() => Ok(None),
            Err(fault) => Err(fault),
        };
        let room = file.room(file_len);
        let Some(trailer_at) = room.checked_sub(TRAILER as u64) else { return Ok(None) };
        // Most footers come with their trailer. The bytes before them may be damaged, without effect here.
        let from = room.saturating_sub((room / FOOTER_SHARE).clamp(PAGE as u64, MOST_AHEAD));
        let end = file.read(from, (room - from) as usize).unwrap_or_default();
        let take = |at: u64, len: usize| {
            let begin = at.checked_sub(from).map(|begin| begin as usize);
            let known = begin.and_then(|begin| end.get(begin..begin.checked_add(len)?));
            known.map_or_else(|| sound(file.read(at, len)), |bytes| Ok(Some(bytes.to_vec())))
        };
        let Some(trailer) = take(trailer_at, TRAILER)? else { return Ok(None) };
        let len = u32_at(&trailer, 8).filter(|_| trailer.starts_with(MAGIC));
        let Some(at) = len.and_then(|len| trailer_at.checked_sub(u64::from(len))) else { return Ok(None) };
        let Some(footer) = take(at, len.unwrap_or(0) as usize)? else { return Ok(None) };
        let is_sound = u64_at(&trailer, 16) == Some(xxh3_64_with_seed(&footer, seed));
        Ok(Self::decode(&footer, file_len).filter(|_| is_sound))
    }

    /// Takes the output of [`encode`](Self::encode), from a file of this length.
    pub(crate) fn decode(footer: &[u8], file_len: u64) -> Option<(Self, Vec<Coarse>)> {
        let (containers, large) = (u32_at(footer, 0)? as usize, u32_at(footer, 4)? as usize);
        let mut extent = Self { end: u32_at(footer, 8)?, file_len, has_footer: true, ..Self::default() };
        extent.containers = u32_at(footer, 0)?;
        (extent.oldest_s, extent.newest_s) = (u64_at(footer, 12)?, u64_at(footer, 20)?);
        for (i, level) in extent.levels.iter_mut().enumerate() {
            *level =
                Level { chunks: u32_at(footer, FIXED + 12 * i)?, bytes: u64_at(footer, FIXED + 12 * i + 4)? };
        }
        let starts = FIXED + 12 * LEVELS;
        extent.starts = (0..containers).map(|i| u32_at(footer, starts + 4 * i)).collect::<Option<_>>()?;
        let large_at = starts + 4 * containers;
        let coarse = (0..large).map(|i| large_at + 12 * i);
        let coarse = coarse.map(|at| Some((u64_at(footer, at)?, u32_at(footer, at + 8)?)));
        let small_at = large_at + 12 * large;
        extent.small = u32_at(footer, small_at).zip(u32_at(footer, small_at + 4)).map(|(m, f)| [m, f]);
        Some((extent, coarse.collect::<Option<_>>()?))
    }
}

/// Returns the length of a footer without its trailer.
pub(crate) fn footer_len(containers: usize, coarse: usize) -> usize {
    FIXED + 12 * LEVELS + 4 * containers + 12 * coarse + 8
}

/// Bytes behind the footer.
pub(crate) const TRAILER: usize = 24;

/// The share of a file read at its end for the footer with its trailer: enough for blocks with nine large chunks in
/// 64 KiB.
const FOOTER_SHARE: u64 = 512;

/// The most bytes of this read.
const MOST_AHEAD: u64 = 1 << 20;

/// Bytes of a footer before its levels.
const FIXED: usize = 28;

const MAGIC: &[u8] = b"owfooter";
