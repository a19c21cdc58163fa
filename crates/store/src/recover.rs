//! Opening and closing: the findings of a start, and their treatment.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::files::{Files, FoundSegment, Look, REFUSED};
use crate::flaw::{Flaw, Unsealed};
use crate::identity::{Identity, is_possible};
use crate::index::Class;
use crate::paged::{PAGE, Paged};
use crate::scan::Scanned;
use crate::segment::{Coarse, Extent, Segment};
use crate::snapshot;
use crate::store::{MIN_SEGMENT_BYTES, Options, Store};
use crate::summary::{Lists, Summary};
use crate::writer::Writer;
use crate::{Backend, Part, Progress, stray};

/// Why a store cannot be opened at all; damage is no reason.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The disk refused.
    #[error("chunk store: {0}")]
    Io(#[from] io::Error),
    /// The store is encrypted under another key, or without a key in the settings, or is in clear text in spite of
    /// a key there; it is left alone, since a wrong setting must not cost the store.
    #[error("chunk store: encrypted under another key, or not as configured")]
    OtherKey,
    /// The store was written by a later build; it is left alone.
    #[error("chunk store: of version {0}, which this build does not know")]
    Version(u32),
    /// A store was to be looked at, and none is there.
    #[error("chunk store: the file `store` {0}, and no segment says which store it is")]
    None(&'static str),
    /// A new store would begin, and a file of another program has the name of one of its own.
    #[error("chunk store: the file `{0}` is not of one; choose another directory, or remove it")]
    Foreign(&'static str),
    /// The segments have an impossible size.
    #[error(
        "chunk store: segments of {0} bytes; choose from {MIN_SEGMENT_BYTES} to 4294967296 in steps of 4096"
    )]
    Segments(u64),
    /// The capacity is less than two segments.
    #[error(
        "chunk store: a capacity of {capacity} bytes is less than two segments of {segment_bytes}, the size that it \
         was made with; give it more, or remove its files to begin anew with smaller ones"
    )]
    Capacity {
        /// The requested capacity.
        capacity: u64,
        /// The bytes of a segment.
        segment_bytes: u64,
    },
}

/// The findings of a start.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// Whether the store is new: an earlier one, if any, is not taken up.
    pub new: bool,
    /// Segments taken up.
    pub segments: usize,
    /// Whether the index was on the disk; else it was rebuilt.
    pub index_kept: bool,
    /// Segments without a footer, every container of which was read.
    pub scanned: usize,
    /// Unreadable segments, left on the disk as they are.
    pub set_aside: usize,
    /// Losses and segments set aside, with reasons, for the owner's log, a line each; at most 100 of them.
    pub notes: Vec<String>,
    /// How many there would be beyond.
    pub notes_left_out: usize,
}

impl Opened {
    pub(crate) fn note(&mut self, note: String) {
        match self.notes.len() < MOST_NOTES {
            true => self.notes.push(note),
            false => self.notes_left_out += 1,
        }
    }
}

/// An identified store, not open yet.
pub struct Prepared {
    backend: Arc<dyn Backend>,
    options: Options,
    identity: Identity,
    opened: Opened,
}

impl Store {
    /// Opens the store in a directory, or makes one; returns the findings, too.
    ///
    /// After [`Store::close`] this reads the index from one file. Else it reads the footer of each segment, the whole
    /// of those without one, and the summaries of the youngest ones until the index of small chunks is full; for lack
    /// of a summary, the containers.
    ///
    /// # Errors
    /// If the directory cannot be read or written, or the options make no sense. No content of the files is an error.
    pub fn open(backend: Arc<dyn Backend>, options: &Options) -> Result<(Self, Opened), OpenError> {
        Self::prepare(backend, options)?.open(&Progress::default())
    }

    /// Identifies the store in a directory, or makes a new one; takes a read or two, while opening may take minutes.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn prepare(backend: Arc<dyn Backend>, options: &Options) -> Result<Prepared, OpenError> {
        if !is_possible(options.segment_bytes) {
            return Err(OpenError::Segments(options.segment_bytes));
        }
        let mut opened = Opened::default();
        let identity = Identity::find(&backend, options, &mut opened)?;
        if !options.at_rest && options.capacity / 2 < identity.segment_bytes {
            let (capacity, segment_bytes) = (options.capacity, identity.segment_bytes);
            return Err(OpenError::Capacity { capacity, segment_bytes });
        }
        Ok(Prepared { backend, options: options.clone(), identity, opened })
    }

    /// Writes the content of memory, and the index, so the next start finds it at once. With a full disk the oldest
    /// segments give way to the index, if it is small beside them. An unchanged store [at rest](Options::at_rest)
    /// stays as found.
    ///
    /// # Errors
    /// If the disk refuses; the next start then rebuilds the index.
    pub fn close(self) -> io::Result<()> {
        let mut writer = self.writing();
        if self.is_as_found.load(Ordering::Relaxed) {
            return Ok(());
        }
        if let Some(trouble) = &writer.stopped {
            return Err(io::Error::other(trouble.clone()));
        }
        self.seal(&mut writer)?;
        self.save_index(&writer)
    }

    /// Makes the ring of segments for a loaded index, from each one's first container and description.
    fn take_up(&self, files: Files, described: Vec<(u64, Extent)>, writer: Writer) {
        let segments = files.segments.into_iter().zip(described);
        let segments = segments.filter_map(|(found, (first, extent))| match found.look {
            Some(Look::Ours(file)) => Some(Segment::new(self.id, found.number, first, file, extent)),
            _ => None,
        });
        let segments: VecDeque<Arc<Segment>> = segments.map(Arc::new).collect();
        self.set_window(&segments, &writer);
        *self.ring.write() = segments;
        *self.writing() = writer;
    }

    /// Notes the saved index's description of the segments, and the missing ones among them. Nothing was written
    /// after it was saved, so any difference is harm.
    fn compare_with_saved(&mut self, files: &mut Files, snapshot: Option<u64>) {
        let said = snapshot.and_then(|len| self.saved_segments(len)).unwrap_or_default();
        for (number, said) in said {
            let found = files.segments.iter_mut().find(|found| found.number == number);
            let name = Segment::file_name(number);
            match found {
                Some(found) => found.said = Some(said),
                None if self.others.contains_key(&name) => {}
                None => self.missing.push((name, Flaw { what: "it is gone", gone: said.containers })),
            }
        }
    }

    /// Makes the ring and the index from the segments' content.
    fn rebuild(&mut self, mut files: Files, opened: &mut Opened, progress: &Progress) -> io::Result<()> {
        let mut writer = Writer { next_segment: 1, next_container: 1, ..Writer::default() };
        let mut segments = VecDeque::new();
        if let Some(oldest) = files.segments.first() {
            self.index.addresses.set_oldest(oldest.number << self.span_bits);
        }
        files.note_newest();
        for found in std::mem::take(&mut files.segments) {
            progress.advance(1)?;
            let (number, len) = (found.number, found.len);
            let summary = files.summaries.get(&number).copied();
            let Some((file, read)) = self.read_segment(found, summary, opened)? else { continue };
            // One file of another must not lead the numbers away from the existing ones.
            let is_read = matches!(read, Read::Some(_));
            if is_read || segments.is_empty() || stray::is_near(number, writer.next_segment) {
                writer.next_segment = number + 1;
            }
            let first = writer.next_container;
            let (segment, large) = match read {
                Read::Some(read) => {
                    let Contents { extent, coarse, is_whole, small, flaw } = *read;
                    let segment = Segment::new(self.id, number, first, file, extent);
                    flaw.into_iter().for_each(|flaw| segment.note_flaw(flaw));
                    match small {
                        _ if !is_whole => segment.found_in_part(),
                        Some(small) => {
                            files.summaries.remove(&number);
                            files.summaries.extend(self.summarize(&segment, &small, Some(&coarse)));
                        }
                        None => {}
                    }
                    (segment, coarse)
                }
                Read::Closed(why) => {
                    let extent = Extent { file_len: len, ..Extent::default() };
                    (Segment::new(self.id, number, first, file, extent).closed(why), Vec::new())
                }
                // Its disk refuses nothing: it is there to be counted, and goes when the store is rewritten.
                Read::Nothing(flaw) if self.is_only_looked_at() => {
                    let extent = Extent { file_len: len, ..Extent::default() };
                    let segment = Segment::new(self.id, number, first, file, extent);
                    match flaw {
                        Some(flaw) => segment.note_flaw(flaw),
                        None => opened.note(format!("{}: {NOTHING}", segment.file.name())),
                    }
                    (segment, Vec::new())
                }
                Read::Nothing(_) => {
                    file.remove()?;
                    continue;
                }
            };
            writer.next_container += u64::from(segment.extent.read().containers);
            // At once, or the entries of a terabyte would all be in memory twice.
            self.index_large(number, &large);
            segments.push_back(Arc::new(segment));
        }
        self.pass_over(&mut segments, writer.next_segment, opened);
        self.set_window(&segments, &writer);
        *self.ring.write() = segments;
        *self.writing() = writer;
        self.take_summaries(&files.summaries);
        self.rebuild_small(&files.summaries, opened, progress)
    }

    /// Indexes the large chunks of a segment behind those of all earlier ones.
    fn index_large(&self, segment: u64, large: &[Coarse]) {
        self.index.addresses.set_head((segment + 1) << self.span_bits);
        for some in large.chunks(512) {
            self.index.touch(some.iter().map(|(tag, _)| (*tag, Class::Coarse)));
            for (tag, at) in some {
                self.index.put(*tag, Class::Coarse, self.address(segment, *at), 0);
            }
        }
    }

    /// Returns the description of a segment, by its footer or summary or by all its containers; None if its file is
    /// gone, since nobody could ever read it. The length is that of its summary.
    fn read_segment(
        &self,
        mut found: FoundSegment,
        summary: Option<u64>,
        opened: &mut Opened,
    ) -> io::Result<Option<(Paged, Read)>> {
        let (number, file_len) = (found.number, found.len);
        // In clear text a footer passes its check in its own segment and nowhere else, so nothing else is to be read.
        let unlooked = found.look.is_none() && self.sealer.is_none();
        if unlooked {
            let file = Paged::assume(&self.backend, found.name.clone());
            if let Some(read) = self.read_footer(number, &file, file_len, opened) {
                return Ok(Some((file, read)));
            }
        }
        let look = found.look.take();
        let file = match look.map_or_else(|| self.look_at(number, &found.name, opened), Ok)? {
            Look::Ours(file) => file,
            Look::Closed(file, why) => return Ok(Some((file, Read::Closed(why)))),
            Look::Vain(file, flaw) => {
                let summary = self.summary_of(number, summary);
                let flaw = flaw.or_else(|| {
                    let flaw = self.flaw_of(&found, &file, None, summary.as_ref())?;
                    Some(if found.len < PAGE as u64 { flaw } else { Flaw { what: NO_KEY, ..flaw } })
                });
                return Ok(Some((file, Read::Nothing(flaw))));
            }
            Look::Gone => return Ok(None),
        };
        let known = if unlooked { None } else { self.read_footer(number, &file, file_len, opened) };
        let read = match known {
            Some(read) => read,
            None => self.read_without_footer(&found, &file, summary, opened)?,
        };
        Ok(Some((file, read)))
    }

    /// Returns the description of a segment by its footer, if it has one or the disk hides it.
    fn read_footer(&self, number: u64, file: &Paged, file_len: u64, opened: &mut Opened) -> Option<Read> {
        match Extent::read(file, file_len, Segment::footer_seed(self.id, number)) {
            Ok(footer) => footer.map(|(extent, coarse)| Read::some(extent, coarse, true)),
            Err(fault) => {
                opened.note(format!("{fault}: set aside"));
                Some(Read::Closed(REFUSED))
            }
        }
    }

    /// Returns the sound summary of a segment, with this length of its file.
    fn summary_of(&self, number: u64, len: Option<u64>) -> Option<Summary> {
        len.and_then(|len| {
            Summary::read(&self.backend, self.sealer.as_deref(), (self.id, number), len, false)
        })
    }

    /// Returns the proof of loss in a segment without a footer, and the findings in it, if it could be scanned.
    fn flaw_of(
        &self,
        found: &FoundSegment,
        file: &Paged,
        scanned: Option<&Scanned>,
        summary: Option<&Summary>,
    ) -> Option<Flaw> {
        let extent = scanned.map(|scanned| &scanned.extent);
        let (containers, end) = extent.map_or((0, 0), |extent| (extent.containers, extent.end));
        let room = u64::from(end).next_multiple_of(file.payload() as u64);
        let unsealed = Unsealed {
            file_len: found.len,
            containers,
            cut_len: file.file_len(room),
            full_len: self.segment_bytes,
            is_newest: found.is_newest,
            is_cut_short: scanned.is_some_and(|scanned| scanned.is_cut_short),
            page_is_harmed: containers == 0 && self.first_page_is_harmed(&found.name),
        };
        unsealed.flaw(found.said.or_else(|| summary.map(Summary::said)))
    }

    /// Returns the description of a segment without a footer. The length is that of its summary.
    fn read_without_footer(
        &self,
        found: &FoundSegment,
        file: &Paged,
        summary: Option<u64>,
        opened: &mut Opened,
    ) -> io::Result<Read> {
        let (number, file_len) = (found.number, found.len);
        let summary = self.summary_of(number, summary);
        if let Some((extent, coarse)) = summary.as_ref().and_then(|summary| summary.footer(file_len)) {
            return Ok(Read::some(extent, coarse, true));
        }
        opened.scanned += 1;
        let mut small = Lists::default();
        let mut visit = |parts: &[Part]| small.add(&self.index, parts);
        let scanned = Extent::scan(file, file_len, self.id, number, &mut visit);
        let whole = scanned.refused.is_none().then_some(&scanned);
        let flaw = whole.and_then(|scanned| self.flaw_of(found, file, Some(scanned), summary.as_ref()));
        let Scanned { mut extent, coarse, refused, .. } = scanned;
        let containers = extent.containers;
        let had = match flaw {
            Some(flaw) => flaw.of(file.name()).to_string(),
            None => format!("{} has no footer, and whether it had more cannot be told", file.name()),
        };
        opened.note(format!("{had}: {containers} containers found in it"));
        match refused {
            Some(fault) if containers == 0 => {
                opened.note(format!("{fault}: set aside"));
                Ok(Read::Closed(REFUSED))
            }
            // Unreadable content may be readable another time.
            Some(fault) => {
                opened.note(format!("{fault}: what may be behind is looked for again at the next start"));
                Ok(Read::some(extent, coarse, false))
            }
            None if containers == 0 => Ok(Read::Nothing(flaw)),
            None if self.is_only_looked_at() => {
                Ok(Read::Some(Box::new(Contents { extent, coarse, is_whole: true, small: None, flaw })))
            }
            None => {
                // Nothing is added to a crashed segment, so the rest of its room goes back.
                let room = u64::from(extent.end).next_multiple_of(file.payload() as u64);
                file.cut(room)?;
                // A summary's subject is on the disk before the summary.
                file.sync()?;
                extent.file_len = file.file_len(room);
                let small = Some(small);
                Ok(Read::Some(Box::new(Contents { extent, coarse, is_whole: true, small, flaw })))
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

impl Prepared {
    /// Returns the store's id.
    pub fn id(&self) -> u64 {
        self.identity.id
    }

    /// Opens it as [`Store::open`] does, with the same duration; `progress` counts segments, each twice or thrice.
    ///
    /// # Errors
    /// As there, and [`io::ErrorKind::Interrupted`] if it was cancelled: the directory is then as a killed process leaves it.
    pub fn open(self, progress: &Progress) -> Result<(Store, Opened), OpenError> {
        let Self { backend, options, identity, mut opened } = self;
        let saved = options.at_rest.then(|| snapshot::layout_of(&backend, &options, identity.id)).flatten();
        let mut store = Store::empty(backend, &options, identity, saved);
        let mut files = store.list_files()?;
        store.others = std::mem::take(&mut files.others);
        store.others.iter().for_each(|(name, why)| opened.note(format!("{name}: {why}: passed over")));
        let snapshot = files.snapshot.filter(|_| !identity.is_assumed);
        // Without an index there, the end of a segment gives most of its first page's information.
        let looks = snapshot.is_some() || store.sealer.is_some();
        progress.begin((2 + u64::from(looks)) * files.segments.len() as u64);
        if looks {
            store.look_at_all(&mut files, &mut opened, progress)?;
        }
        let mut writer = Writer { next_segment: 1, next_container: 1, ..Writer::default() };
        let saved = snapshot;
        // A snapshot with presently unreadable files does not tell how to do without them.
        let snapshot = snapshot.filter(|_| files.are_all_ours());
        let kept = snapshot.and_then(|len| store.load_index(len, &files.segments, &mut writer));
        // It is invalid after any write. A store at rest keeps even a useless one: the next start compares it with
        // the files anew.
        if !options.at_rest {
            snapshot::remove(&store.backend)?;
        }
        match kept {
            Some(described) => {
                opened.index_kept = true;
                let summaries = std::mem::take(&mut files.summaries);
                store.take_up(files, described, writer);
                store.take_summaries(&summaries);
            }
            None => {
                if options.at_rest {
                    store.compare_with_saved(&mut files, saved);
                }
                store.index.clear();
                store.rebuild(files, &mut opened, progress)?;
            }
        }
        let writer = store.writing();
        while store.file_bytes() > store.capacity && store.evict_before(&writer, u64::MAX).is_some() {}
        store.shed_offsets(&writer);
        drop(writer);
        opened.segments = store.ring.read().len();
        opened.set_aside = store.set_aside();
        Ok((store, opened))
    }
}

/// The result of a look into a segment's file.
enum Read {
    Some(Box<Contents>),
    /// There is nothing in it, and never will be.
    Nothing(Option<Flaw>),
    /// It cannot be looked at, and why.
    Closed(&'static str),
}

/// The content of a segment.
struct Contents {
    extent: Extent,
    coarse: Vec<Coarse>,
    /// Whether the disk let all of it be looked at.
    is_whole: bool,
    /// Its small chunks, if a summary is to be made of them.
    small: Option<Lists>,
    /// The proof of lost content.
    flaw: Option<Flaw>,
}

impl Read {
    fn some(extent: Extent, coarse: Vec<Coarse>, is_whole: bool) -> Self {
        Self::Some(Box::new(Contents { extent, coarse, is_whole, small: None, flaw: None }))
    }
}

/// The note on a segment with the possible marks of a power cut.
const NOTHING: &str =
    "nothing is in it, as a power cut may leave the last one; whether there was cannot be told";

/// The reason for an unreadable encrypted segment of the right length.
const NO_KEY: &str = "its first page, which has its key, is gone";

/// Lines for the log: a bound for a disk full of damage.
const MOST_NOTES: usize = 100;
