//! A disk model with seeks and a rate, in front of another backend.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::Backend;

/// Makes each read and write of another backend take as long as on a disk with one arm.
///
/// One request is served at a time. It takes `seek`, unless it continues the last one in the same file, and the time
/// of its bytes at the rate. Everything else takes no time.
pub struct Slow {
    inner: Arc<dyn Backend>,
    seek: Duration,
    bytes_per_s: u64,
    arm: Mutex<Arm>,
}

#[derive(Default)]
struct Arm {
    file: String,
    at: u64,
}

impl Slow {
    /// Models a disk of this time to seek and this rate, at least 1 byte a second, in front of `inner`.
    pub fn new(inner: Arc<dyn Backend>, seek: Duration, bytes_per_s: u64) -> Self {
        let bytes_per_s = bytes_per_s.max(1);
        Self { inner, seek, bytes_per_s, arm: Mutex::default() }
    }

    /// Returns the duration of a request, with or without a seek.
    fn service_time(&self, continues: bool, bytes: usize) -> Duration {
        let seek = if continues { Duration::ZERO } else { self.seek };
        seek + Duration::from_secs_f64(bytes as f64 / self.bytes_per_s as f64)
    }

    fn serve<T>(
        &self,
        name: &str,
        at: u64,
        bytes: usize,
        work: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        // The arm is held while the request is served, so the time in the queue is not the request's own.
        let mut arm = self.arm.lock();
        let end = Instant::now() + self.service_time(arm.file == name && arm.at == at, bytes);
        if arm.file != name {
            name.clone_into(&mut arm.file);
        }
        arm.at = at + bytes as u64;
        let done = work();
        while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            thread::park_timeout(left);
        }
        drop(arm);
        done
    }
}

impl Backend for Slow {
    fn create(&self, name: &str, len: u64) -> io::Result<()> {
        self.inner.create(name, len)
    }

    fn read(&self, name: &str, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.serve(name, at, into.len(), || self.inner.read(name, at, into))
    }

    fn write(&self, name: &str, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.serve(name, at, bytes.len(), || self.inner.write(name, at, bytes))
    }

    fn truncate(&self, name: &str, len: u64) -> io::Result<()> {
        self.inner.truncate(name, len)
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        self.inner.sync(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.inner.remove(name)
    }

    fn remove_all(&self, names: &[String]) -> io::Result<()> {
        self.inner.remove_all(names)
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        self.inner.list()
    }

    fn list_others(&self) -> io::Result<Vec<String>> {
        self.inner.list_others()
    }
}
