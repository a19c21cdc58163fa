//! A stopped reader's effect on others.

use std::io::Read;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::common::data;
use crate::common::origin::{Origin, Request};
use crate::common::pair::{Options, Pair};

/// How long to stop.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Seconds without a read of the reader.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Entropy stage of both gateways.
    #[arg(long, default_value = "zstd:1")]
    entropy: String,
}

pub(crate) fn run(arguments: &Arguments) {
    let origin = Origin::server();
    let options = Options { straight: true, ..Options::to(origin.address()) }
        .with(&crate::settings(&arguments.entropy));
    let pair = Pair::start_with(&crate::binary(), &options);
    let before = others(&pair, Duration::from_secs(5));

    let stopped = Request { seed: 1, len: 64 << 20 };
    let mut slow = TcpStream::connect(pair.forward()).unwrap();
    stopped.send(&mut slow).unwrap();
    let mut got = vec![0; 1];
    slow.read_exact(&mut got).unwrap();
    let meanwhile = others(&pair, Duration::from_secs(arguments.seconds));
    let start = Instant::now();
    slow.read_to_end(&mut got).unwrap();
    data::assert_same(&got, &stopped.answer(), "the reader that had stopped");

    println!("| other flows | transfers | slowest |\n|---|---|---|");
    for (when, (count, slowest)) in [("before", before), ("while one reader takes nothing", meanwhile)] {
        println!("| {when} | {count} | {:.0} ms |", slowest.as_secs_f64() * 1e3);
    }
    println!(
        "\nThe rest of its 64 MiB then came in {:.2} s, every byte right.",
        start.elapsed().as_secs_f64()
    );
}

/// Transfers 4 MiB, half of it old, again and again; returns how often and the longest time.
fn others(pair: &Pair, during: Duration) -> (u64, Duration) {
    let start = Instant::now();
    let (mut count, mut slowest) = (0, Duration::ZERO);
    while start.elapsed() < during {
        let request = Request { seed: 2 + count / 2, len: 4 << 20 };
        let expected = request.answer();
        let begun = Instant::now();
        let got = request.fetch(pair.forward()).unwrap();
        slowest = slowest.max(begun.elapsed());
        data::assert_same(&got, &expected, "another flow");
        count += 1;
    }
    (count, slowest)
}
