//! Replays the fuzzers' corpora; a failure prints the file that did it last.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test that reads files")]

#[path = "../../../fuzz/bodies/link.rs"]
mod bodies;
#[path = "../../../fuzz/bodies/replay.rs"]
mod replay;

use replay::{random, replay};

#[test]
fn link_input_survives_its_corpus() {
    replay("link_input", bodies::link_input);
}

#[test]
fn link_pair_survives_its_corpus() {
    replay("link_pair", bodies::link_pair);
}

#[test]
fn two_links_survive_random_scripts() {
    random(60, 1500, bodies::link_pair);
}

#[test]
fn raw_pair_survives_its_corpus() {
    replay("raw_pair", bodies::raw_pair);
}

#[test]
fn raw_input_survives_its_corpus() {
    replay("raw_input", bodies::raw_input);
}

#[test]
fn two_raw_links_survive_random_scripts() {
    random(30, 1500, bodies::raw_pair);
}
