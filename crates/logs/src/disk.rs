//! The disk operations of persistent logs, abstracted for crash tests.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use oncewire_store::{Obstacle, Opening, close_to_others};

/// A directory with the files of one peer's logs.
pub(super) trait Disk {
    type File: DiskFile;

    /// Opens a file to read and write, and makes it if there is none.
    fn open(&self, name: &str) -> io::Result<Self::File>;

    /// Replaces the named file by one with this content, atomically, and opens it. Once done, it survives a
    /// power cut.
    fn replace(&self, name: &str, content: &[u8]) -> io::Result<Self::File>;
}

/// An open file.
pub(super) trait DiskFile {
    fn len(&self) -> io::Result<u64>;

    /// Fills the buffer from an offset on; an earlier end of the file is an error.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()>;

    fn set_len(&mut self, len: u64) -> io::Result<()>;

    /// Waits until all writes would survive a power cut.
    fn sync(&mut self) -> io::Result<()>;

    /// Whether the file has lost its last name, and writes to it are lost.
    fn is_removed(&self) -> io::Result<bool>;
}

/// A directory of the system, for its owner alone.
#[derive(Clone, Debug)]
pub(super) struct OsDirectory(PathBuf);

impl OsDirectory {
    /// Takes a directory, and makes it with mode 0700 if there is none.
    ///
    /// # Errors
    /// The system's error, or the obstacle in its place with a remedy.
    pub(super) fn create(path: PathBuf) -> io::Result<Self> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.map_err(|error| explained(&path, error))?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Disk for OsDirectory {
    type File = File;

    fn open(&self, name: &str) -> io::Result<File> {
        // It may have been removed.
        Self::create(self.0.clone())?;
        open_private(&self.0.join(name), Opening::Made)
    }

    fn replace(&self, name: &str, content: &[u8]) -> io::Result<File> {
        let new = self.0.join(temporary(name));
        let mut file = open_private(&new, Opening::Emptied)?;
        file.write_all(content)?;
        // Otherwise a power cut could leave the new name without content.
        file.sync_data()?;
        fs::rename(&new, self.0.join(name))?;
        // Otherwise a power cut could bring back the old file with its outdated claims.
        File::open(&self.0)?.sync_all()?;
        Ok(file)
    }
}

/// Name of a replacement file while it is written.
pub(super) fn temporary(name: &str) -> String {
    format!("{name}.new")
}

/// Names the obstacle in place of a directory or its lock, if there is one.
pub(super) fn explained(directory: &Path, error: io::Error) -> io::Error {
    match Obstacle::at(directory) {
        Some(obstacle) => io::Error::new(error.kind(), obstacle),
        None => error,
    }
}

/// Opens a regular file with access for its owner only; wider permissions are narrowed first.
pub(super) fn open_private(path: &Path, opening: Opening) -> io::Result<File> {
    let file = oncewire_store::open_private(path, opening)?;
    close_to_others(&file)?;
    Ok(file)
}

impl DiskFile for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(buffer, offset)
    }

    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn set_len(&mut self, len: u64) -> io::Result<()> {
        File::set_len(self, len)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn is_removed(&self) -> io::Result<bool> {
        Ok(self.metadata()?.nlink() == 0)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use bytes::Bytes;
    use oncewire_link::{LogSide, LogWrite};
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::super::kept::KeptLog;
    use super::super::seal::Seal;
    use super::*;

    #[test]
    fn pipe_in_place_of_a_log_is_refused_untouched() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        fs::set_permissions(&pipe, PermissionsExt::from_mode(0o666)).unwrap();
        let directory = OsDirectory::create(dir.path().join("logs")).unwrap();
        for name in ["out.log", "hints.new"] {
            symlink(&pipe, directory.path().join(name)).unwrap();
        }
        for refused in [directory.open("out.log"), directory.replace("hints", b"content")] {
            let error = refused.unwrap_err().to_string();
            assert!(error.contains("not a regular file"), "{error}");
        }
        assert_eq!(fs::metadata(&pipe).unwrap().permissions().mode() & 0o777, 0o666);
    }

    #[test]
    fn log_with_removed_files_reports_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let directory = OsDirectory::create(dir.path().join("logs")).unwrap();
        let opened = KeptLog::open(directory.clone(), LogSide::Out, 1 << 16, 1 << 16, Seal::new(None));
        let mut log = opened.log.unwrap();
        let piece = |start| LogWrite { epoch: 1, start, plain: Bytes::from_static(&[7; 100]) };
        log.write(&piece(0)).and_then(|()| log.sync()).unwrap();
        fs::remove_dir_all(directory.path()).unwrap();
        let error = log.write(&piece(100)).and_then(|()| log.sync()).unwrap_err();
        assert!(error.to_string().contains("removed"), "{error}");
        log.clear().unwrap();
        log.write(&piece(200)).and_then(|()| log.sync()).unwrap();
        drop(log);
        let saved = KeptLog::open(directory, LogSide::Out, 1 << 16, 1 << 16, Seal::new(None)).saved;
        assert_eq!(saved.unwrap().ranges.total(), 100);
    }
}
