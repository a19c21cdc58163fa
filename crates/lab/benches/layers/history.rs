//! Savings by the age of content, with a limited table of hints.

use std::path::Path;
use std::time::Duration;

use oncewire_codec::entropy::Entropy;
use oncewire_codec::wanax::Shape;
use oncewire_codec::{Layers, Plan};
use oncewire_lab::corpus::Corpus;
use oncewire_lab::measure::Measurement;
use oncewire_lab::pair::PairConfig;

/// Bytes for hints; a gateway has up to 64 MiB for each peer.
const HINT_MEMORY: u64 = 512 << 10;
const LOG_MEMORY: u64 = 64 << 10;
const FILE: usize = 128 << 10;
/// A mebibyte a second.
const FILE_TAKES: Duration = Duration::from_millis(125);
/// Bytes since then, by bytes for hints.
const AGES: [u64; 8] = [1, 4, 16, 64, 256, 1024, 2048, 4096];
/// So many files of an age are sent again, and as many with each of the edits.
const FILES: usize = 4;
/// Bytes between two edits, in the mean.
const EDITS: [usize; 2] = [20_000, 2000];
/// As they were, and edited.
const KINDS: usize = 1 + EDITS.len();
/// Files in as many bytes as hints take.
const FILES_EACH: u64 = HINT_MEMORY / FILE as u64;

pub(crate) fn run() {
    println!(
        "| bytes since, by `hint_memory` | with 64 MiB | as it was | an edit in 20 kB | an edit in 2 kB |"
    );
    println!("|---:|---:|---:|---:|---:|");
    let plan = Plan { layers: Layers::Names, entropy: Entropy::None, ..Plan::default() };
    let config = PairConfig {
        plan: Some(plan),
        log_memory: LOG_MEMORY,
        store: Some(Shape::default()),
        hint_memory: HINT_MEMORY,
        ..PairConfig::default()
    };
    let mut measurement = Measurement::new(config);
    // Of each file its seed, unless it was sent again, or is.
    let mut sent: Vec<Option<u64>> = Vec::new();
    let mut send = |sent: &mut Vec<Option<u64>>, seed: Option<u64>, bytes: &[u8]| {
        measurement.send(Path::new("history"), bytes, |_| ()).unwrap();
        measurement.pass(FILE_TAKES);
        sent.push(seed);
    };
    for seed in 0..AGES[AGES.len() - 1] * FILES_EACH {
        send(&mut sent, Some(seed), &file(seed));
    }
    let mut again = Vec::new();
    for (age, kind) in AGES.into_iter().flat_map(|age| (0..KINDS).map(move |kind| (age, kind))) {
        // Those of that age, with repeated ones counted.
        let seeds = loop {
            let first = sent.len() - (age * FILES_EACH) as usize;
            match sent[first..][..FILES].iter().copied().collect::<Option<Vec<u64>>>() {
                Some(seeds) => {
                    sent[first..][..FILES].fill(None);
                    break seeds;
                }
                None => {
                    let seed = sent.len() as u64;
                    send(&mut sent, Some(seed), &file(seed));
                }
            }
        };
        for seed in seeds {
            again.push(sent.len());
            match kind.checked_sub(1).map(|edits| EDITS[edits]) {
                None => send(&mut sent, None, &file(seed)),
                Some(every) => {
                    send(&mut sent, None, &Corpus::new(!seed).edited(&file(seed), FILE / every));
                }
            }
        }
    }
    let report = measurement.finish();
    let saved: Vec<f64> = again
        .chunks(FILES)
        .map(|files| {
            let files = files.iter().map(|at| &report.files[*at]);
            let (wire, all) = files.fold((0, 0), |sum, file| (sum.0 + file.wire, sum.1 + file.delivered));
            100.0 - 100.0 * wire as f64 / all as f64
        })
        .collect();
    for (age, saved) in AGES.into_iter().zip(saved.chunks(KINDS)) {
        let saved: Vec<String> = saved.iter().map(|saved| format!("{saved:.1} %")).collect();
        println!("| {age} | {} | {} |", bytes(age * (64 << 20)), saved.join(" | "));
    }
}

fn file(seed: u64) -> Vec<u8> {
    Corpus::new(seed).random(FILE)
}

fn bytes(bytes: u64) -> String {
    match bytes >> 30 {
        0 => format!("{} MiB", bytes >> 20),
        gibibytes => format!("{gibibytes} GiB"),
    }
}
