//! Carrying on with a log: one found on disk, one whose memory was given back, and one the peer claims.

use super::{Content, RemoteLog, Table, is_sampled};
use crate::Plan;
use crate::contract::{LogWrite, SavedLog};
use crate::endre::{NOTHING_HERE, TOO_LITTLE};
use crate::log::samples::Samples;
use crate::log::{Log, LogOffset};
use crate::wire::{LogClaim, MAX_BLOCK, MAX_CLAIMED, Range64};

impl RemoteLog {
    /// Takes up a log found on disk; one of another capacity, or that leaves no room to go on, is left aside.
    ///
    /// It goes into the table of the plan's matching. Without bytes that is Chunk-Match's, and they are dropped.
    pub(crate) fn restore(&mut self, saved: SavedLog, plan: &Plan) {
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
        saved.ranges.iter().for_each(|range| self.noise.learn(&saved.log, range.clone()));
        self.content = match self.settings.keeps_bytes {
            true => Content::Bytes(saved.log),
            false => Content::Samples(samples),
        };
    }

    /// Gives the memory of the log and the table of Max-Match back. Chunk-Match's table stays: it cannot be made from
    /// other places than those where chunks began.
    pub(crate) fn release(&mut self) {
        if let (Content::Bytes(log), None) = (&mut self.content, self.released) {
            log.clear();
            self.max = None;
            self.released = Some(self.head);
        }
    }

    pub(crate) fn is_released(&self) -> bool {
        self.released.is_some()
    }

    /// Takes back the released log from `prepared`, and joins later content.
    pub(crate) fn restore_released(&mut self, prepared: Option<Self>) {
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
            // The table taken over was made by it.
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
        // Content on disk behind the old head was just copied; gaps before it are holes.
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

    /// The first bytes from an offset on at both ends, at most a block of them; none of a log without bytes. Memory
    /// beyond the capacity would lie on the newest bytes.
    pub(crate) fn piece(&self, from: u64) -> Option<LogWrite> {
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

    /// Carries on with the log the peer claims, if both have the same one; returns how many bytes of it.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn resume(&mut self, claim: Option<&LogClaim>) -> Result<u64, &'static str> {
        let Some(claim) = claim.filter(|claim| claim.start < claim.end) else {
            return Err(if self.is_new() { NOTHING_LEFT } else { NOTHING_THERE });
        };
        if self.is_new() {
            return Err(NOTHING_HERE);
        }
        let own = self.floor(self.head)..self.head;
        let common = claim.start.max(own.start)..claim.end.min(own.end);
        if claim.epoch != self.epoch {
            return Err(ANOTHER);
        }
        if common.is_empty() {
            return Err(TOO_LITTLE);
        }
        self.compare_samples(claim, &common)?;
        let head = self.head.max(claim.highest);
        self.base = common.start;
        self.head = head;
        // Whatever lies between the common part and the new head is not there, or not known, on one side.
        if common.end < head {
            let hole = common.end..head;
            self.forget(std::slice::from_ref(&hole));
            self.holes.insert(hole);
        }
        Ok(common.end - common.start)
    }

    /// Compares the logs of both ends; a claim without comparable samples is not believed.
    fn compare_samples(&self, claim: &LogClaim, common: &Range64) -> Result<(), &'static str> {
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
                return Err(ANOTHER);
            }
            compared += 1;
        }
        if compared == 0 { Err(TOO_LITTLE) } else { Ok(()) }
    }
}

/// The claim is of nothing.
const NOTHING_THERE: &str = "nothing is left of it at the peer";
/// That, and this end has nothing either.
const NOTHING_LEFT: &str = "nothing is left of it";
/// The ends remember something else.
const ANOTHER: &str = "the peer has another log";
