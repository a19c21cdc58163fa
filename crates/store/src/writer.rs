//! The writing end: open container, open group, and their segment.

use std::io;
use std::sync::Arc;

use parking_lot::MutexGuard;

use crate::container::{self, HEADER, MAX_BLOCKS, MAX_CONTAINER, MAX_PARTS, Place};
use crate::footer::{TRAILER, footer_len};
use crate::index::Class;
use crate::paged::{Header, Kind, PAGE, Paged};
use crate::segment::{Coarse, Extent, Segment};
use crate::summary::Lists;
use crate::table::Put;
use crate::{Inserted, Part, Store};

/// State of the writing thread alone.
#[derive(Default)]
pub(crate) struct Writer {
    pub(crate) next_segment: u64,
    pub(crate) next_container: u64,
    /// Large chunks of the open segment.
    pub(crate) coarse: Vec<Coarse>,
    /// Its small ones, as its summary will have them: some 27 kB for each MB of blocks in four levels.
    pub(crate) small: Lists,
    /// Why nothing is written any more.
    pub(crate) stopped: Option<String>,
    /// Why nothing is written until the next sync.
    pub(crate) held_up: Option<String>,
    /// How often in a row it found the disk full.
    pub(crate) times_full: u32,
    /// The segment left last, if its file has more room than it needs.
    pub(crate) uncut: Option<Arc<Segment>>,
    /// Whether segments are being written again; none of them is to give way meanwhile.
    pub(crate) is_compacting: bool,
}

/// The memory of the open segment; for reads of unwritten content.
#[derive(Default)]
pub(crate) struct Tail {
    pub(crate) segment: Option<Arc<Segment>>,
    /// The offset of the group.
    pub(crate) at: u32,
    /// The end of the synced part.
    pub(crate) synced: u32,
    /// Whether a sync failed, so the state of the disk behind is unknown.
    pub(crate) sync_failed: bool,
    /// The group.
    bytes: Vec<u8>,
    open: Option<Open>,
    /// The last group, while it is being written: its segment, offset and bytes.
    flushing: Option<(u64, u32, Arc<Vec<u8>>)>,
}

/// A container open for blocks.
struct Open {
    number: u64,
    begin: usize,
    parts: Vec<Part>,
    time_s: u64,
}

impl Writer {
    /// Returns why nothing is taken.
    pub(crate) fn trouble(&self) -> Option<&String> {
        self.stopped.as_ref().or(self.held_up.as_ref())
    }
}

impl Tail {
    /// Returns bytes not on the disk yet; none if they are there, or nowhere.
    pub(crate) fn read(&self, segment: u64, at: u32, len: usize) -> Option<Vec<u8>> {
        let slice = |begin: u32, bytes: &[u8]| {
            let at = at.checked_sub(begin)? as usize;
            bytes.get(at..at.checked_add(len)?).map(<[u8]>::to_vec)
        };
        let current = self.segment.as_ref().filter(|current| current.number == segment);
        let flushing = self.flushing.as_ref().filter(|(of, ..)| *of == segment);
        current
            .and_then(|_| slice(self.at, &self.bytes))
            .or_else(|| flushing.and_then(|(_, begin, bytes)| slice(*begin, bytes)))
    }

    /// Says whether bytes of a segment are not on the disk yet.
    pub(crate) fn holds(&self, segment: u64, at: u32, len: usize) -> bool {
        let within = |begin: u32, bytes: &[u8]| {
            at.checked_sub(begin).is_some_and(|from| from as usize + len <= bytes.len())
        };
        self.segment.as_ref().is_some_and(|current| current.number == segment && within(self.at, &self.bytes))
            || self.flushing.as_ref().is_some_and(|(of, at, bytes)| *of == segment && within(*at, bytes))
    }

    /// Says whether this is the number of the open container.
    pub(crate) fn is_open(&self, number: u64) -> bool {
        self.open.as_ref().is_some_and(|open| open.number == number)
    }

    /// Says whether the open container can take a block.
    fn fits(&self, bytes: usize, parts: usize) -> bool {
        self.open.as_ref().is_some_and(|open| {
            let used = self.bytes.len() - open.begin - HEADER;
            used + bytes <= MAX_BLOCKS && open.parts.len() + parts <= MAX_PARTS
        })
    }

    /// Returns a chunk of the open container, if this is its number; None within if it lacks it.
    pub(crate) fn in_open(&self, number: u64, tag: u64, len: u32) -> Option<Option<Vec<u8>>> {
        let open = self.open.as_ref().filter(|open| open.number == number)?;
        let blocks = self.bytes.get(open.begin + HEADER..).unwrap_or_default();
        let part = open.parts.iter().find(|part| part.tag == tag && part.len == len);
        Some(part.and_then(|part| blocks.get(part.range())).map(<[u8]>::to_vec))
    }
}

impl Store {
    /// Puts a block and its chunks into the store.
    ///
    /// `parts` are the chunks of all levels, the block itself among them; they may overlap, and its bytes are stored
    /// once. A block already there as a whole is not stored again, unless the disk refuses to read any chunk of it. A
    /// chunk also in an older block is from now on found in this one. `now_s` is the owner's clock, in seconds; the
    /// store only hands it back.
    ///
    /// Work for a thread of its own: every so often it writes a group of about 1 MiB, or waits for the disk.
    pub fn insert(&self, block: &[u8], parts: &[Part], now_s: u64) -> Inserted {
        let mut writer = self.writer.lock();
        let is_sound = (1..=MAX_BLOCKS).contains(&block.len())
            && parts.len() <= MAX_PARTS
            && parts
                .iter()
                .all(|part| part.len > 0 && part.end().is_some_and(|end| end as usize <= block.len()));
        if !is_sound || writer.trouble().is_some() {
            self.counters.refused.add(1);
            return Inserted::Refused;
        }
        let root = parts.iter().find(|part| part.len as usize == block.len());
        if root.is_some_and(|root| self.index.has(root.tag, Class::of(root.len))) {
            if !self.is_refused(parts) {
                self.counters.known.add(1);
                return Inserted::Known;
            }
            self.counters.replaced.add(1);
        }
        match self.append(&mut writer, block, parts, now_s) {
            Ok((new, moved)) => {
                self.counters.stored.add(1);
                self.counters.stored_bytes.add(block.len() as u64);
                Inserted::Stored { new, moved }
            }
            Err(error) => {
                self.refuse(&mut writer, &error);
                Inserted::Refused
            }
        }
    }

    /// Writes the content of memory and waits until it would survive a power cut.
    ///
    /// # Errors
    /// If the disk refuses; the store then takes nothing more until it is opened again, or, if it [is held
    /// up](Store::is_held_up), until the next successful sync.
    pub fn sync(&self) -> io::Result<()> {
        let mut writer = self.writer.lock();
        let synced = self.go_on(&mut writer).and_then(|_| self.sync_locked(&mut writer));
        if let Err(error) = &synced {
            self.refuse(&mut writer, error);
        }
        synced
    }

    pub(crate) fn sync_locked(&self, writer: &mut Writer) -> io::Result<()> {
        self.close_container(writer);
        self.flush(writer)?;
        let segment = self.tail.read().segment.clone();
        segment.map_or(Ok(()), |segment| self.sync_segment(&segment))
    }

    /// Appends blocks and indexes their chunks; returns how many were not indexed yet, and how many were.
    pub(crate) fn append(
        &self,
        writer: &mut Writer,
        blocks: &[u8],
        parts: &[Part],
        now_s: u64,
    ) -> io::Result<(u32, u32)> {
        let fits = self.tail.read().fits(blocks.len(), parts.len());
        if !fits {
            self.begin_container(writer, now_s)?;
        }
        self.index.touch(parts.iter().map(|part| (part.tag, Class::of(part.len))));
        let mut tail = self.tail.write();
        let tail = &mut *tail;
        let (Some(segment), Some(open)) = (&tail.segment, &mut tail.open) else {
            return Err(io::Error::other("no container to write to"));
        };
        let behind = (tail.bytes.len() - open.begin - HEADER) as u32;
        let (number, first) = (open.number, tail.at + tail.bytes.len() as u32);
        let address = self.address(segment.number, first);
        tail.bytes.extend_from_slice(blocks);
        open.parts.extend(parts.iter().map(|part| Part { start: part.start + behind, ..*part }));
        let (mut new, mut moved) = (0, 0);
        for part in parts {
            let class = Class::of(part.len);
            match self.index.put(part.tag, class, address + u64::from(part.start), number) {
                Put::Moved => moved += 1,
                Put::New => new += 1,
                Put::Displaced => {
                    new += 1;
                    self.counters.displaced.add(1);
                }
            }
            if class == Class::Coarse {
                writer.coarse.push((part.tag, first + part.start));
            }
        }
        Ok((new, moved))
    }

    /// Closes the open container, and writes the group if it is large enough.
    fn begin_container(&self, writer: &mut Writer, now_s: u64) -> io::Result<()> {
        self.close_container(writer);
        if self.tail.read().bytes.len() >= self.group_bytes {
            self.flush(writer)?;
        }
        if !self.has_room(writer) {
            self.seal(writer)?;
            self.begin_segment(writer)?;
        }
        let number = writer.next_container;
        writer.next_container += 1;
        self.index.begin_container(writer.next_container);
        let mut tail = self.tail.write();
        let begin = tail.bytes.len();
        tail.bytes.resize(begin + HEADER, 0);
        tail.open = Some(Open { number, begin, parts: Vec::new(), time_s: now_s });
        Ok(())
    }

    /// Says whether the segment can take the longest container and its footer, with room for the summary, so both
    /// together stay within a segment's limit.
    fn has_room(&self, writer: &Writer) -> bool {
        let tail = self.tail.read();
        let Some(segment) = &tail.segment else { return false };
        let payload = segment.file.payload();
        let used = tail.at as usize + tail.bytes.len() + MAX_CONTAINER + payload;
        let containers = segment.extent.read().containers as usize + 1;
        let footer = footer_len(containers, writer.coarse.len() + MAX_PARTS) + TRAILER + payload;
        let summary = writer.small.most_bytes(&self.index, MAX_PARTS);
        let room = segment.file.room(self.segment_bytes.saturating_sub(summary));
        (used + footer) as u64 <= room
    }

    /// Finishes the open container, if there is one.
    pub(crate) fn close_container(&self, writer: &mut Writer) {
        let mut guard = self.tail.write();
        let tail = &mut *guard;
        let (Some(segment), Some(mut open)) = (&tail.segment, tail.open.take()) else { return };
        let start = tail.at + open.begin as u32;
        let place = Place { store: self.id, segment: segment.number, at: u64::from(start) };
        container::close(&mut tail.bytes, open.begin, &mut open.parts, open.time_s, place);
        let end = tail.at + tail.bytes.len() as u32;
        segment.extent.write().add(start, end, open.time_s, &open.parts);
        drop(guard);
        writer.small.add(&self.index, &open.parts);
    }

    /// Writes the group. With a full disk the oldest segments give way.
    pub(crate) fn flush(&self, writer: &mut Writer) -> io::Result<()> {
        let (segment, at, bytes) = {
            let mut tail = self.tail.write();
            let Some(segment) = tail.segment.clone().filter(|_| !tail.bytes.is_empty()) else {
                return Ok(());
            };
            let mut bytes = std::mem::take(&mut tail.bytes);
            bytes.resize(bytes.len().next_multiple_of(segment.file.payload()), 0);
            let (at, bytes) = (tail.at, Arc::new(bytes));
            tail.at += bytes.len() as u32;
            tail.flushing = Some((segment.number, at, Arc::clone(&bytes)));
            (segment, at, bytes)
        };
        let written = self.with_room(writer, segment.number, || segment.file.write(u64::from(at), &bytes));
        if written.is_err() {
            segment.extent.write().cut(at);
        }
        self.tail.write().flushing = None;
        if written.is_ok() {
            self.counters.written_bytes.add(segment.file.taken(u64::from(at), bytes.len()));
        }
        written
    }

    /// Finishes the open segment, if there is one: nothing is written to it any more.
    pub(crate) fn seal(&self, writer: &mut Writer) -> io::Result<()> {
        self.close_container(writer);
        self.flush(writer)?;
        let (segment, at) = {
            let tail = self.tail.read();
            let Some(segment) = tail.segment.clone() else { return Ok(()) };
            (segment, tail.at)
        };
        let seed = Segment::footer_seed(self.id, segment.number);
        let footer = segment.extent.read().footer(&writer.coarse, segment.file.payload(), seed);
        let room = u64::from(at) + footer.len() as u64;
        // A footer's subject is on the disk before the footer.
        self.sync_segment(&segment)?;
        segment.file.cut(room)?;
        // Some file systems give cut room to others at once.
        self.with_room(writer, segment.number, || segment.file.write(u64::from(at), &footer))?;
        segment.file.sync()?;
        self.counters.written_bytes.add(segment.file.taken(u64::from(at), footer.len()));
        {
            let mut extent = segment.extent.write();
            extent.file_len = segment.file.file_len(room);
            extent.has_footer = true;
        }
        writer.coarse.clear();
        *self.tail.write() = Tail::default();
        self.summarize(&segment, &std::mem::take(&mut writer.small), None);
        self.shed_summaries();
        // The summary has its room from the beginning, except in segments filled by an earlier build.
        while self.file_bytes() > self.capacity && self.make_room(writer, segment.number).is_some() {}
        if !writer.is_compacting {
            self.shed_offsets(writer);
        }
        Ok(())
    }

    /// Begins a segment, and evicts the oldest ones in its way.
    pub(crate) fn begin_segment(&self, writer: &mut Writer) -> io::Result<()> {
        self.leave_as_found()?;
        while self.file_bytes() + self.segment_bytes > self.capacity
            && self.make_room(writer, u64::MAX).is_some()
        {}
        // Strays with the name of a segment stay as they are.
        while self.is_passed_over(&Segment::file_name(writer.next_segment)) {
            writer.next_segment += 1;
        }
        let number = writer.next_segment;
        while self.outruns_index(number) && self.make_room(writer, u64::MAX).is_some() {}
        let header = Header { kind: Kind::Segment, store: self.id, number };
        let create = || {
            let name = Segment::file_name(number);
            Paged::create(&self.backend, self.sealer.as_deref(), name, self.segment_bytes, header)
        };
        let file = self.with_room(writer, u64::MAX, create)?;
        writer.next_segment += 1;
        self.counters.written_bytes.add(PAGE as u64);
        let extent = Extent { file_len: self.segment_bytes, ..Extent::default() };
        let segment = Arc::new(Segment::new(self.id, number, writer.next_container, file, extent));
        self.ring.write().push_back(Arc::clone(&segment));
        self.index.addresses.set_head((number + 1) << self.span_bits);
        *self.tail.write() = Tail { segment: Some(segment), ..Tail::default() };
        Ok(())
    }

    /// Does an operation a full disk may refuse; older segments than this one give way until it succeeds, or until
    /// they gave back as much as it may take. Then others have the room, or the disk still holds the removed content,
    /// and more would go in vain. After two such cases in a row none gives way here.
    fn with_room<T>(
        &self,
        writer: &Writer,
        number: u64,
        mut attempt: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        let most = if writer.times_full > 1 { 0 } else { self.segment_bytes };
        let (mut done, mut given) = (attempt(), 0);
        while is_full(&done) && given < most {
            let Some(bytes) = self.make_room(writer, number).filter(|bytes| *bytes > 0) else { break };
            given += bytes;
            done = attempt();
        }
        done
    }

    /// Evicts the oldest segment, if it is older than this one; but none while they are written again. Returns the
    /// bytes its files gave back.
    pub(crate) fn make_room(&self, writer: &Writer, number: u64) -> Option<u64> {
        if writer.is_compacting { None } else { self.evict_before(writer, number) }
    }

    /// Waits for the present writer, and excludes others.
    pub(crate) fn writing(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock()
    }
}

/// Says whether the disk has no room.
pub(crate) fn is_full<T>(result: &io::Result<T>) -> bool {
    matches!(result, Err(error) if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::table::Table;
    use crate::{IndexMemory, MIN_SEGMENT_BYTES, Memory, Options, Part, Store};

    const INDEX: IndexMemory = IndexMemory { coarse: 1 << 12, medium: 64, fine: 64 };

    fn options(at_rest: bool) -> Options {
        let (segment_bytes, capacity) = (MIN_SEGMENT_BYTES, 100 * MIN_SEGMENT_BYTES);
        Options { capacity, segment_bytes, index: INDEX, id: 1, sealer: None, at_rest }
    }

    /// A new store with room for eight segment numbers.
    fn narrow(memory: &Memory) -> Store {
        let (mut store, _) = Store::open(Arc::new(memory.clone()), &options(false)).unwrap();
        store.index.coarse = Table::laid_out(INDEX.coarse, store.span_bits + 3).unwrap();
        store
    }

    fn tag(number: u64) -> u64 {
        number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// Fills a segment with one block.
    fn fill(store: &Store, number: u64) {
        let part = Part { tag: tag(number), level: 0, start: 0, len: 8192 };
        store.insert(&number.to_le_bytes().repeat(1024), &[part], number);
        store.seal(&mut store.writing()).unwrap();
    }

    fn there(store: &Store, last: u64) -> usize {
        let read = |of: u64| store.read(tag(of), 8192, &|bytes| bytes.starts_with(&of.to_le_bytes()));
        (1..=last).filter(|of| read(*of).unwrap().is_some()).count()
    }

    #[test]
    fn segment_indistinguishable_from_a_new_one_is_evicted() {
        let store = narrow(&Memory::default());
        for number in 1..=20 {
            fill(&store, number);
            let segments = store.ring.read().len();
            assert_eq!((segments as u64, there(&store, number)), (number.min(8), segments));
        }
    }

    #[test]
    fn saved_index_with_fewer_numbers_is_made_anew() {
        let memory = Memory::default();
        let store = narrow(&memory);
        (1..=8).for_each(|number| fill(&store, number));
        store.close().unwrap();
        for at_rest in [true, false] {
            let (store, opened) = Store::open(Arc::new(memory.clone()), &options(at_rest)).unwrap();
            assert_eq!((opened.index_kept, there(&store, 8)), (false, 8));
            (9..=20).filter(|_| !at_rest).for_each(|number| fill(&store, number));
            assert_eq!(there(&store, 20), if at_rest { 8 } else { 20 });
            store.close().unwrap();
        }
        let (store, opened) = Store::open(Arc::new(memory), &options(true)).unwrap();
        assert_eq!((opened.index_kept, there(&store, 20)), (true, 20));
    }
}
