//! Two files with nine tenths in common, over a slow link [Wanax §6, Figures 12 and 13].

use std::time::Duration;

use bytes::Bytes;
use oncewire_codec::entropy::Entropy;
use oncewire_codec::wanax::Shape;
use oncewire_codec::{Layers, Plan};
use oncewire_lab::corpus::Corpus;
use oncewire_lab::simulation::{
    DiskParams, FAR, GatewayConfig, PathConfig, Simulation, SimulationConfig, SimulationError, StoreConfig,
};

use crate::table;

pub(crate) fn run(_: &[Vec<u8>]) -> Result<(), SimulationError> {
    let notes = "512 kbit/s and 200 ms both ways; 1 MiB of random bytes, the same again, and a file of which a tenth was \
                 replaced in runs of 2,432 bytes. Bytes saved and Mbit/s, as a client sees them from the request to the \
                 last byte. One disk of 8.5 ms a read; in the last columns as many disks, as neighbours have them.";
    let columns = ["chunks", "shedding", "first", "again", "second", "second, 2 disks", "second, 3 disks"];
    table::start("Two files over 512 kbit/s", notes, &columns);
    let (first, second) = files();
    let files = [first.clone(), first, second];
    let base = transfer(path(), None, &files)?;
    let cell = |got: &Transfer, base: &Transfer| {
        let saved = 100.0 * (1.0 - got.bytes as f64 / base.bytes as f64);
        format!("{saved:.1} %, {:.2}", got.megabits_per_s)
    };
    let direct = base.iter().map(|got| format!("{:.2}", got.megabits_per_s));
    table::row(&["none", ""].map(str::to_owned).into_iter().chain(direct).collect::<Vec<_>>());
    for (name, plan, shape) in schemes() {
        for shed in [false, true] {
            let store = |disks| StoreConfig {
                disk: DiskParams::default(),
                disks,
                memory: 0,
                containers: false,
                shed,
            };
            let run = |disks| transfer(path(), Some(gateways(plan, shape, store(disks))), &files);
            let got = run(1)?;
            let more = [run(2)?, run(3)?];
            let all = got.iter().zip(&base).chain(more.iter().filter_map(|got| got.last().zip(base.last())));
            let cells = all.map(|(got, base)| cell(got, base));
            let shed = if shed { "on" } else { "off" };
            table::row(&[name.clone(), shed.to_owned()].into_iter().chain(cells).collect::<Vec<_>>());
        }
    }
    Ok(())
}

/// The compared schemes: single sizes and trees with names only, and a tree below the log.
fn schemes() -> Vec<(String, Plan, Shape)> {
    let names = Plan { layers: Layers::Names, entropy: Entropy::None, ..Plan::default() };
    let both = Plan { layers: Layers::Both, ..names };
    let shapes = SHAPES.iter().filter_map(|shape| Some((shape.to_string(), names, shape.parse().ok()?)));
    shapes.chain([("mrc:8:128 below a log".to_owned(), both, Shape::default())]).collect()
}

/// The line of the figures, with as long a queue as twice the round trip.
fn path() -> PathConfig {
    PathConfig {
        rate_bits_per_s: 512_000,
        round_trip: Duration::from_millis(200),
        queue: Duration::from_millis(400),
        ..PathConfig::default()
    }
}

pub(crate) fn gateways(plan: Plan, shape: Shape, store: StoreConfig) -> GatewayConfig {
    GatewayConfig {
        plan: Some(plan),
        shape,
        log_memory: LOG,
        window: WINDOW,
        store: Some(store),
        ..GatewayConfig::default()
    }
}

/// The result of one transfer.
pub(crate) struct Transfer {
    pub(crate) bytes: u64,
    pub(crate) megabits_per_s: f64,
}

/// Fetches files, one after the other.
pub(crate) fn transfer(
    path: PathConfig,
    gateways: Option<GatewayConfig>,
    files: &[Bytes],
) -> Result<Vec<Transfer>, SimulationError> {
    let mut simulation = Simulation::new(SimulationConfig { path, gateways, ..Default::default() })?;
    let mut transfers = Vec::new();
    for file in files {
        let before = simulation.wire_bytes(FAR);
        let fetch = simulation.fetch(file.clone(), Duration::ZERO);
        simulation.run(LIMIT)?;
        let bits_per_s = simulation.flows().get(fetch).map_or(0.0, |fetch| fetch.bits_per_s());
        let bytes = simulation.wire_bytes(FAR) - before;
        transfers.push(Transfer { bytes, megabits_per_s: bits_per_s / 1e6 });
        simulation.pass(PAUSE)?;
    }
    Ok(transfers)
}

/// Returns a file of random bytes, and one with nine tenths in common.
pub(crate) fn files() -> (Bytes, Bytes) {
    let mut corpus = Corpus::new(12);
    let first = corpus.random(1 << 20);
    let mut second = first.clone();
    // A run at a seeded place of each of as many equal parts.
    let parts = second.len() / (10 * RUN);
    for part in second.chunks_mut(10 * RUN).take(parts) {
        let at = corpus.random(2);
        let at = usize::from(u16::from_le_bytes([at[0], at[1]])) % (part.len() - RUN + 1);
        part[at..at + RUN].copy_from_slice(&corpus.random(RUN));
    }
    (first.into(), second.into())
}

const SHAPES: [&str; 6] = ["src:128", "src:1024", "src:8192", "src:65536", "mrc:4:64", "mrc:8:128"];
/// Bytes in a row with differences. With this length chunks of 1 KiB save four fifths, as in the paper with its
/// unpublished files.
const RUN: usize = 2432;
/// A quarter of a file, so the log cannot replace the store.
const LOG: u64 = 256 << 10;
/// More than the path carries in a round trip, so windows do not decide.
const WINDOW: u64 = 4 << 20;
const PAUSE: Duration = Duration::from_secs(10);
const LIMIT: Duration = Duration::from_secs(3600);
