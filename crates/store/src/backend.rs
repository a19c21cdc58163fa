//! The store's interface to a disk.

use std::io;

/// A directory of files, written at offsets; all methods may be called from several threads.
///
/// Implementations are a directory of the system ([`Directory`](crate::Directory)), crashable memory
/// ([`Memory`](crate::Memory)), or a model of a slow disk ([`Slow`](crate::Slow)) in front of another. Recovery
/// relies on the durability as described here. Errors name their file and operation, except for those of reads: there
/// the caller adds it.
pub trait Backend: Send + Sync + 'static {
    /// Makes a file of `len` zeros, its room taken, in place of any file with the name. The name is durable.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`] if there is no room, or another error of the disk.
    fn create(&self, name: &str, len: u64) -> io::Result<()>;

    /// Fills a buffer from an offset on.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] if the file ends before, [`io::ErrorKind::NotFound`] if there is none.
    fn read(&self, name: &str, at: u64, into: &mut [u8]) -> io::Result<()>;

    /// Writes bytes at an offset. After a power cut before [`Backend::sync`], any part of them may be there.
    ///
    /// # Errors
    /// Any error of the disk; a part may have been written.
    fn write(&self, name: &str, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Cuts a file, or lengthens it with zeros.
    ///
    /// # Errors
    /// Any error of the disk.
    fn truncate(&self, name: &str, len: u64) -> io::Result<()>;

    /// Waits until a file's bytes and length would survive a power cut.
    ///
    /// # Errors
    /// Any error of the disk; writes since the last success may then be lost.
    fn sync(&self, name: &str) -> io::Result<()>;

    /// Gives a file another name, in place of any file there, as a whole or not at all, durably.
    ///
    /// # Errors
    /// Any error of the disk.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file, durably; none is no error.
    ///
    /// # Errors
    /// Any error of the disk.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Removes files, durably on return, and continues after a failure.
    ///
    /// # Errors
    /// The first error of the disk.
    fn remove_all(&self, names: &[String]) -> io::Result<()> {
        names.iter().map(|name| self.remove(name)).fold(Ok(()), io::Result::and)
    }

    /// Returns names and lengths of all files, in the order of their names.
    ///
    /// # Errors
    /// Any error of the disk.
    fn list(&self) -> io::Result<Vec<(String, u64)>>;

    /// Returns the names of everything else there: directories, links, devices.
    ///
    /// # Errors
    /// Any error of the disk.
    fn list_others(&self) -> io::Result<Vec<String>> {
        Ok(Vec::new())
    }
}
