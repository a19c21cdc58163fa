//! Wanax's figures 6 to 9 and 11, and its Table 1, on any files:
//!
//! ```sh
//! cargo bench -p oncewire-lab --bench chunks -- [TABLE…] [SERIES…]
//! ```
//!
//! A series is a directory, with its files sent one after the other and all counted, or files joined by commas: the
//! last one counts, and the others precede it. The default is small generated series, to show that everything works;
//! their figures mean little. Tables are printed as Markdown, as records of `docs/benchmarks` take them.

mod cost;
mod schemes;
mod series;
#[expect(dead_code, reason = "other tables of the other bench")]
#[path = "../endre/table.rs"]
mod table;

use std::process::ExitCode;

use series::Series;

/// A table, and the function printing it.
struct Bench {
    name: &'static str,
    run: fn(&[Series]),
}

const BENCHES: [Bench; 2] =
    [Bench { name: "schemes", run: schemes::run }, Bench { name: "cost", run: cost::run }];

fn main() -> ExitCode {
    // cargo says --bench.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let is_table = |argument: &&String| BENCHES.iter().any(|bench| bench.name == argument.as_str());
    let (tables, paths): (Vec<&String>, Vec<&String>) = arguments.iter().partition(is_table);
    let series = match series::load(&paths) {
        Ok(series) => series,
        Err(error) => {
            eprintln!(
                "chunks: {error}\nchunks: tables are schemes and cost; all else is directories or files"
            );
            return ExitCode::from(2);
        }
    };
    for bench in BENCHES {
        if tables.is_empty() || tables.iter().any(|table| *table == bench.name) {
            (bench.run)(&series);
        }
    }
    ExitCode::SUCCESS
}
