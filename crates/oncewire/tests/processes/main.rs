//! Process tests of the binary: two gateways, a cutting relay between them, and real programs at both ends.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on is a failed test")]

mod accounting;
mod bad_input;
mod cache;
mod chunks;
mod cli;
mod common;
mod crash;
mod cuts;
mod demo;
mod golden;
mod lifecycle;
mod many;
mod memory;
mod names;
mod network;
mod programs;
mod restarts;
mod sockets;
mod tcp_semantics;
mod transparent;

use std::path::Path;

use common::pair::{Options, Pair};

/// Starts a pair of gateways of the binary under test.
fn pair(options: &Options) -> Pair {
    Pair::start_with(binary(), options)
}

/// The binary under test.
fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_oncewire"))
}
