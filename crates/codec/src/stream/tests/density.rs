//! Content with mostly short repeats, and content without, by the default period and finer ones.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

use super::verify::{Halves, noise, sender_config};
use crate::Plan;
use crate::contract::Decoder as _;
use crate::endre::matcher::MatchParams;
use crate::entropy::Entropy;
use crate::stream::{Sender, SenderConfig};

/// The default.
const LOG: u64 = 64 << 20;
const BLOCK: usize = 64 << 10;

/// What became of a second stream behind a first one.
#[derive(Clone, Copy, Debug)]
struct Crossed {
    /// The part found.
    found: f64,
    /// Bytes on the wire for each of the stream.
    wire: f64,
}

/// Nothing but the search for repeats, with this period.
fn uncompressed(period: u32) -> Plan {
    Plan { entropy: Entropy::None, period, ..Plan::default() }
}

/// Sends both streams with this plan.
fn cross(plan: Plan, first: &[u8], second: &[u8]) -> Crossed {
    let mut halves = Halves::with(plan, LOG);
    let params = MatchParams { period: plan.period as usize, ..MatchParams::default() };
    halves.sender = Sender::new(SenderConfig { params, ..sender_config(plan, LOG) });
    let mut crossed = Crossed { found: 0.0, wire: 0.0 };
    for stream in [first, second] {
        let before = halves.receiver.stats().copied;
        let mut wire = 0;
        for block in stream.chunks(BLOCK) {
            let out = halves.send(block);
            wire += out.len();
            assert_eq!(halves.talk(out), [block]);
        }
        let copied = halves.receiver.stats().copied - before;
        crossed =
            Crossed { found: copied as f64 / stream.len() as f64, wire: wire as f64 / stream.len() as f64 };
    }
    crossed
}

/// Lines of 61 bytes of letters and digits.
fn lines(seed: u64, count: usize) -> Vec<Vec<u8>> {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let alphabet = b"abcdefghijklmnopqrstuvwxyz0123456789    ";
    let line = |rng: &mut Pcg64Mcg| {
        let mut line: Vec<u8> = (0..60).map(|_| alphabet[rng.next_u32() as usize % alphabet.len()]).collect();
        line.push(b'\n');
        line
    };
    (0..count).map(|_| line(&mut rng)).collect()
}

/// The same in another order.
fn shuffled(mut lines: Vec<Vec<u8>>, seed: u64) -> Vec<u8> {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    for at in (1..lines.len()).rev() {
        lines.swap(at, rng.next_u32() as usize % (at + 1));
    }
    lines.concat()
}

/// Lines as a server logs them: a few forms with changing numbers.
fn log_lines(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let paths = ["/index.html", "/static/app.js", "/api/v1/orders", "/images/logo.png", "/login"];
    let mut out = Vec::new();
    while out.len() < len {
        let mut draw = |below: u32| rng.next_u32() % below;
        let (host, path) = (draw(256), paths[draw(5) as usize]);
        let (second, size) = (draw(86_400), draw(100_000));
        let line = format!("10.1.7.{host} - - [27/Nov/2026:{second}] \"GET {path} HTTP/1.1\" 200 {size}\n");
        out.extend_from_slice(line.as_bytes());
    }
    out.truncate(len);
    out
}

/// Words in random order, with an edit in each few KiB the second time.
fn edited_text(seed: u64, len: usize) -> [Vec<u8>; 2] {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let words: Vec<Vec<u8>> = (0..4000).map(|word| noise(word, 3 + word as usize % 9)).collect();
    let mut first = Vec::new();
    while first.len() < len {
        first.extend_from_slice(&words[rng.next_u32() as usize % words.len()]);
        first.push(b' ');
    }
    let mut second = Vec::new();
    for piece in first.chunks(3000) {
        second.extend_from_slice(piece);
        second.extend_from_slice(&rng.next_u64().to_le_bytes());
    }
    [first, second]
}

#[test]
fn shuffled_lines_are_found_nearly_as_by_short_periods() {
    for seed in 1..=2 {
        let lines = lines(seed, 60_000);
        let (first, second) = (lines.concat(), shuffled(lines, seed));
        let [own, short] = [64, 16].map(|period| cross(uncompressed(period), &first, &second).found);
        assert!(own >= short - 0.08 && own > 0.9, "seed {seed}: {own} of {short}");
    }
}

#[test]
fn broken_lines_are_found_nearly_as_by_short_periods() {
    for seed in 1..=2 {
        let first: Vec<u8> = noise(seed, 4 << 20).iter().map(|byte| b'0' + byte % 64).collect();
        let second = first.chunks(76).collect::<Vec<_>>().join(&b"\r\n"[..]);
        let [own, short] = [64, 16].map(|period| cross(uncompressed(period), &first, &second).found);
        assert!(own >= short - 0.05 && own > 0.88, "seed {seed}: {own} of {short}");
    }
}

#[test]
fn other_content_is_coded_as_by_the_configured_period() {
    for seed in 1..=2 {
        let [text, edited] = edited_text(seed, 4 << 20);
        for (name, first, second) in [
            ("noise", noise(seed, 4 << 20), noise(seed + 10, 4 << 20)),
            ("edited text", text, edited),
            ("log lines", log_lines(seed, 4 << 20), log_lines(seed + 10, 4 << 20)),
        ] {
            // While CPU is short no search is finer than configured.
            let busy = Some(Plan::default().entropy);
            let [own, fixed] = [None, busy]
                .map(|busy_entropy| cross(Plan { busy_entropy, ..Plan::default() }, &first, &second));
            assert!(own.wire <= fixed.wire + 0.001, "{name}, seed {seed}: {own:?} and {fixed:?}");
        }
    }
}
