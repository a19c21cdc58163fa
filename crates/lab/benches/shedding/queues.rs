//! The second file by queue length and disk speed: the cost of load shedding is never above its gain.

use std::time::Duration;

use oncewire_codec::entropy::Entropy;
use oncewire_codec::wanax::Shape;
use oncewire_codec::{Layers, Plan};
use oncewire_lab::simulation::{DiskParams, PathConfig, SimulationError, StoreConfig};

use crate::{files, table};

pub(crate) fn run(_: &[Vec<u8>]) -> Result<(), SimulationError> {
    let notes = "The second file of the table above by mrc:8:128, in Mbit/s with load shedding and, in brackets, without: \
                 small chunks in containers as the daemon's store has them, then each chunk with a read of its own. What \
                 waits at the far end of the line is the queue.";
    let reads = READS.map(|read| format!("{:.1} ms a read", read.as_secs_f64() * 1e3));
    let columns: Vec<&str> = ["line", "queue"].into_iter().chain(reads.iter().map(String::as_str)).collect();
    table::start("A long queue at the far end", notes, &columns);
    let plan = Plan { layers: Layers::Names, entropy: Entropy::None, ..Plan::default() };
    let (first, second) = files::files();
    let files = [first.clone(), first, second];
    for (kilobits_per_s, round_trip_ms) in LINES {
        for queue in QUEUES {
            let path = PathConfig {
                rate_bits_per_s: 1000 * kilobits_per_s,
                round_trip: Duration::from_millis(round_trip_ms),
                queue,
                ..PathConfig::default()
            };
            let mut cells = vec![
                format!("{kilobits_per_s} kbit/s, {round_trip_ms} ms"),
                format!("{:.1} s", queue.as_secs_f64()),
            ];
            for seek in READS {
                let second = |containers, shed| -> Result<f64, SimulationError> {
                    let disk = DiskParams { seek, ..DiskParams::default() };
                    let store = StoreConfig { disk, disks: 1, memory: 0, containers, shed };
                    let gateways = files::gateways(plan, Shape::default(), store);
                    let got = files::transfer(path, Some(gateways), &files)?;
                    Ok(got.last().map_or(0.0, |got| got.megabits_per_s))
                };
                let [[on, off], [on_apart, off_apart]] =
                    [true, false].map(|containers| [true, false].map(|shed| second(containers, shed)));
                cells.push(format!("{:.2} ({:.2}), {:.2} ({:.2})", on?, off?, on_apart?, off_apart?));
            }
            table::row(&cells);
        }
    }
    Ok(())
}

/// Kilobits a second, and the milliseconds of a round trip.
const LINES: [(u64, u64); 4] = [(512, 200), (2_000, 100), (10_000, 50), (10_000, 300)];
/// A short one, and a cheap modem's.
const QUEUES: [Duration; 2] = [Duration::from_millis(300), Duration::from_secs(3)];
const READS: [Duration; 5] = [
    Duration::from_micros(100),
    Duration::from_millis(2),
    Duration::from_micros(3_500),
    Duration::from_micros(8_500),
    Duration::from_millis(30),
];
