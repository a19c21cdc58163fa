//! The saved index: a start after a clean end reads only this.
//!
//! The file `index` is written when a store is closed and removed, durably, when it is opened again, before anything
//! else is written; so it exists only if nothing was written since. It lists the segments with their lengths, to be
//! compared with the files, then the slots of the tables. Numbers are little-endian. Behind the first page:
//!
//! | bytes | what |
//! |---:|---|
//! | 8 each | next number of a segment, of a container; number of segments; bytes of the three tables; how many bits of a slot are the place in each, a byte each |
//! | 56 + 12 × 16 + 4 × offsets | for each segment: number, first container, bytes of the file, time of the oldest and the newest container (8 each); end of the last container, number of containers, 1 if there is a footer, number of the offsets in memory (4 each), levels as in a footer, those offsets |
//! | | the slots of the tables, large chunks first |
//! | 8 | XXH3-64 of the bytes before |

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use xxhash_rust::xxh3::Xxh3;

use crate::files::FoundSegment;
use crate::flaw::Said;
use crate::index::Layout;
use crate::paged::{Header, Kind, Paged};
use crate::segment::{Extent, Level, Segment};
use crate::table::{LINE, Table, Word};
use crate::writer::{Writer, is_full};
use crate::{Backend, Options, Store};

impl Store {
    /// Writes the index; the segments must all be sealed. None is written while it lacks segments or parts of them,
    /// refused by the disk during the scan: the next start is to look into them.
    ///
    /// With a full disk the oldest segments give way, if the index takes no more than an eighth of theirs; rebuilding
    /// a larger one costs less than the content to be evicted for it.
    ///
    /// # Errors
    /// If the disk refuses; nothing of it is left there then.
    pub(crate) fn save_index(&self, writer: &Writer) -> io::Result<()> {
        if self.ring.read().iter().any(|segment| segment.is_to_be_looked_through()) {
            return Ok(());
        }
        let all = self.file_bytes();
        let spare = Some(all / INDEX_SHARE).filter(|spare| self.index.memory().total() <= *spare);
        let kept = all - spare.unwrap_or(0);
        let mut saved = self.write_index(writer);
        while is_full(&saved) && self.file_bytes() > kept && self.evict_before(writer, u64::MAX) > Some(0) {
            saved = self.write_index(writer);
        }
        saved.inspect_err(|_| _ = self.backend.remove(NEW))
    }

    fn write_index(&self, writer: &Writer) -> io::Result<()> {
        let memory = self.index.memory();
        let ring: Vec<Arc<Segment>> = self.ring.read().iter().cloned().collect();
        let mut head = Vec::new();
        let fixed = [writer.next_segment, writer.next_container, ring.len() as u64];
        fixed.into_iter().chain(self.index.layout()).for_each(|n| head.extend_from_slice(&n.to_le_bytes()));
        ring.iter().for_each(|segment| describe(segment, &mut head));
        let total = head.len() as u64 + memory.total() + 8;
        let header = Header { kind: Kind::Snapshot, store: self.id, number: 0 };
        // Whole pages, and the first one.
        let len = (total.div_ceil(4080) + 1) * 4096;
        let file = Paged::create(&self.backend, self.sealer.as_deref(), NEW.to_owned(), len, header)?;
        let mut out = Out { file, at: 0, buffer: Vec::new(), hash: Xxh3::new() };
        out.put(&head)?;
        out.put_table(&self.index.coarse)?;
        out.put_table(&self.index.medium)?;
        out.put_table(&self.index.fine)?;
        let check = out.hash.digest();
        out.put(&check.to_le_bytes())?;
        out.finish()?.rename(NAME)
    }

    /// Says whether nothing on the disk is to be changed: it was opened at rest, and nothing was written since.
    pub(crate) fn is_only_looked_at(&self) -> bool {
        self.is_as_found.load(Ordering::Relaxed)
    }

    /// Removes the saved index, if it was kept up to the first change.
    pub(crate) fn leave_as_found(&self) -> io::Result<()> {
        match self.is_as_found.swap(false, Ordering::Relaxed) {
            true => remove(&self.backend),
            false => Ok(()),
        }
    }

    /// Takes up the index if the snapshot matches the segments.
    ///
    /// Returns the first container of each, and its content. With none the tables may hold anything.
    pub(crate) fn load_index(
        &self,
        file_len: u64,
        segments: &[FoundSegment],
        writer: &mut Writer,
    ) -> Option<Vec<(u64, Extent)>> {
        let (file, header) = Paged::open(&self.backend, self.sealer.as_deref(), NAME.to_owned()).ok()?;
        (header.kind == Kind::Snapshot && header.store == self.id).then_some(())?;
        let mut input = In::new(file, file_len);
        let (next_segment, next_container) = (input.number()?, input.number()?);
        (input.number()? == segments.len() as u64).then_some(())?;
        for expected in self.index.layout() {
            (input.number()? == expected).then_some(())?;
        }
        let mut described = Vec::new();
        for found in segments {
            let (number, first, extent) = input.segment()?;
            ((number, extent.file_len) == (found.number, found.len)).then_some(())?;
            described.push((first, extent));
        }
        input.table(&self.index.coarse)?;
        input.table(&self.index.medium)?;
        input.table(&self.index.fine)?;
        let check = input.hash.digest();
        (input.number()? == check).then_some(())?;
        (writer.next_segment, writer.next_container) = (next_segment, next_container);
        Some(described)
    }

    /// Returns the snapshot's descriptions of the segments by their numbers, true or not; none if it is not sound.
    pub(crate) fn saved_segments(&self, file_len: u64) -> Option<Vec<(u64, Said)>> {
        let (file, header) = Paged::open(&self.backend, self.sealer.as_deref(), NAME.to_owned()).ok()?;
        (header.kind == Kind::Snapshot && header.store == self.id).then_some(())?;
        let mut input = In::new(file, file_len);
        let [_, _, count] = [input.number()?, input.number()?, input.number()?];
        let layout = [input.number()?, input.number()?, input.number()?, input.number()?];
        let mut said = Vec::new();
        for _ in 0..count {
            let (number, _, Extent { file_len, containers, has_footer, .. }) = input.segment()?;
            said.push((number, Said { file_len, containers, has_footer }));
        }
        let mut tables = layout.iter().take(3).try_fold(0_u64, |sum, bytes| sum.checked_add(*bytes))?;
        while tables > 0 {
            let some = tables.min(PIECE as u64);
            input.take(some as usize)?;
            tables -= some;
        }
        let check = input.hash.digest();
        (input.number()? == check).then_some(said)
    }
}

/// Returns the layout of the tables in a store's snapshot; none without a sound beginning of one. The rest may still
/// be unsound.
pub(crate) fn layout_of(backend: &Arc<dyn Backend>, options: &Options, store: u64) -> Option<Layout> {
    let (_, file_len) = backend.list().ok()?.into_iter().find(|(name, _)| name == NAME)?;
    let (file, header) = Paged::open(backend, options.sealer.as_deref(), NAME.to_owned()).ok()?;
    (header.kind == Kind::Snapshot && header.store == store).then_some(())?;
    let mut input = In::new(file, file_len);
    let _counts = [input.number()?, input.number()?, input.number()?];
    let layout = [input.number()?, input.number()?, input.number()?, input.number()?];
    // It has these tables in it, so damage cannot ask for more memory than they take.
    layout
        .iter()
        .take(3)
        .try_fold(0_u64, |sum, bytes| sum.checked_add(*bytes))
        .filter(|sum| *sum <= file_len)?;
    Some(layout)
}

/// Removes the invalid snapshot, and an unfinished one.
pub(crate) fn remove(backend: &Arc<dyn Backend>) -> io::Result<()> {
    backend.remove(NAME)?;
    backend.remove(NEW)
}

fn describe(segment: &Segment, into: &mut Vec<u8>) {
    let extent = segment.extent.read();
    let numbers =
        [segment.number, segment.first_container, extent.file_len, extent.oldest_s, extent.newest_s];
    numbers.into_iter().for_each(|n| into.extend_from_slice(&n.to_le_bytes()));
    into.extend_from_slice(&extent.end.to_le_bytes());
    for n in [extent.containers, u32::from(extent.has_footer), extent.starts.len() as u32] {
        into.extend_from_slice(&n.to_le_bytes());
    }
    for level in &extent.levels {
        into.extend_from_slice(&level.chunks.to_le_bytes());
        into.extend_from_slice(&level.bytes.to_le_bytes());
    }
    extent.starts.iter().for_each(|start| into.extend_from_slice(&start.to_le_bytes()));
}

/// Writes a stream in pieces of whole pages.
struct Out {
    file: Paged,
    at: u64,
    buffer: Vec<u8>,
    hash: Xxh3,
}

impl Out {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hash.update(bytes);
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() < PIECE {
            return Ok(());
        }
        let whole = self.buffer.len() / self.file.payload() * self.file.payload();
        self.file.write(self.at, self.buffer.get(..whole).unwrap_or_default())?;
        self.buffer.drain(..whole);
        self.at += whole as u64;
        Ok(())
    }

    fn put_table<W: Word>(&mut self, table: &Table<W>) -> io::Result<()> {
        let (mut line, mut slots) = (0, Vec::new());
        loop {
            slots.clear();
            let lines = table.save(line, PIECE / LINE, &mut slots);
            if lines == 0 {
                return Ok(());
            }
            self.put(&slots)?;
            line += lines;
        }
    }

    fn finish(mut self) -> io::Result<Paged> {
        self.buffer.resize(self.buffer.len().next_multiple_of(self.file.payload()), 0);
        self.file.write(self.at, &self.buffer)?;
        self.file.sync()?;
        Ok(self.file)
    }
}

/// Reads a stream.
struct In {
    file: Paged,
    /// Bytes addressed by the file.
    room: u64,
    /// The end of the buffer.
    at: u64,
    buffer: Vec<u8>,
    taken: usize,
    hash: Xxh3,
}

impl In {
    fn new(file: Paged, file_len: u64) -> Self {
        let room = file.room(file_len);
        Self { file, room, at: 0, buffer: Vec::new(), taken: 0, hash: Xxh3::new() }
    }

    fn take(&mut self, len: usize) -> Option<Vec<u8>> {
        while self.buffer.len() - self.taken < len {
            let some = (self.room - self.at).min(PIECE as u64);
            (some > 0).then_some(())?;
            self.buffer.drain(..self.taken);
            self.taken = 0;
            self.buffer.extend(self.file.read(self.at, some as usize).ok()?);
            self.at += some;
        }
        let bytes = self.buffer.get(self.taken..self.taken + len)?.to_vec();
        self.taken += len;
        self.hash.update(&bytes);
        Some(bytes)
    }

    fn number(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn small(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    /// Reads the description of a segment: its number, its first container, and its content.
    fn segment(&mut self) -> Option<(u64, u64, Extent)> {
        let (number, first, file_len) = (self.number()?, self.number()?, self.number()?);
        let (oldest_s, newest_s) = (self.number()?, self.number()?);
        let (end, containers) = (self.small()?, self.small()?);
        let (has_footer, kept) = (self.small()? == 1, self.small()?);
        let mut extent =
            Extent { end, oldest_s, newest_s, file_len, containers, has_footer, ..Extent::default() };
        for level in &mut extent.levels {
            *level = Level { chunks: self.small()?, bytes: self.number()? };
        }
        // A container has at least 33 bytes, so a changed number cannot ask for much memory.
        (u64::from(kept) <= file_len / 33).then_some(())?;
        let starts = self.take(4 * kept as usize)?;
        extent.starts = starts.chunks_exact(4).filter_map(|at| crate::bytes::u32_at(at, 0)).collect();
        Some((number, first, extent))
    }

    fn table<W: Word>(&mut self, table: &Table<W>) -> Option<()> {
        let lines = (table.memory() as usize) / LINE;
        let mut line = 0;
        while line < lines {
            let some = (lines - line).min(PIECE / LINE);
            let slots = self.take(some * LINE)?;
            table.restore(line, &slots);
            line += some;
        }
        Some(())
    }
}

pub(crate) const NAME: &str = "index";

/// The snapshot's name during writing.
pub(crate) const NEW: &str = "index.new";

/// The share of the store an index may cost on a full disk.
const INDEX_SHARE: u64 = 8;

/// Bytes of one read or write.
const PIECE: usize = 1 << 20;
