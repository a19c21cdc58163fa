//! Notices to the service manager, by the protocol of sd_notify(3).
//!
//! One datagram for each change.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use crate::daemon::STOP_LIMIT;

/// Reports the daemon's state to the service manager; without one it does nothing.
///
/// Failed sends are dropped: a deaf manager is no reason to stop.
#[derive(Debug, Default)]
pub struct Notifier(Option<(UnixDatagram, SocketAddr)>);

impl Notifier {
    /// Reports to the manager of this process, if there is one with `NOTIFY_SOCKET`.
    pub fn from_environment() -> Self {
        std::env::var_os("NOTIFY_SOCKET").map(|name| Self::to(&name)).unwrap_or_default()
    }

    /// Reports to a socket: a path, or a name beginning with `@` in the abstract namespace.
    pub fn to(name: &OsStr) -> Self {
        let address = match name.as_bytes().strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name),
            None => SocketAddr::from_pathname(name),
        };
        let socket = UnixDatagram::unbound().and_then(|socket| {
            // A manager not reading must not hold up the gateway.
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        Self(socket.ok().zip(address.ok()))
    }

    /// The gateway listens everywhere; also the end of a reload.
    pub fn ready(&self) {
        self.send("READY=1\nSTATUS=running");
    }

    /// A reload begins; [`Notifier::ready`] ends it, even if the old configuration stays.
    pub fn reloading(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let micros = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={micros}\nSTATUS=reloading"));
    }

    /// The gateway stops, with this time for its flows.
    pub fn stopping(&self, limit: Duration) {
        let micros = (limit + STOPPING).as_micros();
        self.send(&format!("STOPPING=1\nEXTEND_TIMEOUT_USEC={micros}\nSTATUS=stopping; flows may finish"));
    }

    /// A sign of life; to be sent more often than the manager's `WatchdogSec`.
    pub fn alive(&self) {
        self.send("WATCHDOG=1");
    }

    fn send(&self, state: &str) {
        if let Some((socket, address)) = &self.0 {
            let _ = socket.send_to_addr(state.as_bytes(), address);
        }
    }
}

/// Time of a stop beyond the flows' time, on a busy machine too.
const STOPPING: Duration = STOP_LIMIT.saturating_add(Duration::from_secs(2));

#[cfg(test)]
mod tests {
    use super::*;
    use oncewire_host::slow_disk::DISK_LIMIT;

    #[test]
    fn each_change_is_one_datagram() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let notifier = Notifier::to(path.as_os_str());
        let heard = || {
            let mut buffer = [0; 256];
            let len = manager.recv(&mut buffer).unwrap();
            String::from_utf8(buffer[..len].to_vec()).unwrap()
        };
        notifier.ready();
        assert_eq!(heard(), "READY=1\nSTATUS=running");
        notifier.reloading();
        assert!(heard().starts_with("RELOADING=1\nMONOTONIC_USEC="));
        notifier.alive();
        assert_eq!(heard(), "WATCHDOG=1");
        notifier.stopping(Duration::from_secs(30));
        let said = heard();
        let micros =
            said.strip_prefix("STOPPING=1\nEXTEND_TIMEOUT_USEC=").and_then(|rest| rest.lines().next());
        let extended = Duration::from_micros(micros.unwrap().parse().unwrap());
        let (flows, disk, rules) = (Duration::from_secs(30), 3 * DISK_LIMIT, Duration::from_secs(11));
        assert!(extended > flows + disk + rules, "{said}");
    }

    #[test]
    fn manager_in_the_abstract_namespace_is_notified() {
        let name = format!("oncewire-test-{}", std::process::id());
        let manager = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        Notifier::to(OsStr::new(&format!("@{name}"))).alive();
        let mut buffer = [0; 16];
        let len = manager.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..len], b"WATCHDOG=1");
    }

    #[test]
    fn missing_manager_is_no_error() {
        Notifier::to(OsStr::new("/nonexistent/notify")).ready();
        Notifier::default().ready();
    }
}
