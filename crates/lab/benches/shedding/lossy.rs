//! File transfers over lossy lines, under loss-based congestion control: new bytes without a store, and edits of a
//! text with one.
//!
//! A connection of its own begins anew with each file. A lane's window keeps the effect of losses in earlier files,
//! unless another lane takes its place.

use std::time::Duration;

use bytes::Bytes;
use oncewire_codec::entropy::Entropy;
use oncewire_codec::wanax::Shape;
use oncewire_codec::{Layers, Plan};
use oncewire_lab::corpus::Corpus;
use oncewire_lab::simulation::{
    FAR, GatewayConfig, PathConfig, Simulation, SimulationConfig, SimulationError,
};

use crate::{edited, table};

pub(crate) fn run(_: &[Vec<u8>]) -> Result<(), SimulationError> {
    let notes = format!(
        "{NEW_FILES} files of random bytes one after the other, {} s apart, over a line with a queue of 100 ms, all \
         connections under cubic; the mean of {NEW_SEEDS} runs with other losses. Seconds for the second file and those \
         after it.",
        PAUSE.as_secs()
    );
    table::start("New bytes over lossy lines", &notes, &COLUMNS);
    let new = Runs { files: NEW_FILES, seeds: NEW_SEEDS, queue: Duration::from_millis(100), edits: None };
    for line in NEW_LINES {
        row(&new, line, gateways())?;
    }
    let notes = format!(
        "A text and {} that come of it one after the other, with an edit in {} bytes on average; store, disk and queue as \
         in the table of an edited file, log and names, and all else as with new bytes. The mean of {EDITED_SEEDS} runs.",
        EDITED_FILES - 1,
        edited::EDIT_EVERY
    );
    table::start("Edited files over lossy lines", &notes, &COLUMNS);
    let edits = Some(edited::EDIT_EVERY);
    let edited = Runs { files: EDITED_FILES, seeds: EDITED_SEEDS, queue: edited::QUEUE, edits };
    for line in EDITED_LINES {
        row(&edited, line, edited::with(Layers::Both))?;
    }
    Ok(())
}

/// KiB of a file, megabits a second, milliseconds, and the share of lost packets.
type Line = (usize, u64, u64, f64);

/// The settings common to all rows of a table.
struct Runs {
    files: usize,
    seeds: u64,
    queue: Duration,
    /// How far apart edits are; `None`: all bytes are new.
    edits: Option<usize>,
}

fn row(runs: &Runs, line: Line, with: GatewayConfig) -> Result<(), SimulationError> {
    let (kibibytes, megabits_per_s, round_trip, loss) = line;
    let (mut alone, mut coded, mut renewed) = (0.0, 0.0, 0);
    for seed in 0..runs.seeds {
        let path = PathConfig {
            rate_bits_per_s: 1_000_000 * megabits_per_s,
            round_trip: Duration::from_millis(round_trip),
            queue: runs.queue,
            loss,
            seed,
            ..PathConfig::default()
        };
        alone += mean(runs, path, None, kibibytes)?.0;
        let (seconds, lanes) = mean(runs, path, Some(with.clone()), kibibytes)?;
        coded += seconds;
        renewed += lanes;
    }
    table::row(&[
        format!("{kibibytes} KiB"),
        format!("{megabits_per_s} Mbit/s"),
        format!("{round_trip} ms"),
        format!("{} %", loss * 100.0),
        format!("{:.2} s", alone / runs.seeds as f64),
        format!("{:.2} s", coded / runs.seeds as f64),
        table::times(alone / coded),
        renewed.to_string(),
    ]);
    Ok(())
}

/// Returns the mean time of all files but the first, in seconds, and how many lanes of the sending side were renewed.
fn mean(
    runs: &Runs,
    path: PathConfig,
    gateways: Option<GatewayConfig>,
    kibibytes: usize,
) -> Result<(f64, u64), SimulationError> {
    let mut simulation = Simulation::new(SimulationConfig { path, gateways, ..Default::default() })?;
    let mut corpus = Corpus::new(15);
    let mut seconds = 0.0;
    let mut file = Vec::new();
    for number in 0..runs.files {
        file = match runs.edits {
            None => corpus.random(kibibytes << 10),
            Some(_) if number == 0 => corpus.text(kibibytes << 10),
            Some(every) => corpus.edited(&file, every),
        };
        let bits = 8.0 * file.len() as f64;
        let fetch = simulation.fetch(Bytes::from(file.clone()), Duration::ZERO);
        simulation.run(LIMIT)?;
        if number > 0 {
            seconds += simulation.flows().get(fetch).map_or(f64::NAN, |fetch| bits / fetch.bits_per_s());
        }
        simulation.pass(PAUSE)?;
    }
    let renewed = simulation.link_stats(FAR).map_or(0, |stats| stats.lanes_renewed);
    Ok((seconds / (runs.files - 1) as f64, renewed))
}

fn gateways() -> GatewayConfig {
    let plan = Plan { layers: Layers::Log, entropy: Entropy::None, ..Plan::default() };
    let shape = Shape::default();
    GatewayConfig {
        plan: Some(plan),
        shape,
        log_memory: 1 << 20,
        window: 4 << 20,
        ..GatewayConfig::default()
    }
}

const COLUMNS: [&str; 8] =
    ["file", "link", "round trip", "lost", "without gateways", "with", "times as fast", "lanes renewed"];
const NEW_LINES: [Line; 10] = [
    (128, 20, 200, 0.001),
    (512, 20, 200, 0.001),
    (512, 20, 200, 0.01),
    (2048, 20, 200, 0.001),
    (2048, 20, 200, 0.01),
    (512, 50, 50, 0.001),
    (2048, 50, 50, 0.001),
    (2048, 50, 50, 0.01),
    (2048, 100, 200, 0.0001),
    (8192, 100, 200, 0.0001),
];
const NEW_FILES: usize = 8;
const NEW_SEEDS: u64 = 20;
const EDITED_LINES: [Line; 12] = [
    (2048, 20, 50, 0.001),
    (2048, 20, 50, 0.01),
    (2048, 20, 200, 0.001),
    (2048, 20, 200, 0.01),
    (2048, 100, 200, 0.001),
    (2048, 100, 200, 0.01),
    (6144, 20, 50, 0.001),
    (6144, 20, 200, 0.001),
    (6144, 50, 50, 0.001),
    (6144, 50, 50, 0.01),
    (6144, 100, 200, 0.0001),
    (6144, 100, 200, 0.001),
];
const EDITED_FILES: usize = 5;
const EDITED_SEEDS: u64 = 4;
const PAUSE: Duration = Duration::from_secs(10);
const LIMIT: Duration = Duration::from_secs(3600);
