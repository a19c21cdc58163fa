//! Max-Match: the longest repeats around fingerprints that occurred before [EndRE §5.2.2].
//!
//! Markers of a block are looked up in a table of earlier ones; around each found, bytes are compared both ways against
//! the log, and equal ones become a copy. Only the comparison decides: the table may hold stale or colliding entries,
//! and is never tidied.
//!
//! What differs from the paper, and why:
//! - Work goes in batches of 8 to 64 markers: all markers, all fingerprints, all slots, all sources. Loads of one kind
//!   do not depend on each other and are asked for ahead, so the processor overlaps their cache misses, the main cost.
//! - The table knows the last two places of a fingerprint, and the longer repeat is taken. At periods up to 32,
//!   where savings come before speed, a block is looked up at twice as many places as it has entries for.
//! - At the end of a repeat, the next 64 bytes are compared at the same distance (*diagonal resume*), and a block
//!   begins by following the diagonal of the block before it. An edited copy then costs a token an edit, and an
//!   unedited one is never hashed at all, unless its diagonal leads far back: it is left if the block's first markers
//!   find newer bytes.
//! - Bytes found are not inserted again, unless what they were found in will soon be out of reach, or they were found
//!   in fragments, so the next repeat finds them in one piece.
//!
//! Work is bounded by the block's length for any content: a place has two candidates, the second is compared only if
//! the first is short, a comparison stops at the first difference, and found bytes are passed over.

mod places;
mod scan;
mod slots;
#[cfg(test)]
mod tests;

use std::ops::Range;

use oncewire_fingerprint::{MarkerKind, SampleTable, Selector};

pub use super::tokens::Copy;
use crate::log::{Log, LogOffset};
use crate::wire::Range64;
use places::Places;
use scan::Scan;
use slots::{GRAIN, Reach, Slots, source};

/// How densely a matcher looks for repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatchParams {
    /// The mean distance between markers, p; 64 by default, 32 to 512 in use. Halving it doubles the table.
    pub period: usize,
    /// How many bytes a fingerprint covers, w, and so the shortest repeat looked for; 32 by default [EndRE §5.1]. At a
    /// period of 32 or less it covers three quarters of them.
    pub window: usize,
    /// Slots of the fingerprint table for each marker a full log is expected to have, 1 or 2; 2 by default, taking 1/8
    /// of a log of up to 4 GiB at p = 64. With one the table takes half the memory, and a third of all entries are
    /// overwritten before their time.
    pub slots_per_marker: u32,
    /// The bytes that SAMPLEBYTE chooses; the paper's by default [EndRE §5.1.4].
    pub sample: SampleTable,
    /// Whether a sending half lets SAMPLEBYTE's table follow the traffic, from `sample` on; not by default.
    pub sample_adapts: bool,
}

impl MatchParams {
    /// Returns the bytes of memory the table of a log of `capacity` bytes takes: four for each slot, and 4 KiB at
    /// least.
    pub fn table_memory(&self, capacity: u64) -> u64 {
        Slots::memory_for(capacity, self.period, self.slots())
    }

    fn slots(&self) -> u32 {
        self.slots_per_marker.clamp(1, 2)
    }
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
    /// What is found before this offset is remembered anew: at its next repeat it may be out of reach.
    pub lasting: LogOffset,
    /// Where the block's first byte would be found if it went on as the flow's previous block did.
    pub hint: Option<LogOffset>,
}

/// The sender's half of Max-Match: the fingerprint table of one log.
pub struct MaxMatch {
    /// Bytes a fingerprint covers.
    covered: usize,
    places: Places,
    slots: Slots,
    hits: Vec<Hit>,
}

/// A place in the block, and where the table says its bytes occurred.
#[derive(Clone, Copy)]
struct Hit {
    at: u32,
    /// By how many grains before the head's; the second 0: there is but one.
    sources: [u32; 2],
}

impl MaxMatch {
    /// Creates an empty table for a log of `capacity` bytes.
    ///
    /// It takes one or two slots of four bytes for each expected marker: with two, 8 MiB for a log of 64 MiB at p = 64,
    /// 12 MiB for 96 MiB. Of a log above 4 GiB, the most recent 4 GiB are found.
    pub fn new(capacity: u64, params: MatchParams) -> Self {
        // At short periods savings come before speed, and shorter repeats count.
        let covered = if params.period <= places::DENSE { params.window / 4 * 3 } else { params.window };
        let covered = covered.max(4);
        let selector = Selector::with_table(MarkerKind::default(), params.period, covered, params.sample);
        Self {
            covered,
            places: Places::new(selector, covered),
            slots: Slots::new(capacity, params.period, params.slots()),
            hits: Vec::new(),
        }
    }

    /// Changes how markers are chosen, from the next block on: `sample` are the bytes of SAMPLEBYTE. The table keeps
    /// the size that `params` gave it.
    ///
    /// Earlier content is found as far as old and new markers coincide: with MAXP, of nested regions, all of the fewer
    /// ones if one period is a power of two times the other.
    pub fn set_markers(&mut self, kind: MarkerKind, period: usize, sample: SampleTable) {
        let present = self.places.selector();
        if (present.kind(), present.period(), present.table()) != (kind, period.max(1), sample) {
            self.places.set_selector(Selector::with_table(kind, period, self.covered, sample));
        }
    }

    /// Replaces `copies` by the parts of the block lying in `[floor, at)` of `log`: in order, not overlapping, each
    /// equal to its source.
    ///
    /// The block itself is not searched and not inserted; [`Self::remember`] does it once the block goes into the log.
    pub fn find(&mut self, log: &Log, search: &Search<'_>, copies: &mut Vec<Copy>) {
        copies.clear();
        self.places.clear();
        let block = search.block.get(..u32::MAX as usize).unwrap_or(search.block);
        let mut scan = Scan::new(log, &Search { block, ..*search }, copies);
        if let Some(source) = search.hint {
            let newer = (source < search.lasting).then(|| self.newer(log, search, &scan, source)).flatten();
            scan.follow(newer.unwrap_or(source));
        }
        let reach = Reach::new(self.covered as u64, search.at.since(search.floor));
        let mut position = scan.covered();
        let mut len = FIRST_BATCH;
        while position < block.len() {
            let next = self.look_up(log, search, &reach, self.places.batch(position, len));
            len = (len * 2).min(LONGEST_BATCH);
            for hit in &self.hits {
                let [newer, older] = hit.sources;
                if scan.extend(
                    hit.at as usize,
                    source(search.at, newer),
                    (older > 0).then(|| source(search.at, older)),
                ) {
                    len = FIRST_BATCH;
                }
            }
            position = next.max(scan.covered());
        }
    }

    /// Inserts the markers of the block the last [`Self::find`] searched, now that it goes into the log at `search.at`.
    /// `copies` are those found, or the ones of them made.
    pub fn remember(&mut self, search: &Search<'_>, copies: &[Copy]) {
        // Long copies keep their old entries, so a block of repeats costs nothing here. So does a copy that only the
        // block's end made short.
        let fragment = self.places.selector().period() * FRAGMENT_PERIODS;
        let is_long = |copy: &&Copy| copy.len as usize >= fragment || copy.end() == search.block.len();
        let kept: Vec<&Copy> = copies.iter().filter(is_long).collect();
        let mut rest = kept.iter().peekable();
        for place in self.places.all() {
            while rest.next_if(|copy| copy.end() <= place.at as usize).is_some() {}
            if place.is_marker && rest.peek().is_none_or(|copy| place.at < copy.at) {
                self.slots.insert(place.fingerprint, search.at, place.at);
            }
        }
        for copy in kept {
            if copy.source < search.lasting {
                self.insert_markers(search.block, search.at, copy.at as usize..copy.end());
            }
        }
    }

    /// Returns the markers the last [`Self::find`] looked up, with their fingerprints, in order.
    pub fn looked_up(&self) -> impl Iterator<Item = (u32, u64)> {
        let markers = self.places.all().iter().filter(|place| place.is_marker);
        markers.map(|place| (place.at, place.fingerprint))
    }

    /// Drops the fingerprints of everything touching any of a few `ranges`, once the two ends disagree about them.
    ///
    /// It goes through the whole table: a millisecond for 8 MiB. A repeat found beside a range is still extended into
    /// it.
    pub fn forget(&mut self, ranges: &[Range64]) {
        let touching =
            |range: &Range64| LogOffset(range.start).minus(self.covered as u64 - 1)..LogOffset(range.end);
        self.slots.remove(&ranges.iter().map(touching).collect::<Vec<_>>());
    }

    /// Inserts the markers of a range that `log` holds already, as after a restart.
    ///
    /// Of a range longer than the log, the end is taken. The beginnings of its blocks are unknown, so FIXED, with grids
    /// from there, gets as many entries at other places: *p* in a row, once in *p*² bytes. On any grid, one of a
    /// block's positions meets one of them in each *p*² bytes of a repeat.
    pub fn index(&mut self, log: &Log, range: Range<LogOffset>) {
        let covered = self.covered as u64;
        let mut start = range.start.max(range.end.minus(log.capacity()));
        let mut piece = Vec::new();
        while range.end.since(start) >= covered {
            let len = range.end.since(start).min(INDEX_PIECE + covered - 1);
            piece.clear();
            log.copy_to(start, len as usize, &mut piece);
            if self.places.selector().kind() == MarkerKind::Fixed {
                for place in self.places.runs(&piece, start) {
                    self.slots.insert(place.fingerprint, start, place.at);
                }
            } else {
                self.index_block(&piece, start);
            }
            start = start.plus(INDEX_PIECE);
        }
    }

    /// Inserts the markers of a block lying at `start` of the log.
    pub fn index_block(&mut self, block: &[u8], start: LogOffset) {
        self.insert_markers(block, start, 0..block.len());
    }

    /// Forgets everything, as for a new epoch.
    pub fn clear(&mut self) {
        self.slots.clear();
    }

    /// Returns the bytes of memory the table and the working lists take.
    pub fn memory(&self) -> usize {
        self.slots.memory() + self.places.memory() + self.hits.capacity() * size_of::<Hit>()
    }

    /// Returns the block's beginning among recent bytes, if its first markers tell and it is at least half as long
    /// there as at `hint`: its repeat may have been remembered anew for another flow.
    fn newer(
        &mut self,
        log: &Log,
        search: &Search<'_>,
        scan: &Scan<'_>,
        hint: LogOffset,
    ) -> Option<LogOffset> {
        let from = search.lasting.max(search.floor);
        let reach = Reach::new(self.covered as u64, search.at.since(from));
        self.look_up(log, search, &reach, self.places.batch(0, FIRST_BATCH));
        self.places.clear();
        let mut begins = self.hits.iter().flat_map(|hit| {
            let first = source(search.at, hit.sources[0]).minus(u64::from(hit.at));
            (0..GRAIN).map(move |byte| first.plus(byte))
        });
        let newer = begins.find(|begin| *begin >= from && scan.begins(*begin))?;
        (scan.run(newer) * 2 >= scan.run(hint)).then_some(newer)
    }

    /// Looks up the places of a batch and leaves in `hits` those with sources in reach. Returns the start of the next
    /// batch.
    fn look_up(&mut self, log: &Log, search: &Search<'_>, reach: &Reach, batch: Range<usize>) -> usize {
        let (first, next) = self.places.choose(search.block, batch);
        let places = self.places.all().get(first..).unwrap_or_default();
        #[cfg(test)]
        tests::note_looked_up(places.len());
        for place in places {
            self.slots.prefetch(place.fingerprint);
        }
        self.hits.clear();
        for place in places {
            let [newer, older] = self.slots.look_up(place.fingerprint, search.at, reach);
            if newer | older == 0 {
                continue;
            }
            let sources = if newer > 0 { [newer, older] } else { [older, 0] };
            log.prefetch_around(source(search.at, sources[0]));
            if sources[1] > 0 {
                log.prefetch(source(search.at, sources[1]));
            }
            self.hits.push(Hit { at: place.at, sources });
        }
        next
    }

    /// Inserts the markers of `part` of `bytes`, of which the first lies at `start` of the log.
    fn insert_markers(&mut self, bytes: &[u8], start: LogOffset, part: Range<usize>) {
        for place in self.places.index(bytes, part) {
            self.slots.insert(place.fingerprint, start, place.at);
        }
    }
}

/// Returns where the next block's first byte is expected, to be its [`Search::hint`]: behind the last copy, as
/// far as the block's end is behind it. `None` without a copy.
pub fn next_hint(copies: &[Copy], block_len: usize) -> Option<LogOffset> {
    let last = copies.last()?;
    Some(last.source_end().plus(block_len.saturating_sub(last.end()) as u64))
}

/// Returns the offset below which a block at `at` has its finds remembered anew, to be its [`Search::lasting`], if
/// blocks refer back to `reach` bytes.
///
/// Nobody knows when it will be repeated next; what is left as it is may be two thirds later than this time, and still
/// be in reach.
pub fn lasting(at: LogOffset, reach: u64) -> LogOffset {
    at.minus(reach / 8 * 3)
}

/// Whether the log holds a block of which `copies` were found well enough it need not be remembered: nearly all of it,
/// and nearly nothing before `lasting`.
pub fn is_held(copies: &[Copy], block_len: usize, lasting: LogOffset) -> bool {
    let copied: usize = copies.iter().map(|copy| copy.len as usize).sum();
    let fading = copies.iter().filter(|copy| copy.source < lasting);
    let fading: usize = fading.map(|copy| copy.len as usize).sum();
    block_len.saturating_sub(copied) <= block_len / NEW_SHARE && fading <= block_len / FADING_SHARE
}

/// A block is not remembered again if at most one byte in this many is new: what is new and not remembered is
/// paid for again with every repeat.
const NEW_SHARE: usize = 500;

/// Nor if at most one byte in this many will soon be out of reach: such bytes cross again once, and then the block is
/// remembered, or they are too few to matter.
const FADING_SHARE: usize = 64;

/// Markers looked up together behind a repeat. Another is likely to follow, and what it covers need not be looked up.
const FIRST_BATCH: usize = 8;

/// Markers looked up together where nothing was found for long, so their cache misses overlap.
const LONGEST_BATCH: usize = 64;

/// Copies of fewer regions than this have their markers inserted anew: they are fragments, and the block now
/// has the content in one piece. It also keeps a run of one byte value from being found in small pieces for ever.
const FRAGMENT_PERIODS: usize = 4;

/// Bytes of the log indexed at once.
const INDEX_PIECE: u64 = 64 << 10;
