//! Saving hints piece by piece: whoever holds the tables is held up for one piece at a time, however many there are.
//!
//! Between pieces hints may change. Each is true or stale by itself, so pieces of different moments make one whole;
//! only if all were forgotten meanwhile, the saving begins again.

use std::hash::Hasher as _;

use twox_hash::XxHash3_64;

use super::probes::SAVED_WORDS;
use super::{Hints, LEAST_MEMORY, MAGIC, NONE, WAYS};
use crate::wire::MAX_PROBES;

/// Where the next piece begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SavePosition(Option<Position>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Position {
    /// What the first piece found; in another generation the pieces are of nothing any more.
    generation: u64,
    table: usize,
    bucket: usize,
}

/// A piece of what is saved: at most 300,000 bytes.
#[derive(Clone, Debug)]
pub struct SavedPiece {
    bytes: Vec<u8>,
    /// Whether it is the first, and all before it void.
    is_first: bool,
    next: Option<Position>,
}

/// Saves hints: calls `next` for one piece after the other, and puts them together between the calls.
///
/// Returns what [`Hints::restore`] takes: 8 bytes a hint, 8 for each eight places, 24 a probe, and a checksum; none if
/// `next` gives none.
pub fn save_by(mut next: impl FnMut(SavePosition) -> Option<SavedPiece>) -> Option<Vec<u8>> {
    let mut saved = Vec::new();
    let mut at = SavePosition::default();
    loop {
        let piece = next(at)?;
        if piece.is_first {
            saved.clear();
        }
        saved.extend_from_slice(&piece.bytes);
        at = SavePosition(piece.next);
        if at.0.is_none() {
            break;
        }
    }
    let mut checksum = XxHash3_64::new();
    checksum.write(saved.get(MAGIC.len()..).unwrap_or_default());
    saved.extend_from_slice(&checksum.finish().to_le_bytes());
    Some(saved)
}

impl Hints {
    /// Returns the most bytes that hints of so much memory are saved as.
    pub const fn most_saved(memory: u64) -> u64 {
        let memory = if memory < LEAST_MEMORY { LEAST_MEMORY } else { memory };
        // A word for each bucket beside its entries; what is rounded up, and all else, takes less than the rest.
        let rest = (MAX_PROBES as u64 + 64) * 8 * SAVED_WORDS as u64;
        memory.saturating_add(memory / WAYS as u64).saturating_add(rest)
    }

    /// Returns the piece beginning at a position, or the first one if everything was forgotten since that was given
    /// out; looks at no more than 32,768 places.
    pub fn save_piece(&self, at: SavePosition) -> SavedPiece {
        match at.0.filter(|at| at.generation == self.generation) {
            Some(at) => self.piece_from(at),
            None => {
                let mut bytes = MAGIC.to_vec();
                for word in [u64::from(self.store.is_some()), self.store.unwrap_or(0), self.oldest_secs] {
                    bytes.extend_from_slice(&word.to_le_bytes());
                }
                let next = Position { generation: self.generation, table: 0, bucket: 0 };
                SavedPiece { bytes, is_first: true, next: Some(next) }
            }
        }
    }

    fn piece_from(&self, at: Position) -> SavedPiece {
        let mut bytes = Vec::new();
        let mut put = |word: u64| bytes.extend_from_slice(&word.to_le_bytes());
        let Some(table) = self.tables.get(at.table) else {
            self.probes.save(put);
            return SavedPiece { bytes, is_first: false, next: None };
        };
        if at.bucket == 0 {
            put(table.entries.len() as u64);
        }
        let buckets = table.entries.chunks_exact(WAYS);
        let behind = (at.bucket + PIECE_BUCKETS).min(buckets.len());
        for bucket in buckets.skip(at.bucket).take(PIECE_BUCKETS) {
            let occupied = bucket.iter().zip(0..).map(|(&entry, way)| u64::from(entry != NONE) << way);
            put(occupied.sum());
            bucket.iter().filter(|&&entry| entry != NONE).for_each(|&entry| put(entry));
        }
        let next = match behind < table.entries.len() / WAYS {
            true => Position { bucket: behind, ..at },
            false => Position { table: at.table + 1, bucket: 0, ..at },
        };
        SavedPiece { bytes, is_first: false, next: Some(next) }
    }
}

/// Buckets in a piece: 256 KiB of tables, taking some fifty microseconds.
const PIECE_BUCKETS: usize = 4096;

#[cfg(test)]
mod tests {
    use super::super::{PackedTag, tests::tag};
    use super::*;

    fn filled(memory: u64, count: u64) -> Hints {
        let mut hints = Hints::new(memory);
        hints.bind(7);
        (0..count).for_each(|number| hints.insert(PackedTag::new(tag(number), 60 << (number % 11)), 50));
        hints
    }

    #[test]
    fn saved_pieces_are_small_and_make_the_whole() {
        let hints = filled(8 << 20, 400_000);
        let (mut pieces, mut longest) = (0, 0);
        let saved = save_by(|at| {
            let piece = hints.save_piece(at);
            (pieces, longest) = (pieces + 1, longest.max(piece.bytes.len()));
            Some(piece)
        });
        assert!(pieces >= 33 && longest <= 300_000, "{pieces} pieces, the longest of {longest} bytes");
        let again = Hints::restore(8 << 20, &saved.unwrap()).unwrap();
        assert_eq!(again.len(), hints.len());
        assert_eq!(again.save(), hints.save());
    }

    #[test]
    fn changes_between_pieces_leave_a_restorable_whole() {
        let mut hints = filled(1 << 20, 20_000);
        let mut number = 20_000;
        let saved = save_by(|at| {
            (number..number + 1000).for_each(|new| hints.insert(PackedTag::new(tag(new), 64), 60));
            (number - 900..number).for_each(|old| hints.forget(tag(old), 60 << (old % 11)));
            number += 1000;
            Some(hints.save_piece(at))
        });
        let again = Hints::restore(1 << 20, &saved.unwrap()).unwrap();
        assert!(again.len() > 10_000, "{}", again.len());
    }

    #[test]
    fn full_hints_are_saved_in_no_more_than_the_most() {
        for memory in [0, LEAST_MEMORY, 100_000, 1 << 20] {
            let mut hints = Hints::new(memory);
            for table in &mut hints.tables {
                table.entries.iter_mut().for_each(|entry| *entry = 1);
            }
            let (saved, most) = (hints.save().len() as u64, Hints::most_saved(memory));
            let probes = MAX_PROBES as u64 * 8 * SAVED_WORDS as u64;
            assert!(saved + probes <= most && most < saved + 2 * probes + 4096, "{memory}: {saved}, {most}");
        }
    }

    #[test]
    fn forgotten_hints_are_not_saved() {
        for forget in [Hints::clear as fn(&mut Hints), |hints| hints.bind(8)] {
            let mut hints = filled(1 << 20, 20_000);
            let mut pieces = 0;
            let saved = save_by(|at| {
                pieces += 1;
                if pieces == 3 {
                    forget(&mut hints);
                }
                Some(hints.save_piece(at))
            });
            assert_eq!(saved.unwrap(), hints.save());
            assert!(hints.is_empty());
        }
    }
}
