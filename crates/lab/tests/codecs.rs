//! Any codec in the simulation: right bytes, rates of line and host, and the same results for the same seed.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on is to fail there")]

#[path = "../../link/tests/common/raw.rs"]
mod raw;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use oncewire_codec::entropy::Entropy;
use oncewire_codec::{Layers, Plan};
use oncewire_lab::corpus::Corpus;
use oncewire_lab::simulation::datagrams::{CLASS, DatagramConfig, carry};
use oncewire_lab::simulation::{
    DiskParams, FAR, FlowPlan, GatewayConfig, HostConfig, NEAR, PathConfig, Report, Simulation,
    SimulationConfig, StoreConfig, parse_trace,
};
use raw::raw;

const SECOND: Duration = Duration::from_secs(1);

/// All codecs, by name.
fn codecs() -> [(&'static str, GatewayConfig); 4] {
    let plan = |layers| Some(Plan { layers, entropy: Entropy::Zstd(1), ..Plan::default() });
    let store =
        StoreConfig { disk: DiskParams::default(), disks: 1, memory: 0, containers: true, shed: true };
    let of = |plan| GatewayConfig { plan, log_memory: 4 << 20, ..GatewayConfig::default() };
    [
        ("endre", GatewayConfig { store: Some(store), ..of(plan(Layers::Both)) }),
        ("endre without names", of(plan(Layers::Log))),
        ("none", of(None)),
        ("raw", GatewayConfig { codec: raw(), ..of(None) }),
    ]
}

/// A line of 4 Mbit/s and 60 ms with all faults.
fn faulty(seed: u64) -> PathConfig {
    PathConfig {
        rate_bits_per_s: 4_000_000,
        round_trip: Duration::from_millis(60),
        queue: Duration::from_millis(100),
        jitter: Duration::from_millis(10),
        loss: 0.02,
        reorder: 0.05,
        duplicate: 0.01,
        seed,
        ..PathConfig::default()
    }
}

/// Files again and edited, an upload, and both ways at once.
fn flows(seed: u64) -> Vec<(Duration, FlowPlan)> {
    let mut corpus = Corpus::new(seed);
    let file = corpus.text(300_000);
    let edited: Bytes = corpus.edited(&file, 40).into();
    let (file, other): (Bytes, Bytes) = (file.into(), corpus.random(150_000).into());
    vec![
        (Duration::ZERO, FlowPlan::fetch(Bytes::new(), file.clone())),
        (SECOND, FlowPlan::fetch(other.slice(..300), edited.clone())),
        (SECOND, FlowPlan::turns("upload", [(NEAR, other.clone())])),
        (2 * SECOND, FlowPlan::both_ways("both", other, edited)),
        (9 * SECOND, FlowPlan::turns("callback", [(FAR, file)])),
    ]
}

fn run(config: SimulationConfig, flows: Vec<(Duration, FlowPlan)>) -> Report {
    let mut simulation = Simulation::new(config).unwrap();
    for (at, flow) in flows {
        simulation.open(flow, at);
    }
    simulation.run(600 * SECOND).unwrap();
    simulation.report()
}

fn with(gateways: GatewayConfig, path: PathConfig) -> SimulationConfig {
    SimulationConfig { path, gateways: Some(gateways), ..SimulationConfig::default() }
}

#[test]
fn every_byte_is_right_under_loss_and_reordering() {
    for seed in 0..3 {
        for (name, gateways) in codecs() {
            let report = run(with(gateways, faulty(seed)), flows(seed));
            println!("{name}, seed {seed}: {report:?}");
            for direction in report.directions {
                assert_eq!(direction.delivered, direction.offered, "{name}, seed {seed}");
            }
            let flows: Vec<u64> = report.classes.values().map(|class| class.finished).collect();
            assert_eq!(flows.iter().sum::<u64>(), 5, "{name}, seed {seed}");
            assert!(report.directions[FAR].lost > 0, "{name}, seed {seed}: nothing was lost");
        }
    }
}

#[test]
fn codec_with_a_log_saves_and_others_do_not() {
    let savings = codecs().map(|(_, gateways)| {
        let report = run(with(gateways, PathConfig::default()), flows(1));
        report.directions[FAR].savings().unwrap()
    });
    assert!(savings[0] > 0.5 && savings[1] > 0.5 && savings[2] < 0.0 && savings[3] < 0.0, "{savings:?}");
}

#[test]
fn same_seed_gives_the_same_report() {
    for (name, gateways) in codecs() {
        let report = |seed| run(with(gateways.clone(), faulty(seed)), flows(1));
        assert_eq!(report(1), report(1), "{name}");
        assert_ne!(report(1), report(2), "{name}");
    }
}

#[test]
fn wire_bytes_stay_within_the_line_rate() {
    for (name, gateways) in codecs() {
        let path = PathConfig { rate_bits_per_s: 2_000_000, ..PathConfig::default() };
        let report = run(with(gateways, path), flows(2));
        for direction in report.directions {
            let least = Duration::from_secs_f64(direction.wire as f64 * 8.0 / 2e6);
            assert!(report.time + path.queue >= least, "{name}: {report:?}");
        }
    }
}

#[test]
fn slow_host_limits_throughput_to_its_rate() {
    let file: Bytes = Corpus::new(3).random(2 << 20).into();
    let slow = |encode, decode| HostConfig {
        encode_bytes_per_s: encode,
        decode_bytes_per_s: decode,
        per_frame: Duration::ZERO,
    };
    let rate = 1_000_000;
    let path = PathConfig { rate_bits_per_s: 100_000_000, ..PathConfig::default() };
    for (name, gateways) in codecs() {
        for (side, host) in [(FAR, slow(Some(rate), None)), (NEAR, slow(None, Some(rate)))] {
            let mut hosts = [HostConfig::default(); 2];
            hosts[side] = host;
            let config = SimulationConfig { hosts, ..with(gateways.clone(), path) };
            let report = run(config, vec![(Duration::ZERO, FlowPlan::fetch(Bytes::new(), file.clone()))]);
            let took = report.classes["fetch"].median().unwrap().as_secs_f64();
            let least = file.len() as f64 / rate as f64;
            assert!((least..1.2 * least + 0.3).contains(&took), "{name}, side {side}: {took} s");
            let cpu = report.directions[side].cpu.as_secs_f64();
            assert!((least..1.1 * least).contains(&cpu), "{name}, side {side}: {cpu} s");
        }
    }
}

#[test]
fn frames_cost_a_host_its_time() {
    let trace = "0 web near:random:1:200 far:text:2:20000 near:random:3:200 far:text:2:20000";
    let host = HostConfig { per_frame: Duration::from_millis(20), ..HostConfig::default() };
    let times = [HostConfig::default(), host].map(|host| {
        let (_, gateways) = codecs()[3].clone();
        let config = SimulationConfig { hosts: [host; 2], ..with(gateways, PathConfig::default()) };
        run(config, parse_trace(trace).unwrap()).classes["web"].median().unwrap()
    });
    assert!(times[1] > times[0] + 4 * host.per_frame, "{times:?}");
}

/// Packets of 1,000 bytes, 5 ms apart, of which each tenth comes again.
fn packets() -> Vec<(Duration, Bytes)> {
    let mut corpus = Corpus::new(8);
    let first: Bytes = corpus.text(1000).into();
    let packet = |at: u32| {
        let content = if at.is_multiple_of(10) { first.clone() } else { corpus.text(1000).into() };
        (at * Duration::from_millis(5), content)
    };
    (0..600).map(packet).collect()
}

fn datagrams(gateways: &GatewayConfig, path: PathConfig) -> DatagramConfig {
    DatagramConfig {
        path,
        mtu: 1500,
        hosts: [HostConfig::default(); 2],
        codec: Arc::clone(&gateways.codec),
        plan: gateways.plan,
        log_memory: gateways.log_memory,
    }
}

#[test]
fn datagrams_survive_reordering_and_some_loss() {
    for (name, gateways) in codecs() {
        let whole = PathConfig { loss: 0.0, ..faulty(1) };
        let report = carry(&datagrams(&gateways, whole), &packets()).unwrap();
        assert_eq!(report.classes[CLASS].finished, 600, "{name}: {report:?}");
        let report = carry(&datagrams(&gateways, faulty(1)), &packets()).unwrap();
        println!("{name}: {report:?}");
        assert!((500..600).contains(&report.classes[CLASS].finished), "{name}: {report:?}");
        assert_eq!(carry(&datagrams(&gateways, faulty(1)), &packets()).unwrap(), report, "{name}");
    }
}

#[test]
fn slow_host_delays_datagrams() {
    let (_, gateways) = &codecs()[3];
    let mut config = datagrams(gateways, PathConfig::default());
    let fast = carry(&config, &packets()).unwrap();
    // 4 seconds for packets of 3.
    config.hosts[NEAR].encode_bytes_per_s = Some(150_000);
    let slow = carry(&config, &packets()).unwrap();
    let [fast, slow] =
        [fast, slow].map(|report| (report.time, report.classes[CLASS].percentile(99).unwrap()));
    assert!(slow.0 >= 4 * SECOND && slow.1 > fast.1 + SECOND / 2, "{fast:?} {slow:?}");
}
