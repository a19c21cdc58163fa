//! The sender's idea of the receiver's log: what is in it, and how to find it [EndRE §4].

mod carry_on;
mod content;
mod noise;
mod refined;
mod room;

use oncewire_fingerprint::common_prefix;

use self::content::Content;
use self::noise::Noise;
use self::refined::Refined;
use super::FIRST_EPOCH;
use super::chunks::ChunkMatch;
use super::ghosts::Ghosts;
use super::headroom::Headroom;
use super::matcher::{Copy, MatchParams, MaxMatch, Search, is_held};
use super::sampling::Sampling;
use crate::log::samples::Samples;
use crate::log::{Curve, Log, LogOffset, RangeSet};
use crate::stream::SenderConfig;
use crate::wire::{LogHeld, Range64};
use crate::{MarkerKind, Matching, Plan};

/// One direction's log as the sending half knows it.
pub(crate) struct RemoteLog {
    settings: Settings,
    /// The capacity agreed on by both ends.
    capacity: u64,
    /// The capacity of the log and its tables as they are made.
    made_for: u64,
    content: Content,
    /// The tables, made when a plan first asks for them.
    max: Option<MaxMatch>,
    chunks: Option<ChunkMatch>,
    sampling: Sampling,
    epoch: u64,
    /// First offset of the epoch that may be referred to.
    base: u64,
    head: u64,
    /// Ranges below the head the receiver does not have or has otherwise, or that this end lost.
    holes: RangeSet,
    /// The bytes of log this end has memory for.
    limit: u64,
    /// The receiver's last report of the log it holds; a serial number of 0: none.
    held: LogHeld,
    headroom: Headroom,
    curve: Curve,
    /// Made with the table of Max-Match.
    ghosts: Option<Ghosts>,
    noise: Noise,
    /// The head when the log's memory was given back; `None` while it is there.
    released: Option<u64>,
    /// What of the log is indexed for a finer search.
    refined: Refined,
}

/// What an [`RemoteLog`] needs to know of its sender's configuration.
#[derive(Clone, Copy)]
pub(crate) struct Settings {
    params: MatchParams,
    max_in_flight: Option<u64>,
    keeps_bytes: bool,
    seed: u64,
}

/// The outcome of a search, for [`RemoteLog::remember`].
#[derive(Clone, Copy, Default)]
pub(crate) struct Searched {
    /// The table of the search.
    matching: Matching,
    /// Whether the block is to be indexed as a whole once it is in the log.
    reindex: bool,
    /// Whether the block is new noise.
    is_noise: bool,
}

/// One of the two tables.
enum Table<'a> {
    Max(&'a mut MaxMatch),
    Chunk(&'a mut ChunkMatch),
}

impl Settings {
    pub(crate) const fn of(config: &SenderConfig) -> Self {
        let &SenderConfig { params, max_in_flight, keeps_bytes, digest_seed: seed, .. } = config;
        Self { params, max_in_flight, keeps_bytes, seed }
    }
}

impl RemoteLog {
    /// Starts with an empty log and its first epoch. `max_in_flight` is by default a quarter of the log.
    pub(crate) fn new(capacity: u64, settings: Settings) -> Self {
        // A log of no bytes would have no positions.
        let capacity = capacity.max(1);
        Self {
            settings,
            capacity,
            made_for: capacity,
            content: Content::new(capacity, settings.keeps_bytes),
            max: None,
            chunks: None,
            sampling: Sampling::new(&settings.params),
            epoch: FIRST_EPOCH,
            base: 0,
            head: 0,
            holes: RangeSet::default(),
            limit: capacity,
            held: LogHeld::default(),
            headroom: Headroom::new(),
            curve: Curve::default(),
            ghosts: None,
            noise: Noise::new(capacity),
            released: None,
            refined: Refined::default(),
        }
    }

    /// The table for blocks with this plan, set to its markers.
    fn prepare(&mut self, plan: &Plan) -> Table<'_> {
        let plan = Plan { matching: self.matching(plan), ..*plan };
        let (markers, period) = (plan.effective_markers(), plan.period as usize);
        let sample = self.sampling.table();
        match plan.matching {
            Matching::Max => {
                let max = self.max();
                max.set_markers(markers, period, sample);
                Table::Max(max)
            }
            Matching::Chunk => {
                let chunks = self.chunks();
                chunks.set_markers(markers, period, sample);
                Table::Chunk(chunks)
            }
        }
    }

    /// The table of Max-Match.
    fn max(&mut self) -> &mut MaxMatch {
        let (capacity, params) = (self.made_for, self.settings.params);
        self.max.get_or_insert_with(|| MaxMatch::new(capacity, params))
    }

    /// The table of Chunk-Match.
    fn chunks(&mut self) -> &mut ChunkMatch {
        let (capacity, Settings { params, seed, .. }) = (self.made_for, self.settings);
        self.chunks.get_or_insert_with(|| ChunkMatch::new(capacity, params, seed))
    }

    /// Goes on with another capacity, and with the part of the log within both: older content is not referred to any
    /// more. The log and its tables stay as they were made; returns whether they are large enough.
    pub(crate) fn resize(&mut self, capacity: u64) -> bool {
        let stays = capacity <= self.made_for;
        if stays {
            self.base = self.base.max(self.head.saturating_sub(capacity.min(self.capacity)));
            self.capacity = capacity.max(1);
            (self.ghosts, self.curve) = (None, Curve::default());
            self.noise = Noise::new(self.capacity);
            self.apply_limits();
        } else {
            let (epoch, limit) = (self.epoch, self.limit);
            *self = Self::new(capacity, self.settings);
            self.epoch = epoch;
            self.set_limit(limit);
        }
        stays
    }

    /// Forgets every byte; the epoch that follows is to be a new one.
    pub(crate) fn clear(&mut self) {
        match &mut self.content {
            Content::Bytes(log) => log.clear(),
            Content::Samples(samples) => *samples = Samples::new(self.made_for),
        }
        (self.max, self.chunks, self.ghosts) = (None, None, None);
        self.noise = Noise::new(self.capacity);
        self.sampling = Sampling::new(&self.settings.params);
        self.base = self.head;
        self.holes.clear();
        self.refined = Refined::default();
        self.released = None;
    }

    /// What the log saves, by its size.
    pub(crate) fn curve(&self) -> Curve {
        self.curve
    }

    pub(crate) fn curve_mut(&mut self) -> &mut Curve {
        &mut self.curve
    }

    /// Starts an epoch: nothing remembered may be referred to any more.
    pub(crate) fn start_epoch(&mut self, epoch: u64) {
        self.epoch = epoch;
        self.base = self.head;
        self.holes.clear();
        self.noise.clear();
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// How repeats are looked for in a block with this plan.
    pub(crate) fn matching(&self, plan: &Plan) -> Matching {
        if self.settings.keeps_bytes { plan.matching } else { Matching::Chunk }
    }

    pub(crate) fn head(&self) -> u64 {
        self.head
    }

    /// The bytes of the log, if they are kept.
    pub(crate) fn bytes(&self) -> Option<&Log> {
        match &self.content {
            Content::Bytes(log) => Some(log),
            Content::Samples(_) => None,
        }
    }

    /// Ranges below the head the receiver does not have.
    pub(crate) fn holes(&self) -> &RangeSet {
        &self.holes
    }

    /// Whether nothing was remembered in this epoch.
    pub(crate) fn is_new(&self) -> bool {
        self.head == self.base
    }

    /// Replaces `copies` by the parts of a block the log has, from `floor` on; returns what [`Self::remember`] needs.
    pub(crate) fn find(
        &mut self,
        plan: &Plan,
        block: &[u8],
        floor: u64,
        hint: Option<LogOffset>,
        copies: &mut Vec<Copy>,
    ) -> Searched {
        let (at, lasting) = (LogOffset(self.head), self.lasting());
        let search = Search { block, at, floor: LogOffset(floor), lasting, hint };
        let matching = self.matching(plan);
        self.prepare(plan);
        let is_finer = (plan.period as usize) < self.settings.params.period;
        if is_finer && let (Content::Bytes(log), Some(max)) = (&self.content, &mut self.max) {
            self.refined.index(max, log, LogOffset(floor)..at);
        }
        match (&self.content, matching, &mut self.max, &mut self.chunks) {
            (Content::Bytes(log), Matching::Max, Some(max), _) => max.find(log, &search, copies),
            (_, Matching::Chunk, _, Some(chunks)) => chunks.find(&search, copies),
            _ => copies.clear(),
        }
        if is_sampled(plan) {
            self.sampling.note(plan.period as usize, block, copies);
        }
        if is_finer {
            self.refined.ask(copies);
        } else {
            self.note_ghosts(matching, floor, copies);
        }
        let reindex = self.drop_holes(copies);
        self.noise.note_found(copies);
        Searched { matching, reindex, is_noise: false }
    }

    /// Counts what a larger log would have found.
    fn note_ghosts(&mut self, matching: Matching, floor: u64, copies: &[Copy]) {
        let (capacity, period, bound) = (self.capacity, self.settings.params.period, self.bound());
        let (Matching::Max, Some(max)) = (matching, &self.max) else { return };
        let ghosts = self.ghosts.get_or_insert_with(|| Ghosts::new(capacity, period));
        let reach = |size| self.headroom.reach(size, bound.of(size));
        ghosts.note(max.looked_up(), copies, self.head, floor, &mut self.curve, reach);
    }

    /// Drops the copies touching a hole; returns whether the block is to be indexed as a whole once it is remembered.
    fn drop_holes(&mut self, copies: &mut Vec<Copy>) -> bool {
        let bound = self.bound();
        let reach = |size| self.headroom.reach(size, bound.of(size));
        for copy in &*copies {
            self.curve.add(self.head.saturating_sub(copy.source.0), u64::from(copy.len), reach);
        }
        let found = copies.len();
        if !self.holes.is_empty() {
            // Not by the floor, going down again when a log is taken back or gets more memory.
            let lasting = self.base.max(self.head.saturating_sub(self.capacity));
            self.holes.remove_below(lasting);
            let holes = &self.holes;
            copies.retain(|copy| !holes.overlaps(&(copy.source.0..copy.source_end().0)));
        }
        // What lay on a hole was not hashed, but is to be found the next time.
        copies.len() < found
    }

    /// Returns the equal bytes in the log from any `source` on, as far as a block may refer to them: from `floor` on,
    /// and outside of the receiver's holes.
    pub(crate) fn equal_at(&self, source: LogOffset, floor: u64, bytes: &[u8]) -> usize {
        let end = self.holes().from(source.0).map_or(u64::MAX, |hole| hole.start).min(self.head());
        let Some(log) = self.bytes().filter(|_| (floor..end).contains(&source.0)) else { return 0 };
        let known = bytes.get(..(end - source.0).min(bytes.len() as u64) as usize).unwrap_or(bytes);
        let (first, second) = log.slices(source, known.len());
        let equal = common_prefix(known, first);
        if equal < first.len() {
            return equal;
        }
        equal + common_prefix(known.get(equal..).unwrap_or_default(), second)
    }

    /// Whether a block of this length, of which `copies` were found, need not be remembered anew.
    pub(crate) fn holds(&self, block_len: usize, copies: &[Copy]) -> bool {
        is_held(copies, block_len, self.lasting())
    }

    /// Remembers the block of the last search at the head, with its copies.
    pub(crate) fn remember(&mut self, block: &[u8], copies: &[Copy], searched: Searched) {
        let (at, lasting) = (LogOffset(self.head), self.lasting());
        self.content.write(at, block);
        match (&self.content, searched.matching, &mut self.max, &mut self.chunks) {
            (Content::Bytes(_), Matching::Max, Some(max), _) => {
                max.remember(&Search { block, at, floor: at, lasting, hint: None }, copies);
                if searched.reindex {
                    max.index_block(block, at);
                }
            }
            (_, Matching::Chunk, _, Some(chunks)) => chunks.remember(at),
            _ => {}
        }
        self.noise.note_written(self.head, block.len(), copies, searched.is_noise);
        self.head += block.len() as u64;
    }

    /// Refers to a range no more, about the two ends disagree. What it held is indexed anew when it comes again.
    ///
    /// Nothing goes through a table for that: a peer decides how often it is done.
    pub(crate) fn distrust(&mut self, range: Range64) {
        if let Some(chunks) = &mut self.chunks {
            chunks.forget(std::slice::from_ref(&range), LogOffset(self.head));
        }
        self.holes.insert(range);
    }

    /// Drops what would lead to ranges the two ends disagree about.
    pub(crate) fn forget(&mut self, ranges: &[Range64]) {
        if let Some(max) = &mut self.max {
            max.forget(ranges);
        }
        if let Some(chunks) = &mut self.chunks {
            chunks.forget(ranges, LogOffset(self.head));
        }
    }

    /// Log bytes that can be referred to.
    pub(crate) fn used(&self) -> u64 {
        self.head - self.floor(self.head).min(self.head)
    }

    /// Memory of what is kept of the log, as far as it is filled, and its tables.
    pub(crate) fn memory(&self) -> u64 {
        let max = self.max.as_ref().map_or(0, MaxMatch::memory);
        let chunks = self.chunks.as_ref().map_or(0, ChunkMatch::memory);
        let ghosts = self.ghosts.as_ref().map_or(0, Ghosts::memory);
        self.content.memory() + (max + chunks) as u64 + ghosts + self.noise.memory()
    }

    /// Shortens chunk hashes to so many bits, so different chunks are taken for one.
    #[cfg(test)]
    pub(crate) fn plant_collisions(&mut self, bits: u32) {
        self.chunks().plant_collisions(bits);
    }
}

/// Whether SAMPLEBYTE chooses the markers of blocks with this plan.
fn is_sampled(plan: &Plan) -> bool {
    plan.markers == MarkerKind::SampleByte
}
