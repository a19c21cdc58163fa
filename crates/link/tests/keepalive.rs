//! Keep-alive intervals of applications' hosts, told to the other end.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;

use common::Pair;

#[test]
fn the_far_end_knows_the_latest_interval() {
    let mut pair = Pair::new(1);
    let (flow, other) = (pair.connect(0), pair.connect(0));
    for seconds in [60, 60, 45] {
        pair.sides[0].link.tell_keepalive(flow, seconds);
        pair.run();
        assert_eq!(pair.sides[1].link.far_keepalive(flow), Some(seconds));
    }
    pair.sides[0].link.tell_keepalive(flow, 0);
    pair.run();
    assert_eq!(pair.sides[1].link.far_keepalive(flow), None);
    pair.sides[1].link.tell_keepalive(flow, 7200);
    pair.run();
    assert_eq!(pair.sides[0].link.far_keepalive(flow), Some(7200));
    assert_eq!(pair.sides[1].link.far_keepalive(other), None);
}

#[test]
fn interval_lost_with_a_lane_is_said_again() {
    let mut pair = Pair::new(2);
    let flow = pair.connect(0);
    pair.reachable = false;
    pair.sides[0].link.tell_keepalive(flow, 60);
    pair.cut_all();
    assert_eq!(pair.sides[1].link.far_keepalive(flow), None);
    pair.reachable = true;
    pair.run();
    assert_eq!(pair.sides[1].link.far_keepalive(flow), Some(60));
}
