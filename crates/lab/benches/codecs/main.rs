//! Codecs side by side on modelled lines and hosts, by a trace of flows.
//!
//! ```sh
//! cargo bench -p oncewire-lab --bench codecs -- [TRACE…]
//! ```
//!
//! All times are virtual, so every machine and every profile prints the same. A trace has one flow a line,
//! `START_MS CLASS SIDE:CONTENT:SEED:BYTES…`; the default is an office's morning. A codec of one's own is another row
//! of [`codecs`].

#[path = "../../../link/tests/common/raw.rs"]
mod raw;
#[path = "../endre/table.rs"]
#[allow(dead_code, reason = "each bench uses its part")]
mod table;

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use oncewire_codec::{Layers, Plan};
use oncewire_lab::simulation::{
    ClassReport, DiskParams, FAR, FlowPlan, GatewayConfig, HostConfig, NEAR, PathConfig, Report, Simulation,
    SimulationConfig, SimulationError, StoreConfig, parse_trace,
};
use raw::raw;

/// Flows with their starts.
type Flows = Vec<(Duration, FlowPlan)>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("codecs: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    // cargo says --bench.
    let paths: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let mut traces = Vec::new();
    for path in paths {
        traces.push((path.clone(), std::fs::read_to_string(path)?));
    }
    if traces.is_empty() {
        traces.push(("an office's morning".to_owned(), MORNING.to_owned()));
    }
    for (name, trace) in traces {
        let flows = parse_trace(&trace)?;
        for (line, path, host) in lines() {
            print_table(&format!("{name}, {line}"), path, host, &flows)?;
        }
    }
    Ok(())
}

fn print_table(
    title: &str,
    path: PathConfig,
    host: HostConfig,
    flows: &Flows,
) -> Result<(), SimulationError> {
    let notes = "Completion times are median, p95 and p99 in seconds, by class of flows. Bytes on the wire hold all \
                 headers and what TCP sent again.";
    let mut columns = vec!["codec"];
    let classes = classes(flows);
    columns.extend(classes.iter().map(String::as_str));
    columns.extend([
        "Mbit/s",
        "MB offered",
        "MB delivered",
        "MB down",
        "saved",
        "MB up",
        "sent again",
        "CPU near",
        "CPU far",
    ]);
    table::start(title, notes, &columns);
    let direct = ("no gateways", None);
    for (codec, gateways) in std::iter::once(direct).chain(codecs()) {
        let config = SimulationConfig { path, hosts: [host; 2], gateways };
        let mut simulation = Simulation::new(config)?;
        for (at, flow) in flows {
            simulation.open(flow.clone(), *at);
        }
        simulation.run(LIMIT)?;
        let report = simulation.report();
        table::row(&row(codec, &classes, &report));
    }
    Ok(())
}

fn row(codec: &str, classes: &[String], report: &Report) -> Vec<String> {
    let [up, down] = [NEAR, FAR].map(|side| report.directions[side]);
    let megabytes = |bytes: u64| format!("{:.2}", bytes as f64 / 1e6);
    let times = classes.iter().map(|class| report.classes.get(class).map_or(String::new(), times));
    let savings = down.savings().map_or(String::new(), |saved| format!("{:.1} %", 100.0 * saved));
    let figures = [
        format!("{:.2}", report.bits_per_s() / 1e6),
        megabytes(up.offered + down.offered),
        megabytes(up.delivered + down.delivered),
        megabytes(down.wire),
        savings,
        megabytes(up.wire),
        (up.retransmits + down.retransmits).to_string(),
        format!("{:.2} s", up.cpu.as_secs_f64()),
        format!("{:.2} s", down.cpu.as_secs_f64()),
    ];
    std::iter::once(codec.to_owned()).chain(times).chain(figures).collect()
}

fn times(class: &ClassReport) -> String {
    let times = [50, 95, 99].map(|percent| {
        class.percentile(percent).map_or("–".to_owned(), |time| format!("{:.2}", time.as_secs_f64()))
    });
    times.join(", ")
}

fn classes(flows: &Flows) -> Vec<String> {
    let mut classes: Vec<String> = flows.iter().map(|(_, flow)| flow.class.clone()).collect();
    classes.sort();
    classes.dedup();
    classes
}

/// The compared codecs.
fn codecs() -> [(&'static str, Option<GatewayConfig>); 4] {
    let plan = |layers| Some(Plan { layers, ..Plan::default() });
    let store =
        StoreConfig { disk: DiskParams::default(), disks: 1, memory: 0, containers: true, shed: true };
    let of = |plan| GatewayConfig { plan, ..GatewayConfig::default() };
    [
        ("endre, log and names", Some(GatewayConfig { store: Some(store), ..of(plan(Layers::Both)) })),
        ("endre, log alone", Some(of(plan(Layers::Log)))),
        ("none", Some(of(None))),
        ("raw", Some(GatewayConfig { codec: raw(), ..of(None) })),
    ]
}

/// The lines, and the hosts at their ends.
fn lines() -> [(&'static str, PathConfig, HostConfig); 4] {
    let line = |megabits: u64, ms| PathConfig {
        rate_bits_per_s: megabits * 1_000_000,
        round_trip: Duration::from_millis(ms),
        queue: Duration::from_millis(100),
        ..PathConfig::default()
    };
    let lossy = PathConfig { loss: 0.005, reorder: 0.01, jitter: Duration::from_millis(5), ..line(20, 80) };
    let slow = HostConfig {
        encode_bytes_per_s: Some(2_000_000),
        decode_bytes_per_s: Some(4_000_000),
        per_frame: Duration::from_micros(50),
    };
    [
        ("10 Mbit/s and 50 ms", line(10, 50), HostConfig::default()),
        ("2 Mbit/s and 600 ms", line(2, 600), HostConfig::default()),
        ("20 Mbit/s and 80 ms with losses", lossy, HostConfig::default()),
        ("100 Mbit/s and 20 ms, hosts of 2 MB/s", line(100, 20), slow),
    ]
}

/// Pages, a large file for two colleagues, its copy back, and logs.
const MORNING: &str = include_str!("morning.trace");
/// A day.
const LIMIT: Duration = Duration::from_secs(86_400);
