//! The far side of a flow: connects onward for a peer, where that peer may go.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::RwLock;
use tokio::net::TcpStream;
use tokio::time::Instant;

use oncewire_codec::wire::{Destination, Host, OpenFailure};
use oncewire_link::OpenRequest;

use super::peer::Peer;
use super::seldom::Seldom;
use crate::config::{Access, Network, Policies};
use crate::flows::{Flow, pump};
use crate::sockets;
use crate::telemetry::Refusal;

/// What may be reached through this gateway: by a peer, or by its own clients when it connects for them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Onward {
    pub(crate) access: Access,
    pub(crate) own: OwnSockets,
    /// What this side's rules say: how what it sends is coded. Of the flow they can only say that it is not.
    pub(crate) policies: Policies,
    /// Whether connections carry a mark that tells them from clients'.
    pub(crate) marked: bool,
    /// The networks of the clients in whose name connections are made for a peer that asks for it.
    pub(crate) sources: Vec<Network>,
    pub(crate) log: Arc<Seldom>,
}

/// The addresses on which this gateway itself listens, which no peer reaches by way of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnSockets(Arc<RwLock<Vec<SocketAddr>>>);

impl OwnSockets {
    pub(crate) fn add(&self, address: SocketAddr) {
        self.0.write().push(address);
    }

    /// Forgets an address that is no longer listened on.
    pub(crate) fn remove(&self, address: SocketAddr) {
        let mut own = self.0.write();
        if let Some(at) = own.iter().position(|known| *known == address) {
            own.swap_remove(at);
        }
    }

    /// Says whether a connection to `address` would arrive at one of our own listening sockets.
    fn contains(&self, address: SocketAddr) -> bool {
        let ip = address.ip().to_canonical();
        self.0.read().iter().any(|own| {
            let own_ip = own.ip().to_canonical();
            own.port() == address.port()
                && (own_ip == ip || own_ip.is_unspecified() && is_of_this_machine(address))
        })
    }
}

/// Only an address of this machine can be bound here.
fn is_of_this_machine(mut address: SocketAddr) -> bool {
    // What remains of an IPv6 address is its scope, without which a link-local one cannot be bound.
    address.set_ip(address.ip().to_canonical());
    address.set_port(0);
    address.ip().is_loopback() || UdpSocket::bind(address).is_ok()
}

/// Connects a flow that the peer opened, answers it, and carries it.
pub(crate) async fn serve(peer: Arc<Peer>, flow: Flow, open: OpenRequest) {
    let onward = peer.onward();
    let connected = match peer.is_draining() {
        true => Err(OpenFailure::Other),
        false => match client(&peer, &onward, &open) {
            Ok(client) => connect(&open.destination, &onward, client).await,
            Err(failure) => Err(failure),
        },
    };
    let answer = match &connected {
        Ok(stream) => Ok(stream.local_addr().unwrap_or(UNKNOWN_ADDRESS)),
        Err(failure) => Err(*failure),
    };
    flow.plan(onward.policies.plan(&open.destination, peer.name(), peer.settings.link.plan));
    flow.prioritize(onward.policies.priority(&open.destination, peer.name()));
    flow.answer(answer);
    match connected {
        Ok(stream) => {
            pump::carry(stream, flow, Bytes::new()).await;
        }
        Err(failure) => {
            if failure == OpenFailure::NotAllowed {
                peer.ledger.refusals.count(Refusal::NotAllowedTo);
            }
            tracing::debug!(peer = peer.name(), destination = %open.destination, %failure, "onward connect failed");
        }
    }
}

/// Returns in whose name the peer wants to connect, if in another's than ours.
///
/// # Errors
/// If it may not.
fn client(peer: &Peer, onward: &Onward, open: &OpenRequest) -> Result<Option<SocketAddr>, OpenFailure> {
    let Some(client) = open.source.filter(|_| open.as_client) else { return Ok(None) };
    if onward.sources.iter().any(|network| network.contains(client.ip())) {
        return Ok(Some(client));
    }
    if let Some(held_back) = onward.log.due() {
        let why = "no connection in a client's name, since `allow_sources` does not name its network";
        tracing::warn!(peer = peer.name(), %client, held_back, "{why}");
    }
    Err(OpenFailure::NotAllowed)
}

/// Connects to a destination within ten seconds, trying a name's addresses in order; from the address of a `client`
/// where there is one.
///
/// # Errors
/// In the terms that the far side understands; of several addresses, the first failure.
pub(crate) async fn connect(
    destination: &Destination,
    onward: &Onward,
    client: Option<SocketAddr>,
) -> Result<TcpStream, OpenFailure> {
    let deadline = Instant::now() + CONNECT_LIMIT;
    let addresses = tokio::time::timeout_at(deadline, resolve(destination)).await;
    let addresses = addresses.unwrap_or(Err(OpenFailure::TimedOut))?;
    let mut failure = None;
    let count = addresses.len();
    for (tried, address) in addresses.into_iter().enumerate() {
        if !permits(onward, address) {
            failure.get_or_insert(OpenFailure::NotAllowed);
            continue;
        }
        // An address that does not answer leaves the others their share of the time.
        let left = deadline.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(count - tried).unwrap_or(1);
        match tokio::time::timeout(share, sockets::connect(address, onward.marked, client)).await {
            Ok(Ok(stream)) if sockets::is_its_own_peer(&stream) => {
                failure.get_or_insert(OpenFailure::Refused);
            }
            Ok(Ok(stream)) => {
                sockets::prepare_application(&stream);
                return Ok(stream);
            }
            Ok(Err(error)) => {
                failure.get_or_insert(failure_of(&error));
            }
            Err(_) => {
                failure.get_or_insert(OpenFailure::TimedOut);
            }
        }
    }
    Err(failure.unwrap_or(OpenFailure::NameNotFound))
}

fn permits(onward: &Onward, address: SocketAddr) -> bool {
    onward.access.permits(address.ip()) && !onward.own.contains(address)
}

async fn resolve(destination: &Destination) -> Result<Vec<SocketAddr>, OpenFailure> {
    match &destination.host {
        Host::Ip(ip) => Ok(vec![SocketAddr::new(*ip, destination.port)]),
        Host::Name(name) => {
            let found = tokio::net::lookup_host((name.as_str(), destination.port)).await;
            let found = found.map_err(|_| OpenFailure::NameNotFound)?;
            Ok(found.take(MAX_ADDRESSES).collect())
        }
    }
}

fn failure_of(error: &io::Error) -> OpenFailure {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => OpenFailure::Refused,
        io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::NetworkDown
        | io::ErrorKind::AddrNotAvailable => OpenFailure::Unreachable,
        io::ErrorKind::TimedOut => OpenFailure::TimedOut,
        io::ErrorKind::PermissionDenied => OpenFailure::NotAllowed,
        _ => OpenFailure::Other,
    }
}

/// Resolving and connecting together.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Names with more addresses are not tried further.
const MAX_ADDRESSES: usize = 8;

const UNKNOWN_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

#[cfg(test)]
mod tests {
    use super::*;

    fn onward(own: &str) -> Onward {
        let onward = Onward::default();
        onward.own.add(own.parse().unwrap());
        onward
    }

    #[test]
    fn no_peer_reaches_the_gateways_own_sockets() {
        let everywhere = onward("0.0.0.0:7400");
        assert!(!permits(&everywhere, "127.0.0.1:7400".parse().unwrap()));
        assert!(!permits(&everywhere, "127.9.9.9:7400".parse().unwrap()));
        assert!(!permits(&everywhere, "[::ffff:127.0.0.1]:7400".parse().unwrap()));
        assert!(permits(&everywhere, "127.0.0.1:7401".parse().unwrap()));
        let here = onward("127.0.0.1:7411");
        assert!(!permits(&here, "127.0.0.1:7411".parse().unwrap()));
        assert!(permits(&here, "127.0.0.2:7411".parse().unwrap()));
    }

    #[test]
    fn every_failure_of_a_connect_has_its_name() {
        let of = |kind: io::ErrorKind| failure_of(&kind.into());
        assert_eq!(of(io::ErrorKind::ConnectionRefused), OpenFailure::Refused);
        assert_eq!(of(io::ErrorKind::HostUnreachable), OpenFailure::Unreachable);
        assert_eq!(of(io::ErrorKind::TimedOut), OpenFailure::TimedOut);
        assert_eq!(of(io::ErrorKind::ConnectionReset), OpenFailure::Other);
    }
}
