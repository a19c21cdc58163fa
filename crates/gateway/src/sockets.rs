//! Socket options: what application sockets and lanes need of TCP.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV4, UdpSocket};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use oncewire_link::{LaneReport, LaneRole, LinkConfig, most_unsent};
use oncewire_sys::connections;
use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_recv_buffer_size_force, set_socket_send_buffer_size_force};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::lifecycle::limits;

mod clients;

/// The options of the TCP connection under a lane.
#[derive(Clone, Debug)]
pub(crate) struct LaneOptions {
    /// The congestion control to ask the kernel for, or none for the system's own. Default `bbr`.
    pub(crate) congestion: Option<String>,
    /// How long written bytes may stay unacknowledged before the kernel gives the connection up. Default 10 min, 2 min
    /// beyond what a link ever waits: it finds dead lanes itself, and knows how long a jam takes to answer.
    pub(crate) user_timeout: Duration,
    /// Bytes that may wait unsent in the kernel, on the lane of repairs 16 KiB at most. Default 128 KiB.
    pub(crate) not_sent: u32,
    /// The send buffer to ask for, where the kernel's automatic one is too small; what it asks for is doubled.
    pub(crate) send_buffer: Option<usize>,
    /// The receive buffer, likewise.
    pub(crate) receive_buffer: Option<usize>,
}

impl Default for LaneOptions {
    fn default() -> Self {
        Self {
            congestion: Some("bbr".to_owned()),
            user_timeout: kernel_patience(LinkConfig::LONGEST_SILENCE),
            not_sent: most_unsent(LaneRole::Flow),
            send_buffer: None,
            receive_buffer: None,
        }
    }
}

/// How long the kernel waits for the other end of a lane on which a link waits so long for a word: the link's silence ends
/// with any byte, the kernel's with acknowledgements alone, which queue behind everything else where a path is jammed.
pub(crate) fn kernel_patience(silence: Duration) -> Duration {
    silence + Duration::from_secs(120)
}

/// Whether a port is shared with a listener that has the same address, or all of a family ([`share`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    Alone,
    Shared,
    /// The port is bound, and nothing listens before [`listen_late`].
    Late,
}

/// Binds and listens with a backlog that outlives a burst.
///
/// # Errors
/// What the kernel says: the address is in use, is not of this machine, or needs a privilege.
pub(crate) fn listen(address: SocketAddr, sharing: Sharing) -> io::Result<TcpListener> {
    listen_as(address, sharing, false)
}

/// Binds and listens for connections that were made to any address, as rules lead them here.
///
/// # Errors
/// As [`listen`]; it takes CAP_NET_ADMIN.
pub(crate) fn listen_transparent(address: SocketAddr, sharing: Sharing) -> io::Result<TcpListener> {
    listen_as(address, sharing, true)
}

fn listen_as(address: SocketAddr, sharing: Sharing, transparent: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // `[::]` and `0.0.0.0` may then stand side by side, and each means what it says.
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

/// Has the close of each connection that is taken in be a reset from its first moment on: this process may die before
/// [`prepare_application`] says so of a connection that the kernel has accepted.
///
/// # Errors
/// What the kernel says.
pub(crate) fn take_in_to_reset(listener: &TcpListener) -> io::Result<()> {
    SockRef::from(listener).set_linger(Some(Duration::ZERO))
}

/// Lets another listener of this user have the port as well, or from now on nobody more. Of two the kernel chooses the
/// one whose address says more.
///
/// # Errors
/// What the kernel says.
pub(crate) fn share(listener: &TcpListener, sharing: Sharing) -> io::Result<()> {
    SockRef::from(listener).set_reuse_port(sharing != Sharing::Alone)
}

/// Begins to listen where a port was bound with [`Sharing::Late`]; whoever has the same port shares it meanwhile.
///
/// # Errors
/// What the kernel says, as for [`listen`].
pub(crate) fn listen_late(listener: &mut TcpListener) -> io::Result<()> {
    let socket = SockRef::from(&*listener).try_clone()?;
    socket.listen(BACKLOG)?;
    // What did not listen has ended, as far as tokio knows of it.
    *listener = TcpListener::from_std(socket.into())?;
    Ok(())
}

/// Connects to a gateway, with [`OWN_MARK`] if `marked`.
///
/// # Errors
/// What the kernel says; the mark takes CAP_NET_ADMIN. Also if nearly all files are open that may be.
pub(crate) async fn connect(address: SocketAddr, marked: bool) -> io::Result<TcpStream> {
    let socket = outgoing(address, marked)?;
    TcpSocket::from_std_stream(socket.into()).connect(address).await
}

/// Connects to an application, as [`connect`] does, and from the address of somebody else if there is a `client` of the
/// same family: from the client's port if it can be had, else from another one of the client's address.
///
/// # Errors
/// As [`connect`]; the address of somebody else takes CAP_NET_ADMIN, too.
pub(crate) async fn connect_onward(
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

/// Returns the client in whose name an address is connected to: none of the other family.
pub(crate) fn client_towards(address: SocketAddr, client: Option<SocketAddr>) -> Option<SocketAddr> {
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

/// Returns where a redirected connection was made to, before rules changed that.
///
/// # Errors
/// If no rule did.
pub(crate) fn original_destination(stream: &TcpStream) -> io::Result<SocketAddr> {
    use rustix::net::sockopt::{ip_original_dst, ipv6_original_dst};
    Ok(match stream.local_addr()?.is_ipv4() {
        true => ip_original_dst(stream)?.into(),
        false => ipv6_original_dst(stream)?.into(),
    })
}

/// Makes a UDP socket of this machine alone, connected to itself, whose packets carry a mark.
///
/// # Errors
/// If there is no such address, or the mark is not allowed, which takes CAP_NET_ADMIN.
pub(crate) fn marked_loop(ip: IpAddr, mark: u32) -> io::Result<UdpSocket> {
    let address = SocketAddr::new(ip, 0);
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_mark(mark)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.connect(&socket.local_addr()?)?;
    Ok(socket.into())
}

/// Makes a UDP socket that sends no further than the network of an interface, to a group there, with a mark.
///
/// # Errors
/// If there is no such interface, or the mark is not allowed, which takes CAP_NET_ADMIN.
pub(crate) fn marked_on(interface: &str, group: SocketAddrV4, mark: u32) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.bind_device(Some(interface.as_bytes()))?;
    socket.set_mark(mark)?;
    socket.set_nonblocking(true)?;
    socket.set_multicast_loop_v4(false)?;
    socket.connect(&SocketAddr::from(group).into())?;
    Ok(socket.into())
}

/// Prepares a connection to an application: no delay, urgent data in line, probes after a silence of `idle`, and a
/// close that is a reset.
///
/// The reset is what a client must see if this process dies; [`end_cleanly`] takes it back once the far
/// application has ended its stream. A socket that is already broken is left to whoever reads it next.
pub(crate) fn prepare_application(stream: &TcpStream, idle: Option<Duration>) {
    let socket = SockRef::from(stream);
    let _ = socket.set_linger(Some(Duration::ZERO));
    let _ = socket.set_tcp_nodelay(true);
    let _ = socket.set_out_of_band_inline(true);
    if let Some(idle) = idle {
        // Who is silent for so long again, and answers none of the probes in that time, is gone.
        let interval = (idle / PROBES).max(LEAST_INTERVAL);
        let _ = socket.set_tcp_keepalive(&keepalive(idle, interval));
    }
}

/// Has an application probed more often, if it is probed at all: one of the two streams has ended.
///
/// Connection tracking, through which `redirect` and every NAT in between work, forgets a connection that ended one way
/// and is silent for 60 s (Linux's `nf_conntrack_tcp_timeout_close_wait`), five days being its patience before. What is
/// sent after that, its end too, reaches nobody.
pub(crate) fn keep_half_open(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    if socket.keepalive().unwrap_or(false)
        && let (Ok(idle), Ok(interval), Ok(probes)) =
            (socket.tcp_keepalive_time(), socket.tcp_keepalive_interval(), socket.tcp_keepalive_retries())
    {
        // A third of what was asked for, as the interval has it.
        let idle = idle.min(interval * (PROBES / 3)).min(HALF_OPEN_IDLE);
        // More probes in what was asked for, as far as the kernel counts; the same if the other stream ends too.
        let often = interval.min(HALF_OPEN_IDLE).max(LEAST_INTERVAL);
        let probes = (interval * probes).as_secs() / often.as_secs().max(1);
        let probes = u32::try_from(probes).unwrap_or(MOST_PROBES).clamp(PROBES, MOST_PROBES);
        let probed = TcpKeepalive::new().with_time(idle).with_interval(often).with_retries(probes);
        let _ = socket.set_tcp_keepalive(&probed);
    }
}

/// Has an application probed after so much silence, if it is after `before` now and not after another time, for another
/// reason; `most` is what it was [prepared](prepare_application) for.
///
/// Only how often it is probed is another's: a host that answers none is given up after eleven minutes, as by a system that
/// was told nothing else, or as prepared where that is sooner.
pub(crate) fn probe_after(stream: &TcpStream, silence: Duration, before: Duration, most: Duration) {
    let socket = SockRef::from(stream);
    if !socket.keepalive().unwrap_or(false) || socket.tcp_keepalive_time().ok() != Some(before) {
        return;
    }
    let (interval, probes) = match silence < most && most > SYSTEMS_PATIENCE {
        // Linux waits for the interval behind a probe also if it was answered, so that must not be the longer time.
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

/// Lets the close of an application's socket be an ordinary end from now on.
pub(crate) fn end_cleanly(stream: &TcpStream) {
    let _ = SockRef::from(stream).set_linger(None);
}

/// Says whether the ports of clients, in whose names connections are made, stay with this machine's other programs; if the
/// kernel cannot be asked, it counts as one that can.
pub(crate) fn shares_clients_ports() -> bool {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP));
    let refused = socket.and_then(|socket| connections::choose_only_port(&socket, 0)).err();
    refused.and_then(|error| Errno::from_io_error(&error)) != Some(Errno::NOPROTOOPT)
}

/// Reads which ports the kernel chooses for connects; none if it does not say.
pub(crate) fn chosen_ports() -> Option<RangeInclusive<u16>> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?;
    let mut ports = text.split_whitespace().map(str::parse);
    Some(ports.next()?.ok()?..=ports.next()?.ok()?)
}

/// Says whether a socket is connected to itself, as TCP lets it on loopback when the kernel happens to give it the very
/// port that it asks for: nobody else is there.
pub(crate) fn is_its_own_peer(stream: &TcpStream) -> bool {
    matches!((stream.local_addr(), stream.peer_addr()), (Ok(local), Ok(peer)) if local == peer)
}

/// Makes the close of an application's socket a reset again.
pub(crate) fn end_with_reset(stream: &TcpStream) {
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}

impl LaneOptions {
    /// The options of a connection whose peer is not known yet: the kernel's own congestion control.
    pub(crate) fn unknown() -> Self {
        Self { congestion: None, ..Self::default() }
    }

    /// Fits the options to a link of this rate: little waits unsent, and the buffers hold what is under way on the
    /// longest of links.
    pub(crate) fn fit(&mut self, bits_per_s: u64) {
        let sent_in = |time: Duration| u128::from(bits_per_s) * time.as_micros() / 8_000_000;
        let not_sent = u32::try_from(sent_in(NOT_SENT_TIME)).unwrap_or(u32::MAX);
        self.not_sent = not_sent.clamp(LEAST_NOT_SENT, most_unsent(LaneRole::Flow));
        let under_way = usize::try_from(sent_in(LONGEST_ROUND_TRIP)).unwrap_or(usize::MAX);
        // Fixing a size ends the kernel's own tuning, so only what that does not reach is asked for.
        let beyond =
            |key: &str| Some(under_way).filter(|bytes| bytes.saturating_mul(2) > automatic_limit(key));
        self.send_buffer = beyond("tcp_wmem");
        self.receive_buffer = beyond("tcp_rmem");
    }

    /// Says whether lanes of a link of this rate need larger buffers than the kernel gives by itself.
    pub(crate) fn asks_for_buffers(bits_per_s: u64) -> bool {
        let mut options = Self::default();
        options.fit(bits_per_s);
        options.send_buffer.or(options.receive_buffer).is_some()
    }

    /// Asks the kernel once whether it allows the buffers, and gives them up if not.
    ///
    /// # Errors
    /// What to tell the operator; the options are usable all the same.
    pub(crate) fn probe_buffers(&mut self) -> Result<(), BuffersRefused> {
        let Some(bytes) = self.send_buffer.or(self.receive_buffer) else { return Ok(()) };
        let refused = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))
            .and_then(|socket| Ok(set_socket_send_buffer_size_force(&socket, bytes)?));
        refused.map_err(|source| {
            (self.send_buffer, self.receive_buffer) = (None, None);
            BuffersRefused { bytes: bytes.saturating_mul(2), source }
        })
    }

    /// Asks the kernel once whether it has the congestion control, and gives it up if not.
    ///
    /// # Errors
    /// What to tell the operator; the options are usable all the same.
    pub(crate) fn probe(&mut self) -> Result<(), CongestionRefused> {
        let Some(name) = &self.congestion else { return Ok(()) };
        let refused = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))
            .and_then(|socket| socket.set_tcp_congestion(name.as_bytes()));
        match refused {
            Ok(()) => Ok(()),
            Err(source) => {
                Err(CongestionRefused { name: self.congestion.take().unwrap_or_default(), source })
            }
        }
    }
}

/// Limits what waits unsent on a lane by what it is for.
pub(crate) fn limit_unsent(stream: &TcpStream, options: &LaneOptions, role: LaneRole) {
    let _ = SockRef::from(stream).set_tcp_notsent_lowat(options.not_sent.min(most_unsent(role)));
}

/// Prepares the connection under a lane; a socket that is already broken is left to whoever reads it next.
pub(crate) fn prepare_lane(stream: &TcpStream, options: &LaneOptions) {
    let socket = SockRef::from(stream);
    let _ = socket.set_tcp_nodelay(true);
    // What waits in the kernel can no longer be overtaken or encoded better, so little of it waits there.
    let _ = socket.set_tcp_notsent_lowat(options.not_sent);
    if let Some(bytes) = options.send_buffer {
        let _ = set_socket_send_buffer_size_force(stream, bytes);
    }
    if let Some(bytes) = options.receive_buffer {
        let _ = set_socket_recv_buffer_size_force(stream, bytes);
    }
    let _ = socket.set_tcp_user_timeout(Some(options.user_timeout));
    let _ = socket.set_tcp_keepalive(&keepalive(LANE_IDLE, LANE_INTERVAL));
    if let Some(name) = &options.congestion {
        let _ = socket.set_tcp_congestion(name.as_bytes());
    }
}

/// Returns what the kernel says of the sending direction of the connection under a lane, if it says anything.
pub(crate) fn sending(connection: &OwnedFd) -> Option<LaneReport> {
    let sending = connections::sending(connection).ok()??;
    let bytes = |segments: u32| u64::from(segments) * u64::from(sending.segment);
    Some(LaneReport {
        window: bytes(sending.window),
        threshold: sending.slow_start_threshold.map(bytes),
        bytes_per_s: sending.bytes_per_s,
        least_round_trip: sending.least_round_trip,
        outstanding: bytes(sending.unacknowledged) + u64::from(sending.unsent),
    })
}

/// What a connection has that was not read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unread {
    /// So many bytes have to be read, at the least, to make the kernel tell the other end that there is room again; 0 if
    /// there is. Once so many were read it may be more: a packet counts as a whole until its last byte is read, and the
    /// kernel puts packets together while they wait.
    pub(crate) to_read: usize,
    /// Bytes that came so far: if they become more, there was room.
    pub(crate) received: u64,
}

/// Returns what was not read of a connection; nothing, if the kernel does not say it.
pub(crate) fn unread(connection: impl AsFd) -> Unread {
    let Ok(unread) = connections::unread(connection) else { return Unread::default() };
    // There is no room for less than a sixteenth, as the kernel estimates it, nor for less than a segment.
    let free = (unread.limit / 12).max(2 * unread.segment);
    let to_read = unread.taken.saturating_sub(unread.limit.saturating_sub(free));
    Unread { to_read, received: unread.received }
}

/// The kernel refused a congestion control.
#[derive(Debug, thiserror::Error)]
#[error(
    "the kernel does not offer congestion control {name:?} ({source}); its own is used (see `sysctl \
     net.ipv4.tcp_available_congestion_control`)"
)]
pub(crate) struct CongestionRefused {
    name: String,
    source: io::Error,
}

/// The kernel does not let this process have larger buffers than it gives by itself.
#[derive(Debug, thiserror::Error)]
#[error(
    "lanes at this `rate_limit` need buffers of {bytes} bytes on the longest links, and the kernel allows fewer \
     ({source}): give CAP_NET_ADMIN, or raise the last number of net.ipv4.tcp_wmem and net.ipv4.tcp_rmem"
)]
pub(crate) struct BuffersRefused {
    bytes: usize,
    source: io::Error,
}

/// Reads how large the kernel makes a buffer by itself; a system that does not say makes it large enough.
fn automatic_limit(key: &str) -> usize {
    let text = std::fs::read_to_string(format!("/proc/sys/net/ipv4/{key}")).unwrap_or_default();
    text.split_whitespace().last().and_then(|bytes| bytes.parse().ok()).unwrap_or(usize::MAX)
}

fn keepalive(idle: Duration, interval: Duration) -> TcpKeepalive {
    TcpKeepalive::new().with_time(idle).with_interval(interval).with_retries(PROBES)
}

/// The mark on packets of every socket by which a gateway reaches out, which rules let pass, another gateway's too.
pub(crate) const OWN_MARK: u32 = 0x6f78_0000;

/// Connections that the kernel completes before we accept them; it caps this at `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// On a link of known rate so much may wait, in time, but not less than keeps a lane busy between two wake-ups.
const NOT_SENT_TIME: Duration = Duration::from_millis(10);
const LEAST_NOT_SENT: u32 = 16 << 10;

/// By way of a geostationary satellite, with room for queues.
const LONGEST_ROUND_TRIP: Duration = Duration::from_millis(700);

/// The time between probes where nothing else is set, and that of nine of them, which may go unanswered (Linux).
const SYSTEMS_INTERVAL: Duration = Duration::from_secs(75);
const SYSTEMS_PATIENCE: Duration = Duration::from_secs(9 * 75);

/// Two probes may be lost before what tracks a half-closed connection forgets it.
const HALF_OPEN_IDLE: Duration = Duration::from_secs(20);

/// The link has its own liveness; the kernel's probes catch lanes that it is not using.
const LANE_IDLE: Duration = Duration::from_secs(60);

const LANE_INTERVAL: Duration = Duration::from_secs(10);

/// The kernel counts whole seconds.
const LEAST_INTERVAL: Duration = Duration::from_secs(1);

const PROBES: u32 = 6;

/// Linux counts no more.
const MOST_PROBES: u32 = 127;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_process_that_dies_before_it_prepares_an_applications_socket_resets_it() {
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
    async fn who_is_probed_is_probed_before_connection_tracking_forgets_half_a_connection() {
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
    async fn mirrored_probes_are_given_up_no_sooner_than_by_the_system() {
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
            // One that is half closed is probed more often for another reason.
            keep_half_open(&stream);
            let half_open = probes_of(&stream);
            probe_after(&stream, silence, most, most);
            assert_eq!(probes_of(&stream), half_open);
        }
    }

    #[test]
    fn little_waits_unsent_on_a_thin_link() {
        let mut options = LaneOptions::default();
        for (rate, not_sent) in
            [(1_000_000, 16 << 10), (20_000_000, 25_000), (50_000_000, 62_500), (10_000_000_000, 128 << 10)]
        {
            options.fit(rate);
            assert_eq!(options.not_sent, not_sent, "{rate}");
        }
    }

    #[test]
    fn buffers_are_asked_for_only_beyond_what_the_kernel_gives() {
        let mut options = LaneOptions::default();
        options.fit(1_000_000);
        assert_eq!((options.send_buffer, options.receive_buffer), (None, None));
        assert!(options.probe_buffers().is_ok());
        options.fit(100_000_000_000);
        assert_eq!(options.send_buffer, Some(8_750_000_000));
    }
}
