//! EndRE's figures and tables, on any files or on the corpora of `scripts/corpora DIR endre`:
//!
//! ```sh
//! cargo bench -p oncewire-lab --bench endre -- [TABLE…] [FILE or DIR…]
//! ```
//!
//! The default is small generated corpora, to show that everything works; their figures mean little. Tables are
//! printed as Markdown, as records of `docs/benchmarks` take them. Times are those of this thread alone; speeds are
//! compared within a run and in turns, so a busy machine slows both sides.

mod adversarial;
mod bare;
mod chunks;
mod coder;
mod files;
mod log_sizes;
mod memcpy;
mod oracle;
mod parts;
mod searcher;
mod slots;
mod sweep;
mod table;
mod zstd;

use std::process::ExitCode;

use files::Corpus;

/// A table, and the function printing it.
struct Bench {
    name: &'static str,
    run: fn(&[Corpus]),
}

const BENCHES: [Bench; 10] = [
    Bench { name: "memcpy", run: memcpy::run },
    Bench { name: "parts", run: parts::run },
    Bench { name: "bare", run: bare::run },
    Bench { name: "oracle", run: oracle::run },
    Bench { name: "zstd", run: zstd::run },
    Bench { name: "sweep", run: sweep::run },
    Bench { name: "log-sizes", run: log_sizes::run },
    Bench { name: "chunks", run: chunks::run },
    Bench { name: "slots", run: slots::run },
    Bench { name: "adversarial", run: adversarial::run },
];

fn main() -> ExitCode {
    // cargo says --bench.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let is_table = |argument: &&String| BENCHES.iter().any(|bench| bench.name == argument.as_str());
    let (tables, paths): (Vec<&String>, Vec<&String>) = arguments.iter().partition(is_table);
    let corpora = match files::load(&paths) {
        Ok(corpora) => corpora,
        Err(error) => {
            let names: Vec<&str> = BENCHES.iter().map(|bench| bench.name).collect();
            eprintln!(
                "endre: {error}\nendre: tables are {}; all else is files or directories",
                names.join(", ")
            );
            return ExitCode::from(2);
        }
    };
    for bench in BENCHES {
        if tables.is_empty() || tables.iter().any(|table| *table == bench.name) {
            (bench.run)(&corpora);
        }
    }
    ExitCode::SUCCESS
}
