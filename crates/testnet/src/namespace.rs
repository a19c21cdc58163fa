//! Namespaces held by descriptors, and threads inside them.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::panic::resume_unwind;
use std::process::{Child, Command, Stdio};
use std::thread;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A network namespace; it lives as long as this value, and as long as a process is in it.
#[derive(Debug)]
pub(crate) struct Namespace {
    descriptor: OwnedFd,
}

impl Namespace {
    /// Makes an empty one.
    ///
    /// # Errors
    ///
    /// A missing privilege, or too many namespaces.
    pub(crate) fn new() -> io::Result<Self> {
        let descriptor = on_a_thread(|| {
            oncewire_sys::namespaces::new_network()?;
            File::open("/proc/thread-self/ns/net")
        })?;
        Ok(Self { descriptor: descriptor.into() })
    }

    /// Its path for other processes, by the process holding it.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.descriptor.as_raw_fd())
    }

    /// Runs `body` on a thread of its own inside; panics if `body` does.
    pub(crate) fn enter<T: Send>(&self, body: impl FnOnce() -> T + Send) -> io::Result<T> {
        on_a_thread(|| {
            move_into_link_name_space(self.descriptor.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok(body())
        })
    }
}

/// A process namespace; everything in it is killed on drop, or at the end of our process.
#[derive(Debug)]
pub(crate) struct Cage {
    /// `cat`; it ends with its standard input: at the latest when the system closes our descriptors.
    first: Child,
    descriptor: OwnedFd,
}

impl Cage {
    /// Makes one.
    ///
    /// # Errors
    ///
    /// A missing privilege, or too many namespaces.
    pub(crate) fn new() -> io::Result<Self> {
        on_a_thread(|| {
            oncewire_sys::namespaces::new_processes()?;
            let first =
                Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).current_dir("/").spawn()?;
            let descriptor = File::open(format!("/proc/{}/ns/pid", first.id()))?;
            Ok(Self { first, descriptor: descriptor.into() })
        })
    }

    /// Runs `body` on a thread of its own in `network`, with its child processes in here.
    ///
    /// It can start no thread, and neither can functions called by it.
    ///
    /// # Errors
    ///
    /// The system does not let us in.
    pub(crate) fn enter<T: Send>(
        &self,
        network: &Namespace,
        body: impl FnOnce() -> T + Send,
    ) -> io::Result<T> {
        network.enter(|| {
            // It changes the namespace of this thread's children, not of the thread.
            move_into_link_name_space(self.descriptor.as_fd(), Some(LinkNameSpaceType::ProcessID))?;
            Ok(body())
        })?
    }
}

impl Drop for Cage {
    fn drop(&mut self) {
        drop(self.first.stdin.take());
        // The first process kills all others and ends once they are reaped. A process held elsewhere may stay
        // unreaped, and must not delay us: it is dead all the same.
        if has_ended(&self.first, PATIENCE).unwrap_or(false) {
            let _ = self.first.wait();
        }
    }
}

fn has_ended(child: &Child, patience: Timespec) -> io::Result<bool> {
    let pid = Pid::from_child(child);
    let descriptor = pidfd_open(pid, PidfdFlags::empty())?;
    Ok(poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&patience))? > 0)
}

const PATIENCE: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Runs `body` on a thread of its own, to end in any namespaces entered by it.
fn on_a_thread<T: Send>(body: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| scope.spawn(body).join().unwrap_or_else(|panic| resume_unwind(panic)))
}
