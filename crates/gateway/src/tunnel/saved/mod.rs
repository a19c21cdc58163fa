//! Logs that outlive the process: one thread writes what links remember, and reads it back at the next start.
//!
//! A log on disk is never trusted further than its checksums, and a write that cannot keep up is left out: the two
//! ends of a link compare what is there before they use it, so that a hole costs savings and nothing else.

mod file;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread::JoinHandle;

use rustix::fs::FlockOperation;

use oncewire_link::{LogSide, LogWrite, SavedLogs};

use self::file::LogFile;

/// Why the state folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Another gateway uses it.
    #[error("{path}: another oncewire uses this state folder; give each gateway its own", path = .0.display())]
    InUse(PathBuf),
    /// The file system refused.
    #[error("{path}: {source}", path = .path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

/// The folder with the logs of all links, and the thread that writes them. Dropping it waits until what is queued
/// is written, and gives the folder free.
#[derive(Debug)]
pub(crate) struct SavedLogStore {
    queue: mpsc::Sender<Queued>,
    thread: Option<JoinHandle<()>>,
}

/// One link's way to the thread.
#[derive(Clone, Debug)]
pub(crate) struct LogWriter {
    link: usize,
    queue: mpsc::Sender<Queued>,
    /// Bytes that are queued, over all links.
    waiting: Arc<AtomicU64>,
}

#[derive(Debug)]
enum Queued {
    Write { link: usize, side: LogSide, write: LogWrite },
    Stop,
}

impl SavedLogStore {
    /// Reads the logs of `links`, which are names with log capacities, and starts the thread.
    ///
    /// # Errors
    /// If the folder cannot be made, is in use, or a file in it cannot be opened. A damaged file is no error: what
    /// of it is whole is used.
    pub(crate) fn open(
        folder: &Path,
        links: &[(String, u64)],
    ) -> Result<(Self, Vec<(LogWriter, SavedLogs)>), StateError> {
        let io = |source| StateError::Io { path: folder.to_owned(), source };
        if !folder.is_dir() {
            DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(io)?;
        }
        let lock = lock(folder)?;
        let (queue, queued) = mpsc::channel();
        let waiting = Arc::new(AtomicU64::new(0));
        let (mut files, mut opened) = (Vec::new(), Vec::new());
        for (link, (name, capacity)) in links.iter().enumerate() {
            let (out, saved_out) = LogFile::open(&path_of(folder, name, LogSide::Out), *capacity)?;
            let (inbound, saved_inbound) =
                LogFile::open(&path_of(folder, name, LogSide::Inbound), *capacity)?;
            files.push([out, inbound]);
            let writer = LogWriter { link, queue: queue.clone(), waiting: Arc::clone(&waiting) };
            opened.push((writer, SavedLogs { out: saved_out, inbound: saved_inbound }));
        }
        let left = Arc::clone(&waiting);
        let thread = std::thread::Builder::new().name("oncewire-logs".to_owned());
        let thread = thread.spawn(move || write_all(&queued, &mut files, &left, lock)).map_err(io)?;
        Ok((Self { queue, thread: Some(thread) }, opened))
    }
}

impl Drop for SavedLogStore {
    fn drop(&mut self) {
        let _ = self.queue.send(Queued::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl LogWriter {
    /// Queues a piece of log; leaves it out if the disk is too far behind.
    pub(crate) fn write(&self, side: LogSide, write: LogWrite) {
        let bytes = write.plain.len() as u64;
        if self.waiting.load(Relaxed) + bytes > MAX_WAITING {
            return;
        }
        self.waiting.fetch_add(bytes, Relaxed);
        // The thread ends with the gateway only; what a link still remembers then is left out.
        let _ = self.queue.send(Queued::Write { link: self.link, side, write });
    }
}

/// Runs the thread; the folder's lock goes with it.
fn write_all(queued: &mpsc::Receiver<Queued>, files: &mut [[LogFile; 2]], waiting: &AtomicU64, lock: File) {
    while let Ok(Queued::Write { link, side, write }) = queued.recv() {
        waiting.fetch_sub(write.plain.len() as u64, Relaxed);
        let Some([out, inbound]) = files.get_mut(link) else { continue };
        let file = match side {
            LogSide::Out => out,
            LogSide::Inbound => inbound,
        };
        file.write(&write);
    }
    drop(lock);
}

/// Takes the folder for this process; the lock ends with the file.
fn lock(folder: &Path) -> Result<File, StateError> {
    let path = folder.join("lock");
    let opened = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
    let file = opened.map_err(|source| StateError::Io { path: path.clone(), source })?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(StateError::InUse(folder.to_owned())),
        Err(error) => Err(StateError::Io { path, source: error.into() }),
    }
}

/// Peers' names may hold anything; file names do not.
fn path_of(folder: &Path, name: &str, side: LogSide) -> PathBuf {
    let mut file = String::new();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => file.push(char::from(byte)),
            _ => file.push_str(&format!("%{byte:02x}")),
        }
    }
    let side = match side {
        LogSide::Out => "out",
        LogSide::Inbound => "in",
    };
    folder.join(format!("{file}.{side}"))
}

/// Removes what an earlier run left behind of a file that is being replaced.
fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Bytes that wait to be written, over all links; what exceeds that is left out.
const MAX_WAITING: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn links() -> Vec<(String, u64)> {
        vec![("hub".to_owned(), 1 << 20), ("ship/1".to_owned(), 1 << 20)]
    }

    #[test]
    fn what_links_wrote_is_there_at_the_next_start() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("state");
        let (store, opened) = SavedLogStore::open(&folder, &links()).unwrap();
        assert!(opened.iter().all(|(_, saved)| saved.out.is_none() && saved.inbound.is_none()));
        for (at, (writer, _)) in opened.iter().enumerate() {
            let plain = Bytes::from(vec![at as u8 + 1; 1000]);
            writer.write(LogSide::Inbound, LogWrite { epoch: 7, start: 5000, plain });
        }
        drop(store);
        let (_store, opened) = SavedLogStore::open(&folder, &links()).unwrap();
        for (at, (_, saved)) in opened.iter().enumerate() {
            assert!(saved.out.is_none());
            let saved = saved.inbound.as_ref().unwrap();
            assert_eq!(saved.epoch, 7);
            assert_eq!(saved.ranges.iter().collect::<Vec<_>>(), [5000..6000]);
            let (bytes, _) = saved.log.slices(oncewire_codec::cache::LogOffset(5000), 1000);
            assert!(bytes.iter().all(|byte| *byte == at as u8 + 1));
        }
    }

    #[test]
    fn a_folder_serves_one_gateway_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let (store, _opened) = SavedLogStore::open(dir.path(), &links()).unwrap();
        assert!(matches!(SavedLogStore::open(dir.path(), &links()), Err(StateError::InUse(_))));
        drop(store);
        assert!(SavedLogStore::open(dir.path(), &links()).is_ok());
    }

    #[test]
    fn file_names_hold_no_paths() {
        let path = path_of(Path::new("/s"), "../a b", LogSide::Out);
        assert_eq!(path, Path::new("/s/%2e%2e%2fa%20b.out"));
    }
}
