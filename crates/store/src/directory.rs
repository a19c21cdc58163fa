//! A directory of the system.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::Backend;
use crate::error_context::with_file_context;
use crate::obstacle::Obstacle;
use crate::open_files::OpenFiles;
use crate::private_file::{Opening, open_private};

/// A directory of the system, for its owner alone (0700, files 0600) and for one process at a time.
///
/// For any number of segments it has at most 64 of their files open, one more for each thread at work on one, and its
/// lock. At the process's limit of open files, it closes those not needed.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// Recently used files, for reads without opening one; a terabyte has thousands.
    open: OpenFiles,
    /// Held as long as the directory is in use.
    _lock: File,
}

/// Why a directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// Another process has it open.
    #[error("{path}: another process uses this chunk store; stop it, or give each its own directory",
            path = .0.display())]
    InUse(PathBuf),
    /// The file system takes no changes, not even the lock.
    #[error("{path}: the file system is read-only, as it may become after errors of its disk; a chunk store has to be \
             written: check the disk and mount it again, or choose another directory", path = .0.display())]
    ReadOnly(PathBuf),
    /// It, or its lock, is something else.
    #[error(transparent)]
    InTheWay(#[from] Obstacle),
    /// The file system refused.
    #[error("{path}: {source}", path = .path.display())]
    Io {
        /// The directory or its lock.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl DirectoryError {
    fn of(path: &Path, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::ReadOnlyFilesystem => Self::ReadOnly(path.to_owned()),
            _ => Self::Io { path: path.to_owned(), source },
        }
    }
}

impl Directory {
    /// Takes a directory, makes it if there is none, and locks it.
    ///
    /// # Errors
    /// [`DirectoryError::InUse`] if another process, or another value in this one, has it; [`DirectoryError::ReadOnly`] if
    /// nothing can be written there; [`DirectoryError::InTheWay`] if there is something else.
    pub fn open(path: &Path) -> Result<Self, DirectoryError> {
        let lock_path = path.join(LOCK);
        let error = |source| DirectoryError::of(&lock_path, source);
        let taken = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
        let taken = taken.map_err(|source| DirectoryError::of(path, source));
        let taken = taken.and_then(|()| open_private(&lock_path, Opening::Made).map_err(error));
        let lock = taken.map_err(|error| Obstacle::at(path).map_or(error, DirectoryError::InTheWay))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(DirectoryError::InUse(path.to_owned())),
            Err(TryLockError::Error(source)) => return Err(error(source)),
        }
        // A concurrent removal of the store may just have removed this file.
        match is_named(&lock, &lock_path).map_err(error)? {
            true => Ok(Self { path: path.to_owned(), open: OpenFiles::default(), _lock: lock }),
            false => Err(DirectoryError::InUse(path.to_owned())),
        }
    }

    fn file(&self, name: &str) -> io::Result<Arc<File>> {
        self.open.get(name, || {
            let file = open_private(&self.path.join(name), Opening::AsItIs)?;
            // Chunks are requested from anywhere, and a read should take only its own bytes. A file system may not
            // know of it.
            let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random);
            Ok(file)
        })
    }

    /// Makes a file of zeros, its room taken.
    fn make(&self, name: &str, len: u64) -> io::Result<()> {
        self.open.forget(name);
        let file = self.open.with_room(|| open_private(&self.path.join(name), Opening::Emptied))?;
        let taken = match len {
            0 => Ok(()),
            _ => rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, len),
        };
        let made = match taken.map_err(io::Error::from) {
            // Some file systems cannot take room in advance; a full disk then shows at a write.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => file.set_len(len),
            made => made,
        };
        if made.is_err() {
            fs::remove_file(self.path.join(name))?;
        }
        made
    }

    /// Removes a file; none is no error.
    fn unlink(&self, name: &str) -> io::Result<()> {
        let removed = fs::remove_file(self.path.join(name));
        // Afterwards, or a concurrent reader opens the file again and the disk keeps its room.
        self.open.forget(name);
        let removed = removed
            .or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) });
        self.with_file_context("removing", name, removed)
    }

    fn sync_directory(&self) -> io::Result<()> {
        let synced =
            self.open.with_room(|| File::open(&self.path)).and_then(|directory| directory.sync_all());
        synced.map_err(|error| with_file_context("syncing", self.path.display(), error))
    }

    /// Returns all entries in the order of the names, with the length for regular files.
    fn entries(&self) -> io::Result<Vec<(String, Option<u64>)>> {
        let read = || {
            let mut entries = Vec::new();
            for entry in fs::read_dir(&self.path)? {
                let entry = entry?;
                let metadata = entry.metadata()?;
                if let Ok(name) = entry.file_name().into_string()
                    && name != LOCK
                {
                    entries.push((name, metadata.is_file().then_some(metadata.len())));
                }
            }
            entries.sort();
            Ok(entries)
        };
        read().map_err(|error| with_file_context("listing", self.path.display(), error))
    }

    /// Adds file and operation to an error.
    fn with_file_context<T>(&self, doing: &'static str, name: &str, done: io::Result<T>) -> io::Result<T> {
        done.map_err(|error| with_file_context(doing, self.path.join(name).display(), error))
    }
}

impl Backend for Directory {
    fn create(&self, name: &str, len: u64) -> io::Result<()> {
        self.with_file_context("making", name, self.make(name, len))?;
        self.sync_directory()
    }

    fn read(&self, name: &str, at: u64, into: &mut [u8]) -> io::Result<()> {
        match self.file(name) {
            // Not kept open: it could not be written once the file system can be again.
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
                let file = self.open.with_room(|| File::open(self.path.join(name)))?;
                file.read_exact_at(into, at)
            }
            file => file?.read_exact_at(into, at),
        }
    }

    fn write(&self, name: &str, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.with_file_context("writing", name, self.file(name).and_then(|file| file.write_all_at(bytes, at)))
    }

    fn truncate(&self, name: &str, len: u64) -> io::Result<()> {
        self.with_file_context("cutting", name, self.file(name).and_then(|file| file.set_len(len)))
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        self.with_file_context("syncing", name, self.file(name).and_then(|file| file.sync_data()))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let renamed = fs::rename(self.path.join(from), self.path.join(to));
        // Behind it, as below.
        self.open.forget(from);
        self.open.forget(to);
        self.with_file_context("renaming", from, renamed)?;
        self.sync_directory()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.unlink(name)?;
        self.sync_directory()
    }

    fn remove_all(&self, names: &[String]) -> io::Result<()> {
        let removed = names.iter().map(|name| self.unlink(name)).fold(Ok(()), io::Result::and);
        // Once for all of them: each takes a disk as long as a write.
        removed.and(self.sync_directory())
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        Ok(self.entries()?.into_iter().filter_map(|(name, len)| Some((name, len?))).collect())
    }

    fn list_others(&self) -> io::Result<Vec<String>> {
        let others = self.entries()?.into_iter().filter(|(_, len)| len.is_none());
        Ok(others.map(|(name, _)| name).collect())
    }
}

/// Says whether an open file is still the one of this name.
fn is_named(file: &File, path: &Path) -> io::Result<bool> {
    let held = file.metadata()?;
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        named => named.map(|named| (named.dev(), named.ino()) == (held.dev(), held.ino())),
    }
}

/// The lock file of the process using the directory.
pub(crate) const LOCK: &str = "lock";

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;
    use crate::open_files::MAX_OPEN;

    #[test]
    fn directory_serves_one_user_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let first = Directory::open(&path).unwrap();
        let error = Directory::open(&path).unwrap_err();
        assert!(matches!(error, DirectoryError::InUse(_)));
        assert!(error.to_string().contains("another process uses this chunk store"), "{error}");
        drop(first);
        Directory::open(&path).unwrap();
    }

    #[test]
    fn read_only_file_system_is_named_as_the_reason() {
        let of = |errno| {
            DirectoryError::of(Path::new("/a/store"), io::Error::from_raw_os_error(errno)).to_string()
        };
        let (erofs, eacces) = (of(30), of(13));
        assert!(erofs.starts_with("/a/store: the file system is read-only"), "{erofs}");
        assert!(eacces.starts_with("/a/store: Permission denied"), "{eacces}");
    }

    #[test]
    fn file_for_directory_and_directory_for_lock_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::write(path("file"), "").unwrap();
        fs::create_dir_all(path("locked").join(LOCK)).unwrap();
        for (directory, named) in [("file", "file"), ("file/below", "file"), ("locked", "locked/lock")] {
            let error = Directory::open(&path(directory)).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{} is a ", path(named).display())), "{error}");
            assert!(error.contains("choose another path"), "{error}");
        }
    }

    #[test]
    fn lock_removed_with_its_store_excludes_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(LOCK);
        let lock = File::create(&path).unwrap();
        assert!(is_named(&lock, &path).unwrap());
        fs::remove_file(&path).unwrap();
        assert!(!is_named(&lock, &path).unwrap());
        File::create(&path).unwrap();
        assert!(!is_named(&lock, &path).unwrap());
    }

    #[test]
    fn directories_and_links_are_no_files_of_a_store() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::open(dir.path()).unwrap();
        directory.create("a", 1).unwrap();
        fs::create_dir(dir.path().join("0000000000000001.seg")).unwrap();
        std::os::unix::fs::symlink("a", dir.path().join("0000000000000002.seg")).unwrap();
        assert_eq!(directory.list().unwrap(), [("a".to_owned(), 1)]);
        assert_eq!(directory.list_others().unwrap(), ["0000000000000001.seg", "0000000000000002.seg"]);
    }

    #[test]
    fn files_are_for_their_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::open(&dir.path().join("store")).unwrap();
        directory.create("a", 10).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&dir.path().join("store")), 0o700);
        assert_eq!(mode(&dir.path().join("store/a")), 0o600);
        assert_eq!(mode(&dir.path().join("store/lock")), 0o600);
    }

    #[test]
    fn file_removed_during_a_read_is_not_kept_open() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::open(dir.path()).unwrap();
        // Nothing is asked for before it is whole.
        let (round, done) = (AtomicUsize::new(usize::MAX), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut bytes = [0; 8];
                    while done.load(Ordering::Relaxed) == 0 {
                        let number = round.load(Ordering::Relaxed);
                        match directory.read(&number.to_string(), 0, &mut bytes) {
                            Ok(()) => assert!(bytes == [0; 8] || bytes == (number as u64).to_le_bytes()),
                            Err(error) => assert_eq!(error.kind(), io::ErrorKind::NotFound),
                        }
                    }
                });
            }
            for number in 0..200_usize {
                let name = number.to_string();
                directory.create(&name, 8).unwrap();
                round.store(number, Ordering::Relaxed);
                directory.write(&name, 0, &(number as u64).to_le_bytes()).unwrap();
                directory.remove(&name).unwrap();
                let is_open = directory.open.names().contains(&name);
                assert!(!is_open, "{name} is gone, and its room is not");
            }
            done.store(1, Ordering::Relaxed);
        });
        assert_eq!((directory.list().unwrap().len(), directory.open.names().len()), (0, 0));
    }

    #[test]
    fn errors_name_file_and_operation() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::open(dir.path()).unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        let refused = [
            ("making", directory.create("a", 1)),
            ("writing", directory.write("a", 0, &[1])),
            ("cutting", directory.truncate("a", 0)),
            ("syncing", directory.sync("a")),
            ("removing", directory.remove("a")),
            ("removing", directory.remove_all(&["b".to_owned(), "a".to_owned()])),
            ("renaming", directory.rename("a", LOCK)),
        ];
        let file = dir.path().join("a");
        for (doing, refused) in refused {
            let error = refused.unwrap_err().to_string();
            assert!(error.starts_with(&format!("{doing} {}: ", file.display())), "{error}");
        }
        fs::remove_dir_all(dir.path()).unwrap();
        let error = directory.list().unwrap_err().to_string();
        assert!(error.starts_with(&format!("listing {}: ", dir.path().display())), "{error}");
    }

    #[test]
    fn more_files_than_stay_open_can_be_used() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::open(dir.path()).unwrap();
        let names: Vec<String> = (0..2 * MAX_OPEN).map(|i| format!("{i:04}")).collect();
        for (i, name) in names.iter().enumerate() {
            directory.create(name, 8).unwrap();
            directory.write(name, 0, &(i as u64).to_le_bytes()).unwrap();
        }
        for (i, name) in names.iter().enumerate() {
            let mut bytes = [0; 8];
            directory.read(name, 0, &mut bytes).unwrap();
            assert_eq!(u64::from_le_bytes(bytes), i as u64);
        }
        assert!(directory.open.names().len() <= MAX_OPEN);
        assert_eq!(directory.list().unwrap().len(), names.len());
    }
}
