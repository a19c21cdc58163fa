//! The queue of blocks without room to fetch their chunks.
//!
//! A block being fetched takes the memory of all its chunks, and without them a hundredth of that. If many flows wait
//! for one disk, a request for the whole rest would send chunks of the store.

use std::collections::BTreeMap;

use super::blocks::size_of_fetch;
use super::{Fetching, Wanted};
use crate::Now;
use crate::endre::matcher::Copy;
use crate::log::Arrived;
use crate::transfer::Head;
use crate::transfer::by_flow::ByFlow;
use crate::wanax::NameKey;
use crate::wire::{FlowId, NameEntry};

/// Such blocks by sequence number: the oldest is fetched first.
#[derive(Default)]
pub(crate) struct Queue {
    blocks: BTreeMap<u64, Queued>,
    by_flow: ByFlow,
    bytes: usize,
}

/// A block as it came.
pub(crate) struct Queued {
    head: Head,
    copies: Vec<Copy>,
    literals: Vec<u8>,
    entries: Vec<NameEntry>,
}

/// What there is room for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// The most bytes of blocks being fetched, with all their chunks: memory counts, and blocks may be short.
    pub(crate) fetching: usize,
    /// The bytes of a block beyond that, if it is older than all of them: they may wait for its content.
    pub(crate) oldest: usize,
    /// The most bytes of blocks in the queue.
    pub(crate) queued: usize,
    /// The most reads of a disk at the store at a time, however fast it is: the store turns away any excess, to be
    /// requested over the network.
    pub(crate) reads: usize,
}

impl Room {
    /// Returns the reads of a disk at the store at a time, for this time of each: enough for [`HANDS_FULL`], since
    /// reads at the store are not planned again. For a store of no time, or of unknown time, as many as it has `done`
    /// since nothing waited.
    pub(crate) fn reads_of(&self, service_time: Now, done: usize) -> usize {
        let for_a_while = HANDS_FULL.as_micros().checked_div(service_time.as_micros());
        let reads = for_a_while.map_or(done, |reads| usize::try_from(reads).unwrap_or(usize::MAX));
        reads.max(LEAST_READS).min(self.reads)
    }
}

const HANDS_FULL: Now = Now::from_millis(500);
/// Fewer leave a store with several readers nothing to choose from.
const LEAST_READS: usize = 16;

impl Default for Room {
    fn default() -> Self {
        Self { fetching: 32 << 20, oldest: 1 << 20, queued: 16 << 20, reads: 512 }
    }
}

impl Queue {
    /// Takes a block, of `most` bytes for all; returns false if there is no room.
    fn push(&mut self, wanted: &Wanted<'_>, most: usize) -> bool {
        let Wanted { head, copies, literals, entries, .. } = *wanted;
        let queued =
            Queued { head, copies: copies.to_vec(), literals: literals.to_vec(), entries: entries.to_vec() };
        let _ = self.take(head.seq);
        if self.bytes + queued.size() > most {
            return false;
        }
        self.bytes += queued.size();
        self.by_flow.insert(&head);
        self.blocks.insert(head.seq, queued);
        true
    }

    pub(crate) fn take(&mut self, seq: u64) -> Option<Queued> {
        let queued = self.blocks.remove(&seq)?;
        self.bytes -= queued.size();
        self.by_flow.remove(&queued.head);
        Some(queued)
    }

    /// The oldest.
    fn first(&self) -> Option<u64> {
        self.blocks.first_key_value().map(|(&seq, _)| seq)
    }

    pub(crate) fn contains(&self, seq: u64) -> bool {
        self.blocks.contains_key(&seq)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn heads(&self) -> impl Iterator<Item = &Head> {
        self.blocks.values().map(|queued| &queued.head)
    }

    /// Whether one is of a flow and begins before an offset.
    pub(crate) fn holds(&self, flow: FlowId, before: u64) -> bool {
        self.by_flow.begins(flow, before)
    }
}

impl Queued {
    fn size(&self) -> usize {
        size_of::<Self>()
            + size_of_val(&self.copies[..])
            + self.literals.len()
            + size_of_val(&self.entries[..])
    }

    fn wanted<'a>(&'a self, key: Option<&'a NameKey>) -> Wanted<'a> {
        let Self { head, copies, literals, entries } = self;
        Wanted { head: *head, copies, literals, entries, key }
    }
}

impl Fetching {
    /// Fetches a block's named chunks, at once or when there is room; returns false if there is none for the queue
    /// either.
    pub(crate) fn start(&mut self, wanted: &Wanted<'_>, arrived: &Arrived, patience: Now, now: Now) -> bool {
        let is_next = self.queue.first().is_none_or(|first| wanted.head.seq < first);
        if is_next && self.has_room(wanted) {
            self.begin(wanted, arrived, patience, now);
            return true;
        }
        let has_room = self.queue.push(wanted, self.room.queued);
        self.note_wanted(wanted.head.seq);
        has_room
    }

    /// Notes whether a block waits for room others wait for, after either has changed.
    pub(crate) fn note_wanted(&mut self, seq: u64) {
        if self.queue.contains(seq) && self.awaited.contains(seq) {
            self.wanted.insert(seq);
        } else {
            self.wanted.remove(&seq);
        }
    }

    /// Takes a block waiting for room.
    pub(crate) fn take_queued(&mut self, seq: u64) -> Option<Queued> {
        let queued = self.queue.take(seq);
        self.note_wanted(seq);
        queued
    }

    /// Starts as many of the blocks waiting for room as there is room for. Returns one to be asked for whole, taking no
    /// room here, if all that are fetched wait for such and nothing makes room.
    pub(crate) fn start_queued(
        &mut self,
        key: Option<&NameKey>,
        arrived: &Arrived,
        patience: Now,
        now: Now,
    ) -> Option<Head> {
        while let Some((&seq, queued)) = self.queue.blocks.first_key_value()
            && self.has_room(&queued.wanted(key))
            && let Some(queued) = self.take_queued(seq)
        {
            self.begin(&queued.wanted(key), arrived, patience, now);
        }
        let seq = self.wanted.first().copied().filter(|_| self.is_stuck())?;
        self.take_queued(seq).map(|queued| queued.head)
    }

    /// Whether all that are fetched wait for other blocks, so nothing makes room.
    pub(crate) fn is_stuck(&self) -> bool {
        self.reads.len() == 0 && self.asked_bytes == 0
    }

    /// The oldest block of all waits for none waiting here, so with it something goes on.
    fn has_room(&self, wanted: &Wanted<'_>) -> bool {
        let Some(oldest) = self.blocks.first() else { return true };
        let more = if wanted.head.seq < oldest { self.room.oldest } else { 0 };
        let bytes = size_of_fetch(wanted.copies, wanted.literals, wanted.entries);
        self.bytes + bytes <= self.room.fetching + more
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_has_its_hands_full_for_half_a_second() {
        let room = Room::default();
        let ms = Now::from_millis;
        let reads = [(ms(100), 0), (ms(10), 600), (ms(2), 0), (Now::from_micros(100), 0)];
        assert_eq!(reads.map(|(time, done)| room.reads_of(time, done)), [16, 50, 250, 512]);
        // Nothing is known of its time, or it takes none.
        assert_eq!([0, 16, 100, 1000].map(|done| room.reads_of(Now::ZERO, done)), [16, 16, 100, 512]);
    }
}
