//! Replay of the fuzzer's corpus; a failure prints its last file.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test that reads files")]

#[path = "../../../fuzz/bodies/packet.rs"]
mod bodies;
#[path = "../../../fuzz/bodies/replay.rs"]
mod replay;

use replay::{random, replay};

#[test]
fn packet_survives_its_corpus() {
    replay("packet", bodies::packet);
}

#[test]
fn packet_survives_random_bytes() {
    random(2000, 120, bodies::packet);
}

#[test]
fn packet_survives_damage_to_each_byte_of_its_corpus() {
    replay("packet", |packet| {
        for at in 0..packet.len().min(120) {
            for value in [0x00, 0x01, 0x2c, 0x45, 0x60, 0x80, 0xff] {
                let mut damaged = packet.to_vec();
                damaged[at] = value;
                println!("byte {at} is {value}");
                bodies::packet(&damaged);
            }
        }
    });
}
