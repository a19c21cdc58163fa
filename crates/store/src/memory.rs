//! A disk in memory, to be crashed, damaged, filled and made to fail.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::Backend;
use crate::error_context::with_file_context;

/// A directory in memory; clones share it.
///
/// A [recording](Self::recording) one remembers its changes, so tests can look at the state after a kill or a power
/// cut at any moment.
#[derive(Clone, Debug, Default)]
pub struct Memory(Arc<Mutex<Content>>);

#[derive(Debug, Default)]
struct Content {
    files: BTreeMap<String, Vec<u8>>,
    history: Option<Vec<Change>>,
    /// How many bytes all files may have together.
    room: Option<u64>,
    failing_writes: Option<io::ErrorKind>,
    failing_reads: Option<io::ErrorKind>,
    /// System errors for reads of these files.
    failing_files: BTreeMap<String, i32>,
    reads: u64,
}

#[derive(Clone, Debug)]
enum Change {
    Created(String, u64),
    Written(String, u64, Vec<u8>),
    Cut(String, u64),
    Synced(String),
    Renamed(String, String),
    Removed(String),
}

impl Memory {
    /// Makes an empty directory that remembers every change, and so grows with each.
    pub fn recording() -> Self {
        let memory = Self::default();
        memory.0.lock().history = Some(Vec::new());
        memory
    }

    /// Counts the changes so far; 0 unless it records.
    pub fn changes(&self) -> usize {
        self.0.lock().history.as_ref().map_or(0, Vec::len)
    }

    /// Counts the reads so far.
    pub fn reads(&self) -> u64 {
        self.0.lock().reads
    }

    /// Returns the directory after a kill of its process behind so many changes. If the last one is a write, `part`
    /// gives the bytes of it that were made.
    pub fn after_kill(&self, changes: usize, part: impl Fn(usize) -> usize) -> Self {
        let content = self.0.lock();
        let mut after = Content::default();
        for (i, change) in content.history.iter().flatten().take(changes).enumerate() {
            match change {
                Change::Written(name, at, bytes) if i + 1 == changes => {
                    let part = part(bytes.len()).min(bytes.len());
                    after.redo(&Change::Written(name.clone(), *at, bytes[..part].to_vec()));
                }
                change => after.redo(change),
            }
        }
        Self(Arc::new(Mutex::new(after)))
    }

    /// Returns the directory after a power cut behind so many changes: for each unsynced cut and each unsynced sector
    /// of 512 bytes, `keep` says whether it reached the disk.
    pub fn after_power_cut(&self, changes: usize, mut keep: impl FnMut() -> bool) -> Self {
        let content = self.0.lock();
        let done: Vec<&Change> = content.history.iter().flatten().take(changes).collect();
        let mut after = Content::default();
        for (i, change) in done.iter().enumerate() {
            let (Change::Written(name, ..) | Change::Cut(name, _)) = change else {
                after.redo(change);
                continue;
            };
            if is_synced(&done[i..], name) {
                after.redo(change);
                continue;
            }
            match change {
                Change::Written(name, at, bytes) => {
                    for (sector, piece) in bytes.chunks(SECTOR).enumerate() {
                        if keep() {
                            let at = at + (sector * SECTOR) as u64;
                            after.redo(&Change::Written(name.clone(), at, piece.to_vec()));
                        }
                    }
                }
                change => {
                    if keep() {
                        after.redo(change);
                    }
                }
            }
        }
        Self(Arc::new(Mutex::new(after)))
    }

    /// Limits the bytes of all files together.
    pub fn set_room(&self, bytes: Option<u64>) {
        self.0.lock().room = bytes;
    }

    /// Refuses every change from now on with this error; with none it takes them again.
    pub fn fail_writes(&self, kind: Option<io::ErrorKind>) {
        self.0.lock().failing_writes = kind;
    }

    /// Refuses every read from now on with this error; with none it reads again.
    pub fn fail_reads(&self, kind: Option<io::ErrorKind>) {
        self.0.lock().failing_reads = kind;
    }

    /// Refuses every read of one file from now on with this error of the system (EIO is 5); with none it is read again.
    pub fn fail_reads_of(&self, name: &str, errno: Option<i32>) {
        let failing = &mut self.0.lock().failing_files;
        match errno {
            Some(errno) => _ = failing.insert(name.to_owned(), errno),
            None => _ = failing.remove(name),
        }
    }

    /// Changes a file behind everybody's back; a missing one stays missing.
    pub fn damage(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        if let Some(file) = self.0.lock().files.get_mut(name) {
            change(file);
        }
    }

    /// Says whether bytes occur in any file.
    pub fn holds(&self, bytes: &[u8]) -> bool {
        self.0.lock().files.values().any(|file| file.windows(bytes.len()).any(|window| window == bytes))
    }

    fn change(&self, change: Change) -> io::Result<()> {
        let mut content = self.0.lock();
        let (doing, name) = change.described();
        if let Some(kind) = content.failing_writes {
            return Err(with_file_context(doing, name, kind.into()));
        }
        if let (Change::Created(_, len), Some(room)) = (&change, content.room) {
            let used: u64 = content.files.values().map(|file| file.len() as u64).sum();
            if used + len > room {
                return Err(with_file_context(doing, name, io::ErrorKind::StorageFull.into()));
            }
        }
        content.redo(&change);
        if let Some(history) = &mut content.history {
            history.push(change);
        }
        Ok(())
    }
}

impl Change {
    /// Returns the operation, and its file.
    fn described(&self) -> (&'static str, &str) {
        match self {
            Self::Created(name, _) => ("making", name),
            Self::Written(name, ..) => ("writing", name),
            Self::Cut(name, _) => ("cutting", name),
            Self::Synced(name) => ("syncing", name),
            Self::Renamed(name, _) => ("renaming", name),
            Self::Removed(name) => ("removing", name),
        }
    }
}

impl Content {
    fn redo(&mut self, change: &Change) {
        match change {
            Change::Created(name, len) => {
                self.files.insert(name.clone(), vec![0; *len as usize]);
            }
            Change::Written(name, at, bytes) => {
                let file = self.files.entry(name.clone()).or_default();
                let (at, end) = (*at as usize, *at as usize + bytes.len());
                file.resize(file.len().max(end), 0);
                file[at..end].copy_from_slice(bytes);
            }
            Change::Cut(name, len) => self.files.entry(name.clone()).or_default().resize(*len as usize, 0),
            Change::Synced(_) => {}
            Change::Renamed(from, to) => {
                if let Some(file) = self.files.remove(from) {
                    self.files.insert(to.clone(), file);
                }
            }
            Change::Removed(name) => {
                self.files.remove(name);
            }
        }
    }
}

impl Backend for Memory {
    fn create(&self, name: &str, len: u64) -> io::Result<()> {
        self.change(Change::Created(name.to_owned(), len))
    }

    fn read(&self, name: &str, at: u64, into: &mut [u8]) -> io::Result<()> {
        let mut content = self.0.lock();
        content.reads += 1;
        if let Some(kind) = content.failing_reads {
            return Err(kind.into());
        }
        if let Some(errno) = content.failing_files.get(name) {
            return Err(io::Error::from_raw_os_error(*errno));
        }
        let file = content.files.get(name).ok_or(io::ErrorKind::NotFound)?;
        let at = usize::try_from(at).map_err(io::Error::other)?;
        let bytes = at.checked_add(into.len()).and_then(|end| file.get(at..end));
        into.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write(&self, name: &str, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.change(Change::Written(name.to_owned(), at, bytes.to_vec()))
    }

    fn truncate(&self, name: &str, len: u64) -> io::Result<()> {
        self.change(Change::Cut(name.to_owned(), len))
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        self.change(Change::Synced(name.to_owned()))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.change(Change::Renamed(from.to_owned(), to.to_owned()))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.change(Change::Removed(name.to_owned()))
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let content = self.0.lock();
        Ok(content.files.iter().map(|(name, file)| (name.clone(), file.len() as u64)).collect())
    }
}

/// Says whether a file, by any later name, is synced among these changes.
fn is_synced(later: &[&Change], name: &str) -> bool {
    let mut name = name;
    for change in later {
        match change {
            Change::Synced(synced) if synced == name => return true,
            Change::Renamed(from, to) if from == name => name = to,
            // It is gone: the fate of its bytes no longer matters.
            Change::Removed(gone) | Change::Created(gone, _) if gone == name => return false,
            _ => {}
        }
    }
    false
}

/// The unit of a disk's atomic writes.
const SECTOR: usize = 512;
