//! The sockets that notes cross: one for each family, which hears announcements on the chosen interfaces.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use rustix::net::netdevice::name_to_index;
use rustix::net::sockopt::{set_ip_multicast_if_with_ifindex, set_ipv6_multicast_if};
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};
use tokio::net::UdpSocket;

use super::note::NOTE_LEN;

/// Where notes come and go.
#[derive(Debug)]
pub(crate) struct NoteSockets {
    v4: UdpSocket,
    /// None where the system has no IPv6.
    v6: Option<UdpSocket>,
    /// The chosen interfaces, by their numbers.
    interfaces: Vec<u32>,
    /// The port that all who listen to announcements have in common.
    port: u16,
}

/// Why notes cannot be exchanged.
#[derive(Debug, thiserror::Error)]
pub enum NoteSocketError {
    /// The port cannot be bound.
    #[error("cannot listen for other gateways on UDP port {port} (`[gateway] discover_port`): {source}")]
    Bind {
        /// The port.
        port: u16,
        /// What the system said.
        source: io::Error,
    },
    /// There is no such interface, or it knows no multicast.
    #[error(
        "cannot look for other gateways on interface {name:?} (`[[group]] discover`): {source}; `ip link` lists those \
         that there are"
    )]
    Interface {
        /// Its name.
        name: String,
        /// What the system said.
        source: io::Error,
    },
}

/// Of the scope that organizations use as they like (RFC 2365 §6.1); notes are sent with a TTL of 1.
const GROUP_V4: Ipv4Addr = Ipv4Addr::new(239, 255, 79, 87);
/// Site-local, so that the system sends from an address that can be dialled, and no address of an interface alone; notes
/// are sent with a hop limit of 1.
const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0x4f6e, 0x6365);

impl NoteSockets {
    /// Binds the port and joins the groups on these interfaces.
    ///
    /// # Errors
    /// A port that is in use, or an interface that is not there.
    pub(crate) fn open(port: u16, interfaces: &[String]) -> Result<Self, NoteSocketError> {
        let failed = |source| NoteSocketError::Bind { port, source };
        let v4 = bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))).map_err(failed)?;
        let local = v4.local_addr().map_err(failed)?.port();
        let v6 = bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, local))).ok();
        let mut sockets = Self { v4, v6, interfaces: Vec::new(), port: local };
        for name in interfaces {
            let index = sockets.join(name);
            let failed = |source| NoteSocketError::Interface { name: name.clone(), source };
            sockets.interfaces.push(index.map_err(failed)?);
        }
        Ok(sockets)
    }

    /// Returns the port that is bound.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    fn join(&self, name: &str) -> io::Result<u32> {
        let index = name_to_index(&self.v4, name)?;
        let joined = socket2::SockRef::from(&self.v4)
            .join_multicast_v4_n(&GROUP_V4, &InterfaceIndexOrAddress::Index(index));
        let joined_v6 = self.v6.as_ref().map(|v6| v6.join_multicast_v6(&GROUP_V6, index));
        match (joined, joined_v6) {
            (Err(error), None | Some(Err(_))) => Err(error),
            _ => Ok(index),
        }
    }

    /// Sends to all who listen on the chosen interfaces. What cannot be sent is lost, like any datagram.
    pub(crate) async fn announce(&self, is_v6: bool, datagram: &[u8]) {
        let any = Ipv4Addr::UNSPECIFIED;
        for &index in &self.interfaces {
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

    /// Sends to one. What cannot be sent is lost, like any datagram.
    pub(crate) async fn send(&self, to: SocketAddr, datagram: &[u8]) {
        let _ = match (to.ip(), &self.v6) {
            (IpAddr::V4(_), _) => self.v4.send_to(datagram, to).await,
            (IpAddr::V6(_), Some(v6)) => v6.send_to(datagram, to).await,
            (IpAddr::V6(_), None) => return,
        };
    }

    /// Waits for a datagram, and returns how long it is, as far as it is looked at, and where it comes from.
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
                // What an earlier note met on its way, such as a port where nobody listens; or an error that stays.
                Err(_) => tokio::time::sleep(AFTER_ERROR).await,
            }
        }
    }
}

/// How long nothing is read after an error.
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
        // Only what comes in by the chosen interfaces, whatever other programs have joined elsewhere.
        socket.set_multicast_all_v4(false)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    UdpSocket::from_std(socket.into())
}
