//! Replays the corpus of discovery's fuzzer; a failure prints the file that did it last.
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
fn gateways_that_look_for_each_other_survive_random_scripts() {
    random(100, 1500, bodies::discovery);
}
