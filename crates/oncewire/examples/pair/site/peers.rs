//! Three files with one to three gateways at the site, over a slow line or from slow disks [Wanax Fig. 12, 13].

use oncewire_testnet::LinkParams;

use crate::common::data;
use crate::common::site::{Plan, Seat, Site};
use crate::common::wait::{LIMIT, eventually};
use crate::shed::{LEN, changed};

use super::{all, fetch, line, median, serve};

/// The place of the transfers.
struct Setting {
    ways: Vec<Way>,
    line: LinkParams,
    files: [Vec<u8>; 2],
}

/// A way to fetch the files.
struct Way {
    /// The duration of a read from the modelled disks; `None`: the machine's own disk.
    read_ms: Option<u64>,
    /// `None`: without gateways.
    codec: Option<&'static str>,
    shed: bool,
    members: usize,
    /// Whether the second time is by another gateway than the first, and the second file by the last one.
    spread: bool,
}

/// The cost of fetching one file.
#[derive(Clone, Copy)]
struct Cost {
    /// Bytes on the line, both ways.
    wire: u64,
    mbit_per_s: f64,
    chunks: Chunks,
    /// Bytes of chunks between the gateways, given to keep or on request.
    given: u64,
}

/// Chunks named for a file, by origin.
#[derive(Clone, Copy)]
struct Chunks {
    own: u64,
    neighbours: u64,
    far: u64,
}

/// A line slower than the disks.
pub(super) fn run(arguments: &super::Arguments) {
    let first = data::random(1, LEN);
    let files = [first.clone(), changed(&first)];
    compare(&Setting { ways: ways(), line: line(512_000, 200), files }, arguments);
}

/// Disks slower than the line, and faster ones.
pub(super) fn run_disks(arguments: &super::Arguments) {
    let first = data::random(1, 4 * LEN);
    let files = [first.clone(), changed(&first)];
    compare(&Setting { ways: ways_of_disks(), line: line(10_000_000, 200), files }, arguments);
}

fn compare(setting: &Setting, arguments: &super::Arguments) {
    let ways = &setting.ways;
    let jobs: Vec<usize> = (0..arguments.runs).flat_map(|_| 0..ways.len()).collect();
    let costs = all(&jobs, arguments.at_once, |way| (*way, measure(setting, &ways[*way])));
    println!(
        "| codec | a read | gateways | clients | shedding | first | again | its chunks | second | its chunks | given |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    for (at, way) in ways.iter().enumerate() {
        let runs = costs.iter().filter(|(of, _)| *of == at).filter_map(|(_, costs)| *costs);
        let runs: Vec<[Cost; 3]> = runs.collect();
        if !runs.is_empty() {
            println!("| {} |", row(way, &runs));
        }
    }
    println!(
        "\nkB on the line both ways, packets' headers included, and Mbit/s from the request to the last byte, for {} \
         bytes. Chunks that were named: from the own disk + from neighbours + from the far side. Given: kB \
         of chunks that gateways of the site gave each other for each of the three. Medians of {} runs.\n",
        setting.files[0].len(),
        arguments.runs
    );
}

fn ways() -> Vec<Way> {
    let read_ms = Some(8);
    let mut ways = vec![Way { read_ms, codec: None, shed: false, members: 1, spread: false }];
    for (codec, shed) in [("wanax", false), ("wanax", true), ("auto", true)] {
        for (members, spread) in [(1, false), (2, false), (3, false), (2, true), (3, true)] {
            // One entry point shows the sum of disks without shedding.
            if shed || !spread {
                ways.push(Way { read_ms, codec: Some(codec), shed, members, spread });
            }
        }
    }
    ways
}

fn ways_of_disks() -> Vec<Way> {
    let mut ways = vec![Way { read_ms: None, codec: None, shed: false, members: 1, spread: false }];
    for (read_ms, shed) in [(Some(30), true), (Some(30), false), (None, true)] {
        for (members, spread) in [(1, false), (2, false), (3, false), (2, true), (3, true)] {
            ways.push(Way { read_ms, codec: Some("wanax"), shed, members, spread });
        }
    }
    ways
}

/// Fetches the files one way; `None`, with the reason printed, without a network.
fn measure(setting: &Setting, way: &Way) -> Option<[Cost; 3]> {
    let Setting { line, files, .. } = setting;
    let Way { shed, members, .. } = *way;
    let disk = way.read_ms.map(|ms| format!("store_read_latency = \"{ms} ms\"\n")).unwrap_or_default();
    let codec = way.codec.unwrap_or("none");
    let all = format!(
        "[codec]\ncodec = \"{codec}\"\nentropy = \"none\"\nadapt = false\n[link]\nshed = {shed}\ndead_after = \"60 s\"\n\
         [cache]\nmemory = \"512 MiB\"\nlog_memory = \"256 KiB\"\nstore_disk = \"1 GiB\"\n\
         {disk}"
    );
    let plan = Plan { line: line.clone(), members, hubs: 1, grouped: true, all };
    let mut site = Site::start(&crate::binary(), &plan)?;
    let _origin = serve(&site, 0, files.to_vec());
    let [again, second] = if way.spread { [1, members - 1] } else { [0, 0] };
    Some([(0, 0), (again, 0), (second, 1)].map(|(member, number)| {
        let mut cost = fetched(&site, way, member, number, &files[usize::from(number)]);
        if way.codec.is_some() {
            cost.given = wait_quiet(&site, members);
            restart(&mut site, members);
        }
        cost
    }))
}

fn fetched(site: &Site, way: &Way, member: usize, number: u8, expected: &[u8]) -> Cost {
    let stream = site.connect(way.codec.map(|_| member), 0);
    let before: u64 = site.crossed().iter().sum();
    let (got, time) = fetch(stream, number);
    let wire = site.crossed().iter().sum::<u64>() - before;
    data::assert_same(&got, expected, "a file");
    let mbit_per_s = got.len() as f64 * 8e-6 / time.as_secs_f64();
    Cost { wire, mbit_per_s, chunks: chunks(site, member), given: 0 }
}

/// The origins of a gateway's chunks since its start.
fn chunks(site: &Site, member: usize) -> Chunks {
    let status = site.status(Seat::Member(member)).unwrap();
    let hub = status["peers"].as_array().unwrap().iter().find(|peer| peer["name"] == "hub").unwrap();
    let names = |key: &str| hub["in"]["names"][key].as_u64().unwrap_or_default();
    let neighbours = status["groups"][0]["found"].as_u64().unwrap_or_default();
    let (named, found) = (names("chunks"), names("found"));
    Chunks { own: found.saturating_sub(neighbours), neighbours, far: named - found }
}

/// Waits until the gateways have stored all content, and exchange nothing more; returns the bytes of chunks between
/// them since their start.
fn wait_quiet(site: &Site, members: usize) -> u64 {
    let (mut last, mut still) = (Vec::new(), 0);
    eventually("the site falls silent", LIMIT, || {
        let statuses: Option<Vec<_>> = (0..members).map(|at| site.status(Seat::Member(at))).collect();
        let mut statuses = statuses?;
        let stored = statuses.iter().all(|status| status["store"]["waiting_bytes"] == 0);
        let groups: Vec<_> = statuses.iter_mut().map(|status| status["groups"].take()).collect();
        still = if stored && groups == last { still + 1 } else { 0 };
        last = groups;
        (still == QUIET_LOOKS).then(|| last.iter().map(given).sum())
    })
}

/// Bytes of chunks given by neighbours to one gateway on request, and by it to them to keep.
fn given(groups: &serde_json::Value) -> u64 {
    let count = |key: &str| groups[0][key].as_u64().unwrap_or_default();
    count("found_bytes") + count("given_bytes")
}

/// Ends all gateways of the site in order and starts them again: recently stored content is otherwise in their
/// memory.
fn restart(site: &mut Site, members: usize) {
    let seats = || (0..members).map(Seat::Member);
    seats().for_each(|seat| site.gateway(seat).terminate());
    for seat in seats() {
        site.gateway_mut(seat).wait(LIMIT);
        site.launch(seat);
    }
    site.wait_until_met();
}

fn row(way: &Way, runs: &[[Cost; 3]]) -> String {
    let of =
        |file: usize, figure: fn(&Cost) -> f64| median(runs.iter().map(|run| figure(&run[file])).collect());
    let cost = |file| {
        format!("{:.0}, {:.2}", of(file, |cost| cost.wire as f64 / 1e3), of(file, |cost| cost.mbit_per_s))
    };
    let chunks = |file| {
        let from: [fn(&Cost) -> f64; 3] = [
            |cost| cost.chunks.own as f64,
            |cost| cost.chunks.neighbours as f64,
            |cost| cost.chunks.far as f64,
        ];
        from.map(|figure| format!("{:.0}", of(file, figure))).join(" + ")
    };
    let Some(codec) = way.codec else {
        return format!("no gateways | | | | | {} | {} | | {} | |", cost(0), cost(1), cost(2));
    };
    let (clients, shed) = (if way.spread { "spread" } else { "at one" }, if way.shed { "on" } else { "off" });
    let Way { members, .. } = way;
    let read = way.read_ms.map_or(String::new(), |ms| format!("{ms} ms"));
    let (again, second) = (chunks(1), chunks(2));
    let [a, b, c] = [0, 1, 2].map(cost);
    let given = [0, 1, 2].map(|file| format!("{:.0}", of(file, |cost| cost.given as f64 / 1e3))).join(" + ");
    format!(
        "{codec} | {read} | {members} | {clients} | {shed} | {a} | {b} | {again} | {c} | {second} | {given}"
    )
}

/// A look takes longer than 10 ms, and news is gathered for 100 ms.
const QUIET_LOOKS: usize = 20;
