//! Measures a pair of gateways as processes: `pair throughput FILE…`, `pair savings FILE…`, `pair stall`,
//! `pair adapt`, `pair connections`, `pair stored`; and on the test network, as root, `pair shed`, `pair edited`,
//! `pair site`, `pair lost`, `pair soak` and `pair outage`.
//!
//! It runs the `oncewire` beside it, so build that too: `cargo build --profile dist --bins --examples`.
#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on has nothing to say")]

mod adapt;
#[allow(dead_code, reason = "the tests use all of the bench, this uses a part")]
#[path = "../../tests/processes/common/mod.rs"]
mod common;
mod connections;
mod edited;
mod hop;
mod lost;
mod outage;
mod roles;
mod savings;
mod shed;
mod site;
mod soak;
mod stall;
mod stored;
mod throughput;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Measures a pair of gateways, each a process")]
struct Arguments {
    #[command(subcommand)]
    measurement: Measurement,
}

#[derive(Subcommand)]
enum Measurement {
    /// Speed of a pair beside a plain relay of two hops, cold and again, and the latency of small messages.
    Throughput(throughput::Arguments),
    /// Bytes between the gateways, file by file, counted by a relay, next to those in `status`.
    Savings(savings::Arguments),
    /// Other flows while one reader takes nothing.
    Stall(stall::Arguments),
    /// Rate and savings while other programs want the processors, beside those of no coding.
    Adapt(adapt::Arguments),
    /// Many connections, most of them idle.
    Connections(connections::Arguments),
    /// Stored noise again over fast links, with load shedding and without.
    Stored(stored::Arguments),
    /// A slow disk behind a slow line, with load shedding and without.
    Shed(shed::Arguments),
    /// A text and its edits, from a slow disk, over faster lines.
    Edited(edited::Arguments),
    /// One, two and three gateways of a site behind a slow line: speed, bytes on the line, and a film for many.
    Site(site::Arguments),
    /// Time and bytes of a transfer after a gateway's loss of memory.
    Lost(lost::Arguments),
    /// Transfers of all kinds while the line and the gateways go wrong in every way, every byte compared.
    Soak(soak::Arguments),
    /// A minute without a path under a download, an upload and an idle ssh session.
    Outage(outage::Arguments),
    /// Serves the files, or echoes (started by `throughput`).
    #[command(hide = true)]
    Origin { files: Vec<PathBuf> },
    /// Echoes (started by `connections`).
    #[command(hide = true)]
    Echo,
    /// Copies both ways to a target (started by `throughput`).
    #[command(hide = true)]
    Hop { target: std::net::SocketAddr },
}

fn main() {
    match Arguments::parse().measurement {
        Measurement::Throughput(arguments) => throughput::run(&arguments),
        Measurement::Savings(arguments) => savings::run(&arguments),
        Measurement::Stall(arguments) => stall::run(&arguments),
        Measurement::Adapt(arguments) => adapt::run(&arguments),
        Measurement::Connections(arguments) => connections::run(&arguments),
        Measurement::Stored(arguments) => stored::run(&arguments),
        Measurement::Shed(arguments) => shed::run(&arguments),
        Measurement::Edited(arguments) => edited::run(&arguments),
        Measurement::Site(arguments) => site::run(&arguments),
        Measurement::Lost(arguments) => lost::run(&arguments),
        Measurement::Soak(arguments) => soak::run(&arguments),
        Measurement::Outage(arguments) => outage::run(&arguments),
        Measurement::Origin { files } => roles::origin(&files),
        Measurement::Echo => roles::echoes(),
        Measurement::Hop { target } => roles::hop(target),
    }
}

/// The gateway binary of the same build.
fn binary() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let binary = own.parent().and_then(|examples| examples.parent()).unwrap().join("oncewire");
    assert!(binary.exists(), "{} is missing: cargo build --profile dist", binary.display());
    binary
}

/// Configuration for both gateways: a log large enough for everything here, and the given entropy stage under any
/// load.
fn settings(entropy: &str) -> String {
    let cache = "[cache]\nmemory = \"2 GiB\"\nlog_memory = \"256 MiB\"\n";
    format!("{cache}[codec]\nentropy = \"{entropy}\"\nadapt = false\n")
}
