//! Removal of a store: the content of an open one, or the files of a closed one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::error_context::with_file_context;
use crate::segment::Segment;
use crate::{Store, identity, snapshot, summary};

/// The files of a store in a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreFiles {
    /// Each with its length, in the order of removal: files about segments before the segments, and the store's
    /// identity last. So the next try finds and removes the remains of an interrupted one.
    files: Vec<(PathBuf, u64)>,
    segment_bytes: u64,
}

impl StoreFiles {
    /// Looks for them. A missing directory has none; files under other names are another's.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn find(path: &Path) -> io::Result<Self> {
        let mut found = Self::default();
        let entries = match fs::read_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
            entries => entries.map_err(|error| with_file_context("listing", path.display(), error))?,
        };
        let mut ranked = Vec::new();
        for entry in entries {
            let entry = entry?;
            let Some(rank) = entry.file_name().to_str().and_then(rank) else { continue };
            let metadata = entry.metadata()?;
            if !metadata.is_file() {
                continue;
            }
            if rank == SEGMENT {
                found.segment_bytes += metadata.len();
            }
            ranked.push((rank, (entry.path(), metadata.len())));
        }
        ranked.sort();
        found.files = ranked.into_iter().map(|(_, file)| file).collect();
        Ok(found)
    }

    /// Says whether there is nothing of a store.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Returns the bytes of all of them.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|(_, len)| len).sum()
    }

    /// Returns the bytes of the segments.
    pub fn segment_bytes(&self) -> u64 {
        self.segment_bytes
    }

    /// Removes them. The caller holds the directory, so nobody uses the store.
    ///
    /// # Errors
    /// If one cannot be removed: it is still there, with those behind it.
    pub fn remove(&self) -> io::Result<()> {
        self.files.iter().try_for_each(|(path, _)| match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(with_file_context("removing", path.display(), error))
            }
            _ => Ok(()),
        })
    }
}

impl Store {
    /// Forgets every chunk and removes all segments of the directory, also those from a failed removal, and their
    /// summaries; returns the bytes of the segments. Nothing is written for it. Other calls wait meanwhile.
    ///
    /// # Errors
    /// If the store takes nothing more, the directory cannot be listed, or a file cannot be removed: the next start would
    /// take it up again.
    pub fn clear(&self) -> io::Result<u64> {
        let mut writer = self.writing();
        if let Some(trouble) = &writer.stopped {
            return Err(io::Error::other(trouble.clone()));
        }
        let files = self.backend.list()?;
        let is_segment = |name: &str| Segment::number_of(name).is_some();
        let bytes = files.iter().filter(|(name, _)| is_segment(name)).map(|(_, len)| len).sum();
        let names = files.into_iter().map(|(name, _)| name);
        let names: Vec<String> =
            names.filter(|name| is_segment(name) || summary::number_of(name).is_some()).collect();
        self.leave_as_found()?;
        self.drop_segment(&mut writer);
        let gone = {
            let mut ring = self.ring.write();
            self.index.addresses.set_oldest(writer.next_segment << self.span_bits);
            self.index.containers.set_oldest(writer.next_container);
            std::mem::take(&mut *ring)
        };
        self.counters.evicted_segments.add(gone.len() as u64);
        self.backend.remove_all(&names)?;
        Ok(bytes)
    }
}

/// Says when a file of a store is removed, by its name; None for one of another's.
fn rank(name: &str) -> Option<u8> {
    match name {
        snapshot::NAME | snapshot::NEW => Some(0),
        name if summary::number_of(name).is_some() => Some(0),
        identity::NEW => Some(2),
        identity::STORE => Some(3),
        name => Segment::number_of(name).map(|_| SEGMENT),
    }
}

const SEGMENT: u8 = 1;
