//! The effect of load shedding on a slow disk, through real gateways [Wanax Fig. 12, 13].

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread::scope;
use std::time::{Duration, Instant};

use oncewire_testnet::{Family, LinkParams};

use crate::common::data;
use crate::common::gateway::Gateway;
use crate::common::network::{FORWARDED, PairInNetwork, Place, Setup};
use crate::common::origin::Origin;
use crate::common::wait::{LIMIT, eventually};

/// The properties of the disk.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The duration of a read from the modelled disk, in milliseconds.
    #[arg(long, default_value_t = 8)]
    read_ms: u64,
    /// The hub's `rate_limit`, to have the queue in the gateway instead of on the line; none if not given.
    #[arg(long)]
    rate_limit: Option<String>,
}

/// The compared ways: with load shedding or not; nothing: without gateways.
const WAYS: [Option<bool>; 3] = [None, Some(false), Some(true)];

pub(crate) fn run(arguments: &Arguments) {
    let first = data::random(1, LEN);
    let second = changed(&first);
    println!("| chunks | shedding | first | again | second | of it, read | shed | late |");
    println!("|---|---|---|---|---|---|---|---|");
    let rows: Vec<Option<String>> = scope(|scope| {
        let way = |way| {
            let (first, second) = (&first, &second);
            scope.spawn(move || row(way, arguments, first, second))
        };
        WAYS.map(way).into_iter().map(|row| row.join().unwrap()).collect()
    });
    rows.into_iter().flatten().for_each(|row| println!("{row}"));
    println!("\nBytes saved, and Mbit/s from the request to the last byte. Every byte was right.");
}

/// Fetches the files one way; `None`, with the reason printed, without a network.
fn row(way: Option<bool>, arguments: &Arguments, first: &[u8], second: &[u8]) -> Option<String> {
    let line = LinkParams {
        rate_bits_per_s: Some(512_000),
        delay: Duration::from_millis(100),
        ..LinkParams::default()
    };
    let shed = way.unwrap_or_default();
    let Arguments { read_ms, rate_limit } = arguments;
    let limit = rate_limit.as_ref().map(|rate| format!("rate_limit = \"{rate}\"\n")).unwrap_or_default();
    let both = format!(
        "[codec]\ncodec = \"wanax\"\nentropy = \"none\"\nadapt = false\n[link]\nshed = {shed}\n{limit}\
         [cache]\nmemory = \"512 MiB\"\nlog_memory = \"1 MiB\"\nstore_disk = \"1 GiB\"\n\
         store_read_latency = \"{read_ms} ms\"\n"
    );
    let mut pair = PairInNetwork::start(&crate::binary(), &Setup { line, both, ..Setup::default() })?;
    let (first_served, second_served) = (first.to_vec(), second.to_vec());
    let _origin = Origin::on(pair.listen(Family::V4), move |mut stream| {
        let mut wanted = [0];
        if stream.read_exact(&mut wanted).is_ok() {
            let _ = stream.write_all(if wanted[0] == 1 { &first_served } else { &second_served });
        }
    });
    let mut cells = Vec::new();
    for (which, expected) in [(1, first), (1, first), (2, second)] {
        let before = wire(&pair);
        let (got, time) = fetch(&pair, way.is_some(), which);
        data::assert_same(&got, expected, "a file");
        let savings = 100.0 * (1.0 - (wire(&pair) - before) as f64 / got.len() as f64);
        let names = pair.at(Place::Branch, Gateway::peer)["in"]["names"].clone();
        cells.push(format!("{savings:.1} %, {:.2}", got.len() as f64 * 8e-6 / time.as_secs_f64()));
        if which == 2 && way.is_some() {
            cells.push(format!("{} | {} | {}", names["found"], names["shed"], names["late"]));
        }
        restart(&mut pair);
    }
    let shed = way.map_or("", |shed| if shed { "on" } else { "off" });
    let codec = if way.is_some() { "mrc:8:128" } else { "no gateways" };
    Some(format!("| {codec} | {shed} | {} |", cells.join(" | ")))
}

/// Fetches a file, by way of the gateways or not; returns it and the time from the request to the last byte.
pub(crate) fn fetch(pair: &PairInNetwork, by_gateways: bool, which: u8) -> (Vec<u8>, Duration) {
    let to = pair.server(Family::V4, FORWARDED);
    let mut stream = match by_gateways {
        true => pair.connect(Family::V4),
        false => pair.network.host("client").enter(|| TcpStream::connect(to).unwrap()),
    };
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let start = Instant::now();
    stream.write_all(&[which]).unwrap();
    let mut got = Vec::with_capacity(LEN);
    stream.read_to_end(&mut got).unwrap();
    (got, start.elapsed())
}

/// Ends the branch in order and starts it again: recently stored content is otherwise in its memory.
fn restart(pair: &mut PairInNetwork) {
    pair.gateway(Place::Branch).terminate();
    pair.gateway_mut(Place::Branch).wait(LIMIT);
    pair.launch(Place::Branch);
    eventually("the gateways meet again", LIMIT, || pair.is_up().then_some(()));
}

/// Bytes on the line, both ways, packets' headers included.
pub(crate) fn wire(pair: &PairInNetwork) -> u64 {
    let wan = pair.network.wan();
    wan.up.counters().carried_bytes + wan.down.counters().carried_bytes
}

/// The file with a tenth of other bytes, in runs; single chunks of 1 KiB save four fifths of it.
pub(crate) fn changed(first: &[u8]) -> Vec<u8> {
    let mut second = first.to_vec();
    for (run, seed) in second.chunks_mut(10 * RUN).zip(100..) {
        let len = run.len().min(RUN);
        run[..len].copy_from_slice(&data::random(seed, len));
    }
    second
}

/// Bytes of each file.
pub(crate) const LEN: usize = 1 << 20;
const RUN: usize = 2432;
