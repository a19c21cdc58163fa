//! How much faster transfers are, by the rate of the link: the planner with one disk [Wanax §4, Figure 10].

use std::collections::BTreeSet;
use std::time::Duration;

use oncewire_codec::wanax::shed::{Disk, Entry, Expected, Path, Planner, Source};
use oncewire_codec::wanax::{NAME_LEN, NameKey, Shape, Tree};
use oncewire_lab::driver::{DiskParams, DriverError};

use crate::table;

pub(crate) fn run(files: &[Vec<u8>]) -> Result<(), DriverError> {
    let loads: Vec<Load> = SHAPES.iter().filter_map(|shape| Some(load(shape.parse().ok()?, files))).collect();
    let bytes: u64 =
        loads.first().map_or(0, |load| load.entries.iter().map(|entry| u64::from(entry.len)).sum());
    let seek = DiskParams::default().seek;
    let notes = format!(
        "Times as fast as without gateways, {} MB behind the first file, one disk of {:.1} ms a read; in \
         brackets without load shedding. The round trip is left out, as it is of long transfers.",
        bytes / 1_000_000,
        seek.as_secs_f64() * 1e3
    );
    table::start("Effective bandwidth by the rate of the link", &notes, &[&["link"], &SHAPES[..]].concat());
    for megabits_per_s in RATES {
        let faster = loads.iter().map(|load| {
            let [shed, kept] = [true, false].map(|shed| load.times_as_fast(megabits_per_s, seek, shed));
            format!("{shed:.2} ({kept:.2})")
        });
        let cells: Vec<String> = [format!("{megabits_per_s} Mbit/s")].into_iter().chain(faster).collect();
        table::row(&cells);
    }
    Ok(())
}

/// What crosses and what is read of all files but the first.
struct Load {
    entries: Vec<Entry>,
    /// Bytes of references, which always cross.
    names: u64,
}

fn load(shape: Shape, files: &[Vec<u8>]) -> Load {
    let (mut tree, key) = (Tree::new(shape), NameKey::new([0; 32]));
    let (mut stored, mut load) = (BTreeSet::new(), Load { entries: Vec::new(), names: 0 });
    for (file, number) in files.iter().zip(0..) {
        let mut rest = &file[..];
        while !rest.is_empty() {
            let (block, behind) = rest.split_at(tree.root_end(rest, true));
            tree.grow(block);
            let tags: Vec<u64> = tree.nodes().iter().map(|node| key.tag(&block[node.range()])).collect();
            if number > 0 {
                load.add(&tree, |index| stored.contains(&tags[index]));
            }
            stored.extend(tags);
            rest = behind;
        }
    }
    load
}

impl Load {
    /// Adds the chunks of a block, the largest that are known.
    fn add(&mut self, tree: &Tree, is_known: impl Fn(usize) -> bool) {
        tree.walk(|index, node| {
            let is_leaf = node.next as usize == index + 1;
            match is_known(index) && u64::from(node.len) > ENTRY_LEN {
                true => {
                    self.names += ENTRY_LEN;
                    self.push(node.len, Source::Disk(0));
                    false
                }
                false if is_leaf => {
                    self.push(node.len, Source::Far);
                    false
                }
                false => true,
            }
        });
    }

    /// Adds a chunk that takes a read of its own, if any.
    fn push(&mut self, len: u32, source: Source) {
        let read = self.entries.len() as u64;
        self.entries.push(Entry { len, source, read });
    }

    fn times_as_fast(&self, megabits_per_s: u64, seek: Duration, shed: bool) -> f64 {
        let disks = [Disk { queued: 0, service_time: seek }];
        let bytes_per_s = megabits_per_s * 125_000;
        let path = Path { round_trip: Duration::ZERO, bytes_per_s, pending: self.names };
        let mut planner = Planner::default();
        let kept: Vec<Source> = self.entries.iter().map(|entry| entry.source).collect();
        let sources = if shed { planner.plan(&self.entries, &disks, &path) } else { &kept };
        let took = Expected::of(&self.entries, sources, &disks, &path).complete().as_secs_f64();
        let bytes: u64 = self.entries.iter().map(|entry| u64::from(entry.len)).sum();
        bytes as f64 / bytes_per_s as f64 / took
    }
}

const SHAPES: [&str; 5] = ["mrc:8:128", "src:128", "src:1024", "src:8192", "src:65536"];
const RATES: [u64; 12] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000];
/// The bytes of a reference in a block: name, gap, length and level.
const ENTRY_LEN: u64 = NAME_LEN as u64 + 4;
