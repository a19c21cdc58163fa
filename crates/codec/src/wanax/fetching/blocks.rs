//! The blocks whose chunks are being fetched.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::reads::Progress;
use crate::Now;
use crate::endre::matcher::Copy;
use crate::transfer::Head;
use crate::transfer::timed::{Due, Timed};
use crate::wanax::NameKey;
use crate::wanax::gain::Trial;
use crate::wire::{ChunkReason, NameEntry};

/// A block whose chunks are being fetched.
pub(crate) struct Fetch {
    pub(crate) head: Head,
    pub(crate) copies: Vec<Copy>,
    pub(crate) literals: Vec<u8>,
    pub(crate) entries: Vec<NameEntry>,
    /// The chunks of the entries, as far as they are there.
    pub(crate) chunks: Vec<Option<Bytes>>,
    /// How many are not.
    pub(crate) wanting: usize,
    /// Missing blocks, and the entries of their chunks.
    pub(crate) awaited: BTreeMap<u64, Vec<u32>>,
    /// What names were made with, if there is a store to ask.
    pub(crate) key: Option<NameKey>,
    /// Tickets of unanswered questions for places, and their entries.
    pub(crate) peeks: BTreeMap<u64, Vec<u32>>,
    /// Tickets of reads that were not answered, by entry.
    pub(crate) reads: BTreeMap<u64, u32>,
    /// Entries that were asked for over the network and are not there.
    pub(crate) asked: BTreeSet<u32>,
    /// Those of them for which the request is to be sent yet.
    pub(crate) due: BTreeMap<u32, ChunkReason>,
    /// When reads take longer than they should.
    pub(crate) read_deadline: Option<Now>,
    /// How far the store was when its reads were planned, or were last given more time.
    pub(crate) progress: Option<Progress>,
    /// What was shed of the own disk, to be looked at when the block is complete.
    pub(crate) trial: Option<Trial>,
    pub(crate) patience: Now,
    /// When to repeat the request, and how much later the time after.
    pub(crate) ask_deadline: Now,
    pub(crate) ask_interval: Now,
}

/// Such blocks.
pub(crate) type Blocks = Timed<Fetch>;

impl Blocks {
    /// Returns the blocks waiting for the store.
    pub(crate) fn reading(&self) -> Vec<u64> {
        self.such(|fetch| !fetch.reads.is_empty())
    }

    /// Returns the blocks for which something was asked over the network.
    pub(crate) fn asking(&self) -> Vec<u64> {
        self.such(|fetch| !fetch.asked.is_empty())
    }
}

impl Due for Fetch {
    fn due(&self) -> Option<Now> {
        let asked = Some(self.ask_deadline).filter(|_| !self.asked.is_empty());
        [self.read_deadline, asked].into_iter().flatten().min()
    }
}

impl Fetch {
    /// Gives what was asked of the store this long at least.
    pub(crate) fn wait_for_reads(&mut self, deadline: Now) {
        self.read_deadline = Some(self.read_deadline.map_or(deadline, |before| before.max(deadline)));
    }

    pub(crate) fn size(&self) -> usize {
        size_of_fetch(&self.copies, &self.literals, &self.entries)
    }

    /// Has all that was asked for asked for again.
    pub(crate) fn repeat(&mut self) {
        for &index in &self.asked {
            self.due.entry(index).or_insert(ChunkReason::Shed);
        }
    }

    /// Takes what is to be asked for now, all with the same reason. `expected` says how long the answer takes, as far as
    /// is known.
    pub(crate) fn take_due(&mut self, expected: Now, now: Now) -> Option<(ChunkReason, Vec<u32>)> {
        let (_, &reason) = self.due.first_key_value()?;
        let same = self.due.extract_if(.., |_, other| *other == reason);
        let indexes = same.map(|(index, _)| index).collect();
        self.ask_deadline = now + self.ask_interval + expected.saturating_mul(2).min(LONGEST_ASK);
        self.ask_interval = (self.ask_interval * 2).min(LONGEST_ASK);
        Some((reason, indexes))
    }
}

/// The memory of a block once all its chunks are there.
pub(crate) fn size_of_fetch(copies: &[Copy], literals: &[u8], entries: &[NameEntry]) -> usize {
    let chunks: usize = entries.iter().map(|entry| entry.len as usize).sum();
    let each = size_of::<NameEntry>() + size_of::<Option<Bytes>>() + ENTRY;
    size_of::<Fetch>() + literals.len() + size_of_val(copies) + entries.len() * each + chunks
}

/// Memory of tickets and requests beside, about.
const ENTRY: usize = 128;
const LONGEST_ASK: Now = Now::from_secs(30);
