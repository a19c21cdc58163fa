//! The cost of an uncoded flow: bypassed, spliced, copied, and on the link as it is.
//!
//! `cargo bench -p oncewire --bench direct` builds a network of namespaces. It takes root, `ip` and `nft`, and names
//! missing ones. It prints seconds of CPU time for each 10⁹ bytes, medians of rounds with the ways in turn.
#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on has nothing to say")]

#[allow(dead_code, reason = "the tests use all of the bench, this uses a part")]
#[path = "../../tests/processes/common/mod.rs"]
mod common;
mod deployment;
#[path = "../shared/transparent.rs"]
mod transparent;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Instant;

use deployment::{Deployment, PORTS};

/// Bytes of one download.
const BYTES: usize = 1 << 30;
const ROUNDS: usize = 5;

/// The compared ways, and the port of each for policies.
const WAYS: [(&str, u16); 4] = [
    ("bypassed in the kernel", PORTS.bypassed),
    ("direct, spliced", PORTS.direct),
    ("direct, copied", PORTS.direct),
    ("on the link, `codec = \"none\"`", PORTS.uncoded),
];

/// The cost of one download: seconds of the branch, the hub and both ends together, and the duration.
type Cost = [f64; 4];

fn main() {
    let Some(deployment) = Deployment::start() else { return };
    let mut costs = WAYS.map(|_| Vec::new());
    for round in 0..ROUNDS {
        for ((name, port), costs) in WAYS.iter().zip(&mut costs) {
            eprintln!("round {}, {name}", round + 1);
            let mut stream = deployment.connect(*port);
            let exhausted = (*name == "direct, copied").then(|| deployment.exhaust_pipes());
            costs.push(download(&deployment, &mut stream));
            drop(exhausted);
        }
    }
    println!("| | branch, s/GB | hub, s/GB | client and server, s/GB | Gbit/s |\n|---|---|---|---|---|");
    for ((name, _), costs) in WAYS.iter().zip(&costs) {
        let gigabytes = BYTES as f64 / 1e9;
        let [branch, hub, ends, seconds] =
            [0, 1, 2, 3].map(|at| spread(costs, at).map(|cost| cost / gigabytes));
        let range = |[least, median, most]: [f64; 3]| format!("{median:.2} ({least:.2} to {most:.2})");
        println!(
            "| {name} | {} | {} | {} | {:.1} |",
            range(branch),
            range(hub),
            range(ends),
            8.0 / seconds[1]
        );
    }
}

fn download(deployment: &Deployment, stream: &mut TcpStream) -> Cost {
    let (before, start) = (deployment.processor_time(), Instant::now());
    stream.write_all(&[deployment::SEND]).expect("the server is there");
    let (mut left, mut block) = (BYTES, vec![0; 256 << 10]);
    while left > 0 {
        let read = stream.read(&mut block).expect("the download goes on");
        assert!(read > 0, "it ended {left} bytes too early");
        left -= read;
    }
    let (after, seconds) = (deployment.processor_time(), start.elapsed().as_secs_f64());
    let taken = [0, 1, 2].map(|process: usize| (after[process] - before[process]).as_secs_f64());
    [taken[0], taken[1], taken[2], seconds]
}

/// The least, the median and the most of one of the costs.
fn spread(costs: &[Cost], at: usize) -> [f64; 3] {
    let mut costs: Vec<f64> = costs.iter().map(|cost| cost[at]).collect();
    costs.sort_unstable_by(f64::total_cmp);
    [costs[0], costs[costs.len() / 2], costs[costs.len() - 1]]
}
