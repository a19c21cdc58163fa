//! Replays the fuzzers' corpus; a failure prints the file that did it last.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test that reads files")]

#[path = "../../../fuzz/bodies/mesh.rs"]
mod bodies;
#[path = "../../../fuzz/bodies/replay.rs"]
mod replay;

use replay::{random, replay};

#[test]
fn neighbourhood_survives_its_corpus() {
    replay("neighbourhood", bodies::neighbourhood);
}

#[test]
fn site_survives_random_scripts() {
    random(400, 2000, bodies::neighbourhood);
}
