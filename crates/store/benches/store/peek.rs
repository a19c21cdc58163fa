//! Time and memory of the index.

use std::hint::black_box;
use std::sync::Arc;

use oncewire_store::{IndexMemory, Options, Part, Stat, Store};

use crate::content::{BLOCK, mixed};
use crate::cpu_time;
use crate::nothing::Nothing;

/// Fills the index with so many entries at several loads, and looks at it.
pub(crate) fn run(entries: u64) {
    println!("\n{} million chunks of each size\n", entries / 1_000_000);
    println!(
        "| chunks | table filled to | bytes a chunk | found | absent taken for found | peek, there | peek, absent |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|");
    for load in [80, 85, 90, 95] {
        row("4 KiB and more", 8192, 8, entries, load);
    }
    for load in [50, 60, 70, 100, 200] {
        row("less", 128, 4, entries, load);
    }
}

fn row(name: &str, len: u32, slot: u64, entries: u64, load: u64) {
    let bytes = entries * slot * 100 / load;
    let small = 1 << 10;
    let index = match len {
        4096.. => IndexMemory { coarse: bytes, medium: small, fine: small },
        _ => IndexMemory { coarse: small, medium: small, fine: bytes },
    };
    // A terabyte, for the width of addresses.
    let options =
        Options { capacity: 1 << 40, segment_bytes: 64 << 20, index, id: 1, sealer: None, at_rest: false };
    let (store, _) = Store::open(Arc::new(Nothing), &options).unwrap();
    insert(&store, len, entries);
    let found = (0..entries).filter(|i| store.peek(mixed(*i), len)).count();
    let wrong = (entries..2 * entries).filter(|i| store.peek(mixed(*i), len)).count();
    println!(
        "| {name} | {load} % | {:.2} | {:.2} % | {:.4} % | {:.0} ns | {:.0} ns |",
        memory(&store.stat(), len) as f64 / found as f64,
        100.0 * found as f64 / entries as f64,
        100.0 * wrong as f64 / entries as f64,
        peek_ns(&store, len, 0, entries),
        peek_ns(&store, len, entries, entries),
    );
}

/// Inserts entries, each time as many as a block can have: the index treats them alike.
fn insert(store: &Store, len: u32, entries: u64) {
    let block = vec![0; BLOCK];
    let each = if len >= 4096 { 4096 } else { 512 };
    let mut parts = Vec::new();
    for first in (0..entries).step_by(each) {
        parts.clear();
        let numbers = (first..entries).take(each);
        parts.extend(numbers.map(|i| Part { tag: mixed(i), level: 1, start: 0, len }));
        store.insert(&block, &parts, 0);
    }
}

fn memory(stat: &Stat, len: u32) -> u64 {
    if len >= 4096 { stat.index.coarse } else { stat.index.fine }
}

/// Returns the time of a peek in random order, including the making of the number.
fn peek_ns(store: &Store, len: u32, from: u64, entries: u64) -> f64 {
    let rounds = 2_000_000;
    let begun = cpu_time();
    let mut found = 0;
    for i in 0..rounds {
        let number = from + mixed(i) % entries;
        found += u64::from(store.peek(mixed(number), len));
    }
    black_box(found);
    (cpu_time() - begun).as_nanos() as f64 / rounds as f64
}
