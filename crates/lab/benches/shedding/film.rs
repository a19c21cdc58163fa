//! A class that watches the same film, each pupil under another name and a second after the one before [Wanax §6].

use std::time::Duration;

use bytes::Bytes;
use oncewire_codec::entropy::Entropy;
use oncewire_codec::wanax::Shape;
use oncewire_codec::{Layers, Plan};
use oncewire_lab::corpus::Corpus;
use oncewire_lab::driver::{
    DiskParams, Driver, DriverConfig, DriverError, FAR, GatewayConfig, PathConfig, StoreConfig,
};

use crate::table;

pub(crate) fn run(_: &[Vec<u8>]) -> Result<(), DriverError> {
    let notes = "100 clients, a second apart, fetch the same 18 MB over 1 Mbit/s with 1,000 ms. How many could watch: \
                 those whose transfer is as fast as the film, and in brackets those who never wait if they begin 10 s \
                 after asking. What was put is in memory.";
    let columns = [
        "chunks",
        "rate_limit",
        "median kbit/s",
        "watch 320 kbit/s",
        "watch 809 kbit/s",
        "MB sent",
        "by TCP again",
    ];
    table::start("A film for a class", notes, &columns);
    let names = Plan { layers: Layers::Names, entropy: Entropy::None, ..Plan::default() };
    let endre = Plan { layers: Layers::Log, ..names };
    let auto = Plan { layers: Layers::Both, ..names };
    for (name, plan, shape, rate_limit) in [
        ("mrc:8:128", names, "mrc:8:128", None),
        ("mrc:8:128", names, "mrc:8:128", Some(RATE_LIMIT)),
        ("endre", endre, "mrc:8:128", None),
        ("endre", endre, "mrc:8:128", Some(RATE_LIMIT)),
        ("auto", auto, "mrc:8:128", None),
        ("auto", auto, "mrc:8:128", Some(RATE_LIMIT)),
        ("src:1024", names, "src:1024", None),
    ] {
        let shape: Shape = shape.parse().unwrap_or_default();
        let store = StoreConfig {
            disk: DiskParams::default(),
            disks: 1,
            memory: MEMORY,
            containers: false,
            shed: true,
        };
        let config = GatewayConfig {
            plan,
            shape,
            log_memory: 64 << 20,
            window: WINDOW,
            rate_limit,
            store: Some(store),
        };
        watch(name, config)?;
    }
    Ok(())
}

fn watch(name: &str, gateways: GatewayConfig) -> Result<(), DriverError> {
    let path = PathConfig {
        rate_bits_per_s: 1_000_000,
        round_trip: Duration::from_secs(1),
        queue: Duration::from_secs(1),
        ..PathConfig::default()
    };
    let limit = gateways.rate_limit;
    let mut driver = Driver::new(DriverConfig { path, gateways: Some(gateways) })?;
    let film: Bytes = Corpus::new(14).random(FILM_BYTES).into();
    for client in 0..CLIENTS {
        driver.fetch(film.clone(), client * Duration::from_secs(1));
    }
    let before = driver.wire_bytes(FAR);
    driver.run(LIMIT)?;
    let rates: Vec<f64> = driver.fetches().iter().map(|fetch| fetch.bits_per_s()).collect();
    let watchers = |kilobits_per_s: u64| {
        let as_fast = rates.iter().filter(|rate| **rate >= 1e3 * kilobits_per_s as f64).count();
        let wait =
            driver.fetches().iter().filter(|fetch| fetch.plays(1000 * kilobits_per_s, BUFFERED)).count();
        format!("{as_fast} ({wait})")
    };
    table::row(&[
        name.to_owned(),
        limit.map_or(String::new(), |rate| format!("{} kbit/s", rate / 1000)),
        format!("{:.0}", table::median(rates.clone()) / 1e3),
        watchers(320),
        watchers(809),
        format!("{:.1}", (driver.wire_bytes(FAR) - before) as f64 / 1e6),
        format!("{:.1}", driver.traffic(FAR).repeated as f64 / 1e6),
    ]);
    Ok(())
}

/// As both gateways of such a link are to be set up: what waits, waits where it can still be coded.
const RATE_LIMIT: u64 = 950_000;
const WINDOW: u64 = 256 << 10;
const CLIENTS: u32 = 100;
const FILM_BYTES: usize = 18_000_000;
/// What was put is still in the machine's memory: the film fits many times.
const MEMORY: u64 = 1 << 30;
const BUFFERED: Duration = Duration::from_secs(10);
/// A day.
const LIMIT: Duration = Duration::from_secs(86_400);
