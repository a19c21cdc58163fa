//! Socket options: what application sockets and lanes need of TCP.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpStream};

/// The options of the TCP connection under a lane.
#[derive(Clone, Debug)]
pub(crate) struct LaneOptions {
    /// The congestion control to ask the kernel for, or none for the system's own. Default `bbr`.
    pub(crate) congestion: Option<String>,
    /// How long written bytes may stay unacknowledged before the kernel gives the connection up. Default 10 s.
    pub(crate) user_timeout: Duration,
}

impl Default for LaneOptions {
    fn default() -> Self {
        Self { congestion: Some("bbr".to_owned()), user_timeout: Duration::from_secs(10) }
    }
}

/// Binds and listens with a backlog that outlives a burst.
///
/// # Errors
/// What the kernel says: the address is in use, is not of this machine, or needs a privilege.
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // `[::]` and `0.0.0.0` may then stand side by side, and each means what it says.
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Prepares a connection to an application: no delay, urgent data in line, keep-alive, and a close that is a reset.
///
/// The reset is what a client must see if this process dies; [`end_cleanly`] takes it back once the far
/// application has ended its stream. A socket that is already broken is left to whoever reads it next.
pub(crate) fn prepare_application(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    let _ = socket.set_linger(Some(Duration::ZERO));
    let _ = socket.set_tcp_nodelay(true);
    let _ = socket.set_out_of_band_inline(true);
    let _ = socket.set_tcp_keepalive(&keepalive(APPLICATION_IDLE));
}

/// Lets the close of an application's socket be an ordinary end from now on.
pub(crate) fn end_cleanly(stream: &TcpStream) {
    let _ = SockRef::from(stream).set_linger(None);
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

/// Prepares the connection under a lane; a socket that is already broken is left to whoever reads it next.
pub(crate) fn prepare_lane(stream: &TcpStream, options: &LaneOptions) {
    let socket = SockRef::from(stream);
    let _ = socket.set_tcp_nodelay(true);
    // What waits in the kernel can no longer be overtaken or encoded better, so little of it waits there.
    let _ = socket.set_tcp_notsent_lowat(NOT_SENT_LOW_WATER);
    let _ = socket.set_tcp_user_timeout(Some(options.user_timeout));
    let _ = socket.set_tcp_keepalive(&keepalive(LANE_IDLE));
    if let Some(name) = &options.congestion {
        let _ = socket.set_tcp_congestion(name.as_bytes());
    }
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

fn keepalive(idle: Duration) -> TcpKeepalive {
    TcpKeepalive::new().with_time(idle).with_interval(PROBE_INTERVAL).with_retries(PROBES)
}

/// Connections that the kernel completes before we accept them; it caps this at `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// Bytes that may wait unsent in the kernel per lane.
const NOT_SENT_LOW_WATER: u32 = 128 << 10;

/// An application that says nothing for so long is probed, so that a vanished one ends its flow.
const APPLICATION_IDLE: Duration = Duration::from_secs(60);

/// The link has its own liveness; the kernel's probes catch lanes that it is not using.
const LANE_IDLE: Duration = Duration::from_secs(30);

const PROBE_INTERVAL: Duration = Duration::from_secs(10);

const PROBES: u32 = 6;
