//! Lanes degraded by losses, under loss-based congestion control.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;

use oncewire_testnet::{Family, LinkParams, isolated};

use super::{line, start};
use crate::common::data::{assert_same, random};
use crate::common::network::PairInNetwork;
use crate::common::wait::{LIMIT, eventually};

/// Moves new bytes through the pair, down or up.
fn transfer(pair: &PairInNetwork, seed: u64, len: usize, down: bool) {
    let data = random(seed, len);
    let listener = pair.listen(Family::V4);
    let client = pair.connect(Family::V4);
    let (server, _) = listener.accept().unwrap();
    server.set_read_timeout(Some(LIMIT)).unwrap();
    let (mut from, mut to) = if down { (server, client) } else { (client, server) };
    let sent = data.clone();
    let writer = std::thread::spawn(move || {
        from.write_all(&sent).unwrap();
        from.shutdown(Shutdown::Write).unwrap();
        // Kept open until the far end is done.
        let _ = from.read(&mut [0]);
    });
    let mut got = Vec::new();
    to.read_to_end(&mut got).unwrap();
    drop(to);
    assert_same(&got, &data, &format!("seed {seed}, down: {down}"));
    writer.join().unwrap();
}

/// Transfers over the lossy line: of half a megabyte, more than the first transfer leaves, a sixteenth stays.
const LOSSY: u64 = 4;

/// The dialling side sends up, the dialled side sends down and has to ask.
fn replaced(down: bool) {
    isolated(|| {
        let Some(pair) = start(line(0.0), "[link]\ncongestion = \"reno\"\nmax_lanes = 1\n") else { return };
        let wan = pair.network.wan();
        let way = if down { &wan.down } else { &wan.up };
        transfer(&pair, 1, 2_000_000, down);
        let renewed = pair.count("lanes_renewed");
        way.set(&LinkParams { loss: 0.1, ..way.params() }).unwrap();
        // One after another: losses within one window halve it once, in any number.
        for round in 0..LOSSY {
            let lost = way.counters().lost;
            transfer(&pair, 10 + round, 200_000, down);
            assert!(way.counters().lost > lost, "nothing was lost in round {round}");
        }
        way.set(&line(0.0)).unwrap();
        eventually("a lane is replaced", LIMIT, || (pair.count("lanes_renewed") > renewed).then_some(()));
        transfer(&pair, 3, 1_000_000, down);
        assert_eq!((pair.count("resumes"), pair.count("mismatches")), (0, 0));
        assert!(pair.is_up());
    });
}

#[test]
fn degraded_lane_is_replaced_by_the_dialling_side() {
    replaced(false);
}

#[test]
fn degraded_lane_is_replaced_for_the_dialled_side() {
    replaced(true);
}
