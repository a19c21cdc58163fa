//! A pair under everything at once: transfers of all kinds, broken links, stopped and killed gateways.
//!
//! Every byte is compared at both ends. A transfer may be reset only if a gateway was killed meanwhile or the plan
//! says so, refused only while the link was away, and nothing may stand still for a minute. Afterwards nothing may be
//! left behind.

mod faults;
mod plan;
mod stream;
mod worker;

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::data::Rng;
use crate::common::gateway::Gateway;
use crate::common::origin::Origin;
use crate::common::pair::{Options, Pair};
use crate::common::wait::pause;
use faults::{Toll, rest};
use worker::Run;

/// How long, and which run.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Seconds of transfers and faults.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Seed of all contents, plans and faults.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Transfers at once.
    #[arg(long, default_value_t = 30)]
    workers: u64,
}

pub(crate) fn run(arguments: &Arguments) {
    println!("seed {}", arguments.seed);
    let run = Arc::new(Run::new(arguments.seed));
    let serving = Arc::clone(&run);
    let origin = Origin::start(move |stream| serving.serve(stream));
    let mut pair = Pair::start_with(&crate::binary(), &Options::to(origin.address()).with(SETTINGS));
    let workers: Vec<_> = (0..arguments.workers)
        .map(|_| {
            let (run, door) = (Arc::clone(&run), worker::Door::new(&pair, origin.address()));
            std::thread::spawn(move || run.work(&door))
        })
        .collect();

    let start = Instant::now();
    let (mut rng, mut toll) = (Rng::new(arguments.seed), Toll::default());
    while start.elapsed() < Duration::from_secs(arguments.seconds) && !run.has_failed() {
        rest(&mut rng, 20, 500);
        toll.strike(&mut pair, &mut rng, &run.excuses);
    }
    run.stop();
    let done = || workers.iter().all(|worker| worker.is_finished()) && run.is_idle();
    let ending = Instant::now();
    while !run.has_failed() && !done() {
        assert!(ending.elapsed() < stream::HANG * 3, "a transfer neither ends nor hangs");
        pause();
    }
    let failures = run.failures();
    if !failures.is_empty() {
        [&pair.branch, &pair.hub].into_iter().for_each(dump);
        panic!("seed {}: {}", arguments.seed, failures.join("\n"));
    }
    workers.into_iter().for_each(|worker| worker.join().expect("a worker panicked"));
    toll.look(&pair);
    [&pair.branch, &pair.hub].into_iter().for_each(check_nothing_is_left);
    println!("{}", run.summary());
    println!(
        "faults: {} lanes cut, {} times all, {} outages, {} stops, {} kills; most memory {} MiB",
        toll.lanes_cut,
        toll.all_cut,
        toll.outages,
        toll.stops,
        toll.kills,
        toll.resident >> 20
    );
    assert!(toll.resident < MEMORY, "{} MiB in use", toll.resident >> 20);
}

/// Flows, busy lanes, sockets: all gone once nobody uses them, and spare lanes but for those that are kept.
fn check_nothing_is_left(gateway: &Gateway) {
    wait("all flows are gone", Duration::from_secs(30), gateway, |peer| {
        peer["flows_open"] == 0 && peer["lanes"]["busy"] == 0
    });
    // Spare lanes are given up after a minute.
    let back = |peer: &Value| peer["lanes"]["spare"] == SPARE_LANES;
    wait("lanes are back to the spares", Duration::from_secs(90), gateway, back);
    let open = gateway.open_files();
    assert!(open <= OPEN_FILES, "{open} files and sockets are open");
}

/// Waits for a state of the gateway's peer, and shows what there is instead if it does not come.
fn wait(what: &str, limit: Duration, gateway: &Gateway, test: impl Fn(&Value) -> bool) {
    let start = Instant::now();
    while !test(&gateway.peer()) {
        if start.elapsed() > limit {
            dump(gateway);
            panic!("{what}: not within {limit:?}");
        }
        pause();
    }
}

fn dump(gateway: &Gateway) {
    for command in ["status", "flows"] {
        eprintln!("--- {} {command}\n{:#?}", gateway.config().display(), gateway.ask(command));
    }
}

/// Logs that wrap many times, and flows that would wait longer than any outage here.
const SETTINGS: &str =
    "[link]\nresume_window = \"20 s\"\n[cache]\nmemory = \"256 MiB\"\nlog_memory = \"16 MiB\"\n";
/// `memory`, and what a gateway may use beside it: code, threads, sockets' buffers, TLS.
const MEMORY: u64 = (256 + 192) << 20;
/// What `oncewire` keeps warm when nobody asks for anything.
const SPARE_LANES: u64 = 2;
/// Listeners, logs, four lanes, and what the runtime needs.
const OPEN_FILES: usize = 48;
