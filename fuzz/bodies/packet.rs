//! The packet fuzzer's checks. `crates/packet/tests/replay.rs` replays its corpus with this code.

#[allow(dead_code, reason = "a part of it is used here")]
pub(crate) mod script;

use oncewire_packet::{
    Error, Icmp, IcmpFields, Icmpv6, Ip, Ipv4, Ipv6, Options, Pseudo, Tcp, Udp, checksum, protocol,
    write_extension, write_fragment,
};

/// Any bytes as a packet of IP, and as a payload of IP. Views stay within the bytes, errors count the missing bytes,
/// and a packet once read can be written and read again.
pub(crate) fn packet(data: &[u8]) {
    let whole = look(Ip::read(data), data.len());
    let cut = look(Ip::read_cut(data), data.len());
    if let Some(packet) = whole {
        assert!(cut.is_some(), "it is whole, and as a cut one it is none");
        truncate(data, &packet);
        rewrite(&packet);
    }
    for packet in [whole, cut].into_iter().flatten() {
        if let Some(upper) = look(packet.upper(), packet.payload().len()) {
            assert!(upper.payload.len() <= packet.payload().len());
            match upper.protocol {
                protocol::TCP => tcp(upper.payload, packet.pseudo()),
                protocol::UDP => udp(upper.payload, packet.pseudo()),
                protocol::ICMP => icmp(upper.payload),
                protocol::ICMPV6 => icmpv6(upper.payload, packet.pseudo()),
                _ => {}
            }
        }
    }
    let nowhere = Pseudo::V4([0; 4].into(), [0; 4].into());
    tcp(data, nowhere);
    udp(data, nowhere);
    icmp(data);
    icmpv6(data, nowhere);
    checksums(data);
}

/// Passes on the result, and checks an error's lengths.
fn look<T>(read: Result<T, Error>, len: usize) -> Option<T> {
    match read {
        Ok(read) => Some(read),
        Err(Error::Short { need, have, .. }) => {
            assert!(need > have && have <= len, "{need} of {have} bytes in {len}");
            None
        }
        Err(Error::Invalid { .. }) => None,
        Err(error) => panic!("{error} in reading"),
    }
}

/// A whole packet is short without any of its bytes, and its error asks for no more than it has.
fn truncate(data: &[u8], packet: &Ip<'_>) {
    let len = match packet {
        Ip::V4(packet) => packet.total_len(),
        Ip::V6(packet) => 40 + packet.payload_len(),
    };
    for short in 0..len.min(200) {
        match Ip::read(&data[..short]) {
            Err(Error::Short { need, have, .. }) => {
                assert!(have == short && (short + 1..=len).contains(&need), "{need} bytes of {short}");
            }
            other => panic!("{other:?} of {short} bytes"),
        }
    }
}

fn rewrite(packet: &Ip<'_>) {
    let mut buffer = vec![0xaa; 128 + packet.payload().len()];
    let read = match packet {
        Ip::V4(packet) => {
            let room = packet.fields().write(packet.option_bytes(), packet.payload().len(), &mut buffer);
            room.expect("it was read").copy_from_slice(packet.payload());
            let again = Ipv4::read(&buffer).expect("it was written");
            assert!(again.verify());
            assert_eq!((again.fields(), again.option_bytes()), (packet.fields(), packet.option_bytes()));
            options(again.options());
            Ip::V4(again)
        }
        Ip::V6(packet) => {
            let room = packet.fields().write(packet.payload().len(), &mut buffer).expect("it was read");
            room.copy_from_slice(packet.payload());
            let again = Ipv6::read(&buffer).expect("it was written");
            assert_eq!(again.fields(), packet.fields());
            extensions(&again);
            Ip::V6(again)
        }
    };
    assert_eq!(read.payload(), packet.payload());
    assert_eq!(read.upper(), packet.upper());
}

fn options(options: Options<'_>) {
    assert!(options.clone().count() <= 40);
    assert!(options.map_while(Result::ok).all(|option| option.data.len() <= 38));
}

/// Extension headers are written one by one, and read as before.
fn extensions(packet: &Ipv6<'_>) {
    let read: Vec<_> = packet.extensions().map_while(Result::ok).collect();
    if read.iter().any(|extension| extension.kind == protocol::AUTHENTICATION) {
        return;
    }
    let mut buffer = vec![0; 40 + packet.payload().len()];
    let room = packet.fields().write(packet.payload().len(), &mut buffer).expect("it was read");
    room.copy_from_slice(packet.payload());
    let mut left = room;
    for extension in &read {
        left = match extension.fragment() {
            Some(fragment) => write_fragment(extension.next_header, fragment, left),
            None => write_extension(extension.next_header, extension.data, left),
        }
        .expect("it was read");
    }
    let again = Ipv6::read(&buffer).expect("it was written");
    assert_eq!(again.upper(), packet.upper());
    assert_eq!(again.extensions().map_while(Result::ok).count(), read.len());
}

fn tcp(data: &[u8], pseudo: Pseudo) {
    let cut = look(Tcp::read_cut(data), data.len());
    let Some(segment) = look(Tcp::read(data), data.len()) else { return };
    assert_eq!(cut, Some(segment));
    assert_eq!(segment.header_len() + segment.payload().len(), data.len());
    assert_eq!(segment.verify(pseudo), twin(pseudo, protocol::TCP, data) == 0);
    assert!(segment.options().count() <= 40);
    let options: Vec<_> = segment.options().map_while(Result::ok).collect();
    let mut buffer = vec![0xaa; data.len()];
    let len = segment.fields().write(&options, segment.payload(), pseudo, &mut buffer).expect("it was read");
    let again = Tcp::read(&buffer[..len]).expect("it was written");
    assert!(again.verify(pseudo));
    assert_eq!(again.options().map(|option| option.expect("it was written")).collect::<Vec<_>>(), options);
    assert_eq!((again.fields(), again.payload()), (segment.fields(), segment.payload()));
}

fn udp(data: &[u8], pseudo: Pseudo) {
    let cut = look(Udp::read_cut(data), data.len());
    let Some(datagram) = look(Udp::read(data), data.len()) else { return };
    assert_eq!(cut, Some(datagram));
    let mut buffer = vec![0xaa; data.len()];
    let len = datagram.fields().write(datagram.payload(), pseudo, &mut buffer).expect("it was read");
    let again = Udp::read(&buffer[..len]).expect("it was written");
    assert!(again.verify(pseudo) && again.checksum() != 0);
    assert_eq!(twin(pseudo, protocol::UDP, &buffer[..len]), 0);
    assert_eq!((again.fields(), again.payload()), (datagram.fields(), datagram.payload()));
}

fn icmp(data: &[u8]) {
    let Some(message) = look(Icmp::read(data), data.len()) else { return };
    if let Some(bytes) = message.quoted_bytes() {
        look(message.quoted().expect("it has bytes"), bytes.len());
    }
    let _ = (message.mtu(), message.echo());
    let fields: IcmpFields = message.fields();
    let mut buffer = vec![0xaa; data.len()];
    let len = fields.write(message.body(), &mut buffer).expect("it was read");
    let again = Icmp::read(&buffer[..len]).expect("it was written");
    assert!(again.verify() && checksum::verify(&buffer));
    assert_eq!((again.fields(), again.body()), (fields, message.body()));
}

fn icmpv6(data: &[u8], pseudo: Pseudo) {
    let Some(message) = look(Icmpv6::read(data), data.len()) else { return };
    if let Some(bytes) = message.quoted_bytes() {
        look(message.quoted().expect("it has bytes"), bytes.len());
    }
    let _ = (message.mtu(), message.echo());
    let fields: IcmpFields = message.fields();
    let mut buffer = vec![0xaa; data.len()];
    let len = fields.write_v6(message.body(), pseudo, &mut buffer).expect("it was read");
    let again = Icmpv6::read(&buffer[..len]).expect("it was written");
    assert!(again.verify(pseudo));
    assert_eq!(twin(pseudo, protocol::ICMPV6, &buffer), 0);
    assert_eq!((again.fields(), again.body()), (fields, message.body()));
}

/// A change of any two words is one of the checksum, too.
fn checksums(data: &[u8]) {
    assert_eq!(checksum::compute(data), simple(data));
    let Some((change, message)) = data.split_first_chunk::<4>() else { return };
    if message.len() < 6 || message[4..].iter().all(|byte| *byte == 0) {
        return;
    }
    let mut changed = message.to_vec();
    changed[..4].copy_from_slice(change);
    let before = checksum::compute(message);
    let word = |bytes: &[u8], at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    let one = checksum::update(before, word(message, 0), word(change, 0));
    assert_eq!(checksum::update(one, word(message, 2), word(change, 2)), simple(&changed));
    assert_eq!(checksum::update_bytes(before, &message[..4], change), simple(&changed));
}

/// The checksum with a pseudo-header, word by word.
fn twin(pseudo: Pseudo, protocol: u8, message: &[u8]) -> u16 {
    let mut bytes = match pseudo {
        Pseudo::V4(source, destination) => [source.octets(), destination.octets()].concat(),
        Pseudo::V6(source, destination) => [source.octets(), destination.octets()].concat(),
    };
    bytes.extend((message.len() as u32).to_be_bytes());
    bytes.extend([0, 0, 0, protocol]);
    bytes.extend(message);
    simple(&bytes)
}

fn simple(bytes: &[u8]) -> u16 {
    let mut sum = 0_u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
