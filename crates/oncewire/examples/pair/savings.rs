//! A pair's savings, counted independently of oncewire.

use std::path::PathBuf;
use std::time::Duration;

use crate::common::origin::{Origin, receipt, upload};
use crate::common::pair::{Options, Pair};
use crate::common::wait::eventually;

/// The content to send.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Files, each a flow of its own, in order.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Entropy stage of both gateways.
    #[arg(long, default_value = "zstd:3")]
    entropy: String,
}

pub(crate) fn run(arguments: &Arguments) {
    let sink = Origin::sink();
    let options = Options::to(sink.address()).with(&crate::settings(&arguments.entropy));
    let pair = Pair::start_with(&crate::binary(), &options);
    println!("| file | bytes | relay counts | status says |\n|---|---|---|---|");
    let mut before = counted(&pair);
    let start = before;
    for file in &arguments.files {
        let content = std::fs::read(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        assert_eq!(upload(pair.forward(), &content).unwrap(), receipt(&content), "{}", file.display());
        let now = counted(&pair);
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        println!("| {name} | {} | {} |", content.len(), columns(before, now));
        before = now;
    }
    println!("| all | {} | {} |", before.delivered - start.delivered, columns(start, before));
}

/// The counts at a moment.
#[derive(Clone, Copy)]
struct Counts {
    relay: u64,
    wire: u64,
    delivered: u64,
}

fn columns(from: Counts, to: Counts) -> String {
    let savings = |wire: u64| 100.0 * (1.0 - wire as f64 / (to.delivered - from.delivered) as f64);
    format!("{:.2} % | {:.2} %", savings(to.relay - from.relay), savings(to.wire - from.wire))
}

/// Reads all counters once nothing moves any more.
fn counted(pair: &Pair) -> Counts {
    let (mut last, mut still) = (0, 0);
    eventually("the link falls silent", Duration::from_secs(20), || {
        let relay = pair.relay.carried();
        still = if relay == last { still + 1 } else { 0 };
        last = relay;
        (still == 30).then(|| {
            let peer = pair.branch.peer();
            let number = |key: &str| peer[key].as_u64().unwrap();
            Counts { relay, wire: number("wire"), delivered: number("delivered") }
        })
    })
}
