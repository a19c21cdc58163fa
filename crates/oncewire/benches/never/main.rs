//! Whether a pair makes anything slower: bytes that nothing can shrink, across a token bucket of 1 Gbit/s, direct,
//! through a plain relay of two hops, and through pairs of gateways.
//!
//! `cargo bench -p oncewire --bench never` builds a network of namespaces, which takes root, `ip` and `tc`; what is
//! missing is said. Behind `--`: `rounds=N` and `mb=N`, 5 and 256 by default.
#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on has nothing to say")]

#[allow(dead_code, reason = "the tests use all of the bench, this uses a part")]
#[path = "../../tests/processes/common/mod.rs"]
mod common;
mod deployment;
#[path = "../../examples/pair/hop.rs"]
mod hop;
mod traffic;

use std::io::Read;
use std::time::Duration;

use oncewire_lab::corpus::Corpus;

use deployment::{Deployment, Way};
use traffic::{Content, Direction};

/// What one transfer took.
#[derive(Clone, Copy)]
struct Taken {
    mbit_per_s: f64,
    /// CPU seconds for 10⁹ bytes, at the branch and at the hub.
    cpu: [f64; 2],
}

/// A line of the table: what is sent, and how.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Row {
    way: Way,
    /// The same bytes were sent before.
    again: bool,
}

/// One kind of transfer, and the rounds of each row.
struct Case {
    direction: Direction,
    streams: usize,
    rows: Vec<(Row, Vec<Taken>)>,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [role, listen, target] = &arguments[..]
        && role == "hop"
    {
        let _hop = hop::hop(listen.parse().unwrap(), target.parse().unwrap());
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        return;
    }
    let number = |key: &str| arguments.iter().find_map(|argument| argument.strip_prefix(key)?.parse().ok());
    let (rounds, mb) = (number("rounds=").unwrap_or(5), number("mb=").unwrap_or(256));
    let Some(deployment) = Deployment::start() else { return };
    let content = Content::default();
    traffic::serve(deployment.listen(), content.clone());
    let mut corpus = Corpus::new(1);
    let mut cases = Case::all();
    let mut latencies = Way::ALL.map(|way| (way, Vec::new()));
    for round in 0..rounds {
        eprintln!("round {} of {rounds}", round + 1);
        for case in &mut cases {
            case.run(round, &deployment, &content, || corpus.random(mb * 1_000_000));
        }
        for (way, times) in &mut latencies {
            times.extend(traffic::echoes(&deployment, *way, ECHOES));
        }
    }
    cases_table(&cases);
    echoes_table(&mut latencies);
}

impl Case {
    fn all() -> Vec<Self> {
        let first = Way::ALL.map(|way| Row { way, again: false });
        let again = [Way::Relay, Way::Coded].map(|way| Row { way, again: true });
        let rows: Vec<Row> = [&first[..], &again].concat();
        [Direction::Download, Direction::Upload]
            .into_iter()
            .flat_map(|direction| [1, 8].map(|streams| (direction, streams)))
            .map(|(direction, streams)| Self {
                direction,
                streams,
                rows: rows.iter().map(|&row| (row, Vec::new())).collect(),
            })
            .collect()
    }

    /// Measures each row once, in turns that begin elsewhere from round to round.
    fn run(
        &mut self,
        round: usize,
        deployment: &Deployment,
        content: &Content,
        mut random: impl FnMut() -> Vec<u8>,
    ) {
        let rows = self.rows.len();
        for turn in 0..rows {
            let (direction, streams) = (self.direction, self.streams);
            let (row, taken) = &mut self.rows[(turn + round) % rows];
            let mut bytes = random();
            let transfer = |len: usize| {
                let before = deployment.cpu(row.way);
                let time = traffic::transfer(deployment, row.way, direction, streams, content);
                let after = deployment.cpu(row.way);
                let cpu = [0, 1].map(|end| (after[end] - before[end]).as_secs_f64() * 1e9 / len as f64);
                Taken { mbit_per_s: len as f64 * 8e-6 / time.as_secs_f64(), cpu }
            };
            if row.again {
                // What the log holds by default.
                bytes.truncate(REPEATED);
            }
            let len = bytes.len() / streams * streams;
            content.replace(bytes);
            if row.again {
                transfer(len);
            }
            taken.push(transfer(len));
        }
    }

    /// The relay's transfers of the same bytes.
    fn relay(&self, again: bool) -> &[Taken] {
        let relay = Row { way: Way::Relay, again };
        self.rows.iter().find(|(row, _)| *row == relay).map_or(&[], |(_, taken)| taken)
    }
}

fn cases_table(cases: &[Case]) {
    println!(
        "\n| bytes | streams | way | Mbit/s | ÷ relay | lowest | branch, CPU s/GB | hub, CPU s/GB |\n|{}",
        "---|".repeat(8)
    );
    for case in cases {
        for (row, taken) in &case.rows {
            let what = match (case.direction, row.again) {
                (Direction::Download, false) => "down",
                (Direction::Download, true) => "down, again",
                (Direction::Upload, false) => "up",
                (Direction::Upload, true) => "up, again",
            };
            let relay = case.relay(row.again);
            let ratios = || taken.iter().zip(relay).map(|(taken, relay)| taken.mbit_per_s / relay.mbit_per_s);
            let cpu = |end: usize| match row.way {
                Way::Direct => "-".to_owned(),
                _ => format!("{:.2}", median(taken.iter().map(|taken| taken.cpu[end]))),
            };
            println!(
                "| {what} | {} | {} | {:.0} | {:.2} × | {:.2} × | {} | {} |",
                case.streams,
                name(row.way),
                median(taken.iter().map(|taken| taken.mbit_per_s)),
                median(ratios()),
                ratios().fold(f64::INFINITY, f64::min),
                cpu(0),
                cpu(1),
            );
        }
    }
}

fn echoes_table(latencies: &mut [(Way, Vec<Duration>)]) {
    println!("\n| one byte there and back | median µs | 95 % | longest |\n|---|---|---|---|");
    for (way, times) in latencies {
        times.sort_unstable();
        let at = |part: usize| times[(times.len() * part / 100).min(times.len() - 1)].as_micros();
        println!("| {} | {} | {} | {} |", name(*way), at(50), at(95), at(100));
    }
}

fn name(way: Way) -> &'static str {
    match way {
        Way::Direct => "direct",
        Way::Relay => "plain relay, two hops",
        Way::Uncoded => "pair, `codec = \"none\"`",
        Way::Coded => "pair, defaults",
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Echoes of each way in a round.
const ECHOES: usize = 2000;
/// Bytes that are sent again: a log of the default size may be referred to by three quarters.
const REPEATED: usize = 32_000_000;
