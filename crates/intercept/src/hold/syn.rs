//! Both ends of a connection, from its first packet.

use std::net::SocketAddr;

use oncewire_packet::{Ip, Tcp, TcpFlags, protocol};

/// The two ends of a connection, as packets name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ends {
    pub(crate) client: SocketAddr,
    pub(crate) server: SocketAddr,
}

/// A connection request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Syn {
    pub(super) ends: Ends,
    /// The client's first sequence number, to tell a repeated packet from another connection.
    pub(super) sequence: u32,
}

impl Ends {
    /// Names the ends as in packets, without scopes.
    pub(crate) fn new(client: SocketAddr, server: SocketAddr) -> Self {
        let plain = |address: SocketAddr| SocketAddr::new(address.ip(), address.port());
        Self { client: plain(client), server: plain(server) }
    }
}

impl Syn {
    /// Reads a packet of either family, possibly truncated; none unless it is a SYN with a TCP header right
    /// behind that of IP, as in every host's connection request.
    pub(super) fn read(packet: &[u8]) -> Option<Self> {
        let packet = Ip::read_cut(packet).ok()?;
        let (protocol, fragment) = match &packet {
            Ip::V4(packet) => (packet.protocol(), packet.fragment()),
            // Behind extension headers it is passed over.
            Ip::V6(packet) => (packet.next_header(), None),
        };
        if protocol != protocol::TCP || fragment.is_some() {
            return None;
        }
        let tcp = Tcp::read_cut(packet.payload()).ok()?;
        if tcp.flags().and(FIRST_OF_ALL) != TcpFlags::SYN {
            return None;
        }
        let client = SocketAddr::new(packet.source(), tcp.source_port());
        let server = SocketAddr::new(packet.destination(), tcp.destination_port());
        Some(Self { ends: Ends { client, server }, sequence: tcp.sequence() })
    }
}

/// Flags; of these, a connection's first packet has SYN alone.
const FIRST_OF_ALL: TcpFlags = TcpFlags::FIN.or(TcpFlags::SYN).or(TcpFlags::RST).or(TcpFlags::ACK);

#[cfg(test)]
mod tests {
    use oncewire_packet::{Ipv4Fields, Ipv6Fields, Pseudo, TcpFields, TcpOption};

    use super::*;

    /// Packets of both families from port 40000 to port 8080 with sequence number 7, and the lengths of their
    /// IP headers (one with an option).
    fn packets(flags: TcpFlags) -> [(Vec<u8>, usize); 2] {
        let (source, destination) = ([198, 18, 1, 2].into(), [198, 18, 2, 2].into());
        let v4 = Ipv4Fields { source, destination, dont_fragment: true, ..Ipv4Fields::new(protocol::TCP) };
        let [source, destination] = ["fd18:1::2", "fd18:2::2"].map(|address| address.parse().unwrap());
        let v6 = Ipv6Fields { source, destination, ..Ipv6Fields::new(protocol::TCP) };
        let (tcp_v4, tcp_v6) = (segment(flags, v4.pseudo()), segment(flags, v6.pseudo()));
        let (mut packet_v4, mut packet_v6) = (vec![0; 24 + tcp_v4.len()], vec![0; 40 + tcp_v6.len()]);
        v4.write(&[1; 4], tcp_v4.len(), &mut packet_v4).unwrap().copy_from_slice(&tcp_v4);
        v6.write(tcp_v6.len(), &mut packet_v6).unwrap().copy_from_slice(&tcp_v6);
        [(packet_v4, 24), (packet_v6, 40)]
    }

    fn segment(flags: TcpFlags, pseudo: Pseudo) -> Vec<u8> {
        let tcp = TcpFields {
            source_port: 40_000,
            destination_port: 8080,
            sequence: 7,
            flags,
            ..TcpFields::default()
        };
        let mut segment = vec![0; 28];
        let options = [TcpOption::Mss(1460), TcpOption::SackPermitted, TcpOption::Nop, TcpOption::Nop];
        assert_eq!(tcp.write(&options, &[], pseudo, &mut segment), Ok(28));
        segment
    }

    #[test]
    fn syn_names_both_ends_in_both_families() {
        let ends = [("198.18.1.2:40000", "198.18.2.2:8080"), ("[fd18:1::2]:40000", "[fd18:2::2]:8080")];
        for ((packet, _), (client, server)) in packets(TcpFlags::SYN).iter().zip(ends) {
            let syn = Syn::read(packet).unwrap();
            assert_eq!(syn.ends, Ends { client: client.parse().unwrap(), server: server.parse().unwrap() });
            assert_eq!(syn.sequence, 7);
        }
    }

    #[test]
    fn only_congestion_flags_may_accompany_a_syn() {
        use TcpFlags as F;
        let [(packet, _), _] = packets(F::SYN | F::ECE | F::CWR | F::AE);
        assert!(Syn::read(&packet).is_some());
        for flags in [F::NONE, F::ACK, F::SYN | F::ACK, F::SYN | F::RST, F::SYN | F::FIN] {
            for (packet, _) in packets(flags) {
                assert_eq!(Syn::read(&packet), None, "{flags:?}");
            }
        }
        let [(mut fragment, _), (mut udp, _)] = packets(F::SYN);
        fragment[6] = 0x20;
        assert_eq!(Syn::read(&fragment), None);
        udp[6] = protocol::UDP;
        assert_eq!(Syn::read(&udp), None);
        // The header of a destination option before TCP.
        let [_, (mut extended, len)] = packets(F::SYN);
        extended[6] = protocol::DESTINATION_OPTIONS;
        extended.splice(len..len, [protocol::TCP, 0, 1, 4, 0, 0, 0, 0]);
        assert_eq!(Syn::read(&extended), None);
    }

    #[test]
    fn syn_may_lack_only_its_options() {
        for (packet, header_len) in packets(TcpFlags::SYN) {
            let enough = header_len + 20;
            for len in 0..packet.len() {
                assert_eq!(Syn::read(&packet[..len]).is_some(), len >= enough, "{len} bytes");
            }
        }
    }
}
