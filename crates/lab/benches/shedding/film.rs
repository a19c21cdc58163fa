//! A class watching one film, each pupil a second later [Wanax §6].

use std::time::Duration;

use bytes::Bytes;
use oncewire_codec::entropy::Entropy;
use oncewire_codec::{Layers, Plan};
use oncewire_lab::corpus::Corpus;
use oncewire_lab::simulation::{
    DiskParams, FAR, Flow, FlowPlan, GatewayConfig, PathConfig, Simulation, SimulationConfig,
    SimulationError, StoreConfig,
};
use oncewire_netem::tcp::congestion::Policy;

use crate::table;

pub(crate) fn run(_: &[Vec<u8>]) -> Result<(), SimulationError> {
    let notes = "100 clients, a second apart, fetch the same 18 MB over 1 Mbit/s with 1,000 ms, \
                 each behind 200 to 600 other bytes. How many could watch: \
                 those whose transfer is as fast as the film, and in brackets those who never wait if they begin 10 s \
                 after asking; from how many seconds after asking half, nine tenths and all never wait at 320 kbit/s. What was put is in memory.";
    let columns = [
        "chunks",
        "rate_limit",
        "median kbit/s",
        "watch 320 kbit/s",
        "never wait from",
        "watch 809 kbit/s",
        "MB sent",
        "by TCP again",
    ];
    table::start("A film for a class", notes, &columns);
    let [(_, names), (_, endre), (_, auto)] = codecs();
    for (name, plan, shape, rate_limit) in [
        ("mrc:8:128", names, "mrc:8:128", None),
        ("mrc:8:128", names, "mrc:8:128", Some(RATE_LIMIT)),
        ("endre", endre, "mrc:8:128", None),
        ("endre", endre, "mrc:8:128", Some(RATE_LIMIT)),
        ("auto", auto, "mrc:8:128", None),
        ("auto", auto, "mrc:8:128", Some(RATE_LIMIT)),
        ("src:1024", names, "src:1024", None),
    ] {
        let class = Class { plan, shape, rate_limit, ..Class::default() };
        let watched = class.watch()?;
        table::row(&[
            name.to_owned(),
            rate_limit.map_or(String::new(), |rate| format!("{} kbit/s", rate / 1000)),
            format!("{:.0}", watched.median_kbit_per_s()),
            watched.watchers(320),
            watched.begin_after(320),
            watched.watchers(809),
            format!("{:.1}", watched.sent_mb()),
            format!("{:.1}", watched.simulation.traffic(FAR).repeated as f64 / 1e6),
        ]);
    }
    Ok(())
}

/// The same without a limit, by when they start and by congestion control: how far such a figure is a matter of moments.
pub(crate) fn run_starts(_: &[Vec<u8>]) -> Result<(), SimulationError> {
    let notes = "As the film, without a limit, with the clients 990, 1,000, 1,010 and 1,025 ms apart: from the least to \
                 the most of the four.";
    let columns = ["chunks", "all under", "median kbit/s", "never wait at 320 kbit/s", "MB sent"];
    table::start("A film for a class, by when they start", notes, &columns);
    for policy in [Policy::Cubic, Policy::Bbr] {
        for (name, plan) in codecs() {
            let mut all = Vec::new();
            for ms in [990, 1000, 1010, 1025] {
                let class = Class { plan, policy, apart: Duration::from_millis(ms), ..Class::default() };
                all.push(class.watch()?);
            }
            table::row(&[
                name.to_owned(),
                policy.to_string(),
                range(all.iter().map(Watched::median_kbit_per_s)),
                range(all.iter().map(|watched| watched.never_wait(320) as f64)),
                range(all.iter().map(|watched| watched.sent_mb())),
            ]);
        }
    }
    Ok(())
}

fn codecs() -> [(&'static str, Plan); 3] {
    let names = Plan { layers: Layers::Names, entropy: Entropy::None, ..Plan::default() };
    let of = |layers| Plan { layers, ..names };
    [("mrc:8:128", names), ("endre", of(Layers::Log)), ("auto", of(Layers::Both))]
}

fn range(values: impl Iterator<Item = f64>) -> String {
    let values: Vec<f64> = values.collect();
    let least: f64 = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    format!("{least:.0} to {most:.0}")
}

/// A class, and how its gateways are set up.
struct Class {
    plan: Plan,
    shape: &'static str,
    rate_limit: Option<u64>,
    policy: Policy,
    /// From one start to the next.
    apart: Duration,
}

/// How it went.
struct Watched {
    simulation: Simulation,
    /// Bytes on the wire before anybody asked.
    before: u64,
}

impl Default for Class {
    fn default() -> Self {
        Self {
            plan: Plan::default(),
            shape: "mrc:8:128",
            rate_limit: None,
            policy: PathConfig::default().policy,
            apart: Duration::from_secs(1),
        }
    }
}

impl Class {
    fn watch(&self) -> Result<Watched, SimulationError> {
        let store = StoreConfig {
            disk: DiskParams::default(),
            disks: 1,
            memory: MEMORY,
            containers: false,
            shed: true,
        };
        let gateways = GatewayConfig {
            plan: Some(self.plan),
            shape: self.shape.parse().unwrap_or_default(),
            log_memory: 64 << 20,
            window: WINDOW,
            rate_limit: self.rate_limit,
            store: Some(store),
            ..GatewayConfig::default()
        };
        let path = PathConfig {
            rate_bits_per_s: 1_000_000,
            round_trip: Duration::from_secs(1),
            queue: Duration::from_secs(1),
            policy: self.policy,
            ..PathConfig::default()
        };
        let mut simulation =
            Simulation::new(SimulationConfig { path, gateways: Some(gateways), ..Default::default() })?;
        let mut corpus = Corpus::new(14);
        let film: Bytes = corpus.random(FILM_BYTES).into();
        for client in 0..CLIENTS {
            simulation.open(FlowPlan::fetch(header(&mut corpus), film.clone()), client * self.apart);
        }
        let before = simulation.wire_bytes(FAR);
        simulation.run(LIMIT)?;
        Ok(Watched { simulation, before })
    }
}

impl Watched {
    fn sent_mb(&self) -> f64 {
        (self.simulation.wire_bytes(FAR) - self.before) as f64 / 1e6
    }

    fn median_kbit_per_s(&self) -> f64 {
        table::median(self.simulation.flows().iter().map(Flow::bits_per_s).collect()) / 1e3
    }

    /// How long after asking each has to begin so as never to wait, the shortest first.
    fn head_starts(&self, kilobits_per_s: u64) -> Vec<Duration> {
        let flows = self.simulation.flows().iter();
        let mut starts: Vec<Duration> =
            flows.map(|flow| flow.head_start(1000 * kilobits_per_s).unwrap_or(Duration::MAX)).collect();
        starts.sort_unstable();
        starts
    }

    /// The clients without a wait if they begin so long after the request.
    fn never_wait(&self, kilobits_per_s: u64) -> usize {
        self.head_starts(kilobits_per_s).iter().filter(|start| **start <= BUFFERED).count()
    }

    /// Seconds after the request from which on half, nine tenths and all never wait.
    fn begin_after(&self, kilobits_per_s: u64) -> String {
        let starts = self.head_starts(kilobits_per_s);
        let shares = [50, 90, 100].map(|share| match starts[starts.len() * share / 100 - 1] {
            Duration::MAX => "never".to_owned(),
            start => format!("{:.0}", start.as_secs_f64()),
        });
        shares.join(", ")
    }

    /// The clients with a transfer as fast as the film, and in brackets those without a wait.
    fn watchers(&self, kilobits_per_s: u64) -> String {
        let is_as_fast = |flow: &&Flow| flow.bits_per_s() >= 1e3 * kilobits_per_s as f64;
        let as_fast = self.simulation.flows().iter().filter(is_as_fast).count();
        format!("{as_fast} ({})", self.never_wait(kilobits_per_s))
    }
}

/// A server's header to one client before the film.
fn header(corpus: &mut Corpus) -> Bytes {
    let more = corpus.random(2);
    corpus.random(200 + usize::from(u16::from_le_bytes([more[0], more[1]])) % 401).into()
}

/// The setting for both gateways of such a link: bytes wait only at a place with coding still ahead.
const RATE_LIMIT: u64 = 950_000;
const WINDOW: u64 = 256 << 10;
const CLIENTS: u32 = 100;
const FILM_BYTES: usize = 18_000_000;
/// All stored bytes are still in the machine's memory: the film fits many times.
const MEMORY: u64 = 1 << 30;
const BUFFERED: Duration = Duration::from_secs(10);
/// A day.
const LIMIT: Duration = Duration::from_secs(86_400);
