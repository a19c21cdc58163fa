//! TCP connection state from the kernel, and the choice of local ports.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// The sending direction of a connection, from TCP_INFO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sending {
    /// Payload bytes of a segment.
    pub segment: u32,
    /// The congestion window, in segments.
    pub window: u32,
    /// The window at which slow start ends, in segments; none if nothing has set one.
    pub slow_start_threshold: Option<u32>,
    /// Unacknowledged segments.
    pub unacknowledged: u32,
    /// Written but unsent bytes.
    pub unsent: u32,
    /// The shortest round trip of the last minutes.
    pub least_round_trip: Duration,
    /// The latest delivery rate not limited by the application, in bytes a second.
    pub bytes_per_s: u64,
}

/// Returns the kernel's figures for a connection's sending direction; `None` if they are incomplete.
///
/// # Errors
///
/// The descriptor is no TCP socket.
pub fn sending(socket: impl AsFd) -> io::Result<Option<Sending>> {
    let mut info = [0; INFO];
    Ok(read(option(socket, libc::IPPROTO_TCP, libc::TCP_INFO, &mut info)?))
}

/// Unread bytes of a connection, in kernel memory. This is more than their payload: a packet's buffer counts
/// as a whole until its last byte is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unread {
    /// Taken now; may be more than the limit.
    pub taken: usize,
    /// The largest receive window advertised to the other end.
    pub limit: usize,
    /// Payload bytes of a segment as they come.
    pub segment: usize,
    /// Bytes received so far.
    pub received: u64,
}

/// Returns the kernel memory taken by unread bytes.
///
/// # Errors
///
/// The descriptor is no TCP socket, or the system is older than Linux 4.12.
pub fn unread(socket: impl AsFd) -> io::Result<Unread> {
    let (mut memory, mut info) = ([0; MEMORY], [0; INFO]);
    let memory = option(&socket, libc::SOL_SOCKET, libc::SO_MEMINFO, &mut memory)?;
    let info = option(&socket, libc::IPPROTO_TCP, libc::TCP_INFO, &mut info)?;
    let read = || {
        Some(Unread {
            taken: word(memory, RMEM_ALLOC)? as usize,
            limit: word(memory, RCVBUF)? as usize,
            segment: word(info, RCV_MSS)? as usize,
            received: long(info, BYTES_RECEIVED)?,
        })
    };
    Ok(read().ok_or(io::ErrorKind::UnexpectedEof)?)
}

/// Traffic counters of a connection, to tell probes of the other end from data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Segments received, also those without payload.
    pub segments_received: u32,
    /// Payload bytes received so far.
    pub bytes_received: u64,
    /// Segments with payload sent so far.
    pub data_segments_sent: u32,
    /// Whether written bytes are unacknowledged or received ones unread. Then segments without payload are
    /// window probes, not keep-alive probes.
    pub is_pending: bool,
    /// The window given by the other end; 0 if unknown, as on Linux before 5.4.
    pub window: u32,
}

/// Returns the traffic counters of a connection; `None` if they are incomplete.
///
/// # Errors
///
/// The descriptor is no TCP socket.
pub fn traffic(socket: impl AsFd) -> io::Result<Option<Traffic>> {
    let mut info = [0; LONG_INFO];
    let is_unread = rustix::io::ioctl_fionread(&socket)? > 0;
    let info = option(socket, libc::IPPROTO_TCP, libc::TCP_INFO, &mut info)?;
    let read = || {
        Some(Traffic {
            segments_received: word(info, SEGS_IN)?,
            bytes_received: long(info, BYTES_RECEIVED)?,
            data_segments_sent: word(info, DATA_SEGS_OUT)?,
            is_pending: is_unread || word(info, UNACKED)? > 0 || word(info, NOTSENT_BYTES)? > 0,
            window: word(info, SND_WND).unwrap_or_default(),
        })
    };
    Ok(read())
}

/// Has a socket bound to port 0 get its port at the connect. The kernel then looks for a port free towards
/// this destination, not for one without any use (Linux 4.2).
///
/// # Errors
///
/// The system knows no such option.
pub fn choose_port_at_connect(socket: impl AsFd) -> io::Result<()> {
    set(socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1)
}

/// Restricts the kernel's choice of a port for a socket to this one. It applies only to ports in
/// `net.ipv4.ip_local_port_range` (Linux 6.3).
///
/// # Errors
///
/// The system knows no such option.
pub fn choose_only_port(socket: impl AsFd, port: u16) -> io::Result<()> {
    let port = u32::from(port);
    set(socket, libc::IPPROTO_IP, IP_LOCAL_PORT_RANGE, port << 16 | port)
}

/// Sets a one-word option of a socket.
#[allow(unsafe_code, reason = "no library sets these options safely")]
fn set(socket: impl AsFd, level: libc::c_int, name: libc::c_int, word: u32) -> io::Result<()> {
    let len = libc::socklen_t::try_from(size_of::<u32>()).map_err(io::Error::other)?;
    // SAFETY: the descriptor is open while `socket` is borrowed; the system reads `len` bytes of `word`, all
    // that it has, and `word` lives beyond the call.
    let outcome =
        unsafe { libc::setsockopt(socket.as_fd().as_raw_fd(), level, name, (&raw const word).cast(), len) };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads an option of a socket into `info`, up to its length; returns the bytes read.
#[allow(unsafe_code, reason = "no library reads options of many words safely")]
fn option(socket: impl AsFd, level: libc::c_int, name: libc::c_int, info: &mut [u8]) -> io::Result<&[u8]> {
    let mut len = libc::socklen_t::try_from(info.len()).map_err(io::Error::other)?;
    // SAFETY: the descriptor is open while `socket` is borrowed. The system writes at most `len` bytes into
    // `info`, and their number into `len`. `info` has as many bytes, and any bytes are valid.
    let outcome = unsafe {
        libc::getsockopt(socket.as_fd().as_raw_fd(), level, name, info.as_mut_ptr().cast(), &raw mut len)
    };
    if outcome != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(info.get(..len as usize).unwrap_or_default())
}

fn word(info: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(info.get(at..at + size_of::<u32>())?.try_into().ok()?))
}

fn long(info: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(info.get(at..at + size_of::<u64>())?.try_into().ok()?))
}

/// Reads `struct tcp_info`; it only ever grew at its end.
fn read(info: &[u8]) -> Option<Sending> {
    let word = |at| word(info, at);
    Some(Sending {
        segment: word(SND_MSS)?,
        window: word(SND_CWND)?,
        slow_start_threshold: Some(word(SND_SSTHRESH)?).filter(|threshold| *threshold < INFINITE_THRESHOLD),
        unacknowledged: word(UNACKED)?,
        unsent: word(NOTSENT_BYTES)?,
        least_round_trip: Duration::from_micros(u64::from(word(MIN_RTT)?)),
        bytes_per_s: long(info, DELIVERY_RATE)?,
    })
}

/// Of `linux/in.h`; the library does not name it.
const IP_LOCAL_PORT_RANGE: libc::c_int = 51;
/// Up to `tcpi_delivery_rate`, there since Linux 4.9.
const INFO: usize = DELIVERY_RATE + size_of::<u64>();
const SND_MSS: usize = 16;
const RCV_MSS: usize = 20;
const UNACKED: usize = 24;
const SND_SSTHRESH: usize = 76;
const SND_CWND: usize = 80;
const BYTES_RECEIVED: usize = 128;
const NOTSENT_BYTES: usize = 144;
const MIN_RTT: usize = 148;
const DELIVERY_RATE: usize = 160;
const SEGS_IN: usize = 140;
const DATA_SEGS_OUT: usize = 156;
const SND_WND: usize = 228;
const LONG_INFO: usize = SND_WND + size_of::<u32>();
/// Words of SO_MEMINFO, there since Linux 4.12.
const RMEM_ALLOC: usize = libc::SK_MEMINFO_RMEM_ALLOC as usize * size_of::<u32>();
const RCVBUF: usize = libc::SK_MEMINFO_RCVBUF as usize * size_of::<u32>();
const MEMORY: usize = RCVBUF + size_of::<u32>();
/// Stands for no threshold.
const INFINITE_THRESHOLD: u32 = 0x7fff_ffff;

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepidle, set_tcp_keepintvl};

    use super::*;

    #[test]
    fn connection_without_loss_has_no_threshold_and_its_first_window() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.write_all(&[7; 1000]).unwrap();
        far.read_exact(&mut [0; 1000]).unwrap();
        // The answer comes behind the acknowledgement.
        far.write_all(&[7]).unwrap();
        near.read_exact(&mut [0]).unwrap();
        let sending = sending(&near).unwrap().unwrap();
        assert_eq!((sending.slow_start_threshold, sending.unacknowledged, sending.unsent), (None, 0, 0));
        assert!(sending.window >= 10 && sending.segment >= 500, "{sending:?}");
        assert!(sending.least_round_trip < Duration::from_secs(10), "{sending:?}");
    }

    #[test]
    fn probes_of_the_other_end_are_segments_without_payload() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.write_all(&[7; 1000]).unwrap();
        far.read_exact(&mut [0; 1000]).unwrap();
        let before = traffic(&far).unwrap().unwrap();
        assert!(
            before.bytes_received == 1000 && before.data_segments_sent == 0 && !before.is_pending,
            "{before:?}"
        );
        let second = Duration::from_secs(1);
        set_tcp_keepidle(&near, second).unwrap();
        set_tcp_keepintvl(&near, second).unwrap();
        set_socket_keepalive(&near, true).unwrap();
        loop {
            let now = traffic(&far).unwrap().unwrap();
            assert_eq!(Traffic { segments_received: before.segments_received, ..now }, before);
            if now.segments_received > before.segments_received + 1 {
                break;
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn connection_with_unread_bytes_is_pending() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let is_pending = |socket: &TcpStream| traffic(socket).unwrap().unwrap().is_pending;
        assert!(!is_pending(&far));
        near.write_all(&[7; 1000]).unwrap();
        far.peek(&mut [0]).unwrap();
        assert!(is_pending(&far));
        far.read_exact(&mut [0; 1000]).unwrap();
        assert!(!is_pending(&far));
    }

    #[test]
    fn unread_bytes_take_memory_until_read() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let none = unread(&far).unwrap();
        assert!(none.taken == 0 && none.limit >= 4096, "{none:?}");
        near.write_all(&[7; 1000]).unwrap();
        far.peek(&mut [0]).unwrap();
        let some = unread(&far).unwrap();
        assert!(some.taken >= 1000 && some.limit >= none.limit, "{some:?}");
        far.read_exact(&mut [0; 1000]).unwrap();
        assert_eq!(unread(&far).unwrap().taken, 0);
        assert!(unread(std::fs::File::open("/dev/null").unwrap()).is_err());
    }

    #[test]
    fn chosen_port_is_set_on_sockets_of_both_families_alone() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(address).unwrap();
            choose_port_at_connect(&listener).unwrap();
        }
        assert!(choose_port_at_connect(std::fs::File::open("/dev/null").unwrap()).is_err());
        assert!(choose_only_port(std::fs::File::open("/dev/null").unwrap(), 7400).is_err());
    }

    #[test]
    fn other_socket_is_an_error() {
        assert!(sending(UdpSocket::bind(("127.0.0.1", 0)).unwrap()).is_err());
    }

    #[test]
    fn shorter_tcp_info_gives_nothing() {
        assert_eq!(read(&[0; INFO - 1]), None);
        assert!(read(&[0; INFO]).is_some());
    }
}
