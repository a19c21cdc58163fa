//! Savings against the size of the log, and its knee [EndRE Fig. 8].

use oncewire_codec::endre::matcher::MatchParams;
use oncewire_lab::cpu::Stopwatch;
use oncewire_lab::encoder::Encoder;

use crate::coder::{PLAN, encode};
use crate::files::Corpus;
use crate::table::{self, percent, savings};

pub(crate) fn run(corpora: &[Corpus]) {
    let names: Vec<&str> = corpora.iter().map(|corpus| corpus.name.as_str()).collect();
    table::start(
        "Savings against the size of the log [EndRE Fig. 8]",
        "MAXP, p = 64, no entropy stage, a quarter of the log in flight at most. The knee is the size furthest above the \
         straight line from the smallest log to the largest, sizes on a logarithmic scale. The paper's, of enterprises' \
         traffic, lies at 8 to 10 MB.",
        &[&["log"][..], &names].concat(),
    );
    let sizes: Vec<u64> = (20..=30).map(|power| 1 << power).collect();
    let mut curves = vec![Vec::new(); corpora.len()];
    for &log in &sizes {
        for (corpus, curve) in corpora.iter().zip(&mut curves) {
            curve.push(saved(corpus, log));
        }
        let cells = curves.iter().filter_map(|curve| curve.last()).map(|share| percent(*share));
        table::row(&std::iter::once(table::size(log)).chain(cells).collect::<Vec<_>>());
    }
    let knees =
        curves.iter().map(|curve| sizes.get(knee(curve)).map_or_else(String::new, |size| table::size(*size)));
    table::row(&std::iter::once("knee".to_owned()).chain(knees).collect::<Vec<_>>());
}

fn saved(corpus: &Corpus, log: u64) -> f64 {
    let mut encoder = Encoder::new(log, MatchParams::default());
    let wire = encode(&mut encoder, &corpus.data, &PLAN, &mut Stopwatch::default(), |_, _| ());
    savings(corpus.data.len() as u64, wire)
}

/// Returns the point of the curve, of evenly spaced points, furthest above the line from its first to its last.
fn knee(curve: &[f64]) -> usize {
    let (Some(first), Some(last)) = (curve.first(), curve.last()) else { return 0 };
    let line = |at: usize| first + (last - first) * at as f64 / (curve.len() - 1).max(1) as f64;
    let above = curve.iter().enumerate().map(|(at, share)| (at, share - line(at)));
    above.max_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(at, _)| at)
}
