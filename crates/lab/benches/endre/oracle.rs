//! Max-Match against an oracle with an index of every byte.

use oncewire_codec::Plan;
use oncewire_codec::endre::matcher::MatchParams;
use oncewire_lab::cpu::Stopwatch;
use oncewire_lab::encoder::Encoder;
use oncewire_lab::oracle::{Reach, eliminate};

use crate::coder::{PLAN, encode};
use crate::files::Corpus;
use crate::table::{self, percent, savings};

pub(crate) fn run(corpora: &[Corpus]) {
    table::start(
        "Savings as a share of what there is to find",
        "w = 32, no entropy stage; Max-Match with MAXP, headers of frames included; the oracle takes the longest repeat at \
         each byte, of what came before the block, with the same tokens. A slice of at most 48 MiB of each corpus: its \
         start and its middle. At p = 32 fingerprints cover 24 bytes, so shorter repeats than w are found too: the share of \
         an oracle that takes repeats from 24 bytes on stands beside. The last column lets the oracle copy from within the \
         block too, which no codec does that rebuilds blocks from a log.",
        &[
            "corpus",
            "oracle",
            "p = 32",
            "share",
            "oracle from 24 bytes",
            "share at p = 32",
            "p = 64",
            "share",
            "oracle within blocks",
        ],
    );
    let mut shares = [Vec::new(), Vec::new()];
    for corpus in corpora {
        let data = corpus.slice(SLICE);
        let oracle = eliminate(&data, WINDOW, Reach::Block).savings();
        let shorter = eliminate(&data, COVERED, Reach::Block).savings();
        let within = eliminate(&data, WINDOW, Reach::Byte).savings();
        let [dense, usual] = [32, 64].map(|period| found(&data, period));
        for (shares, oracle) in shares.iter_mut().zip([oracle, shorter]) {
            shares.push(dense / oracle);
        }
        let cells = [oracle, dense, dense / oracle, shorter, dense / shorter, usual, usual / oracle, within];
        table::row(&std::iter::once(corpus.name.clone()).chain(cells.map(percent)).collect::<Vec<_>>());
    }
    let [mean, mean_of_shorter] =
        shares.map(|shares| shares.iter().sum::<f64>() / shares.len().max(1) as f64);
    println!(
        "\nMean share at p = 32: {}; of the oracle that takes repeats from 24 bytes on {}.",
        percent(mean),
        percent(mean_of_shorter)
    );
}

fn found(data: &[u8], period: u32) -> f64 {
    let params = MatchParams { period: period as usize, window: WINDOW, ..MatchParams::default() };
    let (mut encoder, plan) = (Encoder::new(LOG, params), Plan { period, ..PLAN });
    let wire = encode(&mut encoder, data, &plan, &mut Stopwatch::default(), |_, _| ());
    savings(data.len() as u64, wire)
}

/// Large enough to forget nothing.
const LOG: u64 = 256 << 20;
const SLICE: usize = 48 << 20;
const WINDOW: usize = 32;
/// The bytes of a fingerprint at p = 32.
const COVERED: usize = 24;
