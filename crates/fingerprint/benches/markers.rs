//! The cost of marker choices: `cargo bench -p oncewire-fingerprint [-- FILE…]`
//!
//! For each choice, period and backend, GB/s of the choice alone, and with the fingerprints of its windows, beside
//! `memcpy` of the same blocks in the same rounds: thread CPU time, medians of interleaved rounds. Without files, the
//! content is text-like and seeded; of files, the first 32 MiB together are read.

use std::hint::black_box;
use std::io::Read;

use oncewire_fingerprint::{Backend, MarkerKind, Markers, Selector, fingerprint};
use rustix::time::{ClockId, clock_gettime};

fn main() -> std::io::Result<()> {
    let files: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let content = if files.is_empty() { text_like(16 << 20) } else { read(&files)? };
    let mut copy = vec![1; content.len()];
    let selectors: Vec<(Selector, Backend)> = MarkerKind::ALL
        .into_iter()
        .flat_map(|kind| PERIODS.map(|period| (kind, period)))
        .flat_map(|(kind, period)| {
            backends(kind).map(move |backend| (Selector::new(kind, period, WINDOW).on(backend), backend))
        })
        .collect();
    let mut copying = Vec::new();
    let mut results = vec![(Vec::new(), Vec::new()); selectors.len()];
    let mut markers = vec![0; selectors.len()];
    for _ in 0..ROUNDS {
        for (((selector, _), (alone, hashed)), markers) in
            selectors.iter().zip(&mut results).zip(&mut markers)
        {
            copying.push(timed(|| {
                for (to, from) in copy.chunks_mut(BLOCK).zip(content.chunks(BLOCK)) {
                    to.copy_from_slice(from);
                }
                black_box(&mut copy);
            }));
            alone.push(timed(|| *markers = run(selector, &content, |_, _| 0)));
            hashed.push(timed(|| {
                run(selector, &content, |block, marker| {
                    block.get(marker..).and_then(|block| block.get(..WINDOW)).map_or(0, fingerprint)
                });
            }));
        }
    }
    let per_second = |seconds: f64| content.len() as f64 / seconds / 1e9;
    let memcpy = per_second(median(&mut copying));
    println!("memcpy of blocks of 64 KiB: {memcpy:.1} GB/s; {} bytes of content\n", content.len());
    println!("| choice | p | backend | bytes a marker | GB/s | with fingerprints | of memcpy |");
    println!("|---|---|---|---|---|---|---|");
    for (((selector, backend), (alone, hashed)), markers) in selectors.iter().zip(&mut results).zip(markers) {
        let (alone, hashed) = (per_second(median(alone)), per_second(median(hashed)));
        let distance = content.len() as f64 / markers.max(1) as f64;
        println!(
            "| {} | {} | {backend} | {distance:.1} | {alone:.2} | {hashed:.2} | {:.2} |",
            selector.kind(),
            selector.period(),
            hashed / memcpy
        );
    }
    Ok(())
}

/// Selects the markers of `content` in blocks and batches, as an encoder does, and returns how many there are.
fn run(selector: &Selector, content: &[u8], hash: impl Fn(&[u8], usize) -> u64) -> usize {
    let (mut count, mut sum) = (0, 0u64);
    let mut markers = Vec::new();
    let batch = BATCH.next_multiple_of(selector.period());
    for block in content.chunks(BLOCK) {
        let mut start = 0;
        while start < block.len() {
            markers.clear();
            start = selector.select(block, start..(start / batch + 1) * batch, &mut markers);
            sum = markers.iter().fold(sum, |sum, &marker| sum ^ hash(block, marker as usize));
            count += markers.len();
        }
    }
    black_box(sum);
    count
}

/// The backends with a difference for a choice.
fn backends(kind: MarkerKind) -> impl Iterator<Item = Backend> {
    let vectors = !matches!(kind, MarkerKind::Fixed | MarkerKind::ModpRabin);
    Backend::ALL
        .into_iter()
        .filter(move |&backend| backend == Backend::Portable || vectors && backend.is_available())
}

/// Returns this thread's CPU time for `work`, in seconds.
fn timed(work: impl FnOnce()) -> f64 {
    let now = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
    };
    let start = now();
    work();
    now() - start
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Reads the start of the files, one after the other.
#[expect(clippy::disallowed_types, reason = "a benchmark may read files")]
fn read(files: &[String]) -> std::io::Result<Vec<u8>> {
    let mut content = Vec::new();
    for file in files {
        let room = (32 << 20) - content.len() as u64;
        std::fs::File::open(file)?.take(room).read_to_end(&mut content)?;
    }
    Ok(content)
}

/// Words of one to ten letters, frequent ones short, from a seeded generator.
fn text_like(len: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut next = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) % below
    };
    let letters = b"etaoinshrdlcumwfgypbvk";
    let words: Vec<Vec<u8>> = (0..4096u64)
        .map(|rank| {
            let len = 1 + rank.checked_ilog2().unwrap_or(0) as usize / 2 + next(5) as usize;
            (0..len).filter_map(|_| letters.get(next(22).min(next(22)) as usize).copied()).collect()
        })
        .collect();
    let mut text = Vec::with_capacity(len + 16);
    while text.len() < len {
        let rank = next(4096).min(next(4096));
        text.extend(words.get(rank as usize).into_iter().flatten());
        text.push(if next(12) == 0 { b'\n' } else { b' ' });
    }
    text.truncate(len);
    text
}

const PERIODS: [usize; 5] = [32, 64, 128, 256, 512];
const WINDOW: usize = 32;
const BLOCK: usize = 64 << 10;
/// Bytes of one encoder's look-up.
const BATCH: usize = 2048;
const ROUNDS: usize = 5;
