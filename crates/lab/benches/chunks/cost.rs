//! The cost of cutting and naming [Wanax Fig. 11].

use std::hint::black_box;

use oncewire_codec::wanax::{NameKey, Shape, Tree};
use oncewire_fingerprint::{Markers, ModpRabin};
use oncewire_lab::cpu::Stopwatch;

use crate::series::Series;
use crate::table::{self, median, times};

pub(crate) fn run(series: &[Series]) {
    for series in series {
        let sample = series.sample(SAMPLE);
        table::start(
            &format!("Microseconds for 64 KiB: {} [Wanax Fig. 11]", series.name),
            "Thread CPU time, medians of rounds that take turns. Root: where a block ends. Cut: candidates, ranks and \
             tree. Tags and digests: of all chunks of all levels; digests are computed of few of them in use. Rabin: one \
             pass of the paper's fingerprint over the same bytes.",
            &[
                "shape",
                "root",
                "cut",
                "tags",
                "digests",
                "Rabin",
                "Rabin ÷ (root + cut + tags)",
                "digests ÷ tags",
            ],
        );
        for shape in SHAPES {
            if let Ok(shape) = shape.parse() {
                row(shape, &sample);
            }
        }
    }
}

fn row(shape: Shape, sample: &[u8]) {
    let (mut tree, key, rabin) = (Tree::new(shape), NameKey::new([1; 32]), ModpRabin::new(64, 48));
    let mut rounds: [Vec<f64>; 5] = Default::default();
    let mut markers = Vec::new();
    for _ in 0..ROUNDS {
        let mut watches = [Stopwatch::default(); 5];
        let [root, cut, tags, digests, passes] = &mut watches;
        let mut rest = sample;
        while !rest.is_empty() {
            let (block, behind) = rest.split_at(root.time(|| tree.root_end(rest, true)));
            let nodes = cut.time(|| tree.grow(block));
            let chunks = || nodes.iter().map(|node| &block[node.range()]);
            tags.time(|| chunks().for_each(|chunk| _ = black_box(key.tag(chunk))));
            digests.time(|| chunks().for_each(|chunk| _ = black_box(key.name_tagged(0, chunk))));
            markers.clear();
            passes.time(|| rabin.select(block, 0..block.len(), &mut markers));
            rest = behind;
        }
        let blocks = sample.len() as f64 / 65536.0;
        for (watch, times) in watches.iter().zip(&mut rounds) {
            times.push(watch.spent().as_secs_f64() * 1e6 / blocks);
        }
    }
    let [root, cut, tags, digests, rabin] = rounds.map(median);
    let mut cells = vec![shape.to_string()];
    cells.extend([root, cut, tags, digests, rabin].map(|micros| format!("{micros:.1}")));
    cells.extend([times(rabin / (root + cut + tags)), times(digests / tags)]);
    table::row(&cells);
}

const SHAPES: [&str; 8] =
    ["mrc:8:128", "mrc:8:1024", "mrc:8:8192", "mrc:4:64", "mrc:2:32", "src:128", "src:1024", "src:65536"];

/// As long as the paper's file.
const SAMPLE: usize = 10_000_000;

const ROUNDS: usize = 9;
