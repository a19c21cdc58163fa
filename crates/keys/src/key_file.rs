//! Files with a secret in one line: private, never overwritten.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Why a key file cannot be read.
#[derive(Debug)]
pub enum Unreadable {
    /// There is no such file.
    Missing,
    /// Others than the owner may read or change it; its permission bits.
    Exposed(u32),
    /// The file system refused.
    Io(io::Error),
}

/// Why a key file cannot be made.
#[derive(Debug)]
pub(crate) enum NotMade {
    /// A file exists there, even a dangling link; it is left alone.
    Exists,
    /// Its directory is missing.
    NoDirectory(PathBuf),
    /// The file system refused.
    Io(io::Error),
}

/// Writes a line to a new file readable by its owner alone.
pub(crate) fn create(path: &Path, line: &str) -> Result<(), NotMade> {
    let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let mut file = opened.map_err(|error| match (error.kind(), path.parent()) {
        (io::ErrorKind::AlreadyExists, _) => in_the_way(path),
        (io::ErrorKind::NotFound, Some(directory)) if !directory.exists() => {
            NotMade::NoDirectory(directory.to_owned())
        }
        _ => NotMade::Io(error),
    })?;
    let written = file.write_all(line.as_bytes()).and_then(|()| file.sync_all());
    written.map_err(|error| {
        // Half a key would be in the way of the next attempt. We made this file: nothing is lost.
        let _ = std::fs::remove_file(path);
        NotMade::Io(error)
    })
}

/// Describes an existing file in the way.
fn in_the_way(path: &Path) -> NotMade {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => {
            NotMade::Io(io::Error::other("a directory, not a file; name a file in it"))
        }
        Ok(metadata) if !metadata.is_file() => {
            NotMade::Io(io::Error::other("a device, pipe or socket, which keeps no key; name a file"))
        }
        _ => NotMade::Exists,
    }
}

/// Opens a file accessible to its owner alone.
pub fn open(path: &Path) -> Result<File, Unreadable> {
    // A pipe would keep us waiting for its writer.
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let file =
        OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Unreadable::Missing,
            _ => Unreadable::Io(error),
        })?;
    // The opened file is asked, not the path: no exchange is possible in between.
    let metadata = file.metadata().map_err(Unreadable::Io)?;
    if !metadata.is_file() {
        return Err(Unreadable::Io(io::Error::other("a directory, device or pipe, not a file")));
    }
    let mode = metadata.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(Unreadable::Exposed(mode));
    }
    Ok(file)
}

/// Reads the beginning of a key file: all of it.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Unreadable> {
    let mut bytes = Vec::new();
    open(path)?.take(MAX_KEY_FILE).read_to_end(&mut bytes).map_err(Unreadable::Io)?;
    Ok(bytes)
}

/// More than any key file holds; keeps a mistaken `key_file = "/dev/zero"` or disk image from being read whole.
const MAX_KEY_FILE: u64 = 1024;
