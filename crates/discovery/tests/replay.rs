//! Replay of the corpus of discovery's fuzzer.
//!
//! A failure prints the failing file last.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test that reads files")]

#[path = "../../../fuzz/bodies/discovery.rs"]
mod bodies;
#[path = "../../../fuzz/bodies/replay.rs"]
mod replay;

use replay::{random, replay};

#[test]
fn discovery_survives_its_corpus() {
    replay("discovery", bodies::discovery);
}

#[test]
fn discovery_survives_random_scripts() {
    random(100, 1500, bodies::discovery);
}
