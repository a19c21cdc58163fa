//! How fast a pair is, and how late it makes small messages.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::common::data;
use crate::common::pair::{Options, Pair};
use crate::roles::{ECHO, Role, SEND, read_all};

/// The settings of the measurement.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The content, all files as one stream.
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
    again: f64,
    echo: Duration,
    gateways: Option<Cost>,
}

/// Figures of gateways alone: an untypical first transfer, and their CPU time.
#[derive(Clone, Copy, Default)]
struct Cost {
    cold: f64,
    /// The processors' seconds of both gateways for 10⁹ bytes, the first time and later.
    cpu: [f64; 2],
    /// Blocks offered to the store, and those left out.
    put: u64,
    not_put: u64,
}

/// Both ends have one; its writes are in the system's memory.
const STORE: &str = "store_disk = \"2 GiB\"\n";

pub(crate) fn run(arguments: &Arguments) {
    let content = read_all(&arguments.files);
    let origin = Role::start("origin", &arguments.files);
    let far = Role::start("hop", &[origin.address.to_string().into()]);
    let near = Role::start("hop", &[far.address.to_string().into()]);
    let rows = [
        plain("direct", origin.address, &content, arguments.runs),
        plain("plain relay, two hops", near.address, &content, arguments.runs),
        gateways("oncewire", origin.address, &content, arguments, ["", ""]),
        gateways("with chunk stores", origin.address, &content, arguments, [STORE, ""]),
        gateways(
            "with chunk stores, names alone",
            origin.address,
            &content,
            arguments,
            [STORE, "codec = \"wanax\"\n"],
        ),
    ];
    println!(
        "| way | cold MB/s | again MB/s | CPU s/GB cold, again | blocks put, not put | echo of 64 bytes, median µs |\n\
         |---|---|---|---|---|---|"
    );
    for row in &rows {
        let [cold, cpu, put] = row.gateways.map_or([(); 3].map(|()| "-".to_owned()), |cost| {
            let [cold, again] = cost.cpu;
            [
                format!("{:.0}", cost.cold),
                format!("{cold:.1}, {again:.1}"),
                format!("{}, {}", cost.put, cost.not_put),
            ]
        });
        let echo = row.echo.as_secs_f64() * 1e6;
        println!("| {} | {cold} | {:.0} | {cpu} | {put} | {echo:.0} |", row.way, row.again);
    }
    let [direct, relay, pair, ..] = &rows;
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
    Row { way, again, echo: echo(address), gateways: None }
}

/// Each run is a new pair, with a cold first transfer and a warm second. `more` goes behind both gateways' `[cache]`
/// and `[codec]`.
fn gateways(
    way: &'static str,
    origin: SocketAddr,
    content: &[u8],
    arguments: &Arguments,
    more: [&str; 2],
) -> Row {
    let mut row = Row { way, again: 0.0, echo: Duration::MAX, gateways: None };
    let mut costs = Vec::new();
    for _ in 0..arguments.runs {
        let [cache, codec] = more;
        let settings =
            crate::settings(&arguments.entropy).replacen("[codec]\n", &format!("{cache}[codec]\n{codec}"), 1);
        let options = Options { straight: true, ..Options::to(origin) }.with(&settings);
        let pair = Pair::start_with(&crate::binary(), &options);
        let spent = || (pair.branch.cpu_time() + pair.hub.cpu_time()).as_secs_f64();
        let per_gb = |since: f64, times: usize| (spent() - since) / (times * content.len()) as f64 * 1e9;
        let (start, cold) = (spent(), fetch(pair.forward(), content));
        let (cpu_cold, start) = (per_gb(start, 1), spent());
        for _ in 0..2 {
            row.again = row.again.max(fetch(pair.forward(), content));
        }
        let cpu = [cpu_cold, per_gb(start, 2)];
        row.echo = row.echo.min(echo(pair.forward()));
        let names = pair.branch.peer()["in"]["names"].clone();
        let count = |key: &str| names[key].as_u64().unwrap();
        costs.push(Cost { cold, cpu, put: count("put"), not_put: count("not_put") });
    }
    let least = |of: fn(&Cost) -> f64| costs.iter().map(of).fold(f64::INFINITY, f64::min);
    row.gateways = costs.last().map(|last| Cost {
        cold: costs.iter().map(|cost| cost.cold).fold(0.0, f64::max),
        cpu: [least(|cost| cost.cpu[0]), least(|cost| cost.cpu[1])],
        ..*last
    });
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
