//! Replays the fuzzers' corpora; a failure prints the file that did it last.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test that reads files")]

#[path = "../../../fuzz/bodies/codec.rs"]
mod bodies;
#[path = "../../../fuzz/bodies/replay.rs"]
mod replay;

use replay::{random, replay};

#[test]
fn hello_survives_its_corpus() {
    replay("hello", bodies::hello);
}

#[test]
fn frames_survives_its_corpus() {
    replay("frames", bodies::frames);
}

#[test]
fn tokens_survives_its_corpus() {
    replay("tokens", bodies::tokens);
}

#[test]
fn entropy_survives_its_corpus() {
    replay("entropy", bodies::entropy);
}

#[test]
fn receiver_survives_its_corpus() {
    replay("receiver", bodies::receiver);
}

#[test]
fn codec_pair_survives_its_corpus() {
    replay("codec_pair", bodies::codec_pair);
}

#[test]
fn both_halves_survive_random_scripts() {
    random(200, 2000, bodies::codec_pair);
}

#[test]
fn neighbourhood_survives_its_corpus() {
    replay("neighbourhood", bodies::neighbours::neighbourhood);
}

#[test]
fn a_site_survives_random_scripts() {
    random(400, 2000, bodies::neighbours::neighbourhood);
}
