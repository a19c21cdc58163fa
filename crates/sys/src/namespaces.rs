//! Namespaces of the calling thread.

use std::io;

use rustix::thread::UnshareFlags;

/// Moves the calling thread into a new network namespace, empty but for a loopback interface that is down.
///
/// Threads and processes that it starts afterwards are in it too.
///
/// # Errors
///
/// `EPERM` without CAP_SYS_ADMIN; `ENOSPC` above the system's limit of namespaces.
pub fn new_network() -> io::Result<()> {
    unshare(UnshareFlags::NEWNET)
}

/// Makes a new process namespace, of which the next child process of the calling thread is the first.
///
/// When that process ends, the system kills all others in the namespace. The thread itself stays where it is,
/// and can start no more threads.
///
/// # Errors
///
/// `EPERM` without CAP_SYS_ADMIN; `ENOSPC` above the system's limit of namespaces.
pub fn new_processes() -> io::Result<()> {
    unshare(UnshareFlags::NEWPID)
}

#[allow(unsafe_code, reason = "unshare can part threads from each other's file descriptors")]
fn unshare(namespace: UnshareFlags) -> io::Result<()> {
    // SAFETY: only `UnshareFlags::FILES` is unsound, and both callers name another flag.
    Ok(unsafe { rustix::thread::unshare_unsafe(namespace) }?)
}
