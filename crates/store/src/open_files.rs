//! A cache of open files, for reads without opening one.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::Errno;

use crate::error_context;

/// The most recently used files of a directory, at most [`MAX_OPEN`] of them.
///
/// Files are opened and closed outside its lock: a file system may block such a call, and others need not wait for
/// it.
#[derive(Debug, Default)]
pub(crate) struct OpenFiles(Mutex<Files>);

#[derive(Debug, Default)]
struct Files {
    /// Those used last in front.
    open: VecDeque<(String, Arc<File>)>,
    /// Counts changed meanings of names.
    forgotten: u64,
}

impl OpenFiles {
    /// Returns an open file, or opens it. It is not kept if any was forgotten meanwhile: it may be the one.
    pub(crate) fn get(&self, name: &str, open: impl Fn() -> io::Result<File>) -> io::Result<Arc<File>> {
        let forgotten = {
            let mut files = self.0.lock();
            if let Some(file) = files.take(name) {
                return Ok(files.keep(name, file));
            }
            files.forgotten
        };
        let file = Arc::new(self.with_room(open)?);
        let mut surplus = VecDeque::new();
        let mut files = self.0.lock();
        if files.forgotten != forgotten {
            return Ok(file);
        }
        // Another thread may have been first.
        let file = files.take(name).unwrap_or(file);
        let file = files.keep(name, file);
        if files.open.len() > MAX_OPEN {
            surplus = files.open.split_off(MAX_OPEN);
        }
        drop(files);
        drop(surplus);
        Ok(file)
    }

    /// Opens a file; at the process's limit of open files, the least recently used ones are closed for it.
    pub(crate) fn with_room(&self, open: impl Fn() -> io::Result<File>) -> io::Result<File> {
        let mut opened = open();
        while opened.as_ref().is_err_and(lacks_descriptors) {
            let Some(oldest) = self.pop() else { break };
            drop(oldest);
            opened = open();
        }
        opened
    }

    fn pop(&self) -> Option<(String, Arc<File>)> {
        self.0.lock().open.pop_back()
    }

    /// Drops a file with a name of no file, or of another one.
    pub(crate) fn forget(&self, name: &str) {
        let mut files = self.0.lock();
        files.forgotten += 1;
        let gone = files.take(name);
        drop(files);
        // The disk may take its time to free a removed file.
        drop(gone);
    }

    #[cfg(test)]
    pub(crate) fn names(&self) -> Vec<String> {
        self.0.lock().open.iter().map(|(name, _)| name.clone()).collect()
    }
}

impl Files {
    fn take(&mut self, name: &str) -> Option<Arc<File>> {
        let at = self.open.iter().position(|(known, _)| known == name)?;
        self.open.remove(at).map(|(_, file)| file)
    }

    fn keep(&mut self, name: &str, file: Arc<File>) -> Arc<File> {
        self.open.push_front((name.to_owned(), Arc::clone(&file)));
        file
    }
}

/// Says whether the process, or the system, has as many files open as it may.
pub(crate) fn lacks_descriptors(error: &io::Error) -> bool {
    error_context::errno(error).is_some_and(|errno| errno == Errno::MFILE || errno == Errno::NFILE)
}

/// How many files stay open.
pub(crate) const MAX_OPEN: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn null() -> io::Result<File> {
        File::open("/dev/null")
    }

    #[test]
    fn slow_opening_of_a_file_delays_nobody() {
        let files = OpenFiles::default();
        let slow = || {
            assert!(!files.0.is_locked(), "others would wait");
            files.get("b", null)?;
            files.forget("c");
            null()
        };
        files.get("a", slow).unwrap();
        let slow = || {
            assert!(!files.0.is_locked(), "others would wait");
            null()
        };
        files.with_room(slow).unwrap();
    }

    #[test]
    fn file_removed_during_opening_is_used_once_and_not_kept() {
        let files = OpenFiles::default();
        let went = || {
            let opened = null();
            files.forget("a");
            opened
        };
        files.get("a", went).unwrap();
        assert_eq!(files.names(), [""; 0]);
        files.get("a", null).unwrap();
        assert_eq!(files.names(), ["a"]);
    }

    #[test]
    fn concurrent_openings_share_one_file() {
        let files = OpenFiles::default();
        let twice = || files.get("a", null).and_then(|_| null());
        files.get("a", twice).unwrap();
        assert_eq!(files.names(), ["a"]);
    }
}
