//! A soak test: a pair in a network under all faults at once.
//!
//! Transfers of all kinds go in by every mode while the line loses, delays, reorders, repeats and is cut, and
//! gateways are killed, stopped, reconfigured and moved, all of it drawn from one seed. Every byte is compared at
//! both ends. Only faults with the power to end connections may end a transfer, refusals are allowed only while the
//! link was away, and nothing may stall for a minute beyond the faults' explanation. Afterwards nothing may be left
//! behind.

mod blows;
mod door;
mod excuses;
mod plan;
mod remains;
mod schedule;
mod stream;
mod transfer;
mod worker;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use oncewire_testnet::{Family, LinkParams};

use super::connections::raise_open_files;
use super::data::Rng;
use super::network::{FORWARDED, OWN, PairInNetwork, Place, REDIRECT, Setup, TPROXY};
use super::origin::Origin;
use super::wait::{LIMIT, eventually, pause};
use blows::Blows;
use door::Door;
use remains::Remains;
use worker::{Outcome, Run};

/// The duration, and the seed.
#[derive(Clone, Debug)]
pub(crate) struct Soak {
    /// Seed of all contents, plans and faults.
    pub(crate) seed: u64,
    /// The round of faults at this time is the last.
    pub(crate) lasts: Duration,
    /// For how long the path is gone at most.
    pub(crate) longest: Duration,
    /// Transfers at once.
    pub(crate) workers: usize,
    /// Whether both gateways have chunk stores, with rotting files.
    pub(crate) store: bool,
}

/// Runs it, prints its plan and observations, and panics on a violation. False, with the reason printed, if it cannot
/// run.
pub(crate) fn run(binary: &Path, soak: &Soak) -> bool {
    println!("seed {}", soak.seed);
    raise_open_files();
    let both = format!("{SETTINGS}{}", if soak.store { WITH_STORE } else { WITHOUT_STORE });
    let setup = Setup { line: fair(), both, every_mode: true };
    let Some(mut pair) = PairInNetwork::configure(binary, &setup) else { return false };
    let remains = Remains::before(&pair);
    Place::BOTH.into_iter().for_each(|place| pair.launch(place));
    eventually("the gateways meet", LIMIT, || pair.is_up().then_some(()));
    let remains = remains.idle(&pair);

    let run = Arc::new(Run::new(soak.seed, Door::new(&pair.network)));
    let _origins = serve(&pair, &run);
    let workers: Vec<_> = (0..soak.workers)
        .map(|_| {
            let run = Arc::clone(&run);
            std::thread::spawn(move || run.work())
        })
        .collect();
    let mut blows = Blows::new(&mut pair, &run);
    let faults = strike(&mut blows, soak);
    blows.pair.network.wan().set(&fair()).unwrap();
    run.stop();
    // After an outage TCP may wait about as long again.
    println!("no more faults; what they held up may take until {} s from now", ENDING.as_secs());
    let ending = Instant::now();
    let over = || workers.iter().all(|worker| worker.is_finished()) && run.is_idle();
    while !run.has_failed() && !over() {
        assert!(ending.elapsed() < ENDING, "seed {}: a transfer neither ends nor hangs", soak.seed);
        pause();
    }
    let failures = run.failures();
    if !failures.is_empty() {
        Place::BOTH.into_iter().for_each(|place| dump(blows.pair, place));
        panic!("seed {}: {}", soak.seed, failures.join("\n"));
    }
    workers.into_iter().for_each(|worker| worker.join().expect("a worker panicked"));
    blows.look();
    let peer_lost = blows.peer_lost + Place::BOTH.map(|place| blows.refused(place)).iter().sum::<u64>();
    let resident = blows.resident;
    if soak.store {
        Place::BOTH.into_iter().for_each(|place| blows.count_reads(place));
        println!("chunk stores: {:?}", blows.reads);
    }
    println!("{}; {faults} faults; most memory {} MiB", run.summary(), resident >> 20);
    assert!(run.count(Outcome::Complete) > 0 && resident < MEMORY, "{} MiB in use", resident >> 20);
    // A link taken for dead on a slow machine or a lossy line refuses, too, and says so.
    let alone = run.count(Outcome::RefusedAlone);
    assert!(alone <= peer_lost, "seed {}: {alone} refused for no reason", soak.seed);
    remains.check(&mut pair);
    true
}

/// Has everything go wrong until the time is over; returns how many faults there were.
fn strike(blows: &mut Blows<'_>, soak: &Soak) -> usize {
    let (start, mut rng, mut faults) = (Instant::now(), Rng::new(soak.seed), 0);
    while faults == 0 || start.elapsed() < soak.lasts {
        for step in schedule::round(&mut rng, soak.longest, soak.store) {
            if blows.run.has_failed() {
                return faults;
            }
            println!("{:7.2} s: {step}", start.elapsed().as_secs_f64());
            blows.strike(&step);
            faults += 1;
        }
    }
    faults
}

/// An origin at every port of all ways.
fn serve(pair: &PairInNetwork, run: &Arc<Run>) -> Vec<Origin> {
    let ports = [FORWARDED, TPROXY[0], REDIRECT, OWN];
    let each = ports.into_iter().flat_map(|port| Family::BOTH.map(|family| (family, port)));
    each.map(|(family, port)| {
        let run = Arc::clone(run);
        Origin::on(pair.listen_on(family, port), move |stream| run.serve(stream))
    })
    .collect()
}

/// The line before the first fault and after the last.
fn fair() -> LinkParams {
    LinkParams {
        rate_bits_per_s: Some(100_000_000),
        delay: Duration::from_millis(10),
        ..LinkParams::default()
    }
}

fn dump(pair: &PairInNetwork, place: Place) {
    for command in ["status", "flows"] {
        eprintln!("--- {} {command}\n{:#?}", place.name(), pair.at(place, |gateway| gateway.ask(command)));
    }
}

/// Flows with more patience than any fault here, and quick detection of silence.
const SETTINGS: &str =
    "[link]\nresume_window = \"10 min\"\ndead_after = \"4 s\"\n[cache]\nmemory = \"256 MiB\"\n";
/// Wrapping logs.
const WITHOUT_STORE: &str = "log_memory = \"16 MiB\"\n";
/// Logs too small without the chunk stores, and stores that wrap as well.
const WITH_STORE: &str = "log_memory = \"4 MiB\"\nstore_disk = \"128 MiB\"\n";
/// `memory`, and a gateway's other needs: code, threads, sockets' buffers, TLS.
const MEMORY: u64 = (256 + 192) << 20;
/// The last transfers may wait for the end of the last fault.
const ENDING: Duration = Duration::from_secs(600);
