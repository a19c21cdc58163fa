//! Max-Match's share of the possible finds [EndRE §5.2.2].
#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::Path;

use oncewire_codec::Plan;
use oncewire_codec::endre::matcher::MatchParams;
use oncewire_codec::entropy::Entropy;
use oncewire_lab::corpus::Corpus;
use oncewire_lab::measure::Measurement;
use oncewire_lab::oracle::{Reach, eliminate};
use oncewire_lab::pair::PairConfig;

/// Repeats hardly longer than a window are left to luck by any choice of markers, and are not part of this test.
#[test]
fn max_match_finds_nearly_as_much_as_the_oracle() {
    let mut shares = Vec::new();
    for (name, data) in corpora() {
        let (found, oracle) = (max_match(&data), eliminate(&data, WINDOW, Reach::Block).savings());
        let share = found / oracle;
        println!("{name}: {:.2} % of {:.2} %, {share:.3}", found * 100.0, oracle * 100.0);
        assert!(oracle > 0.3, "{name} has too little to find to tell: {oracle}");
        assert!(share >= 0.92, "{name}, seed {SEED}: {found} of {oracle}");
        shares.push(share);
    }
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    assert!(shares.len() >= 4 && mean >= 0.95, "seed {SEED}: mean {mean} of {shares:?}");
}

/// Returns the savings of Max-Match at p = 32 before any entropy stage, headers of frames and feedback included.
fn max_match(data: &[u8]) -> f64 {
    let plan = Plan { entropy: Entropy::None, period: 32, ..Plan::default() };
    let mut measurement = Measurement::new(PairConfig {
        plan: Some(plan),
        params: MatchParams { period: 32, window: WINDOW, ..MatchParams::default() },
        ..PairConfig::default()
    });
    measurement.send(Path::new("corpus"), data, |_| ()).unwrap();
    measurement.finish().savings().unwrap()
}

fn corpora() -> Vec<(&'static str, Vec<u8>)> {
    let mut corpus = Corpus::new(SEED);
    let text = corpus.text(LEN);
    let sources = [&text[..], &corpus.reworked(&text)].concat();
    let edited = corpus.edited(&text, LEN / 150);
    let code: Vec<u8> = [corpus.random(LEN / 2), corpus.records(LEN / 2)].concat();
    let programs = [&code[..], &corpus.relocated(&code)].concat();
    let records = corpus.records(LEN);
    let rows = [&records[..], &corpus.edited(&records, LEN / 300)].concat();
    vec![
        ("sources", sources),
        ("edited text", [text, edited].concat()),
        ("programs", programs),
        ("rows", rows),
        ("logs", corpus.log(LEN)),
    ]
}

const SEED: u64 = 1;
const LEN: usize = 500_000;
const WINDOW: usize = 32;
