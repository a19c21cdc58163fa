//! The cost of a transfer after a gateway's loss of memory.

use std::path::PathBuf;

use crate::common::data;
use crate::common::lost::{Fetched, Loss, Transfer, Trial, without_gateways};
use crate::site::{all, line, median};

/// The content, and the number of runs.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The file; random bytes if none is given.
    file: Option<PathBuf>,
    /// Seed of the random bytes.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many there are.
    #[arg(long, default_value_t = 5_000_000)]
    len: usize,
    /// How often each transfer is measured; medians count.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Networks at the same time.
    #[arg(long, default_value_t = 2)]
    at_once: usize,
    /// Mbit/s of the links.
    #[arg(long, value_delimiter = ',', default_value = "2,20")]
    mbit_per_s: Vec<u64>,
    /// Milliseconds of their round trips.
    #[arg(long, value_delimiter = ',', default_value = "50,200")]
    rtt_ms: Vec<u64>,
}

/// All transfers of one codec on one link, or the one without gateways.
enum Run {
    Without(Transfer),
    Pair(Box<Seen>),
}

/// The measurements.
struct Seen {
    /// The first transfer of the file.
    cold: Transfer,
    /// By the loss in between, in the order of [`Loss::ALL`]: the next transfer, and the one after it.
    after: [[Transfer; 2]; Loss::ALL.len()],
}

/// A codec, or none, and a link.
type Job = (Option<&'static str>, (u64, u64));

pub(crate) fn run(arguments: &Arguments) {
    let Arguments { seed, len, runs, .. } = *arguments;
    let file = match &arguments.file {
        Some(path) => std::fs::read(path).unwrap(),
        None => data::random(seed, len),
    };
    let links: Vec<(u64, u64)> = arguments
        .mbit_per_s
        .iter()
        .flat_map(|rate| arguments.rtt_ms.iter().map(|rtt| (*rate, *rtt)))
        .collect();
    let jobs: Vec<Job> =
        (0..runs).flat_map(|_| links.iter().flat_map(|link| WAYS.map(|way| (way, *link)))).collect();
    let seen = all(&jobs, arguments.at_once, |job| (*job, measure(*job, &file)));
    let columns: String = links.iter().map(|(rate, rtt)| format!(" {rate} Mbit/s, {rtt} ms |")).collect();
    println!("| `codec` | what was lost |{columns}\n|---|---|{}", "---|".repeat(links.len()));
    for row in rows() {
        let cells = links.iter().map(|link| {
            let of = seen.iter().filter(|(job, _)| *job == (row.way, *link));
            cell(&of.filter_map(|(_, run)| row.transfers(run.as_ref()?)).collect::<Vec<_>>())
        });
        println!(
            "| {} | {} | {} |",
            row.way.unwrap_or("no gateways"),
            row.name,
            cells.collect::<Vec<_>>().join(" | ")
        );
    }
    println!(
        "\nSeconds from connecting to the last byte, in brackets how far runs lie apart; kB on the line both ways, packets' \
         headers included; behind a loss, kB of the same once more. {} bytes, medians of {runs} runs. Every byte was right.",
        file.len()
    );
}

fn measure((way, (rate, rtt)): Job, file: &[u8]) -> Option<Run> {
    let line = line(rate * 1_000_000, rtt);
    match way {
        None => without_gateways(&crate::binary(), &line, file).map(Run::Without),
        Some(codec) => {
            let trial = Trial { line, codec, both: "", file: file.to_vec() };
            let mut pair = Fetched::once(&crate::binary(), &trial)?;
            let after = Loss::ALL.map(|loss| pair.after(loss));
            Some(Run::Pair(Box::new(Seen { cold: pair.cold, after })))
        }
    }
}

/// A line of the table.
struct Row {
    way: Option<&'static str>,
    name: &'static str,
    /// The index of a pair's transfer; nothing: the cold one.
    after: Option<usize>,
}

fn rows() -> Vec<Row> {
    let mut rows = vec![Row { way: None, name: "", after: None }];
    for way in WAYS.into_iter().filter(Option::is_some) {
        rows.push(Row { way, name: "all: cold", after: None });
        rows.extend(Loss::ALL.iter().enumerate().map(|(at, loss)| Row {
            way,
            name: name(*loss),
            after: Some(at),
        }));
    }
    rows
}

fn name(loss: Loss) -> &'static str {
    match loss {
        Loss::Nothing => "nothing: warm",
        Loss::Receivers => "receiver's state",
        Loss::Emptied => "store's content",
        Loss::OlderCopy => "the file in the store",
        Loss::Damaged => "store's content, logs damaged",
        Loss::Senders => "sender's state",
    }
}

impl Row {
    /// The transfer, and the one after it.
    fn transfers(&self, run: &Run) -> Option<(Transfer, Option<Transfer>)> {
        Some(match (run, self.after) {
            (Run::Without(transfer), _) => (*transfer, None),
            (Run::Pair(seen), None) => (seen.cold, None),
            (Run::Pair(seen), Some(at)) => {
                let [transfer, again] = *seen.after.get(at)?;
                (transfer, Some(again).filter(|_| Loss::ALL[at] != Loss::Nothing))
            }
        })
    }
}

fn cell(transfers: &[(Transfer, Option<Transfer>)]) -> String {
    if transfers.is_empty() {
        return String::new();
    }
    let times: Vec<f64> = transfers.iter().map(|(transfer, _)| transfer.time.as_secs_f64()).collect();
    let least = times.iter().copied().fold(f64::INFINITY, f64::min);
    let spread = times.iter().copied().fold(0.0, f64::max) - least;
    let kilobytes = |of: Vec<u64>| median(of) as f64 / 1e3;
    let wire = kilobytes(transfers.iter().map(|(transfer, _)| transfer.wire).collect());
    let again: Vec<u64> = transfers.iter().filter_map(|(_, again)| Some((*again)?.wire)).collect();
    let again = if again.is_empty() { String::new() } else { format!(", {:.0}", kilobytes(again)) };
    format!("{:.2} ({spread:.2}), {wire:.0}{again}", median(times))
}

const WAYS: [Option<&str>; 3] = [None, Some("wanax"), Some("auto")];
