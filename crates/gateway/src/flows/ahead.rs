//! Reads an application a little while there is no room for it: of a server that has written all and closed, the system
//! gives the connection up, and what it still has of it, when nobody has taken anything for some 200 s.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::Flow;
use super::pump::BLOCK;

/// Bytes that the flows of a peer have read ahead.
#[derive(Debug, Default)]
pub(crate) struct AheadBytes(AtomicUsize);

/// What one application's stream has read ahead; given back when it ends.
pub(super) struct Ahead<'a> {
    stream: &'a TcpStream,
    flow: &'a Flow,
    /// How long there is no room before something is read anyway.
    after: Duration,
    /// What it may still read before it waits again.
    left: usize,
    /// What it has taken of the peer's since there was room.
    taken: usize,
}

/// Less than half of the time after which a system gives up.
pub(super) const AFTER: Duration = Duration::from_secs(60);
/// The most that one flow reads ahead: a reader that stops for good is not to be read to for ever.
const MOST_OF_ONE: usize = 4 << 20;
/// The most that all flows of a peer do.
const MOST: usize = 64 << 20;

impl AheadBytes {
    fn take(&self, bytes: usize) -> bool {
        let more = |taken: usize| taken.checked_add(bytes).filter(|taken| *taken <= MOST);
        self.0.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.0.fetch_sub(bytes, Relaxed);
    }

    #[cfg(test)]
    pub(crate) fn taken(&self) -> usize {
        self.0.load(Relaxed)
    }
}

impl<'a> Ahead<'a> {
    pub(super) fn new(stream: &'a TcpStream, flow: &'a Flow, after: Duration) -> Self {
        Self { stream, flow, after, left: 0, taken: 0 }
    }

    /// Waits until there is room, or something is to be read without, after so many bytes were queued for which there was
    /// none.
    pub(super) async fn wait(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(bytes);
        if self.left > 0 {
            return;
        }
        if timeout(self.after, self.flow.writable()).await.is_err() {
            if self.take() {
                return;
            }
            self.flow.writable().await;
        }
        self.give_back();
    }

    /// Takes what makes the system tell the sender that there is room again: a sixteenth of its buffer must be free.
    fn take(&mut self) -> bool {
        let buffer = SockRef::from(self.stream).recv_buffer_size().unwrap_or_default();
        let bytes = buffer / 16 + BLOCK;
        let fits = self.taken + bytes <= MOST_OF_ONE && self.flow.read_ahead().take(bytes);
        if fits {
            (self.left, self.taken) = (bytes, self.taken + bytes);
        }
        fits
    }

    /// There is room.
    pub(super) fn give_back(&mut self) {
        self.flow.read_ahead().give_back(self.taken);
        (self.left, self.taken) = (0, 0);
    }
}

impl Drop for Ahead<'_> {
    fn drop(&mut self) {
        self.give_back();
    }
}
