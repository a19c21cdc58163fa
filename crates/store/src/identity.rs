//! The identity of the store in a directory, found before its content.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use crate::error_context::with_file_context;
use crate::paged::{Header, Kind, MAGIC, NotOurs, PAGE, Paged};
use crate::recover::{OpenError, Opened};
use crate::segment::Segment;
use crate::snapshot;
use crate::store::{MIN_SEGMENT_BYTES, Options};
use crate::{Backend, Sealer, summary};

/// The marks of a store, and of its files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub(crate) id: u64,
    pub(crate) segment_bytes: u64,
    /// Whether only segments say so, and nothing else does yet.
    pub(crate) is_assumed: bool,
}

impl Identity {
    /// Returns that of the existing store, or of a new one.
    ///
    /// If the file with the identity is damaged or gone, the first pages of the segments give it: one page must not
    /// cost a whole store.
    pub(crate) fn find(
        backend: &Arc<dyn Backend>,
        options: &Options,
        opened: &mut Opened,
    ) -> Result<Self, OpenError> {
        let sealer: Option<&Sealer> = options.sealer.as_deref();
        let why = match Paged::open(backend, sealer, STORE.to_owned()) {
            Ok((_, header)) if header.kind == Kind::Store && is_possible(header.number) => {
                return Ok(Self { id: header.store, segment_bytes: header.number, is_assumed: false });
            }
            Err(NotOurs::Io(error)) if error.kind() == io::ErrorKind::NotFound => "is not there",
            Err(NotOurs::Io(error)) => return Err(with_file_context("reading", STORE, error).into()),
            Err(NotOurs::OtherKey) => return Err(OpenError::OtherKey),
            Err(NotOurs::Version(version)) => return Err(OpenError::Version(version)),
            Ok(_) | Err(NotOurs::Damaged) => "is damaged",
        };
        let segments = OfSegments::read(backend, sealer)?;
        let Some(identity) = segments.identity(options) else {
            if options.at_rest {
                return Err(OpenError::None(why));
            }
            return Self::begin(backend, options, (why == "is damaged").then_some(why), opened);
        };
        let named = segments.counts.values().sum::<usize>();
        let say = if named == 1 { "1 segment says".to_owned() } else { format!("{named} segments say") };
        if options.at_rest {
            opened.note(format!("the file `{STORE}` {why}; {say} which store it is"));
            return Ok(identity);
        }
        opened.note(format!("the file `{STORE}` {why}, and was made again from what {say}"));
        // Its addresses may be counted by segments of another size.
        snapshot::remove(backend)?;
        identity.write(backend, sealer)?;
        Ok(identity)
    }

    /// Begins a new store in place of none, or of an unreadable one.
    fn begin(
        backend: &Arc<dyn Backend>,
        options: &Options,
        why: Option<&str>,
        opened: &mut Opened,
    ) -> Result<Self, OpenError> {
        for name in [STORE, snapshot::NAME] {
            if !is_ours(backend, name)? {
                return Err(OpenError::Foreign(name));
            }
        }
        opened.new = true;
        why.into_iter().for_each(|why| opened.note(format!("the file `{STORE}` {why}: a new store begins")));
        for (name, _) in backend.list()? {
            if Segment::number_of(&name).is_some() {
                opened.note(format!("{name} has no valid first page: removed"));
                backend.remove(&name)?;
            }
            if summary::number_of(&name).is_some() {
                backend.remove(&name)?;
            }
        }
        snapshot::remove(backend)?;
        let identity = Self { id: options.id, segment_bytes: options.segment_bytes, is_assumed: false };
        identity.write(backend, options.sealer.as_deref())?;
        Ok(identity)
    }

    fn write(self, backend: &Arc<dyn Backend>, sealer: Option<&Sealer>) -> io::Result<()> {
        let header = Header { kind: Kind::Store, store: self.id, number: self.segment_bytes };
        let file = Paged::create(backend, sealer, NEW.to_owned(), PAGE as u64, header)?;
        file.sync()?;
        file.rename(STORE)
    }
}

/// Votes from the first pages of segments.
#[derive(Default)]
struct OfSegments {
    /// How many are of each store.
    counts: BTreeMap<u64, usize>,
    /// The length of the longest file with the shape of a segment.
    longest: u64,
}

/// So many equal votes count for all: a disk with an arm would take a minute for thousands.
const ENOUGH: usize = 16;

impl OfSegments {
    /// Reads them, all unless the first are of one mind.
    ///
    /// # Errors
    /// If one of those cannot be read, or is not to be touched: it may say otherwise.
    fn read(backend: &Arc<dyn Backend>, sealer: Option<&Sealer>) -> Result<Self, OpenError> {
        let mut found = Self::default();
        for (name, len) in backend.list()? {
            let Some(number) = Segment::number_of(&name) else { continue };
            if len <= MAX_SEGMENT_BYTES {
                found.longest = found.longest.max(len);
            }
            if found.counts.len() == 1 && found.counts.values().all(|count| *count >= ENOUGH) {
                continue;
            }
            match Paged::open(backend, sealer, name) {
                Ok((_, header)) if header.kind == Kind::Segment && header.number == number => {
                    *found.counts.entry(header.store).or_default() += 1;
                }
                Ok(_) | Err(NotOurs::Damaged) => {}
                Err(NotOurs::OtherKey) => return Err(OpenError::OtherKey),
                Err(NotOurs::Version(version)) => return Err(OpenError::Version(version)),
                Err(NotOurs::Io(error)) => return Err(error.into()),
            }
        }
        Ok(found)
    }

    /// Returns the store with most votes. They do not give the segment size: it is the longest one's, or the wished
    /// one.
    fn identity(&self, options: &Options) -> Option<Identity> {
        let (&id, _) = self.counts.iter().max_by_key(|(_, count)| **count)?;
        let segment_bytes = self.longest.next_multiple_of(PAGE as u64).max(options.segment_bytes);
        is_possible(segment_bytes).then_some(Identity { id, segment_bytes, is_assumed: true })
    }
}

/// Says whether a file can be of its name's kind: it begins as ours do, with nothing yet, or is missing.
fn is_ours(backend: &Arc<dyn Backend>, name: &str) -> io::Result<bool> {
    let mut begin = [0; MAGIC.len()];
    match backend.read(name, 0, &mut begin) {
        Ok(()) => Ok(begin == MAGIC || begin == [0; MAGIC.len()]),
        // So short a file proves nothing.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof) => {
            Ok(true)
        }
        Err(error) => Err(with_file_context("reading", name, error)),
    }
}

/// Says whether segments can have this size.
pub(crate) fn is_possible(segment_bytes: u64) -> bool {
    (MIN_SEGMENT_BYTES..=MAX_SEGMENT_BYTES).contains(&segment_bytes)
        && segment_bytes.is_multiple_of(PAGE as u64)
}

const MAX_SEGMENT_BYTES: u64 = 1 << 32;

/// The file with the store's identity.
pub(crate) const STORE: &str = "store";

/// Its name during writing.
pub(crate) const NEW: &str = "store.new";
