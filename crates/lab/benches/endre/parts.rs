//! Where the encoder's time goes, and how much of the search is waiting for memory.

use std::time::Duration;

use oncewire_codec::cache::{Log, LogOffset};
use oncewire_codec::endre::matcher::{Copy, MatchParams, MaxMatch, Search, is_held, lasting, next_hint};
use oncewire_codec::wire::MAX_BLOCK;
use oncewire_lab::corpus::Corpus as Noise;
use oncewire_lab::cpu::Stopwatch;

use crate::coder::{PLAN, encode, fill, groups, warm};
use crate::files::Corpus;
use crate::table::{self, median};

pub(crate) fn run(corpora: &[Corpus]) {
    table::start(
        "Where the encoder's time goes",
        "µs of this thread for a block of 64 KiB; p = 64, a log of 1 GiB that was full before, no entropy stage. Cached is \
         the search over the same block once more: the same markers, look-ups and comparing, with everything that it touches \
         in the caches. Log and table: what the encoder does of both, which leaves out blocks that the log holds. Other: what \
         the whole encoder takes beyond search, log and table: digest, tokens, frame, acknowledgements and accounts. Medians \
         of the rounds.",
        &[
            "corpus",
            "copies",
            "look-ups",
            "search",
            "cached",
            "log",
            "table",
            "other",
            "all",
            "all, search cached",
        ],
    );
    let mut encoder = warm(LOG, MatchParams::default(), None);
    // The log is full, so all that can be referred to is as much as ever can.
    let mut search = Searcher::new(encoder.stats().log_used);
    for corpus in corpora {
        let rounds: Vec<Round> = (0..ROUNDS)
            .map(|_| {
                let mut round = search.round(&corpus.data);
                encode(&mut encoder, &corpus.data, &PLAN, &mut round.all, |_, _| ());
                fill(&mut encoder, &PLAN, None);
                search.fill();
                round
            })
            .collect();
        let blocks = corpus.data.len() as f64 / MAX_BLOCK as f64;
        let of = |part: fn(&Round) -> Duration| {
            median(rounds.iter().map(|round| part(round).as_secs_f64() * 1e6 / blocks).collect())
        };
        let (finding, cached) = (of(|round| round.search.spent()), of(|round| round.cached.spent()));
        let (log, table) = (of(|round| round.log.spent()), of(|round| round.table.spent()));
        let all = of(|round| round.all.spent());
        let counts =
            [rounds[0].copies, rounds[0].looked_up].map(|count| format!("{:.1}", count as f64 / blocks));
        let times = [finding, cached, log, table, all - finding - log - table, all, all - finding + cached];
        table::row(
            &[
                vec![corpus.name.clone()],
                counts.to_vec(),
                times.iter().map(|time| format!("{time:.1}")).collect(),
            ]
            .concat(),
        );
    }
}

#[derive(Default)]
struct Round {
    copies: u64,
    looked_up: u64,
    search: Stopwatch,
    cached: Stopwatch,
    log: Stopwatch,
    table: Stopwatch,
    /// The whole of a sending half.
    all: Stopwatch,
}

/// The parts of a sending half that search and remember, by themselves.
struct Searcher {
    log: Log,
    max: MaxMatch,
    head: LogOffset,
    /// How far back blocks refer.
    reach: u64,
    noise: Noise,
}

impl Searcher {
    fn new(reach: u64) -> Self {
        let (log, max) = (Log::new(LOG as usize), MaxMatch::new(LOG, MatchParams::default()));
        let mut searcher = Self { log, max, head: LogOffset::ZERO, reach, noise: Noise::new(0) };
        searcher.fill();
        searcher
    }

    /// Pushes all that is known out of the log.
    fn fill(&mut self) {
        for _ in 0..LOG / MAX_BLOCK as u64 {
            let block = self.noise.random(MAX_BLOCK);
            self.block(&block, &mut None, &mut Vec::new(), &mut Round::default());
        }
    }

    fn round(&mut self, data: &[u8]) -> Round {
        let (mut round, mut hint, mut copies) = (Round::default(), None, Vec::new());
        for block in groups(data).flatten() {
            self.block(&block, &mut hint, &mut copies, &mut round);
        }
        round
    }

    fn block(
        &mut self,
        block: &[u8],
        hint: &mut Option<LogOffset>,
        copies: &mut Vec<Copy>,
        round: &mut Round,
    ) {
        let Self { log, max, head, reach, .. } = self;
        let (at, reach) = (*head, *reach);
        let search = Search { block, at, floor: at.minus(reach), lasting: lasting(at, reach), hint: *hint };
        round.search.time(|| max.find(log, &search, copies));
        round.cached.time(|| max.find(log, &search, copies));
        round.copies += copies.len() as u64;
        round.looked_up += max.looked_up().count() as u64;
        *hint = next_hint(copies, block.len());
        if !is_held(copies, block.len(), search.lasting) {
            round.log.time(|| log.write(at, block));
            round.table.time(|| max.remember(&search, copies));
            *head = at.plus(block.len() as u64);
            hint.get_or_insert(*head);
        }
    }
}

const LOG: u64 = 1 << 30;
const ROUNDS: usize = 3;
