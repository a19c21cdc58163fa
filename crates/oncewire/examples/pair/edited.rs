//! A text and its edits, from a slow disk or not, through running gateways.

use std::io::{Read, Write};
use std::time::Duration;

use oncewire_lab::corpus::Corpus;
use oncewire_testnet::{Family, LinkParams, Queue};

use crate::common::data;
use crate::common::gateway::Gateway;
use crate::common::network::{PairInNetwork, Place, Setup};
use crate::common::origin::Origin;
use crate::shed::{fetch, wire};

/// The line, the disk, and the text.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The line's rate in Mbit/s.
    #[arg(long, default_value_t = 100)]
    megabits: u64,
    /// The line's round trip in milliseconds. Its queue holds 400 ms.
    #[arg(long, default_value_t = 200)]
    round_trip_ms: u64,
    /// The duration of a read from the modelled disk, in milliseconds.
    #[arg(long, default_value_t = 8)]
    read_ms: u64,
    /// The length of the text in MiB.
    #[arg(long, default_value_t = 24)]
    mebibytes: usize,
    /// The congestion control of all connections.
    #[arg(long, default_value = "bbr")]
    congestion: String,
}

/// The compared ways, by `codec`; nothing: without gateways.
const WAYS: [Option<&str>; 3] = [None, Some("wanax"), Some("auto")];

pub(crate) fn run(arguments: &Arguments) {
    let mut corpus = Corpus::new(14);
    let first = corpus.text(arguments.mebibytes << 20);
    let second = corpus.edited(&first, EDIT_EVERY);
    println!("| codec | first | after edits | bytes saved | of it, read | shed | late |");
    println!("|---|---|---|---|---|---|---|");
    for way in WAYS {
        if let Some(row) = row(way, arguments, [&first, &second]) {
            println!("{row}");
        }
    }
    println!("\nSeconds from the request to the last byte. Every byte was right.");
}

/// Fetches the files one way; `None`, with the reason printed, without a network.
fn row(way: Option<&str>, arguments: &Arguments, files: [&[u8]; 2]) -> Option<String> {
    let Arguments { megabits, round_trip_ms, read_ms, congestion, .. } = arguments;
    let line = LinkParams {
        rate_bits_per_s: Some(1_000_000 * megabits),
        delay: Duration::from_millis(*round_trip_ms) / 2,
        queue: Queue::Time(Duration::from_millis(400)),
        ..LinkParams::default()
    };
    let codec = way.unwrap_or("none");
    let both = format!(
        "[codec]\ncodec = \"{codec}\"\nentropy = \"none\"\nadapt = false\n[link]\ncongestion = \"{congestion}\"\n\
         [cache]\nmemory = \"512 MiB\"\nlog_memory = \"1 MiB\"\nstore_disk = \"1 GiB\"\n\
         store_read_latency = \"{read_ms} ms\"\n"
    );
    let pair = PairInNetwork::start(&crate::binary(), &Setup { line, both, ..Setup::default() })?;
    let served = files.map(<[u8]>::to_vec);
    let _origin = Origin::on(pair.listen(Family::V4), move |mut stream| {
        let mut wanted = [0];
        if stream.read_exact(&mut wanted).is_ok() {
            let _ = stream.write_all(&served[usize::from(wanted[0])]);
        }
    });
    let mut cells = Vec::new();
    for (which, expected) in (0..).zip(files) {
        let before = wire(&pair);
        let (got, time) = fetch(&pair, way.is_some(), which);
        data::assert_same(&got, expected, "a text");
        cells.push(format!("{:.2} s", time.as_secs_f64()));
        if which == 1 {
            cells.push(format!("{:.1} %", 100.0 * (1.0 - (wire(&pair) - before) as f64 / got.len() as f64)));
        }
        pause();
    }
    let names = way.map(|_| pair.at(Place::Branch, Gateway::peer)["in"]["names"].clone()).unwrap_or_default();
    let counts = ["found", "shed", "late"].map(|key| names[key].as_u64().unwrap_or_default().to_string());
    Some(format!("| {} | {} | {} |", way.unwrap_or("no gateways"), cells.join(" | "), counts.join(" | ")))
}

/// Long enough for connections to count as idle.
#[expect(clippy::disallowed_methods, reason = "what is measured is what idleness leaves")]
fn pause() {
    std::thread::sleep(Duration::from_secs(10));
}

const EDIT_EVERY: usize = 2000;
