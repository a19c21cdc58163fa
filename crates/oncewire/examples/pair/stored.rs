//! Stored noise again, over links faster than many a disk, with and without load shedding.

use std::time::{Duration, Instant};

use crate::common::data;
use crate::common::origin::{Origin, Request};
use crate::common::pair::{Options, Pair};
use crate::common::wait::{LIMIT, eventually};

/// The content, and the links.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Millions of random bytes.
    #[arg(long, default_value_t = 500)]
    mb: usize,
    /// How often they come again.
    #[arg(long, default_value_t = 2)]
    again: usize,
    /// Mbit/s of the links; 0 is the loopback interface itself.
    #[arg(long, value_delimiter = ',', default_value = "0,200")]
    mbit_per_s: Vec<u64>,
    /// The duration of a read from a modelled disk, in milliseconds; the machine's disk if not given.
    #[arg(long)]
    read_ms: Option<u64>,
    /// One way alone: `true` or `false`.
    #[arg(long)]
    shed: Option<bool>,
}

pub(crate) fn run(arguments: &Arguments) {
    println!(
        "| link | shedding | | saved | Mbit/s | read | shed | late | us a read |\n|---|---|---|---|---|---|---|---|---|"
    );
    for &rate in &arguments.mbit_per_s {
        for shed in [false, true].into_iter().filter(|shed| arguments.shed.is_none_or(|only| only == *shed)) {
            measure(arguments, rate, shed);
        }
    }
    println!("\nBytes saved by what `status` counts, headers of TLS included. Every byte was right.");
}

fn measure(arguments: &Arguments, mbit_per_s: u64, shed: bool) {
    let origin = Origin::server();
    let file = Request { seed: 1, len: arguments.mb * 1_000_000 };
    let disk = arguments.read_ms.map(|ms| format!("store_read_latency = \"{ms} ms\"\n")).unwrap_or_default();
    let mut options = Options::to(origin.address()).without_adapting().with(&format!(
        "[cache]\nmemory = \"768 MiB\"\nlog_memory = \"1 MiB\"\nstore_disk = \"2 GiB\"\n{disk}[link]\nshed = {shed}\n"
    ));
    options.straight = mbit_per_s == 0;
    options.rate_bytes_per_s = (mbit_per_s > 0).then_some(mbit_per_s * 125_000);
    let pair = Pair::start_with(&crate::binary(), &options);
    let expected = file.answer();
    let link = if mbit_per_s == 0 { "loopback".to_owned() } else { format!("{mbit_per_s} Mbit/s") };
    for time in 0..=arguments.again {
        let before = pair.branch.peer();
        let start = Instant::now();
        let got = file.fetch(pair.forward()).unwrap();
        let rate = got.len() as f64 * 8e-6 / start.elapsed().as_secs_f64();
        data::assert_same(&got, &expected, "what was stored");
        let after = settled(&pair);
        let store = &pair.branch.ask("status").unwrap()["store"];
        let count = |key: &str| {
            let of = |peer: &serde_json::Value| peer["in"]["names"][key].as_u64().unwrap_or_default();
            of(&after) - of(&before)
        };
        let wire = after["wire"].as_u64().unwrap() - before["wire"].as_u64().unwrap();
        let saved = 100.0 * (1.0 - wire as f64 / got.len() as f64);
        let turn = if time == 0 { "first" } else { "again" };
        println!(
            "| {link} | {} | {turn} | {saved:.2} % | {rate:.0} | {} | {} | {} | {} |",
            if shed { "on" } else { "off" },
            count("found"),
            count("shed"),
            count("late"),
            store["service_time_us"]
        );
    }
}

/// The branch's status of the hub once nothing moves any more and all received content is stored.
fn settled(pair: &Pair) -> serde_json::Value {
    let (mut last, mut still) = (0, 0);
    eventually("the link falls silent", LIMIT.max(Duration::from_secs(60)), || {
        let status = pair.branch.ask("status")?;
        let wire = status["peers"][0]["wire"].as_u64()?;
        still = if wire == last { still + 1 } else { 0 };
        last = wire;
        let stored = status["store"]["waiting_bytes"] == 0;
        (still >= 20 && stored).then(|| status["peers"][0].clone())
    })
}
