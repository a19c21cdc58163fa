//! Content made to cost more than other content.

mod halves;

use std::time::Duration;

use oncewire_codec::endre::matcher::MatchParams;
use oncewire_codec::{MarkerKind, Plan};
use oncewire_fingerprint::{Markers as _, Selector, fingerprint};
use oncewire_lab::corpus;
use oncewire_lab::cpu::Stopwatch;
use oncewire_lab::encoder::Encoder;

use crate::coder::{PLAN, encode, fill, warm};
use crate::files::Corpus;
use crate::table::{self, median, times};

pub(crate) fn run(corpora: &[Corpus]) {
    let kinds: Vec<&str> = MarkerKind::ALL.iter().map(|kind| kind.name()).collect();
    table::start(
        "Content made to be slow",
        "Cost per byte of encoding, by the median of that of the corpora with the same choice of markers; p = 64, a log of \
         64 MiB, no entropy stage. Fingerprints that collide are made for MAXP, and met by its strict form and FIXED: each marker leads to another place of the \
         log, where the first 4, or 24, of 32 bytes agree. Every byte is a marker as far as a choice can be brought to it.",
        &[&["content"][..], &kinds].concat(),
    );
    let mut encoder = warm(LOG, MatchParams::default(), None);
    let normal: Vec<Vec<u8>> = corpora.iter().map(|corpus| corpus.slice(LEN)).collect();
    let contents = contents();
    let columns: Vec<Vec<Option<f64>>> =
        MarkerKind::ALL.iter().map(|&kind| costs(&mut encoder, kind, &normal, &contents)).collect();
    let names = contents.iter().map(|content| content.name).chain(["every byte a marker"]);
    for (row, name) in names.enumerate() {
        let cells =
            columns.iter().map(|column| column.get(row).copied().flatten().map_or("-".to_owned(), times));
        table::row(&std::iter::once(name.to_owned()).chain(cells).collect::<Vec<_>>());
    }
    halves::run(&normal, &contents);
}

/// Returns the cost of each content, and of markers everywhere, relative to normal bytes.
fn costs(
    encoder: &mut Encoder,
    kind: MarkerKind,
    normal: &[Vec<u8>],
    contents: &[Content],
) -> Vec<Option<f64>> {
    let dense = dense(kind);
    let mut cost = |data: &[u8]| {
        let plan = Plan { markers: kind, ..PLAN };
        let mut watch = Stopwatch::default();
        encode(encoder, data, &plan, &mut watch, |_, _| ());
        fill(encoder, &PLAN, None);
        per_byte(watch.spent(), data)
    };
    let mut ratios = vec![Vec::new(); contents.len() + 1];
    for _ in 0..ROUNDS {
        let usual = median(normal.iter().map(|data| cost(data)).collect());
        let fit = contents.iter().zip(&mut ratios).filter(|(content, _)| content.is_for(kind));
        for (content, ratios) in fit {
            ratios.push(cost(&content.data) / usual);
        }
        if let (Some(dense), Some(ratios)) = (&dense, ratios.last_mut()) {
            // It is short, since it is slow to make: once through is too little to time.
            let repeated = (0..9).map(|_| cost(dense) / usual).collect();
            ratios.push(median(repeated));
        }
    }
    ratios.into_iter().map(|ratios| (!ratios.is_empty()).then(|| median(ratios))).collect()
}

fn per_byte(spent: Duration, data: &[u8]) -> f64 {
    spent.as_secs_f64() / data.len().max(1) as f64
}

/// Bytes made to be slow.
struct Content {
    name: &'static str,
    data: Vec<u8>,
    /// The marker choices it is for; none: all.
    only: &'static [MarkerKind],
}

impl Content {
    fn is_for(&self, kind: MarkerKind) -> bool {
        self.only.is_empty() || self.only.contains(&kind)
    }
}

fn contents() -> Vec<Content> {
    let mut bytes = corpus::Corpus::new(7);
    let period = bytes.random(31);
    let any = |name, data| Content { name, data, only: &[] };
    let colliding = |name, data| Content { name, data, only: &COLLIDING };
    vec![
        any("zeros", vec![0; LEN]),
        any("a period of 31 bytes", period.iter().copied().cycle().take(LEN).collect()),
        any("random bytes", bytes.random(LEN)),
        colliding(
            "colliding fingerprints, 4 bytes equal",
            collide(&mut bytes, |window, noise| {
                window[4..8].copy_from_slice(&noise[..4]);
            }),
        ),
        colliding(
            "colliding fingerprints, 24 bytes equal",
            collide(&mut bytes, |window, noise| {
                window[8..16].copy_from_slice(&(SECRET[1] ^ 1).to_le_bytes());
                window[16..24].copy_from_slice(&SECRET[2].to_le_bytes());
                window[24..32].copy_from_slice(noise);
            }),
        ),
    ]
}

/// Makes a window at the start of each region of 64 bytes chosen by MAXP. Its fingerprint occurs a few times, always
/// with other bytes: one factor of a product in the fingerprint is zero, so the other factor may be anything.
fn collide(bytes: &mut corpus::Corpus, vary: fn(&mut [u8], &[u8])) -> Vec<u8> {
    let mut pool: Vec<u8> = bytes.random(LEN / 64 / TIMES * 16);
    let (mut data, noise) = (bytes.random(LEN), bytes.random(LEN / 8));
    let pairs: Vec<&mut [u8]> = pool.chunks_exact_mut(16).collect();
    for (number, region) in data.chunks_exact_mut(64).enumerate() {
        // A stride through every pair once in each turn.
        let pair = &pairs[number * 7919 % pairs.len()];
        let (window, _) = region.split_at_mut(32);
        window[..4].copy_from_slice(&HIGHEST.to_le_bytes());
        window[4..8].copy_from_slice(&pair[..4]);
        window[8..16].copy_from_slice(&SECRET[1].to_le_bytes());
        window[16..].copy_from_slice(pair);
        vary(window, &noise[number * 8..][..8]);
    }
    check(&data[..8192]);
    data
}

/// Fails if the windows are no longer chosen: constants of the fingerprint crate have changed.
fn check(data: &[u8]) {
    let mut markers = Vec::new();
    Selector::new(MarkerKind::Maxp, 64, 32).select(data, 0..data.len(), &mut markers);
    assert!(markers.iter().all(|marker| marker % 64 == 0), "crafted windows are what MAXP chooses");
    let mut window = data[..32].to_vec();
    let is_free = |at: usize| {
        let before = fingerprint(&window);
        window[at] ^= 1;
        let same = fingerprint(&window) == before;
        window[at] ^= 1;
        same
    };
    assert!([5, 26].into_iter().any(is_free), "some bytes of a crafted window do not change its fingerprint");
}

/// Makes bytes with as many markers as possible for the choice, without repeats.
///
/// `None` for choices with a fixed share of any bytes.
fn dense(kind: MarkerKind) -> Option<Vec<u8>> {
    let decides = match kind {
        MarkerKind::SampleByte => 1,
        MarkerKind::Modp => 4,
        MarkerKind::ModpRabin => WINDOW,
        MarkerKind::Maxp | MarkerKind::MaxpStrict | MarkerKind::Fixed => return None,
    };
    let selector = Selector::new(kind, 64, WINDOW);
    let noise = corpus::Corpus::new(8).random(DENSE_LEN);
    let (mut data, mut markers) = (vec![0u8; WINDOW], Vec::new());
    for start in noise {
        let mut window = vec![0; WINDOW];
        window[..decides - 1].copy_from_slice(&data[data.len() + 1 - decides..]);
        let chosen = (0..=255u8).map(|step| start.wrapping_add(step)).find(|&byte| {
            window[decides - 1] = byte;
            markers.clear();
            selector.select(&window, 0..1, &mut markers);
            !markers.is_empty()
        });
        data.push(chosen.unwrap_or(start));
    }
    Some(data)
}

const LOG: u64 = 64 << 20;
const LEN: usize = 48 << 20;
const DENSE_LEN: usize = 192 << 10;
/// Crafted windows begin at multiples of 64 and hash highest.
const COLLIDING: [MarkerKind; 3] = [MarkerKind::Maxp, MarkerKind::MaxpStrict, MarkerKind::Fixed];
const ROUNDS: usize = 3;
const WINDOW: usize = 32;
/// How often each colliding fingerprint occurs.
const TIMES: usize = 4;

/// Factors of the products in a fingerprint are these, exclusive-or a word of the window.
const SECRET: [u64; 3] = [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7345, 0xa409_3822_299f_31d1];
/// The four bytes of the highest hash: their product with MAXP's multiplier is 2^32 − 1.
const HIGHEST: u32 = 0xf174_d0af;
