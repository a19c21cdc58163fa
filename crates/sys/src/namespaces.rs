//! Namespaces of the calling thread.

use std::io;

use rustix::thread::UnshareFlags;

/// Moves the calling thread into a new network namespace, with only a loopback interface, which is down.
///
/// Its later threads and processes are in it too.
///
/// # Errors
///
/// `EPERM` without CAP_SYS_ADMIN; `ENOSPC` above the system's limit of namespaces.
pub fn new_network() -> io::Result<()> {
    unshare(UnshareFlags::NEWNET)
}

/// Makes a new process namespace. The calling thread's next child process is the first in it.
///
/// The end of that process kills all others in the namespace. The thread itself stays in its own, and can
/// start no more threads.
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
