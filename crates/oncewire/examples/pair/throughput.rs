//! How fast a pair is, and how late it makes small messages.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::common::data;
use crate::common::pair::{Options, Pair};
use crate::roles::{ECHO, Role, SEND, read_all};

/// What to measure with.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// What is sent, all files as one stream.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// How often each is measured; the best counts.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Entropy stage of both gateways.
    #[arg(long, default_value = "zstd:1")]
    entropy: String,
}

/// Figures of one way from the client to the origin.
struct Row {
    way: &'static str,
    cold: Option<f64>,
    again: f64,
    echo: Duration,
}

pub(crate) fn run(arguments: &Arguments) {
    let content = read_all(&arguments.files);
    let origin = Role::start("origin", &arguments.files);
    let far = Role::start("hop", &[origin.address.to_string().into()]);
    let near = Role::start("hop", &[far.address.to_string().into()]);
    let rows = [
        plain("direct", origin.address, &content, arguments.runs),
        plain("plain relay, two hops", near.address, &content, arguments.runs),
        gateways(origin.address, &content, arguments),
    ];
    println!("| way | cold MB/s | again MB/s | echo of 64 bytes, median µs |\n|---|---|---|---|");
    for row in &rows {
        let cold = row.cold.map_or("-".to_owned(), |cold| format!("{cold:.0}"));
        println!("| {} | {cold} | {:.0} | {:.0} |", row.way, row.again, row.echo.as_secs_f64() * 1e6);
    }
    let [direct, relay, pair] = &rows;
    println!(
        "\n{} bytes, best of {}; again / plain relay {:.2}; echo {:.0} µs above direct",
        content.len(),
        arguments.runs,
        pair.again / relay.again,
        (pair.echo.as_secs_f64() - direct.echo.as_secs_f64()) * 1e6
    );
}

fn plain(way: &'static str, address: SocketAddr, content: &[u8], runs: usize) -> Row {
    let again = (0..runs).map(|_| fetch(address, content)).fold(0.0, f64::max);
    Row { way, cold: None, again, echo: echo(address) }
}

/// Each run is a new pair, whose first transfer is cold and whose second is not.
fn gateways(origin: SocketAddr, content: &[u8], arguments: &Arguments) -> Row {
    let mut row = Row { way: "oncewire", cold: Some(0.0), again: 0.0, echo: Duration::MAX };
    for _ in 0..arguments.runs {
        let options =
            Options { straight: true, ..Options::to(origin) }.with(&crate::settings(&arguments.entropy));
        let pair = Pair::start_with(&crate::binary(), &options);
        row.cold = row.cold.map(|best| best.max(fetch(pair.forward(), content)));
        for _ in 0..2 {
            row.again = row.again.max(fetch(pair.forward(), content));
        }
        row.echo = row.echo.min(echo(pair.forward()));
    }
    row
}

/// Fetches the content, compares every byte, and returns 10⁶ bytes a second.
fn fetch(address: SocketAddr, content: &[u8]) -> f64 {
    let mut got = vec![0; content.len()];
    got.fill(1); // the pages are there before the clock runs
    let start = Instant::now();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(&[SEND]).unwrap();
    stream.read_exact(&mut got).unwrap();
    let end = stream.read(&mut [0; 1]).unwrap();
    let taken = start.elapsed();
    assert_eq!(end, 0, "more came than was sent");
    data::assert_same(&got, content, "what came");
    content.len() as f64 / 1e6 / taken.as_secs_f64()
}

/// The median time of a small message there and back.
fn echo(address: SocketAddr) -> Duration {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.write_all(&[ECHO]).unwrap();
    let mut times: Vec<Duration> = (0..ECHOES)
        .map(|number| {
            let message = data::random(number, 64);
            let mut back = [0; 64];
            let start = Instant::now();
            stream.write_all(&message).unwrap();
            stream.read_exact(&mut back).unwrap();
            assert_eq!(back[..], message[..]);
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2]
}

const ECHOES: u64 = 3000;
