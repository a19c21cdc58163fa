//! One slot of the fingerprint table for each expected marker, or two [EndRE Table 1].

use oncewire_codec::endre::matcher::{MatchParams, MaxMatch};
use oncewire_lab::cpu::Stopwatch;

use crate::coder::{PLAN, encode, warm};
use crate::files::Corpus;
use crate::table::{self, percent, savings};

pub(crate) fn run(corpora: &[Corpus]) {
    table::start(
        "One slot for each marker, or two",
        "p = 64, no entropy stage. Each corpus crosses a log that was full before, so that the table is too. The paper's table \
         has one slot, of 6 % of the log.",
        &["corpus", "log", "table ÷ log, 2 slots", "1 slot", "savings, 2 slots", "1 slot", "points"],
    );
    for corpus in corpora {
        for log in LOGS {
            let [two, one] = [2, 1].map(|slots| {
                let params = MatchParams { slots_per_marker: slots, ..MatchParams::default() };
                let mut encoder = warm(log, params, None);
                let wire = encode(&mut encoder, &corpus.data, &PLAN, &mut Stopwatch::default(), |_, _| ());
                let table = MaxMatch::new(log, params).memory() as f64 / log as f64;
                (table, savings(corpus.data.len() as u64, wire))
            });
            table::row(&[
                corpus.name.clone(),
                table::size(log),
                percent(two.0),
                percent(one.0),
                percent(two.1),
                percent(one.1),
                format!("{:+.2}", (one.1 - two.1) * 100.0),
            ]);
        }
    }
}

const LOGS: [u64; 3] = [64 << 20, 96 << 20, 256 << 20];
