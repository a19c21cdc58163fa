use proptest::prelude::*;

use super::*;

const STAGES: [Entropy; 4] = [Entropy::None, Entropy::Lz4, Entropy::Zstd(1), Entropy::Zstd(3)];

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2) | 1;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    })
    .take(len)
    .collect()
}

fn text(seed: u64, len: usize) -> Vec<u8> {
    let words = ["once ", "upon ", "a ", "wire ", "every ", "byte ", "is ", "sent ", "\n"];
    let choices = noise(seed, len);
    choices.iter().flat_map(|choice| words[usize::from(*choice) % 9].bytes()).take(len).collect()
}

/// A compressor and its decompressor, the blocks across, and those as they were.
struct Pair {
    compressor: Compressor,
    decompressor: Decompressor,
    plain: usize,
    wire: usize,
    sent_plain: usize,
}

impl Pair {
    fn new(entropy: Entropy, slots: usize) -> Self {
        let (compressor, decompressor) = (Compressor::new(entropy, slots), Decompressor::new(slots));
        Self { compressor, decompressor, plain: 0, wire: 0, sent_plain: 0 }
    }

    fn send(&mut self, mode: Mode, plain: &[u8]) {
        self.plain += plain.len();
        let mut wire = b"kept".to_vec();
        if !self.compressor.compress(mode, plain, &mut wire) {
            assert_eq!(wire, b"kept");
            self.wire += plain.len();
            self.sent_plain += 1;
            return;
        }
        let body = &wire[4..];
        self.wire += body.len();
        match mode {
            Mode::Alone => assert!(body.len() < plain.len()),
            _ => assert!(
                body.len() <= plain.len() + plain.len() / 1000 + 8,
                "{} of {}",
                body.len(),
                plain.len()
            ),
        }
        let mut out = b"kept".to_vec();
        let kind = self.compressor.entropy().kind().unwrap();
        self.decompressor.decompress(kind, mode, body, plain.len(), &mut out).unwrap();
        assert!(out == [&b"kept"[..], plain].concat());
    }

    /// As a sender does that asks whether the slot has begun.
    fn send_streamed(&mut self, slot: usize, plain: &[u8]) {
        let begun = self.compressor.has_begun(slot);
        self.send(if begun { Mode::Next(slot) } else { Mode::First(slot) }, plain);
    }
}

fn begun(blocks: usize) -> (Pair, Vec<u8>) {
    let mut pair = Pair::new(Entropy::Zstd(1), 2);
    for block in 0..blocks {
        pair.send_streamed(0, &text(block as u64, 3000));
    }
    let mut body = Vec::new();
    assert!(pair.compressor.compress(Mode::Next(0), &text(99, 3000), &mut body));
    (pair, body)
}

fn decompress(pair: &mut Pair, mode: Mode, body: &[u8], plain_len: usize) -> Result<(), EntropyError> {
    let mut out = Vec::new();
    let result = pair.decompressor.decompress(Kind::Zstd, mode, body, plain_len, &mut out);
    assert_eq!(out.len(), if result.is_ok() { plain_len } else { 0 });
    result
}

#[test]
fn names_are_read_as_they_are_written() {
    for (name, entropy) in [
        ("none", Entropy::None),
        ("lz4", Entropy::Lz4),
        ("zstd:1", Entropy::Zstd(1)),
        ("zstd:19", Entropy::Zstd(19)),
    ] {
        assert_eq!(name.parse(), Ok(entropy));
        assert_eq!(entropy.to_string(), name);
    }
    for name in ["", "zstd", "zstd:", "zstd:0", "zstd:20", "zstd:-1", "zstd:3 ", "LZ4", "gzip"] {
        assert_eq!(name.parse::<Entropy>(), Err(ParseEntropyError), "{name}");
    }
}

#[test]
fn a_stream_is_smaller_than_its_blocks_alone() {
    let (mut alone, mut streamed) = (Pair::new(Entropy::Zstd(3), 0), Pair::new(Entropy::Zstd(3), 1));
    for block in 0..50 {
        let message = [&text(block, 200)[..], &noise(block / 2, 40)].concat();
        alone.send(Mode::Alone, &message);
        streamed.send_streamed(0, &message);
    }
    assert!(streamed.wire * 10 < alone.wire * 9, "{} {}", streamed.wire, alone.wire);
}

#[test]
fn noise_is_sent_as_it_is_and_harms_no_stream() {
    for entropy in STAGES {
        let mut pair = Pair::new(entropy, 1);
        for block in 0..20 {
            pair.send_streamed(0, &text(block, 20_000));
            let before = pair.sent_plain;
            for len in [600, 1025, 1500, 5000, 65_536] {
                pair.send(Mode::Next(0), &noise(block + 5, len));
                pair.send(Mode::Alone, &noise(block, len));
            }
            assert_eq!(pair.sent_plain, before + 10, "{entropy}");
        }
    }
}

#[test]
fn repeated_noise_is_compressed() {
    let block = noise(1, 700).repeat(20);
    for entropy in STAGES.into_iter().skip(1) {
        let mut pair = Pair::new(entropy, 1);
        pair.send(Mode::Alone, &block);
        pair.send(Mode::First(0), &block);
        assert!(pair.wire < 4000, "{entropy} {}", pair.wire);
    }
}

#[test]
fn stream_without_a_start_does_not_go_on() {
    let mut pair = Pair::new(Entropy::Zstd(1), 1);
    let mut out = Vec::new();
    assert!(!pair.compressor.compress(Mode::Next(0), &text(1, 1000), &mut out), "never begun");
    pair.send(Mode::First(0), &text(1, 1000));
    assert!(pair.compressor.has_begun(0));
    assert!(!pair.compressor.compress(Mode::First(0), &noise(1, 5000), &mut out));
    assert!(!pair.compressor.has_begun(0), "a first block that was not compressed ends what was there");
    assert!(!pair.compressor.compress(Mode::Next(0), &text(1, 1000), &mut out));
    pair.send(Mode::First(0), &text(1, 1000));
    pair.compressor.release(0);
    assert!(!pair.compressor.compress(Mode::Next(0), &text(1, 1000), &mut out), "released");
    assert!(!pair.compressor.compress(Mode::First(1), &text(1, 1000), &mut out), "no such slot");
    assert!(out.is_empty());
}

#[test]
fn nothing_and_too_much_are_not_compressed() {
    for entropy in STAGES {
        let mut compressor = Compressor::new(entropy, 1);
        let mut out = Vec::new();
        for mode in [Mode::Alone, Mode::First(0)] {
            assert!(!compressor.compress(mode, &[], &mut out));
            assert!(!compressor.compress(mode, &vec![0; MAX_PLAIN + 1], &mut out));
            assert!(!compressor.compress(mode, b"tiny", &mut out));
        }
        assert!(out.is_empty());
    }
}

#[test]
fn the_longest_block_crosses() {
    for entropy in STAGES {
        let mut pair = Pair::new(entropy, 1);
        for content in [vec![0; MAX_PLAIN], text(1, MAX_PLAIN), noise(1, MAX_PLAIN)] {
            pair.send(Mode::Alone, &content);
            pair.send_streamed(0, &content);
            pair.send_streamed(0, &content);
        }
    }
}

#[test]
fn a_slot_is_out_of_step_until_it_begins() {
    let (mut pair, body) = begun(2);
    assert_eq!(decompress(&mut pair, Mode::Next(1), &body, 3000), Err(EntropyError::OutOfStep { slot: 1 }));
    assert_eq!(
        decompress(&mut pair, Mode::Next(2), &body, 3000),
        Err(EntropyError::NoSuchSlot { slot: 2, slots: 2 })
    );
    assert_eq!(decompress(&mut pair, Mode::Next(0), &body, 3000), Ok(()));
    let (mut pair, body) = begun(2);
    assert_eq!(decompress(&mut pair, Mode::Next(0), b"\xff\xff\xff", 3000), Err(EntropyError::Malformed));
    assert_eq!(decompress(&mut pair, Mode::Next(0), &body, 3000), Err(EntropyError::OutOfStep { slot: 0 }));
    pair.send(Mode::First(0), &text(5, 1000));
    pair.send(Mode::Next(0), &text(6, 1000));
    pair.decompressor.release(0);
    assert_eq!(decompress(&mut pair, Mode::Next(0), &body, 3000), Err(EntropyError::OutOfStep { slot: 0 }));
}

#[test]
fn a_wrong_length_is_an_error_in_every_mode() {
    for wrong in [0, 2999, 3001, MAX_PLAIN] {
        let (mut pair, body) = begun(2);
        let result = decompress(&mut pair, Mode::Next(0), &body, wrong);
        assert_eq!(result, Err(EntropyError::WrongLength { plain_len: wrong }));
        for entropy in [Entropy::Lz4, Entropy::Zstd(1)] {
            let mut body = Vec::new();
            assert!(Compressor::new(entropy, 0).compress(Mode::Alone, &text(1, 3000), &mut body));
            let kind = entropy.kind().unwrap();
            let mut out = Vec::new();
            assert!(Decompressor::new(0).decompress(kind, Mode::Alone, &body, wrong, &mut out).is_err());
            assert!(out.is_empty());
        }
    }
    let (mut pair, body) = begun(1);
    let plain_len = MAX_PLAIN + 1;
    let result = decompress(&mut pair, Mode::Next(0), &body, plain_len);
    assert_eq!(result, Err(EntropyError::PlainTooLong { plain_len }));
}

#[test]
fn trailing_and_missing_input_are_errors() {
    for extra in [&[0][..], &[0, 0], &[4, 0, 0, 0]] {
        let (mut pair, body) = begun(2);
        let body = [&body[..], extra].concat();
        assert!(decompress(&mut pair, Mode::Next(0), &body, 3000).is_err(), "{extra:?}");
    }
    let (_, body) = begun(2);
    for len in 0..body.len() {
        let (mut pair, body) = begun(2);
        assert!(decompress(&mut pair, Mode::Next(0), &body[..len], 3000).is_err(), "{len}");
    }
    let mut body = Vec::new();
    assert!(Compressor::new(Entropy::Zstd(1), 0).compress(Mode::Alone, &text(1, 3000), &mut body));
    let skippable = [&body[..], &[0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0]].concat();
    let second = [&body[..], &MAGIC, &[0x20, 0, 1, 0, 0]].concat();
    for body in [&skippable[..], &second, &body[..body.len() - 1], &[]] {
        let result = decompress(&mut Pair::new(Entropy::None, 0), Mode::Alone, body, 3000);
        assert_eq!(result, Err(EntropyError::Malformed));
    }
}

#[test]
fn a_stream_may_not_end() {
    let mut pair = Pair::new(Entropy::None, 1);
    // A frame with a window of 1 KiB and one last block, raw, of two bytes.
    let ended = [0, 0, 0x11, 0, 0, b'h', b'i'];
    assert_eq!(decompress(&mut pair, Mode::First(0), &ended, 2), Err(EntropyError::Malformed));
    assert_eq!(decompress(&mut pair, Mode::Alone, &ended, 2), Ok(()));
    let going_on = [0, 0, 0x10, 0, 0, b'h', b'i'];
    assert_eq!(decompress(&mut pair, Mode::First(0), &going_on, 2), Ok(()));
    assert_eq!(decompress(&mut pair, Mode::Next(0), &going_on[2..], 2), Ok(()));
}

#[test]
fn windows_beyond_the_limit_are_refused() {
    let mut pair = Pair::new(Entropy::None, 1);
    let frame = |window_log: u8| [0, (window_log - 10) << 3, 0x10, 0, 0, b'h', b'i'];
    assert_eq!(decompress(&mut pair, Mode::First(0), &frame(20), 2), Ok(()));
    for window_log in [21, 27, 31, 41] {
        let result = decompress(&mut pair, Mode::First(0), &frame(window_log), 2);
        assert_eq!(result, Err(EntropyError::Malformed), "{window_log}");
    }
    let memory = pair.decompressor.memory();
    assert!(memory < 2 << 20, "{memory}");
}

#[test]
fn memory_is_counted_and_given_back() {
    let mut pair = Pair::new(Entropy::Zstd(3), 8);
    let empty = (pair.compressor.memory(), pair.decompressor.memory());
    assert!(empty.0 < 40_000 && empty.1 < 1000, "{empty:?}");
    for slot in 0..8 {
        pair.send_streamed(slot, &text(1, 60_000));
    }
    let full = (pair.compressor.memory(), pair.decompressor.memory());
    assert!((8 << 20..24 << 20).contains(&full.0), "{full:?}");
    assert!((8 << 20..12 << 20).contains(&full.1), "{full:?}");
    for slot in 0..8 {
        pair.compressor.release(slot);
        pair.decompressor.release(slot);
    }
    assert!(pair.compressor.memory() < 1 << 20 && pair.decompressor.memory() < 1 << 20);
}

#[test]
fn contexts_take_no_more_than_is_reckoned_with() {
    let stages = LEVELS.map(Entropy::Zstd).chain([Entropy::None, Entropy::Lz4]);
    let mut wrong = Vec::new();
    for entropy in stages {
        let mut pair = Pair::new(entropy, 2);
        let taken = |pair: &Pair| (pair.compressor.memory() + pair.decompressor.memory()) as u64;
        let empty = taken(&pair);
        pair.send(Mode::Alone, &text(1, MAX_PLAIN));
        pair.send(Mode::Alone, &noise(1, MAX_PLAIN));
        let alone = taken(&pair) - empty;
        if alone > entropy.alone_memory() {
            wrong.push(format!("{entropy}: {alone} bytes alone"));
        }
        for slot in 0..2 {
            (0..2).for_each(|seed| pair.send_streamed(slot, &text(seed, MAX_PLAIN)));
            let streams = taken(&pair) - empty - alone;
            let reckoned = (slot as u64 + 1) * entropy.stream_memory();
            if streams > reckoned {
                wrong.push(format!("{entropy}: {streams} bytes for {} streams", slot + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn decoding_blocks_alone_takes_no_more_than_is_reckoned_with() {
    let mut most = 0;
    for level in LEVELS {
        let mut pair = Pair::new(Entropy::Zstd(level), 0);
        for plain in [text(1, MAX_PLAIN), [noise(1, MAX_PLAIN - 9000), vec![0; 9000]].concat()] {
            pair.send(Mode::Alone, &plain);
            // A stream nobody granted takes nothing.
            assert!(decompress(&mut pair, Mode::First(0), &[0, 0, 0x10, 0, 0, b'h', b'i'], 2).is_err());
        }
        assert!(pair.wire > MAX_PLAIN - 9000, "both were decoded: {}", pair.wire);
        most = most.max(pair.decompressor.memory() as u64);
    }
    assert!(most <= Entropy::DECODING_ALONE && most > Entropy::DECODING_ALONE / 2, "{most}");
}

/// A block of text, noise, zeros or nothing in up to three parts.
fn block() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let part = (0u8..5, any::<u64>(), 0usize..5000).prop_map(|(kind, seed, len)| match kind {
        0 => noise(seed, len),
        1 => vec![seed as u8; len],
        2 => noise(seed % 4, len),
        _ => text(seed % 100, len),
    });
    prop::collection::vec(part, 0..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn compressed_bytes_are_decompressed(
        stage in 0usize..4,
        blocks in prop::collection::vec((0u8..12, 0usize..3, block()), 1..30),
    ) {
        let mut pair = Pair::new(STAGES[stage], 3);
        for (action, slot, parts) in blocks {
            let block = parts.concat();
            match action {
                0 => pair.compressor.release(slot),
                1 => pair.send(Mode::First(slot), &block),
                2..4 => pair.send(Mode::Alone, &block),
                4 => pair.send(Mode::Next(slot), &block),
                _ => pair.send_streamed(slot, &block),
            }
        }
    }

    #[test]
    fn hostile_bodies_are_bounded_and_do_not_panic(
        bodies in prop::collection::vec((
            prop::collection::vec(any::<u8>(), 0..200), 0usize..200_000, 0u8..3, any::<bool>(), 0usize..3,
        ), 1..20),
        flip in any::<(usize, u8)>(),
    ) {
        let (mut pair, mut body) = begun(1);
        let place = flip.0 % body.len();
        body[place] ^= flip.1;
        let mut out = Vec::new();
        let _ = pair.decompressor.decompress(Kind::Zstd, Mode::Next(0), &body, 3000, &mut out);
        for (body, plain_len, mode, lz4, slot) in bodies {
            let mode = [Mode::Alone, Mode::First(slot), Mode::Next(slot)][usize::from(mode)];
            let before = out.len();
            let kind = if lz4 { Kind::Lz4 } else { Kind::Zstd };
            let result = pair.decompressor.decompress(kind, mode, &body, plain_len, &mut out);
            prop_assert_eq!(out.len(), before + if result.is_ok() { plain_len } else { 0 });
            let too_long = Err(EntropyError::PlainTooLong { plain_len });
            prop_assert!(plain_len <= MAX_PLAIN || result == too_long);
        }
    }
}
