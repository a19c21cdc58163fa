//! How many bytes all flows of a link hold together.

mod common;

use bytes::{Bytes, BytesMut};
use common::{Pair, config};
use oncewire_codec::wire::{Block, BlockBody, Frame, Message, Open, Understood};
use oncewire_link::{FlowId, LaneId, LaneRole, Link, LinkConfig, Now, OpenRequest};

const MIB: u64 = 1 << 20;
const BLOCK: usize = 64 << 10;
/// The least queue of each flow, among any number.
const LEAST_QUEUE: u64 = 16 << 10;

fn destination() -> std::net::SocketAddr {
    ([127, 0, 0, 1], 80).into()
}

/// Gives a flow the bytes of an application with endless writes.
fn fill(link: &mut Link, flow: FlowId, now: Now) {
    let mut room = 1;
    while room > 0 {
        let bytes = Bytes::from(vec![7; link.read_size(flow)]);
        room = link.handle_payload(flow, bytes, now).expect("the flow is there");
    }
}

#[test]
fn unacknowledged_bytes_stay_within_the_budget() {
    let ours = LinkConfig { flow_memory: 16 * MIB, ..config(true, 1) };
    let beside = ours.log_capacity / 4;
    let mut link = Link::new(ours, Now::ZERO);
    let (lane, role) = (LaneId(1), LaneRole::Control);
    let mut hello = Link::new(config(false, 2), Now::ZERO).hello(lane, role);
    hello.initial_credit = 1 << 40;
    link.handle_lane_up(1, &hello, lane, role, true, Now::ZERO).unwrap();
    let flow = LaneId(2);
    link.handle_lane_up(1, &hello, flow, LaneRole::Flow, true, Now::ZERO).unwrap();
    let flows: Vec<FlowId> = (0..20)
        .map(|_| {
            let destination = destination().into();
            let request = OpenRequest { destination, source: None, as_client: false, plan: None };
            link.open_flow(request, Now::ZERO).unwrap()
        })
        .collect();
    let mut sent = 0;
    loop {
        flows.iter().for_each(|flow| fill(&mut link, *flow, Now::ZERO));
        let mut out = Vec::new();
        for lane in [lane, flow] {
            while link.poll_transmit(lane, Now::ZERO, &mut out) {}
        }
        let most = 16 * MIB + beside + flows.len() as u64 * (LEAST_QUEUE + BLOCK as u64) + MIB;
        let taken = link.stats().flow_bytes;
        assert!(taken <= most, "{taken} B");
        if out.is_empty() {
            break;
        }
        sent += out.len();
    }
    assert!(sent as u64 >= 7 * MIB, "only {sent} B crossed");
}

#[test]
fn first_credits_without_division_stay_within_the_budget() {
    const FLOWS: u32 = 2000;
    let ours = LinkConfig { flow_memory: 16 * MIB, ..config(true, 1) };
    let mut link = Link::new(ours, Now::ZERO);
    let (lane, role) = (LaneId(1), LaneRole::Control);
    let mut hello = Link::new(config(false, 2), Now::ZERO).hello(lane, role);
    hello.understands = Understood::default();
    link.handle_lane_up(1, &hello, lane, role, true, Now::ZERO).unwrap();
    let (mut seq, mut most) = (0, 0);
    let block = vec![7; BLOCK];
    for flow in (0..FLOWS).map(|flow| FlowId(2 * flow + 1)) {
        let mut said = Vec::new();
        let destination = destination().into();
        let open = Open { id: 7, destination, source: None, coded: false, as_client: false, credit_shift: 0 };
        Frame::Message { seq, flow, message: Message::Open(open) }.encode(&mut said);
        let (plain_len, body) = (BLOCK, BlockBody::Uncoded(&block));
        let block = Block { seq: seq + 1, flow, offset: 0, plain_len, fin: false, resent: false, body };
        Frame::Block(block).encode(&mut said);
        link.handle_input(lane, &mut BytesMut::from(&said[..]), Now::ZERO).unwrap();
        seq += 2;
        most = most.max(link.stats().flow_bytes);
        // It is acknowledged in any case.
        while link.poll_transmit(lane, Now::ZERO, &mut Vec::new()) {}
    }
    let stats = link.stats();
    assert!(most <= 16 * MIB + 48 * MIB, "{most} B");
    let held = most / BLOCK as u64;
    assert!((256..=1024).contains(&held), "{held} flows");
    assert!(stats.flows_overrun >= u64::from(FLOWS) - held - 1, "{}", stats.flows_overrun);
}

#[test]
fn stalled_flows_hold_little_each_and_another_goes_on() {
    const FLOWS: u64 = 600;
    let ours = |first: bool| LinkConfig { flow_memory: 4 * MIB, ..config(first, if first { 1 } else { 2 }) };
    let mut pair = Pair::with(11, ours(true), ours(false));
    let stalled: Vec<FlowId> = (0..FLOWS)
        .map(|_| {
            let flow = pair.connect(0);
            pair.sides[1].stalled.push(flow);
            flow
        })
        .collect();
    // Both directions, until nothing moves any more.
    pair.sides[0].stalled.clone_from(&stalled);
    for _ in 0..3 {
        for side in [0, 1] {
            let now = pair.clock(side);
            stalled.iter().for_each(|flow| {
                fill(&mut pair.sides[side].link, *flow, now);
            });
        }
        pair.run();
    }
    // First credits: 64 flows at 64 KiB, and half as much in all for each doubling.
    let credits = 4 * MIB + 4 * 2 * MIB;
    for side in [0, 1] {
        let held = pair.sides[side].link.stats().flow_bytes;
        let most = 4 * MIB + credits + FLOWS * (8 << 10) + MIB;
        assert!(held <= most, "{held} B at {side}");
    }
    for side in [0, 1] {
        let flow = pair.connect(side);
        let bytes = pair.random_bytes(300_000);
        for part in bytes.chunks(4 << 10) {
            pair.send(side, flow, part);
            pair.run();
        }
        pair.pass(Now::from_secs(1));
        assert!(pair.sides[1 - side].stream(flow).bytes == bytes, "it goes on beside them");
    }
    // Once they are read, all comes.
    (0..2).for_each(|side| pair.sides[side].stalled.clear());
    for _ in 0..50 {
        for side in [0, 1] {
            stalled.iter().for_each(|flow| pair.read(side, *flow));
        }
        pair.pass(Now::from_millis(200));
    }
    for side in [0, 1] {
        for flow in &stalled {
            let sent = pair.sides[1 - side].link.flow(*flow).unwrap().sent;
            assert_eq!(pair.sides[side].stream(*flow).bytes.len() as u64, sent);
        }
    }
    pair.sides.iter().for_each(|side| assert_eq!(side.link.stats().flow_bytes, 0));
}
