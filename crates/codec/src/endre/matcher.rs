//! Max-Match: the longest repeats around fingerprints that occurred before [EndRE §5.2.2].
//!
//! Markers of a block are looked up in a table of earlier ones; around each that is found, bytes are compared
//! both ways against the log, and what is equal becomes a copy. Only that comparison decides: the table may
//! hold stale or colliding entries, and is never tidied.
//!
//! What differs from the paper, and why:
//! - Work goes in batches of about 2 KiB: all markers, all fingerprints, all slots, all sources. Loads of one
//!   kind do not depend on each other, so the processor overlaps their cache misses, which are what costs.
//! - Where a repeat ends, the same distance is tried again a few bytes on (*diagonal resume*), and a block
//!   begins by following the diagonal of the block before it. An edited copy then costs a token an edit, and
//!   an unedited one is never hashed at all.
//! - Bytes that were found are not inserted again, unless what they were found in will soon be overwritten, or
//!   they were found in fragments, so that the next repeat finds them in one piece.
//!
//! Work is bounded by the block's length whatever it holds: a marker has one candidate, comparing stops where
//! bytes differ, and bytes that were found are passed over.

mod scan;
mod slots;
#[cfg(test)]
mod tests;

use std::ops::Range;

use oncewire_fingerprint::{MarkerKind, Markers, SampleTable, Selector, fingerprint};

use crate::cache::{Log, LogOffset};
use scan::Scan;
use slots::Slots;

pub use super::tokens::Copy;

/// How densely a matcher looks for repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatchParams {
    /// The mean distance between markers, p; 64 by default, 32 to 512 in use. Halving it doubles the table.
    pub period: usize,
    /// How many bytes a fingerprint covers, w, and so the shortest repeat that is looked for; 32 by default
    /// [EndRE §5.1].
    pub window: usize,
    /// Slots of the fingerprint table for each marker that a full log is expected to have, 1 or 2; 2 by default.
    /// With one the table takes half the memory, 1/16 of the log at p = 64, and a third of all entries are
    /// overwritten before their time.
    pub slots_per_marker: u32,
    /// The bytes that SAMPLEBYTE chooses; the paper's by default [EndRE §5.1.4].
    pub sample: SampleTable,
    /// Whether SAMPLEBYTE's table follows the traffic, from `sample` on; not by default.
    pub sample_adapts: bool,
}

impl Default for MatchParams {
    fn default() -> Self {
        Self { period: 64, window: 32, slots_per_marker: 2, sample: SampleTable::PAPER, sample_adapts: false }
    }
}

/// A block, and what is known of the log before it is encoded.
#[derive(Clone, Copy, Debug)]
pub struct Search<'a> {
    /// The block's bytes; at most 4 GiB of them are looked at.
    pub block: &'a [u8],
    /// The log's head, where the block will lie if it is remembered; sources end here or before.
    pub at: LogOffset,
    /// The oldest offset that may be copied from.
    pub floor: LogOffset,
    /// Where the block's first byte would be found if it went on as the flow's previous block did.
    pub hint: Option<LogOffset>,
}

/// The sender's half of Max-Match: the fingerprint table of one log.
pub struct MaxMatch {
    markers: Selector,
    window: usize,
    slots: Slots,
    /// The last bytes of the log that are in use.
    reach: u64,
    selected: Vec<u32>,
    hits: Vec<Hit>,
    /// All markers of the last block that were hashed, in order.
    hashed: Vec<Hashed>,
}

/// A marker and its fingerprint.
#[derive(Clone, Copy)]
struct Hashed {
    marker: u32,
    fingerprint: u64,
}

/// A marker, and where the table says that its window occurred.
#[derive(Clone, Copy)]
struct Hit {
    marker: u32,
    source: LogOffset,
}

impl MaxMatch {
    /// Creates an empty table for a log of `capacity` bytes.
    ///
    /// It takes one or two slots of four bytes for each expected marker, rounded up to a power of two: with two,
    /// 8 MiB for a log of 64 MiB at p = 64. Of a log above 4 GiB, the most recent 4 GiB are found.
    pub fn new(capacity: u64, params: MatchParams) -> Self {
        Self {
            markers: Selector::with_table(MarkerKind::default(), params.period, params.window, params.sample),
            window: params.window.max(4),
            slots: Slots::new(capacity, params.period, params.slots_per_marker.clamp(1, 2)),
            reach: capacity,
            selected: Vec::new(),
            hits: Vec::new(),
            hashed: Vec::new(),
        }
    }

    /// Changes how markers are chosen, from the next block on. The table keeps the size that `params` gave it.
    ///
    /// What was remembered is found as far as old and new markers coincide: with MAXP, whose regions nest, all of
    /// the fewer ones if one period is a power of two times the other.
    pub fn set_markers(&mut self, kind: MarkerKind, period: usize) {
        if (self.markers.kind(), self.markers.period()) != (kind, period.max(1)) {
            self.markers = Selector::with_table(kind, period, self.window, self.markers.table());
        }
    }

    /// Replaces `copies` by the parts of the block that lie in `[floor, at)` of `log`: in order, not
    /// overlapping, each equal to its source.
    ///
    /// The block itself is not searched and not inserted; [`Self::remember`] does that once it is known that
    /// the block goes into the log.
    pub fn find(&mut self, log: &Log, search: &Search<'_>, copies: &mut Vec<Copy>) {
        copies.clear();
        self.hashed.clear();
        let block = search.block.get(..u32::MAX as usize).unwrap_or(search.block);
        let mut scan = Scan::new(log, &Search { block, ..*search }, copies);
        if let Some(source) = search.hint {
            scan.follow(source);
        }
        let mut position = scan.covered();
        while position < block.len() {
            let next = self.look_up(log, search, position..position.saturating_add(self.batch(position)));
            for hit in &self.hits {
                scan.extend(hit.marker as usize, hit.source);
            }
            position = next.max(scan.covered());
        }
    }

    /// Inserts the markers of the block that the last [`Self::find`] searched, now that it goes into the log
    /// at `search.at`. `copies` are those found, or the ones of them that were made.
    pub fn remember(&mut self, search: &Search<'_>, copies: &[Copy]) {
        // Long copies keep their old entries, so that a block of repeats costs nothing here. So does a copy that
        // only the block's end made short.
        let fragment = self.markers.period() * FRAGMENT_PERIODS;
        let is_long = |copy: &&Copy| copy.len as usize >= fragment || copy.end() == search.block.len();
        let kept: Vec<&Copy> = copies.iter().filter(is_long).collect();
        let mut rest = kept.iter().peekable();
        for hashed in &self.hashed {
            while rest.next_if(|copy| copy.end() <= hashed.marker as usize).is_some() {}
            if rest.peek().is_none_or(|copy| hashed.marker < copy.at) {
                self.slots.insert(hashed.fingerprint, search.at, u64::from(hashed.marker));
            }
        }
        for copy in kept {
            if self.fades(search.at, copy.source) {
                self.insert_markers(search.block, search.at, copy.at as usize..copy.end());
            }
        }
    }

    /// Says how many of the log's last bytes are in use, at most its capacity.
    pub fn set_reach(&mut self, bytes: u64) {
        self.reach = bytes;
    }

    /// Returns whether a source will soon be overwritten, so that what copies from it had better be remembered
    /// anew: more than half of the log was written since.
    pub fn fades(&self, at: LogOffset, source: LogOffset) -> bool {
        at.since(source) > self.reach / 2
    }

    /// Drops the fingerprints of everything that touches `range`, once the two ends disagree about it.
    ///
    /// It goes through the whole table: a millisecond for 8 MiB. A repeat that is found beside the range is still
    /// extended into it.
    pub fn forget(&mut self, range: Range<LogOffset>) {
        self.slots.remove(range.start.minus(self.window as u64 - 1)..range.end);
    }

    /// Inserts the markers of a range that `log` holds already, as after a restart.
    ///
    /// Of a range longer than the log, the end is taken.
    pub fn index(&mut self, log: &Log, range: Range<LogOffset>) {
        let window = self.window as u64;
        let mut start = range.start.max(range.end.minus(log.capacity()));
        let mut piece = Vec::new();
        while range.end.since(start) >= window {
            let len = range.end.since(start).min(INDEX_PIECE + window - 1);
            piece.clear();
            log.copy_to(start, len as usize, &mut piece);
            self.insert_markers(&piece, start, 0..piece.len());
            start = start.plus(INDEX_PIECE);
        }
    }

    /// Forgets everything, as for a new epoch.
    pub fn clear(&mut self) {
        self.slots.clear();
    }

    /// Returns the bytes of memory that the table and the working lists take.
    pub fn memory(&self) -> usize {
        self.slots.memory()
            + self.selected.capacity() * size_of::<u32>()
            + self.hits.capacity() * size_of::<Hit>()
            + self.hashed.capacity() * size_of::<Hashed>()
    }

    /// Returns how many bytes from `position` on are looked up at once: to the end of a whole number of regions.
    fn batch(&self, position: usize) -> usize {
        let period = self.markers.period();
        let batch = period * (BATCH / period).max(1);
        batch - position % batch
    }

    /// Selects and hashes the markers of a batch and leaves in `hits` those whose slot names a source that may
    /// be copied from and begins with the same bytes. Returns where the next batch begins.
    fn look_up(&mut self, log: &Log, search: &Search<'_>, batch: Range<usize>) -> usize {
        self.selected.clear();
        let next = self.markers.select(search.block, batch, &mut self.selected);
        let first = self.hashed.len();
        hash(search.block, &self.selected, self.window, &mut self.hashed);
        for hashed in self.hashed.iter().skip(first) {
            self.slots.prefetch(hashed.fingerprint);
        }
        let window = self.window as u64;
        self.hits.clear();
        for hashed in self.hashed.iter().skip(first) {
            let Some(source) = self.slots.look_up(hashed.fingerprint, search.at) else { continue };
            if source >= search.floor && source.plus(window) <= search.at {
                log.prefetch(source);
                self.hits.push(Hit { marker: hashed.marker, source });
            }
        }
        self.hits.retain(|hit| {
            let (source, wrapped) = log.slices(hit.source, PROBE);
            let here = search.block.get(hit.marker as usize..).unwrap_or_default();
            !wrapped.is_empty() || source.first_chunk::<PROBE>() == here.first_chunk()
        });
        next
    }

    /// Inserts the markers of `part` of `bytes`, of which the first lies at `start` of the log.
    fn insert_markers(&mut self, bytes: &[u8], start: LogOffset, part: Range<usize>) {
        self.selected.clear();
        self.markers.select(bytes, part, &mut self.selected);
        self.hashed.clear();
        hash(bytes, &self.selected, self.window, &mut self.hashed);
        for hashed in &self.hashed {
            self.slots.insert(hashed.fingerprint, start, u64::from(hashed.marker));
        }
    }
}

/// Returns where the next block's first byte is expected, to be its [`Search::hint`]: behind the last copy, as
/// far as the block's end is behind it. `None` without a copy.
pub fn next_hint(copies: &[Copy], block_len: usize) -> Option<LogOffset> {
    let last = copies.last()?;
    Some(last.source_end().plus(block_len.saturating_sub(last.end()) as u64))
}

/// Appends the fingerprints of the windows that start at `markers`.
fn hash(bytes: &[u8], markers: &[u32], window: usize, hashed: &mut Vec<Hashed>) {
    hashed.extend(markers.iter().filter_map(|&marker| {
        let bytes = bytes.get(marker as usize..)?.get(..window)?;
        Some(Hashed { marker, fingerprint: fingerprint(bytes) })
    }));
}

/// Bytes of a block that are looked up together. 1 to 4 KiB are alike; above, lines leave the first cache.
const BATCH: usize = 2048;

/// Bytes that are compared before a hit counts as one: enough to drop the slots that only share a tag.
const PROBE: usize = 8;

/// Copies of fewer regions than this have their markers inserted anew: they are fragments, and the block now
/// has the content in one piece. It also keeps a run of one byte value from being found in small pieces for ever.
const FRAGMENT_PERIODS: usize = 4;

/// Bytes of the log that are indexed at once.
const INDEX_PIECE: u64 = 64 << 10;
