//! An in-memory disk with a change history, for simulated crashes.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use super::disk::{Disk, DiskFile};

/// A directory in memory; clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct MemoryDisk(Arc<Mutex<Content>>);

#[derive(Debug, Default)]
struct Content {
    names: BTreeMap<String, usize>,
    files: Vec<Vec<u8>>,
    history: Vec<(usize, Change)>,
    failing: bool,
    meanwhile: Option<Meanwhile>,
}

/// Callback for the time before the next read of a file.
struct Meanwhile(usize, Box<dyn FnOnce() + Send>);

impl fmt::Debug for Meanwhile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Meanwhile").field(&self.0).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug)]
enum Change {
    /// The file got this name, and the former owner lost it.
    Named(String),
    Written(u64, Vec<u8>),
    Cut(u64),
    Synced,
}

/// A file in memory.
#[derive(Debug)]
pub(super) struct MemoryFile {
    disk: MemoryDisk,
    number: usize,
}

impl MemoryDisk {
    /// Returns the disk of a process killed after the first `changes`, the last of them made in part.
    pub(super) fn after_kill(&self, changes: usize, part: impl Fn(usize) -> usize) -> Self {
        let content = self.0.lock();
        let after = Self::default();
        for (i, (file, change)) in content.history.iter().take(changes).enumerate() {
            let part_of = |len| if i + 1 == changes { part(len) } else { len };
            after.0.lock().redo(*file, change, part_of);
        }
        after
    }

    /// Returns the disk after a power cut. Of every unsynced change, `keep` returns the surviving amount: of
    /// so many bytes, or of 1 for other changes.
    pub(super) fn after_power_cut(&self, mut keep: impl FnMut(usize) -> usize) -> Self {
        let content = self.0.lock();
        let after = Self::default();
        for (i, (file, change)) in content.history.iter().enumerate() {
            let later = content.history.iter().skip(i);
            let synced = later.filter(|(f, _)| f == file).any(|(_, change)| matches!(change, Change::Synced));
            after.0.lock().redo(*file, change, |len| if synced { len } else { keep(len) });
        }
        // Survivors of one cut survive the next.
        let mut kept = after.0.lock();
        (0..kept.files.len()).for_each(|file| kept.history.push((file, Change::Synced)));
        drop(kept);
        after
    }

    /// Counts the changes so far.
    pub(super) fn changes(&self) -> usize {
        self.0.lock().history.len()
    }

    /// Refuses every write from now on, as a full disk does.
    pub(super) fn fail_from_now_on(&self) {
        self.0.lock().failing = true;
    }

    /// Takes writes again.
    pub(super) fn heal(&self) {
        self.0.lock().failing = false;
    }

    /// Changes a file behind everybody's back.
    pub(super) fn damage(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut content = self.0.lock();
        let number = content.names[name];
        change(&mut content.files[number]);
    }

    /// Sets a callback for the next read of a file.
    pub(super) fn before_reading(&self, name: &str, happens: impl FnOnce() + Send + 'static) {
        let mut content = self.0.lock();
        content.meanwhile = Some(Meanwhile(content.names[name], Box::new(happens)));
    }

    pub(super) fn remove(&self, name: &str) {
        self.0.lock().names.remove(name);
    }

    /// Whether bytes occur in any named file.
    pub(super) fn holds(&self, bytes: &[u8]) -> bool {
        let content = self.0.lock();
        let mut files = content.names.values().map(|number| &content.files[*number]);
        files.any(|file| file.windows(bytes.len()).any(|window| window == bytes))
    }

    pub(super) fn len_of(&self, name: &str) -> usize {
        let content = self.0.lock();
        content.files[content.names[name]].len()
    }

    fn change(&self, file: usize, change: Change) -> io::Result<()> {
        let mut content = self.0.lock();
        if content.failing {
            return Err(io::ErrorKind::StorageFull.into());
        }
        content.redo(file, &change, |len| len);
        Ok(())
    }

    fn new_file(&self) -> usize {
        let mut content = self.0.lock();
        content.files.push(Vec::new());
        content.files.len() - 1
    }
}

impl Content {
    fn redo(&mut self, file: usize, change: &Change, mut keep: impl FnMut(usize) -> usize) {
        let missing = (file + 1).saturating_sub(self.files.len());
        self.files.extend((0..missing).map(|_| Vec::new()));
        let bytes = &mut self.files[file];
        let done = match change {
            Change::Named(name) if keep(1) > 0 => {
                self.names.insert(name.clone(), file);
                change.clone()
            }
            Change::Written(at, new) => {
                let new = &new[..keep(new.len()).min(new.len())];
                let end = *at as usize + new.len();
                if !new.is_empty() {
                    bytes.resize(bytes.len().max(end), 0);
                    bytes[*at as usize..end].copy_from_slice(new);
                }
                Change::Written(*at, new.to_vec())
            }
            Change::Cut(len) if keep(1) > 0 => {
                bytes.resize(*len as usize, 0);
                change.clone()
            }
            Change::Synced => Change::Synced,
            Change::Named(_) | Change::Cut(_) => return,
        };
        self.history.push((file, done));
    }
}

impl Disk for MemoryDisk {
    type File = MemoryFile;

    fn open(&self, name: &str) -> io::Result<MemoryFile> {
        let known = self.0.lock().names.get(name).copied();
        let number = match known {
            Some(number) => number,
            None => {
                let number = self.new_file();
                self.change(number, Change::Named(name.to_owned()))?;
                number
            }
        };
        Ok(MemoryFile { disk: self.clone(), number })
    }

    fn replace(&self, name: &str, content: &[u8]) -> io::Result<MemoryFile> {
        let number = self.new_file();
        self.change(number, Change::Written(0, content.to_vec()))?;
        self.change(number, Change::Synced)?;
        self.change(number, Change::Named(name.to_owned()))?;
        self.change(number, Change::Synced)?;
        Ok(MemoryFile { disk: self.clone(), number })
    }
}

impl DiskFile for MemoryFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.0.lock().files[self.number].len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let number = self.number;
        let meanwhile = self.disk.0.lock().meanwhile.take_if(|Meanwhile(file, _)| *file == number);
        meanwhile.into_iter().for_each(|Meanwhile(_, happens)| happens());
        let content = self.disk.0.lock();
        let at = offset as usize;
        let bytes = content.files[self.number].get(at..at + buffer.len());
        buffer.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.disk.change(self.number, Change::Written(offset, bytes.to_vec()))
    }

    fn set_len(&mut self, len: u64) -> io::Result<()> {
        self.disk.change(self.number, Change::Cut(len))
    }

    fn sync(&mut self) -> io::Result<()> {
        self.disk.change(self.number, Change::Synced)
    }

    fn is_removed(&self) -> io::Result<bool> {
        Ok(!self.disk.0.lock().names.values().any(|number| *number == self.number))
    }
}
