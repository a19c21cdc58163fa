//! Savings, reads and index entries of single-size and multi-resolution chunks [Wanax §4].

use std::collections::BTreeMap;

use oncewire_codec::wanax::Shape;
use oncewire_lab::chunks::Tally;

use crate::series::Series;
use crate::table::{self, percent};

pub(crate) fn run(series: &[Series]) {
    for series in series {
        let results = Results::of(series);
        savings(series, &results);
        short_names(&results);
        as_in_the_paper(&results);
        reads(&results);
        entries(&results);
        levels(&results);
    }
}

/// The result of each scheme, by degree (1 for a single size) and smallest size.
struct Results(BTreeMap<(usize, usize), Tally>);

impl Results {
    fn of(series: &Series) -> Self {
        let single = SIZES.map(|size| ((1, size), Shape::single(size)));
        let trees = DEGREES
            .into_iter()
            .flat_map(|degree| SIZES.map(|leaf| ((degree, leaf), Shape::tree(degree, leaf))));
        let shapes = single.into_iter().chain(trees);
        Self(shapes.filter_map(|(scheme, shape)| Some((scheme, series.analyse(shape.ok()?)))).collect())
    }

    /// Formats a scheme's result by `of`, or nothing if the degree does not lead to this size.
    fn cell(&self, degree: usize, leaf: usize, of: impl Fn(&Tally) -> String) -> String {
        self.0.get(&(degree, leaf)).map(of).unwrap_or_default()
    }
}

fn savings(series: &Series, results: &Results) {
    table::start(
        &format!("Savings: {} [Wanax Fig. 6]", series.name),
        &format!(
            "{} Ideal: all chunks found, as if references cost nothing. Actual: 24 bytes a reference. Share: actual of \
             ideal.",
            series.describe()
        ),
        &[
            "smallest chunk",
            "SRC ideal",
            "SRC actual",
            "share",
            "MRC 2 ideal",
            "actual",
            "share",
            "MRC 4 actual",
            "share",
            "MRC 8 actual",
            "share",
        ],
    );
    let actual = |tally: &Tally| percent(tally.actual_share());
    let ideal = |tally: &Tally| percent(tally.ideal_share());
    let share = |tally: &Tally| percent(tally.actual_share() / tally.ideal_share());
    for leaf in SIZES {
        table::row(&[
            size(leaf),
            results.cell(1, leaf, ideal),
            results.cell(1, leaf, actual),
            results.cell(1, leaf, share),
            results.cell(2, leaf, ideal),
            results.cell(2, leaf, actual),
            results.cell(2, leaf, share),
            results.cell(4, leaf, actual),
            results.cell(4, leaf, share),
            results.cell(8, leaf, actual),
            results.cell(8, leaf, share),
        ]);
    }
}

fn short_names(results: &Results) {
    table::start(
        "Savings with short names",
        "As between two gateways without an entropy stage, without frames: short names of chunks below 16 KiB, 8 bytes for \
         a block that has any, and what is below 18 bytes, or finds none of 1,024 names left, or lies in a block below 512 \
         bytes, is sent.",
        &[
            "smallest chunk",
            "SRC actual",
            "share",
            "MRC 2 actual",
            "share",
            "MRC 4 actual",
            "share",
            "MRC 8 actual",
            "share",
        ],
    );
    let actual = |tally: &Tally| percent(tally.short_share());
    let share = |tally: &Tally| percent(tally.short_share() / tally.ideal_share());
    for leaf in SIZES {
        let cells = [1, 2, 4, 8]
            .map(|degree| [results.cell(degree, leaf, actual), results.cell(degree, leaf, share)]);
        table::row(&[&[size(leaf)], cells.as_flattened()].concat());
    }
}

fn as_in_the_paper(results: &Results) {
    table::start(
        "The same with the paper's names",
        "20 bytes for each chunk found, and as many for each that was missed.",
        &["smallest chunk", "SRC", "MRC 2", "MRC 4", "MRC 8"],
    );
    let paper = |tally: &Tally| percent(tally.paper_share());
    for leaf in SIZES {
        let cells = [1, 2, 4, 8].map(|degree| results.cell(degree, leaf, paper));
        table::row(&[&[size(leaf)], &cells[..]].concat());
    }
}

fn reads(results: &Results) {
    table::start(
        "Disk reads for each delivered MiB [Wanax Fig. 7]",
        "MRC-Large reads as often as MRC; MRC-Small reads the smallest chunks.",
        &["smallest chunk", "SRC", "MRC 2", "MRC 4", "MRC 8", "MRC-Small 2", "MRC-Small 8"],
    );
    let per_mib =
        |count: u64, tally: &Tally| format!("{:.1}", count as f64 / (tally.delivered as f64 / 1_048_576.0));
    let reads = |tally: &Tally| per_mib(tally.reads(), tally);
    let small = |tally: &Tally| per_mib(tally.smallest_found, tally);
    for leaf in SIZES {
        let cells = [1, 2, 4, 8].map(|degree| results.cell(degree, leaf, reads));
        let smalls = [2, 8].map(|degree| results.cell(degree, leaf, small));
        table::row(&[&[size(leaf)], &cells[..], &smalls[..]].concat());
    }
}

fn entries(results: &Results) {
    table::start(
        "Index entries needed for reading, thousands [Wanax Fig. 8]",
        "Each entry once. Those of MRC-Large have a back pointer more; all chunks that are stored have one in each scheme.",
        &[
            "smallest chunk",
            "SRC",
            "MRC 2",
            "MRC 4",
            "MRC 8",
            "MRC-Small 2",
            "MRC-Large 2",
            "stored: SRC",
            "MRC 2",
            "MRC 8",
        ],
    );
    let thousands = |count: u64| format!("{:.1}", count as f64 / 1e3);
    for leaf in SIZES {
        let cells = [1, 2, 4, 8].map(|degree| results.cell(degree, leaf, |tally| thousands(tally.entries)));
        let others = [
            results.cell(2, leaf, |tally| thousands(tally.entries_small)),
            results.cell(2, leaf, |tally| thousands(tally.entries_large)),
        ];
        let stored = [1, 2, 8].map(|degree| results.cell(degree, leaf, |tally| thousands(tally.stored)));
        table::row(&[&[size(leaf)], &cells[..], &others[..], &stored[..]].concat());
    }
}

fn levels(results: &Results) {
    let sizes: Vec<String> = SIZES.iter().rev().map(|&bytes| size(bytes)).collect();
    let mut columns = vec!["scheme"];
    columns.extend(sizes.iter().map(String::as_str));
    table::start(
        "Which sizes save [Wanax Fig. 9]",
        "Bytes of the chunks found at each size, as shares of all that was delivered.",
        &columns,
    );
    for (degree, leaf) in [(2, 32), (4, 64), (8, 128), (1, 32)] {
        let Some(tally) = results.0.get(&(degree, leaf)) else { continue };
        let shape = if degree == 1 { Shape::single(leaf) } else { Shape::tree(degree, leaf) };
        let Ok(shape) = shape else { continue };
        let mut cells = vec![shape.to_string()];
        cells.extend(SIZES.iter().rev().map(|&size| {
            let level = (0..shape.levels()).position(|level| shape.size(level) == size);
            let found = level.and_then(|level| tally.found.get(level));
            found.map(|(_, bytes)| percent(*bytes as f64 / tally.delivered as f64)).unwrap_or_default()
        }));
        table::row(&cells);
    }
}

fn size(bytes: usize) -> String {
    if bytes >= 1024 { format!("{} KiB", bytes / 1024) } else { format!("{bytes} B") }
}

const SIZES: [usize; 12] = [32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536];

const DEGREES: [usize; 3] = [2, 4, 8];
