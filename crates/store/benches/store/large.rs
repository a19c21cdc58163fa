//! More content than the machine has room for.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use oncewire_store::{Backend, IndexMemory, Inserted, Options, Store};

use crate::content::{BLOCK, fill, mixed, tag, tree};
use crate::regenerating::Regenerating;
use crate::{cpu_time, forget_peak, peak, resident};

/// Puts a tenth more than so many gigabytes through a store of this capacity, and reads from it.
pub(crate) fn run(gigabytes: u64, sizes: &[usize]) {
    let capacity = gigabytes * 1_000_000_000;
    let blocks = capacity * 11 / 10 / BLOCK as u64;
    let backend = Arc::new(Regenerating::default());
    let chunks: usize = 1 + sizes.iter().map(|size| BLOCK / size).sum::<usize>();
    let large: usize =
        1 + sizes.iter().filter(|size| !is_small(**size)).map(|size| BLOCK / size).sum::<usize>();
    let coarse = capacity / BLOCK as u64 * large as u64 * 95 / 10;
    // As a gateway divides twice as much.
    let small = if sizes.iter().any(|size| is_small(*size)) { coarse / 2 } else { 64 };
    let index = IndexMemory { coarse, medium: small, fine: small };
    let options = Options { capacity, segment_bytes: 64 << 20, index, id: 1, sealer: None, at_rest: false };
    let before = resident();
    let (store, _) = Store::open(Arc::clone(&backend) as Arc<dyn Backend>, &options).unwrap();
    println!("\n{gigabytes} GB of 64 KiB blocks of {chunks} chunks through a store of that capacity\n");
    let (seconds, known) = write(&store, blocks, sizes);
    let counts = store.counts();
    println!(
        "inserted: {:.1} GB, {:.0} MB/s of CPU time, the making of content not included",
        counts.stored_bytes as f64 / 1e9,
        counts.stored_bytes as f64 / seconds / 1e6
    );
    println!("taken for known, since the index goes by a part of the tag: {known} blocks");
    println!("written: {:.4} of that", counts.written_bytes as f64 / counts.stored_bytes as f64);
    let stat = store.stat();
    let oldest = stat.horizon.oldest_s.unwrap();
    println!(
        "there: blocks {oldest} to {blocks}, {} segments, {} containers",
        stat.segments, stat.containers
    );
    let files = backend.list().unwrap();
    let summaries: Vec<u64> =
        files.iter().filter(|(name, _)| name.ends_with(".summary")).map(|(_, len)| *len).collect();
    println!("summaries: {} of {:.0} MB", summaries.len(), summaries.iter().sum::<u64>() as f64 / 1e6);
    // The backend's memory is an estimate, perhaps above the total.
    let store_memory = resident().saturating_sub(before + backend.memory());
    println!(
        "memory: {:.0} MB, of it index {:.0} MB; {:.2} bytes a chunk; the disk that makes content again has {:.0} MB more",
        store_memory as f64 / 1e6,
        stat.index.total() as f64 / 1e6,
        store_memory as f64 / stat.indexed[0] as f64,
        backend.memory() as f64 / 1e6,
    );
    read(&store, &backend, (oldest, blocks), sizes);
    drop(store);
    let store = open_again("without a clean end", &backend, &options);
    read(&store, &backend, (oldest, blocks - 20), sizes);
    drop(store);
    // As left by a build without summaries.
    let files = backend.list().unwrap().into_iter().map(|(name, _)| name);
    files.filter(|name| name.ends_with(".summary")).for_each(|name| backend.remove(&name).unwrap());
    let store = open_again("without a clean end and without summaries", &backend, &options);
    store.close().unwrap();
    let store = open_again("after a clean end", &backend, &options);
    read(&store, &backend, (oldest, blocks - 20), sizes);
}

/// Opens the store, and prints the cost.
fn open_again(what: &str, backend: &Arc<Regenerating>, options: &Options) -> Store {
    let counts =
        || [&backend.reads, &backend.read_bytes, &backend.written_bytes].map(|n| n.load(Ordering::Relaxed));
    let (begun, before) = (cpu_time(), counts());
    let at_first = resident();
    forget_peak();
    let (store, opened) = Store::open(Arc::clone(backend) as Arc<dyn Backend>, options).unwrap();
    let [reads, read_bytes, written_bytes] = [0, 1, 2].map(|i| counts()[i] - before[i]);
    println!(
        "opened {what}: {:.1} s of CPU, {reads} reads of {:.0} MB, {:.0} MB written, {} of {} segments scanned, index kept: \
         {}; {} entries; at most {:.0} MB of memory",
        (cpu_time() - begun).as_secs_f64(),
        read_bytes as f64 / 1e6,
        written_bytes as f64 / 1e6,
        opened.scanned,
        opened.segments,
        opened.index_kept,
        store.stat().indexed.iter().sum::<u64>(),
        peak().saturating_sub(at_first) as f64 / 1e6,
    );
    store
}

/// Returns the seconds of CPU for inserting, and the number of blocks mistaken for others.
fn write(store: &Store, blocks: u64, sizes: &[usize]) -> (f64, u64) {
    let (mut block, mut parts, mut seconds, mut known) = (vec![0; BLOCK], Vec::new(), 0.0, 0);
    for number in 0..blocks {
        fill(number, &mut block);
        tree(number, sizes, &mut parts);
        let begun = cpu_time();
        let inserted = store.insert(&block, &parts, number);
        seconds += (cpu_time() - begun).as_secs_f64();
        match inserted {
            Inserted::Stored { .. } => {}
            Inserted::Known => known += 1,
            Inserted::Refused => panic!("block {number} is refused"),
        }
    }
    store.sync().unwrap();
    (seconds, known)
}

/// Reads blocks and large chunks from anywhere, and small ones of the last blocks, and compares every byte.
fn read(store: &Store, backend: &Regenerating, (oldest, blocks): (u64, u64), sizes: &[usize]) {
    let gets = 40_000;
    let (mut expected, mut found) = (vec![0; BLOCK], 0u64);
    let levels: Vec<usize> = [BLOCK].iter().chain(sizes).copied().collect();
    let before = backend.reads.load(Ordering::Relaxed);
    for get in 0..gets {
        let level = (get % levels.len() as u64) as usize;
        let size = levels[level];
        let first = if is_small(size) { oldest.max(blocks.saturating_sub(RECENT)) } else { oldest };
        let number = first + mixed(get) % (blocks - first);
        fill(number, &mut expected);
        let i = if level == 0 { 0 } else { 3 };
        let (tag, content) = (tag(number, level, i), &expected[i * size..][..size]);
        // The check of content against name is a comparison here.
        let bytes = store.read(tag, content.len() as u32, &|bytes| bytes == content).unwrap();
        found += u64::from(bytes.is_some_and(|bytes| bytes == content));
    }
    let reads = backend.reads.load(Ordering::Relaxed) - before;
    println!(
        "read: {found} of {gets} found, none wrong, {:.4} reads for each found",
        reads as f64 / found as f64
    );
}

/// Whether chunks of a size are indexed for a while only.
fn is_small(size: usize) -> bool {
    size < 4096
}

/// Blocks with small chunks still in the index; it is meant to forget those of most others.
const RECENT: u64 = 20_000;
