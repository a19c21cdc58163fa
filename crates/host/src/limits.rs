//! Limits of open files, and shortages that a gateway reports.

use std::fmt::Display;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::log_throttle::LogThrottle;

/// Whether this socket, of an application or a peer, leaves files for the admin interface, logs and the
/// store. The system assigns the lowest free number, so a high one means that nearly all are taken.
pub fn leaves_reserve(socket: &impl AsRawFd) -> bool {
    let is_low = |limit: u64| u64::try_from(socket.as_raw_fd()).is_ok_and(|number| number + RESERVE < limit);
    getrlimit(Resource::Nofile).current.is_none_or(is_low)
}

/// The error of a socket beyond the reserve.
pub fn reserve_reached() -> io::Error {
    let why =
        format!("the last {RESERVE} files that may be open are kept for the admin interface, logs and store");
    io::Error::other(format!("{why}; {RAISE}"))
}

/// Reports failed accepts: one line a minute at most for all of them.
#[derive(Debug)]
pub struct Shortage(LogThrottle);

impl Default for Shortage {
    fn default() -> Self {
        Self(LogThrottle::every(Duration::from_secs(60)))
    }
}

impl Shortage {
    /// Reports a failure (`no connection is accepted`) with place, reason and remedy.
    pub fn tell(&self, place: impl Display, what: &str, error: &io::Error) {
        if let Some(held_back) = self.0.due() {
            tracing::warn!(%place, held_back, "{what}: {}", with_advice(error));
        }
    }
}

/// Adds the remedy for an error caused by a limit of this process or machine.
pub fn with_advice(error: &io::Error) -> String {
    match Errno::from_io_error(error) {
        Some(Errno::MFILE) => format!("{error}; {RAISE}"),
        Some(Errno::NFILE) => format!("{error}; raise `sysctl fs.file-max`"),
        Some(Errno::FBIG) => format!("{error}; {RAISE_SIZE}"),
        _ => error.to_string(),
    }
}

const RAISE_SIZE: &str = "raise the limit of file sizes with `ulimit -f` or LimitFSIZE= of the service";

/// The remedy for too few open files.
pub const RAISE: &str = "raise the limit of open files with `ulimit -Hn` or LimitNOFILE= of the service";

/// Files not given to connections: requests of the admin interface, two for each replaced file, name
/// look-ups, and files and sockets of a reload.
const RESERVE: u64 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lack_of_files_is_reported_with_a_remedy() {
        let told = with_advice(&Errno::MFILE.into());
        assert!(told.contains("os error 24") && told.contains("LimitNOFILE"), "{told}");
        assert!(with_advice(&Errno::NFILE.into()).contains("fs.file-max"));
        assert!(with_advice(&Errno::FBIG.into()).contains("LimitFSIZE"));
        assert!(with_advice(&reserve_reached()).contains("LimitNOFILE"));
        assert!(!with_advice(&Errno::NOMEM.into()).contains("raise"));
    }

    #[tokio::test(start_paused = true)]
    async fn shortage_is_reported_once_a_minute() {
        let shortage = Shortage::default();
        let mut told = Vec::new();
        for _ in 0..121 {
            told.extend(shortage.0.due());
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(told, [0, 59, 59]);
    }
}
