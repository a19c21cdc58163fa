//! Bytes on the line for a file known to a neighbour, or from another hub.

use crate::common::data;
use crate::common::site::{Plan, Seat, Site};

use super::{all, fetch, line, median, serve};

/// The receiver of the second transfer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Second {
    /// Another gateway of the site, without a common group.
    Stranger,
    /// Another gateway of the site.
    Neighbour,
    /// The same gateway, from behind another hub.
    Hub,
    /// Another gateway of the site, from behind another hub.
    NeighbourAndHub,
}

struct Case {
    second: Second,
    len: usize,
    edited: bool,
}

/// The cost of one case: bytes up and down the line for both transfers, and announced chunks.
#[derive(Clone, Copy)]
struct Cost {
    first: [u64; 2],
    second: [u64; 2],
    announced: u64,
}

pub(super) fn run(arguments: &super::Arguments) {
    let cases = cases();
    let jobs: Vec<(usize, u64)> =
        (0..arguments.runs).flat_map(|seed| (0..cases.len()).map(move |at| (at, seed))).collect();
    let costs = all(&jobs, arguments.at_once, |(at, seed)| (*at, measure(&cases[*at], *seed)));
    println!("| fetched again | file | first: down | up | chunks told of | again: down | up |");
    println!("|---|---|---:|---:|---:|---:|---:|");
    for (at, case) in cases.iter().enumerate() {
        let runs: Vec<Cost> =
            costs.iter().filter(|(of, _)| *of == at).filter_map(|(_, cost)| *cost).collect();
        if !runs.is_empty() {
            println!("| {} |", row(case, &runs));
        }
    }
    println!(
        "\nkB on the line, packets' headers included; random bytes; edited: 40 bytes in each 100 kB. Medians of {} runs, \
         in brackets the least and the most.\n",
        arguments.runs
    );
}

fn cases() -> Vec<Case> {
    let lens = [1_000_000, 10_000_000];
    let strangers = lens.map(|len| Case { second: Second::Stranger, len, edited: false });
    let case = |second| {
        let edits = lens.into_iter().flat_map(|len| [(len, false), (len, true)]);
        edits.map(move |(len, edited)| Case { second, len, edited })
    };
    strangers
        .into_iter()
        .chain(case(Second::Neighbour))
        .chain(case(Second::Hub))
        .chain(case(Second::NeighbourAndHub))
        .collect()
}

/// `None`, with the reason printed, without a network.
fn measure(case: &Case, seed: u64) -> Option<Cost> {
    let all = "[codec]\ncodec = \"wanax\"\nentropy = \"none\"\nadapt = false\n[link]\ndead_after = \"60 s\"\n\
               [cache]\nmemory = \"512 MiB\"\nlog_memory = \"256 KiB\"\nstore_disk = \"1 GiB\"\n";
    let (members, hubs) = match case.second {
        Second::Stranger | Second::Neighbour => (2, 1),
        Second::Hub => (1, 2),
        Second::NeighbourAndHub => (2, 2),
    };
    let grouped = case.second != Second::Stranger;
    let plan = Plan { line: line(20_000_000, 40), members, hubs, grouped, all: all.into() };
    let site = Site::start(&crate::binary(), &plan)?;
    let first = data::random(1000 + seed, case.len);
    let second = if case.edited { edited(&first) } else { first.clone() };
    let files = vec![first, second];
    let _origins: Vec<_> = (0..hubs).map(|hub| serve(&site, hub, files.clone())).collect();
    let transfer = |member, hub, number: u8| {
        let stream = site.connect(Some(member), hub);
        let before = site.crossed();
        let (got, _) = fetch(stream, number);
        data::assert_same(&got, &files[usize::from(number)], "a file");
        // All of the first is new to everybody.
        if grouped && number == 0 {
            site.wait_told(member);
        }
        let after = site.crossed();
        [after[0] - before[0], after[1] - before[1]]
    };
    let at_first = transfer(0, 0, 0);
    let announced = site.group(Seat::Member(0), "announced").unwrap_or_default();
    let at_second = transfer(members - 1, hubs - 1, 1);
    Some(Cost { first: at_first, second: at_second, announced })
}

fn row(case: &Case, runs: &[Cost]) -> String {
    let kb = |figure: fn(&Cost) -> u64| {
        let mut all: Vec<u64> = runs.iter().map(figure).collect();
        all.sort_unstable();
        let shown = |bytes: u64| format!("{:.1}", bytes as f64 / 1e3);
        match all[..] {
            [least, .., most] => format!("{} ({} to {})", shown(median(all)), shown(least), shown(most)),
            _ => shown(median(all)),
        }
    };
    let receiver = match case.second {
        Second::Stranger => "by another gateway, no group",
        Second::Neighbour => "by a neighbour",
        Second::Hub => "from behind another hub",
        Second::NeighbourAndHub => "by a neighbour, from behind another hub",
    };
    let file = format!("{} MB{}", case.len / 1_000_000, if case.edited { ", edited" } else { "" });
    let [first_up, first_down] = [kb(|cost| cost.first[0]), kb(|cost| cost.first[1])];
    let [second_up, second_down] = [kb(|cost| cost.second[0]), kb(|cost| cost.second[1])];
    let announced = median(runs.iter().map(|cost| cost.announced).collect());
    format!("{receiver} | {file} | {first_down} | {first_up} | {announced} | {second_down} | {second_up}")
}

/// Changes 40 bytes of each 100 kB.
fn edited(data: &[u8]) -> Vec<u8> {
    let mut edited = data.to_vec();
    edited.chunks_mut(100_000).for_each(|part| part[50_000..50_040].fill(7));
    edited
}
