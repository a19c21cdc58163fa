//! Connections onward: permitted destinations, and connecting.

use std::io;
use std::net::{Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::RwLock;
use rustix::io::Errno;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use oncewire_codec::wire::{Destination, Host, OpenFailure};
use oncewire_config::{Access, Network, Policies};
use oncewire_host::connects::ConnectShortage;
use oncewire_host::log_throttle::LogThrottle;
use oncewire_host::sockets;

use super::happy_eyeballs::first_to_answer;
use crate::lookups::Lookups;

/// Destinations allowed through this gateway: for a peer, or for its own clients when it connects for them.
#[derive(Clone, Debug, Default)]
pub struct Onward {
    /// Permitted destinations.
    pub access: Access,
    /// Addresses of this gateway itself, and the mark of its sockets.
    pub own: OwnSockets,
    /// This side's rules: coding of the sent direction. Of the whole flow they can only forbid coding.
    pub policies: Policies,
    /// Client networks; a peer may ask for connections from addresses within.
    pub sources: Vec<Network>,
    /// Silence of applications here until they are probed, if ever.
    pub keepalive: Option<Duration>,
    /// Time limits of connects.
    pub patience: Patience,
    /// Its look-ups of names.
    pub lookups: Lookups,
    /// Failed connects for lack of ports or files.
    pub shortage: Arc<ConnectShortage>,
    /// Rate limit of lines about denied destinations.
    pub log: Arc<LogThrottle>,
}

/// This gateway's own sockets: their listening addresses, closed to peers, and whether outgoing connections
/// carry a mark to tell them from clients'.
#[derive(Clone, Debug, Default)]
pub struct OwnSockets {
    listening: Arc<RwLock<Vec<SocketAddr>>>,
    marked: Arc<AtomicBool>,
}

/// Own addresses on trial; dropping the claim removes them.
pub struct Claim {
    own: OwnSockets,
    addresses: Vec<SocketAddr>,
}

impl Claim {
    /// Leaves them our own.
    pub fn keep(mut self) {
        self.addresses.clear();
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.addresses.iter().for_each(|address| self.own.remove(*address));
    }
}

impl OwnSockets {
    /// Adds an address of this gateway.
    pub fn add(&self, address: SocketAddr) {
        self.listening.write().push(address);
    }

    /// Adds addresses, to be kept only on later success.
    pub fn claim(&self, addresses: Vec<SocketAddr>) -> Claim {
        addresses.iter().for_each(|address| self.add(*address));
        Claim { own: self.clone(), addresses }
    }

    /// Whether new connections carry the mark.
    pub fn are_marked(&self) -> bool {
        self.marked.load(Relaxed)
    }

    /// Sets whether connections carry the mark from now on.
    pub fn mark(&self, marked: bool) {
        self.marked.store(marked, Relaxed);
    }

    /// Removes an address after its listener closed.
    pub fn remove(&self, address: SocketAddr) {
        let mut own = self.listening.write();
        if let Some(at) = own.iter().position(|known| *known == address) {
            own.swap_remove(at);
        }
    }

    /// Whether a connection to `address` would arrive at one of our own listening sockets.
    fn contains(&self, address: SocketAddr) -> bool {
        let ip = address.ip().to_canonical();
        self.listening.read().iter().any(|own| {
            let own_ip = own.ip().to_canonical();
            own.port() == address.port()
                && (own_ip == ip || own_ip.is_unspecified() && is_of_this_machine(address))
        })
    }
}

/// Whether an address belongs to this machine; on failure to find out, it counts as own. Nothing is sent.
///
/// With `ip_nonlocal_bind` at 1 every address can be bound, but no route begins at another machine's address
/// (IPv4), and the route to an own address begins there (IPv6, RFC 6724 §5, rule 1; IPv4 may begin at another
/// of the same network).
pub fn is_of_this_machine(mut address: SocketAddr) -> bool {
    let ip = address.ip().to_canonical();
    // An IPv6 address keeps its scope: a link-local one cannot be bound without.
    address.set_ip(ip);
    let way_from = |from: SocketAddr| {
        let socket = UdpSocket::bind(from)?;
        socket.connect(address)?;
        socket.local_addr()
    };
    let begins_there = |from: SocketAddr| match way_from(from) {
        Ok(begins) => begins.ip() == ip,
        Err(error) => !is_of_another(&error),
    };
    let mut itself = address;
    itself.set_port(0);
    let anywhere = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0);
    ip.is_loopback() || begins_there(itself) && (ip.is_ipv4() || begins_there(anywhere))
}

/// Whether an error means an unbindable address, or an address without a route from it.
fn is_of_another(error: &io::Error) -> bool {
    let kinds =
        [io::ErrorKind::AddrNotAvailable, io::ErrorKind::NetworkUnreachable, io::ErrorKind::HostUnreachable];
    // Some kernels report the latter so.
    kinds.contains(&error.kind()) || Errno::from_io_error(error) == Some(Errno::INVAL)
}

/// Connects to a destination with the system's own patience, the same as in the application's system; with
/// too many waiting, for ten seconds. Uses the address of a `client` if there is one.
///
/// Dropping it gives up.
///
/// # Errors
/// In the far side's terms; of several addresses, the first failure.
pub async fn connect(
    destination: &Destination,
    onward: &Onward,
    client: Option<SocketAddr>,
) -> Result<TcpStream, OpenFailure> {
    if onward.access.permits_nothing() {
        return Err(OpenFailure::NotAllowed);
    }
    let addresses = tokio::time::timeout(RESOLVE_LIMIT, resolve(destination, &onward.lookups)).await;
    let addresses = addresses.unwrap_or(Err(OpenFailure::TimedOut))?;
    let connecting = reach(addresses, onward, client);
    let stream = match onward.patience.places.try_acquire() {
        Ok(_place) => connecting.await?,
        Err(_) => {
            let limited = tokio::time::timeout(onward.patience.without, connecting).await;
            limited.unwrap_or(Err(OpenFailure::TimedOut))?
        }
    };
    sockets::prepare_application(&stream, onward.keepalive);
    Ok(stream)
}

/// Connects to the first permitted address to answer.
async fn reach(
    addresses: Vec<SocketAddr>,
    onward: &Onward,
    client: Option<SocketAddr>,
) -> Result<TcpStream, OpenFailure> {
    let attempt = |address| {
        let (permitted, marked) = (permits(onward, address), onward.own.are_marked());
        let shortage = Arc::clone(&onward.shortage);
        let client = sockets::client_towards(address, client);
        async move {
            if !permitted {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            if client.is_some_and(|client| !begins_at(client, address)) {
                return Err(io::ErrorKind::HostUnreachable.into());
            }
            let connected = sockets::connect_onward(address, marked, client).await;
            connected.map_err(|error| match shortage.note(address, &error) {
                // Nothing is wrong with the destination, nor with the way to it.
                true => io::ErrorKind::ResourceBusy.into(),
                false => error,
            })
        }
    };
    first_to_answer(addresses, attempt).await.map_err(|error| failure_of(&error))
}

/// Whether a connection from a client may arrive at an address: loopback receives only what was sent to
/// loopback.
fn begins_at(client: SocketAddr, address: SocketAddr) -> bool {
    let is_loopback = |address: SocketAddr| address.ip().to_canonical().is_loopback();
    !is_loopback(address) || is_loopback(client)
}

/// Budget of connects with the system's own timeout.
///
/// Flows are bounded anyway; but a scan of silent addresses behind one peer would otherwise leave all of its
/// flows waiting for two minutes.
#[derive(Clone, Debug)]
pub struct Patience {
    places: Arc<Semaphore>,
    /// How long the others have.
    without: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(PATIENT)), without: CONNECT_LIMIT }
    }
}

fn permits(onward: &Onward, address: SocketAddr) -> bool {
    onward.access.permits(address.ip()) && !onward.own.contains(address)
}

async fn resolve(destination: &Destination, lookups: &Lookups) -> Result<Vec<SocketAddr>, OpenFailure> {
    match &destination.host {
        Host::Ip(ip) => Ok(vec![SocketAddr::new(*ip, destination.port)]),
        Host::Name(name) => lookups.addresses(name, destination.port).await,
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
        io::ErrorKind::NotFound => OpenFailure::NameNotFound,
        _ => OpenFailure::Other,
    }
}

/// So many connects of a peer may wait for the system's full time.
const PATIENT: usize = 1024;

/// How long the others may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

const RESOLVE_LIMIT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::happy_eyeballs::tests::silent;

    fn onward(own: &str) -> Onward {
        let onward = Onward::default();
        onward.own.add(own.parse().unwrap());
        onward
    }

    #[test]
    fn own_sockets_are_denied_to_peers() {
        let everywhere = onward("0.0.0.0:7400");
        assert!(!permits(&everywhere, "127.0.0.1:7400".parse().unwrap()));
        assert!(!permits(&everywhere, "127.9.9.9:7400".parse().unwrap()));
        assert!(!permits(&everywhere, "[::ffff:127.0.0.1]:7400".parse().unwrap()));
        assert!(permits(&everywhere, "127.0.0.1:7401".parse().unwrap()));
        let here = onward("127.0.0.1:7411");
        assert!(!permits(&here, "127.0.0.1:7411".parse().unwrap()));
        assert!(permits(&here, "127.0.0.2:7411".parse().unwrap()));
    }

    /// Holds for both values of `ip_nonlocal_bind`.
    #[test]
    fn wildcard_port_is_ours_only_at_local_addresses() {
        let everywhere = onward("[::]:7400");
        for (address, permitted) in [
            ("127.0.0.1:7400", false),
            ("[::1]:7400", false),
            ("192.0.2.1:7400", true),
            ("[2001:db8::1]:7400", true),
            ("[fe80::1]:7400", false),
        ] {
            assert_eq!(permits(&everywhere, address.parse().unwrap()), permitted, "{address}");
        }
    }

    #[test]
    fn dropped_claim_releases_its_addresses() {
        let onward = onward("127.0.0.1:7400");
        let own = |port| !permits(&onward, format!("127.0.0.1:{port}").parse().unwrap());
        let claim = |port: u16| onward.own.claim(vec![SocketAddr::from(([127, 0, 0, 1], port))]);
        let (kept, given_up) = (claim(7401), claim(7402));
        assert_eq!([own(7401), own(7402)], [true, true]);
        kept.keep();
        drop(given_up);
        assert_eq!([own(7400), own(7401), own(7402)], [true, true, false]);
    }

    #[tokio::test]
    async fn first_of_several_failures_is_reported() {
        let nobody = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let ours = "127.0.0.1:7400".parse().unwrap();
        let onward = onward("127.0.0.1:7400");
        for (addresses, told) in [
            (vec![], OpenFailure::NameNotFound),
            (vec![ours], OpenFailure::NotAllowed),
            (vec![nobody, ours], OpenFailure::Refused),
            (vec![ours, nobody], OpenFailure::NotAllowed),
        ] {
            assert_eq!(reach(addresses, &onward, None).await.unwrap_err(), told);
        }
    }

    #[tokio::test]
    async fn client_of_the_other_family_hinders_no_connect_to_loopback() {
        for (nobody, server, own_family, other) in [
            ("127.0.0.1:0", "[::1]:0", "[2001:db8::7]:40000", "198.51.100.7:40000"),
            ("[::1]:0", "127.0.0.1:0", "198.51.100.7:40000", "[2001:db8::7]:40000"),
        ] {
            let server = tokio::net::TcpListener::bind(server).await.unwrap();
            let address = server.local_addr().unwrap();
            let mut nobody: SocketAddr = nobody.parse().unwrap();
            nobody.set_port(address.port());
            let onward = onward("127.0.0.1:7400");
            // As for a name with an address of each family.
            let connect = |client: &str| reach(vec![nobody, address], &onward, Some(client.parse().unwrap()));
            let stream = connect(other).await.unwrap();
            assert_eq!(stream.local_addr().unwrap().ip(), address.ip());
            // Nor does loopback answer other clients of its family.
            let refused = reach(vec![address], &onward, Some(own_family.parse().unwrap())).await;
            assert_eq!(refused.unwrap_err(), OpenFailure::Unreachable);
        }
    }

    #[tokio::test]
    async fn names_are_not_looked_up_for_a_peer_without_destinations() {
        let access = Access { allow: Some(Vec::new()), deny: Vec::new() };
        let onward = Onward { access, ..Onward::default() };
        // A lookup would wait for its place.
        let _places = onward.lookups.take_all();
        let destination = Destination { host: Host::Name("localhost".to_owned()), port: 80 };
        let failure = connect(&destination, &onward, None).await.unwrap_err();
        assert_eq!(failure, OpenFailure::NotAllowed);
    }

    #[tokio::test]
    async fn connect_beyond_the_budget_is_given_up_early() {
        let (silent, _filler) = silent().await;
        let destination = silent.local_addr().unwrap().into();
        let without = Duration::from_millis(1);
        let patience = Patience { places: Arc::new(Semaphore::new(1)), without };
        let onward = Onward { patience, ..Onward::default() };
        let mut first = std::pin::pin!(connect(&destination, &onward, None));
        // Polled until it has its place.
        while onward.patience.places.available_permits() > 0 {
            tokio::select! {
                biased;
                _ = &mut first => panic!("nobody answered"),
                () = tokio::task::yield_now() => {}
            }
        }
        assert_eq!(connect(&destination, &onward, None).await.unwrap_err(), OpenFailure::TimedOut);
        drop(silent);
        // A place comes back when its connect ends, here with a reset or a refusal.
        assert!(first.await.is_err());
        assert_eq!(onward.patience.places.available_permits(), 1);
    }

    #[test]
    fn every_failure_of_a_connect_has_its_name() {
        let of = |kind: io::ErrorKind| failure_of(&kind.into());
        assert_eq!(of(io::ErrorKind::ConnectionRefused), OpenFailure::Refused);
        assert_eq!(of(io::ErrorKind::HostUnreachable), OpenFailure::Unreachable);
        assert_eq!(of(io::ErrorKind::TimedOut), OpenFailure::TimedOut);
        assert_eq!(of(io::ErrorKind::ConnectionReset), OpenFailure::Other);
        assert_eq!(of(io::ErrorKind::ResourceBusy), OpenFailure::Other);
    }
}
