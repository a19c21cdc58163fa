//! Sockets of notes: one per family, with multicast on chosen interfaces.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use rustix::net::netdevice::name_to_index;
use rustix::net::sockopt::{set_ip_multicast_if_with_ifindex, set_ipv6_multicast_if};
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};
use tokio::net::UdpSocket;

use super::note::NOTE_LEN;

/// Transport of notes.
#[derive(Debug)]
pub struct NoteSockets {
    v4: UdpSocket,
    /// None on a system without IPv6.
    v6: Option<UdpSocket>,
    interfaces: Vec<Interface>,
    /// The common port of all listeners to announcements.
    port: u16,
}

/// A chosen interface.
#[derive(Debug)]
struct Interface {
    name: String,
    /// Interface number of the joined groups; none without such an interface. A recreated interface has
    /// another.
    joined: Option<u32>,
}

/// Why notes cannot be exchanged.
#[derive(Debug, thiserror::Error)]
pub enum NoteSocketError {
    /// The port cannot be bound.
    #[error("cannot listen for other gateways on UDP port {port} (`[gateway] discover_port`): {source}")]
    Bind {
        /// The port.
        port: u16,
        /// The system's error.
        source: io::Error,
    },
    /// There is no such interface, or it lacks multicast.
    #[error(
        "cannot look for other gateways on interface {name:?} (`[[group]] discover`): {source}; `ip link` lists those \
         that there are"
    )]
    Interface {
        /// Its name.
        name: String,
        /// The system's error.
        source: io::Error,
    },
}

/// Of the scope free for organizations (RFC 2365 §6.1); notes are sent with a TTL of 1.
const GROUP_V4: Ipv4Addr = Ipv4Addr::new(239, 255, 79, 87);
/// Site-local, so the system sends from a diallable address, not from a link-local one; notes are sent with a
/// hop limit of 1.
const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0x4f6e, 0x6365);

impl NoteSockets {
    /// Binds the port and joins the groups on these interfaces.
    ///
    /// # Errors
    /// A port in use, or a missing interface.
    pub fn open(port: u16, interfaces: &[String]) -> Result<Self, NoteSocketError> {
        let failed = |source| NoteSocketError::Bind { port, source };
        let v4 = bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))).map_err(failed)?;
        let local = v4.local_addr().map_err(failed)?.port();
        let v6 = bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, local))).ok();
        let mut sockets = Self { v4, v6, interfaces: Vec::new(), port: local };
        for name in interfaces {
            let joined = name_to_index(&sockets.v4, name).map_err(io::Error::from);
            let joined = joined.and_then(|index| sockets.join(index).map(|()| index));
            let failed = |source| NoteSocketError::Interface { name: name.clone(), source };
            let joined = Some(joined.map_err(failed)?);
            sockets.interfaces.push(Interface { name: name.clone(), joined });
        }
        Ok(sockets)
    }

    /// Joins the groups again on recreated interfaces, and leaves them on vanished ones: the kernel still
    /// counts those against a limit.
    pub(crate) fn look(&mut self) {
        for at in 0..self.interfaces.len() {
            let Some(Interface { name, joined }) = self.interfaces.get(at) else { return };
            let index = name_to_index(&self.v4, name).ok();
            if index == *joined {
                continue;
            }
            if let Some(joined) = *joined {
                tracing::warn!(
                    interface = name,
                    "the interface is gone; gateways are looked for there once it is back"
                );
                self.leave(joined);
            }
            // A failed join is retried with the next look.
            let index = index.filter(|index| self.join(*index).is_ok());
            if index.is_some() {
                tracing::info!(
                    interface = name,
                    "the interface is there again, and gateways are looked for there"
                );
            }
            if let Some(interface) = self.interfaces.get_mut(at) {
                interface.joined = index;
            }
        }
    }

    /// Returns the bound port.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    fn join(&self, index: u32) -> io::Result<()> {
        let joined = socket2::SockRef::from(&self.v4)
            .join_multicast_v4_n(&GROUP_V4, &InterfaceIndexOrAddress::Index(index));
        let joined_v6 = self.v6.as_ref().map(|v6| v6.join_multicast_v6(&GROUP_V6, index));
        match (joined, joined_v6) {
            (Err(error), None | Some(Err(_))) => Err(error),
            _ => Ok(()),
        }
    }

    /// Leaves possibly joined groups.
    fn leave(&self, index: u32) {
        let _ = socket2::SockRef::from(&self.v4)
            .leave_multicast_v4_n(&GROUP_V4, &InterfaceIndexOrAddress::Index(index));
        let _ = self.v6.as_ref().map(|v6| v6.leave_multicast_v6(&GROUP_V6, index));
    }

    /// Sends to all listeners on the chosen interfaces. A failed send is lost, like any datagram.
    pub(crate) async fn announce(&self, is_v6: bool, datagram: &[u8]) {
        let any = Ipv4Addr::UNSPECIFIED;
        for index in self.interfaces.iter().filter_map(|interface| interface.joined) {
            if !is_v6 {
                if set_ip_multicast_if_with_ifindex(&self.v4, &any, &any, index).is_ok() {
                    let _ = self.v4.send_to(datagram, (GROUP_V4, self.port)).await;
                }
            } else if let Some(v6) = &self.v6
                && set_ipv6_multicast_if(v6, index).is_ok()
            {
                let _ = v6.send_to(datagram, (GROUP_V6, self.port)).await;
            }
        }
    }

    /// Sends to one. A failed send is lost, like any datagram.
    pub(crate) async fn send(&self, to: SocketAddr, datagram: &[u8]) {
        let _ = match (to.ip(), &self.v6) {
            (IpAddr::V4(_), _) => self.v4.send_to(datagram, to).await,
            (IpAddr::V6(_), Some(v6)) => v6.send_to(datagram, to).await,
            (IpAddr::V6(_), None) => return,
        };
    }

    /// Waits for a datagram, and returns its length, as far as it is read, and its source.
    pub(crate) async fn receive(&self, datagram: &mut [u8; NOTE_LEN + 1]) -> (usize, SocketAddr) {
        loop {
            let mut other = [0; NOTE_LEN + 1];
            let received = tokio::select! {
                received = self.v4.recv_from(datagram) => received,
                received = receive_v6(self.v6.as_ref(), &mut other) => {
                    *datagram = other;
                    received
                }
            };
            match received {
                Ok(received) => return received,
                // The fate of an earlier note, such as a port without a listener; or a lasting error.
                Err(_) => tokio::time::sleep(AFTER_ERROR).await,
            }
        }
    }
}

/// Pause of reading after an error.
const AFTER_ERROR: Duration = Duration::from_millis(50);

async fn receive_v6(socket: Option<&UdpSocket>, datagram: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
    match socket {
        Some(socket) => socket.recv_from(datagram).await,
        None => std::future::pending().await,
    }
}

fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
        socket.set_multicast_hops_v6(1)?;
    } else {
        socket.set_multicast_ttl_v4(1)?;
        // Only datagrams from the chosen interfaces, regardless of other programs' memberships.
        socket.set_multicast_all_v4(false)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    UdpSocket::from_std(socket.into())
}

#[cfg(test)]
mod tests {
    use oncewire_testnet::{Line, Network, isolated};

    use super::*;

    /// Whether the kernel has joined the group of IPv4 anywhere; it writes the address backwards.
    fn is_heard() -> bool {
        std::fs::read_to_string("/proc/thread-self/net/igmp").unwrap().contains("574FFFEF")
    }

    #[test]
    fn recreated_interface_is_joined_again() {
        isolated(|| {
            let Some(network) = Network::builder().line(Line::Plain).build_or_skip() else { return };
            let host = network.host("client");
            let make = || host.sh("ip link add x0 type veth peer name x1; ip link set x0 up");
            make();
            host.enter(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
                let _entered = runtime.enter();
                let mut sockets = NoteSockets::open(0, &["x0".to_owned()]).unwrap();
                let first = sockets.interfaces[0].joined;
                assert!(first.is_some() && is_heard());
                sockets.look();
                assert_eq!(sockets.interfaces[0].joined, first, "it is the same");
                // More often than the kernel lets one socket join.
                for _ in 0..30 {
                    host.sh("ip link delete x0");
                    sockets.look();
                    assert!(sockets.interfaces[0].joined.is_none() && !is_heard());
                    make();
                    sockets.look();
                    assert!(sockets.interfaces[0].joined.is_some_and(|joined| Some(joined) != first));
                    assert!(is_heard());
                }
            });
        });
    }
}
