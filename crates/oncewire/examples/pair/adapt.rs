//! What becomes of rate and savings when other programs want the processors.
//!
//! A stream crosses a link of a fixed rate three times: with the controller, as configured whatever happens, and not
//! coded at all. Each time the machine is idle, then loaded, then idle again. All of it several times, since a machine that
//! others share is not the same from one minute to the next.

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
    /// Times that all three ways are measured, in turns; figures are medians.
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// Where to write the samples.
    #[arg(long, default_value = "adaptation.csv")]
    csv: PathBuf,
    /// Where to draw those of the first round.
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
    assert!(arguments.rounds > 0, "--rounds is at least 1");
    let content = Arc::new(Content::generate());
    let rounds: Vec<Vec<Sample>> = (0..arguments.rounds)
        .map(|_| Way::ALL.into_iter().flat_map(|way| measure(way, &content, arguments)).collect())
        .collect();
    std::fs::write(&arguments.csv, text(&rounds)).unwrap();
    std::fs::write(&arguments.svg, plot::draw(&rounds[0], &arguments.phases)).unwrap();
    report(&rounds, arguments);
}

fn text(rounds: &[Vec<Sample>]) -> String {
    let mut text =
        "way,seconds,phase,delivered_mb_per_s,wire_mb_per_s,savings_percent,rung,round\n".to_owned();
    for (round, row) in
        rounds.iter().enumerate().flat_map(|(round, rows)| rows.iter().map(move |row| (round, row)))
    {
        let Sample { way, seconds, phase, delivered, wire, rung } = row;
        let (way, savings) = (way.name(), row.savings());
        let _ =
            writeln!(text, "{way},{seconds:.2},{phase},{delivered:.2},{wire:.2},{savings:.1},{rung},{round}");
    }
    text
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

/// The mean of a value over the samples of a way in a phase, without the first seconds of it.
struct Means<'a> {
    samples: &'a [Sample],
    phases: &'a [u64],
}

impl Means<'_> {
    fn of(&self, way: Way, phase: usize, skipped: f64, value: fn(&Sample) -> f64) -> f64 {
        let begin: u64 = self.phases[..phase].iter().sum();
        let from = begin as f64 + skipped + SAMPLE.as_secs_f64();
        let is_of = |row: &&Sample| row.way == way && row.phase == phase && row.seconds > from;
        let rows: Vec<f64> = self.samples.iter().filter(is_of).map(value).collect();
        rows.iter().sum::<f64>() / rows.len().max(1) as f64
    }

    fn delivered(&self, way: Way, phase: usize, skipped: f64) -> f64 {
        self.of(way, phase, skipped, |row| row.delivered)
    }

    fn savings(&self, way: Way, phase: usize, skipped: f64) -> f64 {
        let wire = self.of(way, phase, skipped, |row| row.wire);
        100.0 * (1.0 - wire / self.delivered(way, phase, skipped))
    }
}

fn report(rounds: &[Vec<Sample>], arguments: &Arguments) {
    let rounds: Vec<Means> =
        rounds.iter().map(|samples| Means { samples, phases: &arguments.phases }).collect();
    println!("| way | phase | delivered MB/s | savings |\n|---|---|---|---|");
    for way in Way::ALL {
        for (phase, name) in ["idle", "loaded", "idle again"].into_iter().enumerate() {
            let delivered = spread(&rounds, |means| means.delivered(way, phase, 0.0)).1;
            let savings = spread(&rounds, |means| means.savings(way, phase, 0.0)).1;
            println!("| {} | {name} | {delivered:.1} | {savings:.1} % |", way.name());
        }
    }
    let print = |what: &str, value: &dyn Fn(&Means) -> f64| {
        let (least, median, most) = spread(&rounds, value);
        // A phase may be too short to say.
        if median.is_finite() {
            println!("{what}: {median:.2} ({least:.2} to {most:.2})");
        }
    };
    println!("\nMedian of {} rounds, and the lowest and the highest:", rounds.len());
    let to_none = |way: Way, skipped: f64| {
        move |means: &Means| means.delivered(way, 1, skipped) / means.delivered(Way::Uncoded, 1, skipped)
    };
    print("under load, adapt / none", &to_none(Way::Adapting, 0.0));
    print(&format!("the same from {SETTLED} s on"), &to_none(Way::Adapting, SETTLED));
    print("under load, configured / none", &to_none(Way::Configured, 0.0));
    print("savings of adapt before the load, %", &|means| means.savings(Way::Adapting, 0, 2.0));
    print("savings of adapt under load, %", &|means| means.savings(Way::Adapting, 1, 0.0));
    print("savings of adapt from 5 s after it, %", &|means| means.savings(Way::Adapting, 2, 5.0));
}

/// Returns the lowest, the median and the highest of a value over the rounds.
fn spread(rounds: &[Means], value: impl Fn(&Means) -> f64) -> (f64, f64, f64) {
    let mut values: Vec<f64> = rounds.iter().map(value).collect();
    values.sort_by(f64::total_cmp);
    (values[0], values[values.len() / 2], values[values.len() - 1])
}

/// Seconds after which the controller should have found what is fastest.
const SETTLED: f64 = 2.5;
/// How often to look.
const SAMPLE: Duration = Duration::from_millis(500);
