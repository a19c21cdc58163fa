//! What the store asks of a disk.

use std::io;

/// A folder of files that are written at offsets; all methods may be called from several threads.
///
/// Behind it lie a folder of the system ([`Folder`](crate::Folder)), memory that can crash
/// ([`Memory`](crate::Memory)), or a model of a slow disk ([`Slow`](crate::Slow)) in front of another. What is said
/// here of durability is what recovery relies on. Errors say of which file they are and what was being done to it, but
/// for those of reads, of which whoever reads says so.
pub trait Backend: Send + Sync + 'static {
    /// Makes a file of `len` zeros, its room taken, in place of any that has the name. The name is durable.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`] if there is no room, or whatever else the disk says.
    fn create(&self, name: &str, len: u64) -> io::Result<()>;

    /// Fills a buffer from an offset on.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] if the file ends before, [`io::ErrorKind::NotFound`] if there is none.
    fn read(&self, name: &str, at: u64, into: &mut [u8]) -> io::Result<()>;

    /// Writes bytes at an offset. After a power cut before [`Backend::sync`], any part of them may be there.
    ///
    /// # Errors
    /// Whatever the disk says; a part may have been written.
    fn write(&self, name: &str, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Cuts a file, or lengthens it with zeros.
    ///
    /// # Errors
    /// Whatever the disk says.
    fn truncate(&self, name: &str, len: u64) -> io::Result<()>;

    /// Waits until a file's bytes and length would survive a power cut.
    ///
    /// # Errors
    /// Whatever the disk says; what was written since the last time may then be lost.
    fn sync(&self, name: &str) -> io::Result<()>;

    /// Gives a file another name, in place of any that has it, as a whole or not at all, durably.
    ///
    /// # Errors
    /// Whatever the disk says.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file, durably; none is no error.
    ///
    /// # Errors
    /// Whatever the disk says.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Removes files, durably once it returns, and goes on where one cannot be removed.
    ///
    /// # Errors
    /// What the disk said first.
    fn remove_all(&self, names: &[String]) -> io::Result<()> {
        names.iter().map(|name| self.remove(name)).fold(Ok(()), io::Result::and)
    }

    /// Returns names and lengths of all files, in the order of their names.
    ///
    /// # Errors
    /// Whatever the disk says.
    fn list(&self) -> io::Result<Vec<(String, u64)>>;

    /// Returns the names of what else is there and is no regular file: folders, links, devices.
    ///
    /// # Errors
    /// Whatever the disk says.
    fn list_others(&self) -> io::Result<Vec<String>> {
        Ok(Vec::new())
    }
}
