//! Costs and contents of the store.
//!
//! `cargo bench -p oncewire-store` runs everything on little data. Behind `--`, the parts to run: `insert` (speed and
//! written bytes of inserts, each level inside its block and each level apart), `peek` (time and memory of the
//! index), `large` (`gb=N` gigabytes through a backend with regenerated content); `mb=N` is for `insert`, `entries=N`
//! (millions) for `peek`.
#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on has nothing to say")]

mod content;
mod insert;
mod large;
mod nothing;
mod peek;
mod regenerating;

use std::process::Command;
use std::time::Duration;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [part, gigabytes] if part == "two-levels" => return large::run(gigabytes.parse().unwrap(), &[8192]),
        [part, gigabytes] if part == "four-levels" => {
            return large::run(gigabytes.parse().unwrap(), &[8192, 1024, 128]);
        }
        [part, gigabytes] if part == "roots" => return large::run(gigabytes.parse().unwrap(), &[]),
        _ => {}
    }
    let number = |key: &str| arguments.iter().find_map(|argument| argument.strip_prefix(key)?.parse().ok());
    let parts = ["insert", "peek", "large"];
    let asked = |part: &str| arguments.iter().any(|argument| argument == part);
    let all = !parts.iter().any(|part| asked(part));
    if all || asked("insert") {
        insert::run(number("mb=").unwrap_or(256));
    }
    if all || asked("peek") {
        peek::run(number("entries=").unwrap_or(10) * 1_000_000);
    }
    if all || asked("large") {
        // Each in a process of its own, since memory is measured.
        let gigabytes: u64 = number("gb=").unwrap_or(4);
        for part in ["four-levels", "two-levels", "roots"] {
            let process =
                Command::new(std::env::current_exe().unwrap()).args([part, &gigabytes.to_string()]).status();
            assert!(process.unwrap().success());
        }
    }
}

/// CPU time of this thread so far.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap())
}

/// Bytes of memory of this process.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// Has the peak of memory begin again.
fn forget_peak() {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
}

/// The process's peak memory since then, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}
