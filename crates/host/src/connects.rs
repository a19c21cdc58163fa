//! Failed connects for lack of local ports or files.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustix::io::Errno;

use crate::limits::Shortage;
use crate::sockets::chosen_ports;

/// A gateway's connects failed so, logged once a minute; those without a port are counted.
#[derive(Debug, Default)]
pub struct ConnectShortage {
    without_port: AtomicU64,
    told: Shortage,
}

impl ConnectShortage {
    /// Notes a failed connect; returns whether this machine was at fault.
    pub fn note(&self, address: SocketAddr, error: &io::Error) -> bool {
        if lacks_port(address, error) {
            self.without_port.fetch_add(1, Relaxed);
            self.told.tell(address, NOT_MADE, &io::Error::other(advice(chosen_range())));
            return true;
        }
        let is_limit = is_limit(error);
        if is_limit {
            self.told.tell(address, NOT_MADE, error);
        }
        is_limit
    }

    /// Returns the number of connects without a port.
    pub fn without_port(&self) -> u64 {
        self.without_port.load(Relaxed)
    }
}

/// Whether a connect found no port; the kernel gives the same error for a missing local address.
fn lacks_port(address: SocketAddr, error: &io::Error) -> bool {
    let any = if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    Errno::from_io_error(error) == Some(Errno::ADDRNOTAVAIL)
        // UDP has ports of its own; nothing is sent.
        && UdpSocket::bind(SocketAddr::new(any, 0)).and_then(|socket| socket.connect(address)).is_ok()
}

/// Whether a limit of this process or machine prevented a connect; an error without a number is our own
/// reserve.
fn is_limit(error: &io::Error) -> bool {
    let limits = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    match Errno::from_io_error(error) {
        Some(error) => limits.contains(&error),
        None => error.kind() == io::ErrorKind::Other,
    }
}

fn chosen_range() -> Option<(u16, u16)> {
    chosen_ports().map(|ports| (*ports.start(), *ports.end()))
}

/// Advice for a port range too small.
fn advice(range: Option<(u16, u16)>) -> String {
    let range = range.map_or_else(String::new, |(first, last)| format!(", which is {first} to {last}"));
    format!(
        "every local port is taken towards this destination, by an open connection or for a minute after its end; widen \
         `sysctl net.ipv4.ip_local_port_range`{range}, set `net.ipv4.tcp_tw_reuse` to 1, or connect from more addresses, \
         as with source = \"client\""
    )
}

const NOT_MADE: &str = "a connection is not made";

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use oncewire_testnet::{Line, Network, isolated};

    use super::*;
    use crate::limits::reserve_reached;

    #[test]
    fn only_connects_without_a_port_are_counted() {
        isolated(|| {
            let Some(network) = Network::builder().line(Line::Plain).build_or_skip() else { return };
            let host = network.host("server");
            host.sh("echo 40000 40003 > /proc/sys/net/ipv4/ip_local_port_range");
            for listens in ["127.0.0.1:8080", "[::1]:8080"] {
                let listens = listens.parse().unwrap();
                host.enter(|| {
                    let listener = TcpListener::bind(listens).unwrap();
                    let shortage = ConnectShortage::default();
                    let mut open = Vec::new();
                    let error = loop {
                        match TcpStream::connect(listens) {
                            Ok(stream) => open.push(stream),
                            Err(error) => break error,
                        }
                        assert!(open.len() <= 4);
                    };
                    assert!(shortage.note(listens, &error), "{error}");
                    assert!(!shortage.note(listens, &io::ErrorKind::ConnectionRefused.into()));
                    assert!(shortage.note(listens, &reserve_reached()));
                    assert_eq!(shortage.without_port(), 1);
                    drop(listener);
                });
            }
            host.sh("ip -6 addr flush dev eth0; ip -6 addr flush dev lo; ip -6 route replace 2001:db8::/32 dev eth0");
            host.enter(|| {
                let nowhere = "[2001:db8::1]:80".parse().unwrap();
                let error = TcpStream::connect(nowhere).unwrap_err();
                assert!(!lacks_port(nowhere, &error), "{error}");
            });
        });
    }

    #[test]
    fn advice_names_the_range_and_its_setting() {
        let told = advice(Some((32768, 60999)));
        for word in ["ip_local_port_range`, which is 32768 to 60999", "tcp_tw_reuse", "source = \"client\""] {
            assert!(told.contains(word), "{told}");
        }
    }
}
