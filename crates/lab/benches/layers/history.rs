//! What is saved of content by how much came since, of a store that remembers everything and a table of hints that does not.

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
/// Bytes that came since, by bytes for hints.
const AGES: [u64; 8] = [1, 4, 16, 64, 256, 1024, 2048, 4096];
/// So many files of an age are sent again, and as many with each of the edits.
const FILES: u64 = 4;
/// Bytes between two edits, in the mean.
const EDITS: [usize; 2] = [20_000, 2000];
/// As they were, and edited.
const KINDS: u64 = 1 + EDITS.len() as u64;

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
    let mut send = |bytes: &[u8]| {
        measurement.send(Path::new("history"), bytes, |_| ()).unwrap();
        measurement.pass(FILE_TAKES);
    };
    let files = (AGES[AGES.len() - 1] * HINT_MEMORY) / FILE as u64 + KINDS * FILES;
    (0..files).for_each(|seed| send(&file(seed)));
    // The youngest first, so that what is sent again makes nothing older that is yet to come.
    for age in AGES {
        let mut seeds = files - age * HINT_MEMORY / FILE as u64 - KINDS * FILES..;
        seeds.by_ref().take(FILES as usize).for_each(|seed| send(&file(seed)));
        for every in EDITS {
            let edited = |seed: u64| Corpus::new(!seed).edited(&file(seed), FILE / every);
            seeds.by_ref().take(FILES as usize).for_each(|seed| send(&edited(seed)));
        }
    }
    let report = measurement.finish();
    let again = report.files[files as usize..].chunks(FILES as usize);
    let saved: Vec<f64> = again
        .map(|files| {
            let (wire, all) =
                files.iter().fold((0, 0), |sum, file| (sum.0 + file.wire, sum.1 + file.delivered));
            100.0 - 100.0 * wire as f64 / all as f64
        })
        .collect();
    for (age, saved) in AGES.into_iter().zip(saved.chunks(KINDS as usize)) {
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
