//! Transfers over a slow path and a slow disk, to the byte and microsecond.
//!
//! `shedding.tsv` is the reviewed answer; a change of the codec or of load shedding shows there. `ONCEWIRE_UPDATE=1
//! cargo test -p oncewire-lab` writes it anew.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test that reads files")]

use std::fmt::Write as _;
use std::time::Duration;

use oncewire_codec::entropy::Entropy;
use oncewire_codec::wanax::Shape;
use oncewire_codec::{Layers, Plan};
use oncewire_lab::corpus::Corpus;
use oncewire_lab::simulation::{
    DiskParams, FAR, GatewayConfig, Health, NEAR, PathConfig, Simulation, SimulationConfig, StoreConfig,
};

mod reviewed;

use reviewed::assert_reviewed;

/// More than the path carries in a round trip.
const WINDOW: u64 = 4 << 20;
const SECOND: Duration = Duration::from_secs(1);

/// A line of 2 Mbit/s and 100 ms.
fn line() -> PathConfig {
    PathConfig {
        rate_bits_per_s: 2_000_000,
        round_trip: Duration::from_millis(100),
        queue: Duration::from_millis(200),
        ..PathConfig::default()
    }
}

fn simulation(shape: &str, shed: bool) -> Simulation {
    let store = StoreConfig { disk: DiskParams::default(), disks: 1, memory: 0, containers: false, shed };
    simulation_with(shape, line(), store)
}

fn simulation_with(shape: &str, path: PathConfig, store: StoreConfig) -> Simulation {
    let plan = Plan { layers: Layers::Names, entropy: Entropy::None, ..Plan::default() };
    let shape: Shape = shape.parse().unwrap();
    let gateways = GatewayConfig {
        plan: Some(plan),
        shape,
        log_memory: 16 << 20,
        window: WINDOW,
        store: Some(store),
        ..GatewayConfig::default()
    };
    Simulation::new(SimulationConfig { path, gateways: Some(gateways), ..Default::default() }).unwrap()
}

fn files() -> [(&'static str, Vec<u8>); 3] {
    let mut corpus = Corpus::new(5);
    let first = corpus.random(300_000);
    let edited = corpus.edited(&first, 30);
    [("first", first.clone()), ("again", first), ("edited", edited)]
}

/// Fetches a file; returns the bytes on the path and the duration in microseconds.
fn fetch(simulation: &mut Simulation, file: &[u8]) -> (u64, u128) {
    let before = simulation.wire_bytes(FAR);
    let fetch = simulation.fetch(file.to_vec().into(), Duration::ZERO);
    simulation.run(600 * SECOND).unwrap();
    let spent = (simulation.wire_bytes(FAR) - before, simulation.flows()[fetch].took().unwrap().as_micros());
    simulation.pass(5 * SECOND).unwrap();
    spent
}

fn table() -> String {
    let mut table = String::from("chunks\tshedding\tfile\twire\ttook_us\treads\n");
    for shape in ["src:1024", "mrc:8:128"] {
        for (shed, says) in [(false, "off"), (true, "on")] {
            let mut simulation = simulation(shape, shed);
            for (name, file) in files() {
                let reads = simulation.store_counts().reads;
                let (bytes, took_us) = fetch(&mut simulation, &file);
                let reads = simulation.store_counts().reads - reads;
                writeln!(table, "{shape}\t{says}\t{name}\t{bytes}\t{took_us}\t{reads}").unwrap();
            }
        }
    }
    table
}

#[test]
fn times_and_bytes_equal_the_reviewed_ones() {
    assert_reviewed("shedding.tsv", &table());
}

#[test]
fn hanging_or_failing_disk_costs_little_more_than_no_store() {
    let file = Corpus::new(6).random(1 << 20);
    let cold = fetch(&mut simulation("mrc:8:128", true), &file);
    for health in [Health::Hangs, Health::Fails] {
        let mut simulation = simulation("mrc:8:128", true);
        fetch(&mut simulation, &file);
        simulation.set_disk_health(health);
        let (bytes, took_us) = fetch(&mut simulation, &file);
        assert!(bytes < cold.0 * 21 / 20, "{health:?}: {bytes} bytes, {} cold", cold.0);
        assert!(took_us < cold.1 * 3 / 2, "{health:?}: {took_us} µs, {} cold", cold.1);
    }
}

#[test]
fn file_after_loss_of_its_store_takes_no_longer() {
    let file = Corpus::new(7).random(4 << 20);
    for (megabits, ms) in [(2, 100), (20, 50), (20, 200), (100, 200)] {
        let path = PathConfig {
            rate_bits_per_s: megabits * 1_000_000,
            round_trip: Duration::from_millis(ms),
            queue: Duration::from_millis(200),
            ..PathConfig::default()
        };
        let store =
            StoreConfig { disk: DiskParams::default(), disks: 1, memory: 0, containers: true, shed: true };
        let mut simulation = simulation_with("mrc:8:128", path, store);
        let cold = fetch(&mut simulation, &file);
        simulation.lose_store();
        let lost = fetch(&mut simulation, &file);
        let of = format!("of {cold:?} at {megabits} Mbit/s and {ms} ms");
        assert!(50 * lost.1 <= 51 * cold.1 && 100 * lost.0 <= 101 * cold.0, "{lost:?} {of}");
        let again = fetch(&mut simulation, &file);
        assert!(again.0 < cold.0 / 2 && again.1 < cold.1, "what crossed is known: {again:?} {of}");
    }
}

#[test]
fn shedding_costs_no_time_for_any_disk_and_queue() {
    let mut sheds = 0;
    for (queue_ms, seek_us) in [(200, 500), (200, 8_500), (200, 30_000), (3_000, 8_500), (3_000, 30_000)] {
        let [off, on] = [false, true].map(|shed| {
            let disk = DiskParams { seek: Duration::from_micros(seek_us), ..DiskParams::default() };
            let store = StoreConfig { disk, disks: 1, memory: 0, containers: true, shed };
            let path = PathConfig { queue: Duration::from_millis(queue_ms), ..line() };
            let mut simulation = simulation_with("mrc:8:128", path, store);
            let [_, _, edited] = files().map(|(_, file)| fetch(&mut simulation, &file));
            sheds += simulation.link_stats(NEAR).unwrap().inbound.chunks.shed;
            edited.1
        });
        assert!(20 * on <= 21 * off, "{on} µs instead of {off} with {queue_ms} ms and {seek_us} µs");
    }
    assert!(sheds > 0, "nothing was shed anywhere");
}
