//! Properties of any fields, options and payload.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::collection::vec;
use proptest::prelude::*;

use oncewire_packet::{
    Error, Fragment, Icmp, IcmpFields, Icmpv6, Ip, Ipv4, Ipv4Fields, Ipv6, Ipv6Fields, Layer, Pseudo,
    RawOption, SackBlocks, Tcp, TcpFields, TcpFlags, TcpOption, Udp, UdpFields, checksum, icmp_kind,
    protocol, write_extension, write_fragment,
};

/// An option with data of its own.
#[derive(Clone, Debug)]
enum Owned {
    Plain(TcpOption<'static>),
    Sack(Vec<[u8; 8]>),
    Other(u8, Vec<u8>),
}

impl Owned {
    fn option(&self) -> TcpOption<'_> {
        match self {
            Self::Plain(option) => *option,
            Self::Sack(blocks) => TcpOption::Sack(SackBlocks::new(blocks)),
            Self::Other(kind, data) => TcpOption::Other(RawOption { kind: *kind, data }),
        }
    }
}

fn tcp_option() -> impl Strategy<Value = Owned> {
    prop_oneof![
        Just(Owned::Plain(TcpOption::Nop)),
        any::<u16>().prop_map(|mss| Owned::Plain(TcpOption::Mss(mss))),
        any::<u8>().prop_map(|scale| Owned::Plain(TcpOption::WindowScale(scale))),
        Just(Owned::Plain(TcpOption::SackPermitted)),
        any::<(u32, u32)>().prop_map(|(value, echo)| Owned::Plain(TcpOption::Timestamps { value, echo })),
        vec(any::<(u32, u32)>().prop_map(|(left, right)| SackBlocks::block(left, right)), 0..5)
            .prop_map(Owned::Sack),
        (9_u8.., vec(any::<u8>(), 0..12)).prop_map(|(kind, data)| Owned::Other(kind, data)),
    ]
}

fn tcp_fields() -> impl Strategy<Value = TcpFields> {
    (any::<(u16, u16, u32, u32)>(), any::<u16>(), any::<(u16, u16)>()).prop_map(
        |((source_port, destination_port, sequence, acknowledgment), flags, (window, urgent))| TcpFields {
            source_port,
            destination_port,
            sequence,
            acknowledgment,
            flags: TcpFlags::from_bits(flags),
            window,
            urgent,
        },
    )
}

fn ipv4_fields() -> impl Strategy<Value = Ipv4Fields> {
    let addresses = any::<(Ipv4Addr, Ipv4Addr)>();
    (any::<(u8, u16, u8)>(), any::<(bool, bool)>(), 0_u16..0x2000, any::<u8>(), addresses).prop_map(
        |((traffic_class, identification, ttl), (df, mf), offset, protocol, (source, destination))| {
            Ipv4Fields {
                traffic_class,
                identification,
                dont_fragment: df,
                more_fragments: mf,
                fragment_offset: offset * 8,
                ttl,
                protocol,
                source,
                destination,
            }
        },
    )
}

fn ipv6_fields() -> impl Strategy<Value = Ipv6Fields> {
    (any::<(u8, u8, u8)>(), 0_u32..0x10_0000, any::<(Ipv6Addr, Ipv6Addr)>()).prop_map(
        |((traffic_class, next_header, hop_limit), flow_label, (source, destination))| Ipv6Fields {
            traffic_class,
            flow_label,
            next_header,
            hop_limit,
            source,
            destination,
        },
    )
}

fn pseudo() -> impl Strategy<Value = Pseudo> {
    prop_oneof![
        any::<(Ipv4Addr, Ipv4Addr)>().prop_map(|(source, destination)| Pseudo::V4(source, destination)),
        any::<(Ipv6Addr, Ipv6Addr)>().prop_map(|(source, destination)| Pseudo::V6(source, destination)),
    ]
}

/// Checks the reading of a whole message. Each shorter one must be an error of its layer with a demand for
/// more bytes, though not for more than there were.
fn short_of_each_byte(bytes: &[u8], layer: Layer, read: impl Fn(&[u8]) -> Option<Error>) {
    for len in 0..bytes.len() {
        match read(&bytes[..len]) {
            Some(Error::Short { layer: named, need, have }) => {
                assert_eq!((named, have), (layer, len));
                assert!((len + 1..=bytes.len()).contains(&need), "{need} of {}", bytes.len());
            }
            Some(other) => panic!("{len} bytes: {other}"),
            None => panic!("{len} bytes are read"),
        }
    }
    assert_eq!(read(bytes), None);
}

/// Checks that `write` fails in each smaller buffer, and writes the same bytes into a larger one.
fn no_room_but<T>(len: usize, write: impl Fn(&mut [u8]) -> Result<T, Error>) -> Vec<u8> {
    for room in 0..len {
        let error = write(&mut vec![0xaa; room]).err();
        assert!(matches!(error, Some(Error::NoRoom { need, .. }) if need > room), "{room} bytes: {error:?}");
    }
    let (mut exact, mut larger) = (vec![0xaa; len], vec![0x55; len + 9]);
    assert!(write(&mut exact).is_ok() && write(&mut larger).is_ok());
    assert_eq!((&exact[..], &[0x55; 9][..]), larger.split_at(len));
    exact
}

proptest! {
    #[test]
    fn ipv4_is_read_as_written(fields in ipv4_fields(), options in vec(any::<u8>(), 0..41), payload in vec(any::<u8>(), 0..90)) {
        let len = 20 + options.len().next_multiple_of(4) + payload.len();
        let bytes = no_room_but(len, |into| {
            fields.write(&options, payload.len(), into).map(|room| room.copy_from_slice(&payload))
        });
        let packet = Ipv4::read(&bytes).unwrap();
        prop_assert_eq!((packet.fields(), packet.payload(), packet.total_len()), (fields, &payload[..], len));
        prop_assert!(packet.verify() && packet.option_bytes().starts_with(&options));
        prop_assert_eq!(packet.pseudo(), fields.pseudo());
        short_of_each_byte(&bytes, Layer::Ipv4, |bytes| Ipv4::read(bytes).err());
        short_of_each_byte(&bytes, Layer::Ipv4, |bytes| Ip::read(bytes).err());
        let padded = [&bytes[..], &[0; 20]].concat();
        prop_assert_eq!(Ipv4::read(&padded), Ok(packet));
        prop_assert_eq!(Ipv4::read_cut(&padded), Ok(packet));
    }

    #[test]
    fn ipv6_is_read_as_written(fields in ipv6_fields(), payload in vec(any::<u8>(), 1..90)) {
        let bytes = no_room_but(40 + payload.len(), |into| {
            fields.write(payload.len(), into).map(|room| room.copy_from_slice(&payload))
        });
        let packet = Ipv6::read(&bytes).unwrap();
        prop_assert_eq!((packet.fields(), packet.payload()), (fields, &payload[..]));
        prop_assert_eq!(packet.pseudo(), fields.pseudo());
        short_of_each_byte(&bytes, Layer::Ipv6, |bytes| Ipv6::read(bytes).err());
        let padded = [&bytes[..], &[0; 20]].concat();
        prop_assert_eq!(Ipv6::read(&padded), Ok(packet));
        prop_assert_eq!(Ipv6::read_cut(&padded), Ok(packet));
    }

    #[test]
    fn extension_headers_are_walked_as_written(
        units in vec(0_usize..4, 0..6), at in any::<prop::sample::Index>(),
        fragment in any::<(u16, bool, u32)>(), payload in vec(any::<u8>(), 0..30),
    ) {
        let place = at.index(units.len() + 1);
        let (offset, more, identification) = fragment;
        let fragment = Fragment { offset: offset & !7, more, identification };
        let count = units.len() + 1;
        let kind = |at: usize| if at == place { protocol::FRAGMENT } else { protocol::DESTINATION_OPTIONS };
        let next = |at: usize| if at + 1 < count { kind(at + 1) } else { protocol::UDP };
        let mut buffer = vec![0; 40 + 6 * 32 + 8 + 30];
        let mut datas = units.iter().map(|units| vec![7; units * 8 + 6]);
        let mut left = &mut buffer[40..];
        for at in 0..count {
            left = if at == place {
                write_fragment(next(at), fragment, left).unwrap()
            } else {
                write_extension(next(at), &datas.next().unwrap(), left).unwrap()
            };
        }
        left[..payload.len()].copy_from_slice(&payload);
        let len = units.iter().map(|units| units * 8 + 8).sum::<usize>() + 8 + payload.len();
        Ipv6Fields::new(kind(0)).write(len, &mut buffer).unwrap();
        let bytes = &buffer[..40 + len];

        let packet = Ipv6::read(bytes).unwrap();
        let upper = packet.upper().unwrap();
        prop_assert_eq!(upper.fragment, Some(fragment));
        let seen = packet.extensions().count();
        if upper.has_header() {
            prop_assert_eq!((seen, upper.protocol, upper.payload), (count, protocol::UDP, &payload[..]));
        } else {
            prop_assert_eq!((seen, upper.protocol), (place + 1, next(place)));
            prop_assert!(upper.payload.ends_with(&payload));
        }
        // Without its end, a walk ends with an error of this header, or with fewer bytes.
        for cut in 40..bytes.len() {
            let packet = Ipv6::read_cut(&bytes[..cut]).unwrap();
            match packet.upper() {
                Ok(less) => prop_assert_eq!(upper.payload.len() - less.payload.len(), bytes.len() - cut),
                Err(Error::Short { layer: Layer::Ipv6Extension, need, have }) => prop_assert!(need > have),
                Err(other) => prop_assert!(false, "{other}"),
            }
        }
    }

    #[test]
    fn tcp_is_read_as_written(
        fields in tcp_fields(), owned in vec(tcp_option(), 0..8), payload in vec(any::<u8>(), 0..90), pseudo in pseudo(),
    ) {
        let options: Vec<_> = owned.iter().map(Owned::option).collect();
        let len = match fields.len(&options, &payload) {
            Ok(len) => len,
            Err(error) => {
                let too_long = matches!(error, Error::TooLong { layer: Layer::Tcp, most: 40, len: 41.., .. });
                prop_assert!(too_long, "{error}");
                prop_assert_eq!(fields.write(&options, &payload, pseudo, &mut [0; 400]), Err(error));
                return Ok(());
            }
        };
        let bytes = no_room_but(len, |into| fields.write(&options, &payload, pseudo, into));
        let segment = Tcp::read(&bytes).unwrap();
        prop_assert_eq!((segment.fields(), segment.payload()), (fields, &payload[..]));
        prop_assert_eq!(segment.options().collect::<Result<Vec<_>, _>>().unwrap(), options);
        prop_assert!(segment.verify(pseudo));
        short_of_each_byte(&bytes[..segment.header_len()], Layer::Tcp, |bytes| Tcp::read(bytes).err());
        for cut in 20..segment.header_len() {
            let less = Tcp::read_cut(&bytes[..cut]).unwrap();
            prop_assert_eq!((less.fields(), less.payload()), (fields, &[][..]));
        }
    }

    #[test]
    fn udp_is_read_as_written(ports in any::<(u16, u16)>(), payload in vec(any::<u8>(), 0..90), pseudo in pseudo()) {
        let fields = UdpFields { source_port: ports.0, destination_port: ports.1 };
        let bytes = no_room_but(8 + payload.len(), |into| fields.write(&payload, pseudo, into));
        let datagram = Udp::read(&bytes).unwrap();
        prop_assert_eq!((datagram.fields(), datagram.payload()), (fields, &payload[..]));
        prop_assert!(datagram.verify(pseudo) && datagram.checksum() != 0);
        short_of_each_byte(&bytes, Layer::Udp, |bytes| Udp::read(bytes).err());
        let mut without = bytes.clone();
        without[6..8].fill(0);
        let is_v4 = matches!(pseudo, Pseudo::V4(..));
        prop_assert_eq!(Udp::read(&without).unwrap().verify(pseudo), is_v4);
    }

    #[test]
    fn icmp_is_read_as_written(
        kind in any::<u8>(), code in any::<u8>(), parameter in any::<[u8; 4]>(), body in vec(any::<u8>(), 0..90), pseudo in pseudo(),
    ) {
        let fields = IcmpFields { kind, code, parameter };
        let bytes = no_room_but(8 + body.len(), |into| fields.write(&body, into));
        let message = Icmp::read(&bytes).unwrap();
        prop_assert_eq!((message.fields(), message.body(), message.verify()), (fields, &body[..], true));
        short_of_each_byte(&bytes[..8], Layer::Icmp, |bytes| Icmp::read(bytes).err());
        let bytes = no_room_but(8 + body.len(), |into| fields.write_v6(&body, pseudo, into));
        let message = Icmpv6::read(&bytes).unwrap();
        prop_assert_eq!((message.fields(), message.body(), message.verify(pseudo)), (fields, &body[..], true));
        short_of_each_byte(&bytes[..8], Layer::Icmpv6, |bytes| Icmpv6::read(bytes).err());
    }

    #[test]
    fn updated_checksum_equals_a_new_one(
        message in vec(any::<u8>(), 2..90), at in any::<prop::sample::Index>(), new in vec(any::<u8>(), 0..30),
    ) {
        // A message of zeros alone has another form of zero as its sum, and no protocol sends one.
        let message = [&[0x45, 0][..], &message].concat();
        let at = 2 + 2 * at.index(message.len() / 2 - 1);
        let end = (at + new.len()).min(message.len());
        let new = &new[..end - at];
        let mut changed = message.clone();
        changed[at..end].copy_from_slice(new);
        let updated = checksum::update_bytes(checksum::compute(&message), &message[at..end], new);
        prop_assert_eq!(updated, checksum::compute(&changed));
    }

    #[test]
    fn any_damage_to_one_word_is_seen(mut message in vec(any::<u8>(), 4..60), at in any::<prop::sample::Index>(), bit in 0_u8..8) {
        message[..2].fill(0);
        let sum = checksum::compute(&message);
        message[..2].copy_from_slice(&sum.to_be_bytes());
        prop_assert!(checksum::verify(&message));
        let at = at.index(message.len());
        message[at] ^= 1_u8 << bit;
        prop_assert!(!checksum::verify(&message));
    }
}

#[test]
fn values_beyond_their_format_are_refused() {
    let mut room = vec![0; 70_000];
    let v4 = Ipv4Fields::new(protocol::TCP);
    let too_long = |layer, field, most, len| Err(Error::TooLong { layer, field, most, len });
    assert_eq!(v4.write(&[1; 41], 0, &mut room), too_long(Layer::Ipv4, "options", 40, 41));
    assert_eq!(v4.write(&[], 65_516, &mut room), too_long(Layer::Ipv4, "payload", 65_515, 65_516));
    assert!(v4.write(&[], 65_515, &mut room).is_ok());
    let v6 = Ipv6Fields::new(protocol::TCP);
    assert_eq!(v6.write(65_536, &mut room), too_long(Layer::Ipv6, "payload", 65_535, 65_536));
    let pseudo = v6.pseudo();
    let udp = UdpFields::default().write(&vec![0; 65_528], pseudo, &mut room);
    assert_eq!(udp, Err(Error::TooLong { layer: Layer::Udp, field: "payload", most: 65_527, len: 65_528 }));
    let invalid = |layer, field, value| Err(Error::Invalid { layer, field, value });
    let odd = Ipv4Fields { fragment_offset: 12, ..v4 };
    assert_eq!(odd.write(&[], 0, &mut room), invalid(Layer::Ipv4, "fragment offset", 12));
    let label = Ipv6Fields { flow_label: 1 << 20, ..v6 };
    assert_eq!(label.write(0, &mut room), invalid(Layer::Ipv6, "flow label", 1 << 20));
    assert_eq!(write_extension(6, &[0; 7], &mut room), invalid(Layer::Ipv6Extension, "length", 9));
    assert!(write_extension(6, &[0; 2046], &mut room).is_ok());
    assert!(write_extension(6, &[0; 2054], &mut room).is_err());
    let end = [TcpOption::Other(RawOption { kind: 0, data: &[] })];
    let written = TcpFields::default().write(&end, &[], pseudo, &mut room);
    assert_eq!(written, Err(Error::Invalid { layer: Layer::TcpOption, field: "kind", value: 0 }));
}

#[test]
fn invalid_lengths_are_errors() {
    let invalid = |layer, field, value| Some(Error::Invalid { layer, field, value });
    let mut v4 = [0; 60];
    Ipv4Fields::new(protocol::TCP).write(&[], 40, &mut v4).unwrap();
    let with = |at: usize, value: u8| {
        let mut bytes = v4;
        bytes[at] = value;
        bytes
    };
    assert_eq!(Ip::read(&with(0, 0x50)).err(), invalid(Layer::Ipv4, "version", 5));
    assert_eq!(Ipv4::read(&with(0, 0x65)).err(), invalid(Layer::Ipv4, "version", 6));
    assert_eq!(Ipv6::read(&v4).err(), invalid(Layer::Ipv6, "version", 4));
    assert_eq!(Ipv4::read(&with(0, 0x44)).err(), invalid(Layer::Ipv4, "header length", 16));
    assert_eq!(Ipv4::read(&with(3, 19)).err(), invalid(Layer::Ipv4, "total length", 19));
    assert_eq!(Ipv4::read_cut(&with(3, 19)).err(), invalid(Layer::Ipv4, "total length", 19));
    // A packet for segmentation by the network card.
    assert_eq!(Ipv4::read(&with(3, 0)).err(), invalid(Layer::Ipv4, "total length", 0));
    assert_eq!(Ipv4::read_cut(&with(3, 0)).unwrap().payload().len(), 40);
    assert_eq!(Tcp::read(&[0x4f; 20]).err(), invalid(Layer::Tcp, "header length", 16));
    assert_eq!(Udp::read(&[0, 1, 0, 2, 0, 7, 0, 0]).err(), invalid(Layer::Udp, "length", 7));
    assert_eq!(Udp::read(&[0; 8]).err(), invalid(Layer::Udp, "length", 0));
    assert_eq!(Udp::read_cut(&[0; 12]).unwrap().payload().len(), 4);
}

#[test]
fn tcp_options_odd_are_raw_and_broken_end_the_list() {
    let read = |options: [u8; 8]| {
        let bytes = [&[0; 12][..], &[0x70, 0], &[0; 6], &options].concat();
        Tcp::read(&bytes).unwrap().options().map(|option| format!("{option:?}")).collect::<Vec<_>>()
    };
    let other = |kind, data: &[u8]| format!("Ok({:?})", TcpOption::Other(RawOption { kind, data }));
    assert_eq!(read([2, 3, 9, 4, 3, 7, 0, 4]), [other(2, &[9]), other(4, &[7])], "lengths of others");
    assert_eq!(read([5, 6, 1, 2, 3, 4, 1, 1])[0], other(5, &[1, 2, 3, 4]), "half a block");
    assert_eq!(read([8, 1, 1, 1, 1, 1, 1, 1]).len(), 1, "a length without itself");
    assert!(read([1, 8, 0, 1, 1, 1, 1, 1])[1].contains("length"), "a length of nothing");
    assert!(read([1, 1, 1, 8, 10, 1, 1, 1])[3].contains("need: 10, have: 5"));
    assert!(read([1, 1, 1, 1, 1, 1, 1, 8])[7].contains("need: 2, have: 1"));
}

#[test]
fn extensions_behind_a_quoted_packet_are_left_out() {
    let body = [7; 200];
    let quoted = |kind, parameter, six: bool| {
        let (mut buffer, fields) = ([0; 208], IcmpFields { kind, code: 0, parameter });
        fields.write(&body, &mut buffer).unwrap();
        let four = Icmp::read(&buffer).unwrap().quoted_bytes().map(<[u8]>::len);
        if six { Icmpv6::read(&buffer).unwrap().quoted_bytes().map(<[u8]>::len) } else { four }
    };
    // In words of 4 bytes in the second byte, and of 8 bytes in the first [RFC 4884 §4.1, §4.3].
    assert_eq!(quoted(11, [0, 32, 0, 0], false), Some(128));
    assert_eq!(quoted(3, [16, 16, 0, 0], true), Some(128));
    assert_eq!(quoted(1, [16, 0, 0, 0], true), Some(128));
    assert_eq!(quoted(11, [0, 0, 0, 0], false), Some(200), "no extensions");
    assert_eq!(quoted(11, [0, 255, 0, 0], false), Some(200), "more than there is");
    assert_eq!(quoted(2, [16, 0, 5, 20], true), Some(200), "the MTU is no length");
    assert_eq!(quoted(4, [16, 16, 0, 0], true), Some(200), "no length in ICMPv6");
    for kind in [icmp_kind::SOURCE_QUENCH, icmp_kind::REDIRECT] {
        assert_eq!(quoted(kind, [16, 16, 0, 0], false), Some(200), "an address is no length");
    }
    assert_eq!(quoted(13, [0, 32, 0, 0], false), None, "no error");
}

#[test]
fn lengths_of_extension_headers_are_those_of_their_kinds() {
    let walk = |kind: u8, first: [u8; 2], len: usize| {
        let mut bytes = [0; 140];
        bytes[40..42].copy_from_slice(&first);
        Ipv6Fields::new(kind).write(100, &mut bytes).unwrap();
        let upper = Ipv6::read(&bytes).unwrap().upper().unwrap();
        assert_eq!((upper.protocol, upper.payload.len()), (first[0], 100 - len), "{kind}");
    };
    for kind in [protocol::HOP_BY_HOP, protocol::ROUTING, protocol::DESTINATION_OPTIONS] {
        walk(kind, [protocol::TCP, 2], 24);
    }
    for kind in [protocol::MOBILITY, protocol::HOST_IDENTITY, protocol::SHIM6] {
        walk(kind, [protocol::TCP, 0], 8);
    }
    walk(protocol::FRAGMENT, [protocol::TCP, 255], 8);
    // With a check value of 12 bytes.
    walk(protocol::AUTHENTICATION, [protocol::TCP, 4], 24);
    for kind in [protocol::ESP, protocol::NO_NEXT_HEADER, protocol::TCP, 200] {
        let mut bytes = [0; 60];
        Ipv6Fields::new(kind).write(20, &mut bytes).unwrap();
        let packet = Ipv6::read(&bytes).unwrap();
        assert_eq!((packet.extensions().count(), packet.upper().unwrap().payload.len()), (0, 20), "{kind}");
    }
}

#[test]
fn payload_without_length_reaches_the_end_of_a_cut_packet() {
    let read = |next_header: u8| {
        let mut bytes = [0; 46];
        Ipv6Fields::new(next_header).write(0, &mut bytes).unwrap();
        assert_eq!(Ipv6::read(&bytes).unwrap().payload().len(), 0);
        Ipv6::read_cut(&bytes).unwrap().payload().len()
    };
    assert_eq!(read(protocol::TCP), 6, "cut into segments later");
    assert_eq!(read(protocol::HOP_BY_HOP), 6, "a jumbogram");
    assert_eq!(read(protocol::NO_NEXT_HEADER), 0, "padding of Ethernet");
}

#[test]
fn a_cut_packet_says_so() {
    let mut bytes = [0; 60];
    Ipv6Fields::new(protocol::TCP).write(20, &mut bytes).unwrap();
    for len in 40..60 {
        let packet = Ipv6::read_cut(&bytes[..len]).unwrap();
        assert_eq!((packet.is_cut(), packet.payload().len()), (true, len - 40));
    }
    assert!(!Ipv6::read_cut(&bytes).unwrap().is_cut());
}

#[test]
fn udp_checksum_of_zero_takes_its_other_form() {
    let (fields, mut bytes) = (UdpFields { source_port: 1, destination_port: 2 }, [0; 10]);
    for pseudo in [Ipv4Fields::new(protocol::UDP).pseudo(), Ipv6Fields::new(protocol::UDP).pseudo()] {
        fields.write(&[0, 0], pseudo, &mut bytes).unwrap();
        let payload = Udp::read(&bytes).unwrap().checksum().to_be_bytes();
        fields.write(&payload, pseudo, &mut bytes).unwrap();
        let datagram = Udp::read(&bytes).unwrap();
        assert_eq!((datagram.checksum(), datagram.verify(pseudo)), (0xffff, true));
    }
}

#[test]
fn nine_flags_have_names_and_three_bits_none() {
    let bytes = [&[0; 12][..], &[0x51, 0], &[0; 6]].concat();
    assert_eq!(Tcp::read(&bytes).unwrap().flags(), TcpFlags::AE);
    assert_eq!(TcpFlags::from_bits(0xffff).bits(), 0x1ff);
    assert!(TcpFlags::from_bits(0xffff).contains(TcpFlags::AE | TcpFlags::FIN));
}
