//! Options of the TCP connection under a lane.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use oncewire_link::{LaneReport, LaneRole, LinkConfig, most_unsent};
use oncewire_sys::connections;
use rustix::net::sockopt::{set_socket_recv_buffer_size_force, set_socket_send_buffer_size_force};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::TcpStream;

/// The options of the TCP connection under a lane.
#[derive(Clone, Debug)]
pub struct LaneOptions {
    /// The congestion control to ask the kernel for, or none for the system's own. Default `bbr`.
    pub congestion: Option<String>,
    /// How long written bytes may stay unacknowledged before the kernel gives the connection up. Default 10
    /// min, 2 min beyond a link's longest wait: the link finds dead lanes itself, and knows a jam's response
    /// time.
    pub user_timeout: Duration,
    /// Limit of unsent bytes in the kernel, on the lane of repairs 16 KiB at most. Default 128 KiB.
    pub not_sent: u32,
    /// The send buffer to ask for, if the kernel's automatic one is too small; the kernel doubles it.
    pub send_buffer: Option<usize>,
    /// The receive buffer, likewise.
    pub receive_buffer: Option<usize>,
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

/// The kernel's patience with the other end of a lane, from the link's limit of silence: the link's silence
/// ends with any byte, the kernel's with acknowledgements alone, and those queue behind everything else on a
/// jammed path.
pub fn kernel_patience(silence: Duration) -> Duration {
    silence + Duration::from_secs(120)
}

impl LaneOptions {
    /// Options of a connection from a still unknown peer: the kernel's own congestion control.
    pub(crate) fn unknown() -> Self {
        Self { congestion: None, ..Self::default() }
    }

    /// Fits the options to a link of this rate: few bytes wait unsent, and the buffers hold the
    /// bandwidth-delay product of the longest links.
    pub fn fit(&mut self, bits_per_s: u64) {
        let sent_in = |time: Duration| u128::from(bits_per_s) * time.as_micros() / 8_000_000;
        let not_sent = u32::try_from(sent_in(NOT_SENT_TIME)).unwrap_or(u32::MAX);
        self.not_sent = not_sent.clamp(LEAST_NOT_SENT, most_unsent(LaneRole::Flow));
        let under_way = usize::try_from(sent_in(LONGEST_ROUND_TRIP)).unwrap_or(usize::MAX);
        // Fixing a size ends the kernel's own tuning, so only sizes beyond its reach are set.
        let beyond =
            |key: &str| Some(under_way).filter(|bytes| bytes.saturating_mul(2) > automatic_limit(key));
        self.send_buffer = beyond("tcp_wmem");
        self.receive_buffer = beyond("tcp_rmem");
    }

    /// Whether lanes of a link of this rate need larger buffers than the kernel gives by itself.
    pub fn asks_for_buffers(bits_per_s: u64) -> bool {
        let mut options = Self::default();
        options.fit(bits_per_s);
        options.send_buffer.or(options.receive_buffer).is_some()
    }

    /// Asks the kernel once whether it allows the buffers, and gives them up if not.
    ///
    /// # Errors
    /// A message for the operator; the options are usable all the same.
    pub fn probe_buffers(&mut self) -> Result<(), BuffersRefused> {
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
    /// A message for the operator; the options are usable all the same.
    pub fn probe(&mut self) -> Result<(), CongestionRefused> {
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

/// Limits a lane's unsent bytes by its role.
pub(crate) fn limit_unsent(stream: &TcpStream, options: &LaneOptions, role: LaneRole) {
    let _ = SockRef::from(stream).set_tcp_notsent_lowat(options.not_sent.min(most_unsent(role)));
}

/// Prepares the connection under a lane; a broken socket is left to its next reader.
pub(crate) fn prepare_lane(stream: &TcpStream, options: &LaneOptions) {
    let socket = SockRef::from(stream);
    let _ = socket.set_tcp_nodelay(true);
    // Bytes in the kernel can neither be overtaken nor encoded better, so only few wait there.
    let _ = socket.set_tcp_notsent_lowat(options.not_sent);
    if let Some(bytes) = options.send_buffer {
        let _ = set_socket_send_buffer_size_force(stream, bytes);
    }
    if let Some(bytes) = options.receive_buffer {
        let _ = set_socket_recv_buffer_size_force(stream, bytes);
    }
    let _ = socket.set_tcp_user_timeout(Some(options.user_timeout));
    let probed = TcpKeepalive::new().with_time(LANE_IDLE).with_interval(LANE_INTERVAL).with_retries(PROBES);
    let _ = socket.set_tcp_keepalive(&probed);
    if let Some(name) = &options.congestion {
        let _ = socket.set_tcp_congestion(name.as_bytes());
    }
}

/// Returns the kernel's report on the sending direction of a lane's connection, if any.
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

/// The kernel refused a congestion control.
#[derive(Debug, thiserror::Error)]
#[error(
    "the kernel does not offer congestion control {name:?} ({source}); its own is used (see `sysctl \
     net.ipv4.tcp_available_congestion_control`)"
)]
pub struct CongestionRefused {
    name: String,
    source: io::Error,
}

/// The kernel denies this process larger buffers than its default.
#[derive(Debug, thiserror::Error)]
#[error(
    "lanes at this `rate_limit` need buffers of {bytes} bytes on the longest links, and the kernel allows fewer \
     ({source}): give CAP_NET_ADMIN, or raise the last number of net.ipv4.tcp_wmem and net.ipv4.tcp_rmem"
)]
pub struct BuffersRefused {
    bytes: usize,
    source: io::Error,
}

/// Reads the kernel's limit of automatic buffers; an unknown limit counts as large enough.
fn automatic_limit(key: &str) -> usize {
    let text = std::fs::read_to_string(format!("/proc/sys/net/ipv4/{key}")).unwrap_or_default();
    text.split_whitespace().last().and_then(|bytes| bytes.parse().ok()).unwrap_or(usize::MAX)
}

/// Limit of unsent bytes on a link of known rate, in time; never less than a lane sends between two wake-ups.
const NOT_SENT_TIME: Duration = Duration::from_millis(10);
const LEAST_NOT_SENT: u32 = 16 << 10;

/// By way of a geostationary satellite, with room for queues.
const LONGEST_ROUND_TRIP: Duration = Duration::from_millis(700);

/// The link has its own liveness; the kernel's probes catch lanes not in use.
const LANE_IDLE: Duration = Duration::from_secs(60);

const LANE_INTERVAL: Duration = Duration::from_secs(10);

/// Probes that may go unanswered.
const PROBES: u32 = 6;

#[cfg(test)]
mod tests {
    use super::*;

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
    fn buffers_are_set_only_beyond_the_kernel_default() {
        let mut options = LaneOptions::default();
        options.fit(1_000_000);
        assert_eq!((options.send_buffer, options.receive_buffer), (None, None));
        assert!(options.probe_buffers().is_ok());
        options.fit(100_000_000_000);
        assert_eq!(options.send_buffer, Some(8_750_000_000));
    }
}
