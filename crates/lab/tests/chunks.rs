//! The finds of single-size and multi-resolution chunks, to the byte.
//!
//! `chunks.tsv` is the reviewed answer; a change of the cut shows there. `ONCEWIRE_UPDATE=1 cargo test -p
//! oncewire-lab` writes it anew.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test that reads files")]

use std::fmt::Write as _;
use std::path::Path;

use oncewire_codec::entropy::Entropy;
use oncewire_codec::wanax::Shape;
use oncewire_codec::wire::MAX_BLOCK;
use oncewire_codec::{Layers, Plan};
use oncewire_lab::chunks::{Analysis, Tally};
use oncewire_lab::corpus::Corpus;
use oncewire_lab::measure::Measurement;
use oncewire_lab::pair::PairConfig;

mod reviewed;

use reviewed::assert_reviewed;

/// Streams in the order of sending; the first counts only if it is alone.
struct Series {
    name: &'static str,
    streams: Vec<Vec<u8>>,
}

#[test]
fn chunks_found_equal_the_reviewed_ones() {
    let mut table = String::from(
        "series\tshape\tdelivered\tblocks\tideal\tsaved\tshort\tmissed\treads\tsmallest\tentries\tsmall\tlarge\tstored\n",
    );
    for series in series() {
        for shape in SHAPES {
            let tally = analyse(&series, shape);
            let counts = [
                tally.delivered,
                tally.blocks,
                tally.ideal(),
                tally.saved,
                tally.saved_short,
                tally.missed,
                tally.reads(),
                tally.smallest_found,
                tally.entries,
                tally.entries_small,
                tally.entries_large,
                tally.stored,
            ];
            let counts: Vec<String> = counts.iter().map(u64::to_string).collect();
            writeln!(table, "{}\t{shape}\t{}", series.name, counts.join("\t")).unwrap();
        }
    }
    assert_reviewed("chunks.tsv", &table);
}

/// [Wanax Fig. 6]: with names counted, one size loses the gain of small chunks, several sizes keep it.
#[test]
fn several_sizes_save_nearly_everything_and_one_size_does_not() {
    for series in series().into_iter().filter(|series| series.streams.len() > 1) {
        for (tree, single) in [("mrc:2:32", "src:32"), ("mrc:4:64", "src:64"), ("mrc:8:128", "src:128")] {
            let (tree, single) = (analyse(&series, tree), analyse(&series, single));
            let share = |tally: &Tally| tally.actual_share() / tally.ideal_share();
            assert!(share(&tree) >= 0.97, "{}: {:.4} of what there is", series.name, share(&tree));
            assert!(tree.short_share() > tree.actual_share(), "{}: {tree:?}", series.name);
            assert!(share(&single) < 0.87, "{}: {:.4} of what there is", series.name, share(&single));
            assert!(tree.reads() * 5 < single.reads(), "{}: {tree:?} {single:?}", series.name);
        }
    }
}

/// [Wanax Table 1]: chunks made of the smallest ones cost their reads, chunks found in their roots the roots' entries.
#[test]
fn chunks_stored_singly_need_fewest_reads_and_entries() {
    for series in series().into_iter().filter(|series| series.streams.len() > 1) {
        let tally = analyse(&series, "mrc:8:128");
        assert!(tally.reads() * 5 < tally.smallest_found, "{}: {tally:?}", series.name);
        assert!(tally.entries < tally.entries_large, "{}: {tally:?}", series.name);
        assert!(tally.entries < tally.entries_small, "{}: {tally:?}", series.name);
    }
}

#[test]
fn repeated_file_is_found_whole_by_one_read_a_block() {
    let stream = Corpus::new(SEED).random(300_000);
    let mut analysis = Analysis::new(Shape::default());
    analysis.stream(&stream);
    analysis.recount();
    analysis.stream(&stream);
    let tally = analysis.finish();
    assert_eq!((tally.ideal(), tally.delivered, tally.missed), (300_000, 300_000, 0));
    assert_eq!((tally.reads(), tally.found[0]), (tally.blocks, (tally.blocks, 300_000)));
    assert_eq!(tally.saved, 300_000 - 24 * tally.blocks);
}

#[test]
fn new_content_is_one_miss_a_block() {
    let mut analysis = Analysis::new(Shape::default());
    analysis.stream(&Corpus::new(SEED).random(300_000));
    let tally = analysis.finish();
    assert_eq!((tally.ideal(), tally.missed), (0, tally.blocks));
}

/// The simulator's credit for short names equals their savings between two halves of the codec, up to the frames and
/// acknowledgements of each block.
#[test]
fn short_names_save_as_predicted() {
    for series in series().into_iter().filter(|series| series.streams.len() > 1) {
        for shape in ["mrc:8:128", "mrc:4:64", "mrc:2:32", "src:128"] {
            let mut measurement = Measurement::new(PairConfig {
                plan: Some(Plan { layers: Layers::Names, entropy: Entropy::None, ..Plan::default() }),
                store: Some(shape.parse().unwrap()),
                log_memory: 1 << 20,
                // Each block is acknowledged before the next.
                max_in_flight: MAX_BLOCK as u64,
                ..PairConfig::default()
            });
            for stream in &series.streams {
                measurement.send(Path::new(series.name), &stream[..], |_| ()).unwrap();
            }
            let crossed: u64 = measurement.finish().files[1..].iter().map(|file| file.wire).sum();
            let tally = analyse(&series, shape);
            let frames = (crossed + tally.saved_short).checked_sub(tally.delivered).unwrap() / tally.blocks;
            assert!((20..45).contains(&frames), "{} {shape}: {frames} bytes a block: {tally:?}", series.name);
        }
    }
}

fn analyse(series: &Series, shape: &str) -> Tally {
    let mut analysis = Analysis::new(shape.parse().unwrap());
    for (number, stream) in series.streams.iter().enumerate() {
        if number == 1 {
            analysis.recount();
        }
        analysis.stream(stream);
    }
    analysis.finish()
}

fn series() -> Vec<Series> {
    let mut corpus = Corpus::new(SEED);
    let text = corpus.text(LEN);
    let records = corpus.records(LEN);
    let pages: Vec<Vec<u8>> = (0..12)
        .scan(text[..LEN / 6].to_vec(), |page, _| {
            *page = corpus.edited(page, 6);
            Some(page.clone())
        })
        .collect();
    let release = corpus.edited(&text, 60);
    let moved = [&records[LEN / 3..], &records[..LEN / 3]].concat();
    vec![
        Series { name: "pages", streams: pages },
        Series { name: "releases", streams: vec![text, release] },
        Series { name: "moved", streams: vec![records, moved] },
        Series { name: "zeros", streams: vec![vec![0; LEN / 4]] },
    ]
}

const SHAPES: [&str; 9] = [
    "mrc:8:128",
    "mrc:8:1024",
    "mrc:4:64",
    "mrc:2:32",
    "src:32",
    "src:128",
    "src:1024",
    "src:8192",
    "src:65536",
];

const SEED: u64 = 1;
const LEN: usize = 600_000;
