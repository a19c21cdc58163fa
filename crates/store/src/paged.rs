//! Files with a describing first page; the pages behind it may be sealed.
//!
//! The first page is in clear text, numbers little-endian, the rest zeros:
//!
//! | at | bytes | what |
//! |---:|---:|---|
//! | 0 | 8 | `owchunks` |
//! | 8 | 4 | version of the format: 1 |
//! | 12 | 4 | kind of file: 0 the store itself, 1 a segment, 2 a snapshot of the index, 3 a summary of a segment |
//! | 16 | 8 | id of the store |
//! | 24 | 8 | of the store, the bytes of a segment; of a segment or its summary, its number; of a snapshot 0 |
//! | 32 | 16 | name of the key, zeros if there is none |
//! | 48 | 16 | salt, zeros if there is no key |
//! | 64 | 8 | XXH3-64 of the bytes before |
//!
//! Content is addressed by offset behind it. Without a key, offset *o* lies at byte 4096 + *o*. With one, each page
//! of 4096 bytes holds 4080 of them, encrypted, and a tag of 16.

use std::io;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use crate::bytes::{u32_at, u64_at};
use crate::seal::{FileSeal, Sealer, TAG_LEN};
use crate::{Backend, Fault};

/// The content of a file's first page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    /// The store's id.
    pub(crate) store: u64,
    pub(crate) number: u64,
}

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Kind {
    Store = 0,
    Segment = 1,
    Snapshot = 2,
    Summary = 3,
}

/// Why a file is not taken up.
#[derive(Debug)]
pub(crate) enum NotOurs {
    Io(io::Error),
    /// The first page is not one.
    Damaged,
    /// It is of a version unknown to this build.
    Version(u32),
    /// It is encrypted under another key, or with one and there is none, or without one and there is one.
    OtherKey,
}

/// A file with pages read and written by offset; reading is safe during writes elsewhere.
pub(crate) struct Paged {
    backend: Arc<dyn Backend>,
    name: String,
    seal: Option<FileSeal>,
}

impl Paged {
    /// Makes a file of at most `len` bytes in all and writes its first page.
    pub(crate) fn create(
        backend: &Arc<dyn Backend>,
        sealer: Option<&Sealer>,
        name: String,
        len: u64,
        header: Header,
    ) -> io::Result<Self> {
        let salt = sealer.map(Sealer::salt).transpose()?;
        backend.create(&name, len)?;
        let key = sealer.map_or([0; 16], Sealer::id);
        let first = header.encode(key, salt.unwrap_or_default());
        if let Err(error) = backend.write(&name, 0, &first) {
            // Nobody counts its room.
            let _ = backend.remove(&name);
            return Err(error);
        }
        let seal = sealer.zip(salt).map(|(sealer, salt)| sealer.file(&salt));
        Ok(Self { backend: Arc::clone(backend), name, seal })
    }

    /// Takes up a file by its first page.
    pub(crate) fn open(
        backend: &Arc<dyn Backend>,
        sealer: Option<&Sealer>,
        name: String,
    ) -> Result<(Self, Header), NotOurs> {
        Self::open_front(backend, sealer, name, PAGE as u64, 0).map(|(file, header, _)| (file, header))
    }

    /// The same for a file of this length, and returns its first addressed bytes, read with the same request: at
    /// least `len`, or all, or those up to the first page that does not open.
    pub(crate) fn open_front(
        backend: &Arc<dyn Backend>,
        sealer: Option<&Sealer>,
        name: String,
        file_len: u64,
        len: usize,
    ) -> Result<(Self, Header, Vec<u8>), NotOurs> {
        let payload = if sealer.is_some() { SEALED } else { PAGE };
        let there = usize::try_from(file_len / PAGE as u64).unwrap_or(usize::MAX).saturating_sub(1);
        let mut pages = vec![0; (1 + there.min(len.div_ceil(payload))) * PAGE];
        backend.read(&name, 0, &mut pages).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => NotOurs::Damaged,
            _ => NotOurs::Io(error),
        })?;
        let (header, key, salt) = Header::decode(pages.get(..PAGE).unwrap_or_default())?;
        if key != sealer.map_or([0; 16], Sealer::id) {
            return Err(NotOurs::OtherKey);
        }
        let file = Self { backend: Arc::clone(backend), name, seal: sealer.map(|sealer| sealer.file(&salt)) };
        pages.drain(..PAGE);
        let front = file.opened(0, pages);
        Ok((file, header, front))
    }

    /// Trusts a file's name in spite of its first page: pages in clear text need nothing of it.
    pub(crate) fn assume(backend: &Arc<dyn Backend>, name: String) -> Self {
        Self { backend: Arc::clone(backend), name, seal: None }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns how many bytes are addressed in a page.
    pub(crate) fn payload(&self) -> usize {
        if self.seal.is_some() { SEALED } else { PAGE }
    }

    /// Returns how many bytes are addressed in a file of this length.
    pub(crate) fn room(&self, file_len: u64) -> u64 {
        (file_len / PAGE as u64).saturating_sub(1) * self.payload() as u64
    }

    /// Returns the length of a file with these many addressed bytes, whole pages.
    pub(crate) fn file_len(&self, room: u64) -> u64 {
        (room / self.payload() as u64 + 1) * PAGE as u64
    }

    /// Returns the byte of the file at an offset.
    pub(crate) fn place(&self, at: u64) -> u64 {
        let payload = self.payload() as u64;
        PAGE as u64 + at / payload * PAGE as u64 + at % payload
    }

    /// Returns how many bytes of the file whole pages take.
    pub(crate) fn taken(&self, at: u64, len: usize) -> u64 {
        self.place(at + len as u64) - self.place(at)
    }

    /// Writes whole pages at the beginning of a page, where nothing was written yet.
    pub(crate) fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        debug_assert!(at.is_multiple_of(self.payload() as u64) && bytes.len().is_multiple_of(self.payload()));
        let place = self.place(at);
        let Some(seal) = &self.seal else { return self.backend.write(&self.name, place, bytes) };
        let first = at / self.payload() as u64;
        let mut sealed = Vec::with_capacity(bytes.len() / self.payload() * PAGE);
        for (page, plain) in (first..).zip(bytes.chunks(self.payload())) {
            let begin = sealed.len();
            sealed.extend_from_slice(plain);
            let tag = seal.close(page, &mut sealed[begin..])?;
            sealed.extend_from_slice(tag.as_ref());
        }
        self.backend.write(&self.name, place, &sealed)
    }

    /// Reads bytes, with one request to the backend.
    pub(crate) fn read(&self, at: u64, len: usize) -> Result<Vec<u8>, Fault> {
        let Some(seal) = &self.seal else {
            let mut bytes = vec![0; len];
            self.fetch(self.place(at), &mut bytes)?;
            return Ok(bytes);
        };
        let payload = self.payload() as u64;
        let (first, end) = (at / payload, (at + len as u64).div_ceil(payload));
        let mut pages = vec![0; (end - first) as usize * PAGE];
        let place = self.place(first * payload);
        self.fetch(place, &mut pages)?;
        let mut bytes = Vec::with_capacity(pages.len());
        for (page, sealed) in (first..).zip(pages.chunks_mut(PAGE)) {
            let place = self.place(page * payload);
            let plain =
                seal.open(page, sealed).ok_or_else(|| self.damaged_at(place, "page does not open"))?;
            bytes.extend_from_slice(plain);
        }
        bytes.drain(..(at - first * payload) as usize);
        bytes.truncate(len);
        Ok(bytes)
    }

    /// Reads bytes from the beginning of a page on, with one request: up to the first page that does not open.
    pub(crate) fn read_front(&self, at: u64, len: usize) -> Result<Vec<u8>, Fault> {
        if self.seal.is_none() {
            return self.read(at, len);
        }
        let mut pages = vec![0; len.div_ceil(SEALED) * PAGE];
        self.fetch(self.place(at), &mut pages)?;
        let mut bytes = self.opened(at / SEALED as u64, pages);
        bytes.truncate(len);
        Ok(bytes)
    }

    /// Returns the addressed bytes of pages from the disk, up to the first that does not open.
    fn opened(&self, first: u64, mut pages: Vec<u8>) -> Vec<u8> {
        let Some(seal) = &self.seal else { return pages };
        let mut bytes = Vec::with_capacity(pages.len());
        for (page, sealed) in (first..).zip(pages.chunks_mut(PAGE)) {
            let Some(plain) = seal.open(page, sealed) else { break };
            bytes.extend_from_slice(plain);
        }
        bytes
    }

    /// Counts the empty pages from an offset on, the beginning of one: zeros, as in a fresh file. At most `most` are
    /// looked at, with one request; an unreadable page is not empty.
    pub(crate) fn empty_pages(&self, at: u64, most: usize) -> usize {
        let mut bytes = vec![0; most * PAGE];
        let read = self.backend.read(&self.name, self.place(at), &mut bytes);
        let empty = bytes.chunks(PAGE).take_while(|page| page.iter().all(|byte| *byte == 0)).count();
        read.map_or(0, |()| empty)
    }

    /// Reports damage at an offset.
    pub(crate) fn damaged(&self, at: u64, what: &'static str) -> Fault {
        self.damaged_at(self.place(at), what)
    }

    /// Cuts the file behind these many addressed bytes, whole pages.
    pub(crate) fn cut(&self, room: u64) -> io::Result<()> {
        self.backend.truncate(&self.name, self.file_len(room))
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        self.backend.sync(&self.name)
    }

    pub(crate) fn remove(&self) -> io::Result<()> {
        self.backend.remove(&self.name)
    }

    /// Gives the file another name, in place of any file there.
    pub(crate) fn rename(self, to: &str) -> io::Result<()> {
        self.backend.rename(&self.name, to)
    }

    fn fetch(&self, place: u64, into: &mut [u8]) -> Result<(), Fault> {
        self.backend.read(&self.name, place, into).map_err(|source| match source.kind() {
            io::ErrorKind::UnexpectedEof => self.damaged_at(place, "file is cut short"),
            io::ErrorKind::NotFound => self.damaged_at(place, "file is gone"),
            _ => Fault::Io { file: self.name.clone(), at: place, source },
        })
    }

    fn damaged_at(&self, place: u64, what: &'static str) -> Fault {
        Fault::Damaged { file: self.name.clone(), at: place, what }
    }
}

impl Header {
    fn encode(self, key: [u8; 16], salt: [u8; 16]) -> Vec<u8> {
        let mut page = Vec::with_capacity(PAGE);
        page.extend_from_slice(&MAGIC);
        page.extend_from_slice(&VERSION.to_le_bytes());
        page.extend_from_slice(&(self.kind as u32).to_le_bytes());
        page.extend_from_slice(&self.store.to_le_bytes());
        page.extend_from_slice(&self.number.to_le_bytes());
        page.extend_from_slice(&key);
        page.extend_from_slice(&salt);
        page.extend_from_slice(&xxh3_64(&page).to_le_bytes());
        page.resize(PAGE, 0);
        page
    }

    fn decode(page: &[u8]) -> Result<(Self, [u8; 16], [u8; 16]), NotOurs> {
        let version = u32_at(page, 8).filter(|_| page.starts_with(&MAGIC)).ok_or(NotOurs::Damaged)?;
        if version != VERSION && !Self::is_of_this_version_but_for_the_number(page) {
            return Err(NotOurs::Version(version));
        }
        Self::decode_known(page).filter(|_| version == VERSION).ok_or(NotOurs::Damaged)
    }

    /// Says whether only the version differs from a page of this version: then the version was damaged.
    fn is_of_this_version_but_for_the_number(page: &[u8]) -> bool {
        let Some(mut fixed) = page.first_chunk::<64>().copied() else { return false };
        fixed[8..12].copy_from_slice(&VERSION.to_le_bytes());
        u64_at(page, 64) == Some(xxh3_64(&fixed))
    }

    fn decode_known(page: &[u8]) -> Option<(Self, [u8; 16], [u8; 16])> {
        if u64_at(page, 64)? != xxh3_64(page.get(..64)?) {
            return None;
        }
        let kind = match u32_at(page, 12)? {
            0 => Kind::Store,
            1 => Kind::Segment,
            2 => Kind::Snapshot,
            3 => Kind::Summary,
            _ => return None,
        };
        let header = Self { kind, store: u64_at(page, 16)?, number: u64_at(page, 24)? };
        Some((header, page.get(32..48)?.try_into().ok()?, page.get(48..64)?.try_into().ok()?))
    }
}

/// The unit of a disk's reads and writes.
pub(crate) const PAGE: usize = 4096;

/// Bytes addressed in a sealed page.
pub(crate) const SEALED: usize = PAGE - TAG_LEN;

pub(crate) const MAGIC: [u8; 8] = *b"owchunks";

const VERSION: u32 = 1;
