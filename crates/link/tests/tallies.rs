//! The traffic of a flow, and its frames.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on is to fail there")]

mod common;

use common::store::naming;
use common::{Pair, config};
use oncewire_codec::{Layers, Plan};
use oncewire_link::{FlowOutcome, FlowTally, LinkConfig, Now};

/// Sends bytes on a flow of its own and ends it; returns both ends' tallies.
fn cross(pair: &mut Pair, bytes: &[u8]) -> [FlowTally; 2] {
    let flow = pair.connect(0);
    pair.send(0, flow, bytes);
    pair.pass(Now::from_secs(1));
    assert!(pair.sides[1].stream(flow).bytes == bytes);
    let open: Vec<FlowTally> = pair.sides[0].link.tallies().collect();
    for side in [0, 1] {
        let now = pair.clock(side);
        pair.sides[side].link.finish_flow(flow, now);
    }
    pair.pass(Now::from_secs(1));
    assert!(pair.sides.iter().all(|side| side.link.tallies().next().is_none()));
    let ended = pair.sides.each_mut().map(|side| side.ended.pop().unwrap());
    let [open] = &open[..] else { panic!("{open:?}") };
    assert_eq!((open.sent, open.received), (ended[0].sent, ended[0].received));
    // Its end crosses too.
    assert!((ended[0].wire_sent - 30..ended[0].wire_sent).contains(&open.wire_sent), "{open:?} {ended:?}");
    ended
}

fn mirrored([near, far]: &[FlowTally; 2]) {
    assert_eq!((near.sent, near.received), (far.received, far.sent));
    assert_eq!((near.wire_sent, near.wire_received), (far.wire_received, far.wire_sent));
    assert_eq!((&near.destination, near.outcome), (&far.destination, far.outcome));
}

#[test]
fn repeat_crosses_as_little_and_noise_in_full() {
    let mut pair = Pair::new(1);
    let bytes = pair.random_bytes(200_000);
    let first = cross(&mut pair, &bytes);
    mirrored(&first);
    assert_eq!((first[0].sent, first[0].received, first[0].outcome), (200_000, 0, FlowOutcome::Coded));
    assert!((200_000..204_000).contains(&first[0].wire_sent), "{first:?}");
    let again = cross(&mut pair, &bytes);
    mirrored(&again);
    assert!((20..3000).contains(&again[0].wire_sent), "{again:?}");
    assert!(again[0].wire_received < 100, "{again:?}");
}

#[test]
fn chunks_requested_by_the_peer_count_for_their_flow() {
    let side = |config, store| LinkConfig { initial_credit: 1 << 20, ..naming(config, store) };
    let mut pair = Pair::with(2, side(config(true, 1), None), side(config(false, 2), Some(77)));
    pair.plan = Plan { layers: Layers::Names, ..Plan::default() };
    let bytes = pair.random_bytes(14_000);
    cross(&mut pair, &bytes);
    let named = cross(&mut pair, &bytes);
    mirrored(&named);
    assert!(named[0].wire_sent < 1000, "{named:?}");
    pair.sides[1].chunks.clear();
    let asked = cross(&mut pair, &bytes);
    mirrored(&asked);
    assert!((14_000..15_500).contains(&asked[0].wire_sent), "{asked:?}");
}

#[test]
fn flow_after_loss_of_its_lane_counts_resent_bytes() {
    let mut pair = Pair::new(3);
    let flow = pair.connect(0);
    let bytes = pair.random_bytes(150_000);
    pair.send(0, flow, &bytes);
    pair.step(20_000);
    pair.cut_all();
    pair.pass(Now::from_secs(1));
    assert!(pair.sides[1].stream(flow).bytes == bytes);
    let tally = |pair: &Pair, side: usize| pair.sides[side].link.tallies().next().unwrap();
    let (near, far) = (tally(&pair, 0), tally(&pair, 1));
    assert_eq!((near.sent, far.received), (150_000, 150_000));
    assert!(near.wire_sent > far.wire_received && far.wire_received > 150_000, "{near:?} {far:?}");
}
