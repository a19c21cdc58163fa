//! The sender's idea of the receiver's log: what is in it, and how to find it [EndRE §4].

use super::super::chunks::ChunkMatch;
use super::super::matcher::{Copy, MatchParams, MaxMatch, Search, is_held, lasting};
use super::SenderConfig;
use super::ghosts::Ghosts;
use super::headroom::Headroom;
use super::sampling::Sampling;
use crate::cache::samples::Samples;
use crate::cache::{Curve, Log, LogOffset, RangeSet};
use crate::contract::{LogWrite, SavedLog};
use crate::digest::log_digest;
use crate::wire::{LogClaim, LogHeld, MAX_BLOCK, MAX_CLAIMED, Range64, Sample};
use crate::{MarkerKind, Matching, Plan};

/// One direction's log as the sending half knows it.
pub(super) struct Emulation {
    settings: Settings,
    /// What the peer has room for, too: what both ends agreed on.
    capacity: u64,
    /// The capacity of the log and its tables as they are made.
    made_for: u64,
    content: Content,
    /// The tables, made when a plan first asks for them.
    max: Option<MaxMatch>,
    chunks: Option<ChunkMatch>,
    sampling: Sampling,
    /// How the block that was last searched was searched.
    searched: Matching,
    epoch: u64,
    /// First offset of the epoch that may be referred to.
    base: u64,
    head: u64,
    /// Ranges below the head that the receiver does not have, or this end lost.
    holes: RangeSet,
    /// The bytes of log that this end has memory for.
    limit: u64,
    /// What the receiver said last of what it holds; a serial number of 0: nothing.
    held: LogHeld,
    headroom: Headroom,
    curve: Curve,
    /// Made with the table of Max-Match.
    ghosts: Option<Ghosts>,
    /// The head when the log's memory was given back; `None` while it is there.
    released: Option<u64>,
    /// Whether the block that was last searched is to be indexed as a whole once it is in the log.
    reindex: bool,
}

/// What an [`Emulation`] needs to know of its sender's configuration.
#[derive(Clone, Copy)]
pub(super) struct Settings {
    params: MatchParams,
    max_in_flight: Option<u64>,
    keeps_bytes: bool,
    seed: u64,
}

/// The bound on log bytes that are not acknowledged, by the size of the log.
#[derive(Clone, Copy)]
struct Bound {
    capacity: u64,
    /// That of the whole log: what is set, and no more than half of the log that both ends agreed on, or a quarter of
    /// it.
    whole: u64,
}

/// What is kept of the log's content.
enum Content {
    Bytes(Log),
    /// Enough to judge a peer's claim by, and no more.
    Samples(Samples),
}

/// One of the two tables.
enum Table<'a> {
    Max(&'a mut MaxMatch),
    Chunk(&'a mut ChunkMatch),
}

impl Settings {
    pub(super) const fn of(config: &SenderConfig) -> Self {
        let &SenderConfig { params, max_in_flight, keeps_bytes, digest_seed: seed, .. } = config;
        Self { params, max_in_flight, keeps_bytes, seed }
    }
}

impl Bound {
    /// Of a log of `limit` bytes it is a quarter, or the share that it is of the whole log if that is more.
    fn of(self, limit: u64) -> u64 {
        let Self { capacity, whole } = self;
        // A division for a bound that is set above a quarter only: it is asked for with each copy.
        let share = match whole > capacity / 4 {
            true => u128::from(whole) * u128::from(limit) / u128::from(capacity.max(1)),
            false => 0,
        };
        whole.min((limit / 4).max(share as u64))
    }
}

impl Content {
    fn new(capacity: u64, keeps_bytes: bool) -> Self {
        match keeps_bytes {
            true => Self::Bytes(Log::new(capacity as usize)),
            false => Self::Samples(Samples::new(capacity)),
        }
    }

    fn write(&mut self, at: LogOffset, block: &[u8]) {
        match self {
            Self::Bytes(log) => log.write(at, block),
            Self::Samples(samples) => samples.note(at.0, block),
        }
    }

    /// The digest of the part of the log that the sample is of, if it is known.
    fn digest(&self, sample: &Sample) -> Option<u64> {
        match self {
            Self::Bytes(log) => Some(log_digest(log, sample.start, sample.len as usize)),
            Self::Samples(samples) => samples.digest(sample.start, u64::from(sample.len)),
        }
    }

    fn memory(&self) -> u64 {
        match self {
            Self::Bytes(log) => log.memory(),
            Self::Samples(samples) => samples.memory() as u64,
        }
    }
}

impl Emulation {
    /// Starts with an empty log and its first epoch. `max_in_flight` is by default a quarter of the log.
    pub(super) fn new(capacity: u64, settings: Settings) -> Self {
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
            searched: Matching::Max,
            epoch: 1,
            base: 0,
            head: 0,
            holes: RangeSet::default(),
            limit: capacity,
            held: LogHeld::default(),
            headroom: Headroom::new(),
            curve: Curve::default(),
            ghosts: None,
            released: None,
            reindex: false,
        }
    }

    /// Takes up a log that was found on disk; one of another capacity, or that leaves no room to go on, is left aside.
    ///
    /// It goes into the table of the plan's matching. Without bytes that is Chunk-Match's, and they are dropped.
    pub(super) fn restore(&mut self, saved: SavedLog, plan: &Plan) {
        let ends = saved.ranges.iter().next().zip(saved.ranges.iter().next_back());
        let fits = |(_, last): &(Range64, Range64)| {
            saved.log.capacity() == self.made_for && saved.epoch.max(last.end) <= MAX_CLAIMED
        };
        let Some((first, last)) = ends.filter(fits) else { return };
        self.epoch = saved.epoch;
        (self.base, self.head) = (first.start, last.end);
        let mut holes = Vec::new();
        saved.ranges.missing(&(first.start..last.end), &mut holes);
        holes.into_iter().for_each(|hole| self.holes.insert(hole));
        let ranges = || saved.ranges.iter().map(|range| LogOffset(range.start)..LogOffset(range.end));
        if is_sampled(plan) {
            ranges().for_each(|range| self.sampling.learn(plan.period as usize, &saved.log, range));
        }
        let mut samples = Samples::new(self.made_for);
        match self.prepare(plan) {
            Table::Max(max) => ranges().for_each(|range| max.index(&saved.log, range)),
            Table::Chunk(chunks) => ranges().for_each(|range| {
                chunks.index(&saved.log, range, |at, piece| samples.note(at.0, piece));
            }),
        }
        self.content = match self.settings.keeps_bytes {
            true => Content::Bytes(saved.log),
            false => Content::Samples(samples),
        };
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

    /// Goes on with another capacity, and with what of the log lies within both: what is further back is not referred
    /// to any more. The log and its tables stay as they were made; returns whether they do for so much.
    pub(super) fn resize(&mut self, capacity: u64) -> bool {
        let stays = capacity <= self.made_for;
        if stays {
            self.base = self.base.max(self.head.saturating_sub(capacity.min(self.capacity)));
            self.capacity = capacity.max(1);
            (self.ghosts, self.curve) = (None, Curve::default());
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
    pub(super) fn clear(&mut self) {
        match &mut self.content {
            Content::Bytes(log) => log.clear(),
            Content::Samples(samples) => *samples = Samples::new(self.made_for),
        }
        (self.max, self.chunks, self.ghosts) = (None, None, None);
        self.sampling = Sampling::new(&self.settings.params);
        self.base = self.head;
        self.holes.clear();
        self.released = None;
    }

    /// Gives the memory of the log and the table of Max-Match back. Chunk-Match's table stays: it cannot be made from
    /// other places than those where chunks began.
    pub(super) fn release(&mut self) {
        if let (Content::Bytes(log), None) = (&mut self.content, self.released) {
            log.clear();
            self.max = None;
            self.released = Some(self.head);
        }
    }

    pub(super) fn is_released(&self) -> bool {
        self.released.is_some()
    }

    /// Takes back what was released, as `prepared` has it, and joins what was remembered since.
    pub(super) fn restore_released(&mut self, prepared: Option<Self>) {
        let Some(until) = self.released.take() else { return };
        let found = prepared.filter(|found| {
            (found.epoch, found.made_for) == (self.epoch, self.made_for) && found.base < until
        });
        let Some(Self { content: Content::Bytes(mut log), max, chunks, sampling, base, head, holes, .. }) =
            found
        else {
            self.base = self.base.max(until);
            return;
        };
        if max.is_some() || self.chunks.is_none() {
            // The table that is taken over was made by it.
            self.sampling = sampling;
        }
        log.set_limit(self.limit());
        // Of what came since, memory may have become too little meanwhile.
        let since = self.bytes().map_or(self.head, |own| own.oldest().0).clamp(until, self.head);
        self.copy_since(since, &mut log);
        if let Some(mut max) = max {
            max.index(&log, LogOffset(since)..LogOffset(self.head));
            self.max = Some(max);
        }
        self.chunks = self.chunks.take().or(chunks);
        self.content = Content::Bytes(log);
        self.base = self.base.max(base);
        // What was on disk behind the old head is what was just copied; before it, what was not there is a hole.
        let old = holes.iter().map(|hole| hole.start..hole.end.min(until));
        old.chain([head.min(until)..until, until..since]).for_each(|hole| self.holes.insert(hole));
        self.apply_limits();
    }

    /// Copies everything from an offset to the head into another log.
    fn copy_since(&self, offset: u64, log: &mut Log) {
        let Content::Bytes(own) = &self.content else { return };
        let mut piece = Vec::with_capacity(MAX_BLOCK);
        for at in (offset..self.head).step_by(MAX_BLOCK) {
            piece.clear();
            own.copy_to(LogOffset(at), (self.head - at).min(MAX_BLOCK as u64) as usize, &mut piece);
            log.write(LogOffset(at), &piece);
        }
    }

    /// The first bytes from an offset on that both ends have, at most a block of them; none of a log without bytes.
    /// What is in memory beyond the capacity would lie on the newest bytes.
    pub(super) fn piece(&self, from: u64) -> Option<LogWrite> {
        let log = self.bytes().filter(|_| !self.is_released())?;
        let oldest = log.oldest().0.max(self.head.saturating_sub(self.capacity));
        let mut start = from.max(self.base).max(oldest);
        let mut end = self.head;
        while let Some(hole) = self.holes.from(start) {
            if hole.start > start {
                end = end.min(hole.start);
                break;
            }
            start = hole.end;
        }
        LogWrite::of(log, self.epoch, start..end)
    }

    /// Sets how many bytes of log this end has memory for.
    pub(super) fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
        self.apply_limits();
    }

    /// Takes what the receiver says of what it holds; what is older than what it said before is passed over.
    pub(super) fn handle_held(&mut self, held: LogHeld) {
        if held.serial <= self.held.serial {
            return;
        }
        self.held = held;
        if held.epoch == self.epoch {
            self.base = self.base.max(held.oldest.min(self.head));
        }
        self.apply_limits();
    }

    /// A new instance of the receiver has said nothing yet, and nothing is under way to it.
    pub(super) fn forget_held(&mut self) {
        self.held = LogHeld::default();
        self.headroom.forget_ends();
        self.apply_limits();
    }

    fn apply_limits(&mut self) {
        let limit = self.limit();
        if let Content::Bytes(log) = &mut self.content {
            log.set_limit(limit);
            if self.released.is_none() {
                // More memory later does not bring back what went.
                self.base = self.base.max(log.oldest().0.min(self.head));
            }
        }
    }

    /// The bytes of log in use: *W* of the [rules](crate::cache).
    pub(super) fn limit(&self) -> u64 {
        let told = if self.held.serial > 0 { self.held.limit } else { u64::MAX };
        self.limit.min(told).min(self.capacity)
    }

    /// What the log saves, by its size.
    pub(super) fn curve(&self) -> Curve {
        self.curve
    }

    pub(super) fn curve_mut(&mut self) -> &mut Curve {
        &mut self.curve
    }

    /// Starts an epoch: nothing that was remembered may be referred to any more.
    pub(super) fn start_epoch(&mut self, epoch: u64) {
        self.epoch = epoch;
        self.base = self.head;
        self.holes.clear();
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(super) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// How repeats are looked for in a block with this plan.
    pub(super) fn matching(&self, plan: &Plan) -> Matching {
        if self.settings.keeps_bytes { plan.matching } else { Matching::Chunk }
    }

    pub(super) fn head(&self) -> u64 {
        self.head
    }

    /// The bytes of the log, if they are kept.
    pub(super) fn bytes(&self) -> Option<&Log> {
        match &self.content {
            Content::Bytes(log) => Some(log),
            Content::Samples(_) => None,
        }
    }

    /// Ranges below the head that the receiver does not have.
    pub(super) fn holes(&self) -> &RangeSet {
        &self.holes
    }

    /// Whether nothing was remembered in this epoch.
    pub(super) fn is_new(&self) -> bool {
        self.head == self.base
    }

    /// The bound on log bytes that are not acknowledged.
    fn max_in_flight(&self) -> u64 {
        self.bound().of(self.limit())
    }

    fn bound(&self) -> Bound {
        let (capacity, set) = (self.capacity, self.settings.max_in_flight);
        Bound { capacity, whole: set.unwrap_or(capacity / 4).min(capacity / 2) }
    }

    /// Takes note of what will be in flight with the next block, before it is encoded.
    pub(super) fn note_next(&mut self, in_flight: u64) {
        let most = self.max_in_flight();
        self.headroom.note(in_flight, self.head, most);
    }

    /// Takes note of what a block refers to that is sent, while blocks from `oldest` on are under way.
    pub(super) fn note_sent(&mut self, seq: u64, sources: &[Range64], oldest: u64) {
        if let Some(lowest) = sources.iter().map(|source| source.start).min() {
            self.headroom.set_end(seq, lowest.saturating_add(self.limit()), oldest);
        }
    }

    /// Rule 2: whether a block may be remembered with which so much will be in flight, of blocks from `oldest` on.
    pub(super) fn has_room(&self, in_flight: u64, len: u64, oldest: u64) -> bool {
        in_flight <= self.max_in_flight() && self.head + len <= self.headroom.end(oldest)
    }

    /// Rule 3: the first offset that a block encoded at `from` may refer to.
    pub(super) fn floor(&self, from: u64) -> u64 {
        from.saturating_sub(self.reach()).max(self.base.max(self.released.unwrap_or(0)))
    }

    /// How far back blocks refer into a full log.
    fn reach(&self) -> u64 {
        self.headroom.reach(self.limit(), self.max_in_flight())
    }

    /// What lies before it had better be remembered anew when it is found.
    fn lasting(&self) -> LogOffset {
        lasting(LogOffset(self.head), self.reach())
    }

    /// Replaces `copies` by the parts of a block that the log has, from `floor` on.
    pub(super) fn find(
        &mut self,
        plan: &Plan,
        block: &[u8],
        floor: u64,
        hint: Option<LogOffset>,
        copies: &mut Vec<Copy>,
    ) {
        let (at, lasting) = (LogOffset(self.head), self.lasting());
        let search = Search { block, at, floor: LogOffset(floor), lasting, hint };
        self.searched = self.matching(plan);
        self.prepare(plan);
        match (&self.content, self.searched, &mut self.max, &mut self.chunks) {
            (Content::Bytes(log), Matching::Max, Some(max), _) => max.find(log, &search, copies),
            (_, Matching::Chunk, _, Some(chunks)) => chunks.find(&search, copies),
            _ => copies.clear(),
        }
        if is_sampled(plan) {
            self.sampling.note(plan.period as usize, block, copies);
        }
        self.note_ghosts(floor, copies);
        self.drop_holes(copies);
    }

    /// Counts what a larger log would have found.
    fn note_ghosts(&mut self, floor: u64, copies: &[Copy]) {
        let (capacity, period, bound) = (self.capacity, self.settings.params.period, self.bound());
        let (Matching::Max, Some(max)) = (self.searched, &self.max) else { return };
        let ghosts = self.ghosts.get_or_insert_with(|| Ghosts::new(capacity, period));
        let reach = |size| self.headroom.reach(size, bound.of(size));
        ghosts.note(max.looked_up(), copies, self.head, floor, &mut self.curve, reach);
    }

    /// Drops the copies that touch what the receiver does not have.
    fn drop_holes(&mut self, copies: &mut Vec<Copy>) {
        self.reindex = false;
        let bound = self.bound();
        let reach = |size| self.headroom.reach(size, bound.of(size));
        for copy in &*copies {
            self.curve.add(self.head.saturating_sub(copy.source.0), u64::from(copy.len), reach);
        }
        if !self.holes.is_empty() {
            // Not by the floor, which goes down again when a log is taken back or gets more memory.
            let lasting = self.base.max(self.head.saturating_sub(self.capacity));
            self.holes.remove_below(lasting);
            let (holes, found) = (&self.holes, copies.len());
            copies.retain(|copy| !holes.overlaps(&(copy.source.0..copy.source_end().0)));
            // What lay on a hole was not hashed, but is to be found the next time.
            self.reindex = copies.len() < found;
        }
    }

    /// Whether a block of this length, of which `copies` were found, need not be remembered anew.
    pub(super) fn holds(&self, block_len: usize, copies: &[Copy]) -> bool {
        is_held(copies, block_len, self.lasting())
    }

    /// Remembers the block that was last searched, at the head; `copies` are those that were found.
    pub(super) fn remember(&mut self, block: &[u8], copies: &[Copy]) {
        let (at, lasting) = (LogOffset(self.head), self.lasting());
        self.content.write(at, block);
        match (&self.content, self.searched, &mut self.max, &mut self.chunks) {
            (Content::Bytes(_), Matching::Max, Some(max), _) => {
                max.remember(&Search { block, at, floor: at, lasting, hint: None }, copies);
                if self.reindex {
                    max.index_block(block, at);
                }
            }
            (_, Matching::Chunk, _, Some(chunks)) => chunks.remember(at),
            _ => {}
        }
        self.head += block.len() as u64;
    }

    /// Drops what would lead to ranges that the two ends disagree about.
    pub(super) fn forget(&mut self, ranges: &[Range64]) {
        if let Some(max) = &mut self.max {
            max.forget(ranges);
        }
        if let Some(chunks) = &mut self.chunks {
            chunks.forget(ranges, LogOffset(self.head));
        }
    }

    /// Carries on with the log that the peer claims, if both have the same one; returns how many bytes of it.
    pub(super) fn resume(&mut self, claim: &LogClaim) -> Option<u64> {
        let own = self.floor(self.head)..self.head;
        let common = claim.start.max(own.start)..claim.end.min(own.end);
        if claim.epoch != self.epoch || common.is_empty() || !self.samples_match(claim, &common) {
            return None;
        }
        let head = self.head.max(claim.highest);
        self.base = common.start;
        self.head = head;
        // Whatever lies between the common part and the new head is not there, or not known, on one side.
        if common.end < head {
            let hole = common.end..head;
            self.forget(std::slice::from_ref(&hole));
            self.holes.insert(hole);
        }
        Some(common.end - common.start)
    }

    /// Compares what both ends have; a claim of which nothing can be compared is not believed.
    fn samples_match(&self, claim: &LogClaim, common: &Range64) -> bool {
        let mut compared = 0;
        for sample in &claim.samples {
            let end = sample.start.saturating_add(u64::from(sample.len));
            if sample.start < common.start || end > common.end {
                continue;
            }
            // Where this end has nothing, or noted nothing, nothing can be said.
            if self.holes.overlaps(&(sample.start..end)) {
                continue;
            }
            let Some(digest) = self.content.digest(sample) else { continue };
            if digest != sample.digest {
                return false;
            }
            compared += 1;
        }
        compared > 0
    }

    /// Log bytes that can be referred to.
    pub(super) fn used(&self) -> u64 {
        self.head - self.floor(self.head).min(self.head)
    }

    /// Memory of what is kept of the log, as far as it is filled, and its tables.
    pub(super) fn memory(&self) -> u64 {
        let max = self.max.as_ref().map_or(0, MaxMatch::memory);
        let chunks = self.chunks.as_ref().map_or(0, ChunkMatch::memory);
        let ghosts = self.ghosts.as_ref().map_or(0, Ghosts::memory);
        self.content.memory() + (max + chunks) as u64 + ghosts
    }

    /// Lets small logs leave as small a part free for what is in flight as larger ones do.
    #[cfg(test)]
    pub(super) fn set_least_in_flight(&mut self, bytes: u64) {
        self.headroom.set_least(bytes);
    }

    /// Shortens chunk hashes to so many bits, so that different chunks are taken for one.
    #[cfg(test)]
    pub(super) fn plant_collisions(&mut self, bits: u32) {
        self.chunks().plant_collisions(bits);
    }
}

/// Whether SAMPLEBYTE chooses the markers of blocks with this plan.
fn is_sampled(plan: &Plan) -> bool {
    plan.markers == MarkerKind::SampleByte
}
