//! What becomes of rate and savings when other programs want the processors.
//!
//! A stream crosses a link of a fixed rate three times: with the controller, as configured whatever happens, and not
//! coded at all. Each time the machine is idle, then loaded, then idle again.

mod plot;
mod traffic;

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use self::traffic::{Content, Sink};
use crate::common::pair::{Options, Pair};

/// What to measure with.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Rate of the link in 10^6 bits a second; choose one at which the configured plan keeps up while nothing else
    /// runs, and does not while the load does.
    #[arg(long, default_value_t = 200)]
    rate: u64,
    /// Entropy stage of both gateways.
    #[arg(long, default_value = "zstd:6")]
    entropy: String,
    /// Threads that do nothing but work, in the middle phase; default 3 for each processor.
    #[arg(long)]
    load: Option<usize>,
    /// Flows that carry the stream.
    #[arg(long, default_value_t = 2)]
    flows: usize,
    /// Seconds of the idle, the loaded and the last idle phase.
    #[arg(long, value_delimiter = ',', default_values_t = [10, 15, 15])]
    phases: Vec<u64>,
    /// Where to write the samples.
    #[arg(long, default_value = "adaptation.csv")]
    csv: PathBuf,
    /// Where to draw them.
    #[arg(long, default_value = "adaptation.svg")]
    svg: PathBuf,
}

/// One way to send the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Adapting,
    Configured,
    Uncoded,
}

/// What was seen between two looks.
struct Sample {
    way: Way,
    /// Since the start, at the end of the sample.
    seconds: f64,
    phase: usize,
    /// 10^6 bytes a second.
    delivered: f64,
    wire: f64,
    rung: u64,
}

impl Way {
    const ALL: [Self; 3] = [Self::Adapting, Self::Configured, Self::Uncoded];

    fn name(self) -> &'static str {
        match self {
            Self::Adapting => "adapt",
            Self::Configured => "configured",
            Self::Uncoded => "none",
        }
    }

    fn settings(self, entropy: &str) -> String {
        let cache = "[cache]\nmemory = \"1 GiB\"\nlog_memory = \"64 MiB\"\n";
        let adapt = self == Self::Adapting;
        let policy = if self == Self::Uncoded { "[[policy]]\ncodec = \"none\"\n" } else { "" };
        format!("{cache}[codec]\nentropy = \"{entropy}\"\nadapt = {adapt}\n{policy}")
    }
}

impl Sample {
    fn savings(&self) -> f64 {
        if self.delivered > 0.0 { 100.0 * (1.0 - self.wire / self.delivered) } else { 0.0 }
    }
}

pub(crate) fn run(arguments: &Arguments) {
    assert!(arguments.phases.len() == 3, "--phases takes three numbers");
    let content = Arc::new(Content::generate());
    let mut samples = Vec::new();
    for way in Way::ALL {
        samples.extend(measure(way, &content, arguments));
    }
    let text = |rows: &[Sample]| {
        let mut text = "way,seconds,phase,delivered_mb_per_s,wire_mb_per_s,savings_percent,rung\n".to_owned();
        for row in rows {
            let Sample { way, seconds, phase, delivered, wire, rung } = row;
            let (way, savings) = (way.name(), row.savings());
            let _ = writeln!(text, "{way},{seconds:.2},{phase},{delivered:.2},{wire:.2},{savings:.1},{rung}");
        }
        text
    };
    std::fs::write(&arguments.csv, text(&samples)).unwrap();
    std::fs::write(&arguments.svg, plot::draw(&samples, &arguments.phases)).unwrap();
    report(&samples, arguments);
}

/// Sends the stream through a pair of gateways for all three phases.
#[allow(clippy::disallowed_methods, reason = "a rate is what passes in a time")]
fn measure(way: Way, content: &Arc<Content>, arguments: &Arguments) -> Vec<Sample> {
    let sink = Sink::start(content);
    let mut options = Options::to(sink.address()).with(&way.settings(&arguments.entropy));
    options.rate_bytes_per_s = Some(arguments.rate * 1_000_000 / 8);
    let pair = Pair::start_with(&crate::binary(), &options);
    let sources: Vec<_> =
        (0..arguments.flows).map(|flow| traffic::send(pair.forward(), content, flow)).collect();
    let mut samples = Vec::new();
    let start = Instant::now();
    let mut end = Duration::ZERO;
    for (phase, seconds) in arguments.phases.iter().enumerate() {
        end += Duration::from_secs(*seconds);
        let load = (phase == 1).then(|| Load::start(arguments.load));
        while start.elapsed() < end {
            let before = (Instant::now(), sink.received(), pair.relay.carried());
            std::thread::sleep(SAMPLE);
            let (delivered, wire) = (sink.received() - before.1, pair.relay.carried() - before.2);
            let time = before.0.elapsed().as_secs_f64();
            samples.push(Sample {
                way,
                seconds: start.elapsed().as_secs_f64(),
                phase,
                delivered: delivered as f64 / 1e6 / time,
                wire: wire as f64 / 1e6 / time,
                rung: plan(&pair)["rung"].as_u64().unwrap(),
            });
        }
        drop(load);
    }
    eprintln!("{}: {}", way.name(), plan(&pair));
    drop(pair);
    sources.into_iter().for_each(|source| source.join().unwrap());
    samples
}

/// How the branch codes now; asked without another process, since processors are scarce.
fn plan(pair: &Pair) -> serde_json::Value {
    let mut stream = TcpStream::connect(pair.branch.admin()).unwrap();
    stream.write_all(b"GET /status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    let status: serde_json::Value = serde_json::from_str(body).unwrap();
    status["peers"][0]["out"]["plan"].clone()
}

/// Threads that want a processor each.
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

fn report(samples: &[Sample], arguments: &Arguments) {
    let mean = |way: Way, phase: usize, skipped: f64, value: &dyn Fn(&Sample) -> f64| {
        let begin: u64 = arguments.phases[..phase].iter().sum();
        let of = |row: &&Sample| {
            row.way == way
                && row.phase == phase
                && row.seconds > begin as f64 + skipped + SAMPLE.as_secs_f64()
        };
        let rows: Vec<f64> = samples.iter().filter(of).map(value).collect();
        rows.iter().sum::<f64>() / rows.len().max(1) as f64
    };
    println!("| way | phase | delivered MB/s | wire MB/s | savings |\n|---|---|---|---|---|");
    for way in Way::ALL {
        for (phase, name) in ["idle", "loaded", "idle again"].into_iter().enumerate() {
            let delivered = mean(way, phase, 0.0, &|row| row.delivered);
            let wire = mean(way, phase, 0.0, &|row| row.wire);
            let savings = 100.0 * (1.0 - wire / delivered);
            println!("| {} | {name} | {delivered:.1} | {wire:.1} | {savings:.1} % |", way.name());
        }
    }
    let under_load = |way| mean(way, 1, 0.0, &|row: &Sample| row.delivered);
    let none = under_load(Way::Uncoded);
    let savings = |phase, skipped| mean(Way::Adapting, phase, skipped, &Sample::savings);
    println!(
        "\nUnder load: adapt / none {:.2}, configured / none {:.2}. Savings with adapt: {:.1} % before the load, {:.1} % from \
         5 s after it.",
        under_load(Way::Adapting) / none,
        under_load(Way::Configured) / none,
        savings(0, 2.0),
        savings(2, 5.0)
    );
}

/// How often to look.
const SAMPLE: Duration = Duration::from_millis(500);
