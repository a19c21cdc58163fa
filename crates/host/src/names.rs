//! Names of hosts, as the system resolves them.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};

use crate::scope;
use crate::threads;

/// Looks up a host with its port, on a thread of its own unless it is an address.
///
/// # Errors
/// The system's answer for the name, or a lack of threads with its remedy.
pub async fn lookup(host: &str) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse() {
        return Ok(vec![address]);
    }
    if let Some((scoped, port)) = scope::read_with_port(host) {
        return Ok(vec![scoped.address(port)?]);
    }
    let host = host.to_owned();
    threads::run(THREAD, move || host.to_socket_addrs().map(Iterator::collect)).await?
}

/// The name of threads that look names up.
pub const THREAD: &str = "oncewire-name";
