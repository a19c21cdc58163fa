//! The cost of a transfer after a group's gateways lost their stores' content.

use std::time::Duration;

use crate::common::data;
use crate::common::lost::{empty, forget_paths};
use crate::common::site::{Plan, Seat, Site};
use crate::common::wait::LIMIT;

use super::{all, fetch, line, median, serve};

/// The gateway of the site with the emptied store. It keeps its id, and the hub its knowledge of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lost {
    Nobodys,
    /// The gateway in the file's path; its neighbour was given a part of the file.
    Own,
    All,
}

const LOST: [Lost; 3] = [Lost::Nobodys, Lost::Own, Lost::All];

/// Mbit/s and milliseconds.
const LINES: [(u64, u64); 4] = [(2, 50), (2, 200), (20, 50), (20, 200)];

#[derive(Clone, Copy)]
struct Transfer {
    time: Duration,
    /// Bytes on the line, both ways.
    wire: u64,
}

/// The measurements.
#[derive(Clone, Copy)]
struct Seen {
    cold: Transfer,
    after: Transfer,
    /// Chunks named in vain.
    absent: u64,
    again: Transfer,
}

pub(super) fn run(arguments: &super::Arguments) {
    let file = data::random(1, LEN);
    let jobs: Vec<((u64, u64), Lost)> = (0..arguments.runs)
        .flat_map(|_| LINES.into_iter().flat_map(|line| LOST.map(|lost| (line, lost))))
        .collect();
    let seen = all(&jobs, arguments.at_once, |job| (*job, measure(*job, &file)));
    let columns: String = LINES.iter().map(|(rate, rtt)| format!(" {rate} Mbit/s, {rtt} ms |")).collect();
    println!("| what was in the store of |{columns}\n|---|{}", "---|".repeat(LINES.len()));
    let row = |name: &str, cell: &dyn Fn(&[Seen]) -> String, of: &dyn Fn(Lost) -> bool| {
        let cells = LINES.map(|line| {
            let of = seen.iter().filter(|((at, lost), _)| *at == line && of(*lost));
            cell(&of.filter_map(|(_, seen)| *seen).collect::<Vec<_>>())
        });
        println!("| {name} | {} |", cells.join(" | "));
    };
    row("all: cold", &|seen| times(seen, |seen| seen.cold), &|_| true);
    for lost in LOST {
        let name = match lost {
            Lost::Nobodys => "nobody: warm",
            Lost::Own => "the gateway itself",
            Lost::All => "the gateway and its neighbour",
        };
        let cell = |seen: &[Seen]| {
            let again = median(seen.iter().map(|seen| seen.again.wire).collect());
            let absent = median(seen.iter().map(|seen| seen.absent).collect());
            format!("{}, {:.0}; {absent}", times(seen, |seen| seen.after), again as f64 / 1e3)
        };
        row(name, &cell, &|of| of == lost);
    }
    println!(
        "\nSeconds from the request to the last byte, in brackets how far runs lie apart; kB on the line both ways, packets' \
         headers included; behind a loss, kB of the same once more, and chunks that were named in vain. Two gateways of \
         one site and group, {LEN} bytes, medians of {} runs.\n",
        arguments.runs
    );
}

fn times(seen: &[Seen], of: impl Fn(&Seen) -> Transfer) -> String {
    let times: Vec<f64> = seen.iter().map(|seen| of(seen).time.as_secs_f64()).collect();
    let least = times.iter().copied().fold(f64::INFINITY, f64::min);
    let spread = times.iter().copied().fold(0.0, f64::max) - least;
    let wire = median(seen.iter().map(|seen| of(seen).wire).collect());
    format!("{:.2} ({spread:.2}), {:.0}", median(times), wire as f64 / 1e3)
}

/// Fetches the file, again after the loss, and once more; `None`, with the reason printed, without a network.
fn measure(((rate, rtt), lost): ((u64, u64), Lost), file: &[u8]) -> Option<Seen> {
    let all = "[codec]\ncodec = \"wanax\"\nadapt = false\n\
               [cache]\nmemory = \"512 MiB\"\nlog_memory = \"64 MiB\"\nhint_memory = \"1 MiB\"\nstore_disk = \"256 MiB\"\n";
    let plan =
        Plan { line: line(rate * 1_000_000, rtt), members: 2, hubs: 1, grouped: true, all: all.into() };
    let mut site = Site::start(&crate::binary(), &plan)?;
    forget_paths(&site.network);
    let _origin = serve(&site, 0, vec![file.to_vec()]);
    let transfer = |site: &Site| {
        let stream = site.connect(Some(0), 0);
        let before: u64 = site.crossed().iter().sum();
        let (got, time) = fetch(stream, 0);
        data::assert_same(&got, file, "the file");
        Transfer { time, wire: site.crossed().iter().sum::<u64>() - before }
    };
    let cold = transfer(&site);
    site.wait_told(0);
    for at in 0..plan.members {
        let seat = Seat::Member(at);
        site.gateway(seat).terminate();
        let status = site.gateway_mut(seat).wait(LIMIT);
        assert!(status.success(), "{seat:?}: {status}");
        if lost == Lost::All || lost == Lost::Own && at == 0 {
            empty(&site.state(seat));
        }
    }
    (0..plan.members).for_each(|at| site.launch(Seat::Member(at)));
    site.wait_until_met();
    let before = site.absent();
    let after = transfer(&site);
    let absent = site.absent() - before;
    Some(Seen { cold, after, absent, again: transfer(&site) })
}

const LEN: usize = 5_000_000;
