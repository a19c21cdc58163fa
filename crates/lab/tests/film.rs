//! A class watching one film [Wanax §6], at test size: the cost of simultaneous requests for one file, on a line as
//! wide as one of them.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on is to fail there")]

use std::time::Duration;

use bytes::Bytes;
use oncewire_codec::entropy::Entropy;
use oncewire_codec::{Layers, Plan};
use oncewire_lab::corpus::Corpus;
use oncewire_lab::simulation::{
    DiskParams, FAR, FlowPlan, GatewayConfig, PathConfig, Simulation, SimulationConfig, StoreConfig,
};

const CLIENTS: u32 = 80;
const SECOND: Duration = Duration::from_secs(1);

/// A film, and how it is brought.
struct Class {
    film_bytes: usize,
    log_memory: u64,
    /// Whether something of another length goes before the film to each.
    headers: bool,
    layers: Layers,
    rate_limit: Option<u64>,
}

/// All of it stays in the part of the log without refreshing.
const SMALL: Class = Class {
    film_bytes: 4_000_000,
    log_memory: 16 << 20,
    headers: false,
    layers: Layers::Log,
    rate_limit: None,
};

impl Class {
    /// Shows the film over 1 Mbit/s and 1,000 ms; returns the bytes on the path, as a multiple of it, and the most
    /// lanes with flows at once.
    fn watch(&self) -> (f64, u32) {
        let store = StoreConfig {
            disk: DiskParams::default(),
            disks: 1,
            memory: 1 << 30,
            containers: false,
            shed: true,
        };
        let gateways = GatewayConfig {
            plan: Some(Plan { layers: self.layers, entropy: Entropy::None, ..Plan::default() }),
            shape: "mrc:8:128".parse().unwrap(),
            log_memory: self.log_memory,
            window: 256 << 10,
            rate_limit: self.rate_limit,
            store: Some(store),
            ..GatewayConfig::default()
        };
        let path = PathConfig {
            rate_bits_per_s: 1_000_000,
            round_trip: SECOND,
            queue: SECOND,
            ..PathConfig::default()
        };
        let mut simulation =
            Simulation::new(SimulationConfig { path, gateways: Some(gateways), ..Default::default() })
                .unwrap();
        let mut corpus = Corpus::new(14);
        let film: Bytes = corpus.random(self.film_bytes).into();
        for client in 0..CLIENTS {
            let header = if self.headers { header(&mut corpus) } else { Bytes::new() };
            simulation.open(FlowPlan::fetch(header, film.clone()), client * SECOND);
        }
        let before = simulation.wire_bytes(FAR);
        let mut lanes = 0;
        while simulation.flows().iter().any(|fetch| fetch.took().is_none()) {
            assert!(simulation.now() < 3600 * SECOND);
            simulation.pass(SECOND).unwrap();
            lanes = lanes.max(simulation.link_stats(FAR).unwrap().lanes_busy);
        }
        let films = (simulation.wire_bytes(FAR) - before) as f64 / self.film_bytes as f64;
        (films, lanes)
    }
}

#[test]
fn request_for_bytes_under_way_costs_little() {
    for (layers, rate_limit, most) in
        [(Layers::Log, Some(950_000), LIMITED), (Layers::Both, None, UNLIMITED), (Layers::Names, None, NAMED)]
    {
        let (films, lanes) = Class { layers, rate_limit, ..SMALL }.watch();
        println!("{films:.2} films crossed, {layers:?}, {rate_limit:?}, {lanes} lanes");
        assert!(rate_limit.is_some() || lanes <= MOST_LANES, "{lanes} lanes, {layers:?}");
        assert!(films < most, "{films:.2} films crossed, {layers:?}, {rate_limit:?}");
    }
}

#[test]
fn bytes_far_back_in_the_log_are_refreshed_once() {
    let (films, _) = Class { film_bytes: 8_000_000, log_memory: 28 << 20, headers: true, ..SMALL }.watch();
    println!("{films:.2} films crossed");
    assert!(films < FAR_BACK, "{films:.2} films crossed");
}

/// A server's header to one client before the film.
fn header(corpus: &mut Corpus) -> Bytes {
    let more = corpus.random(2);
    corpus.random(200 + usize::from(u16::from_le_bytes([more[0], more[1]])) % 401).into()
}

/// The film once, and the cost of 79 others: mostly starts and retransmissions of TCP on a full line.
const LIMITED: f64 = 1.5;
const UNLIMITED: f64 = 1.6;
const NAMED: f64 = 1.6;
const FAR_BACK: f64 = 2.2;
/// The path has room for ten, and some begin before this is known; with a lane for each client it would be 64.
const MOST_LANES: u32 = 24;
