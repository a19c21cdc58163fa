//! Pipes for bytes between sockets within the kernel.
//!
//! A pipe is lent only while it has bytes or is about to: silent connections hold none, and 10,000 of them do
//! not take 40,000 files.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use oncewire_host::limits;
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// The pipes of a process, within its limit of files.
pub(super) static PIPES: Pipes = Pipes::new(MAX_LENT);

/// A pool of pipes.
pub(super) struct Pipes {
    /// Empty ones for later use.
    idle: Mutex<Vec<Arc<Ends>>>,
    lent: AtomicUsize,
    most: usize,
}

/// A lent pipe; returns to the pool when dropped, unless it has bytes left.
pub(super) struct Pipe<'a> {
    pipes: &'a Pipes,
    ends: Arc<Ends>,
    held: usize,
}

struct Ends {
    read: OwnedFd,
    write: OwnedFd,
}

impl Pipes {
    /// Makes a pool with at most so many lent at once.
    pub(super) const fn new(most: usize) -> Self {
        Self { idle: Mutex::new(Vec::new()), lent: AtomicUsize::new(0), most }
    }

    /// Lends an empty pipe; none if too many are lent, or the system gives no more.
    pub(super) fn lend(&self) -> Option<Pipe<'_>> {
        if self.lent.fetch_add(1, Relaxed) >= self.most {
            self.lent.fetch_sub(1, Relaxed);
            return None;
        }
        let idle = self.idle.lock().pop();
        let ends = idle.or_else(|| Ends::new().map(Arc::new));
        if ends.is_none() {
            self.lent.fetch_sub(1, Relaxed);
        }
        ends.map(|ends| Pipe { pipes: self, ends, held: 0 })
    }
}

impl Pipe<'_> {
    /// Returns the number of bytes in the pipe.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Moves a socket's received bytes into the pipe; the pipe must be empty: a full one would look like an
    /// empty socket. 0 if there is nothing to move now; the stream need not have ended.
    ///
    /// # Errors
    /// If the socket is broken.
    pub(super) fn fill(&mut self, from: &TcpStream) -> io::Result<usize> {
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        let moved = from.try_io(Interest::READABLE, || {
            match splice(from, None, &self.ends.write, None, PIPE_SIZE, flags) {
                // The socket stays ready: only a read can find it empty.
                Err(errno) if errno == Errno::AGAIN || cannot_splice(errno) => Ok(0),
                moved => Ok(moved?),
            }
        });
        match moved {
            Ok(moved) => {
                self.held += moved;
                Ok(moved)
            }
            Err(error) if passes(&error) => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Moves bytes from the pipe to a socket and returns how many; 0 if the socket takes none now.
    ///
    /// # Errors
    /// If the socket is broken.
    pub(super) fn drain(&mut self, to: &TcpStream) -> io::Result<usize> {
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        let moved =
            to.try_io(Interest::WRITABLE, || Ok(splice(&self.ends.read, None, to, None, self.held, flags)?));
        match moved {
            Ok(moved) => {
                self.held = self.held.saturating_sub(moved);
                Ok(moved)
            }
            Err(error) if passes(&error) => Ok(0),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Pipe<'_> {
    fn drop(&mut self) {
        self.pipes.lent.fetch_sub(1, Relaxed);
        if self.held == 0 {
            let mut idle = self.pipes.idle.lock();
            if idle.len() < MAX_IDLE {
                idle.push(Arc::clone(&self.ends));
            }
        }
    }
}

impl Ends {
    /// Makes a pipe; none if the system gives no more, or only of the files reserved from connections.
    fn new() -> Option<Self> {
        let (read, write) = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC).ok()?;
        if !limits::leaves_reserve(&read) || !limits::leaves_reserve(&write) {
            return None;
        }
        // The system's default does too, in smaller steps.
        let _ = fcntl_setpipe_size(&write, PIPE_SIZE);
        Some(Self { read, write })
    }
}

/// Whether the kernel, or a filter of system calls, has no splice here.
fn cannot_splice(errno: Errno) -> bool {
    [Errno::INVAL, Errno::NOSYS, Errno::PERM, Errno::OPNOTSUPP].contains(&errno)
}

/// Whether the same call may do better later.
fn passes(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// A pipe's capacity, and the maximum of one call.
const PIPE_SIZE: usize = 256 << 10;

/// Pipes lent at once, two files each; connections beyond are copied.
const MAX_LENT: usize = 1024;

/// Empty pipes kept.
const MAX_IDLE: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pool_lends_within_its_limit_and_reuses_empty_pipes() {
        let pipes = Pipes::new(2);
        let (first, second) = (pipes.lend().unwrap(), pipes.lend().unwrap());
        assert!(pipes.lend().is_none());
        let ends = Arc::as_ptr(&second.ends);
        drop(second);
        assert_eq!(Arc::as_ptr(&pipes.lend().unwrap().ends), ends);
        drop(first);
        assert_eq!((pipes.idle.lock().len(), pipes.lent.load(Relaxed)), (2, 0));
    }

    #[test]
    fn pipe_with_bytes_left_is_not_lent_again() {
        let pipes = Pipes::new(1);
        let mut pipe = pipes.lend().unwrap();
        pipe.held = 1;
        drop(pipe);
        assert!(pipes.idle.lock().is_empty());
        assert!(pipes.lend().is_some(), "another takes its place");
    }
}
