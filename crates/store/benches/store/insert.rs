//! How fast blocks are taken, and how much is written for them.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use oncewire_store::{Backend, Directory, IndexMemory, Inserted, Options, Part, Sealer, Store};

use crate::content::{BLOCK, fill, tree};
use crate::cpu_time;
use crate::nothing::Nothing;

/// How the levels of a tree are stored.
#[derive(Clone, Copy, PartialEq)]
enum Layout {
    /// Inside their block, as the store does.
    Inside,
    /// The same, encrypted.
    Sealed,
    /// Each chunk for itself, as in the paper.
    Apart,
}

/// Inserts so many megabytes in each layout and shape, to files and to nothing.
pub(crate) fn run(megabytes: u64) {
    println!("\n{megabytes} MB of new blocks of 64 KiB (ratio of bytes written, MB/s of delivered bytes)\n");
    println!("a plain file, 1 MiB at once, synced every 64 MiB: {:.0} MB/s\n", plain(megabytes));
    println!("| levels | layout | chunks | written | to files | to nothing, CPU |");
    println!("|---|---|---:|---:|---:|---:|");
    for (name, sizes) in [
        ("64 KiB", &[][..]),
        ("64 KiB, 8 KiB", &[8192]),
        ("64 KiB, 8 KiB, 1 KiB", &[8192, 1024]),
        ("64 KiB, 8 KiB, 1 KiB, 128 B", &[8192, 1024, 128]),
    ] {
        for layout in [Layout::Inside, Layout::Sealed, Layout::Apart] {
            if sizes.is_empty() && layout == Layout::Apart {
                continue;
            }
            row(name, sizes, layout, megabytes);
        }
    }
}

fn row(name: &str, sizes: &[usize], layout: Layout, megabytes: u64) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let blocks = megabytes * 1_000_000 / BLOCK as u64;
    let delivered = (blocks * BLOCK as u64) as f64;
    let (wall, _, _) = insert(Arc::new(Directory::open(dir.path()).unwrap()), blocks, sizes, layout);
    let (_, cpu, written) = insert(Arc::new(Nothing), blocks, sizes, layout);
    let mut parts = Vec::new();
    tree(0, sizes, &mut parts);
    println!(
        "| {name} | {} | {} | {:.3} | {:.0} | {:.0} |",
        match layout {
            Layout::Inside => "inside the block",
            Layout::Sealed => "the same, encrypted",
            Layout::Apart => "apart",
        },
        parts.len(),
        written as f64 / delivered,
        delivered / wall / 1e6,
        delivered / cpu / 1e6,
    );
}

/// Returns the speed of plain writes to a file.
fn plain(megabytes: u64) -> f64 {
    let mut file = tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut block = vec![0; BLOCK];
    let mut wall = 0.0;
    for group in 0..megabytes * 1_000_000 / (1 << 20) {
        fill(group, &mut block);
        let bytes = block.repeat(16);
        let begun = Instant::now();
        file.write_all(&bytes).unwrap();
        if group % 64 == 63 {
            file.sync_data().unwrap();
        }
        wall += begun.elapsed().as_secs_f64();
    }
    let begun = Instant::now();
    file.sync_data().unwrap();
    megabytes as f64 / (wall + begun.elapsed().as_secs_f64())
}

fn sealer() -> Sealer {
    let salts = AtomicU64::new(0);
    Sealer::new(&[1; 32], move || Ok(u128::from(salts.fetch_add(1, Ordering::Relaxed)).to_le_bytes()))
}

/// Returns elapsed seconds, seconds of CPU, and bytes written.
fn insert(backend: Arc<dyn Backend>, blocks: u64, sizes: &[usize], layout: Layout) -> (f64, f64, u64) {
    let options = Options {
        capacity: 64 << 30,
        segment_bytes: 64 << 20,
        index: IndexMemory { coarse: 64 << 20, medium: 64 << 20, fine: 64 << 20 },
        id: 1,
        sealer: (layout == Layout::Sealed).then(|| Arc::new(sealer())),
        at_rest: false,
    };
    let (store, _) = Store::open(backend, &options).unwrap();
    let (mut block, mut parts) = (vec![0; BLOCK], Vec::new());
    let (mut wall, mut cpu) = (0.0, 0.0);
    for number in 0..blocks {
        fill(number, &mut block);
        tree(number, sizes, &mut parts);
        let (begun, begun_cpu) = (Instant::now(), cpu_time());
        match layout {
            Layout::Inside | Layout::Sealed => {
                assert!(matches!(store.insert(&block, &parts, 0), Inserted::Stored { .. }))
            }
            Layout::Apart => parts.iter().for_each(|part| {
                let (start, end) = (part.start as usize, (part.start + part.len) as usize);
                store.insert(&block[start..end], &[Part { start: 0, ..*part }], 0);
            }),
        }
        wall += begun.elapsed().as_secs_f64();
        cpu += (cpu_time() - begun_cpu).as_secs_f64();
    }
    let begun = Instant::now();
    store.sync().unwrap();
    wall += begun.elapsed().as_secs_f64();
    (wall, cpu, store.counts().written_bytes)
}
