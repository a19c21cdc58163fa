//! Degraded lanes: replaced without a loss or a repeated request.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;

use std::time::Duration;

use common::{Pair, Said, config, text};
use oncewire_codec::wire::{Frame, Understood, take_frame};
use oncewire_link::{LaneId, LaneReport, LinkConfig, Now};

/// The kernel's report of a lane at rest, with a small window on a fast path.
fn report() -> LaneReport {
    LaneReport {
        window: 14_480,
        threshold: Some(14_480),
        bytes_per_s: 2_500_000,
        least_round_trip: Duration::from_millis(200),
        outstanding: 0,
    }
}

/// A pair with much traffic just sent by this side on a lane, and this lane; it is at rest.
fn used(side: usize) -> (Pair, LaneId) {
    used_among(side, Understood::ALL)
}

/// The same for two gateways with these understood frames.
fn used_among(side: usize, understands: Understood) -> (Pair, LaneId) {
    // One flow lane, without a spare.
    let [dialer, acceptor] = [config(true, 1), config(false, 2)].map(|config| LinkConfig {
        initial_credit: 1 << 20,
        max_lanes: 1,
        ..config
    });
    let mut pair = Pair::with(3, dialer, acceptor);
    if understands != pair.understands {
        pair.understands = understands;
        pair.restart(0);
        pair.run();
    }
    let flow = pair.connect(side);
    pair.said.clear();
    let bytes = pair.random_bytes(300_000);
    pair.send(side, flow, &bytes);
    pair.run();
    assert_eq!(pair.sides[1 - side].stream(flow).bytes, bytes);
    let longest = pair.said.iter().filter_map(|said| match said {
        Said::Frames { side: from, lane, bytes } if *from == side => Some((bytes.len(), *lane)),
        _ => None,
    });
    let (_, lane) = longest.max().unwrap();
    pair.pass(Now::from_secs(20));
    pair.said.clear();
    (pair, lane)
}

/// Lets four flows have a lane each for a moment, says how many lanes there are, and lets three minutes pass.
fn lanes_to_spare(pair: &mut Pair) -> usize {
    let flows: Vec<_> = (0..4).map(|_| pair.connect(0)).collect();
    for &flow in &flows {
        pair.send(0, flow, &text(1000));
    }
    pair.lanes().into_iter().for_each(|lane| pair.block(lane, 1, true));
    pair.run();
    pair.lanes().into_iter().for_each(|lane| pair.block(lane, 1, false));
    let most = pair.lanes().len();
    pair.run();
    pair.said.clear();
    pair.pass(Now::from_secs(180));
    most
}

/// The frames of repairs, or with news of a loss.
fn repairs(pair: &Pair) -> Vec<String> {
    let mut found = Vec::new();
    frames(pair, |frame| {
        if matches!(frame, Frame::Block(_) | Frame::Need(_) | Frame::Refetch(_) | Frame::LaneDead(_)) {
            found.push(format!("{frame:?}"));
        }
    });
    found
}

/// The number of frames with news of degraded or left lanes.
fn of_lanes(pair: &Pair) -> usize {
    let mut count = 0;
    frames(pair, |frame| count += usize::from(matches!(frame, Frame::LaneWorn | Frame::LaneLeft)));
    count
}

fn frames(pair: &Pair, mut each: impl FnMut(Frame<'_>)) {
    for said in &pair.said {
        let Said::Frames { bytes, .. } = said else { continue };
        let mut rest = &bytes[..];
        while let Ok(Some((kind, body, used))) = take_frame(rest) {
            each(Frame::decode(kind, body).unwrap());
            rest = &rest[used..];
        }
    }
}

#[test]
fn degraded_lane_is_replaced_by_either_end_without_repairs() {
    for side in [0, 1] {
        let (mut pair, lane) = used(side);
        let before = pair.lanes();
        let now = pair.clock(side);
        pair.sides[side].link.handle_lane_report(lane, &report(), now);
        pair.run();
        let after = pair.lanes();
        assert!(!after.contains(&lane), "side {side}: {lane:?} is in {after:?}");
        assert_eq!(after.len(), before.len());
        assert_eq!(pair.sides[side].link.stats().lanes_renewed, 1);
        assert_eq!(repairs(&pair), Vec::<String>::new());
        for end in &pair.sides {
            let stats = end.link.stats();
            assert_eq!((stats.resumes, stats.out.resent, stats.out.unacked), (0, 0, 0));
        }
        // Both go on with the existing lanes.
        let flow = pair.connect(1 - side);
        pair.send(1 - side, flow, &text(100_000));
        pair.run();
        assert_eq!(pair.sides[side].stream(flow).bytes, text(100_000));
    }
}

#[test]
fn other_lane_is_up_before_a_degraded_one_is_left() {
    let (mut pair, lane) = used(0);
    let before = pair.lanes();
    let now = pair.clock(0);
    pair.reachable = false;
    pair.sides[0].link.handle_lane_report(lane, &report(), now);
    pair.pass(Now::from_secs(5));
    assert_eq!(pair.lanes(), before, "nobody answers");
    pair.reachable = true;
    pair.run();
    assert_eq!(pair.lanes().len(), before.len());
    assert!(!pair.lanes().contains(&lane));
}

#[test]
fn lane_in_use_again_ends_only_afterwards() {
    for side in [0, 1] {
        let (mut pair, lane) = used(0);
        // A flow of this side holds the lane, as its bytes are not acknowledged.
        let flows: Vec<_> = (0..12).map(|_| pair.connect(side)).collect();
        pair.block(lane, side, true);
        for &flow in &flows {
            pair.send(side, flow, &text(20_000));
        }
        pair.run();
        let held = pair.under_way(lane, side);
        assert!(held > 0, "side {side}: the lane has something to carry");
        let now = pair.clock(0);
        pair.sides[0].link.handle_lane_report(lane, &LaneReport { outstanding: 1, ..report() }, now);
        pair.run();
        assert!(pair.lanes().contains(&lane));
        assert_eq!(pair.sides[0].link.stats().lanes_renewed, 0);
        pair.block(lane, side, false);
        pair.pass(Now::from_secs(5));
        for flow in flows {
            assert_eq!(pair.sides[1 - side].stream(flow).bytes, text(20_000));
        }
    }
}

#[test]
fn bytes_given_during_the_dialling_cross_once() {
    for side in [0, 1] {
        let (mut pair, lane) = used(side);
        let now = pair.clock(side);
        pair.reachable = false;
        pair.sides[side].link.handle_lane_report(lane, &report(), now);
        // More flows than lanes, so the degraded one is needed as well.
        let flows: Vec<_> = (0..12).map(|_| pair.connect(side)).collect();
        let mut expected = Vec::new();
        for &flow in &flows {
            let bytes = pair.random_bytes(50_000);
            pair.send(side, flow, &bytes);
            expected.push(bytes);
        }
        // A little of it is on its way when the lane is there.
        pair.step(1000);
        pair.reachable = true;
        while pair.step(1000) {}
        pair.pass(Now::from_secs(1));
        for (flow, bytes) in flows.into_iter().zip(expected) {
            assert_eq!(pair.sides[1 - side].stream(flow).bytes, bytes);
        }
        assert!(!pair.lanes().contains(&lane));
        for end in &pair.sides {
            assert_eq!((end.link.stats().resumes, end.link.stats().out.resent), (0, 0));
        }
    }
}

#[test]
fn lane_without_flows_is_left_without_repairs() {
    let mut pair = Pair::new(5);
    let most = lanes_to_spare(&mut pair);
    assert!(pair.lanes().len() < most, "{most} lanes");
    assert_eq!(repairs(&pair), Vec::<String>::new());
}

#[test]
fn older_peer_is_neither_asked_nor_told() {
    for side in [0, 1] {
        let (mut pair, lane) = used_among(side, Understood { lanes_left: false, ..Understood::ALL });
        let now = pair.clock(side);
        pair.sides[side].link.handle_lane_report(lane, &report(), now);
        pair.pass(Now::from_secs(5));
        assert!(pair.lanes().contains(&lane), "side {side}");
        assert_eq!(pair.sides[side].link.stats().lanes_renewed, 0);
        assert_eq!(of_lanes(&pair), 0);
    }
}

#[test]
fn spare_lane_ends_plainly_with_an_older_peer() {
    let mut pair = Pair::new(5);
    pair.understands.lanes_left = false;
    pair.restart(0);
    pair.run();
    let most = lanes_to_spare(&mut pair);
    assert!(pair.lanes().len() < most, "{most} lanes");
    assert_eq!(of_lanes(&pair), 0);
}

#[test]
fn peer_asking_for_ever_more_lanes_is_given_few() {
    let mut pair = Pair::new(6);
    let mut worn = Vec::new();
    Frame::LaneWorn.encode(&mut worn);
    for _ in 0..200 {
        for lane in pair.lanes() {
            let now = pair.clock(0);
            pair.sides[0].link.handle_input(lane, &mut (&worn[..]).into(), now).unwrap();
        }
        pair.run();
    }
    assert_eq!(pair.sides[0].link.stats().lanes_renewed, 8);
    pair.pass(Now::from_secs(2));
    assert_eq!(pair.lanes().len(), Pair::new(6).lanes().len());
}

#[test]
fn spare_lanes_end_with_both_ends_dialling() {
    let [first, second] =
        [config(true, 1), config(false, 2)].map(|config| LinkConfig { dialer: true, ..config });
    let mut pair = Pair::with(8, first, second);
    pair.pass(Now::from_secs(180));
    for round in 0..10 {
        println!("round {round}");
        let flows: Vec<_> = (0..6).map(|n| (n % 2, pair.connect(n % 2))).collect();
        pair.lanes().into_iter().for_each(|lane| (0..2).for_each(|side| pair.block(lane, side, true)));
        flows.iter().for_each(|&(side, flow)| pair.send(side, flow, &text(1000)));
        pair.run();
        assert!(pair.lanes().len() > 6, "{} lanes", pair.lanes().len());
        pair.lanes().into_iter().for_each(|lane| (0..2).for_each(|side| pair.block(lane, side, false)));
        pair.run();
        for (side, flow) in flows {
            assert_eq!(pair.sides[1 - side].stream(flow).bytes, text(1000));
            (0..2).for_each(|side| pair.sides[side].link.finish_flow(flow, pair.now));
        }
        pair.run();
        pair.said.clear();
        pair.pass(Now::from_secs(180));
        // Both sides' dialled lanes for control frames and repairs, and one spare lane.
        assert_eq!(pair.sides.each_ref().map(|side| side.link.stats().lanes_spare), [1, 1]);
        assert!(pair.lanes().len() <= 5, "{:?}", pair.lanes());
        assert_eq!(repairs(&pair), Vec::<String>::new());
        pair.said.clear();
        pair.pass(Now::from_secs(600));
        let dialled = pair.said.iter().filter(|said| matches!(said, Said::Hello { .. })).count();
        assert_eq!(dialled, 0, "lanes are left only to be dialled again");
    }
}

#[test]
fn lane_refused_by_the_dialling_side_is_requested_again() {
    let [dialer, acceptor] = [config(true, 1), config(false, 2)].map(|config| LinkConfig {
        initial_credit: 1 << 20,
        spare_lanes: 16,
        max_lanes: 16,
        ..config
    });
    let mut pair = Pair::with(9, dialer, acceptor);
    let flows: Vec<_> = (0..16).map(|_| pair.connect(1)).collect();
    pair.lanes().into_iter().for_each(|lane| pair.block(lane, 0, true));
    for flow in flows {
        let bytes = pair.random_bytes(100_000);
        pair.send(1, flow, &bytes);
    }
    pair.run();
    pair.lanes().into_iter().for_each(|lane| pair.block(lane, 0, false));
    pair.pass(Now::from_secs(20));
    // The dialling side has just done as much as it does at once.
    let (before, now) = (pair.lanes(), pair.now);
    let mut ask = Vec::new();
    Frame::LaneWorn.encode(&mut ask);
    for &lane in before.iter().rev() {
        pair.sides[0].link.handle_input(lane, &mut (&ask[..]).into(), now).unwrap();
        pair.run();
    }
    assert_eq!(pair.sides[0].link.stats().lanes_renewed, 8);
    let report_all = |pair: &mut Pair| {
        let (lanes, now) = (pair.lanes(), pair.clock(1));
        lanes.iter().for_each(|&lane| pair.sides[1].link.handle_lane_report(lane, &report(), now));
        pair.run();
        lanes.into_iter().filter(|lane| !pair.lanes().contains(lane)).count()
    };
    assert_eq!(report_all(&mut pair), 0);
    pair.pass(Now::from_secs(60));
    assert_eq!(report_all(&mut pair), 8);
}
