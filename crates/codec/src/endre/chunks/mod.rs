//! Chunk-Match: whole chunks found by their hashes, without the bytes [EndRE §5.2.1].
//!
//! A block is cut at its markers; each chunk's hash is looked up among those of the log's chunks, and a hit becomes a
//! copy. Behind it, the next chunks of the log are tried. Nobody compares bytes here: two chunks may share a hash, and
//! only the digest of the block tells. Reasons and rejected ways are in `docs/internals/chunk-match.md`.
//!
//! Work is bounded by the block's length whatever it holds: a chunk has at least a quarter of the mean length, a
//! lookup touches one line of the cache.

mod index;
mod pieces;
mod ring;
#[cfg(test)]
mod tests;

use std::ops::Range;

use oncewire_fingerprint::{MarkerKind, Markers, SampleTable, Selector};
use twox_hash::XxHash3_128;

use self::index::{Index, Place};
use self::pieces::Pieces;
use self::ring::{Ring, Seq};
use super::matcher::{Copy, MatchParams, Search};
use crate::log::{Log, LogOffset};
use crate::wire::Range64;

/// The sender's half of Chunk-Match: what is known of the chunks of one log.
pub struct ChunkMatch {
    markers: Selector,
    window: usize,
    seed: u64,
    ring: Ring,
    index: Index,
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
    /// Whether it was found where it will stay for a while, so its entry may stay too.
    lasts: bool,
}

impl ChunkMatch {
    /// Creates empty tables for a log of `capacity` bytes, with hashes keyed by `seed`.
    ///
    /// They take 15 bytes for each expected chunk: 24 % of the log at p = 64. Of a log above 2 GiB, the most
    /// recent 2 GiB are found.
    pub fn new(capacity: u64, params: MatchParams, seed: u64) -> Self {
        let ring = Ring::new(capacity, params.period);
        Self {
            markers: Selector::with_table(MarkerKind::default(), params.period, params.window, params.sample),
            window: params.window,
            seed,
            index: Index::new(ring.capacity()),
            ring,
            selected: Vec::new(),
            chunks: Vec::new(),
            #[cfg(test)]
            hash_bits: None,
        }
    }

    /// Changes the cuts of chunks, from the next block on: `sample` are the bytes of SAMPLEBYTE. The tables keep their
    /// size by `params`.
    ///
    /// What was remembered is found as far as old and new chunks coincide. The choice must follow from the content
    /// alone; see [`crate::Plan::effective_markers`].
    pub fn set_markers(&mut self, kind: MarkerKind, period: usize, sample: SampleTable) {
        let present = (self.markers.kind(), self.markers.period(), self.markers.table());
        if present != (kind, period.max(1), sample) {
            self.markers = Selector::with_table(kind, period, self.window, sample);
        }
    }

    /// Replaces `copies` by the chunks of the block lying in `[floor, at)` of the log, as far as their hashes tell: in
    /// order, not overlapping, neighbours joined.
    ///
    /// The block itself is not searched and not entered; [`Self::remember`] does it once the block goes into the log.
    pub fn find(&mut self, search: &Search<'_>, copies: &mut Vec<Copy>) {
        copies.clear();
        self.chunks.clear();
        let block = search.block.get(..u32::MAX as usize).unwrap_or(search.block);
        let search = Search { block, ..*search };
        // Others write to the log too.
        self.ring.retire(search.at);
        let mut pieces = Pieces::new(self.markers.period(), self.window);
        let mut expected = self.start(&search, &mut pieces);
        let mut position = 0;
        while pieces.start() < block.len() as u32 && position < block.len() {
            if let Some(seq) = expected {
                self.follow(&search, seq, &mut pieces, copies);
                position = position.max(pieces.start() as usize);
            }
            if position < block.len() {
                let first = self.chunks.len();
                position = self.cut(block, position, &mut pieces);
                expected = self.look_up(first, &search, copies);
            }
        }
    }

    /// Enters the chunks of the block the last [`Self::find`] searched, now that it goes into the log at `at`.
    ///
    /// A chunk found behind [`Search::lasting`] keeps its entry; any other gets one here, the first of equal ones
    /// within the block. Every few chunks one gets an entry all the same, so what is remembered last can be found by
    /// itself.
    pub fn remember(&mut self, at: LogOffset) {
        let block = self.ring.next();
        let is_entered = |(number, chunk): (usize, &Chunk)| !chunk.lasts || number % RENEWED == 0;
        for (number, chunk) in self.chunks.iter().enumerate() {
            if let Some(later) =
                self.chunks.get(number + AHEAD).filter(|later| is_entered((number + AHEAD, later)))
            {
                self.index.prefetch(later.place);
            }
            if is_entered((number, chunk)) {
                self.index.insert(chunk.place, &self.ring, block);
            }
            self.ring.push(at.plus(u64::from(chunk.at)), u64::from(chunk.len), chunk.place.tag);
        }
        let end = self.chunks.last().map_or(0, |chunk| u64::from(chunk.at) + u64::from(chunk.len));
        self.ring.retire(at.plus(end));
    }

    /// Returns what tells the chunks of the last block from others.
    pub fn hashes(&self) -> impl Iterator<Item = u64> {
        self.chunks.iter().map(|chunk| chunk.place.fingerprint())
    }

    /// Drops the chunks touching any of `ranges`, once the two ends disagree about them, and those out of a log with
    /// its head at `head`.
    pub fn forget(&mut self, ranges: &[Range64], head: LogOffset) {
        self.ring.retire(head);
        ranges.iter().for_each(|range| self.ring.forget(range, head));
    }

    /// Enters the chunks of a range that `log` holds already, as after a restart.
    ///
    /// Of a range longer than the log, the end is taken. `each` is given every piece entered, by its place.
    pub fn index(&mut self, log: &Log, range: Range<LogOffset>, mut each: impl FnMut(LogOffset, &[u8])) {
        let mut start = range.start.max(range.end.minus(log.capacity()));
        let (mut piece, mut copies) = (Vec::new(), Vec::new());
        while start < range.end {
            let len = range.end.since(start).min(INDEX_PIECE);
            piece.clear();
            log.copy_to(start, len as usize, &mut piece);
            // Nothing lies above this floor: the search cuts and hashes, and finds nothing.
            self.find(
                &Search { block: &piece, at: start, floor: start, lasting: start, hint: None },
                &mut copies,
            );
            self.remember(start);
            each(start, &piece);
            start = start.plus(len);
        }
    }

    /// Returns the bytes of memory the tables and the working lists take.
    pub fn memory(&self) -> usize {
        self.ring.memory()
            + self.index.memory()
            + self.selected.capacity() * size_of::<u32>()
            + self.chunks.capacity() * size_of::<Chunk>()
    }

    /// Shortens hashes to so many bits, so different chunks are taken for one.
    #[cfg(test)]
    pub(super) fn plant_collisions(&mut self, bits: u32) {
        self.hash_bits = Some(bits);
    }

    /// Returns the first chunk of a block going on like the flow's previous block. If it begins within a chunk, the
    /// first piece is cut at that one's end.
    fn start(&mut self, search: &Search<'_>, pieces: &mut Pieces) -> Option<Seq> {
        let hint = search.hint?;
        let seq = self.ring.first_from(hint, search.at);
        let skipped = u32::try_from(self.ring.offset(seq, search.at)?.since(hint)).ok()?;
        if skipped >= pieces.longest() || skipped as usize >= search.block.len() {
            return None;
        }
        if skipped > 0 {
            let place = self.index.place(self.hash(search.block.get(..skipped as usize)?));
            self.chunks.push(Chunk { at: 0, len: skipped, place, lasts: false });
            pieces.restart(skipped);
        }
        Some(seq)
    }

    /// Tries the chunks of the log from `seq` on against the block, cut as they were, for as long as they agree:
    /// without markers, and without the index.
    fn follow(&mut self, search: &Search<'_>, mut seq: Seq, pieces: &mut Pieces, copies: &mut Vec<Copy>) {
        let block = search.block;
        while let Some(range) = self.ring.range(seq, search.at) {
            let (at, len) = (pieces.start() as usize, range.end.since(range.start));
            let Some(bytes) = block.get(at..).and_then(|rest| rest.get(..len as usize)) else { return };
            if len == 0 || len > u64::from(pieces.longest()) {
                return;
            }
            let place = self.index.place(self.hash(bytes));
            let mut chunk = Chunk { at: at as u32, len: len as u32, place, lasts: false };
            let Some(source) = chunk.source(seq, &self.ring, search) else { return };
            if !self.ring.has(seq, place.tag) {
                return;
            }
            chunk.copy(source, search, copies);
            self.chunks.push(chunk);
            pieces.restart(chunk.at + chunk.len);
            seq += 1;
        }
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
        let mut take =
            |at: u32, len: u32| chunks.push(Chunk { at, len, place: Place::default(), lasts: false });
        selected.iter().for_each(|&marker| pieces.cut(marker, &mut take));
        if next >= block.len() {
            pieces.finish(block.len() as u32, &mut take);
        }
        for index in first..self.chunks.len() {
            let Some(Chunk { at, len, .. }) = self.chunks.get(index).copied() else { break };
            let bytes = block.get(at as usize..).and_then(|rest| rest.get(..len as usize));
            let place = self.index.place(self.hash(bytes.unwrap_or_default()));
            self.index.prefetch(place);
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

    /// Makes copies of the chunks from `first` on, as far as their hashes are known and they may be copied from;
    /// returns the expected next chunk, if the last one was found.
    fn look_up(&mut self, first: usize, search: &Search<'_>, copies: &mut Vec<Copy>) -> Option<Seq> {
        let Self { chunks, index, ring, .. } = self;
        let chunks = chunks.get_mut(first..).unwrap_or_default();
        chunks.iter().for_each(|chunk| index.prefetch_chunks(chunk.place, ring));
        let mut expected = None;
        // Chunks before `number` that nothing is known of.
        let mut unknown = 0;
        for number in 0..chunks.len() {
            let Some((before, [chunk, ..])) = chunks.split_at_mut_checked(number) else { break };
            let place = chunk.place;
            let seq = expected.filter(|&seq| ring.has(seq, place.tag)).or_else(|| index.look_up(place, ring));
            let Some((seq, source)) = seq.and_then(|seq| Some((seq, chunk.source(seq, ring, search)?)))
            else {
                (expected, unknown) = (None, unknown + 1);
                continue;
            };
            go_back(before.get_mut(number - unknown..).unwrap_or_default(), seq, ring, search, copies);
            chunk.copy(source, search, copies);
            (expected, unknown) = (Some(seq + 1), 0);
        }
        expected
    }
}

impl Chunk {
    /// Returns where the chunk's bytes are if they are those of `seq`, and may be copied from.
    #[inline]
    fn source(&self, seq: Seq, ring: &Ring, search: &Search<'_>) -> Option<LogOffset> {
        let source = ring.offset(seq, search.at)?;
        (source >= search.floor && source.plus(u64::from(self.len)) <= search.at).then_some(source)
    }

    /// Adds a copy of the chunk, or makes the last one longer.
    #[inline]
    fn copy(&mut self, source: LogOffset, search: &Search<'_>, copies: &mut Vec<Copy>) {
        self.lasts = source >= search.lasting;
        match copies.last_mut() {
            Some(last) if last.end() == self.at as usize && last.source_end() == source => {
                last.len += self.len
            }
            _ => copies.push(Copy { at: self.at, len: self.len, source }),
        }
    }
}

/// Makes copies of the last chunks of `before` as far as they are those in front of `seq` in the log: chunks that lost
/// their entries, or got none.
fn go_back(before: &mut [Chunk], seq: Seq, ring: &Ring, search: &Search<'_>, copies: &mut Vec<Copy>) {
    let agrees = |(chunk, back): &(&Chunk, u64)| ring.has(seq.wrapping_sub(*back), chunk.place.tag);
    let agreeing = before.iter().rev().zip(1..).take_while(agrees).count();
    let chunks = before.iter_mut().rev().take(agreeing).rev();
    for (chunk, back) in chunks.zip((1..=agreeing as u64).rev()) {
        if let Some(source) = chunk.source(seq.wrapping_sub(back), ring, search) {
            chunk.copy(source, search, copies);
        }
    }
}

/// Bytes of a block cut and hashed before their sets are looked at.
const BATCH: usize = 2048;

/// One in so many chunks found gets an entry of its own.
const RENEWED: usize = 4;

/// So many chunks ahead of its entry, a chunk's set is fetched.
const AHEAD: usize = 8;

/// Bytes of the log indexed at once: the largest block, so chunks are cut as they were.
const INDEX_PIECE: u64 = crate::wire::MAX_BLOCK as u64;
