//! Outages of every kind, in simulated time: surviving flows and failing ones.

mod common;

use common::{Pair, config};
use oncewire_link::{FlowId, LinkConfig, Note, Now};

const SECOND: Now = Now::from_secs(1);
const LOST: &str = "peer lost for longer than the resume window";

/// A pair with a flow, and bytes under way on it in both directions.
fn under_way(seed: u64) -> (Pair, FlowId, [Vec<u8>; 2]) {
    let mut pair = Pair::new(seed);
    let flow = pair.connect(0);
    let bytes = [150_000, 100_000].map(|len| pair.random_bytes(len));
    (0..2).for_each(|side| pair.send(side, flow, &bytes[side]));
    pair.step(20_000);
    (pair, flow, bytes)
}

/// Lets the pair recover and checks that the flow carried everything, ends in order, and leaves nothing behind.
fn ends_right(pair: &mut Pair, flow: FlowId, bytes: &[Vec<u8>; 2]) {
    pair.pass(30 * SECOND);
    for side in [0, 1] {
        assert!(pair.sides[1 - side].stream(flow).bytes == bytes[side], "bytes of side {side}");
        let now = pair.clock(side);
        pair.sides[side].link.finish_flow(flow, now);
    }
    pair.pass(SECOND);
    for side in [0, 1] {
        let stream = pair.sides[side].stream(flow);
        assert!(stream.finished && stream.reset.is_none(), "{:?}", stream.reset);
        assert_eq!(pair.sides[side].link.open_flows(), 0);
        let stats = pair.sides[side].link.stats();
        assert_eq!((stats.out.unacked, stats.inbound.mismatches), (0, 0));
    }
}

#[test]
fn half_closed_flow_survives_an_hour_for_either_end() {
    for closer in [0, 1] {
        let mut pair = Pair::new(1);
        let flow = pair.connect(0);
        pair.send(closer, flow, b"the last of it");
        let now = pair.now;
        pair.sides[closer].link.finish_flow(flow, now);
        pair.pass(3600 * SECOND);
        assert!(pair.sides[1 - closer].stream(flow).finished);
        pair.send(1 - closer, flow, b"an hour later");
        let now = pair.now;
        pair.sides[1 - closer].link.finish_flow(flow, now);
        pair.pass(SECOND);
        let stream = pair.sides[closer].stream(flow);
        assert_eq!((&stream.bytes[..], stream.finished), (&b"an hour later"[..], true));
        assert_eq!([0, 1].map(|side| pair.sides[side].link.open_flows()), [0, 0]);
    }
}

#[test]
fn window_closed_for_ten_minutes_is_no_outage() {
    let mut pair = Pair::new(2);
    let flow = pair.connect(0);
    pair.sides[1].stalled.push(flow);
    let bytes = pair.random_bytes(400_000);
    pair.send(0, flow, &bytes);
    pair.pass(SECOND);
    let (lanes, held) = (pair.lanes(), pair.sides[0].link.flow(flow).map(|flow| flow.sent));
    pair.pass(600 * SECOND);
    // A spare lane may have been closed because nobody used it; none was replaced.
    assert!(pair.lanes().contains(&lanes[0]) && pair.lanes().iter().all(|lane| lanes.contains(lane)));
    assert_eq!(pair.sides[0].link.flow(flow).map(|flow| flow.sent), held, "sent beyond the window");
    assert_eq!(pair.sides[0].stream(flow).reset, None);
    pair.sides[1].stalled.clear();
    pair.read(1, flow);
    ends_right(&mut pair, flow, &[bytes, Vec::new()]);
}

#[test]
fn flow_resumes_once_for_any_number_of_broken_lanes() {
    for seed in 0..8 {
        println!("seed {seed}");
        let (mut pair, flow, bytes) = under_way(seed);
        assert!(pair.lanes().len() > 2);
        pair.cut_all();
        assert_eq!(pair.sides.each_ref().map(|side| side.link.stats().resumes), [1, 1]);
        ends_right(&mut pair, flow, &bytes);
    }
}

#[test]
fn one_way_flow_resumes_at_both_ends() {
    for sender in [0, 1] {
        let mut pair = Pair::new(3);
        let flow = pair.connect(0);
        let mut sent = Vec::new();
        for resumes in 1..=3 {
            // The other end has nothing on its way any more.
            pair.pass(SECOND);
            let bytes = pair.random_bytes(150_000);
            pair.send(sender, flow, &bytes);
            sent.extend(bytes);
            // A block on each lane.
            pair.step(70_000);
            assert!(pair.sides[sender].link.flow(flow).unwrap().unacked > 0);
            pair.cut_all();
            pair.run();
            let counted = pair.sides.each_ref().map(|side| side.link.stats().resumes);
            assert_eq!(counted, [resumes; 2], "side {sender} sends");
        }
        assert!(pair.sides[1 - sender].stream(flow).bytes == sent);
        let notes = &pair.sides[1 - sender].notes;
        let went_on = notes.iter().filter(|note| note.ends_with("lost its lane and goes on with another"));
        assert_eq!(went_on.count(), 3);
    }
}

#[test]
fn flow_with_nothing_on_its_lane_resumes_at_neither_end() {
    let mut pair = Pair::new(4);
    let flow = pair.connect(0);
    for round in 0..3u8 {
        (0..2).for_each(|side| pair.send(side, flow, &[round; 100]));
        pair.pass(3 * SECOND);
        pair.cut_all();
    }
    pair.send(0, flow, b"and more");
    pair.pass(SECOND);
    assert_eq!(pair.sides[1].stream(flow).bytes.len(), 308);
    assert_eq!(pair.sides.each_ref().map(|side| side.link.stats().resumes), [0; 2]);
}

#[test]
fn flow_on_the_last_lost_lane_is_reported_as_waiting() {
    let mut told = Vec::new();
    for last in under_way(1).0.lanes() {
        let (mut pair, _, _) = under_way(1);
        pair.lanes().into_iter().filter(|lane| *lane != last).for_each(|lane| pair.cut(lane));
        let waits = pair.sides[0].link.stats().resumes == 0;
        pair.cut(last);
        pair.reachable = false;
        pair.run();
        let notes = pair.sides[0].notes.iter().filter(|note| note.contains("lost its lane"));
        told.push((waits, notes.cloned().collect::<Vec<_>>()));
    }
    assert!(told.iter().any(|(waits, _)| *waits) && told.iter().any(|(waits, _)| !waits), "{told:?}");
    for (waits, notes) in told {
        let expected = match waits {
            true => "1 flow lost its lane and waits for another: the link has none",
            false => "1 flow lost its lane and is to go on with another",
        };
        assert_eq!(notes, [expected]);
    }
    let several = Note::Resumed { flows: 2, lanes_left: false }.to_string();
    assert_eq!(several, "2 flows lost their lane and wait for another: the link has none");
    let gave_up = |flows| Note::GaveUp { flows }.to_string();
    assert_eq!(gave_up(1), "1 flow was reset: the peer did not come back in time");
    assert_eq!(gave_up(2), "2 flows were reset: the peer did not come back in time");
}

#[test]
fn flapping_link_delivers_everything_and_keeps_no_extra_lane() {
    for seed in 0..4 {
        println!("seed {seed}");
        let (mut pair, flow, mut bytes) = under_way(seed);
        let end = pair.now + 3600 * SECOND;
        while pair.now < end {
            pair.reachable = false;
            pair.cut_all();
            let away = Now::from_millis(50 + pair.below(90_000));
            pair.pass(away);
            pair.reachable = true;
            for (side, sent) in bytes.iter_mut().enumerate() {
                let more = pair.random_bytes(3000);
                pair.send(side, flow, &more);
                sent.extend(more);
            }
            for _ in 0..=pair.below(6) {
                pair.step(2000);
            }
            let back = Now::from_millis(pair.below(20_000));
            if back > Now::from_millis(5000) {
                pair.pass(back);
            }
            assert!(pair.lanes().len() <= 6 + 2, "{} lanes", pair.lanes().len());
        }
        assert!(pair.sides[0].link.stats().resumes > 10);
        ends_right(&mut pair, flow, &bytes);
    }
}

#[test]
fn flows_survive_a_link_deaf_one_way_for_a_minute() {
    for deaf in [0, 1] {
        let (mut pair, flow, bytes) = under_way(4);
        pair.reachable = false;
        pair.lanes().into_iter().for_each(|lane| pair.block(lane, 1 - deaf, true));
        pair.pass(11 * SECOND);
        assert!(pair.lanes().is_empty(), "side {deaf} hears nothing and still holds {:?}", pair.lanes());
        pair.pass(49 * SECOND);
        pair.reachable = true;
        ends_right(&mut pair, flow, &bytes);
    }
}

#[test]
fn deaf_lanes_cost_seconds_while_others_can_be_dialled() {
    // As when a router on the way forgets its connections, but lets new ones through.
    let (mut pair, flow, bytes) = under_way(5);
    let old = pair.lanes();
    for side in [0, 1] {
        old.iter().for_each(|&lane| pair.block(lane, side, true));
    }
    pair.pass(11 * SECOND);
    assert!(pair.lanes().iter().all(|lane| !old.contains(lane)));
    ends_right(&mut pair, flow, &bytes);
}

#[test]
fn lanes_lost_at_the_dialling_end_are_dropped_at_return() {
    // As after a change of its address: it is told so on one lane after the other, and nothing of that reaches the
    // other end.
    for seed in 0..8 {
        println!("seed {seed}");
        let mut pair = Pair::new(seed);
        // Names of lanes are drawn: the new ones are above the old, or below.
        if seed % 2 == 0 {
            (pair.next_lane, pair.reachable) = (1 << 40, false);
            pair.restart(0);
            pair.reachable = true;
            pair.run();
            pair.next_lane = 1 << 20;
        }
        let flow = pair.connect(0);
        let bytes = [0, 1].map(|_| pair.random_bytes(5 << 20));
        (0..2).for_each(|side| pair.send(side, flow, &bytes[side][..1 << 20]));
        pair.step(20_000);
        let mut lanes = pair.lanes();
        pair.reachable = false;
        while !lanes.is_empty() {
            let next = pair.below(lanes.len() as u64) as usize;
            pair.cut_one(lanes.swap_remove(next), 0);
            pair.run();
        }
        assert_eq!([0, 1].map(|side| pair.sides[side].link.is_up()), [false, true]);
        pair.pass(SECOND);
        pair.reachable = true;
        (0..2).for_each(|side| pair.send(side, flow, &bytes[side][1 << 20..]));
        pair.pass(2 * SECOND);
        for side in [0, 1] {
            let got = pair.sides[1 - side].stream(flow).bytes.len();
            assert_eq!(got, 5 << 20, "bytes of side {side}");
        }
        ends_right(&mut pair, flow, &bytes);
    }
}

#[test]
fn clock_leap_of_an_hour_costs_no_flow() {
    for leaping in [&[0][..], &[1], &[0, 1]] {
        let (mut pair, flow, bytes) = under_way(6);
        leaping.iter().for_each(|&side| pair.skew[side] += 3600 * SECOND);
        ends_right(&mut pair, flow, &bytes);
    }
}

#[test]
fn clock_leap_during_an_outage_ends_flows_at_both_ends() {
    let (mut pair, flow, _) = under_way(7);
    pair.reachable = false;
    pair.cut_all();
    pair.pass(SECOND);
    // One end slept while the other waited in vain.
    pair.skew[0] += 3600 * SECOND;
    pair.pass(SECOND);
    assert_eq!(pair.sides[0].stream(flow).reset.as_deref(), Some(LOST));
    pair.reachable = true;
    pair.pass(5 * SECOND);
    assert!(pair.sides[1].stream(flow).reset.is_some());
    assert_eq!([0, 1].map(|side| pair.sides[side].link.open_flows()), [0, 0]);
}

#[test]
fn flow_given_up_by_one_end_ends_at_the_other() {
    for impatient in [0, 1] {
        let windows = [0, 1].map(|side| Now::from_secs(if side == impatient { 10 } else { 120 }));
        let [dialer, acceptor] = [(true, 1), (false, 2)].map(|(first, instance)| config(first, instance));
        let dialer = LinkConfig { resume_window: windows[0], ..dialer };
        let acceptor = LinkConfig { resume_window: windows[1], ..acceptor };
        let mut pair = Pair::with(8, dialer, acceptor);
        let flow = pair.connect(0);
        let bytes = pair.random_bytes(5000);
        pair.send(1 - impatient, flow, &bytes);
        pair.run();
        pair.reachable = false;
        pair.cut_all();
        pair.pass(60 * SECOND);
        assert!(pair.sides[impatient].stream(flow).reset.is_some());
        assert_eq!(pair.sides[1 - impatient].stream(flow).reset, None);
        pair.reachable = true;
        pair.pass(5 * SECOND);
        assert_eq!(pair.sides[1 - impatient].stream(flow).reset.as_deref(), Some(LOST));
        assert_eq!([0, 1].map(|side| pair.sides[side].link.open_flows()), [0, 0]);
        let again = pair.connect(0);
        pair.send(0, again, &bytes);
        pair.pass(SECOND);
        assert!(pair.sides[1].stream(again).bytes == bytes);
    }
}

#[test]
fn peer_restarted_during_an_outage_ends_its_flows_on_return() {
    for restarted in [0, 1] {
        let (mut pair, flow, _) = under_way(9);
        pair.reachable = false;
        pair.cut_all();
        pair.pass(30 * SECOND);
        pair.restart(restarted);
        assert_eq!(pair.sides[1 - restarted].stream(flow).reset, None);
        pair.reachable = true;
        pair.pass(SECOND);
        assert_eq!(pair.sides[1 - restarted].stream(flow).reset.as_deref(), Some("peer restarted"));
        assert_eq!(pair.sides[1 - restarted].link.open_flows(), 0);
    }
}
