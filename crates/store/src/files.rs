//! The files in a store's directory, and their owners.

use std::collections::BTreeMap;
use std::io;

use crate::flaw::{Flaw, Said};
use crate::paged::{Header, Kind, NotOurs, PAGE, Paged};
use crate::recover::Opened;
use crate::segment::Segment;
use crate::{Fault, Progress, Store, snapshot, summary};

/// A store's files in a directory.
#[derive(Default)]
pub(crate) struct Files {
    /// By their numbers.
    pub(crate) segments: Vec<FoundSegment>,
    /// The length of the snapshot of the index.
    pub(crate) snapshot: Option<u64>,
    /// Other things with the name of a segment, each with the reason.
    pub(crate) others: BTreeMap<String, &'static str>,
    /// The lengths of summaries, by the numbers of their segments.
    pub(crate) summaries: BTreeMap<u64, u64>,
}

/// A file with the name of a segment.
pub(crate) struct FoundSegment {
    pub(crate) number: u64,
    pub(crate) name: String,
    pub(crate) len: u64,
    /// Its first page, if that was read.
    pub(crate) look: Option<Look>,
    /// Its description in the saved index.
    pub(crate) said: Option<Said>,
    /// Whether no other one of the store was begun after it.
    pub(crate) is_newest: bool,
}

/// The result of a look at a segment's first page.
pub(crate) enum Look {
    /// A segment of this store, as far as it can be read.
    Ours(Paged),
    /// It cannot be read, and is to stay.
    Closed(Paged, &'static str),
    /// Unreadable for ever; not removed from a store at rest. With the proof of harm.
    Vain(Paged, Option<Flaw>),
    /// Nobody can read it ever: it was removed.
    Gone,
}

impl Files {
    /// Marks the latest segment; files of others do not count.
    pub(crate) fn note_newest(&mut self) {
        let is_other = |found: &FoundSegment| matches!(found.look, Some(Look::Closed(..)));
        let newest = self.segments.iter_mut().rev().find(|found| !is_other(found));
        newest.into_iter().for_each(|found| found.is_newest = true);
    }

    /// Says whether every segment can be read, as far as was looked.
    pub(crate) fn are_all_ours(&self) -> bool {
        self.segments.iter().all(|found| matches!(found.look, Some(Look::Ours(_))))
    }
}

impl Store {
    /// Lists the files there.
    pub(crate) fn list_files(&self) -> io::Result<Files> {
        let mut files = Files::default();
        for (name, len) in self.backend.list()? {
            match Segment::number_of(&name) {
                // The address behind the last one must still be a number.
                Some(number) if number >> (63 - self.span_bits) > 0 => {
                    files.others.insert(name, BEYOND_ALL);
                }
                Some(number) => {
                    let found = FoundSegment { number, name, len, look: None, said: None, is_newest: false };
                    files.segments.push(found);
                }
                None if name == snapshot::NAME => files.snapshot = Some(len),
                None => files.summaries.extend(summary::number_of(&name).map(|number| (number, len))),
            }
        }
        files.segments.sort_by_key(|found| found.number);
        let others = self.backend.list_others()?.into_iter();
        let others = others.filter(|name| Segment::number_of(name).is_some());
        files.others.extend(others.map(|name| (name, NO_FILE)));
        Ok(files)
    }

    /// Reads the first page of each segment.
    pub(crate) fn look_at_all(
        &self,
        files: &mut Files,
        opened: &mut Opened,
        progress: &Progress,
    ) -> io::Result<()> {
        for found in &mut files.segments {
            progress.advance(1)?;
            found.look = Some(self.look_at(found.number, &found.name, opened)?);
        }
        files.segments.retain(|found| !matches!(found.look, Some(Look::Gone)));
        Ok(())
    }

    /// Reads the first page of a segment. An unreadable segment is set aside, and removed only if it is proven
    /// unreadable for ever.
    pub(crate) fn look_at(&self, number: u64, name: &str, opened: &mut Opened) -> io::Result<Look> {
        // A store at rest changes nothing.
        let at_rest = self.is_only_looked_at();
        let expected = Header { kind: Kind::Segment, store: self.id, number };
        let assumed = || Paged::assume(&self.backend, name.to_owned());
        let why = match Paged::open(&self.backend, self.sealer.as_deref(), name.to_owned()) {
            Ok((file, header)) if header == expected => return Ok(Look::Ours(file)),
            Err(NotOurs::Damaged) if self.sealer.is_none() => {
                opened.note(format!("{name} has no valid first page: its containers speak for themselves"));
                return Ok(Look::Ours(assumed()));
            }
            Err(NotOurs::Damaged) if !at_rest => {
                opened.note(format!("{name} has no valid first page, and so no key: removed"));
                self.backend.remove(name)?;
                return Ok(Look::Gone);
            }
            Err(NotOurs::Damaged) => {
                opened.note(format!("{name} has no valid first page, and so no key"));
                return Ok(Look::Vain(assumed(), None));
            }
            // One of ours in the place of another: nothing in it passes its check here.
            Ok((_, header)) if header.store == self.id && !at_rest => {
                opened.note(format!("{name} is a file of this store under a wrong name: removed"));
                self.backend.remove(name)?;
                return Ok(Look::Gone);
            }
            Ok((_, header)) if header.store == self.id => {
                opened.note(format!("{name} is a file of this store under a wrong name"));
                let flaw = Flaw { what: "it is a file of this store under a wrong name", gone: 0 };
                return Ok(Look::Vain(assumed(), Some(flaw)));
            }
            Ok(_) => {
                ("belongs to another store, or elsewhere in this one".to_owned(), "it is of another store")
            }
            Err(NotOurs::OtherKey) => (
                "is encrypted under another key, or not as configured".to_owned(),
                "it is encrypted under another key, or not as configured",
            ),
            Err(NotOurs::Version(version)) => {
                (format!("is of version {version}"), "it is of a later version")
            }
            Err(NotOurs::Io(error)) => (format!("cannot be read: {error}"), REFUSED),
        };
        let (said, why) = why;
        opened.note(format!("{name} {said}: set aside"));
        Ok(Look::Closed(assumed(), why))
    }

    /// Notes a wrong first page of a segment readable without it. An empty page without a footer is right: a power
    /// cut may leave it.
    ///
    /// # Errors
    /// If the disk refuses.
    pub(crate) fn check_first_page(&self, segment: &Segment) -> Result<(), Fault> {
        let name = segment.file.name();
        let expected = Header { kind: Kind::Segment, store: self.id, number: segment.number };
        let has_footer = segment.extent.read().has_footer;
        match Paged::open(&self.backend, self.sealer.as_deref(), name.to_owned()) {
            Ok((_, header)) if header == expected => return Ok(()),
            Err(NotOurs::Io(source)) => return Err(Fault::Io { file: name.to_owned(), at: 0, source }),
            Err(NotOurs::Damaged) if !has_footer && !self.first_page_is_harmed(name) => return Ok(()),
            _ => segment.note_flaw(Flaw { what: "its first page is damaged", gone: 0 }),
        }
        Ok(())
    }

    /// Says whether the first page of a file holds something else than a first page; zeros may be from a power cut.
    pub(crate) fn first_page_is_harmed(&self, name: &str) -> bool {
        let page = || {
            let mut page = [0; PAGE];
            self.backend.read(name, 0, &mut page).is_ok_and(|()| page.iter().any(|byte| *byte != 0))
        };
        let opened = Paged::open(&self.backend, self.sealer.as_deref(), name.to_owned());
        matches!(opened, Err(NotOurs::Damaged)) && page()
    }
}

/// Why something with the name of a segment is passed over.
const NO_FILE: &str = "it is no regular file";
const BEYOND_ALL: &str = "no segment can have its number";

/// Why a segment refused by the disk at the opening is set aside.
pub(crate) const REFUSED: &str = "the disk refused it at the start";
