//! Reads who wants to talk to whom from the first packet of a connection.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The two ends of a connection, as packets name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ends {
    pub(crate) client: SocketAddr,
    pub(crate) server: SocketAddr,
}

/// A packet that asks for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Syn {
    pub(super) ends: Ends,
    /// The client's first sequence number, which tells a repeated packet from another connection.
    pub(super) sequence: u32,
}

impl Ends {
    /// Names the ends as packets do, which know no scopes.
    pub(crate) fn new(client: SocketAddr, server: SocketAddr) -> Self {
        let plain = |address: SocketAddr| SocketAddr::new(address.ip(), address.port());
        Self { client: plain(client), server: plain(server) }
    }
}

impl Syn {
    /// Reads a packet of either family; none if it is anything else than a SYN whose TCP header follows that of IP,
    /// as in every packet that a host sends to open a connection.
    pub(super) fn read(packet: &[u8]) -> Option<Self> {
        let (client, server, tcp) = match packet.first()? >> 4 {
            4 => ipv4(packet)?,
            6 => ipv6(packet)?,
            _ => return None,
        };
        let [port_high, port_low, to_high, to_low, a, b, c, d] = *tcp.first_chunk()?;
        let flags = *tcp.get(13)?;
        if flags & (FIN | SYN | RST | ACK) != SYN {
            return None;
        }
        let client = SocketAddr::new(client, u16::from_be_bytes([port_high, port_low]));
        let server = SocketAddr::new(server, u16::from_be_bytes([to_high, to_low]));
        Some(Self { ends: Ends { client, server }, sequence: u32::from_be_bytes([a, b, c, d]) })
    }
}

/// Returns both addresses and what is behind the header.
fn ipv4(packet: &[u8]) -> Option<(IpAddr, IpAddr, &[u8])> {
    let header = packet.first_chunk::<20>()?;
    let fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff;
    if header[9] != TCP || fragment != 0 {
        return None;
    }
    let address = |at: usize| Some(Ipv4Addr::from(*header.get(at..)?.first_chunk::<4>()?).into());
    Some((address(12)?, address(16)?, packet.get(usize::from(header[0] & 0x0f) * 4..)?))
}

fn ipv6(packet: &[u8]) -> Option<(IpAddr, IpAddr, &[u8])> {
    let (header, rest) = packet.split_first_chunk::<40>()?;
    if header[6] != TCP {
        return None;
    }
    let address = |at: usize| Some(Ipv6Addr::from(*header.get(at..)?.first_chunk::<16>()?).into());
    Some((address(8)?, address(24)?, rest))
}

const TCP: u8 = 6;
const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    /// A SYN from port 40000 to port 8080 with sequence number 7, behind a header of its family.
    fn packet(header: &[u8], flags: u8) -> Vec<u8> {
        let mut packet = header.to_vec();
        packet.extend(40_000_u16.to_be_bytes());
        packet.extend(8080_u16.to_be_bytes());
        packet.extend(7_u32.to_be_bytes());
        packet.extend([0, 0, 0, 0, 0x50, flags, 1, 0, 0, 0, 0, 0]);
        packet
    }

    fn v4_header() -> Vec<u8> {
        let mut header = vec![0x46, 0, 0, 44, 0, 0, 0x40, 0, 64, TCP, 0, 0];
        header.extend([198, 18, 1, 2, 198, 18, 2, 2]);
        // One option.
        header.extend([1, 1, 1, 1]);
        header
    }

    fn v6_header() -> Vec<u8> {
        let mut header = vec![0x60, 0, 0, 0, 0, 20, TCP, 64];
        for address in ["fd18:1::2", "fd18:2::2"] {
            header.extend(address.parse::<Ipv6Addr>().unwrap().octets());
        }
        header
    }

    #[test]
    fn a_syn_names_both_ends_in_both_families() {
        for (header, client, server) in [
            (v4_header(), "198.18.1.2:40000", "198.18.2.2:8080"),
            (v6_header(), "[fd18:1::2]:40000", "[fd18:2::2]:8080"),
        ] {
            let syn = Syn::read(&packet(&header, SYN)).unwrap();
            assert_eq!(syn.ends, Ends { client: client.parse().unwrap(), server: server.parse().unwrap() });
            assert_eq!(syn.sequence, 7);
        }
    }

    #[test]
    fn congestion_flags_do_not_hide_a_syn_and_nothing_else_is_one() {
        assert!(Syn::read(&packet(&v4_header(), SYN | 0xc0)).is_some());
        for flags in [0, ACK, SYN | ACK, SYN | RST, SYN | FIN] {
            assert_eq!(Syn::read(&packet(&v4_header(), flags)), None, "{flags}");
        }
        let mut fragment = packet(&v4_header(), SYN);
        fragment[6] = 0x20;
        assert_eq!(Syn::read(&fragment), None);
        let mut udp = packet(&v6_header(), SYN);
        udp[6] = 17;
        assert_eq!(Syn::read(&udp), None);
    }

    #[test]
    fn a_packet_that_is_cut_anywhere_is_no_syn() {
        for header in [v4_header(), v6_header()] {
            let whole = packet(&header, SYN);
            let enough = header.len() + 14;
            for len in 0..enough {
                assert_eq!(Syn::read(&whole[..len]), None, "{len} bytes");
            }
            assert!(Syn::read(&whole[..enough]).is_some());
        }
    }
}
