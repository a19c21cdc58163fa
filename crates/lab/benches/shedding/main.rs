//! The effect of disks, path, losses and load shedding on Wanax's savings: figures 10, 12 and 13, the class with a
//! film, and lanes under loss.
//!
//! ```sh
//! cargo bench -p oncewire-lab --bench shedding -- [TABLE…] [FILE…]
//! ```
//!
//! All times are virtual, so every machine and every profile prints the same. The files, in the order of sending, are
//! for the table of rates, with all but the first counted; the default is generated ones. Tables are printed as
//! Markdown, as records of `docs/benchmarks` take them.

mod edited;
mod files;
mod film;
mod lossy;
mod queues;
mod rates;
#[path = "../endre/table.rs"]
#[allow(dead_code, reason = "each bench uses its part")]
mod table;

use std::path::Path;
use std::process::ExitCode;

use oncewire_lab::corpus::Corpus;

/// A table, and the function printing it.
struct Bench {
    name: &'static str,
    run: fn(&[Vec<u8>]) -> Result<(), oncewire_lab::simulation::SimulationError>,
}

const BENCHES: [Bench; 7] = [
    Bench { name: "rates", run: rates::run },
    Bench { name: "files", run: files::run },
    Bench { name: "edited", run: edited::run },
    Bench { name: "queues", run: queues::run },
    Bench { name: "film", run: film::run },
    Bench { name: "starts", run: film::run_starts },
    Bench { name: "lossy", run: lossy::run },
];

fn main() -> ExitCode {
    // cargo says --bench.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let is_table = |argument: &&String| BENCHES.iter().any(|bench| bench.name == argument.as_str());
    let (tables, paths): (Vec<&String>, Vec<&String>) = arguments.iter().partition(is_table);
    let files: Result<Vec<Vec<u8>>, _> = paths.iter().map(|path| std::fs::read(Path::new(path))).collect();
    let files = match files {
        Ok(files) if files.is_empty() => generated(),
        Ok(files) => files,
        Err(error) => {
            eprintln!("shedding: {error}");
            return ExitCode::from(2);
        }
    };
    for bench in BENCHES {
        if (tables.is_empty() || tables.iter().any(|table| *table == bench.name))
            && let Err(error) = (bench.run)(&files)
        {
            eprintln!("shedding: {}: {error}", bench.name);
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// A file and the same with edits.
fn generated() -> Vec<Vec<u8>> {
    let mut bytes = Corpus::new(1);
    let first = bytes.text(4 << 20);
    let second = bytes.edited(&first, 300);
    vec![first, second]
}
