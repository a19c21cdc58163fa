//! A disk with moods.

use super::*;

/// A disk's response to requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mood {
    Works,
    /// Holds all operations until it works again.
    Holds,
    HoldsReads,
    Panics,
}

/// A disk in memory with moods.
#[derive(Clone)]
pub(super) struct Moody {
    pub(super) inner: Memory,
    mood: Arc<(Mutex<Mood>, parking_lot::Condvar)>,
}

impl Moody {
    pub(super) fn new(mood: Mood) -> Self {
        Self { inner: Memory::default(), mood: Arc::new((Mutex::new(mood), parking_lot::Condvar::new())) }
    }

    pub(super) fn set(&self, mood: Mood) {
        *self.mood.0.lock() = mood;
        self.mood.1.notify_all();
    }

    fn pass(&self, is_read: bool) {
        let (mood, changed) = &*self.mood;
        let mut mood = mood.lock();
        while *mood == Mood::Holds || *mood == Mood::HoldsReads && is_read {
            changed.wait(&mut mood);
        }
        assert_ne!(*mood, Mood::Panics, "as the test has it");
    }
}

impl Backend for Moody {
    fn create(&self, name: &str, len: u64) -> io::Result<()> {
        self.pass(false);
        self.inner.create(name, len)
    }

    fn read(&self, name: &str, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.pass(true);
        self.inner.read(name, at, into)
    }

    fn write(&self, name: &str, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.pass(false);
        self.inner.write(name, at, bytes)
    }

    fn truncate(&self, name: &str, len: u64) -> io::Result<()> {
        self.inner.truncate(name, len)
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        self.pass(false);
        self.inner.sync(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.inner.remove(name)
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        self.pass(true);
        self.inner.list()
    }
}
