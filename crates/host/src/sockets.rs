//! TCP sockets: listening, connecting, and the options of application sockets.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV4, UdpSocket};
use std::ops::RangeInclusive;
use std::os::fd::AsFd;
use std::time::Duration;

use oncewire_sys::connections;
use rustix::io::Errno;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::limits;

mod clients;

/// Whether a port is shared with a listener on the same address, or on all of a family ([`share`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// The port is not shared.
    Alone,
    /// The port is shared.
    Shared,
    /// The port is bound, and listens only after [`listen_late`].
    Late,
}

/// Binds and listens with a backlog for bursts.
///
/// # Errors
/// The kernel's: the address is in use, is not of this machine, or needs a privilege.
pub fn listen(address: SocketAddr, sharing: Sharing) -> io::Result<TcpListener> {
    listen_as(address, sharing, false)
}

/// Binds and listens for connections to any address, as led here by rules.
///
/// # Errors
/// As [`listen`]; it takes CAP_NET_ADMIN.
pub fn listen_transparent(address: SocketAddr, sharing: Sharing) -> io::Result<TcpListener> {
    listen_as(address, sharing, true)
}

fn listen_as(address: SocketAddr, sharing: Sharing, transparent: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // `[::]` and `0.0.0.0` may then stand side by side, each with its literal meaning.
        socket.set_only_v6(true)?;
    }
    if transparent {
        set_transparent(&socket, address)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(sharing != Sharing::Alone)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    if sharing != Sharing::Late {
        socket.listen(BACKLOG)?;
    }
    TcpListener::from_std(socket.into())
}

/// Makes a reset the default close of each accepted connection from its first moment on: this process may die
/// before [`prepare_application`] has handled a connection already accepted by the kernel.
///
/// # Errors
/// The kernel's.
pub fn take_in_to_reset(listener: &TcpListener) -> io::Result<()> {
    SockRef::from(listener).set_linger(Some(Duration::ZERO))
}

/// Lets another listener of this user have the port as well, or from now on no other. Of two the kernel
/// chooses the one with the more specific address.
///
/// # Errors
/// The kernel's.
pub fn share(listener: &TcpListener, sharing: Sharing) -> io::Result<()> {
    SockRef::from(listener).set_reuse_port(sharing != Sharing::Alone)
}

/// Begins to listen on a port bound with [`Sharing::Late`]; other holders of the port share it meanwhile.
///
/// # Errors
/// The kernel's, as for [`listen`].
pub fn listen_late(listener: &mut TcpListener) -> io::Result<()> {
    let socket = SockRef::from(&*listener).try_clone()?;
    socket.listen(BACKLOG)?;
    // A socket not listening has ended, as far as tokio knows.
    *listener = TcpListener::from_std(socket.into())?;
    Ok(())
}

/// Connects to a gateway, with [`OWN_MARK`] if `marked`.
///
/// # Errors
/// The kernel's; the mark takes CAP_NET_ADMIN. Also near the limit of open files.
pub async fn connect(address: SocketAddr, marked: bool) -> io::Result<TcpStream> {
    let socket = outgoing(address, marked)?;
    TcpSocket::from_std_stream(socket.into()).connect(address).await
}

/// Connects to an application, as [`connect`] does, and from the address of a `client` of the same family if
/// there is one: from the client's port if it is free, else from another one of the client's address.
///
/// # Errors
/// As [`connect`]; a client's address takes CAP_NET_ADMIN, too.
pub async fn connect_onward(
    address: SocketAddr,
    marked: bool,
    client: Option<SocketAddr>,
) -> io::Result<TcpStream> {
    let socket = || {
        let socket = outgoing(address, marked)?;
        // This process may die between the kernel's handshake and `prepare_application`.
        socket.set_linger(Some(Duration::ZERO))?;
        Ok(socket)
    };
    match client_towards(address, client) {
        Some(client) => clients::connect(address, client, socket).await,
        None => TcpSocket::from_std_stream(socket()?.into()).connect(address).await,
    }
}

/// Returns the client address to connect from: none of the other family.
pub fn client_towards(address: SocketAddr, client: Option<SocketAddr>) -> Option<SocketAddr> {
    client.filter(|client| client.is_ipv4() == address.is_ipv4())
}

fn outgoing(address: SocketAddr, marked: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if !limits::leaves_reserve(&socket) {
        return Err(limits::reserve_reached());
    }
    socket.set_nonblocking(true)?;
    if marked {
        socket.set_mark(OWN_MARK)?;
    }
    Ok(socket)
}

fn set_transparent(socket: &Socket, address: SocketAddr) -> io::Result<()> {
    match address {
        SocketAddr::V4(_) => socket.set_ip_transparent_v4(true),
        SocketAddr::V6(_) => socket.set_ip_transparent_v6(true),
    }
}

/// Returns a redirected connection's destination before the rules change it.
///
/// # Errors
/// If no rule changed it.
pub fn original_destination(stream: &TcpStream) -> io::Result<SocketAddr> {
    use rustix::net::sockopt::{ip_original_dst, ipv6_original_dst};
    Ok(match stream.local_addr()?.is_ipv4() {
        true => ip_original_dst(stream)?.into(),
        false => ipv6_original_dst(stream)?.into(),
    })
}

/// Makes a marked UDP socket of this machine alone, connected to itself.
///
/// # Errors
/// If there is no such address, or the mark is not allowed (it takes CAP_NET_ADMIN).
pub fn marked_loop(ip: IpAddr, mark: u32) -> io::Result<UdpSocket> {
    let address = SocketAddr::new(ip, 0);
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_mark(mark)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.connect(&socket.local_addr()?)?;
    Ok(socket.into())
}

/// Makes a marked UDP socket to a group on an interface's network, with no further reach.
///
/// # Errors
/// If there is no such interface, or the mark is not allowed (it takes CAP_NET_ADMIN).
pub fn marked_on(interface: &str, group: SocketAddrV4, mark: u32) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.bind_device(Some(interface.as_bytes()))?;
    socket.set_mark(mark)?;
    socket.set_nonblocking(true)?;
    socket.set_multicast_loop_v4(false)?;
    socket.connect(&SocketAddr::from(group).into())?;
    Ok(socket.into())
}

/// Prepares a connection to an application: no delay, urgent data in line, probes after a silence of `idle`,
/// and a reset on close.
///
/// A client must see the reset if this process dies; [`end_cleanly`] takes it back once the far application
/// has ended its stream. A broken socket is left to its next reader.
pub fn prepare_application(stream: &TcpStream, idle: Option<Duration>) {
    let socket = SockRef::from(stream);
    let _ = socket.set_linger(Some(Duration::ZERO));
    let _ = socket.set_tcp_nodelay(true);
    let _ = socket.set_out_of_band_inline(true);
    if let Some(idle) = idle {
        // A host silent for so long again, with all probes unanswered, is gone.
        let interval = (idle / PROBES).max(LEAST_INTERVAL);
        let _ = socket.set_tcp_keepalive(&keepalive(idle, interval));
    }
}

/// Has an application probed more often, if it is probed at all: one of the two streams has ended.
///
/// Connection tracking (in `redirect` and every NAT in between) forgets a half-closed connection after 60 s
/// of silence (Linux's `nf_conntrack_tcp_timeout_close_wait`), in place of five days for an open one. Later
/// bytes, the end included, reach nobody.
pub fn keep_half_open(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    if socket.keepalive().unwrap_or(false)
        && let (Ok(idle), Ok(interval), Ok(probes)) =
            (socket.tcp_keepalive_time(), socket.tcp_keepalive_interval(), socket.tcp_keepalive_retries())
    {
        // A third of the requested time, in line with the interval.
        let idle = idle.min(interval * (PROBES / 3)).min(HALF_OPEN_IDLE);
        // More probes in the requested time, as far as the kernel counts; the same if the other stream ends
        // too.
        let often = interval.min(HALF_OPEN_IDLE).max(LEAST_INTERVAL);
        let probes = (interval * probes).as_secs() / often.as_secs().max(1);
        let probes = u32::try_from(probes).unwrap_or(MOST_PROBES).clamp(PROBES, MOST_PROBES);
        let probed = TcpKeepalive::new().with_time(idle).with_interval(often).with_retries(probes);
        let _ = socket.set_tcp_keepalive(&probed);
    }
}

/// Has an application probed after so much silence, if its present time is `before` and not one set for
/// another reason; `most` is its [prepared](prepare_application) time.
///
/// Only the interval of probes changes: a host without answers is given up after eleven minutes, the system's
/// default, or as prepared if that is sooner.
pub fn probe_after(stream: &TcpStream, silence: Duration, before: Duration, most: Duration) {
    let socket = SockRef::from(stream);
    if !socket.keepalive().unwrap_or(false) || socket.tcp_keepalive_time().ok() != Some(before) {
        return;
    }
    let (interval, probes) = match silence < most && most > SYSTEMS_PATIENCE {
        // Linux waits for the interval even behind an answered probe, so it must not be the longer time.
        true => {
            let interval = silence.clamp(LEAST_INTERVAL, SYSTEMS_INTERVAL);
            let probes = SYSTEMS_PATIENCE.as_secs().div_ceil(interval.as_secs().max(1));
            (interval, u32::try_from(probes).unwrap_or(MOST_PROBES).min(MOST_PROBES))
        }
        false => ((most / PROBES).max(LEAST_INTERVAL), PROBES),
    };
    let probed = TcpKeepalive::new().with_time(silence).with_interval(interval).with_retries(probes);
    let _ = socket.set_tcp_keepalive(&probed);
}

/// Makes an ordinary end of the close of an application's socket, from now on.
pub fn end_cleanly(stream: &TcpStream) {
    let _ = SockRef::from(stream).set_linger(None);
}

/// Whether clients' ports, used for connections from their addresses, stay available to this machine's other
/// programs; if the kernel cannot be asked, they count as available.
pub fn shares_clients_ports() -> bool {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP));
    let refused = socket.and_then(|socket| connections::choose_only_port(&socket, 0)).err();
    refused.and_then(|error| Errno::from_io_error(&error)) != Some(Errno::NOPROTOOPT)
}

/// Reads the kernel's port range for connects; none if it does not report it.
pub fn chosen_ports() -> Option<RangeInclusive<u16>> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?;
    let mut ports = text.split_whitespace().map(str::parse);
    Some(ports.next()?.ok()?..=ports.next()?.ok()?)
}

/// Whether a socket is connected to itself: on loopback the kernel may happen to choose the very destination
/// port, without any listener.
pub fn is_its_own_peer(stream: &TcpStream) -> bool {
    matches!((stream.local_addr(), stream.peer_addr()), (Ok(local), Ok(peer)) if local == peer)
}

/// Makes the close of an application's socket a reset again.
pub fn end_with_reset(stream: &TcpStream) {
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}

/// Unread bytes of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unread {
    /// The least number of bytes to read until the kernel announces room to the other end; 0 if there is
    /// room. After that many it may be more: a packet counts as a whole until its last byte is read, and the
    /// kernel merges waiting packets.
    pub to_read: usize,
    /// Bytes received so far: growth means that there was room.
    pub received: u64,
}

/// Returns a connection's unread bytes; nothing, if the kernel does not report them.
pub fn unread(connection: impl AsFd) -> Unread {
    let Ok(unread) = connections::unread(connection) else { return Unread::default() };
    // The kernel announces no room below a sixteenth, by its estimate, nor below a segment.
    let free = (unread.limit / 12).max(2 * unread.segment);
    let to_read = unread.taken.saturating_sub(unread.limit.saturating_sub(free));
    Unread { to_read, received: unread.received }
}

fn keepalive(idle: Duration, interval: Duration) -> TcpKeepalive {
    TcpKeepalive::new().with_time(idle).with_interval(interval).with_retries(PROBES)
}

/// The mark on packets of all outgoing sockets of a gateway; rules let them pass, another gateway's too.
pub const OWN_MARK: u32 = 0x6f78_0000;

/// Connections completed by the kernel before our accept; it caps this at `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// Linux's default interval of probes; nine may go unanswered.
const SYSTEMS_INTERVAL: Duration = Duration::from_secs(75);
const SYSTEMS_PATIENCE: Duration = Duration::from_secs(9 * 75);

/// Two probes may be lost before connection tracking forgets a half-closed connection.
const HALF_OPEN_IDLE: Duration = Duration::from_secs(20);

/// The kernel counts whole seconds.
const LEAST_INTERVAL: Duration = Duration::from_secs(1);

const PROBES: u32 = 6;

/// Linux counts no more.
const MOST_PROBES: u32 = 127;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn dying_process_resets_unprepared_sockets() {
        let listener = listen("127.0.0.1:0".parse().unwrap(), Sharing::Alone).unwrap();
        let address = listener.local_addr().unwrap();
        take_in_to_reset(&listener).unwrap();
        let onward = connect_onward(address, false, None).await.unwrap();
        let (taken_in, _) = listener.accept().await.unwrap();
        for stream in [&onward, &taken_in] {
            assert_eq!(SockRef::from(stream).linger().unwrap(), Some(Duration::ZERO));
        }
        end_cleanly(&taken_in);
        assert_eq!(SockRef::from(&taken_in).linger().unwrap(), None);
        let lane = connect(address, false).await.unwrap();
        assert_eq!(SockRef::from(&lane).linger().unwrap(), None, "what is written to a lane at last arrives");
    }

    #[tokio::test]
    async fn half_closed_connections_are_probed_before_tracking_forgets() {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let cases = [
            (Some(60), Some((20, 10, 6))),
            (Some(1200), Some((20, 20, 60))),
            (Some(30_000), Some((20, 20, 127))),
            (Some(7), Some((2, 1, 6))),
            (Some(1), Some((1, 1, 6))),
            (None, None),
        ];
        for (asked, expected) in cases {
            let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            prepare_application(&stream, asked.map(Duration::from_secs));
            keep_half_open(&stream);
            keep_half_open(&stream);
            assert_eq!(probes_of(&stream), expected);
        }
    }

    /// Silence, interval and count of probes, if a connection is probed.
    fn probes_of(stream: &TcpStream) -> Option<(u64, u64, u32)> {
        let socket = SockRef::from(stream);
        socket.keepalive().unwrap().then(|| {
            let (idle, interval) = (socket.tcp_keepalive_time(), socket.tcp_keepalive_interval());
            let probes = socket.tcp_keepalive_retries().unwrap();
            (idle.unwrap().as_secs(), interval.unwrap().as_secs(), probes)
        })
    }

    #[tokio::test]
    async fn mirrored_probes_last_as_long_as_the_default() {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        for (most, silence, expected) in [
            (7200, 600, (600, 75, 9)),
            (7200, 60, (60, 60, 12)),
            (7200, 1, (1, 1, 127)),
            (7200, 7200, (7200, 1200, 6)),
            (120, 15, (15, 20, 6)),
        ] {
            let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let [most, silence] = [most, silence].map(Duration::from_secs);
            prepare_application(&stream, Some(most));
            probe_after(&stream, silence, most, most);
            assert_eq!(probes_of(&stream), Some(expected));
            probe_after(&stream, most, silence, most);
            assert_eq!(probes_of(&stream).map(|(idle, ..)| idle), Some(most.as_secs()), "as before");
            // A half-closed connection is probed more often for another reason.
            keep_half_open(&stream);
            let half_open = probes_of(&stream);
            probe_after(&stream, silence, most, most);
            assert_eq!(probes_of(&stream), half_open);
        }
    }
}
