//! The cost of a vain search for named chunks: `cargo bench -p oncewire-lab --bench layers -- FILE…` sends the files
//! once by each set of layers, and prints a table of CPU time. With `history` it prints instead the savings by the
//! age of content.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a program for the terminal")]

use std::path::Path;
use std::time::Duration;

use oncewire_codec::entropy::Entropy;
use oncewire_codec::wanax::Shape;
use oncewire_codec::{Layers, Plan};
use oncewire_lab::measure::{Measurement, Report};
use oncewire_lab::pair::PairConfig;

mod history;

const ROUNDS: usize = 5;

fn main() {
    let files: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    if files == ["history"] {
        return history::run();
    }
    println!(
        "| entropy | layers | encode, ns a byte | of the log's | decode, ns a byte | of the log's | wire |"
    );
    println!("|---|---|---|---|---|---|---|");
    for entropy in [Entropy::None, Entropy::Zstd(1)] {
        let configs = [Layers::Log, Layers::Both, Layers::Names].map(|layers| PairConfig {
            plan: Some(Plan { layers, entropy, ..Plan::default() }),
            store: layers.use_names().then(Shape::default),
            ..PairConfig::default()
        });
        // In turn, for the same machine under all; the best of each counts.
        let rounds: Vec<[Report; 3]> =
            (0..ROUNDS).map(|_| configs.map(|config| measured(config, &files))).collect();
        let best = |at: usize, time: fn(&Report) -> Duration| {
            let times = rounds.iter().map(|reports| time(&reports[at]));
            times.min().unwrap().as_secs_f64() * 1e9 / rounds[0][at].delivered as f64
        };
        for (at, layers) in ["log", "log and names", "names"].into_iter().enumerate() {
            let [encode, decode] = [|report: &Report| report.encoding, |report: &Report| report.decoding];
            println!(
                "| {entropy} | {layers} | {:.2} | {:.2} × | {:.2} | {:.2} × | {} |",
                best(at, encode),
                best(at, encode) / best(0, encode),
                best(at, decode),
                best(at, decode) / best(0, decode),
                rounds[0][at].wire
            );
        }
    }
}

fn measured(config: PairConfig, files: &[String]) -> Report {
    let mut measurement = Measurement::new(config);
    for file in files {
        measurement.send_file(Path::new(file), |_| ()).unwrap();
    }
    measurement.finish()
}
