//! Duration of users' programs across a slow link: direct, and through transparent gateways.
//!
//! `cargo bench -p oncewire --bench wan` builds networks of namespaces. It takes root, `ip`, `nft` and the programs
//! themselves, and names missing ones. Numbers behind `--` set losses in per cent: `-- 0 1` is the default.
#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on has nothing to say")]

#[allow(dead_code, reason = "the tests use all of the bench, this uses a part")]
#[path = "../../tests/processes/common/mod.rs"]
mod common;
mod deployment;
mod services;
#[path = "../shared/transparent.rs"]
mod transparent;
mod workloads;

use std::time::Duration;

use deployment::{Crossing, Deployment};
use workloads::{Workload, all};

/// Networks are built and measured so often; each loses other packets.
const ROUNDS: u64 = 3;

/// The cost of a workload.
struct Taken {
    time: Duration,
    /// Bytes on the line, both ways, packets' headers included.
    wire: u64,
}

/// The compared ways.
const WAYS: [(&str, Crossing); 3] = [
    ("direct", Crossing::Direct),
    ("uncoded", Crossing::Gateways { codec: "none" }),
    ("coded", Crossing::Gateways { codec: "auto" }),
];

fn main() {
    let losses: Vec<f64> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let losses = if losses.is_empty() { vec![0.0, 1.0] } else { losses };
    let content = services::Content::make();
    for loss in losses {
        println!("\n### 20 Mbit/s, round trip 50 ms, {loss} % loss each way\n");
        println!(
            "| | direct, cubic | uncoded, bbr | coded, first | again | gain by lanes | by elimination, first | \
             again | kB direct | uncoded | coded, first | again |"
        );
        println!("|{}", "---|".repeat(12));
        let measured = WAYS.map(|(name, crossing)| {
            let rounds: Option<Vec<_>> = (0..ROUNDS)
                .map(|round| {
                    eprintln!("{loss} % loss, {name}, round {}", round + 1);
                    let deployment = Deployment::start(crossing, loss / 100.0, round, &content)?;
                    Some(measure(&deployment, crossing))
                })
                .collect();
            rounds.map(|rounds| medians(&rounds))
        });
        let [Some(direct), Some(uncoded), Some(coded)] = measured else { return };
        for (number, workload) in all().iter().enumerate() {
            row(workload, &direct[number], &uncoded[number], &coded[number]);
        }
    }
}

/// Runs every workload, twice if something may be remembered.
fn measure(deployment: &Deployment, crossing: Crossing) -> Vec<Vec<Taken>> {
    let rounds = if matches!(crossing, Crossing::Gateways { codec: "auto" }) { 2 } else { 1 };
    let twice = |workload: &Workload| (0..rounds).map(|_| deployment.run(workload)).collect();
    all().iter().map(twice).collect()
}

/// Takes the median of the rounds, of times and of bytes each.
fn medians(rounds: &[Vec<Vec<Taken>>]) -> Vec<Vec<Taken>> {
    let median = |workload: usize, turn: usize| {
        let taken = rounds.iter().map(|round| &round[workload][turn]);
        let (mut times, mut wires): (Vec<_>, Vec<_>) = taken.map(|taken| (taken.time, taken.wire)).unzip();
        times.sort_unstable();
        wires.sort_unstable();
        Taken { time: times[times.len() / 2], wire: wires[wires.len() / 2] }
    };
    let turns = |workload: usize| 0..rounds[0][workload].len();
    (0..rounds[0].len())
        .map(|workload| turns(workload).map(|turn| median(workload, turn)).collect())
        .collect()
}

fn row(workload: &Workload, direct: &[Taken], uncoded: &[Taken], coded: &[Taken]) {
    let ([direct], [uncoded], [first, again]) = (direct, uncoded, coded) else { return };
    let seconds = |taken: &Taken| format!("{:.2} s", taken.time.as_secs_f64());
    let gain = |from: &Taken, to: &Taken| {
        format!("{:.1} ×", from.time.as_secs_f64() / to.time.as_secs_f64().max(1e-3))
    };
    let kilobytes = |taken: &Taken| format!("{}", taken.wire / 1000);
    let cells = [
        seconds(direct),
        seconds(uncoded),
        seconds(first),
        seconds(again),
        gain(direct, uncoded),
        gain(uncoded, first),
        gain(uncoded, again),
        kilobytes(direct),
        kilobytes(uncoded),
        kilobytes(first),
        kilobytes(again),
    ];
    println!("| {} | {} |", workload.name, cells.join(" | "));
}
