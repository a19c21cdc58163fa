//! The emulator's descriptors for incoming and outgoing packets.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use oncewire_packet::{Icmpv6, Ip, Ipv6, icmpv6_kind, protocol};
use rustix::net::sockopt;

/// Two descriptors; the bytes read from one are written to the other unchanged.
#[derive(Clone, Debug)]
pub(crate) struct Ends {
    pub(crate) from: Arc<OwnedFd>,
    pub(crate) into: Arc<OwnedFd>,
    pub(crate) layout: Layout,
}

/// The prefix of the IP packet in each read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Nothing.
    Bare,
    /// A `virtio_net_hdr` and an Ethernet header.
    Framed,
}

impl Ends {
    /// Returns the same for the other direction.
    pub(crate) fn turned(self) -> Self {
        Self { from: self.into, into: self.from, layout: self.layout }
    }
}

impl Layout {
    /// Returns the length of the IP packet in `bytes`, as counted by the emulator.
    pub(crate) fn ip_len(self, bytes: &[u8]) -> u32 {
        let before = match self {
            Self::Bare => 0,
            Self::Framed => VIRTIO_HEADER + ETHERNET_HEADER,
        };
        u32::try_from(bytes.len().saturating_sub(before)).unwrap_or(u32::MAX)
    }

    /// Whether `bytes` go to a group of hosts, or are how neighbours find each other [RFC 826, RFC 4861].
    ///
    /// A line does not emulate those: they pass at once and uncounted, so settings and counters are about the packets
    /// between hosts.
    pub(crate) fn is_housekeeping(self, bytes: &[u8]) -> bool {
        match self {
            Self::Bare => Ip::read_cut(bytes).ok().is_none_or(|packet| packet.destination().is_multicast()),
            Self::Framed => {
                let frame = bytes.get(VIRTIO_HEADER..).unwrap_or_default();
                let is_group = frame.first().is_none_or(|byte| byte & 1 == 1);
                is_group || is_arp(frame) || is_neighbour_discovery(frame)
            }
        }
    }
}

fn is_arp(frame: &[u8]) -> bool {
    frame.get(12..14) == Some(&[0x08, 0x06])
}

fn is_neighbour_discovery(frame: &[u8]) -> bool {
    if frame.get(12..14) != Some(&[0x86, 0xdd]) {
        return false;
    }
    let Ok(packet) = Ipv6::read_cut(frame.get(ETHERNET_HEADER..).unwrap_or_default()) else { return false };
    let kinds = icmpv6_kind::ROUTER_SOLICITATION..=icmpv6_kind::REDIRECT;
    packet.next_header() == protocol::ICMPV6
        && Icmpv6::read(packet.payload()).is_ok_and(|message| kinds.contains(&message.kind()))
}

/// Makes a TUN interface in the namespace of the calling thread.
pub(crate) fn tun_end(name: &str) -> io::Result<Arc<OwnedFd>> {
    oncewire_sys::packets::tun(name).map(Arc::new)
}

/// Opens packet sockets on two interfaces of the namespace of the calling thread.
pub(crate) fn packet_ends(interfaces: [u32; 2]) -> io::Result<[Arc<OwnedFd>; 2]> {
    let open = |interface| {
        let socket = oncewire_sys::packets::packet_socket(interface)?;
        // Without the privilege the system's limit applies; a burst may then be lost before the emulator sees it.
        let _ = sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER));
        io::Result::Ok(Arc::new(socket))
    };
    let [one, other] = interfaces;
    Ok([open(one)?, open(other)?])
}

/// `struct virtio_net_hdr`.
const VIRTIO_HEADER: usize = 10;
const ETHERNET_HEADER: usize = 14;
const RECEIVE_BUFFER: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use oncewire_packet::{IcmpFields, Ipv4Fields, Ipv6Fields};

    use super::*;

    fn v4(to: [u8; 4]) -> Vec<u8> {
        let mut packet = vec![0; 28];
        let fields = Ipv4Fields { destination: to.into(), ..Ipv4Fields::new(protocol::UDP) };
        fields.write(&[], 8, &mut packet).unwrap();
        packet
    }

    /// A message of ICMPv6.
    fn v6(to: &str, kind: u8) -> Vec<u8> {
        let mut packet = vec![0; 72];
        let ip = Ipv6Fields { destination: to.parse().unwrap(), ..Ipv6Fields::new(protocol::ICMPV6) };
        let room = ip.write(32, &mut packet).unwrap();
        IcmpFields { kind, ..IcmpFields::default() }.write_v6(&[0; 24], ip.pseudo(), room).unwrap();
        packet
    }

    #[test]
    fn multicast_is_told_from_unicast() {
        let echo = icmpv6_kind::ECHO_REQUEST;
        assert!(!Layout::Bare.is_housekeeping(&v4([198, 18, 1, 2])));
        assert!(Layout::Bare.is_housekeeping(&v4([224, 0, 0, 22])));
        assert!(!Layout::Bare.is_housekeeping(&v6("fd18::1", echo)));
        assert!(Layout::Bare.is_housekeeping(&v6("ff02::1", echo)));
        let frame = |to: u8, kind: [u8; 2], packet: &[u8]| {
            [&[0; VIRTIO_HEADER][..], &[to], &[0; 11], &kind, packet].concat()
        };
        let of_v6 = |to: u8, kind: u8| frame(to, [0x86, 0xdd], &v6("fd18::1", kind));
        assert!(!Layout::Framed.is_housekeeping(&of_v6(2, echo)));
        assert!(Layout::Framed.is_housekeeping(&of_v6(0x33, echo)));
        assert!(Layout::Framed.is_housekeeping(&frame(2, [0x08, 0x06], &[0; 28])));
        assert!(!Layout::Framed.is_housekeeping(&frame(2, [0x08, 0x00], &v4([198, 18, 1, 2]))));
        assert!(Layout::Framed.is_housekeeping(&of_v6(2, 133)), "a router solicitation");
        assert!(Layout::Framed.is_housekeeping(&of_v6(2, 136)), "an advertisement");
        assert!(Layout::Framed.is_housekeeping(&of_v6(2, 137)), "a redirect");
        assert!(!Layout::Framed.is_housekeeping(&of_v6(2, 138)));
    }

    #[test]
    fn length_counts_the_ip_packet() {
        assert_eq!(Layout::Bare.ip_len(&[0; 1500]), 1500);
        assert_eq!(Layout::Framed.ip_len(&[0; 1524]), 1500);
        assert_eq!(Layout::Framed.ip_len(&[0; 3]), 0);
    }
}
