//! The one place for waiting, and the choice of ports.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// More than any step takes, also on a busy machine: a hanging step fails with it.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Asks `probe` until it has an answer, and panics with `what` after `limit`.
pub(crate) fn eventually<T>(what: &str, limit: Duration, mut probe: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(start.elapsed() < limit, "{what}: not within {limit:?}");
        pause();
    }
}

/// Lets other processes run between two looks at a condition; nothing else here may sleep.
#[allow(clippy::disallowed_methods, reason = "the condition lies in another process, which cannot wake us")]
pub(crate) fn pause() {
    std::thread::sleep(Duration::from_millis(10));
}

/// Finds a port of the loopback address without a listener.
///
/// It lies below the kernel's range for outgoing connections, so only another test can snatch it before its use;
/// [`super::pair::Pair::start`] then tries again with other ports.
pub(crate) fn free_address() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let base = std::process::id().wrapping_mul(131);
    for _ in 0..PORTS {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST_PORT + u16::try_from(base.wrapping_add(step) % PORTS).unwrap();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
    panic!("no free port");
}

const FIRST_PORT: u16 = 12_000;
const PORTS: u32 = 20_000;
