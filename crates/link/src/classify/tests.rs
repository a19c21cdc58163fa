use proptest::prelude::*;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

use super::*;

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Pcg64Mcg::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}

fn text(len: usize) -> Vec<u8> {
    (0..).flat_map(|line: u32| format!("line {line} of a text\r\n").into_bytes()).take(len).collect()
}

fn record(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind, 3, 3][..], &(body.len() as u16).to_be_bytes(), body].concat()
}

/// A hello of a client (1) or a server (2).
fn hello(kind: u8) -> Vec<u8> {
    let body = [&[3, 3][..], &noise(7, 32), &[32], &noise(8, 32), &[0, 2, 0x13, 1, 1, 0]].concat();
    record(22, &[&[kind, 0, 0, body.len() as u8][..], &body].concat())
}

/// The bytes behind a hello: a change of cipher, and records of application data of these lengths.
fn data(seed: u64, lens: &[usize]) -> Vec<u8> {
    let records = lens.iter().enumerate().map(|(n, &len)| record(23, &noise(seed + n as u64, len)));
    [record(20, &[1])].into_iter().chain(records).collect::<Vec<_>>().concat()
}

/// A message of SMB, in the clear or behind a transform header.
fn message(enciphered: bool, body: &[u8]) -> Vec<u8> {
    let header = match enciphered {
        true => [
            b"\xFDSMB",
            &noise(3, 16)[..],
            &noise(4, 11),
            &[0; 5],
            &(body.len() as u32).to_le_bytes(),
            &[0, 0, 1, 0],
            &[9; 8],
        ]
        .concat(),
        false => [b"\xFESMB", &[0; 60][..]].concat(),
    };
    let len = ((header.len() + body.len()) as u32).to_be_bytes();
    [&[0][..], &len[1..], &header, body].concat()
}

/// The turns of a stream handled in pieces of these lengths, again and again.
fn turns(stream: &[u8], pieces: &[usize]) -> Vec<Turn> {
    let (mut recogniser, mut found) = (Recogniser::new(), Vec::new());
    let (mut rest, mut pieces) = (stream, pieces.iter().cycle());
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at(rest.len().min(*pieces.next().unwrap()));
        recogniser.handle(piece, |turn| found.push(turn));
        rest = behind;
    }
    found
}

fn whole(stream: &[u8]) -> Vec<Turn> {
    turns(stream, &[usize::MAX])
}

fn turn(at: usize, cipher: Option<Cipher>, begins: usize) -> Turn {
    Turn { at: at as u64, cipher, begins: begins as u64 }
}

#[test]
fn stream_beginning_with_a_cipher_is_one_to_its_end() {
    let tls = [hello(1), text(3000)].concat();
    for proxy in
        [&b""[..], b"PROXY TCP4 10.0.0.1 10.0.0.2 4000 443\r\n", b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x02ab"]
    {
        assert_eq!(whole(&[proxy, &tls].concat()), [turn(0, Some(Cipher::Tls), 0)]);
        for ssh in [&b"SSH-2.0-OpenSSH_9.2\r\n"[..], b"SSH-1.99-x\r\n"] {
            assert_eq!(whole(&[proxy, ssh].concat()), [turn(0, Some(Cipher::Ssh), 0)]);
        }
    }
    for other in [&b"GET / HTTP/1.1\r\n"[..], b"", b"SSH-1.5-x\r\n", &[0x16, 3, 1, 2], b"PROXY x"] {
        assert_eq!(whole(other), []);
    }
}

#[test]
fn tls_behind_any_dialogue_is_found_in_each_direction() {
    let dialogues: [[&[u8]; 2]; 6] = [
        [b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n"],
        [b"EHLO a\r\nSTARTTLS\r\n", b"220 mail\r\n250-mail\r\n250 STARTTLS\r\n220 go on\r\n"],
        [b"\0\0\0\x08\x04\xd2\x16\x2f", b"S"],
        [
            b"0\x1d\x02\x01\x01w\x18\x80\x161.3.6.1.4.1.1466.20037",
            b"0\x0c\x02\x01\x01x\x07\n\x01\0\x04\0\x04\0",
        ],
        [b"AUTH TLS\r\n", b"220 ftp\r\n234 AUTH TLS successful\r\n"],
        [b"<stream:stream><starttls/>", b"<stream:features><starttls/></stream:features><proceed/>"],
    ];
    for (dialogue, side) in dialogues.iter().flat_map(|dialogue| [(dialogue[0], 1), (dialogue[1], 2)]) {
        let before = dialogue.len();
        let hello = hello(side);
        let stream = [dialogue, &hello, &data(1, &[100, 500, 16_384, 9])].concat();
        assert_eq!(
            whole(&stream),
            [turn(before + hello.len() + 6, Some(Cipher::Tls), before)],
            "{dialogue:?}"
        );
    }
}

#[test]
fn tls_after_megabytes_of_plain_requests_is_found() {
    let (before, hello) = (text(3 << 20), hello(1));
    let stream = [&before, &hello, &data(1, &[2000, 2000])[..]].concat();
    assert_eq!(whole(&stream), [turn(before.len() + hello.len() + 6, Some(Cipher::Tls), before.len())]);
}

#[test]
fn records_without_a_hello_are_found_after_four() {
    // As in TDS, with packets around the handshake.
    let packet = b"\x12\x01\0\x9e\0\0\0\0";
    let wrapped = [packet, &hello(1)[..], packet, &record(22, &noise(1, 90))].concat();
    let chain = |records: usize| [&wrapped, &data(1, &vec![900; records])[6..]].concat();
    assert_eq!(whole(&chain(3)), []);
    assert_eq!(whole(&chain(4)), [turn(wrapped.len(), Some(Cipher::Tls), wrapped.len())]);
}

#[test]
fn numbered_nonces_of_short_records_do_not_hide_a_cipher() {
    let short = |n: u64| record(23, &[&n.to_be_bytes()[..], &noise(n, 32)].concat());
    let stream = [&b"x"[..], &hello(1), &(0..40).flat_map(short).collect::<Vec<_>>()].concat();
    assert_eq!(whole(&stream).len(), 1);
}

#[test]
fn content_behind_a_broken_chain_is_coded_again() {
    let (hello, records, rest) = (hello(2), data(1, &[600, 600]), text(5000));
    let stream = [b"S", &hello[..], &records, &rest].concat();
    let end = 1 + hello.len() + records.len();
    assert_eq!(whole(&stream), [turn(1 + hello.len() + 6, Some(Cipher::Tls), 1), turn(end, None, 1)]);
    // The next chain has to show more, and is found all the same.
    let again = [&stream[..], &hello, &data(50, &[300; 12])].concat();
    let begins = stream.len();
    let last = turn(begins + hello.len() + 6, Some(Cipher::Tls), begins);
    assert_eq!(whole(&again)[2..], [last]);
    assert_eq!(whole(&[&stream[..], &hello, &data(50, &[300; 7])].concat()).len(), 2);
}

#[test]
fn headers_in_content_are_no_cipher() {
    // A hello and nothing of TLS behind it; a chain of records in the clear; noise with a header now and then.
    let cut = [b"x", &hello(1)[..], &text(20_000)].concat();
    let clear: Vec<u8> = (0..20).flat_map(|n| record(23, &text(3000 + n))).collect();
    let clear = [b"x", &hello(1)[..], &clear].concat();
    let mut noisy = noise(9, 2 << 20);
    for at in (1000..2 << 20).step_by(5000) {
        noisy[at..at + 5].copy_from_slice(&[23, 3, 3, 2, 0]);
    }
    let zeros = [vec![0; 9000], [23, 3, 3].repeat(9000)].concat();
    for content in [cut, clear, noisy, zeros] {
        assert_eq!(whole(&content), []);
    }
}

/// A capture: each packet has headers of its own, so only a packet's own bytes are consecutive.
fn capture(stream: &[u8]) -> Vec<u8> {
    stream.chunks(1448).flat_map(|packet| [&[0x45; 82][..], packet].concat()).collect()
}

#[test]
fn capture_of_tls_is_coded_but_for_one_record() {
    let session = |n: u64| capture(&[hello(2), data(n, &[300, 900, 16_384, 16_384, 16_384, 5000])].concat());
    let file = [text(600), (0..50).flat_map(session).collect()].concat();
    let mut left_out = 0;
    for pair in whole(&file).chunks(2) {
        left_out += pair.get(1).map_or(file.len() as u64, |turn| turn.at) - pair[0].at;
    }
    // A record from one packet into another is followed to its end, once.
    assert!(left_out < 20_000, "{left_out} of {}", file.len());
}

#[test]
fn enciphered_messages_of_smb_are_found_and_clear_ones_coded() {
    let first = [message(false, &text(100)), message(false, &text(20_000))].concat();
    let hidden =
        [message(true, &noise(1, 300)), message(false, &[]), message(true, &noise(2, 60_000))].concat();
    let stream =
        [&first[..], &hidden, &message(false, &text(30_000)), &message(true, &noise(3, 700))].concat();
    let (begins, end) = (first.len(), first.len() + hidden.len());
    let again = stream.len() - 700 - 56;
    assert_eq!(
        whole(&stream),
        [
            turn(begins, Some(Cipher::Smb), begins),
            turn(end, None, begins),
            turn(again, Some(Cipher::Smb), again)
        ]
    );
    let request = [&[0x81, 0, 0, 68, 32][..], &text(67)].concat();
    assert_eq!(whole(&[&request, &[0x82, 0, 0, 0][..], &hidden].concat()).len(), 1);
}

#[test]
fn smb_messages_with_wrong_lengths_or_clear_bodies_are_coded() {
    let mut wrong = message(true, &noise(1, 3000));
    wrong[4 + 36] ^= 1;
    let clear = message(true, &text(3000));
    // Such a message inside another is content.
    let inside = message(false, &message(true, &noise(1, 3000)));
    for stream in [wrong, clear, inside, text(5000)] {
        assert_eq!(whole(&[message(false, &[]), stream].concat()), []);
    }
    // Behind a break of the messages, records of TLS are looked for.
    let stream = [message(false, &[]), b"STARTTLS".to_vec(), hello(1), data(1, &[600, 600])].concat();
    assert_eq!(whole(&stream).len(), 1);
}

/// Pieces of a stream, many of them of ciphers, some damaged.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let piece = (0u8..10, any::<u8>(), 1usize..3000).prop_map(|(kind, seed, len)| {
        let seed = u64::from(seed);
        match kind {
            0 => text(len),
            1 => noise(seed, len),
            2 => hello(1),
            3 => hello(2),
            4 | 5 => data(seed, &[len, 40, 700, 1, len]),
            6 => message(false, &text(2 * len)),
            7 => message(true, &noise(seed, len)),
            8 => [22, 3, 23, 3, 3].repeat(len % 20),
            _ => noise(seed, len).iter().map(|byte| [22, 3, 23, 1][usize::from(byte % 4)]).collect(),
        }
    });
    prop::collection::vec(piece, 1..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn turns_do_not_depend_on_how_a_stream_is_read(
        stream in stream(),
        pieces in prop::collection::vec(prop_oneof![1usize..4, 1usize..3000], 1..20),
    ) {
        let found = whole(&stream);
        prop_assert_eq!(&turns(&stream, &pieces), &found);
        prop_assert_eq!(&turns(&stream, &[1]), &found);
        for (n, turn) in found.iter().enumerate() {
            prop_assert!(turn.at <= stream.len() as u64 && turn.begins <= turn.at);
            prop_assert_eq!(turn.cipher.is_some(), n % 2 == 0, "there and back");
            prop_assert!(n == 0 || found[n - 1].at < turn.at);
        }
    }

    #[test]
    fn any_bytes_are_taken(bytes in prop::collection::vec(any::<u8>(), 0..600), piece in 1usize..40) {
        prop_assert_eq!(turns(&bytes, &[piece]), whole(&bytes));
    }
}
