//! Bytes before a reset: they come first on any lane; missing ones delay it only for a while.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;

use bytes::BytesMut;
use common::{Pair, config};
use oncewire_codec::wire::{Frame, Message, Open, Reset, Understood, take_frame};
use oncewire_link::{FlowId, LaneId, LaneRole, Link, Now, OpenRequest, Received, ResetReason};

/// Two flows of side 0, the lane of the first blocked with `bytes` on it, and the second reset behind copies of these
/// bytes.
fn blocked(seed: u64, bytes: &[u8]) -> (Pair, LaneId, [FlowId; 2]) {
    let mut pair = Pair::new(seed);
    let flows = [pair.connect(0), pair.connect(0)];
    pair.pass(Now::from_secs(1));
    let lanes = pair.lanes();
    lanes.iter().for_each(|lane| pair.block(*lane, 0, true));
    pair.send(0, flows[0], bytes);
    pair.run();
    let lane = *lanes.iter().find(|lane| pair.under_way(**lane, 0) >= bytes.len()).unwrap();
    lanes.iter().filter(|other| **other != lane).for_each(|lane| pair.block(*lane, 0, false));
    pair.send(0, flows[1], bytes);
    pair.sides[0].link.abort_flow(flows[1], ResetReason::Application, pair.now);
    pair.run();
    assert_eq!(pair.sides[1].link.stats().inbound.waited, 1, "it copies what is not there");
    assert_eq!(*pair.sides[1].stream(flows[1]), common::Stream::default());
    (pair, lane, flows)
}

#[test]
fn reset_waits_for_a_block_in_wait_of_its_source() {
    let bytes = Pair::new(1).random_bytes(10_000);
    let (mut pair, lane, flows) = blocked(21, &bytes);
    pair.block(lane, 0, false);
    pair.run();
    let stream = pair.sides[1].stream(flows[1]).clone();
    assert!(stream.bytes == bytes && stream.reset.is_some() && !stream.finished);
    pair.pass(Now::from_secs(1));
    assert_eq!([0, 1].map(|side| pair.sides[side].link.open_flows()), [1, 1]);
}

#[test]
fn reset_waits_as_long_as_a_block_of_its_flow() {
    let bytes = Pair::new(2).random_bytes(10_000);
    let (mut pair, _, flows) = blocked(22, &bytes);
    // The repairs do not come either.
    pair.lanes().into_iter().for_each(|lane| pair.block(lane, 0, true));
    pair.pass(Now::from_secs(3));
    assert_eq!(*pair.sides[1].stream(flows[1]), common::Stream::default());
    pair.lanes().into_iter().for_each(|lane| pair.block(lane, 0, false));
    pair.run();
    let stream = pair.sides[1].stream(flows[1]).clone();
    assert!(stream.bytes == bytes && stream.reset.is_some());
    pair.pass(Now::from_secs(1));
    assert_eq!(pair.sides[1].stream(flows[0]).bytes, bytes);
    assert_eq!([0, 1].map(|side| pair.sides[side].link.open_flows()), [1, 1]);
}

#[test]
fn reset_waits_for_a_link_down() {
    let bytes = Pair::new(3).random_bytes(10_000);
    let (mut pair, _, flows) = blocked(23, &bytes);
    pair.reachable = false;
    pair.cut_all();
    pair.pass(Now::from_secs(30));
    assert_eq!(*pair.sides[1].stream(flows[1]), common::Stream::default());
    pair.reachable = true;
    pair.pass(Now::from_secs(1));
    let stream = pair.sides[1].stream(flows[1]).clone();
    assert!(stream.bytes == bytes && stream.reset.is_some());
    // An end without a return in time does not keep flows.
    let (mut pair, _, flows) = blocked(24, &bytes);
    pair.reachable = false;
    pair.cut_all();
    pair.pass(Now::from_secs(180));
    assert!(pair.sides[1].stream(flows[1]).reset.is_some());
    pair.reachable = true;
    pair.pass(Now::from_secs(10));
    assert_eq!([0, 1].map(|side| pair.sides[side].link.open_flows()), [0, 0]);
}

#[test]
fn application_leaving_under_a_waiting_reset_leaves_nothing_behind() {
    let bytes = Pair::new(4).random_bytes(10_000);
    let (mut pair, lane, flows) = blocked(25, &bytes);
    pair.sides[1].link.abort_flow(flows[1], ResetReason::Application, pair.now);
    pair.pass(Now::from_secs(2));
    pair.block(lane, 0, false);
    pair.pass(Now::from_secs(2));
    assert_eq!([0, 1].map(|side| pair.sides[side].link.open_flows()), [1, 1]);
}

#[test]
fn older_peer_is_not_told_the_bytes_before_a_reset() {
    for (understands, told) in [(Understood::ALL, Some(5)), (Understood::default(), None)] {
        let mut link = Link::new(config(true, 1), Now::ZERO);
        let mut hello = Link::new(config(false, 2), Now::ZERO).hello(LaneId(1), LaneRole::Control);
        hello.understands = understands;
        link.handle_lane_up(1, &hello, LaneId(1), LaneRole::Control, true, Now::ZERO).unwrap();
        let destination = std::net::SocketAddr::from(([127, 0, 0, 1], 80)).into();
        let request = OpenRequest { destination, source: None, as_client: false, plan: None };
        let flow = link.open_flow(request, Now::ZERO).unwrap();
        link.handle_payload(flow, "hello".into(), Now::ZERO).unwrap();
        link.abort_flow(flow, ResetReason::Application, Now::ZERO);
        let mut out = Vec::new();
        while link.poll_transmit(LaneId(1), Now::ZERO, &mut out) {}
        let (mut resets, mut rest) = (Vec::new(), &out[..]);
        while let Some((kind, body, used)) = take_frame(rest).unwrap() {
            if let Frame::Message { message: Message::Reset(reset), .. } = Frame::decode(kind, body).unwrap()
            {
                resets.push(reset);
            }
            rest = &rest[used..];
        }
        assert_eq!(resets, [Reset { reason: ResetReason::Application, behind: told }]);
    }
}

#[test]
fn repeated_reset_waits_a_second_for_missing_bytes() {
    let mut link = Link::new(config(true, 1), Now::ZERO);
    let hello = Link::new(config(false, 2), Now::ZERO).hello(LaneId(1), LaneRole::Control);
    link.handle_lane_up(1, &hello, LaneId(1), LaneRole::Control, true, Now::ZERO).unwrap();
    let (flow, destination) = (FlowId(1), std::net::SocketAddr::from(([127, 0, 0, 1], 80)).into());
    let open = Open { id: 7, destination, source: None, coded: false, as_client: false, credit_shift: 0 };
    let say = |link: &mut Link, seq, message, now| {
        let mut said = Vec::new();
        Frame::Message { seq, flow, message }.encode(&mut said);
        link.handle_input(LaneId(1), &mut BytesMut::from(&said[..]), now).unwrap();
    };
    say(&mut link, 0, Message::Open(open), Now::ZERO);
    for again in 0..10 {
        let reset = Reset { reason: ResetReason::Application, behind: Some(1 << 60) };
        say(&mut link, 1 + u64::from(again), Message::Reset(reset), Now::from_millis(100) * again);
    }
    link.handle_timeout(Now::from_millis(1001));
    assert_eq!(link.poll_payload(flow, Now::ZERO), Some(Received::Reset(ResetReason::Application)));
}
