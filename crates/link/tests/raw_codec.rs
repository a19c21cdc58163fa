//! A second codec, by the contract alone.

mod common;
#[path = "common/raw.rs"]
mod raw;

use std::sync::Arc;

use common::{Pair, config};
use oncewire_link::LinkConfig;
use raw::Raw;

fn pair(seed: u64) -> Pair {
    let raw = |dialer, instance| LinkConfig { codec: Arc::new(Raw), ..config(dialer, instance) };
    Pair::with(seed, raw(true, 1), raw(false, 2))
}

#[test]
fn raw_blocks_cross_a_link_both_ways() {
    let mut pair = pair(1);
    let flow = pair.connect(0);
    let sent = [0, 1].map(|_| pair.random_bytes(300_000));
    for (side, bytes) in sent.iter().enumerate() {
        pair.send(side, flow, bytes);
    }
    pair.run();
    for (side, bytes) in sent.iter().enumerate() {
        assert!(pair.sides[1 - side].stream(flow).bytes == *bytes, "side {side}");
    }
}

#[test]
fn raw_blocks_survive_cut_lanes() {
    for seed in 0..20 {
        let mut pair = pair(seed);
        let flow = pair.connect(0);
        let bytes = pair.random_bytes(200_000);
        for part in bytes.chunks(50_000) {
            pair.send(0, flow, part);
            let steps = pair.below(200_000) as usize;
            pair.step(steps);
            pair.cut_all();
        }
        pair.run();
        assert!(pair.sides[1].stream(flow).bytes == bytes, "seed {seed}");
    }
}
