//! Golden bytes and golden errors of the format.

use proptest::prelude::*;

use std::net::SocketAddr;
use std::num::NonZeroU32;

use super::chunks::{decode_entries, encode_entries};
use super::reader::Reader;
use super::*;
use crate::entropy::{Kind, Mode};
use crate::wanax::{ChunkName, Name, NameKey, Shape};

fn hello() -> Hello {
    Hello {
        version: 1,
        oldest: 1,
        instance: 0x0102_0304_0506_0708,
        lane: LaneId(9),
        role: LaneRole::Flow,
        digest_seed: 10,
        log_capacity: 1 << 26,
        max_in_flight: 1 << 24,
        initial_credit: 1 << 18,
        contexts: 16,
        claim: Some(LogClaim {
            epoch: 3,
            start: 100,
            end: 5000,
            highest: 6000,
            samples: vec![Sample { start: 100, len: 4096, digest: 77 }],
        }),
        names: None,
        store: None,
        understands: Understood::default(),
        probe: None,
        short_names_below: 0,
        group_proof: None,
        codecs: CodecOffers::default(),
    }
}

/// The same hello as a gateway says it that knows of named chunks.
fn naming_hello() -> Hello {
    let (key, shape) = (NameKey::new([7; 32]), Shape::default());
    let names = Some(NamesHello { key, shape });
    Hello { version: 3, names, store: Some(0x99), understands: Understood::ALL, ..hello() }
}

fn bytes(hello: &Hello) -> Vec<u8> {
    let mut out = Vec::new();
    hello.encode(&mut out);
    out
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn decode(frame: &[u8]) -> Result<Frame<'_>, WireError> {
    let (kind, body, used) = take_frame(frame)?.ok_or(WireError::Short("frame"))?;
    assert_eq!(used, frame.len());
    Frame::decode(kind, body)
}

#[test]
fn a_hello_is_these_bytes() {
    let golden = "6f6e63657769726501000100380807060504030201090000000000000002\
                  0a0000000000000080808020808080088080101001036488 27f02e01648020 4d00000000000000";
    assert_eq!(hex(&bytes(&hello())), golden.replace(' ', ""));
    let out = bytes(&hello());
    assert_eq!(Hello::decode(&out), Ok(Some((hello(), out.len()))));
    for cut in 0..out.len() {
        assert_eq!(Hello::decode(&out[..cut]), Ok(None), "cut at {cut}");
    }
}

#[test]
fn hello_with_names_ends_with_key_sizes_and_store() {
    let out = bytes(&naming_hello());
    let tail = format!("01{}081007 019900000000000000 7f", "07".repeat(32)).replace(' ', "");
    assert!(hex(&out).ends_with(&tail), "{}", hex(&out));
    assert_eq!(Hello::decode(&out), Ok(Some((naming_hello(), out.len()))));
    let neither = Hello { names: None, store: None, ..naming_hello() };
    assert!(hex(&bytes(&neither)).ends_with("4d0000000000000000007f"));
    assert_eq!(Hello::decode(&bytes(&neither)).unwrap().unwrap().0, neither);
    // A peer of version 2 passes over what it does not know.
    let mut older = out.clone();
    older[8] = 2;
    let known =
        Hello { version: 2, names: None, store: None, understands: Understood::default(), ..naming_hello() };
    assert_eq!(Hello::decode(&older), Ok(Some((known, out.len()))));
    for (back, byte, error) in [
        (46, 2, WireError::Invalid("names")),
        (13, 3, WireError::Invalid("chunk sizes")),
        (12, 17, WireError::Invalid("chunk sizes")),
        (10, 2, WireError::Invalid("store")),
        (1, 0x80, WireError::Short("what is understood")),
    ] {
        let mut wrong = out.clone();
        let at = out.len() - back;
        wrong[at] = byte;
        assert_eq!(Hello::decode(&wrong), Err(error.into()), "{back} from the end");
    }
}

#[test]
fn hello_may_end_early_or_say_more() {
    let mut out = bytes(&naming_hello());
    let before = out.len();
    // An eighth bit, which nothing knows.
    out[before - 1] = 0b1111_1111;
    out.push(1);
    out[12] += 1;
    assert_eq!(Hello::decode(&out), Ok(Some((naming_hello(), before + 1))));
    let other = |understands| Hello { understands, ..naming_hello() };
    for understands in [
        Understood { draining: true, ..Understood::default() },
        Understood { resets_behind: true, ..Understood::default() },
        Understood { lanes_left: true, ..Understood::default() },
        Understood { highway: true, ..Understood::default() },
        Understood { tags_of_48_bits: true, ..Understood::default() },
        Understood { small_credits: true, ..Understood::default() },
        Understood { continues: true, ..Understood::default() },
        Understood::default(),
    ] {
        let bits = u8::from(understands.draining)
            | (u8::from(understands.resets_behind) << 1)
            | (u8::from(understands.lanes_left) << 2)
            | (u8::from(understands.highway) << 3)
            | (u8::from(understands.tags_of_48_bits) << 4)
            | (u8::from(understands.small_credits) << 5)
            | (u8::from(understands.continues) << 6);
        out[before - 1] = 0b1000_0000 | bits;
        assert_eq!(Hello::decode(&out), Ok(Some((other(understands), before + 1))));
    }
    out.truncate(before - 1);
    out[12] -= 2;
    assert_eq!(Hello::decode(&out), Ok(Some((other(Understood::default()), before - 1))));
}

#[test]
fn a_hello_asks_for_chunks_behind_all_else() {
    let probe = Probe { request: 3, chunks: vec![(Name([7; 20]), 300)] };
    let asking = Hello { probe: Some(probe), ..naming_hello() };
    let (before, mut out) = (bytes(&naming_hello()), bytes(&asking));
    assert_eq!(hex(&out[before.len()..]), format!("010301{}ac02", "07".repeat(20)));
    assert_eq!(Hello::decode(&out), Ok(Some((asking.clone(), out.len()))));
    let at = before.len();
    for (byte, error) in [(at, WireError::Invalid("probe")), (at + 2, WireError::Invalid("count of probes"))]
    {
        let was = std::mem::replace(&mut out[byte], 17);
        assert_eq!(Hello::decode(&out), Err(error.into()));
        out[byte] = was;
    }
    out.truncate(at + 1);
    out[at] = 0;
    out[12] = before[12] + 1;
    assert_eq!(Hello::decode(&out), Ok(Some((naming_hello(), out.len()))));
    // It fits beside the longest claim.
    let samples = vec![Sample { start: MAX_CLAIMED, len: 1 << 20, digest: 7 }; 64];
    let claim = LogClaim { epoch: 1, start: 0, end: MAX_CLAIMED, highest: MAX_CLAIMED, samples };
    let probe = Probe { request: u64::MAX, chunks: vec![(Name([7; 20]), 65_536); MAX_PROBES] };
    let longest =
        Hello { claim: Some(claim), probe: Some(probe), short_names_below: u32::MAX, ..naming_hello() };
    let longest = Hello { group_proof: Some(GroupProof([0xee; 32])), ..longest };
    let out = bytes(&longest);
    assert_eq!(Hello::decode(&out), Ok(Some((longest, out.len()))));
}

#[test]
fn hello_takes_short_names_with_or_without_chunks() {
    let probe = Probe { request: 3, chunks: vec![(Name([7; 20]), 300)] };
    for probe in [None, Some(probe)] {
        let without = Hello { probe, ..naming_hello() };
        let with = Hello { short_names_below: 300, ..without.clone() };
        let out = bytes(&with);
        assert!(hex(&out).ends_with(if without.probe.is_none() { "00ac02" } else { "ac02ac02" }));
        assert_eq!(Hello::decode(&out), Ok(Some((with, out.len()))));
    }
}

#[test]
fn group_proof_stands_behind_all_older_fields() {
    let proof = GroupProof([0xab; 32]);
    for (short_names_below, before) in [(0, "0000"), (300, "00ac02")] {
        let hello = Hello { short_names_below, group_proof: Some(proof), ..naming_hello() };
        let mut out = bytes(&hello);
        assert!(hex(&out).ends_with(&format!("7f{before}01{}", "ab".repeat(32))), "{}", hex(&out));
        assert_eq!(Hello::decode(&out), Ok(Some((hello, out.len()))));
        let at = out.len() - 33;
        out[at] = 2;
        assert_eq!(Hello::decode(&out), Err(WireError::Invalid("group proof").into()));
        out[at..at + 2].fill(0);
        let without = Hello { short_names_below, ..naming_hello() };
        assert_eq!(Hello::decode(&out), Ok(Some((without, out.len()))), "fields to come are passed over");
    }
}

#[test]
fn a_short_name_needs_a_strong_digest() {
    let block = |digest, name| {
        let names = vec![NameEntry { at: 0, len: 5, level: 1, name, behind: None }];
        let body = Body {
            epoch: 1,
            start: 0,
            remembered: true,
            keep: false,
            names,
            digest,
            tokens: None,
            literals: 0,
            entropy: None,
            bytes: b"",
        };
        let (flow, body) = (FlowId(1), BlockBody::Coded(body));
        let block = Block { seq: 0, flow, offset: 0, plain_len: 5, fin: false, resent: false, body };
        let mut out = Vec::new();
        Frame::Block(block).encode(&mut out);
        decode(&out).map(drop)
    };
    let (full, short) = (ChunkName::Full(Name([7; 20])), ChunkName::Short(7));
    let unproved = WireError::Invalid("short name in a block without a strong digest");
    assert_eq!(block(Digest::Fast(1), full), Ok(()));
    assert_eq!(block(Digest::Strong([1; 16]), full), Ok(()));
    assert_eq!(block(Digest::Strong([1; 16]), short), Ok(()));
    assert_eq!(block(Digest::Fast(1), short), Err(unproved));
}

#[test]
fn chunks_in_a_row_need_no_gaps() {
    let short = |at, len| NameEntry { at, len, level: 3, name: ChunkName::Short(at.into()), behind: None };
    let full = |at, len| NameEntry { name: ChunkName::Full(Name([9; 20])), ..short(at, len) };
    let behind = |at, len| NameEntry { behind: NonZeroU32::new(5), ..short(at, len) };
    // Each with the bytes that gaps, lengths, levels and distances take.
    for (entries, len) in [
        (vec![short(0, 100), short(100, 100), short(200, 100)], 1 + 3 * 2),
        (vec![short(0, 100), short(101, 100), short(201, 100)], 2 + 3 * 2),
        (vec![short(5, 100), full(105, 100), short(205, 100)], 2 + 3 * 2),
        (vec![behind(0, 100), short(100, 100), behind(250, 5)], 2 + 3 * 2 + 2),
    ] {
        let names: usize = entries.iter().map(|entry| if entry.name.is_short() { 6 } else { 20 }).sum();
        let mut out = Vec::new();
        encode_entries(&entries, &mut out);
        assert_eq!(out.len(), 1 + len + names, "{entries:?}");
        let mut reader = Reader::new(&out);
        assert_eq!(decode_entries(&mut reader, 1000), Ok(entries.clone()));
        assert!(reader.is_empty());
        // The last one has to lie within the block all the same.
        let end = entries.last().map_or(0, NameEntry::end);
        assert_eq!(decode_entries(&mut Reader::new(&out), end).map(|entries| entries.len()), Ok(3));
        let beyond = decode_entries(&mut Reader::new(&out), end - 1);
        assert_eq!(beyond, Err(WireError::Invalid("length of a chunk")));
    }
    // Behind the last one nothing is left out, and the bit means nothing with a full name: its level has it.
    let mut out = Vec::new();
    encode_entries(&[short(0, 100)], &mut out);
    out[3] |= 32;
    assert_eq!(decode_entries(&mut Reader::new(&out), 1000), Ok(vec![short(0, 100)]));
    out.clear();
    encode_entries(&[full(0, 100), full(100, 100)], &mut out);
    out[3] |= 32;
    let level = NameEntry { level: 35, ..full(0, 100) };
    assert_eq!(decode_entries(&mut Reader::new(&out), 1000), Ok(vec![level, full(100, 100)]));
}

#[test]
fn another_version_is_named_and_its_fields_are_not_read() {
    let mut out = bytes(&hello());
    out[8..12].copy_from_slice(&[9, 0, 7, 0]);
    assert_eq!(Hello::decode(&out[..12]), Err(HelloError::Version { oldest: 7, newest: 9 }));
    let told = HelloError::Version { oldest: 7, newest: 9 }.to_string();
    assert_eq!(told, "peer speaks protocol versions 7 to 9, this build speaks 1 to 3; update the older one");
    // A later version that still speaks ours may say more than we know.
    out[12] += 8;
    out.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 3]);
    for version in [2, 3, 4] {
        out[8..12].copy_from_slice(&[version, 0, 1, 0]);
        assert_eq!(Hello::decode(&out), Ok(Some((Hello { version: version.into(), ..hello() }, out.len()))));
    }
    // A range ending before it starts is no version at all.
    out[8..12].copy_from_slice(&[1, 0, 2, 0]);
    assert_eq!(Hello::decode(&out), Err(HelloError::Version { oldest: 2, newest: 1 }));
}

#[test]
fn wrong_hello_is_refused_by_its_first_wrong_byte() {
    assert_eq!(Hello::decode(b"GET / HTTP/1.1\r\n"), Err(HelloError::NotOurs));
    assert_eq!(Hello::decode(b"onceWire"), Err(HelloError::NotOurs));
    let mut long = bytes(&hello());
    long.splice(12..13, [0xff, 0x7f]);
    assert_eq!(Hello::decode(&long), Err(WireError::TooLong(16383).into()));
    let mut trailing = bytes(&hello());
    trailing[12] += 1;
    trailing.push(0);
    assert_eq!(Hello::decode(&trailing), Err(WireError::Trailing(1).into()));
}

#[test]
fn frames_are_these_bytes() {
    let open = Open {
        id: 5,
        destination: Destination { host: Host::Name("a.example".into()), port: 80 },
        source: None,
        coded: true,
        as_client: false,
        credit_shift: 0,
    };
    let as_client = Open {
        destination: SocketAddr::from(([10, 0, 0, 1], 80)).into(),
        source: Some(SocketAddr::from(([10, 1, 0, 2], 4000))),
        as_client: true,
        ..open.clone()
    };
    let small = Open { credit_shift: 5, ..as_client.clone() };
    let body = Body {
        epoch: 1,
        start: 300,
        remembered: true,
        keep: false,
        names: Vec::new(),
        digest: Digest::Fast(2),
        tokens: Some(3),
        literals: 1,
        entropy: None,
        bytes: &[0, 4, 200, b'x'],
    };
    let block = Block {
        seq: 7,
        flow: FlowId(2),
        offset: 1000,
        plain_len: 5,
        fin: true,
        resent: false,
        body: BlockBody::Coded(body.clone()),
    };
    let message = Message::Open(open);
    let entry = |at, len, level, behind| {
        let (name, behind) = (ChunkName::Full(Name([level + 0xa0; 20])), NonZeroU32::new(behind));
        NameEntry { at, len, level, name, behind }
    };
    let named = Body {
        keep: true,
        names: vec![entry(1, 300, 0, 0), entry(301, 128, 2, 300), entry(500, 100, 1, 0)],
        tokens: None,
        literals: 72,
        entropy: Some((Kind::Lz4, Mode::Alone)),
        bytes: b"...",
        ..body.clone()
    };
    let short = |at, level, behind| NameEntry {
        name: ChunkName::Short(0x0605_0403_0403_a000 + u64::from(level)),
        ..entry(at, 100, level, behind)
    };
    let large = NameEntry { len: 5000, name: ChunkName::Short(0x0605_0403_0201_a001), ..short(600, 1, 0) };
    let named_short = Body {
        digest: Digest::Strong(*b"0123456789abcdef"),
        names: vec![short(0, 3, 0), short(100, 2, 300), entry(500, 100, 0, 0), large],
        literals: 300,
        ..named.clone()
    };
    let strong = Body { digest: Digest::Strong(*b"0123456789abcdef"), ..body.clone() };
    let compressed = Body { entropy: Some((Kind::Zstd, Mode::Next(3))), ..body };
    let golden = [
        (Frame::Block(block.clone()), "10181d0702e80705 01ac020200000000000000030100 0004c878"),
        (
            Frame::Block(Block { body: BlockBody::Coded(compressed), ..block.clone() }),
            "10191d0702e80705 01ac02020000000000000003010403 0004c878",
        ),
        (
            Frame::Block(Block { body: BlockBody::Coded(strong), ..block.clone() }),
            "10203d0702e80705 01ac0230313233343536373839616263646566030100 0004c878",
        ),
        (
            Frame::Block(Block { plain_len: 600, body: BlockBody::Coded(named), ..block.clone() }),
            "1060cd0702e807d804 01ac020200000000000000 \
             0301ac0200a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0 \
             00800182a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2ac02 \
             476401a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1 012e2e2e",
        ),
        (
            Frame::Block(Block { plain_len: 5600, body: BlockBody::Coded(named_short), ..block.clone() }),
            "1056ed0702e807e02b 01ac0230313233343536373839616263646566 \
             04 00647303a003040506 64d202a003040506ac02 \
             ac026400a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0 0088274101a0010203040506 012e2e2e",
        ),
        (
            Frame::Block(Block { plain_len: 2, body: BlockBody::Uncoded(b"hi"), ..block }),
            "1008010702e80702 6869",
        ),
        (
            Frame::Message { seq: 1, flow: FlowId(4), message },
            "112101040500000000000000000000000000000001 0309612e6578616d706c655000 00",
        ),
        (
            Frame::Message { seq: 1, flow: FlowId(4), message: Message::Open(as_client) },
            "112101040500000000000000000000000000000003 010a0000015000 010a010002a00f",
        ),
        (
            Frame::Message { seq: 1, flow: FlowId(4), message: Message::Open(small) },
            "112101040500000000000000000000000000000017 010a0000015000 010a010002a00f",
        ),
        (Frame::Ack(Ack { next: 4, ranges: vec![6..9, 10..11] }), "20060402 0203 0101"),
        (Frame::Need(vec![100..164, 170..171]), "2105 02 6440 0601"),
        (Frame::Credit { flow: FlowId(2), limit: 300 }, "240302ac02"),
        (Frame::LogHeld(LogHeld { serial: 3, epoch: 2, oldest: 300, limit: 1 << 20 }), "25070302ac02808040"),
        (
            Frame::SavingsCurve(SavingsCurve { serial: 1, limit: 1 << 20, curve: vec![5, 0, 300] }),
            "26090180804003 0500ac02",
        ),
        (
            Frame::ChunkRequest(ChunkRequest { seq: 300, reason: ChunkReason::Shed, indexes: vec![0, 1, 9] }),
            "2707ac0201 03000007",
        ),
        (
            Frame::Chunks(Chunks { seq: 300, indexes: vec![4], entropy: Some(Kind::Zstd), bytes: b"hi" }),
            "2807ac020104 026869",
        ),
        (Frame::StoreHeld(StoreHeld { serial: 2, taking: true, age_secs: 3600 }), "29040201901c"),
        (Frame::More(More { after: 300, plain: b"hi" }), "1404ac026869"),
        (Frame::Acked(0), "2a0100"),
        (Frame::Acked(300), "2a02ac02"),
        (Frame::Ping(1), "30080100000000000000"),
        (
            Frame::Networks(Networks {
                serial: 2,
                networks: vec!["10.0.0.0/8".parse().unwrap(), "2001:db8::/32".parse().unwrap()],
            }),
            "811a 0202 010a00000008 0220010db8000000000000000000000000 20",
        ),
        (Frame::Draining, "8200"),
        (
            Frame::Probe(Probe { request: 300, chunks: vec![(Name([7; 20]), 65_536), (Name([8; 20]), 5)] }),
            "832f ac0202 0707070707070707070707070707070707070707808004 080808080808080808080808080808080808080805",
        ),
        (
            Frame::Probed(Probed {
                request: 3,
                held: vec![true, false, true, true, false, false, false, false, true],
            }),
            "8404 0309 0d01",
        ),
        (Frame::LaneWorn, "8500"),
        (Frame::LaneLeft, "8600"),
        (Frame::KeepAlive(KeepAlive { flow: FlowId(4), seconds: 300 }), "870304ac02"),
        (Frame::KeepAlive(KeepAlive { flow: FlowId(4), seconds: 0 }), "87020400"),
        (
            Frame::Message { seq: 2, flow: FlowId(4), message: Message::Opened(Err(OpenFailure::Draining)) },
            "1203020407",
        ),
        (reset(None), "1303020401"),
        (reset(Some(300)), "1305020401ac02"),
    ];
    for (frame, expected) in golden {
        let mut out = Vec::new();
        frame.encode(&mut out);
        assert_eq!(hex(&out), expected.replace(' ', ""), "{frame:?}");
        assert_eq!(decode(&out), Ok(frame));
    }
}

fn reset(behind: Option<u64>) -> Frame<'static> {
    let message = Message::Reset(Reset { reason: ResetReason::Application, behind });
    Frame::Message { seq: 2, flow: FlowId(4), message }
}

#[test]
fn wrong_frames_name_their_fault() {
    let name_of_65537 = [&[0x83, 25, 4, 1][..], &[0; 20], &[0x81, 0x80, 4]].concat();
    let cases: [(&[u8], WireError); 53] = [
        (&[0x14, 1, 1], WireError::Invalid("plain length")),
        (&[0x14, 2, 0, 7], WireError::Invalid("sequence number")),
        (&[0x2a, 0], WireError::Short("acknowledgement")),
        (&[0x2a, 2, 0, 0], WireError::Trailing(1)),
        (&[0x13, 4, 2, 4, 1, 0x80], WireError::Short("bytes before a reset")),
        (&[0x13, 5, 2, 4, 1, 0, 0], WireError::Trailing(1)),
        (&[0x99, 0], WireError::UnknownType(0x99)),
        (&[0x30, 0xff, 0xff, 0x7f], WireError::TooLong(0x1f_ffff)),
        (&[0x30, 0xff, 0xff, 0xff, 0xff], WireError::Invalid("frame length")),
        (&[0x30, 2, 1, 2], WireError::Short("ping")),
        (&[0x24, 3, 1, 1, 1], WireError::Trailing(1)),
        (&[0x10, 6, 0, 1, 1, 0, 0x81, 0x80], WireError::Short("plain length")),
        (&[0x10, 7, 0, 1, 1, 0, 0x81, 0x80, 0x04], WireError::Invalid("plain length")),
        (&[0x10, 5, 64, 1, 1, 0, 0], WireError::Invalid("block flags")),
        (&[0x10, 5, 128, 1, 1, 0, 0], WireError::Invalid("block flags")),
        (&[0x10, 16, 68, 1, 1, 0, 9, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0], WireError::Invalid("count of names")),
        (
            &[0x10, 18, 68, 1, 1, 0, 9, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0],
            WireError::Invalid("length of a chunk"),
        ),
        (
            &[0x10, 18, 68, 1, 1, 0, 9, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 9],
            WireError::Invalid("length of a chunk"),
        ),
        (&[0x10, 19, 68, 1, 1, 0, 9, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 8, 1], WireError::Short("name")),
        (
            &[
                0x10, 40, 68, 1, 1, 0, 9, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 8, 128, 5, 5, 5, 5, 5, 5, 5, 5,
                5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 0,
            ],
            WireError::Invalid("distance of a block"),
        ),
        (&[0x27, 2, 1, 2], WireError::Invalid("reason of a chunk request")),
        (&[0x27, 3, 1, 0, 0], WireError::Invalid("count of chunks")),
        (&[0x27, 6, 1, 0, 2, 0xff, 7, 0], WireError::Invalid("index of a chunk")),
        (&[0x28, 4, 1, 1, 0, 3], WireError::Invalid("entropy stage")),
        (&[0x29, 3, 1, 2, 0], WireError::Invalid("state of a store")),
        (&[0x10, 5, 32, 1, 1, 0, 0], WireError::Invalid("block flags")),
        (&[0x10, 17, 36, 1, 1, 0, 0, 1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0], WireError::Short("digest")),
        (&[0x10, 6, 0, 1, 1, 0, 2, 9], WireError::Invalid("length of an uncoded block")),
        (&[0x21, 3, 1, 5, 0], WireError::Invalid("range")),
        (&[0x25, 3, 1, 5, 0], WireError::Short("log limit")),
        (&[0x26, 3, 1, 5, 17], WireError::Invalid("count of sizes")),
        (&[0x26, 4, 1, 5, 2, 1], WireError::Short("worth")),
        (&[0x12, 3, 2, 4, 8], WireError::Invalid("answer to an open")),
        (&[0x82, 1, 0], WireError::Trailing(1)),
        (&[0x83, 2, 1, 0], WireError::Invalid("count of probes")),
        (&[0x83, 2, 1, 17], WireError::Invalid("count of probes")),
        (&[0x83, 3, 1, 16, 5], WireError::Short("name")),
        (&name_of_65537, WireError::Invalid("length of a chunk")),
        (&[0x84, 2, 1, 0], WireError::Invalid("count of probes")),
        (&[0x84, 5, 1, 17, 0, 0, 0], WireError::Invalid("count of probes")),
        (&[0x84, 3, 1, 9, 0], WireError::Short("bitmap")),
        (&[0x85, 1, 0], WireError::Trailing(1)),
        (&[0x86, 1, 0], WireError::Trailing(1)),
        (&[0x87, 2, 4, 0x80], WireError::Short("keep-alive")),
        (&[0x87, 4, 4, 0x80, 0x80, 2], WireError::Invalid("keep-alive")),
        (&[0x87, 3, 4, 1, 0], WireError::Trailing(1)),
        (&[0x84, 3, 1, 3, 8], WireError::Invalid("bitmap")),
        (&[0x81, 3, 1, 0x81, 2], WireError::Invalid("count of networks")),
        (&[0x81, 8, 1, 1, 1, 10, 1, 0, 0, 8], WireError::Invalid("network")),
        (&[0x81, 8, 1, 1, 1, 10, 1, 0, 0, 33], WireError::Invalid("network")),
        (&[0x81, 7, 1, 1, 3, 10, 0, 0, 0], WireError::Invalid("kind of address")),
        (
            &[0x81, 20, 1, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 0, 104],
            WireError::Invalid("network"),
        ),
        (
            &[0x11, 19, 1, 4, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32],
            WireError::Invalid("flags of an open"),
        ),
    ];
    for (frame, error) in cases {
        assert_eq!(decode(frame), Err(error), "{frame:?}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_the_parsers_panic(input in prop::collection::vec(any::<u8>(), 0..300), kind in 0u8..0xa0) {
        let _ = Hello::decode(&input);
        let _ = Frame::decode(kind, &input);
        if let Ok(Some((_, _, used))) = take_frame(&input) {
            prop_assert!(used <= input.len());
        }
    }
}

#[test]
fn log_behind_a_block_can_be_claimed_and_continued() {
    let block = |epoch, start| {
        let body = Body {
            epoch,
            start,
            remembered: true,
            keep: false,
            names: Vec::new(),
            digest: Digest::Fast(1),
            tokens: None,
            literals: 1,
            entropy: None,
            bytes: b"x",
        };
        let (flow, body) = (FlowId(1), BlockBody::Coded(body));
        let block = Block { seq: 0, flow, offset: 0, plain_len: 1, fin: false, resent: false, body };
        let mut out = Vec::new();
        Frame::Block(block).encode(&mut out);
        decode(&out).map(drop)
    };
    assert_eq!(block(MAX_LOG_NUMBER, MAX_LOG_NUMBER), Ok(()));
    assert_eq!(block(MAX_LOG_NUMBER + 1, 0), Err(WireError::Invalid("epoch")));
    assert_eq!(block(0, MAX_LOG_NUMBER + 1), Err(WireError::Invalid("log offset")));
    let claiming = |epoch, highest| {
        let claim = Some(LogClaim { epoch, start: 0, end: 5, highest, samples: Vec::new() });
        Hello::decode(&bytes(&Hello { claim, ..hello() })).map(drop)
    };
    assert_eq!(claiming(MAX_CLAIMED, MAX_CLAIMED), Ok(()));
    assert_eq!(claiming(MAX_CLAIMED + 1, 5), Err(WireError::Invalid("epoch").into()));
    assert_eq!(claiming(1, MAX_CLAIMED + 1), Err(WireError::Invalid("claim").into()));
    // An epoch above the claimed one, and a block behind the highest offset, are within what a block may say.
    assert!(MAX_CLAIMED < MAX_LOG_NUMBER - MAX_BLOCK as u64);
}
