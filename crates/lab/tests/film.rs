//! A class that watches the same film [Wanax §6], small enough for a test: what it costs that many ask for the same at
//! the same time over a line that one of them would fill.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on is to fail there")]

use std::time::Duration;

use bytes::Bytes;
use oncewire_codec::entropy::Entropy;
use oncewire_codec::{Layers, Plan};
use oncewire_lab::corpus::Corpus;
use oncewire_lab::driver::{DiskParams, Driver, DriverConfig, FAR, GatewayConfig, PathConfig, StoreConfig};

const CLIENTS: u32 = 80;
const FILM_BYTES: usize = 4_000_000;
const SECOND: Duration = Duration::from_secs(1);

/// Shows the film over 1 Mbit/s and 1,000 ms; returns what crossed, as a multiple of it, and the most lanes that had
/// flows at once.
fn watch(layers: Layers, rate_limit: Option<u64>) -> (f64, u32) {
    let store =
        StoreConfig { disk: DiskParams::default(), disks: 1, memory: 1 << 30, containers: false, shed: true };
    let gateways = GatewayConfig {
        plan: Plan { layers, entropy: Entropy::None, ..Plan::default() },
        shape: "mrc:8:128".parse().unwrap(),
        log_memory: 16 << 20,
        window: 256 << 10,
        rate_limit,
        store: Some(store),
    };
    let path =
        PathConfig { rate_bits_per_s: 1_000_000, round_trip: SECOND, queue: SECOND, ..PathConfig::default() };
    let mut driver = Driver::new(DriverConfig { path, gateways: Some(gateways) }).unwrap();
    let film: Bytes = Corpus::new(14).random(FILM_BYTES).into();
    for client in 0..CLIENTS {
        driver.fetch(film.clone(), client * SECOND);
    }
    let before = driver.wire_bytes(FAR);
    let mut lanes = 0;
    while driver.fetches().iter().any(|fetch| fetch.took().is_none()) {
        assert!(driver.now() < 3600 * SECOND);
        driver.pass(SECOND).unwrap();
        lanes = lanes.max(driver.link_stats(FAR).unwrap().lanes_busy);
    }
    let films = (driver.wire_bytes(FAR) - before) as f64 / FILM_BYTES as f64;
    (films, lanes)
}

#[test]
fn who_asks_for_what_is_under_way_costs_little() {
    for (layers, rate_limit, most) in
        [(Layers::Log, Some(950_000), LIMITED), (Layers::Both, None, UNLIMITED), (Layers::Names, None, NAMED)]
    {
        let (films, lanes) = watch(layers, rate_limit);
        println!("{films:.2} films crossed, {layers:?}, {rate_limit:?}, {lanes} lanes");
        assert!(rate_limit.is_some() || lanes <= MOST_LANES, "{lanes} lanes, {layers:?}");
        assert!(films < most, "{films:.2} films crossed, {layers:?}, {rate_limit:?}");
    }
}

/// The film once, and what 79 others cost; most of it are lanes of TCP that start and repeat themselves on a full line.
const LIMITED: f64 = 1.5;
const UNLIMITED: f64 = 1.6;
const NAMED: f64 = 1.6;
/// The path has room for ten, and some begin before that is known; with a lane for each client it would be 64.
const MOST_LANES: u32 = 24;
