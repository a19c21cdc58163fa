//! Chunk-Match: whole chunks found by their hashes, without the bytes [EndRE §5.2.1].
//!
//! A block is cut at its markers; each chunk's hash is looked up in a table of earlier ones, and what is found
//! becomes a copy. Nobody compares bytes here: two chunks may share a hash, and only the digest that the block
//! carries tells. Why it is so, and what was rejected, is in `docs/design/chunk-match.md`.
//!
//! Work is bounded by the block's length whatever it holds: a chunk has at least a quarter of the mean length, a
//! lookup touches one line of the cache.

mod pieces;
mod table;
#[cfg(test)]
mod tests;

use std::ops::Range;

use oncewire_fingerprint::{MarkerKind, Markers, Selector};
use twox_hash::XxHash3_128;

use self::pieces::Pieces;
use self::table::{Place, Table};
use super::matcher::{Copy, MatchParams, Search};
use crate::cache::{Log, LogOffset};
use crate::wire::Range64;

/// The sender's half of Chunk-Match: the table from chunk hashes to positions of one log.
pub struct ChunkMatch {
    markers: Selector,
    params: MatchParams,
    seed: u64,
    table: Table,
    selected: Vec<u32>,
    /// All chunks of the last block, in order.
    chunks: Vec<Chunk>,
    #[cfg(test)]
    hash_bits: Option<u32>,
}

/// A piece of a block, and where its hash belongs.
#[derive(Clone, Copy)]
struct Chunk {
    at: u32,
    len: u32,
    place: Place,
}

impl ChunkMatch {
    /// Creates an empty table for a log of `capacity` bytes, with hashes keyed by `seed`.
    ///
    /// It takes 64 bytes for each 4.5 expected chunks: 22 % of the log at p = 64. Of a log above 2 GiB, the most
    /// recent 2 GiB are found.
    pub fn new(capacity: u64, params: MatchParams, seed: u64) -> Self {
        Self {
            markers: Selector::with_table(MarkerKind::default(), params.period, params.window, params.sample),
            params,
            seed,
            table: Table::new(capacity, params.period),
            selected: Vec::new(),
            chunks: Vec::new(),
            #[cfg(test)]
            hash_bits: None,
        }
    }

    /// Changes where chunks are cut, from the next block on. The table keeps the size that `params` gave it.
    ///
    /// What was remembered is found as far as old and new chunks coincide. The choice must follow from the content
    /// alone; see [`crate::Plan::effective_markers`].
    pub fn set_markers(&mut self, kind: MarkerKind, period: usize) {
        if (self.markers.kind(), self.markers.period()) != (kind, period.max(1)) {
            self.markers = Selector::with_table(kind, period, self.params.window, self.params.sample);
        }
    }

    /// Replaces `copies` by the chunks of the block that lie in `[floor, at)` of the log, as far as their hashes
    /// tell: in order, not overlapping, neighbours joined.
    ///
    /// The block itself is not searched and not entered; [`Self::remember`] does that once it is known that the
    /// block goes into the log.
    pub fn find(&mut self, search: &Search<'_>, copies: &mut Vec<Copy>) {
        copies.clear();
        self.chunks.clear();
        let block = search.block.get(..u32::MAX as usize).unwrap_or(search.block);
        let mut pieces = Pieces::new(self.markers.period(), self.params.window);
        let (mut position, mut looked_up) = (0, 0);
        while position < block.len() {
            let cut = self.chunks.len();
            position = self.cut(block, position, &mut pieces);
            // The sets of these chunks are on their way; meanwhile those of the batch before have come.
            self.look_up(looked_up..cut, search, copies);
            looked_up = cut;
        }
        self.look_up(looked_up..self.chunks.len(), search, copies);
    }

    /// Enters the chunks of the block that the last [`Self::find`] searched, now that it goes into the log at `at`.
    ///
    /// Chunks that the table has move to their new position, which lives longest; of equal ones within the block,
    /// the first.
    pub fn remember(&mut self, at: LogOffset) {
        let mut end = at;
        for chunk in &self.chunks {
            self.table.insert(chunk.place, at, at.plus(u64::from(chunk.at)));
            end = at.plus(u64::from(chunk.at) + u64::from(chunk.len));
        }
        self.table.advance(end);
    }

    /// Drops the chunks that touch any of `ranges`, once the two ends disagree about them, and what left the log
    /// whose head is at `head`.
    ///
    /// It goes through the whole table: some ten milliseconds for that of a log of 1 GiB.
    pub fn forget(&mut self, ranges: &[Range64], head: LogOffset) {
        // Entries do not say how long their chunks are.
        let longest = Pieces::new(self.markers.period(), self.params.window).longest() as u64;
        let widened = |range: &Range64| range.start.saturating_sub(longest)..range.end;
        self.table.remove(&ranges.iter().map(widened).collect::<Vec<_>>(), head);
    }

    /// Enters the chunks of a range that `log` holds already, as after a restart.
    ///
    /// Of a range longer than the log, the end is taken. `each` is given every piece that is entered, by its place.
    pub fn index(&mut self, log: &Log, range: Range<LogOffset>, mut each: impl FnMut(LogOffset, &[u8])) {
        let mut start = range.start.max(range.end.minus(log.capacity()));
        let (mut piece, mut copies) = (Vec::new(), Vec::new());
        while start < range.end {
            let len = range.end.since(start).min(INDEX_PIECE);
            piece.clear();
            log.copy_to(start, len as usize, &mut piece);
            // Nothing lies above this floor: the search cuts and hashes, and finds nothing.
            self.find(&Search { block: &piece, at: start, floor: start, hint: None }, &mut copies);
            self.remember(start);
            each(start, &piece);
            start = start.plus(len);
        }
    }

    /// Returns the bytes of memory that the table and the working lists take.
    pub fn memory(&self) -> usize {
        self.table.memory()
            + self.selected.capacity() * size_of::<u32>()
            + self.chunks.capacity() * size_of::<Chunk>()
    }

    /// Shortens hashes to so many bits, so that different chunks are taken for one.
    #[cfg(test)]
    pub(super) fn plant_collisions(&mut self, bits: u32) {
        self.hash_bits = Some(bits);
    }

    /// Cuts and hashes the next batch of the block from `position` on; returns where the batch after it begins.
    fn cut(&mut self, block: &[u8], position: usize, pieces: &mut Pieces) -> usize {
        let period = self.markers.period();
        let batch = period * (BATCH / period).max(1);
        let end = position.saturating_add(batch - position % batch);
        self.selected.clear();
        let next = self.markers.select(block, position..end, &mut self.selected);
        let first = self.chunks.len();
        let Self { selected, chunks, .. } = self;
        let mut take = |at: u32, len: u32| chunks.push(Chunk { at, len, place: Place::default() });
        selected.iter().for_each(|&marker| pieces.cut(marker, &mut take));
        if next >= block.len() {
            pieces.finish(block.len() as u32, &mut take);
        }
        for index in first..self.chunks.len() {
            let Some(Chunk { at, len, .. }) = self.chunks.get(index).copied() else { break };
            let bytes = block.get(at as usize..).and_then(|rest| rest.get(..len as usize));
            let place = self.table.place(self.hash(bytes.unwrap_or_default()));
            self.table.prefetch(place);
            if let Some(chunk) = self.chunks.get_mut(index) {
                chunk.place = place;
            }
        }
        // A choice that does not move on must not hold up the block.
        next.max(position + 1)
    }

    #[inline]
    fn hash(&self, bytes: &[u8]) -> u128 {
        let hash = XxHash3_128::oneshot_with_seed(self.seed, bytes);
        #[cfg(test)]
        if let Some(bits) = self.hash_bits {
            return XxHash3_128::oneshot(&(hash % (1 << bits)).to_le_bytes());
        }
        hash
    }

    /// Makes copies of those chunks whose hashes are known and whose positions may be copied from.
    fn look_up(&self, chunks: Range<usize>, search: &Search<'_>, copies: &mut Vec<Copy>) {
        for chunk in self.chunks.get(chunks).unwrap_or_default() {
            let Some(source) = self.table.look_up(chunk.place, search.at) else { continue };
            if source < search.floor || source.plus(u64::from(chunk.len)) > search.at {
                continue;
            }
            match copies.last_mut() {
                Some(last) if last.end() == chunk.at as usize && last.source_end() == source => {
                    last.len += chunk.len;
                }
                _ => copies.push(Copy { at: chunk.at, len: chunk.len, source }),
            }
        }
    }
}

/// Bytes of a block that are cut and hashed before their sets are looked at.
const BATCH: usize = 2048;

/// Bytes of the log that are indexed at once: the largest block, so that chunks are cut as they were.
const INDEX_PIECE: u64 = crate::wire::MAX_BLOCK as u64;
