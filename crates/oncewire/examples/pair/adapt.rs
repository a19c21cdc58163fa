//! Rates and savings while other programs want the processors.
//!
//! New, repeated, edited and mixed streams cross a pair with each value of `adapt`, and without coding. The ways take
//! turns, run after run, since a shared machine changes from one minute to the next.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use crate::common::data::{self, Rng};
use crate::common::pair::{Options, Pair};

/// The settings of the measurement.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Rate of the line in 10^6 bits a second; default: no line, the gateways speak over loopback.
    #[arg(long)]
    rate: Option<u64>,
    /// Entropy stage of both gateways.
    #[arg(long, default_value = "zstd:3")]
    entropy: String,
    /// Busy threads; default 3 for each processor.
    #[arg(long)]
    load: Option<usize>,
    /// Bytes of each stream in 2^20.
    #[arg(long, default_value_t = 128)]
    size: usize,
    /// Measurements of each way; figures are medians.
    #[arg(long, default_value_t = 5)]
    runs: usize,
}

/// One way to send the streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    Savings,
    Speed,
    Configured,
    Uncoded,
}

/// The content of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    New,
    Repeated,
    Edited,
    Mixed,
}

/// The result of one stream.
#[derive(Clone, Copy)]
struct Sample {
    /// 10^6 plain bytes a second.
    rate: f64,
    /// The part of the plain bytes sent as copies or names, in percent.
    found: f64,
    /// The part of the plain bytes not sent, in percent.
    saved: f64,
}

type Samples = BTreeMap<(Kind, Way), Vec<Sample>>;

impl Way {
    const ALL: [Self; 4] = [Self::Savings, Self::Speed, Self::Configured, Self::Uncoded];

    fn name(self) -> &'static str {
        match self {
            Self::Savings => "savings",
            Self::Speed => "speed",
            Self::Configured => "false",
            Self::Uncoded => "codec none",
        }
    }

    fn settings(self, entropy: &str) -> String {
        let adapt = match self {
            Self::Savings => "\"savings\"",
            Self::Speed => "\"speed\"",
            Self::Configured | Self::Uncoded => "false",
        };
        let policy = if self == Self::Uncoded { "[[policy]]\ncodec = \"none\"\n" } else { "" };
        let cache = "[cache]\nmemory = \"2 GiB\"\nlog_memory = \"512 MiB\"\n";
        format!("{cache}[codec]\nentropy = \"{entropy}\"\nadapt = {adapt}\n{policy}")
    }
}

impl Kind {
    const ALL: [Self; 4] = [Self::New, Self::Repeated, Self::Edited, Self::Mixed];

    fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Repeated => "repeated",
            Self::Edited => "edited",
            Self::Mixed => "mixed",
        }
    }

    /// Makes the stream from the first one.
    fn content(self, first: &[u8], seed: u64) -> Vec<u8> {
        match self {
            Self::New | Self::Repeated => first.to_vec(),
            Self::Edited => edited(first, seed),
            Self::Mixed => mixed(first, seed),
        }
    }
}

pub(crate) fn run(arguments: &Arguments) {
    assert!(arguments.runs > 0, "--runs is at least 1");
    let mut samples = Samples::new();
    for seed in 0..arguments.runs as u64 {
        let first = data::text(2 * seed, arguments.size << 20);
        let streams = Kind::ALL.map(|kind| (kind, kind.content(&first, 2 * seed + 1)));
        for way in Way::ALL {
            measure(way, &streams, arguments, &mut samples);
        }
        eprintln!("run {} of {}", seed + 1, arguments.runs);
    }
    report(&samples);
}

/// Sends all streams, one after the other, while other threads want the processors.
fn measure(way: Way, streams: &[(Kind, Vec<u8>)], arguments: &Arguments, samples: &mut Samples) {
    let expected = Arc::new(Mutex::new(Vec::new()));
    let mut options = Options::to(sink(&expected)).with(&way.settings(&arguments.entropy));
    options.straight = arguments.rate.is_none();
    options.rate_bytes_per_s = arguments.rate.map(|rate| rate * 1_000_000 / 8);
    let pair = Pair::start_with(&crate::binary(), &options);
    let load = Load::start(arguments.load);
    for (kind, content) in streams {
        expected.lock().unwrap().clone_from(content);
        let before = counts(&pair);
        let seconds = send(pair.forward(), content);
        let [found, wire] = counts(&pair);
        let part = |bytes: f64| 100.0 * bytes / content.len() as f64;
        samples.entry((*kind, way)).or_default().push(Sample {
            rate: content.len() as f64 / 1e6 / seconds,
            found: part(found - before[0]),
            saved: 100.0 - part(wire - before[1]),
        });
    }
    drop(load);
}

/// Sends a stream and returns the seconds until the far end had all of it.
#[allow(clippy::disallowed_methods, reason = "a rate is what passes in a time")]
fn send(to: SocketAddr, content: &[u8]) -> f64 {
    let start = Instant::now();
    let mut stream = TcpStream::connect(to).unwrap();
    stream.write_all(content).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let seconds = start.elapsed().as_secs_f64();
    assert_eq!(answer, b"same", "other bytes arrived than were sent");
    seconds
}

/// Takes streams, and answers whether each is as expected.
fn sink(expected: &Arc<Mutex<Vec<u8>>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let expected = Arc::clone(expected);
    std::thread::spawn(move || {
        let mut buffer = vec![0; 128 << 10];
        for mut stream in listener.incoming().flatten() {
            let expected = expected.lock().unwrap();
            let mut rest = &expected[..];
            while let Ok(count @ 1..) = stream.read(&mut buffer) {
                match rest.strip_prefix(&buffer[..count]) {
                    Some(behind) => rest = behind,
                    None => break,
                }
            }
            let answer: &[u8] = if rest.is_empty() { b"same" } else { b"other" };
            stream.write_all(answer).unwrap();
        }
    });
    address
}

/// Returns the branch's bytes in copies or names, and those on the wire.
fn counts(pair: &Pair) -> [f64; 2] {
    let peer = pair.branch.peer();
    let count = |value: &serde_json::Value| value.as_f64().unwrap();
    let named = count(&peer["out"]["names"]["bytes"]);
    [count(&peer["out"]["copied"]) + named, count(&peer["wire_out"])]
}

/// Inserts, deletes and replaces a few bytes in each few KiB.
fn edited(first: &[u8], seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let mut out = Vec::with_capacity(first.len() + first.len() / 64);
    let mut rest = first;
    while rest.len() > 8192 {
        let (before, behind) = rest.split_at(2000 + rng.below(4000));
        out.extend_from_slice(before);
        out.extend_from_slice(&rng.next().to_le_bytes());
        rest = &behind[rng.below(3) * 8..];
    }
    out.extend_from_slice(rest);
    out
}

/// Puts pieces of the first stream, in another order, between new ones, as many of each.
fn mixed(first: &[u8], seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let fresh = data::text(seed, first.len() / 2);
    let mut out = Vec::with_capacity(first.len());
    for piece in fresh.chunks(96 << 10) {
        out.extend_from_slice(piece);
        let at = rng.below(first.len() - piece.len());
        out.extend_from_slice(&first[at..at + piece.len()]);
    }
    out
}

/// Threads to keep a processor busy each.
struct Load {
    stop: Arc<AtomicBool>,
}

impl Load {
    fn start(threads: Option<usize>) -> Self {
        let processors = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        let stop = Arc::new(AtomicBool::new(false));
        for _ in 0..threads.unwrap_or(3 * processors) {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                while !stop.load(Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        Self { stop }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
    }
}

fn report(samples: &Samples) {
    println!(
        "| stream | adapt | copies and names | saved | MB/s | ÷ false | ÷ codec none |\n|---|---|---|---|---|---|---|"
    );
    let value = |key: (Kind, Way), of: fn(&Sample) -> f64| median(samples[&key].iter().map(of).collect());
    for (kind, way) in Kind::ALL.into_iter().flat_map(|kind| Way::ALL.map(|way| (kind, way))) {
        let (found, saved) =
            (value((kind, way), |sample| sample.found), value((kind, way), |sample| sample.saved));
        // Ratios within a run, with about the same machine for all ways.
        let ratio = |to: Way| {
            let pairs = samples[&(kind, way)].iter().zip(&samples[&(kind, to)]);
            median(pairs.map(|(one, other)| one.rate / other.rate).collect())
        };
        println!(
            "| {} | {} | {found:.2} % | {saved:.2} % | {:.1} | {:.2} | {:.2} |",
            kind.name(),
            way.name(),
            value((kind, way), |sample| sample.rate),
            ratio(Way::Configured),
            ratio(Way::Uncoded),
        );
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
