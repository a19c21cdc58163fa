//! Descriptors of whole packets: TUN interfaces, packet sockets on any interface.

use std::fs::File;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Makes the TUN interface `name` in the namespace of the calling thread.
///
/// One read returns one IP packet sent through the interface; one write hands one in, without a header. The
/// interface starts down, does not block, and goes with its descriptor.
///
/// # Errors
///
/// `/dev/net/tun` missing or not ours to open; `EPERM` without CAP_NET_ADMIN; a name already taken, or longer
/// than 15 bytes.
pub fn tun(name: &str) -> io::Result<OwnedFd> {
    let device = File::options().read(true).write(true).open("/dev/net/tun")?;
    let mut request = InterfaceRequest { name: [0; 16], flags: IFF_TUN | IFF_NO_PI, rest: [0; 22] };
    let room = request.name.get_mut(..15).unwrap_or_default();
    let Some(place) = room.get_mut(..name.len()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "an interface's name has at most 15 bytes"));
    };
    place.copy_from_slice(name.as_bytes());
    attach(&device, request)?;
    rustix::io::ioctl_fionbio(&device, true)?;
    Ok(device.into())
}

/// Opens a packet socket on the interface with this index, in the namespace of the calling thread.
///
/// Reads and writes are a `virtio_net_hdr` and a whole frame: the bytes read from one socket can be written
/// to another as they are, even with an open checksum. Frames sent through the interface by this system are
/// not read. It does not block.
///
/// # Errors
///
/// `EPERM` without CAP_NET_RAW; `ENODEV` without an interface of this index.
pub fn packet_socket(interface: u32) -> io::Result<OwnedFd> {
    let socket = open_packet_socket()?;
    set_packet_option(&socket, libc::PACKET_VNET_HDR)?;
    set_packet_option(&socket, libc::PACKET_IGNORE_OUTGOING)?;
    bind_to_interface(&socket, interface)?;
    Ok(socket)
}

/// `struct ifreq` as TUNSETIFF reads it.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; 16],
    flags: i16,
    rest: [u8; 22],
}

#[allow(unsafe_code, reason = "an ioctl's argument has no type")]
fn attach(device: &File, request: InterfaceRequest) -> io::Result<()> {
    // SAFETY: TUNSETIFF reads a `struct ifreq`, which has 40 bytes on 64-bit systems and less on others, and begins
    // with a name and flags, as `InterfaceRequest` with its 40 bytes does.
    let request = unsafe { rustix::ioctl::Setter::<{ libc::TUNSETIFF as _ }, _>::new(request) };
    // SAFETY: `device` is /dev/net/tun, so the number has the meaning above.
    Ok(unsafe { rustix::ioctl::ioctl(device, request) }?)
}

#[allow(unsafe_code, reason = "a new descriptor has no owner yet")]
fn open_packet_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // Protocol 0 receives nothing before the socket is bound, so nothing of other interfaces comes first.
    // SAFETY: no pointers.
    let descriptor = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, so nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

#[allow(unsafe_code, reason = "setsockopt takes a pointer")]
fn set_packet_option(socket: &OwnedFd, option: libc::c_int) -> io::Result<()> {
    let on: libc::c_int = 1;
    let len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: pointer and length are those of a live integer; the call only reads it.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_PACKET, option, (&raw const on).cast(), len)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[allow(unsafe_code, reason = "bind takes a pointer to an address of any family")]
fn bind_to_interface(socket: &OwnedFd, interface: u32) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
        sll_ifindex: interface as i32,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: pointer and length are those of a live address of this family; the call only reads it.
    let result = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

const IFF_TUN: i16 = libc::IFF_TUN as i16;
const IFF_NO_PI: i16 = libc::IFF_NO_PI as i16;
