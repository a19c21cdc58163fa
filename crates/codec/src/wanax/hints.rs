//! Hints: which chunks the peer's store is likely to have, as the sending half remembers [Wanax §3.3].
//!
//! A hint is no more than a tag and a time. Chunks of a size have a table of their own: a hint can stand at eight
//! places and displaces the oldest there. Large chunks are remembered for long, and small ones while they are recent,
//! at any mix. Tables go by length and not by level, since the same chunk may be of one level in one block and of
//! another in the next.

mod probes;
mod saving;
#[cfg(test)]
mod tests;

use std::ops::Range;

use oncewire_fingerprint::prefetch_read;
use oncewire_sys::Pages;
use twox_hash::XxHash3_64;

use self::probes::Probes;
pub use self::saving::{SavePosition, SavedPiece, save_by};

/// What is known of one store.
#[derive(Clone, Debug)]
pub struct Hints {
    /// The store's id; `None` until one is met.
    store: Option<u64>,
    tables: [Table; CLASSES],
    probes: Probes,
    /// Nothing put before this time is there any more; in seconds.
    oldest_secs: u64,
    /// Counts up whenever all is forgotten.
    generation: u64,
    changes: u64,
}

/// Why saved hints are not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HintsError {
    /// The bytes are not saved hints, or of another version.
    #[error("not hints of this version")]
    Foreign,
    /// The checksum does not match, or something is missing.
    #[error("damaged hints")]
    Damaged,
    /// They were saved by a table of another size.
    #[error("hints of another hint_memory")]
    OtherSize,
}

/// Of one class of lengths: buckets of [`WAYS`] entries, each 40 bits of tag and 24 bits of time; 0 is none.
#[derive(Clone, Debug)]
struct Table {
    entries: Pages<u64>,
    used: u64,
}

impl Hints {
    /// Starts without hints, in about `memory` bytes, 4 KiB at least: half of them for chunks of 16 KiB and more, a
    /// quarter for those of 2 KiB and more, an eighth each for those of 256 bytes and more, and for the rest.
    pub fn new(memory: u64) -> Self {
        let share = |divisor| Table::new(memory.max(LEAST_MEMORY) / divisor);
        Self {
            store: None,
            tables: [share(2), share(4), share(8), share(8)],
            probes: Probes::default(),
            oldest_secs: 0,
            generation: 0,
            changes: 0,
        }
    }

    /// Takes up what [`Self::save`] returned.
    ///
    /// # Errors
    /// The fault in the bytes; start without hints.
    pub fn restore(memory: u64, saved: &[u8]) -> Result<Self, HintsError> {
        let content = saved.strip_prefix(MAGIC).ok_or(HintsError::Foreign)?;
        let (content, checksum) = content.split_last_chunk::<8>().ok_or(HintsError::Damaged)?;
        if u64::from_le_bytes(*checksum) != XxHash3_64::oneshot(content) {
            return Err(HintsError::Damaged);
        }
        let mut hints = Self::new(memory);
        let mut words = content.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_le_bytes));
        let mut word = || words.next().ok_or(HintsError::Damaged);
        hints.store = (word()? != 0).then_some(word()?);
        hints.oldest_secs = word()?;
        for table in &mut hints.tables {
            if word()? != table.entries.len() as u64 {
                return Err(HintsError::OtherSize);
            }
            for bucket in table.entries.chunks_exact_mut(WAYS) {
                let occupied = word()?;
                let ways = bucket.iter_mut().zip(0..).filter(|(_, way)| occupied >> way & 1 != 0);
                for (entry, _) in ways {
                    *entry = word()?;
                    table.used += 1;
                }
            }
        }
        hints.probes = Probes::restore(|| words.next())?;
        Ok(hints)
    }

    /// Returns all that is known at once, as [`save_by`] does.
    pub fn save(&self) -> Vec<u8> {
        save_by(|at| Some(self.save_piece(at))).unwrap_or_default()
    }

    /// Says which store the peer has: hints of another one are forgotten. Without a store they are kept, for one may
    /// come back.
    pub fn bind(&mut self, store: u64) {
        if self.store != Some(store) {
            self.clear();
            self.store = Some(store);
        }
    }

    /// Forgets everything but the store's id.
    pub fn clear(&mut self) {
        self.generation += 1;
        self.changes += 1;
        self.tables.iter_mut().for_each(Table::clear);
        self.probes = Probes::default();
        self.oldest_secs = 0;
    }

    /// Says that nothing put before a time is there any more.
    pub fn set_oldest(&mut self, secs: u64) {
        self.oldest_secs = secs;
    }

    /// Returns whether the store is likely to have a chunk.
    pub fn lookup(&self, tag: u64, len: u32, now_secs: u64) -> bool {
        let found = self.table(class(len)).find(tag);
        found.is_some_and(|entry| !self.is_stale(entry, now_secs))
    }

    /// Returns whether an acknowledgement taught the hint of a chunk, for certain: it stands outside the places for
    /// chunks others [told](Self::insert_told) of.
    pub fn is_own(&self, tag: u64, len: u32) -> bool {
        let way = self.table(class(len)).way(tag);
        way.is_some_and(|way| way < TOLD.start)
    }

    /// Asks for the memory that [`Self::lookup`] and [`Self::insert`] will look at; it is all over the tables.
    pub fn prefetch(&self, chunk: PackedTag) {
        let table = self.table(chunk.class());
        prefetch_read(&table.entries, table.bucket(chunk.0).start);
    }

    /// Notes that the store was given chunks, as [`Self::insert`] does for one.
    pub fn insert_all(&mut self, chunks: &[PackedTag], now_secs: u64) {
        for some in chunks.chunks(AHEAD) {
            some.iter().for_each(|&chunk| self.prefetch(chunk));
            some.iter().for_each(|&chunk| self.insert(chunk, now_secs));
        }
    }

    /// Notes a chunk given to the store; one likely to be there already keeps its time, as in a store taking no chunk
    /// twice.
    pub fn insert(&mut self, chunk: PackedTag, now_secs: u64) {
        self.insert_if(chunk, 0..WAYS, now_secs, |hints, entry| hints.is_stale(entry, now_secs));
    }

    /// Notes chunks given to the store, likely to be there, and perhaps lost since: known ones get a new time.
    pub fn renew_all(&mut self, chunks: &[PackedTag], now_secs: u64) {
        let is_older = |_: &Self, entry| age(entry, now_secs) > 0;
        chunks.iter().for_each(|&chunk| self.insert_if(chunk, 0..WAYS, now_secs, is_older));
    }

    /// Notes a read chunk. If the store reports nothing as old, somebody else had it, as a neighbour has a lost one: it
    /// is known from now on, in place of its outdated hint, as one others [told](Self::insert_told) of. Returns whether
    /// it is so.
    pub fn confirm(&mut self, chunk: PackedTag, now_secs: u64) -> bool {
        let reach = now_secs.checked_sub(self.oldest_secs).map(|reach| reach / UNIT_SECS);
        let is_older = |entry| reach.is_some_and(|reach| age(entry, now_secs) > reach);
        let found = self.table(chunk.class()).find(chunk.0).filter(|&entry| is_older(entry));
        if found.is_some() {
            self.insert_if(chunk, TOLD, now_secs, |_, _| true);
        }
        found.is_some()
    }

    /// Enters a hint at some of its places if there is none, or one that `is_out_of_date`.
    fn insert_if(
        &mut self,
        chunk: PackedTag,
        ways: Range<usize>,
        now_secs: u64,
        is_out_of_date: impl FnOnce(&Self, u64) -> bool,
    ) {
        let found = self.table(chunk.class()).find(chunk.0);
        let is_wanted = found.is_none_or(|entry| is_out_of_date(self, entry));
        if is_wanted && let Some(table) = self.tables.get_mut(chunk.class()) {
            self.changes += 1;
            if found.is_some() {
                // That one would be found first.
                table.forget(chunk.0);
            }
            table.insert_within(chunk.0, ways, now_secs);
        }
    }

    /// Notes a chunk readable at the peer by somebody's word, and not seen to arrive. Such hints have a quarter of the
    /// places to themselves and displace nothing elsewhere: endless announcements take no more.
    pub fn insert_told(&mut self, chunk: PackedTag, now_secs: u64) {
        self.insert_if(chunk, TOLD, now_secs, |hints, entry| hints.is_stale(entry, now_secs));
    }

    /// Notes that the store does not have a chunk.
    pub fn forget(&mut self, tag: u64, len: u32) {
        if let Some(table) = self.tables.get_mut(class(len)) {
            self.changes += u64::from(table.forget(tag));
        }
    }

    /// Counts what became another hint, none or one at all: while it stays the same, there is nothing new to be saved.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns the number of hints, stale ones included.
    pub fn len(&self) -> u64 {
        self.tables.iter().map(|table| table.used).sum()
    }

    /// Returns whether there is no hint.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes of memory the tables take.
    pub fn memory(&self) -> u64 {
        self.tables.iter().map(|table| 8 * table.entries.len() as u64).sum()
    }

    fn table(&self, class: usize) -> &Table {
        self.tables.get(class).unwrap_or(&self.tables[CLASSES - 1])
    }

    fn is_stale(&self, entry: u64, now_secs: u64) -> bool {
        // A future one says nothing: it was saved by a clock ahead of this one.
        let Some(reach) = now_secs.checked_sub(self.oldest_secs) else { return false };
        // Rounded up: the two ends note the time of the same chunk a little apart.
        let reach = reach / UNIT_SECS + 1;
        let age = age(entry, now_secs);
        // The same of the time of a hint. One in the future half is as well years old, and costs a question.
        age > reach && age <= TIME_MASK / 2
    }
}

/// A chunk's tag and the class of its length, for [`Hints::insert`]: what is kept of each chunk until it is
/// acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedTag(u64);

impl PackedTag {
    /// Packs the tag of a chunk of `len` bytes.
    pub const fn new(tag: u64, len: u32) -> Self {
        Self(tag & !CLASS_MASK | class(len) as u64)
    }

    const fn class(self) -> usize {
        (self.0 & CLASS_MASK) as usize
    }

    /// Whether the chunk is of the smallest class, below 256 bytes.
    pub(crate) const fn is_smallest(self) -> bool {
        self.class() == CLASSES - 1
    }

    /// Returns the first of so many places, fewer than 2³², at which something about the chunk may stand.
    pub(super) const fn place(self, places: usize) -> usize {
        (((self.0 >> 32) * places as u64) >> 32) as usize
    }
}

impl Table {
    fn new(memory: u64) -> Self {
        let buckets = (memory / (8 * WAYS as u64)).clamp(1, u64::from(u32::MAX)) as usize;
        Self { entries: Pages::zeroed(buckets * WAYS), used: 0 }
    }

    fn clear(&mut self) {
        self.entries = Pages::zeroed(self.entries.len());
        self.used = 0;
    }

    /// The places at which a tag can stand.
    fn bucket(&self, tag: u64) -> Range<usize> {
        let buckets = (self.entries.len() / WAYS) as u64;
        let start = (((tag >> 32) * buckets) >> 32) as usize * WAYS;
        start..start + WAYS
    }

    fn find(&self, tag: u64) -> Option<u64> {
        let way = self.way(tag)?;
        self.entries.get(self.bucket(tag).start + way).copied()
    }

    /// At which of its places a tag stands.
    fn way(&self, tag: u64) -> Option<usize> {
        if self.used == 0 {
            return None;
        }
        let bucket = self.entries.get(self.bucket(tag))?;
        bucket.iter().position(|&entry| entry != NONE && entry >> TIME_BITS == identity(tag))
    }

    /// Inserts into one of these places of the bucket.
    fn insert_within(&mut self, tag: u64, ways: Range<usize>, now_secs: u64) {
        let entry = identity(tag) << TIME_BITS | ((now_secs / UNIT_SECS) & TIME_MASK);
        let range = self.bucket(tag);
        let bucket = self.entries.get_mut(range).and_then(|bucket| bucket.get_mut(ways));
        let Some(bucket) = bucket else { return };
        // The tag's own place, an empty one, the first of which nobody's word puts a hint into, or the oldest. Of
        // equally old ones any: were it always the same, a burst filling the bucket would learn one chunk there and no
        // more.
        let (turn, len) = (identity(tag) as usize, bucket.len());
        let rank = |way: usize, &other: &u64| match other {
            NONE => (u64::MAX - 1, WAYS - way),
            _ if other >> TIME_BITS == identity(tag) => (u64::MAX, way),
            _ => (age(other, now_secs), turn.wrapping_add(way) % len),
        };
        let places = bucket.iter_mut().enumerate();
        if let Some((_, place)) = places.max_by_key(|(way, other)| rank(*way, other)) {
            self.used += u64::from(*place == NONE && entry != NONE);
            *place = entry;
        }
    }

    /// Says whether there was any.
    fn forget(&mut self, tag: u64) -> bool {
        let range = self.bucket(tag);
        let bucket = self.entries.get_mut(range).unwrap_or_default();
        let before = self.used;
        for entry in bucket.iter_mut().filter(|entry| **entry >> TIME_BITS == identity(tag)) {
            self.used -= u64::from(*entry != NONE);
            *entry = NONE;
        }
        self.used != before
    }
}

/// The class of a length.
const fn class(len: u32) -> usize {
    match len {
        0x4000.. => 0,
        0x800.. => 1,
        0x100.. => 2,
        _ => 3,
    }
}

/// An entry's part of a tag; the lowest bits are overwritten by [`PackedTag`].
fn identity(tag: u64) -> u64 {
    tag >> CLASS_BITS & (u64::MAX >> TIME_BITS)
}

/// How many units of time ago an entry was made.
fn age(entry: u64, now_secs: u64) -> u64 {
    (now_secs / UNIT_SECS).wrapping_sub(entry) & TIME_MASK
}

const MAGIC: &[u8; 8] = b"owhints1";
const CLASSES: usize = 4;
const CLASS_BITS: u32 = 2;
const CLASS_MASK: u64 = (1 << CLASS_BITS) - 1;
const WAYS: usize = 8;
/// A bucket's places for chunks announced by others.
const TOLD: Range<usize> = 6..WAYS;
/// Places asked for at once.
const AHEAD: usize = 64;
const LEAST_MEMORY: u64 = 4096;
const NONE: u64 = 0;
/// With 16 seconds a unit, times come round after eight years.
const TIME_BITS: u32 = 24;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;
const UNIT_SECS: u64 = 16;
