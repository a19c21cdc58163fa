//! Chunk-Match beside Max-Match [EndRE §5.2, §8.1].

use oncewire_codec::endre::matcher::MatchParams;
use oncewire_codec::{Matching, Plan};
use oncewire_lab::cpu::Stopwatch;
use oncewire_lab::encoder::Encoder;

use crate::coder::{PLAN, encode, fill, warm, warm_chunks};
use crate::files::Corpus;
use crate::table::{self, gigabytes_per_second, median, percent, savings, times};

pub(crate) fn run(corpora: &[Corpus]) {
    table::start(
        "Chunk-Match beside Max-Match",
        "p = 64, a log of 1 GiB, no entropy stage; MAXP for Max-Match and MODP, which cuts chunks where \
         content says, for Chunk-Match. In turns, from an empty epoch; medians of the rounds. The sender's memory is that of \
         a full log of which all is acknowledged: what is in flight is kept beside it. The paper's Chunk-Match runs \
         at 0.1 to 0.2 Gbit/s.",
        &[
            "corpus",
            "Max-Match savings",
            "Chunk-Match",
            "Max-Match GB/s",
            "Chunk-Match",
            "ratio",
            "Chunk-Match's sender ÷ log",
        ],
    );
    let params = MatchParams::default();
    let (mut max, mut chunk) = (warm(LOG, params, None), warm_chunks(LOG, params));
    let share = chunk.stats().memory as f64 / LOG as f64;
    for corpus in corpora {
        let (len, mut speeds, mut wires) = (corpus.data.len() as u64, [Vec::new(), Vec::new()], [0; 2]);
        for _ in 0..ROUNDS {
            let one = |encoder: &mut Encoder, matching| {
                let (plan, mut watch) = (Plan { matching, ..PLAN }, Stopwatch::default());
                let wire = encode(encoder, &corpus.data, &plan, &mut watch, |_, _| ());
                fill(encoder, &plan, None);
                (wire, gigabytes_per_second(len, watch.spent()))
            };
            let both = [one(&mut max, Matching::Max), one(&mut chunk, Matching::Chunk)];
            for ((wire, speed), (wires, speeds)) in both.into_iter().zip(wires.iter_mut().zip(&mut speeds)) {
                *wires = wire;
                speeds.push(speed);
            }
        }
        let [of_max, of_chunk] = speeds;
        let ratios = of_chunk.iter().zip(&of_max).map(|(chunk, max)| chunk / max).collect();
        table::row(&[
            corpus.name.clone(),
            percent(savings(len, wires[0])),
            percent(savings(len, wires[1])),
            format!("{:.2}", median(of_max)),
            format!("{:.2}", median(of_chunk)),
            times(median(ratios)),
            percent(share),
        ]);
    }
}

const LOG: u64 = 1 << 30;
const ROUNDS: usize = 3;
