//! What neither half can do without, each thing by itself: a ceiling of their speeds, whatever they are made of.

use std::hint::black_box;
use std::ops::Range;

use oncewire_codec::cache::Log;
use oncewire_codec::endre::matcher::MatchParams;
use oncewire_codec::wire::MAX_BLOCK;
use oncewire_fingerprint::{Selector, prefetch_read};
use oncewire_lab::cpu::Stopwatch;
use oncewire_sys::Pages;

use crate::coder::{PLAN, groups};
use crate::files::Corpus;
use crate::memcpy::{Ring, choose};
use crate::searcher::Searcher;
use crate::table::{self, median, percent, times};
use crate::zstd::Zstd;

pub(crate) fn run(corpora: &[Corpus]) {
    table::start(
        "What encoding and decoding cannot do without",
        "µs of this thread for a block of 64 KiB; p = 64, a log of 1 GiB that was full before. Each thing is done by itself, \
         for what Max-Match finds and looks up, and with all that it needs asked for ahead: the log, to write the blocks that it \
         does not hold yet; compared, to read once what was found, where it lies; slots, to read and write one for each marker \
         that is looked up, 64 at a time; markers, to choose these and compute their fingerprints; rebuilt, to copy what was \
         found and what was not into a block's buffer. Residue: what was not found, by `zstd -1` as one frame; long: the whole \
         corpus by `zstd -1 --long=30`. A copy is of the block into a ring of the log's size. Medians of the rounds.",
        &[
            "corpus",
            "found",
            "copy",
            "log",
            "compared",
            "slots",
            "markers",
            "digest",
            "encode",
            "copy ÷",
            "rebuilt",
            "decode",
            "copy ÷",
            "residue",
            "encode and residue",
            "long",
            "long ÷",
        ],
    );
    let mut bare = Bare::new();
    let (mut plain, mut long) = (Zstd::plain(), Zstd::long());
    for corpus in corpora {
        let rounds: Vec<Round> = (0..ROUNDS)
            .map(|_| {
                let mut round = Round::default();
                bare.pass(&corpus.data, Half::Encoding, &mut round);
                bare.pass(&corpus.data, Half::Decoding, &mut round);
                plain.compress(&round.residue, &mut round.by_plain);
                long.compress(&corpus.data, &mut round.by_long);
                round
            })
            .collect();
        let blocks = corpus.data.len() as f64 / MAX_BLOCK as f64;
        let of = |part: fn(&Round) -> Stopwatch, passes: f64| {
            let each = |round: &Round| part(round).spent().as_secs_f64() * 1e6 / blocks / passes;
            median(rounds.iter().map(each).collect())
        };
        let (copy, log, digest) =
            (of(|round| round.copy, 2.0), of(|round| round.log, 2.0), of(|round| round.digest, 2.0));
        let (compared, slots, markers) =
            (of(|round| round.compared, 1.0), of(|round| round.slots, 1.0), of(|round| round.markers, 1.0));
        let encode = log + compared + slots + markers + digest;
        let rebuilt = of(|round| round.rebuilt, 1.0);
        let decode = rebuilt + digest + log;
        let residue = of(|round| round.by_plain, 1.0);
        // The first round of zstd touches its window for the first time.
        let long = median(
            rounds[1..].iter().map(|round| round.by_long.spent().as_secs_f64() * 1e6 / blocks).collect(),
        );
        let found = 1.0 - rounds[0].residue.len() as f64 / corpus.data.len() as f64;
        let micros = |time: f64| format!("{time:.1}");
        table::row(&[
            corpus.name.clone(),
            percent(found),
            micros(copy),
            micros(log),
            micros(compared),
            micros(slots),
            micros(markers),
            micros(digest),
            micros(encode),
            times(copy / encode),
            micros(rebuilt),
            micros(decode),
            times(copy / decode),
            micros(residue),
            micros(encode + residue),
            micros(long),
            times(long / (encode + residue)),
        ]);
    }
}

#[derive(Default)]
struct Round {
    /// What was not found.
    residue: Vec<u8>,
    copy: Stopwatch,
    log: Stopwatch,
    digest: Stopwatch,
    compared: Stopwatch,
    slots: Stopwatch,
    markers: Stopwatch,
    rebuilt: Stopwatch,
    by_plain: Stopwatch,
    by_long: Stopwatch,
}

/// Whose work is done. What one of them has read is in the caches for the other, so they take turns.
#[derive(Clone, Copy)]
enum Half {
    Encoding,
    Decoding,
}

/// A search that says what there is to do, and a log and a table of their own to do it with, which are as cold as those of
/// the search were.
struct Bare {
    searcher: Searcher,
    log: Log,
    slots: Pages<[u32; 2]>,
    ring: Ring,
    selector: Selector,
    block: Vec<u8>,
    chosen: Vec<u32>,
}

impl Bare {
    fn new() -> Self {
        let params = MatchParams::default();
        let mut slots = Pages::zeroed(params.table_memory(LOG) as usize / size_of::<[u32; 2]>());
        slots.fill([1; 2]);
        let mut log = Log::new(LOG as usize);
        Self {
            searcher: Searcher::new(LOG, params, LOG / 16 * 15, |at, block| log.write(at, block)),
            log,
            slots,
            ring: Ring::new(LOG as usize),
            selector: Selector::new(PLAN.markers, params.period, params.window),
            block: vec![0; MAX_BLOCK],
            chosen: Vec::new(),
        }
    }

    /// Does the work of one half for `data`, which nothing is known of before.
    fn pass(&mut self, data: &[u8], half: Half, round: &mut Round) {
        for group in groups(data) {
            round.copy.time(|| group.iter().for_each(|block| self.ring.copy(block)));
            for block in &group {
                self.searcher.find(block, &mut Stopwatch::default());
                match half {
                    Half::Encoding => self.search(block, round),
                    Half::Decoding => round.rebuilt.time(|| self.rebuild(block)),
                }
                round.digest.time(|| black_box(twox_hash::XxHash3_64::oneshot_with_seed(1, block)));
                let (mut log, mut table) = Default::default();
                if let Some(at) = self.searcher.remember(block, &mut log, &mut table) {
                    round.log.time(|| self.log.write(at, block));
                }
            }
        }
        self.searcher.fill(|at, block| self.log.write(at, block));
    }

    /// What a search touches and computes.
    fn search(&mut self, block: &[u8], round: &mut Round) {
        assert!(round.compared.time(|| self.compare(block)), "what was found is equal");
        let (looked_up, fingerprints): (Vec<u32>, Vec<u64>) = self.searcher.looked_up().unzip();
        round.slots.time(|| self.touch_slots(&fingerprints));
        let regions = regions(&looked_up, self.selector.period());
        let (selector, chosen) = (&self.selector, &mut self.chosen);
        let choose = |region: &Range<usize>| {
            choose(selector, block, region.start..region.end.min(block.len()), chosen)
        };
        black_box(round.markers.time(|| regions.iter().map(choose).fold(0, |sum, each| sum ^ each)));
        let mut end = 0;
        for copy in self.searcher.copies() {
            round.residue.extend_from_slice(&block[end..copy.at as usize]);
            end = copy.end();
        }
        round.residue.extend_from_slice(&block[end..]);
    }

    /// Whether all copies equal what they are of.
    fn compare(&self, block: &[u8]) -> bool {
        let copies = self.searcher.copies();
        copies.iter().for_each(|copy| self.log.prefetch_around(copy.source));
        copies.iter().all(|copy| {
            let (first, second) = self.log.slices(copy.source, copy.len as usize);
            block[copy.at as usize..copy.end()].strip_prefix(first) == Some(second)
        })
    }

    fn touch_slots(&mut self, fingerprints: &[u64]) {
        let slots = self.slots.len() as u128;
        let index = |fingerprint: u64| ((u128::from(fingerprint) * slots) >> u64::BITS) as usize;
        for batch in fingerprints.chunks(BATCH) {
            batch.iter().for_each(|fingerprint| prefetch_read(&self.slots, index(*fingerprint)));
            for fingerprint in batch {
                let slot = &mut self.slots[index(*fingerprint)];
                *slot = [*fingerprint as u32, slot[0]];
            }
        }
    }

    fn rebuild(&mut self, block: &[u8]) {
        let copies = self.searcher.copies();
        copies.iter().for_each(|copy| self.log.prefetch_around(copy.source));
        let mut end = 0;
        for copy in copies {
            let at = copy.at as usize;
            self.block[end..at].copy_from_slice(&block[end..at]);
            let (first, second) = self.log.slices(copy.source, copy.len as usize);
            self.block[at..at + first.len()].copy_from_slice(first);
            self.block[at + first.len()..copy.end()].copy_from_slice(second);
            end = copy.end();
        }
        self.block[end..block.len()].copy_from_slice(&block[end..]);
    }
}

/// Returns the regions of `period` bytes in which these markers lie, neighbours as one.
fn regions(markers: &[u32], period: usize) -> Vec<Range<usize>> {
    let mut regions: Vec<Range<usize>> = Vec::new();
    for marker in markers {
        let start = *marker as usize / period * period;
        match regions.last_mut() {
            Some(last) if last.end >= start => last.end = start + period,
            _ => regions.push(start..start + period),
        }
    }
    regions
}

const LOG: u64 = 1 << 30;
const ROUNDS: usize = 5;
/// Slots that are asked for at once.
const BATCH: usize = 64;
