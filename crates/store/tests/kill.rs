//! A filling process killed at random moments: nothing wrong, and only unsynced content lost. All content within the
//! store's room is there, in spite of its own account of its age.
//!
//! `cargo test -p oncewire-store --test kill -- 200` kills 200 times instead of 20.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use common::{block, mixed, options, parts, read};
use oncewire_store::{Directory, IndexMemory, MIN_SEGMENT_BYTES, Opened, Options, Progress, Store};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [role, directory, from] = &arguments[..]
        && role == "fill"
    {
        return fill(Path::new(directory), from.parse().unwrap());
    }
    let name = "a_process_killed_at_any_moment_loses_only_what_was_not_synced";
    let kills = match arguments.iter().find(|argument| !argument.starts_with('-')) {
        None => 20,
        Some(number) if number.parse::<u64>().is_ok() => number.parse().unwrap(),
        Some(filter) if name.contains(filter.as_str()) => 20,
        Some(_) => {
            return println!("test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 1 filtered out");
        }
    };
    if arguments.iter().any(|argument| argument == "--list") {
        return println!("{name}: test");
    }
    let lost = kill_again_and_again(kills);
    println!("test {name} ... ok ({kills} kills, at most {lost} blocks lost that were not promised)");
    println!("test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
}

/// Kills a process so many times, and returns the most accepted blocks lost by a kill.
fn kill_again_and_again(kills: u64) -> u64 {
    let dir = tempfile::tempdir().unwrap();
    let (mut next, mut most_lost) = (0, 0);
    let (mut durable, mut starts) = (BTreeSet::new(), BTreeSet::new());
    for kill in 0..kills {
        starts.insert(next);
        let (promised, taken) = run_and_kill(dir.path(), next, mixed(kill));
        let context = format!("kill {kill}, blocks from {next}, {promised} promised, {taken} taken");
        let (store, opened) = open(dir.path());
        // A block's time is its number.
        let oldest = store.horizon().oldest_s.unwrap_or(taken);
        durable.extend(next..promised);
        for number in durable.range(oldest.min(oldest_with_room(taken, &starts))..) {
            let content = content(*number);
            assert!(read(&store, &content).unwrap(), "{context}: {number} is gone, {opened:?}");
            for len in [128, 1024] {
                let part = &content[..content.len().min(len)];
                assert!(read(&store, part).unwrap(), "{context}: a part of {number} is gone, {opened:?}");
            }
        }
        // Unpromised blocks are there or not, and never wrong: `read` looks at that.
        let there =
            (promised..taken).filter(|number| read(&store, &content(*number)).unwrap()).count() as u64;
        let lost = taken - promised - there;
        assert!(lost <= SYNC_EVERY, "{context}: {lost} are gone, more than may be put between two syncs");
        most_lost = most_lost.max(lost);
        assert!(store.verify(&Progress::default()).unwrap().damaged.is_empty(), "{context}");
        next = taken;
        if kill % 3 == 0 {
            store.close().unwrap();
        }
    }
    most_lost
}

/// Returns the first of the blocks before `taken` with room in the store for it and all later ones: the room of its
/// segments, but for two. One is for the next content, and the oldest goes as a whole.
fn oldest_with_room(taken: u64, starts: &BTreeSet<u64>) -> u64 {
    let mut room = (SEGMENTS - 2) * MIN_SEGMENT_BYTES;
    let mut oldest = taken;
    while let Some(number) = oldest.checked_sub(1) {
        let begun = if starts.contains(&number) || number % CLOSE_EVERY == 0 { OF_A_SEGMENT } else { 0 };
        let Some(rest) = room.checked_sub(most_on_disk(number) + begun) else { break };
        (room, oldest) = (rest, number);
    }
    oldest
}

/// Returns an upper bound of a block's bytes on disk: its own, 32 for each of its chunks in directory, footer and
/// summary, a page at the end of its group, and its part of a full segment's overhead.
fn most_on_disk(number: u64) -> u64 {
    let block = content(number);
    block.len() as u64 + 32 * parts(&block).len() as u64 + 4096 + OF_A_SEGMENT / 6
}

/// Lets a process fill the store and kills it; returns the first block without a promise of durability, and a block
/// behind the last that it may have taken.
fn run_and_kill(directory: &Path, from: u64, seed: u64) -> (u64, u64) {
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["fill", directory.to_str().unwrap(), &from.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let (mut promised, mut taken) = (from, from);
    let mut note = |line: String| {
        let (what, number) = line.strip_suffix(';').and_then(|line| line.split_once(' ')).unwrap();
        match what {
            "taken" => taken = number.parse().unwrap(),
            "synced" => promised = number.parse().unwrap(),
            _ => panic!("the process says {line}"),
        }
    };
    for _ in 0..seed % 60 {
        note(lines.next().expect("the process goes on until it is killed").unwrap());
    }
    // Into the middle of its work.
    (0..mixed(seed) % 200_000).for_each(|i| _ = std::hint::black_box(i));
    process.kill().unwrap();
    process.wait().unwrap();
    // Its words before the kill count; the last line may be cut.
    let mut rest: Vec<String> = lines.map_while(Result::ok).collect();
    if rest.last().is_some_and(|last| !last.ends_with(';')) {
        rest.pop();
    }
    rest.into_iter().for_each(&mut note);
    (promised, taken + 1)
}

/// Fills a store until somebody kills it.
fn fill(directory: &Path, from: u64) {
    let mut out = std::io::stdout().lock();
    let (mut store, _) = open(directory);
    for number in from.. {
        let block = content(number);
        store.insert(&block, &parts(&block), number);
        writeln!(out, "taken {number};").unwrap();
        if number % SYNC_EVERY == 0 {
            store.sync().unwrap();
            writeln!(out, "synced {};", number + 1).unwrap();
        }
        if number % CLOSE_EVERY == 0 {
            store.close().unwrap();
            (store, _) = open(directory);
        }
    }
}

fn open(directory: &Path) -> (Store, Opened) {
    // Room for every leaf, or small blocks would be forgotten before they are evicted.
    let index = IndexMemory { coarse: 1 << 17, medium: 1 << 18, fine: 1 << 21 };
    let options = Options { index, ..options(SEGMENTS) };
    Store::open(Arc::new(Directory::open(directory).unwrap()), &options).unwrap()
}

fn content(number: u64) -> Vec<u8> {
    block(number, 1 + mixed(number) as usize % 65_536)
}

/// Full segments within the store's room.
const SEGMENTS: u64 = 8;
/// Blocks from one sync to the next, and from one end in order to the next.
const SYNC_EVERY: u64 = 5;
const CLOSE_EVERY: u64 = 23;
/// Overhead of a segment on disk: first pages of it and of its summary, and the padding of the last pages of its
/// footer and summary.
const OF_A_SEGMENT: u64 = 4 * 4096;
