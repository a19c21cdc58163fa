//! Opening and closing: what a start finds, and what it does about it.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use crate::index::Class;
use crate::paged::{Header, Kind, NotOurs, PAGE, Paged};
use crate::segment::{Coarse, Extent, Segment};
use crate::snapshot;
use crate::store::{MIN_SEGMENT_BYTES, Options, Store};
use crate::writer::{Writer, is_full};
use crate::{Backend, Sealer};

/// Why a store cannot be opened at all; damage is no reason.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The disk refused.
    #[error("chunk store: {0}")]
    Io(#[from] io::Error),
    /// The store is encrypted under another key, or is where it should not be, or is not where it should; it is left
    /// alone, since a wrong setting must not cost what was remembered.
    #[error("chunk store: encrypted under another key, or not as configured")]
    OtherKey,
    /// The segments have an impossible size.
    #[error(
        "chunk store: segments of {0} bytes; choose from {MIN_SEGMENT_BYTES} to 4294967296 in steps of 4096"
    )]
    Segments(u64),
    /// The capacity is less than two segments.
    #[error("chunk store: a capacity of {capacity} bytes is less than two segments of {segment_bytes}")]
    Capacity {
        /// What was asked for.
        capacity: u64,
        /// What a segment takes.
        segment_bytes: u64,
    },
}

/// What a start found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// Whether the store is new: what was there, if anything, is not taken up.
    pub new: bool,
    /// Segments that were taken up.
    pub segments: usize,
    /// Whether the index was on the disk; else it was rebuilt.
    pub index_kept: bool,
    /// Segments without a footer, of which every container was read.
    pub scanned: usize,
    /// What was lost and why, for the owner's log, a line each.
    pub notes: Vec<String>,
}

/// A file that was found: the segment's number, and what is in it.
type Found = (u64, Paged, Extent);

impl Store {
    /// Opens the store in a folder, or makes one; returns what was found, too.
    ///
    /// After [`Store::close`] this reads the index from one file. Else it reads the footer of each segment, all of those
    /// that have none, and the containers of the youngest ones until the index of small chunks is full.
    ///
    /// # Errors
    /// If the folder cannot be read or written, or the options make no sense. Whatever is in the files is no error.
    pub fn open(backend: Arc<dyn Backend>, options: &Options) -> Result<(Self, Opened), OpenError> {
        if !is_possible(options.segment_bytes) {
            return Err(OpenError::Segments(options.segment_bytes));
        }
        let mut opened = Opened::default();
        let (id, segment_bytes) = identity(&backend, options, &mut opened)?;
        if options.capacity / 2 < segment_bytes {
            return Err(OpenError::Capacity { capacity: options.capacity, segment_bytes });
        }
        let store = Self::empty(backend, options, id, segment_bytes);
        let (mut found, snapshot_len) = store.find_segments(&mut opened)?;
        let mut writer = Writer { next_segment: 1, next_container: 1, ..Writer::default() };
        let kept = snapshot_len.and_then(|len| store.load_index(len, &mut found, &mut writer));
        // It holds no longer as soon as anything is written.
        snapshot::remove(&store.backend)?;
        match kept {
            Some(firsts) => {
                opened.index_kept = true;
                store.take_up(found, firsts, writer);
            }
            None => {
                store.index.clear();
                store.rebuild(found, &mut opened)?;
            }
        }
        let writer = store.writing();
        while store.file_bytes() > store.capacity && store.evict_before(&writer, u64::MAX) {}
        store.shed_offsets(&writer);
        drop(writer);
        opened.segments = store.ring.read().len();
        Ok((store, opened))
    }

    /// Writes what is in memory, and the index, so that the next start finds it at once. With a full disk the oldest
    /// segments give way to the index.
    ///
    /// # Errors
    /// If the disk refuses; the next start then rebuilds the index.
    pub fn close(self) -> io::Result<()> {
        let mut writer = self.writing();
        if let Some(trouble) = &writer.stopped {
            return Err(io::Error::other(trouble.clone()));
        }
        self.seal(&mut writer)?;
        let mut saved = self.save_index(&writer);
        while is_full(&saved) && self.evict_before(&writer, u64::MAX) {
            saved = self.save_index(&writer);
        }
        saved
    }

    /// Opens the files of segments, in their order, and removes those that are not ours; returns the length of the
    /// snapshot's file, if there is one.
    fn find_segments(&self, opened: &mut Opened) -> io::Result<(Vec<Found>, Option<u64>)> {
        let (mut found, mut snapshot) = (Vec::new(), None);
        for (name, len) in self.backend.list()? {
            let Some(number) = Segment::number_of(&name) else {
                snapshot = snapshot.or((name == snapshot::NAME).then_some(len));
                continue;
            };
            let expected = Header { kind: Kind::Segment, store: self.id, number };
            let why = match Paged::open(&self.backend, self.sealer.as_deref(), name.clone()) {
                Ok((file, header)) if header == expected => {
                    found.push((number, file, Extent { file_len: len, ..Extent::default() }));
                    continue;
                }
                Ok(_) => "belongs to another store or place".to_owned(),
                Err(NotOurs::Damaged) => "has no valid first page".to_owned(),
                Err(NotOurs::OtherKey) => "is encrypted under another key, or not as configured".to_owned(),
                Err(NotOurs::Io(error)) => format!("cannot be read: {error}"),
            };
            opened.notes.push(format!("{name} {why}: removed"));
            self.backend.remove(&name)?;
        }
        Ok((found, snapshot))
    }

    /// Makes the ring of segments whose index is there.
    fn take_up(&self, found: Vec<Found>, firsts: Vec<u64>, writer: Writer) {
        let segments = found.into_iter().zip(firsts);
        let segments = segments
            .map(|((number, file, extent), first)| Segment::new(self.id, number, first, file, extent));
        let segments: VecDeque<Arc<Segment>> = segments.map(Arc::new).collect();
        self.set_window(&segments, &writer);
        *self.ring.write() = segments;
        *self.writing() = writer;
    }

    /// Makes the ring and the index from what is in the segments.
    fn rebuild(&self, found: Vec<Found>, opened: &mut Opened) -> io::Result<()> {
        let mut writer = Writer { next_segment: 1, next_container: 1, ..Writer::default() };
        let mut segments = VecDeque::new();
        let mut coarse = Vec::new();
        for (number, file, extent) in found {
            writer.next_segment = number + 1;
            let Some((extent, large)) = self.read_segment(number, &file, extent.file_len, opened)? else {
                file.remove()?;
                continue;
            };
            let first = writer.next_container;
            writer.next_container += u64::from(extent.containers);
            segments.push_back(Arc::new(Segment::new(self.id, number, first, file, extent)));
            coarse.push(large);
        }
        self.set_window(&segments, &writer);
        for (segment, large) in segments.iter().zip(coarse) {
            for some in large.chunks(512) {
                self.index.touch(some.iter().map(|(tag, _)| (*tag, Class::Coarse)));
                for (tag, at) in some {
                    self.index.put(*tag, Class::Coarse, self.address(segment.number, *at), 0);
                }
            }
        }
        *self.ring.write() = segments;
        *self.writing() = writer;
        self.rebuild_small(opened);
        Ok(())
    }

    /// Returns what is in a segment, by its footer or by all its containers; none if nothing is.
    fn read_segment(
        &self,
        number: u64,
        file: &Paged,
        file_len: u64,
        opened: &mut Opened,
    ) -> io::Result<Option<(Extent, Vec<Coarse>)>> {
        if let Some(read) = Extent::read(file, file_len, Segment::footer_seed(self.id, number)) {
            return Ok(Some(read));
        }
        opened.scanned += 1;
        let (mut extent, coarse) = Extent::scan(file, file_len, self.id, number);
        let containers = extent.containers;
        opened.notes.push(format!("{} has no footer: {containers} containers found in it", file.name()));
        if containers == 0 {
            return Ok(None);
        }
        // Nothing is added to what a crash left, so the rest of its room goes back.
        let room = u64::from(extent.end).next_multiple_of(file.payload() as u64);
        file.cut(room)?;
        extent.file_len = file.file_len(room);
        Ok(Some((extent, coarse)))
    }

    /// Indexes the small chunks of the youngest segments, as many as fit, the oldest of them first.
    fn rebuild_small(&self, opened: &mut Opened) {
        let segments: Vec<Arc<Segment>> = self.ring.read().iter().cloned().collect();
        let mut room = self.index.medium.slots() + self.index.fine.slots();
        let first = segments.iter().rposition(|segment| {
            let chunks: u64 = segment.extent.read().levels.iter().map(|level| u64::from(level.chunks)).sum();
            room = room.saturating_sub(chunks);
            room == 0
        });
        for segment in segments.iter().skip(first.unwrap_or(0)) {
            let containers = segment.extent.read().containers as usize;
            for i in 0..containers {
                match self.load(segment, i) {
                    Ok(Some(container)) => {
                        let chunks = container.parts.iter().map(|part| (part.tag, Class::of(part.len)));
                        let small = chunks.filter(|(_, class)| *class != Class::Coarse);
                        self.index.touch(small.clone());
                        for (tag, class) in small {
                            self.index.put(tag, class, 0, segment.first_container + i as u64);
                        }
                    }
                    Ok(None) => {}
                    Err(fault) => opened.notes.push(fault.to_string()),
                }
            }
        }
    }

    fn set_window(&self, segments: &VecDeque<Arc<Segment>>, writer: &Writer) {
        let first = segments.front().map(|front| (front.number, front.first_container));
        let (segment, container) = first.unwrap_or((writer.next_segment, writer.next_container));
        self.index.addresses.set_oldest(segment << self.span_bits);
        self.index.addresses.set_head(writer.next_segment << self.span_bits);
        self.index.containers.set_oldest(container);
        self.index.containers.set_head(writer.next_container);
    }
}

/// Returns the id and the size of segments of the store that is there, or makes a new one.
fn identity(
    backend: &Arc<dyn Backend>,
    options: &Options,
    opened: &mut Opened,
) -> Result<(u64, u64), OpenError> {
    let sealer: Option<&Sealer> = options.sealer.as_deref();
    let why = match Paged::open(backend, sealer, STORE.to_owned()) {
        Ok((_, header)) if header.kind == Kind::Store && is_possible(header.number) => {
            return Ok((header.store, header.number));
        }
        Err(NotOurs::Io(error)) if error.kind() == io::ErrorKind::NotFound => None,
        Err(NotOurs::Io(error)) => return Err(error.into()),
        Err(NotOurs::OtherKey) => return Err(OpenError::OtherKey),
        Ok(_) | Err(NotOurs::Damaged) => Some("the file `store` is damaged"),
    };
    opened.new = true;
    opened.notes.extend(why.map(|why| format!("{why}: a new store begins")));
    for (name, _) in backend.list()? {
        if Segment::number_of(&name).is_some() || name == snapshot::NAME {
            backend.remove(&name)?;
        }
    }
    let header = Header { kind: Kind::Store, store: options.id, number: options.segment_bytes };
    let file = Paged::create(backend, sealer, format!("{STORE}.new"), PAGE as u64, header)?;
    file.sync()?;
    file.rename(STORE)?;
    Ok((options.id, options.segment_bytes))
}

fn is_possible(segment_bytes: u64) -> bool {
    (MIN_SEGMENT_BYTES..=1 << 32).contains(&segment_bytes) && segment_bytes.is_multiple_of(PAGE as u64)
}

/// The file that says which store this is.
const STORE: &str = "store";
