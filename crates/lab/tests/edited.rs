//! An edited file over a line faster than the disk: stalls for want of credit.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on is to fail there")]

use std::time::Duration;

use bytes::Bytes;
use oncewire_codec::entropy::Entropy;
use oncewire_codec::wanax::Shape;
use oncewire_codec::{Layers, Plan};
use oncewire_lab::corpus::Corpus;
use oncewire_lab::simulation::{
    DiskParams, GatewayConfig, PathConfig, Simulation, SimulationConfig, StoreConfig,
};
use oncewire_netem::tcp::congestion::Policy;

const FILE_BYTES: usize = 6 << 20;
const EDIT_EVERY: usize = 2000;

/// Transfers a text, and 10 s later the same with edits; returns how long the second took.
fn edited(gateways: Option<GatewayConfig>) -> Duration {
    let path = PathConfig {
        rate_bits_per_s: 100_000_000,
        round_trip: Duration::from_millis(200),
        queue: Duration::from_millis(400),
        policy: Policy::Bbr,
        ..PathConfig::default()
    };
    let mut simulation = Simulation::new(SimulationConfig { path, gateways, ..Default::default() }).unwrap();
    let mut corpus = Corpus::new(14);
    let first = corpus.text(FILE_BYTES);
    let second = corpus.edited(&first, EDIT_EVERY);
    let mut took = Duration::ZERO;
    for file in [first, second] {
        let fetch = simulation.fetch(Bytes::from(file), Duration::ZERO);
        while simulation.flows()[fetch].took().is_none() {
            assert!(simulation.now() < Duration::from_secs(600));
            simulation.pass(Duration::from_millis(100)).unwrap();
        }
        took = simulation.flows()[fetch].took().unwrap();
        simulation.pass(Duration::from_secs(10)).unwrap();
    }
    took
}

#[test]
fn credit_for_names_comes_before_the_line_stands_still() {
    let store =
        StoreConfig { disk: DiskParams::default(), disks: 1, memory: 0, containers: true, shed: true };
    let gateways = GatewayConfig {
        plan: Some(Plan { layers: Layers::Names, entropy: Entropy::None, ..Plan::default() }),
        shape: Shape::default(),
        log_memory: 1 << 20,
        window: 512 << 10,
        store: Some(store),
        ..GatewayConfig::default()
    };
    let (alone, named) = (edited(None), edited(Some(gateways)));
    println!("{alone:?} without gateways, {named:?} with names");
    // With credit at half a window only, it takes a fifth longer.
    assert!(named.as_secs_f64() * SOONER < alone.as_secs_f64(), "{named:?} with names, {alone:?} without");
}

/// How many times as fast the edited file is at least.
const SOONER: f64 = 1.7;
