//! The traffic of an idle link, and its detection of a dead peer or lane, in simulated time.

mod common;

use common::{Pair, Said, config};
use oncewire_codec::wire::{Frame, take_frame};
use oncewire_link::{LaneId, LinkConfig, Now, records};

const SECOND: Now = Now::from_secs(1);

/// A pair with so many spare lanes, at rest.
fn at_rest(seed: u64, spare_lanes: u32, dead_after: Option<Now>) -> Pair {
    let of =
        |first, instance| LinkConfig { spare_lanes, max_lanes: 64, dead_after, ..config(first, instance) };
    let mut pair = Pair::with(seed, of(true, 1), of(false, 2));
    pair.pass(100 * SECOND);
    assert_eq!(pair.lanes().len(), spare_lanes as usize + 2);
    pair.said.clear();
    pair
}

/// The bytes of TLS records around the frames: 22 each beside the frames.
fn wire(pair: &Pair) -> usize {
    let bytes = |said: &Said| match said {
        Said::Frames { bytes, .. } => records(bytes).map(|record| record.len() + 22).sum(),
        _ => 0,
    };
    pair.said.iter().map(bytes).sum()
}

/// The lanes of either side's pings, in order.
fn asked_on(pair: &Pair) -> Vec<LaneId> {
    let mut lanes = Vec::new();
    for said in &pair.said {
        let Said::Frames { lane, bytes, .. } = said else { continue };
        let mut rest = &bytes[..];
        while let Ok(Some((kind, body, used))) = take_frame(rest) {
            lanes.extend(matches!(Frame::decode(kind, body), Ok(Frame::Ping(_))).then_some(*lane));
            rest = &rest[used..];
        }
    }
    lanes
}

/// Cuts lanes without a word.
fn silence(pair: &mut Pair, lanes: &[LaneId]) {
    for &lane in lanes {
        (0..2).for_each(|side| pair.block(lane, side, true));
    }
}

#[test]
fn idle_minute_costs_a_kilobyte_with_any_lanes() {
    for spare_lanes in [1, 2, 62] {
        let mut pair = at_rest(1, spare_lanes, None);
        pair.pass(60 * SECOND);
        let asked = asked_on(&pair);
        assert!((10..=12).contains(&asked.len()), "{asked:?}");
        assert!(asked.iter().all(|lane| *lane == asked[0]), "{asked:?}");
        assert!(wire(&pair) <= 12 * 64, "{} bytes with {spare_lanes} spare lanes", wire(&pair));
        let round_trips = pair.sides.each_ref().map(|side| side.link.stats().round_trip);
        assert!(round_trips.iter().all(Option::is_some));
        assert_eq!(pair.lanes().len(), spare_lanes as usize + 2);
    }
}

#[test]
fn both_ends_of_an_idle_link_take_turns_to_ask() {
    let mut pair = at_rest(2, 1, None);
    pair.pass(60 * SECOND);
    let mut askers = Vec::new();
    for said in &pair.said {
        if let Said::Frames { side, bytes, .. } = said
            && let Ok(Some((kind, body, _))) = take_frame(bytes)
            && matches!(Frame::decode(kind, body), Ok(Frame::Ping(_)))
        {
            askers.push(*side);
        }
    }
    assert!(askers.windows(2).all(|pair| pair[0] != pair[1]), "{askers:?}");
}

#[test]
fn dead_peer_of_idle_link_is_found_within_dead_after() {
    for (dead_after, dead) in [(None, 10), (Some(1), 1), (Some(2), 2), (Some(60), 60), (Some(3600), 3600)] {
        for spare_lanes in [1, 62] {
            for tenths in 0..10 {
                let dead = Now::from_secs(dead);
                let mut pair = at_rest(3, spare_lanes, dead_after.map(Now::from_secs));
                pair.pass(dead * tenths / 10);
                pair.reachable = false;
                let lanes = pair.lanes();
                silence(&mut pair, &lanes);
                // In the harness a lane closed by one end ends at the other, too: so the first end counts.
                pair.pass(dead);
                let up = pair.sides.each_ref().map(|side| side.link.is_up());
                assert_eq!(up, [false; 2], "{dead:?} after {tenths} tenths with {spare_lanes}");
            }
        }
    }
}

#[test]
fn answering_lanes_stay_after_death_of_the_probed_one() {
    let mut pair = at_rest(4, 8, None);
    pair.pass(5 * SECOND);
    let probed = asked_on(&pair)[0];
    let lanes = pair.lanes();
    silence(&mut pair, &[probed]);
    pair.pass(11 * SECOND);
    let left = pair.lanes();
    assert!(!left.contains(&probed));
    assert!(lanes.iter().all(|lane| *lane == probed || left.contains(lane)), "{lanes:?} {left:?}");
    assert_eq!(left.len(), lanes.len(), "another is dialled in its place");
}

#[test]
fn lane_cut_during_idleness_is_found_with_its_first_use() {
    for side in [0, 1] {
        let mut pair = at_rest(5, 4, None);
        let flow = pair.connect(0);
        pair.pass(SECOND);
        pair.said.clear();
        pair.pass(60 * SECOND);
        let probed = asked_on(&pair)[0];
        let lanes: Vec<LaneId> = pair.lanes().into_iter().filter(|lane| *lane != probed).collect();
        silence(&mut pair, &lanes);
        pair.pass(60 * SECOND);
        assert!(lanes.iter().all(|lane| pair.lanes().contains(lane)), "nothing was sent there");
        pair.send(side, flow, b"first");
        pair.run();
        assert_eq!(pair.sides[1 - side].stream(flow).bytes, b"");
        // Long before `dead_after`.
        pair.pass(2 * SECOND);
        assert_eq!(pair.sides[1 - side].stream(flow).bytes, b"first");
        assert_eq!(pair.sides[side].link.stats().resumes, 1);
    }
}

#[test]
fn lane_in_use_without_answer_dies_after_dead_after() {
    let mut pair = at_rest(6, 4, None);
    let flow = pair.connect(0);
    let bytes = pair.random_bytes(100_000);
    pair.send(0, flow, &bytes);
    pair.pass(SECOND);
    let lanes = pair.lanes();
    silence(&mut pair, &lanes);
    pair.reachable = false;
    pair.send(0, flow, &bytes);
    pair.pass(9 * SECOND);
    assert!(pair.sides[0].link.is_up());
    pair.pass(SECOND);
    assert!(!pair.sides[0].link.is_up());
}

#[test]
fn busy_lane_is_asked_for_its_round_trip() {
    let mut pair = at_rest(7, 1, None);
    let flow = pair.connect(0);
    pair.said.clear();
    for _ in 0..40 {
        let bytes = pair.random_bytes(20_000);
        pair.send(0, flow, &bytes);
        pair.pass(SECOND / 2);
    }
    let asked = asked_on(&pair);
    let probed = asked.iter().filter(|lane| **lane == LaneId(1)).count();
    // Each end each 2.5 s on the flow's lane.
    assert!((14..=18).contains(&(asked.len() - probed)), "{asked:?}");
}
