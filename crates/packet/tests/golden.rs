//! Packets of a real system, compared with tcpdump's reading and rewritten byte for byte.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::net::IpAddr;

use oncewire_packet::{
    Echo, Fragment, Icmp, Icmpv6, Ip, Layer, Tcp, TcpFlags, TcpOption, Udp, checksum, icmp_kind, icmpv6_kind,
    protocol,
};

/// Returns names and bytes of all packets.
fn packets() -> Vec<(&'static str, Vec<u8>)> {
    let lines = include_str!("golden/packets.txt").lines().filter(|line| !line.starts_with('#'));
    let digits = |hex: &str| {
        let bytes = (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16));
        bytes.collect::<Result<Vec<_>, _>>().unwrap()
    };
    lines.map(|line| line.split_once(' ').unwrap()).map(|(name, hex)| (name, digits(hex))).collect()
}

fn packet(name: &str) -> Vec<u8> {
    packets().into_iter().find(|(other, _)| *other == name).unwrap_or_else(|| panic!("no {name}")).1
}

/// Checks addresses, and returns the segment if its checksum is right.
fn tcp<'a>(bytes: &'a [u8], source: &str, destination: &str) -> Tcp<'a> {
    let packet = Ip::read(bytes).unwrap();
    let addresses = [packet.source(), packet.destination()];
    assert_eq!(addresses, [source, destination].map(|address| address.parse::<IpAddr>().unwrap()));
    let upper = packet.upper().unwrap();
    assert_eq!((upper.protocol, upper.fragment), (protocol::TCP, None));
    let tcp = Tcp::read(upper.payload).unwrap();
    assert!(tcp.verify(packet.pseudo()));
    tcp
}

fn options<'a>(tcp: &Tcp<'a>) -> Vec<TcpOption<'a>> {
    tcp.options().map(|option| option.unwrap()).collect()
}

#[test]
fn syn_of_both_families_is_read_with_its_options() {
    let (four, six) = (packet("tcp4_syn"), packet("tcp6_syn"));
    let flags = TcpFlags::SYN | TcpFlags::ECE | TcpFlags::CWR;
    let expected = |mss, value| {
        let timestamps = TcpOption::Timestamps { value, echo: 0 };
        let scale = [TcpOption::Nop, TcpOption::WindowScale(10)];
        [&[TcpOption::Mss(mss), TcpOption::SackPermitted, timestamps][..], &scale].concat()
    };
    let syn = tcp(&four, "198.18.1.2", "198.18.1.1");
    assert_eq!((syn.source_port(), syn.destination_port()), (40_000, 8080));
    assert_eq!((syn.sequence(), syn.acknowledgment(), syn.window()), (2_665_665_965, 0, 64_240));
    assert_eq!((syn.flags(), syn.header_len(), syn.checksum(), syn.urgent()), (flags, 40, 0x83da, 0));
    assert_eq!(options(&syn), expected(1460, 1_594_993_367));
    assert_eq!(format!("{:?}", syn.flags()), "TcpFlags(SYN | ECE | CWR)");
    let syn = tcp(&six, "fd18:1::2", "fd18:1::1");
    assert_eq!((syn.source_port(), syn.sequence(), syn.window()), (40_001, 2_030_152_891, 64_800));
    assert_eq!((syn.flags(), syn.checksum()), (flags, 0x767f));
    assert_eq!(options(&syn), expected(1440, 1_107_342_827));
}

#[test]
fn answers_to_a_syn_are_read() {
    let bytes = packet("tcp4_syn_ack");
    let answer = tcp(&bytes, "198.18.1.1", "198.18.1.2");
    assert_eq!(answer.flags(), TcpFlags::SYN | TcpFlags::ACK | TcpFlags::ECE);
    assert_eq!((answer.sequence(), answer.acknowledgment()), (3_389_546_854, 2_665_665_966));
    let bytes = packet("tcp4_refusal");
    let refusal = tcp(&bytes, "198.18.1.1", "198.18.1.2");
    assert_eq!(refusal.flags(), TcpFlags::RST | TcpFlags::ACK);
    assert_eq!((refusal.sequence(), refusal.acknowledgment()), (0, 686_078_092));
    assert_eq!((refusal.header_len(), refusal.window(), refusal.payload()), (20, 0, &[][..]));
    let bytes = packet("tcp4_reset");
    assert_eq!(tcp(&bytes, "198.18.1.1", "198.18.1.2").flags(), TcpFlags::RST);
}

#[test]
fn sack_and_data_are_read() {
    let bytes = packet("tcp4_sack");
    let tcp_of = tcp(&bytes, "198.18.1.1", "198.18.1.2");
    let [.., TcpOption::Nop, TcpOption::Nop, TcpOption::Sack(blocks)] = options(&tcp_of)[..] else {
        panic!("{tcp_of:?}");
    };
    let start = tcp_of.acknowledgment();
    assert_eq!(blocks.iter().collect::<Vec<_>>(), [(start + 100, start + 300)]);
    let bytes = packet("tcp4_data");
    assert_eq!(tcp(&bytes, "198.18.1.2", "198.18.1.1").payload(), [b'B'; 100]);
    let bytes = packet("tcp6_data");
    assert_eq!(tcp(&bytes, "fd18:1::2", "fd18:1::1").payload(), b"hello");
    let Ok(Ip::V6(ip)) = Ip::read(&bytes) else { panic!() };
    assert_eq!((ip.traffic_class(), ip.flow_label(), ip.hop_limit()), (2, 0x117d4, 64));
}

#[test]
fn udp_of_odd_length_and_behind_options_is_read() {
    for (name, payload, source) in [
        ("udp4_odd", &b"odd"[..], 40_002),
        ("udp6_odd", b"odd", 40_004),
        ("udp4_record_route", b"route", 40_003),
        ("udp6_behind_options", b"hop", 40_005),
    ] {
        let bytes = packet(name);
        let ip = Ip::read(&bytes).unwrap();
        let upper = ip.upper().unwrap();
        assert_eq!((upper.protocol, upper.fragment), (protocol::UDP, None), "{name}");
        let udp = Udp::read(upper.payload).unwrap();
        assert_eq!((udp.payload(), udp.source_port(), udp.destination_port()), (payload, source, 9000));
        assert!(udp.verify(ip.pseudo()), "{name}");
    }
}

#[test]
fn options_of_ipv4_and_headers_of_ipv6_are_listed() {
    let bytes = packet("udp4_record_route");
    let Ok(Ip::V4(ip)) = Ip::read(&bytes) else { panic!() };
    let listed: Vec<_> = ip.options().map(|option| option.unwrap()).map(|raw| (raw.kind, raw.data)).collect();
    // The next address goes to the eighth byte.
    let record = [8, 198, 18, 1, 2, 0, 0, 0, 0];
    assert_eq!(listed, [(7, &record[..]), (1, &[])]);
    assert!(ip.verify());
    let bytes = packet("udp6_behind_options");
    let Ok(Ip::V6(ip)) = Ip::read(&bytes) else { panic!() };
    let listed: Vec<_> = ip.extensions().map(|extension| extension.unwrap()).collect();
    let kinds: Vec<_> = listed.iter().map(|extension| (extension.kind, extension.data.len())).collect();
    assert_eq!(kinds, [(protocol::HOP_BY_HOP, 6), (protocol::DESTINATION_OPTIONS, 14)]);
}

#[test]
fn fragments_have_their_place_and_the_first_alone_a_header() {
    let (four, six) = (52_946, 0xf6d9_259f);
    for (name, offset, more, identification) in [
        ("udp4_first_fragment", 0, true, four),
        ("udp4_last_fragment", 1480, false, four),
        ("udp6_first_fragment", 0, true, six),
        ("udp6_last_fragment", 1448, false, six),
    ] {
        let bytes = packet(name);
        let upper = Ip::read(&bytes).unwrap().upper().unwrap();
        assert_eq!(upper.fragment, Some(Fragment { offset, more, identification }), "{name}");
        assert_eq!((upper.protocol, upper.is_partial()), (protocol::UDP, true));
        assert_eq!(upper.has_header(), offset == 0);
        if offset == 0 {
            let udp = Udp::read_cut(upper.payload).unwrap();
            assert_eq!((udp.destination_port(), udp.datagram_len()), (9000, 1608));
            assert!(Udp::read(upper.payload).is_err());
        }
    }
}

#[test]
fn icmp_errors_quote_their_packet() {
    for (name, kind, code, mtu, port) in [
        ("icmp_port_unreachable", icmp_kind::UNREACHABLE, 3, None, 9001),
        ("icmp_too_big", icmp_kind::UNREACHABLE, 4, Some(1300), 9),
        ("icmp_ttl_exceeded", icmp_kind::TIME_EXCEEDED, 0, None, 9),
    ] {
        let bytes = packet(name);
        let Ok(Ip::V4(ip)) = Ip::read(&bytes) else { panic!("{name}") };
        let icmp = Icmp::read(ip.payload()).unwrap();
        assert!(icmp.verify(), "{name}");
        assert_eq!((icmp.kind(), icmp.code(), icmp.mtu(), icmp.echo()), (kind, code, mtu, None), "{name}");
        let quoted = icmp.quoted().unwrap().unwrap();
        assert_eq!(
            (quoted.source(), quoted.destination() == ip.source()),
            (ip.destination().into(), code == 3)
        );
        assert_eq!(Udp::read_cut(quoted.payload()).unwrap().destination_port(), port, "{name}");
    }
    for (name, kind, code, mtu, port) in [
        ("icmpv6_port_unreachable", icmpv6_kind::UNREACHABLE, 4, None, 9001),
        ("icmpv6_too_big", icmpv6_kind::TOO_BIG, 0, Some(1300), 9),
        ("icmpv6_hop_limit_exceeded", icmpv6_kind::TIME_EXCEEDED, 0, None, 9),
    ] {
        let bytes = packet(name);
        let ip = Ip::read(&bytes).unwrap();
        let icmp = Icmpv6::read(ip.upper().unwrap().payload).unwrap();
        assert!(icmp.verify(ip.pseudo()), "{name}");
        assert_eq!((icmp.kind(), icmp.code(), icmp.mtu(), icmp.echo()), (kind, code, mtu, None), "{name}");
        let quoted = icmp.quoted().unwrap().unwrap();
        assert_eq!(quoted.source(), ip.destination());
        let upper = quoted.upper().unwrap();
        assert_eq!(Udp::read_cut(upper.payload).unwrap().destination_port(), port, "{name}");
    }
}

#[test]
fn echoes_and_neighbour_discovery_are_no_errors() {
    for (name, echo) in [("icmp_echo_request", 38_710), ("icmp_echo_reply", 38_710)] {
        let bytes = packet(name);
        let icmp = Icmp::read(Ip::read(&bytes).unwrap().payload()).unwrap();
        assert_eq!(icmp.echo(), Some(Echo { identifier: echo, sequence: 5 }));
        assert_eq!((icmp.quoted(), icmp.body()), (None, &b"ping"[..]));
    }
    for (name, echo) in [
        ("icmpv6_echo_request", Some(Echo { identifier: 38_711, sequence: 6 })),
        ("icmpv6_echo_reply", Some(Echo { identifier: 38_711, sequence: 6 })),
        ("icmpv6_router_solicitation", None),
        ("icmpv6_report_behind_router_alert", None),
    ] {
        let bytes = packet(name);
        let ip = Ip::read(&bytes).unwrap();
        let icmp = Icmpv6::read(ip.upper().unwrap().payload).unwrap();
        assert!(icmp.verify(ip.pseudo()), "{name}");
        assert_eq!((icmp.echo(), icmp.quoted()), (echo, None), "{name}");
    }
}

#[test]
fn all_packets_are_written_again_byte_for_byte() {
    for (name, bytes) in packets() {
        let packet = Ip::read(&bytes).unwrap();
        let mut buffer = vec![0xaa; bytes.len()];
        let room = match packet {
            Ip::V4(ip) => ip.fields().write(ip.option_bytes(), ip.payload().len(), &mut buffer),
            Ip::V6(ip) => ip.fields().write(ip.payload().len(), &mut buffer),
        }
        .unwrap();
        room.copy_from_slice(packet.payload());
        let upper = packet.upper().unwrap();
        let begin = room.len() - upper.payload.len();
        if !upper.is_partial() {
            let (room, pseudo) = (&mut room[begin..], packet.pseudo());
            room.fill(0xaa);
            let written = match upper.protocol {
                protocol::TCP => {
                    let tcp = Tcp::read(upper.payload).unwrap();
                    tcp.fields().write(&options(&tcp), tcp.payload(), pseudo, room)
                }
                protocol::UDP => {
                    let udp = Udp::read(upper.payload).unwrap();
                    udp.fields().write(udp.payload(), pseudo, room)
                }
                protocol::ICMP => {
                    let icmp = Icmp::read(upper.payload).unwrap();
                    icmp.fields().write(icmp.body(), room)
                }
                _ => {
                    let icmp = Icmpv6::read(upper.payload).unwrap();
                    icmp.fields().write_v6(icmp.body(), pseudo, room)
                }
            };
            assert_eq!(written, Ok(upper.payload.len()), "{name}");
        }
        assert_eq!(buffer, bytes, "{name}");
    }
}

#[test]
fn a_damaged_bit_spoils_a_checksum() {
    let good = packet("tcp4_sack");
    for bit in 0..8 * good.len() {
        let mut bytes = good.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        // Other lengths and versions are errors, and some bytes are of both sums.
        let Ok(Ip::V4(ip)) = Ip::read(&bytes) else { continue };
        let tcp = Tcp::read(ip.payload());
        assert!(!ip.verify() || !tcp.is_ok_and(|tcp| tcp.verify(ip.pseudo())), "bit {bit}");
    }
}

#[test]
fn a_router_may_update_a_checksum_in_place() {
    let mut bytes = packet("tcp4_data");
    let Ok(Ip::V4(ip)) = Ip::read(&bytes) else { panic!() };
    let tcp = Tcp::read(ip.payload()).unwrap();
    let (at, old) = (ip.header_len(), ip.source().octets());
    let new = [203, 0, 113, 7];
    let of_ip = checksum::update_bytes(ip.checksum(), &old, &new);
    let of_tcp = checksum::update_bytes(tcp.checksum(), &old, &new);
    bytes[10..12].copy_from_slice(&of_ip.to_be_bytes());
    bytes[12..16].copy_from_slice(&new);
    bytes[at + 16..at + 18].copy_from_slice(&of_tcp.to_be_bytes());
    tcp_is_right(&bytes);
}

fn tcp_is_right(bytes: &[u8]) {
    let Ok(Ip::V4(ip)) = Ip::read(bytes) else { panic!() };
    assert!(ip.verify());
    tcp(bytes, "203.0.113.7", "198.18.1.1");
}

#[test]
fn a_cut_packet_is_read_as_far_as_it_goes() {
    let whole = packet("tcp4_syn");
    for len in 0..whole.len() {
        let error = Ip::read(&whole[..len]).unwrap_err();
        let need = if len < 20 { 20 } else { whole.len() };
        assert_eq!(error, oncewire_packet::Error::Short { layer: Layer::Ipv4, need, have: len });
        let cut = Ip::read_cut(&whole[..len]).and_then(|ip| Tcp::read_cut(ip.payload()));
        assert_eq!(cut.is_ok(), len >= 40, "{len} bytes");
    }
    let cut = &whole[..50];
    let Ok(Ip::V4(ip)) = Ip::read_cut(cut) else { panic!() };
    assert!(ip.is_cut());
    let tcp = Tcp::read_cut(ip.payload()).unwrap();
    assert_eq!(tcp.options().map_while(Result::ok).count(), 2, "the third is cut");
    let error = tcp.options().last().unwrap().unwrap_err();
    assert_eq!(error, oncewire_packet::Error::Short { layer: Layer::TcpOption, need: 10, have: 4 });
    assert_eq!(error.to_string(), "option of TCP: 10 bytes are needed, and 4 are there");
}
