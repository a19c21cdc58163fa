//! Incompressible bytes across 1 Gbit/s: speed, CPU time, and the latency of one byte.

use std::time::Duration;

use oncewire_lab::corpus::Corpus;
use oncewire_testnet::Line;

use crate::deployment::{Deployment, Way};
use crate::traffic::{self, Content, Direction, Echo};
use crate::{name, percentile};

/// The compared ways.
const WAYS: [Way; 5] = [Way::Direct, Way::Relay, Way::Spliced, Way::Uncoded, Way::Coded];

/// The cost of one transfer.
struct Taken {
    mbit_per_s: f64,
    /// CPU seconds for 10⁹ bytes, at the branch and at the hub.
    cpu: Vec<f64>,
}

/// A line of the table: content and way.
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

/// Measures and prints both tables.
pub(crate) fn run(rounds: usize, mb: usize) {
    let line = Line::TokenBucket { rate_bits_per_s: 1_000_000_000 };
    let Some(deployment) = Deployment::start(line, &WAYS) else { return };
    let content = Content::default();
    traffic::serve(deployment.listen(), content.clone());
    let mut corpus = Corpus::new(1);
    let mut cases = Case::all();
    let mut latencies = WAYS.map(|way| (way, Vec::new()));
    for round in 0..rounds {
        eprintln!("bulk, round {} of {rounds}", round + 1);
        for case in &mut cases {
            case.run(round, &deployment, &content, || corpus.random(mb * 1_000_000));
        }
        for (way, times) in &mut latencies {
            let mut echo = Echo::start(&deployment, *way, 1);
            times.extend((0..ECHOES).map(|_| echo.there_and_back()));
        }
    }
    cases_table(&cases);
    echoes_table(&mut latencies);
}

impl Case {
    fn all() -> Vec<Self> {
        let first = WAYS.map(|way| Row { way, again: false });
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

    /// Measures each row once, in turns with another start from round to round.
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
                let each = after.iter().zip(&before);
                let cpu =
                    each.map(|(after, before)| (*after - *before).as_secs_f64() * 1e9 / len as f64).collect();
                Taken { mbit_per_s: len as f64 * 8e-6 / time.as_secs_f64(), cpu }
            };
            if row.again {
                // The default log's reach.
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
            let bytes = match (case.direction, row.again) {
                (Direction::Download, false) => "down",
                (Direction::Download, true) => "down, again",
                (Direction::Upload, false) => "up",
                (Direction::Upload, true) => "up, again",
            };
            let relay = case.relay(row.again);
            let ratios = || taken.iter().zip(relay).map(|(taken, relay)| taken.mbit_per_s / relay.mbit_per_s);
            let cpu = |end: usize| {
                let figures: Option<Vec<f64>> =
                    taken.iter().map(|taken| taken.cpu.get(end).copied()).collect();
                figures.map_or("-".to_owned(), |figures| format!("{:.2}", median(figures.into_iter())))
            };
            println!(
                "| {bytes} | {} | {} | {:.0} | {:.2} × | {:.2} × | {} | {} |",
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
        let [median, most, longest] = [50, 95, 100].map(|part| percentile(times, part).as_micros());
        println!("| {} | {median} | {most} | {longest} |", name(*way));
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Echoes of each way in a round.
const ECHOES: usize = 2000;
/// Repeated bytes: references reach back over three quarters of a log of the default size.
const REPEATED: usize = 32_000_000;
