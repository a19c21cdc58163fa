//! Lower bound of both halves: the unavoidable work per block.

use std::hint::black_box;
use std::ops::Range;

use bytes::Bytes;
use oncewire_codec::endre::matcher::{Copy, MatchParams};
use oncewire_codec::log::{Log, LogOffset};
use oncewire_codec::wire::MAX_BLOCK;
use oncewire_fingerprint::{Selector, prefetch_read};
use oncewire_lab::cpu::Stopwatch;
use oncewire_lab::encoder::Encoder;
use oncewire_sys::Pages;

use crate::coder::{Decoder, PLAN, fill, groups, warm};
use crate::files::Corpus;
use crate::memcpy::{Ring, choose};
use crate::searcher::Searcher;
use crate::table::{self, median, times};
use crate::zstd::Zstd;

pub(crate) fn run(corpora: &[Corpus]) {
    table::start(
        "What encoding and decoding cannot do without",
        "µs of this thread for a block of 64 KiB; p = 64, a log of 1 GiB that was full before. Each thing is done by itself, \
         for the markers that Max-Match looks up and the copies that it finds, sixteen blocks at a time. Log: to write the \
         blocks that it does not hold yet. Compared: to read once what was found, where it lies. Slots: to read one for each \
         marker that is looked up, 64 at a time, and to write those of blocks that are remembered. Markers: to choose these and \
         compute their fingerprints. Bare: all of that, and the digest. Rebuilt: to copy what was found and what was not into a \
         block's buffer; bare is that, digest and log. Encoder and decoder are the whole halves, in turns with it. Residue: \
         what was not found, by `zstd -1` as one frame; long: the whole corpus by `zstd -1 --long=30`. A copy is of the block \
         into a ring of the log's size. Medians of the rounds.",
        &[
            "corpus",
            "copy",
            "log",
            "compared",
            "slots",
            "markers",
            "digest",
            "bare",
            "copy ÷",
            "encoder",
            "rebuilt",
            "bare",
            "copy ÷",
            "decoder",
            "residue",
            "long",
            "long ÷ bare and residue",
        ],
    );
    let mut bare = Bare::new();
    let (mut plain, mut long) = (Zstd::plain(), Zstd::long());
    for corpus in corpora {
        // The first round of zstd touches its window for the first time.
        long.compress(&corpus.data, &mut Stopwatch::default());
        let rounds: Vec<Round> = (0..ROUNDS)
            .map(|_| {
                let mut round = bare.round(&corpus.data);
                plain.compress(&round.residue, &mut round.by_plain);
                long.compress(&corpus.data, &mut round.by_long);
                round
            })
            .collect();
        let blocks = corpus.data.len() as f64 / MAX_BLOCK as f64;
        let of = |part: fn(&Round) -> Stopwatch| {
            median(rounds.iter().map(|round| part(round).spent().as_secs_f64() * 1e6 / blocks).collect())
        };
        let (copy, log, digest) = (of(|round| round.copy), of(|round| round.log), of(|round| round.digest));
        let (compared, slots) = (of(|round| round.compared), of(|round| round.slots));
        let (markers, rebuilt) = (of(|round| round.markers), of(|round| round.rebuilt));
        let (encode, decode) = (log + compared + slots + markers + digest, rebuilt + digest + log);
        let (residue, long) = (of(|round| round.by_plain), of(|round| round.by_long));
        let micros = |time: f64| format!("{time:.1}");
        let before = [copy, log, compared, slots, markers, digest, encode].map(micros);
        let between = [of(|round| round.encoder), rebuilt, decode].map(micros);
        let behind = [of(|round| round.decoder), residue, long].map(micros);
        table::row(
            &[
                std::slice::from_ref(&corpus.name),
                &before[..],
                &[times(copy / encode)],
                &between,
                &[times(copy / decode)],
                &behind,
                &[times(long / (encode + residue))],
            ]
            .concat(),
        );
    }
}

#[derive(Default)]
struct Round {
    /// The bytes outside copies.
    residue: Vec<u8>,
    copy: Stopwatch,
    log: Stopwatch,
    compared: Stopwatch,
    slots: Stopwatch,
    markers: Stopwatch,
    digest: Stopwatch,
    encoder: Stopwatch,
    rebuilt: Stopwatch,
    decoder: Stopwatch,
    by_plain: Stopwatch,
    by_long: Stopwatch,
}

/// The work for a block.
struct Work<'a> {
    block: &'a Bytes,
    copies: Vec<Copy>,
    fingerprints: Vec<u64>,
    /// The regions with looked-up markers.
    regions: Vec<Range<usize>>,
    /// Its place in the log, if remembered.
    at: Option<LogOffset>,
}

/// A search to list the work, and logs and a table to do it with, as cold as those of the search.
struct Bare {
    searcher: Searcher,
    compared: Log,
    rebuilt: Log,
    slots: Pages<[u32; 2]>,
    ring: Ring,
    selector: Selector,
    buffer: Vec<u8>,
    encoder: Encoder,
    decoder: Decoder,
}

impl Bare {
    fn new() -> Self {
        let params = MatchParams::default();
        let mut slots = Pages::zeroed(params.table_memory(LOG) as usize / size_of::<[u32; 2]>());
        slots.fill([1; 2]);
        let [mut compared, mut rebuilt] = [(); 2].map(|()| Log::new(LOG as usize));
        let mut decoder = Decoder::new(LOG);
        let encoder = warm(LOG, params, Some(&mut decoder));
        Self {
            searcher: Searcher::new(LOG, params, encoder.stats().log_used, |at, block| {
                compared.write(at, block);
                rebuilt.write(at, block);
            }),
            compared,
            rebuilt,
            slots,
            ring: Ring::new(LOG as usize),
            selector: Selector::new(PLAN.markers, params.period, params.window),
            buffer: vec![0; MAX_BLOCK],
            encoder,
            decoder,
        }
    }

    /// Does all the work for `data`, unknown at first.
    fn round(&mut self, data: &[u8]) -> Round {
        let (mut round, mut frames) = (Round::default(), Vec::new());
        for group in groups(data) {
            round.copy.time(|| self.warm(&group));
            let work: Vec<Work<'_>> = group.iter().map(|block| self.search(block)).collect();
            work.iter().for_each(|work| round.residue.extend(work.literals().flatten()));
            self.warm(&group);
            round.log.time(|| each_remembered(&work, |at, block| self.compared.write(at, block)));
            each_remembered(&work, |at, block| self.rebuilt.write(at, block));
            self.warm(&group);
            let is_equal = round.compared.time(|| work.iter().all(|work| work.compare(&self.compared)));
            assert!(is_equal, "what was found is equal");
            round.slots.time(|| work.iter().for_each(|work| work.touch(&mut self.slots)));
            self.warm(&group);
            let mut chosen = Vec::new();
            let sum = round
                .markers
                .time(|| work.iter().fold(0, |sum, work| sum ^ work.choose(&self.selector, &mut chosen)));
            let digests = round.digest.time(|| group.iter().fold(sum, |sum, block| sum ^ digest(block)));
            black_box(digests);
            self.warm(&group);
            let (rebuilt, buffer) = (&self.rebuilt, &mut self.buffer);
            round.rebuilt.time(|| work.iter().for_each(|work| work.rebuild(rebuilt, buffer)));
            self.warm(&group);
            frames.clear();
            let encoder = &mut self.encoder;
            let blocks = group.clone();
            round
                .encoder
                .time(|| blocks.into_iter().for_each(|block| encoder.encode(block, &PLAN, &mut frames)));
            self.decoder.decode(&frames, &mut round.decoder, drop);
        }
        let (compared, rebuilt) = (&mut self.compared, &mut self.rebuilt);
        self.searcher.fill(|at, block| {
            compared.write(at, block);
            rebuilt.write(at, block);
        });
        fill(&mut self.encoder, &PLAN, Some(&mut self.decoder));
        round
    }

    /// Copies the blocks, and so leaves them in the caches, as if they had just come from a socket.
    fn warm(&mut self, group: &[Bytes]) {
        group.iter().for_each(|block| self.ring.copy(block));
    }

    fn search<'a>(&mut self, block: &'a Bytes) -> Work<'a> {
        let [mut find, mut log, mut table] = [Stopwatch::default(); 3];
        self.searcher.find(block, &mut find);
        let (markers, fingerprints): (Vec<u32>, Vec<u64>) = self.searcher.looked_up().unzip();
        Work {
            block,
            copies: self.searcher.copies().to_vec(),
            fingerprints,
            regions: regions(&markers, self.selector.period(), block.len()),
            at: self.searcher.remember(block, &mut log, &mut table),
        }
    }
}

fn each_remembered(work: &[Work<'_>], mut write: impl FnMut(LogOffset, &[u8])) {
    work.iter().for_each(|work| {
        if let Some(at) = work.at {
            write(at, work.block);
        }
    });
}

impl Work<'_> {
    fn literals(&self) -> impl Iterator<Item = &[u8]> {
        let ends = self.copies.iter().map(|copy| copy.at as usize).chain([self.block.len()]);
        let starts = [0].into_iter().chain(self.copies.iter().map(Copy::end));
        starts.zip(ends).map(|(start, end)| &self.block[start..end])
    }

    /// Does `with` each copy, with those behind it asked for.
    fn each_copy(&self, log: &Log, mut with: impl FnMut(&Copy) -> bool) -> bool {
        self.copies.iter().take(AHEAD).for_each(|copy| log.prefetch_around(copy.source));
        self.copies.iter().enumerate().all(|(index, copy)| {
            if let Some(ahead) = self.copies.get(index + AHEAD) {
                log.prefetch_around(ahead.source);
            }
            with(copy)
        })
    }

    /// Whether all copies equal their sources.
    fn compare(&self, log: &Log) -> bool {
        self.each_copy(log, |copy| {
            let (first, second) = log.slices(copy.source, copy.len as usize);
            self.block[copy.at as usize..copy.end()].strip_prefix(first) == Some(second)
        })
    }

    fn touch(&self, slots: &mut [[u32; 2]]) {
        let count = slots.len() as u128;
        let index = |fingerprint: u64| ((u128::from(fingerprint) * count) >> u64::BITS) as usize;
        for batch in self.fingerprints.chunks(BATCH) {
            batch.iter().for_each(|fingerprint| prefetch_read(slots, index(*fingerprint)));
            for fingerprint in batch {
                let slot = &mut slots[index(*fingerprint)];
                let seen = black_box(*slot);
                if self.at.is_some() {
                    *slot = [*fingerprint as u32, seen[0]];
                }
            }
        }
    }

    fn choose(&self, selector: &Selector, chosen: &mut Vec<u32>) -> u64 {
        let of = |region: &Range<usize>| choose(selector, self.block, region.clone(), chosen);
        self.regions.iter().map(of).fold(0, |sum, each| sum ^ each)
    }

    fn rebuild(&self, log: &Log, buffer: &mut [u8]) {
        let mut end = 0;
        self.each_copy(log, |copy| {
            let at = copy.at as usize;
            buffer[end..at].copy_from_slice(&self.block[end..at]);
            let (first, second) = log.slices(copy.source, copy.len as usize);
            buffer[at..at + first.len()].copy_from_slice(first);
            buffer[at + first.len()..copy.end()].copy_from_slice(second);
            end = copy.end();
            true
        });
        buffer[end..self.block.len()].copy_from_slice(&self.block[end..]);
    }
}

fn digest(block: &[u8]) -> u64 {
    twox_hash::XxHash3_64::oneshot_with_seed(1, block)
}

/// Returns the regions of `period` bytes of a block of `len` with these markers, neighbours as one.
fn regions(markers: &[u32], period: usize, len: usize) -> Vec<Range<usize>> {
    let mut regions: Vec<Range<usize>> = Vec::new();
    for marker in markers {
        let start = *marker as usize / period * period;
        let end = (start + period).min(len);
        match regions.last_mut() {
            Some(last) if last.end >= start => last.end = end,
            _ => regions.push(start..end),
        }
    }
    regions
}

const LOG: u64 = 1 << 30;
const ROUNDS: usize = 3;
/// Slots prefetched at once.
const BATCH: usize = 64;
/// Copies with prefetched sources.
const AHEAD: usize = 8;
