//! Edited files over short and long lines, by congestion control.
//!
//! A connection of its own begins anew with each file. A lane does not: its window keeps the effect of earlier
//! losses.

use std::time::Duration;

use bytes::Bytes;
use oncewire_codec::entropy::Entropy;
use oncewire_codec::wanax::Shape;
use oncewire_codec::{Layers, Plan};
use oncewire_lab::corpus::Corpus;
use oncewire_lab::simulation::{DiskParams, GatewayConfig, PathConfig, SimulationError, StoreConfig};
use oncewire_netem::tcp::congestion::Policy;

use crate::files::{self, gateways};
use crate::table;

pub(crate) fn run(_: &[Vec<u8>]) -> Result<(), SimulationError> {
    let notes = format!(
        "A text, and 10 s after it the same with an edit in {EDIT_EVERY} bytes on average, of which the log has nothing any \
         more; one disk of {:.1} ms a read, small chunks in containers, load shedding. Seconds for the second without \
         gateways, and how many times as fast it is with names alone and with the log and names.",
        DiskParams::default().seek.as_secs_f64() * 1e3
    );
    let columns = [
        "file",
        "link",
        "round trip",
        "cubic: alone",
        "names",
        "log and names",
        "bbr: alone",
        "names",
        "log and names",
    ];
    table::start("An edited file, by congestion control", &notes, &columns);
    let mut corpus = Corpus::new(14);
    for mebibytes in [2, 6, 24] {
        let first = corpus.text(mebibytes << 20);
        let second = corpus.edited(&first, EDIT_EVERY);
        let files = [first, second].map(Bytes::from);
        for (megabits_per_s, round_trip) in LINES {
            let mut cells = vec![
                format!("{mebibytes} MiB"),
                format!("{megabits_per_s} Mbit/s"),
                format!("{round_trip} ms"),
            ];
            for policy in POLICIES {
                let path = PathConfig {
                    rate_bits_per_s: 1_000_000 * megabits_per_s,
                    round_trip: Duration::from_millis(round_trip),
                    queue: QUEUE,
                    policy,
                    ..PathConfig::default()
                };
                let alone = seconds(path, None, &files)?;
                cells.push(format!("{alone:.2} s"));
                for layers in [Layers::Names, Layers::Both] {
                    cells.push(table::times(alone / seconds(path, Some(with(layers)), &files)?));
                }
            }
            table::row(&cells);
        }
    }
    Ok(())
}

/// The settings common to all rows.
pub(crate) fn with(layers: Layers) -> GatewayConfig {
    let plan = Plan { layers, entropy: Entropy::None, ..Plan::default() };
    let store =
        StoreConfig { disk: DiskParams::default(), disks: 1, memory: 0, containers: true, shed: true };
    GatewayConfig { window: 512 << 10, log_memory: 1 << 20, ..gateways(plan, Shape::default(), store) }
}

fn seconds(
    path: PathConfig,
    gateways: Option<GatewayConfig>,
    files: &[Bytes; 2],
) -> Result<f64, SimulationError> {
    let transfers = files::transfer(path, gateways, files)?;
    let [_, edited] = files;
    Ok(transfers.get(1).map_or(f64::NAN, |got| 8.0 * edited.len() as f64 / (got.megabits_per_s * 1e6)))
}

/// The congestion control of lanes and connections: the daemon's lanes take the second if the kernel has it.
const POLICIES: [Policy; 2] = [Policy::Cubic, Policy::Bbr];
pub(crate) const EDIT_EVERY: usize = 2000;
pub(crate) const QUEUE: Duration = Duration::from_millis(400);
/// Megabits a second, and milliseconds.
const LINES: [(u64, u64); 10] = [
    (5, 200),
    (5, 600),
    (20, 50),
    (20, 200),
    (20, 600),
    (50, 50),
    (50, 200),
    (100, 50),
    (100, 200),
    (200, 20),
];
