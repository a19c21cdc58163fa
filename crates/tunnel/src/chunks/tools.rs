//! Tools for a chunk store at rest: inspect, verify, compact, clear.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use oncewire_config::{StoreSettings, index_memory};
use oncewire_keys::StorageKey;
use oncewire_report::{CompactReport, LevelReport, StoreCondition, StoreReport, VerifyReport};
use oncewire_store::{Directory, DirectoryError, Faults, Options, Progress, Stat, Store, StoreFiles};

use super::OpenError;
use super::names::unix_time_s;
use super::open::{self, NotOpened};

/// A chunk store at rest, owned by this process until closed.
pub struct AtRest {
    path: PathBuf,
    store: Store,
    /// Findings on opening, a line each.
    pub notes: Vec<String>,
    /// Number of lines left out.
    pub notes_left_out: u64,
    /// Whether its index was made just now, sized for the present content: its gateway's own, recorded
    /// nowhere, may have more room.
    pub index_is_assumed: bool,
}

/// How much a store is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes of disk.
    pub disk: u64,
    /// Bytes of memory for its index.
    pub index_memory: u64,
}

/// Why a store at rest is inaccessible.
#[derive(Debug, thiserror::Error)]
pub enum AtRestError {
    /// There is none in the directory.
    #[error("{path}: there is no chunk store", path = .0.display())]
    None(PathBuf),
    /// It is another's, or has a key other than the configured one.
    #[error(transparent)]
    Refused(#[from] OpenError),
    /// Its key differs from the given one, or none was given.
    #[error("{path}: the chunk store is {}", wrong_key(*.keyed), path = .path.display())]
    OtherKey {
        /// Its directory.
        path: PathBuf,
        /// Whether a key was named.
        keyed: bool,
    },
    /// Its directory cannot be used.
    #[error(transparent)]
    NotTaken(#[from] DirectoryError),
    /// The disk refused.
    #[error("{path}: {why}", path = .path.display())]
    Failed {
        /// The directory.
        path: PathBuf,
        /// Its message.
        why: String,
    },
}

impl AtRestError {
    /// Whether the file system takes no changes.
    pub fn is_read_only(&self) -> bool {
        matches!(self, Self::NotTaken(DirectoryError::ReadOnly(_)))
    }

    /// The same for a store without a configuration.
    fn without_configuration(self) -> Self {
        match self {
            Self::Refused(OpenError::OtherKey { path, keyed }) => Self::OtherKey { path, keyed },
            other => other,
        }
    }

    fn not_opened(path: &Path, error: NotOpened) -> Self {
        match error {
            NotOpened::Refused(refused) => Self::Refused(refused),
            NotOpened::NotTaken(why) => Self::NotTaken(why),
            NotOpened::Failed(why) => Self::Failed { path: path.to_owned(), why },
        }
    }
}

/// Takes the directory of a store, if there is one in it; also returns the bytes of its segments.
fn take(path: &Path) -> Result<(Arc<Directory>, u64), AtRestError> {
    let taken = StoreFiles::find(path).map_err(|error| failed(path, &error))?.segment_bytes();
    if taken == 0 && !path.join("store").is_file() {
        return Err(AtRestError::None(path.to_owned()));
    }
    let directory = open::take(path).map_err(|error| AtRestError::not_opened(path, error))?;
    Ok((directory, taken))
}

/// Returns a gateway's reason against starting with this key for its store. Changes nothing, and has no
/// answer for a store in use or unreadable.
pub fn refuses_key(settings: &StoreSettings, key: Option<&StorageKey>) -> Option<OpenError> {
    let (directory, _) = take(&settings.path).ok()?;
    let options = open::options(settings.index_memory, settings.disk, key);
    let error = Store::prepare(directory, &Options { at_rest: true, ..options }).err()?;
    match open::not_opened(error, key.is_some(), &settings.path) {
        NotOpened::Refused(why) => Some(why),
        NotOpened::NotTaken(_) | NotOpened::Failed(_) => None,
    }
}

impl AtRest {
    /// Opens the store in a directory, with room as given by its gateway, or as needed by its content.
    ///
    /// # Errors
    /// If there is none, a gateway uses it, its key is another, or the disk fails.
    pub fn open(path: &Path, key: Option<&StorageKey>, room: Option<Room>) -> Result<Self, AtRestError> {
        let (directory, taken) = take(path)?;
        let is_configured = room.is_some();
        let room = room.unwrap_or_else(|| {
            let index_memory = index_memory(taken, MOST_MEMORY);
            Room { disk: taken, index_memory }
        });
        let options = open::options(room.index_memory, room.disk, key);
        // The index must tell all occupied places apart.
        let options = Options { capacity: room.disk.max(taken), at_rest: true, ..options };
        let (store, opened) = open::open(directory, &options, path).map_err(|error| {
            let error = AtRestError::not_opened(path, error);
            if is_configured { error } else { error.without_configuration() }
        })?;
        Ok(Self {
            path: path.to_owned(),
            store,
            notes: opened.notes,
            notes_left_out: opened.notes_left_out as u64,
            index_is_assumed: !is_configured && !opened.index_kept,
        })
    }

    /// Returns its statistics.
    pub fn stat(&self) -> StoreReport {
        let stat = self.store.stat();
        // A clock once ahead makes no chunk younger than it is.
        let now_s = unix_time_s().max(stat.horizon.newest_s.unwrap_or(0));
        let base = report(&self.path, &stat, now_s);
        StoreReport { size: base.used, ..base }
    }

    /// Reads everything and compares it with its checks; `progress` counts bytes of files.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn verify(&self, progress: &Progress) -> Result<VerifyReport, AtRestError> {
        let verified = self.store.verify(progress).map_err(|error| failed(&self.path, &error))?;
        Ok(VerifyReport {
            containers: verified.containers,
            bytes: verified.bytes,
            damaged_left_out: verified.damaged.left_out(),
            damaged: some(&verified.damaged),
            unreadable_left_out: verified.unreadable.left_out(),
            unreadable: some(&verified.unreadable),
            notes: self.notes.clone(),
            notes_left_out: self.notes_left_out,
        })
    }

    /// Rewrites all sound and findable chunks, at most `shrink_to` bytes of them; `progress` counts bytes of
    /// files. Refused places are left behind, and unreadable files stay.
    ///
    /// # Errors
    /// If the disk refuses to write; chunks not yet rewritten stay in place.
    pub fn compact(&self, shrink_to: Option<u64>, progress: &Progress) -> Result<CompactReport, AtRestError> {
        let done = self.store.compact(shrink_to, progress).map_err(|error| failed(&self.path, &error))?;
        Ok(CompactReport {
            kept: done.kept,
            superseded: done.superseded,
            let_go: done.let_go,
            damaged: done.damaged.len(),
            dropped: some(&done.damaged),
            dropped_left_out: done.damaged.left_out(),
            lost: some(&done.lost),
            lost_left_out: done.lost.left_out(),
            left: some(&done.left),
            left_left_out: done.left.left_out(),
            before: done.before,
            after: done.after,
        })
    }

    /// Closes it in order. Without writes, nothing of it has changed.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn close(self) -> Result<(), AtRestError> {
        let Self { path, store, .. } = self;
        store.close().map_err(|error| failed(&path, &error))
    }
}

/// Removes an unused chunk store, and returns the number of bytes of its files; none is no error. Foreign
/// files stay, and the directory with them.
///
/// # Errors
/// If a gateway uses it, or a file cannot be removed.
pub fn clear_at_rest(path: &Path) -> Result<u64, AtRestError> {
    let find = || StoreFiles::find(path).map_err(|error| failed(path, &error));
    if find()?.is_empty() {
        return Ok(0);
    }
    let _lock = open::take(path).map_err(|error| AtRestError::not_opened(path, error))?;
    let files = find()?;
    files.remove().map_err(|error| failed(path, &error))?;
    // The directory may be another's to keep: a mounted file system, behind a symbolic link, or not empty.
    let _ = fs::remove_file(path.join("lock")).and_then(|()| fs::remove_dir(path));
    Ok(files.bytes())
}

/// Describes a store's content.
pub(super) fn report(path: &Path, stat: &Stat, now_s: u64) -> StoreReport {
    let age = |time_s: u64| now_s.saturating_sub(time_s);
    let levels = stat.levels.iter().enumerate().filter(|(_, level)| level.chunks > 0);
    let level = |(number, level): (usize, &oncewire_store::Level)| LevelReport {
        level: number as u64,
        chunks: u64::from(level.chunks),
        bytes: level.bytes,
    };
    StoreReport {
        path: path.display().to_string(),
        id: Some(format!("{:016x}", stat.id)),
        state: StoreCondition::Open,
        size: stat.capacity,
        used: stat.file_bytes,
        encrypted: Some(stat.encrypted),
        segments: stat.segments,
        set_aside: stat.set_aside,
        given_up: stat.given_up,
        segment_bytes: stat.segment_bytes,
        levels: levels.map(level).collect(),
        indexed: stat.indexed.to_vec(),
        index_memory: stat.index.total(),
        oldest_secs: stat.horizon.oldest_s.map(age),
        newest_secs: stat.horizon.newest_s.map(age),
        ..StoreReport::default()
    }
}

/// Returns the first faults as sentences.
fn some(faults: &Faults) -> Vec<String> {
    faults.noted().iter().map(ToString::to_string).collect()
}

fn wrong_key(keyed: bool) -> &'static str {
    match keyed {
        true => {
            "in clear text or encrypted with another key than that of `--encrypt-key-file`; name the key that its \
             gateway has, or none if it has none"
        }
        false => "encrypted; name the key that its gateway has with `--encrypt-key-file`",
    }
}

fn failed(path: &Path, error: &io::Error) -> AtRestError {
    AtRestError::Failed { path: path.to_owned(), why: error.to_string() }
}

/// A tool's memory without a configuration; an eighth of it may go to the index.
const MOST_MEMORY: u64 = 8 << 30;
