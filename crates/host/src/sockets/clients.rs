//! Connects from clients' addresses, and from their ports if free.

use std::io;
use std::net::SocketAddr;
use std::ops::RangeInclusive;

use oncewire_sys::connections::{choose_only_port, choose_port_at_connect};
use rustix::io::Errno;
use socket2::Socket;
use tokio::net::{TcpSocket, TcpStream};

use super::{chosen_ports, set_transparent};

/// A socket's way to its port, beside the address of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// The client's, chosen as the kernel chooses a port for any connect.
    ///
    /// A bound port is taken from all programs of this machine with a kernel-chosen port, for all
    /// destinations: clients with many ports would leave them none.
    Chosen,
    /// The client's, bound.
    Bound,
    /// Any free port towards the destination.
    Any,
    /// This one, bound.
    Other(u16),
}

/// Connects from the address of a client; `socket` makes a socket for each attempt.
///
/// The client's port is taken while another connection has the same two ends: an earlier one of the client,
/// for a minute after its end, or one of another client with the same address. It is also taken while a
/// program of this machine listens on it.
///
/// # Errors
/// The kernel's; of several attempts, the last one's.
pub(super) async fn connect(
    address: SocketAddr,
    client: SocketAddr,
    socket: impl Fn() -> io::Result<Socket>,
) -> io::Result<TcpStream> {
    let mut last = Err(Errno::ADDRNOTAVAIL.into());
    for way in ways(client.port(), chosen_ports()) {
        last = attempt(address, client, socket()?, way).await;
        match &last {
            Err(error) if is_taken(error) => {}
            Ok(stream) if matches!(way, Way::Any | Way::Other(_)) => {
                let from = stream.local_addr().ok();
                tracing::debug!(%client, %address, ?from, "another port, since the client's is taken");
                break;
            }
            _ => break,
        }
    }
    last
}

async fn attempt(address: SocketAddr, client: SocketAddr, socket: Socket, way: Way) -> io::Result<TcpStream> {
    set_transparent(&socket, address)?;
    // A connection of the client to another server has the same address.
    socket.set_reuse_address(true)?;
    let port = match way {
        Way::Chosen => {
            choose_port_at_connect(&socket)?;
            choose_only_port(&socket, client.port())?;
            0
        }
        Way::Bound => client.port(),
        Way::Any => {
            // Older kernels look for a completely free port.
            let _ = choose_port_at_connect(&socket);
            0
        }
        Way::Other(port) => port,
    };
    let mut from = client;
    from.set_port(port);
    socket.bind(&from.into())?;
    TcpSocket::from_std_stream(socket.into()).connect(address).await
}

/// Returns the attempts for a client with this port, in order, for a kernel choosing among these ports.
fn ways(port: u16, chosen: Option<RangeInclusive<u16>>) -> impl Iterator<Item = Way> {
    let is_chosen = chosen.is_some_and(|chosen| chosen.contains(&port));
    let is_privileged = PRIVILEGED.contains(&port);
    // Servers of NFS, for example, let a client in by its port.
    let others = PRIVILEGED.filter(move |other| is_privileged && *other >= LEAST_RESERVED && *other != port);
    let kept = is_chosen.then_some(Way::Chosen).into_iter().chain([Way::Bound]);
    kept.chain((!is_privileged).then_some(Way::Any)).chain(others.rev().map(Way::Other))
}

/// Whether an attempt failed for its port, or the kernel does not know its way.
fn is_taken(error: &io::Error) -> bool {
    let taken = [Errno::ADDRINUSE, Errno::ADDRNOTAVAIL, Errno::NOPROTOOPT];
    Errno::from_io_error(error).is_some_and(|error| taken.contains(&error))
}

/// The privileged ports.
const PRIVILEGED: std::ops::Range<u16> = 1..1024;

/// The first of them used by programs for connects (rresvport).
const LEAST_RESERVED: u16 = 512;

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};

    use oncewire_testnet::{Line, Network, isolated, skip};

    use super::*;
    use crate::sockets::connect_onward;

    #[test]
    fn privileged_ports_are_replaced_by_privileged_ones() {
        let all = |port| ways(port, Some(32768..=60999)).collect::<Vec<_>>();
        assert_eq!(all(40000), [Way::Chosen, Way::Bound, Way::Any]);
        assert_eq!(all(20000), [Way::Bound, Way::Any]);
        let low = all(1000);
        assert_eq!(low[..3], [Way::Bound, Way::Other(1023), Way::Other(1022)]);
        assert_eq!((low.len(), low.last()), (512, Some(&Way::Other(512))));
        assert!(!low.contains(&Way::Other(1000)));
        assert_eq!(ways(40000, None).next(), Some(Way::Bound));
    }

    /// Connects to a listener of the same host from one of its addresses.
    fn connected(listener: &TcpListener, client: SocketAddr) -> io::Result<SocketAddr> {
        let to = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let stream = runtime.block_on(connect_onward(to, false, Some(client)))?;
        let from = stream.local_addr()?;
        // Open for the lifetime of the host.
        std::mem::forget(stream.into_std()?);
        Ok(from)
    }

    #[test]
    fn taken_port_of_a_client_is_replaced() {
        isolated(|| {
            let Some(network) = Network::builder().line(Line::Plain).build_or_skip() else { return };
            let host = network.host("server");
            for ip in [IpAddr::V4(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
                host.enter(|| {
                    let [one, other] = [0; 2].map(|port| TcpListener::bind((ip, port)).unwrap());
                    for port in [40000, 20000, 1000] {
                        let client = SocketAddr::new(ip, port);
                        assert_eq!(connected(&one, client).unwrap(), client);
                        assert_eq!(connected(&other, client).unwrap(), client, "another server");
                        let again = connected(&one, client).unwrap();
                        assert_ne!(again.port(), port);
                        assert_eq!((again.ip(), again.port() < 1024), (ip, port < 1024));
                    }
                    let listens = SocketAddr::new(ip, 40001);
                    let _listener = TcpListener::bind(listens).unwrap();
                    let from = connected(&one, listens).unwrap();
                    assert!(from.ip() == ip && from.port() != 40001, "{from}");
                });
            }
        });
    }

    #[test]
    fn ports_of_many_clients_leave_other_programs_theirs() {
        isolated(|| {
            let Some(network) = Network::builder().line(Line::Plain).build_or_skip() else { return };
            let host = network.host("server");
            host.sh("echo 40000 40009 > /proc/sys/net/ipv4/ip_local_port_range");
            let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
            host.enter(|| {
                let [one, other] = [0; 2].map(|_| TcpListener::bind((ip, 0)).unwrap());
                let is_known = choose_only_port(&one, 0).is_ok();
                for port in 40000..=40009 {
                    let client = SocketAddr::new(ip, port);
                    if [&one, &other].iter().all(|l| l.local_addr().unwrap() != client) {
                        assert_eq!(connected(&one, client).unwrap(), client);
                    }
                }
                if is_known {
                    std::net::TcpStream::connect(other.local_addr().unwrap()).unwrap();
                } else {
                    skip("the kernel is older than Linux 6.3");
                }
            });
        });
    }
}
