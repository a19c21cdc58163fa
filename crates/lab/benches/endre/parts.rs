//! The encoder's time by part, and the search's wait for memory.

use std::time::Duration;

use oncewire_codec::endre::matcher::MatchParams;
use oncewire_codec::wire::MAX_BLOCK;
use oncewire_lab::cpu::Stopwatch;

use crate::coder::{PLAN, encode, fill, groups, warm};
use crate::files::Corpus;
use crate::searcher::Searcher;
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
    // The log is full, so the reach of references is as large as it gets.
    let reach = encoder.stats().log_used;
    let mut searcher = Searcher::new(LOG, MatchParams::default(), reach, |_, _| ());
    for corpus in corpora {
        let rounds: Vec<Round> = (0..ROUNDS)
            .map(|_| {
                let mut round = round(&mut searcher, &corpus.data);
                encode(&mut encoder, &corpus.data, &PLAN, &mut round.all, |_, _| ());
                fill(&mut encoder, &PLAN, None);
                searcher.fill(|_, _| ());
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

/// Searches and remembers `data` as a flow.
fn round(searcher: &mut Searcher, data: &[u8]) -> Round {
    let mut round = Round::default();
    for block in groups(data).flatten() {
        searcher.find(&block, &mut round.search);
        searcher.find(&block, &mut round.cached);
        round.copies += searcher.copies().len() as u64;
        round.looked_up += searcher.looked_up().count() as u64;
        searcher.remember(&block, &mut round.log, &mut round.table);
    }
    round
}

const LOG: u64 = 1 << 30;
const ROUNDS: usize = 3;
