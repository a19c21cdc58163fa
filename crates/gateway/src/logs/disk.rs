//! The few things that kept logs ask of a disk, so that a crash is an ordinary test.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use oncewire_store::{Obstacle, Opening, close_to_others};

/// A folder that holds the files of one peer's logs.
pub(super) trait Disk {
    type File: DiskFile;

    /// Opens a file to read and write, and makes it if there is none.
    fn open(&self, name: &str) -> io::Result<Self::File>;

    /// Puts a file of this content in place of whatever had the name, as a whole or not at all, and opens it. Once
    /// done, it survives a power cut.
    fn replace(&self, name: &str, content: &[u8]) -> io::Result<Self::File>;
}

/// An open file.
pub(super) trait DiskFile {
    fn len(&self) -> io::Result<u64>;

    /// Fills the buffer from an offset on; a file that ends before is an error.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()>;

    fn set_len(&mut self, len: u64) -> io::Result<()>;

    /// Waits until what was written would survive a power cut.
    fn sync(&mut self) -> io::Result<()>;

    /// Says whether no name leads to it any more, so that nobody will find what is written.
    fn is_removed(&self) -> io::Result<bool>;
}

/// A folder of the system, for its owner alone.
#[derive(Clone, Debug)]
pub(super) struct OsFolder(PathBuf);

impl OsFolder {
    /// Takes a folder, and makes it with mode 0700 if there is none.
    ///
    /// # Errors
    /// What the system says, or what is in its place and what to do about it.
    pub(super) fn create(path: PathBuf) -> io::Result<Self> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.map_err(|error| explained(&path, error))?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Disk for OsFolder {
    type File = File;

    fn open(&self, name: &str) -> io::Result<File> {
        // Somebody may have removed it.
        Self::create(self.0.clone())?;
        open_private(&self.0.join(name), Opening::Made)
    }

    fn replace(&self, name: &str, content: &[u8]) -> io::Result<File> {
        let new = self.0.join(temporary(name));
        let mut file = open_private(&new, Opening::Emptied)?;
        file.write_all(content)?;
        // Or a power cut could leave the new name with nothing behind it.
        file.sync_data()?;
        fs::rename(&new, self.0.join(name))?;
        // Or a power cut could bring back the old file, with claims that hold no more.
        File::open(&self.0)?.sync_all()?;
        Ok(file)
    }
}

/// What a file is called while it is written that is to replace another.
pub(super) fn temporary(name: &str) -> String {
    format!("{name}.new")
}

/// Says what is in the way of a folder or its lock, if that is why it cannot be used.
pub(super) fn explained(folder: &Path, error: io::Error) -> io::Error {
    match Obstacle::at(folder) {
        Some(obstacle) => io::Error::new(error.kind(), obstacle),
        None => error,
    }
}

/// Opens a regular file that nobody else may read; one that others could read is closed to them first.
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
    fn a_pipe_in_the_place_of_a_log_is_refused_and_keeps_its_rights() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        fs::set_permissions(&pipe, PermissionsExt::from_mode(0o666)).unwrap();
        let folder = OsFolder::create(dir.path().join("logs")).unwrap();
        for name in ["out.log", "hints.new"] {
            symlink(&pipe, folder.path().join(name)).unwrap();
        }
        for refused in [folder.open("out.log"), folder.replace("hints", b"content")] {
            let error = refused.unwrap_err().to_string();
            assert!(error.contains("not a regular file"), "{error}");
        }
        assert_eq!(fs::metadata(&pipe).unwrap().permissions().mode() & 0o777, 0o666);
    }

    #[test]
    fn a_log_whose_files_were_removed_is_not_written_into_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let folder = OsFolder::create(dir.path().join("logs")).unwrap();
        let opened = KeptLog::open(folder.clone(), LogSide::Out, 1 << 16, 1 << 16, Seal::new(None));
        let mut log = opened.log.unwrap();
        let piece = |start| LogWrite { epoch: 1, start, plain: Bytes::from_static(&[7; 100]) };
        log.write(&piece(0)).and_then(|()| log.sync()).unwrap();
        fs::remove_dir_all(folder.path()).unwrap();
        let error = log.write(&piece(100)).and_then(|()| log.sync()).unwrap_err();
        assert!(error.to_string().contains("removed"), "{error}");
        log.clear().unwrap();
        log.write(&piece(200)).and_then(|()| log.sync()).unwrap();
        drop(log);
        let saved = KeptLog::open(folder, LogSide::Out, 1 << 16, 1 << 16, Seal::new(None)).saved;
        assert_eq!(saved.unwrap().ranges.total(), 100);
    }
}
