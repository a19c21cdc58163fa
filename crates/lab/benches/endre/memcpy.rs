//! The codec against memory: its speed as a share of a copy's.

use std::time::Duration;

use oncewire_codec::contract::Delivery;
use oncewire_codec::endre::matcher::MatchParams;
use oncewire_codec::endre::tokens::Copy;
use oncewire_codec::wire::MAX_BLOCK;
use oncewire_fingerprint::{Markers as _, Selector, copy_streaming, fingerprint};
use oncewire_lab::cpu::Stopwatch;
use oncewire_lab::encoder::Encoder;
use oncewire_sys::Pages;

use crate::coder::{Decoder, PLAN, copies, fill, groups, warm};
use crate::files::Corpus;
use crate::table::{self, gigabytes_per_second, median, percent, savings, times};

pub(crate) fn run(corpora: &[Corpus]) {
    table::start(
        "Speed as a share of a copy's",
        "p = 64, a log of 1 GiB, no entropy stage. A copy is of the same blocks of 64 KiB into a ring of the log's \
         size, in pages of the same kind, in turns of 1 MiB with what is measured. Encoding includes table, \
         digest, tokens, frame and acknowledgements; decoding the digest and the log; the choice of markers \
         their fingerprints. Pieces: what decoding copies and nothing else, from where it lies in a ring of the log's \
         size to a block's buffer, and that to the ring. Medians of the rounds, each over the whole corpus, with a log \
         full of other bytes.",
        &[
            "corpus",
            "savings",
            "copy GB/s",
            "encode GB/s",
            "÷ copy",
            "decode GB/s",
            "÷ copy",
            "markers GB/s",
            "÷ copy",
            "pieces GB/s",
            "÷ copy",
        ],
    );
    let mut coder = Coder::new();
    for corpus in corpora {
        coder.round(&corpus.data, true);
        let rounds: Vec<Round> = (0..ROUNDS).map(|_| coder.round(&corpus.data, false)).collect();
        let len = corpus.data.len() as u64;
        let mut cells = vec![corpus.name.clone(), percent(savings(len, rounds[0].wire))];
        let speed = |of: fn(&Round) -> Duration| {
            median(rounds.iter().map(|round| gigabytes_per_second(len, of(round))).collect())
        };
        cells.push(format!("{:.2}", speed(|round| round.encoding.copy)));
        for part in [
            |round: &Round| round.encoding,
            |round: &Round| round.decoding,
            |round: &Round| round.choosing,
            |round: &Round| round.pieces,
        ] {
            let speeds = rounds.iter().map(|round| gigabytes_per_second(len, part(round).work));
            cells.push(format!("{:.2}", median(speeds.collect())));
            cells.push(times(median(rounds.iter().map(|round| part(round).share()).collect())));
        }
        table::row(&cells);
    }
}

/// Time of some work, and of copies of the same bytes between its turns.
#[derive(Clone, Copy)]
struct Part {
    work: Duration,
    copy: Duration,
}

impl Part {
    /// Speed of the work, relative to that of the copies.
    fn share(self) -> f64 {
        self.copy.as_secs_f64() / self.work.as_secs_f64().max(1e-9)
    }
}

struct Round {
    wire: u64,
    encoding: Part,
    decoding: Part,
    choosing: Part,
    pieces: Part,
}

struct Coder {
    encoder: Encoder,
    decoder: Decoder,
    ring: Ring,
    selector: Selector,
}

impl Coder {
    fn new() -> Self {
        let (params, mut decoder) = (MatchParams::default(), Decoder::new(LOG));
        Self {
            encoder: warm(LOG, params, Some(&mut decoder)),
            decoder,
            ring: Ring::new(LOG as usize),
            selector: Selector::new(PLAN.markers, params.period, params.window),
        }
    }

    /// Sends `data` through both halves. The output is compared with it, or used and dropped at once.
    fn round(&mut self, data: &[u8], compared: bool) -> Round {
        let (mut prepared, mut wire) = (Vec::new(), 0);
        let (encoder, mut frames) = (&mut self.encoder, Vec::with_capacity(2 << 20));
        let encoding = self.ring.between(data, |group, watch| {
            frames.clear();
            watch.time(|| group.into_iter().for_each(|block| encoder.encode(block, &PLAN, &mut frames)));
            wire += frames.len() as u64;
            prepared.push(frames.clone());
        });
        let mut pieces = prepared.iter().map(|frames| copies(frames)).collect::<Vec<_>>().into_iter();
        let (mut next, mut delivered) = (prepared.into_iter(), Vec::new());
        let decoding = self.ring.between(data, |group, watch| {
            let frames = next.next().unwrap_or_default();
            let mut plain_len = 0;
            self.decoder.decode(&frames, watch, |delivery| match delivery {
                Delivery::Data { plain, .. } if compared => delivered.push(plain),
                Delivery::Data { plain, .. } => plain_len += plain.len(),
                Delivery::Message { .. } => {}
            });
            let sent_len: usize = group.iter().map(|block| block.len()).sum();
            assert!(
                if compared { delivered == group } else { plain_len == sent_len },
                "what went in comes out"
            );
            delivered.clear();
        });
        fill(&mut self.encoder, &PLAN, Some(&mut self.decoder));
        let (mut markers, mut sum) = (Vec::new(), 0);
        let choosing = self.ring.between(data, |group, watch| {
            watch.time(|| {
                for block in &group {
                    sum ^= choose(&self.selector, block, 0..block.len(), &mut markers);
                }
            });
        });
        std::hint::black_box(sum);
        let pieces = self.ring.between_with(data, |ring, _, watch| {
            let blocks = pieces.next().unwrap_or_default();
            watch.time(|| blocks.iter().for_each(|(copies, len)| ring.copy_pieces(copies, *len)));
        });
        Round { wire, encoding, decoding, choosing, pieces }
    }
}

/// Chooses markers in `range` in pieces of 2 KiB, as the encoder does, and computes their fingerprints.
pub(crate) fn choose(
    selector: &Selector,
    block: &[u8],
    range: std::ops::Range<usize>,
    markers: &mut Vec<u32>,
) -> u64 {
    let (mut at, mut sum) = (range.start, 0);
    while at < range.end {
        markers.clear();
        at = selector.select(block, at..range.end.min((at / PIECE + 1) * PIECE), markers);
        let windows = markers.iter().filter_map(|&marker| block.get(marker as usize..)?.get(..WINDOW));
        sum = windows.fold(sum, |sum, window| sum ^ fingerprint(window));
    }
    sum
}

/// The destination of the copies.
pub(crate) struct Ring {
    memory: Pages<u8>,
    at: usize,
    block: Vec<u8>,
}

impl Ring {
    pub(crate) fn new(len: usize) -> Self {
        let mut memory = Pages::zeroed(len);
        memory.fill(1);
        Self { memory, at: 0, block: vec![0; MAX_BLOCK] }
    }

    /// Does `work` on each group of blocks, and copies each, in turns.
    fn between(&mut self, data: &[u8], mut work: impl FnMut(Vec<bytes::Bytes>, &mut Stopwatch)) -> Part {
        self.between_with(data, |_, group, watch| work(group, watch))
    }

    fn between_with(
        &mut self,
        data: &[u8],
        mut work: impl FnMut(&mut Self, Vec<bytes::Bytes>, &mut Stopwatch),
    ) -> Part {
        let (mut working, mut copying) = (Stopwatch::default(), Stopwatch::default());
        for group in groups(data) {
            copying.time(|| group.iter().for_each(|block| self.copy(block)));
            work(self, group, &mut working);
        }
        Part { work: working.spent(), copy: copying.spent() }
    }

    /// Copies `block` behind the last copy.
    pub(crate) fn copy(&mut self, block: &[u8]) {
        self.make_room(block.len());
        self.memory[self.at..][..block.len()].copy_from_slice(block);
        self.at += block.len();
    }

    /// Reads the sources of a block's copies, writes them to a buffer, and that to the ring.
    fn copy_pieces(&mut self, copies: &[Copy], len: usize) {
        for copy in copies {
            let last = self.memory.len() - copy.len as usize;
            let source = (copy.source.0 as usize % self.memory.len()).min(last);
            self.block[copy.at as usize..copy.end()]
                .copy_from_slice(&self.memory[source..][..copy.len as usize]);
        }
        self.make_room(len);
        copy_streaming(&mut self.memory[self.at..][..len], &self.block[..len]);
        self.at += len;
    }

    fn make_room(&mut self, len: usize) {
        if self.memory.len() - self.at < len {
            self.at = 0;
        }
    }
}

const LOG: u64 = 1 << 30;
const ROUNDS: usize = 7;
const PIECE: usize = 2048;
const WINDOW: usize = 32;
