//! An end without new flows: its notice, the peer's reaction, and its end.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;

use bytes::BytesMut;
use common::{Pair, config};
use oncewire_codec::wire::{Frame, Message, OpenFailure, Understood, VERSION, take_frame};
use oncewire_link::{
    Destination, Event, FlowId, Hello, LaneId, LaneRole, Link, Now, OpenRefused, OpenRequest, Received,
};

const CONTROL: LaneId = LaneId(1);

/// A link's bytes on a lane.
fn said(link: &mut Link, lane: LaneId) -> Vec<u8> {
    let mut out = Vec::new();
    while link.poll_transmit(lane, Now::ZERO, &mut out) {}
    out
}

/// The number of draining notices in these bytes.
fn news(bytes: &[u8]) -> usize {
    let (mut count, mut rest) = (0, bytes);
    while let Some((kind, body, used)) = take_frame(rest).unwrap() {
        count += usize::from(Frame::decode(kind, body).unwrap() == Frame::Draining);
        rest = &rest[used..];
    }
    count
}

/// The answers to opens among these bytes.
fn answers(bytes: &[u8]) -> Vec<Result<(), OpenFailure>> {
    let (mut found, mut rest) = (Vec::new(), bytes);
    while let Some((kind, body, used)) = take_frame(rest).unwrap() {
        if let Frame::Message { message: Message::Opened(answer), .. } = Frame::decode(kind, body).unwrap() {
            found.push(answer.map(drop));
        }
        rest = &rest[used..];
    }
    found
}

fn hello(instance: u64) -> Hello {
    Link::new(config(false, instance), Now::ZERO).hello(LaneId(0), LaneRole::Control)
}

fn meet(link: &mut Link, lane: LaneId, hello: &Hello) {
    let said = link.hello(lane, LaneRole::Control).instance;
    link.handle_lane_up(said, hello, lane, LaneRole::Control, true, Now::ZERO).unwrap();
}

fn request() -> OpenRequest {
    let destination = Destination::from(std::net::SocketAddr::from(([127, 0, 0, 1], 80)));
    OpenRequest { destination, source: None, as_client: false, plan: None }
}

#[test]
fn notice_comes_once_and_again_on_a_new_control_lane() {
    let mut link = Link::new(config(true, 1), Now::ZERO);
    meet(&mut link, CONTROL, &hello(2));
    assert_eq!(news(&said(&mut link, CONTROL)), 0);
    link.drain();
    link.drain();
    assert_eq!(news(&said(&mut link, CONTROL)), 1);
    meet(&mut link, LaneId(2), &hello(2));
    assert_eq!(news(&said(&mut link, CONTROL)) + news(&said(&mut link, LaneId(2))), 1);
    // And to a peer met only now.
    meet(&mut link, LaneId(3), &hello(3));
    assert_eq!(news(&said(&mut link, LaneId(3))), 1);
}

#[test]
fn a_peer_of_version_1_is_not_told() {
    let mut link = Link::new(config(true, 1), Now::ZERO);
    meet(&mut link, CONTROL, &Hello { version: 1, ..hello(2) });
    link.drain();
    assert_eq!(news(&said(&mut link, CONTROL)), 0);
}

#[test]
fn open_flows_go_on_and_no_new_one_opens() {
    let mut pair = Pair::new(1);
    let flow = pair.connect(0);
    pair.sides[1].link.drain();
    pair.run();
    let link = &mut pair.sides[0].link;
    assert!(link.is_up() && !link.takes_flows() && link.stats().peer_drains);
    assert_eq!(link.open_flow(request(), Now::from_secs(100)), Err(OpenRefused::PeerDrains));
    assert_eq!(pair.sides[1].link.open_flow(request(), Now::from_secs(100)), Err(OpenRefused::Draining));
    pair.send(0, flow, b"still");
    pair.send(1, flow, b"here");
    pair.run();
    assert_eq!(pair.sides[1].stream(flow).bytes, b"still");
    assert_eq!(pair.sides[0].stream(flow).bytes, b"here");
}

#[test]
fn restarted_peer_takes_flows_again_and_an_absent_one_not() {
    let mut pair = Pair::new(2);
    pair.sides[1].link.drain();
    pair.run();
    pair.reachable = false;
    pair.cut_all();
    assert!(pair.sides[0].link.peer_drains() && !pair.sides[0].link.is_up());
    pair.reachable = true;
    pair.run();
    assert!(pair.sides[0].link.is_up() && !pair.sides[0].link.takes_flows());
    pair.restart(1);
    assert!(pair.sides[0].link.takes_flows());
    pair.connect(0);
}

#[test]
fn open_under_way_is_turned_back_and_is_news() {
    let mut pair = Pair::new(3);
    let flow = pair.open(0);
    // The draining side's words on the control lane arrive later than the answer.
    let control = pair.lanes()[0];
    pair.sides[1].link.drain();
    pair.block(control, 1, true);
    pair.send(0, flow, b"early");
    pair.run();
    assert!(pair.sides[1].offered.is_empty() && pair.sides[1].link.flow(flow).is_none());
    assert_eq!(pair.sides[0].stream(flow).opened, Some(false));
    assert!(!pair.sides[0].link.takes_flows());
    pair.block(control, 1, false);
    pair.run();
    assert!(pair.sides.iter().all(|side| side.link.open_flows() == 0));
}

/// Has a draining link be asked for a flow by a peer with this hello; returns its answers.
fn asked(link: &mut Link, hello: &Hello) -> Vec<Result<(), OpenFailure>> {
    meet(link, CONTROL, hello);
    link.drain();
    let mut peer = Link::new(config(false, hello.instance), Now::ZERO);
    meet(&mut peer, CONTROL, &link.hello(CONTROL, LaneRole::Control));
    peer.open_flow(request(), Now::ZERO).unwrap();
    let open = said(&mut peer, CONTROL);
    link.handle_input(CONTROL, &mut BytesMut::from(&open[..]), Now::ZERO).unwrap();
    answers(&said(link, CONTROL))
}

#[test]
fn refusal_is_translated_for_an_older_peer() {
    let mut link = Link::new(config(true, 1), Now::ZERO);
    assert_eq!(asked(&mut link, &hello(2)), [Err(OpenFailure::Draining)]);
    let mut link = Link::new(config(true, 1), Now::ZERO);
    let older = Hello { understands: Understood::default(), ..hello(2) };
    assert_eq!(older.version, VERSION);
    assert_eq!(asked(&mut link, &older), [Err(OpenFailure::Other)]);
}

#[test]
fn earlier_offer_is_answered_in_words_of_the_peer() {
    for (understands, told) in
        [(Understood::ALL, OpenFailure::Draining), (Understood::default(), OpenFailure::Other)]
    {
        let mut link = Link::new(config(true, 1), Now::ZERO);
        meet(&mut link, CONTROL, &Hello { understands, ..hello(2) });
        let mut peer = Link::new(config(false, 2), Now::ZERO);
        meet(&mut peer, CONTROL, &link.hello(CONTROL, LaneRole::Control));
        let flow = peer.open_flow(request(), Now::ZERO).unwrap();
        let open = said(&mut peer, CONTROL);
        link.handle_input(CONTROL, &mut BytesMut::from(&open[..]), Now::ZERO).unwrap();
        link.drain();
        link.answer_flow(flow, Err(OpenFailure::Draining), Now::ZERO);
        let answer = said(&mut link, CONTROL);
        assert_eq!(answers(&answer), [Err(told)]);
        peer.handle_input(CONTROL, &mut BytesMut::from(&answer[..]), Now::ZERO).unwrap();
        assert_eq!(received(&mut peer, flow), Some(Received::Opened(Err(told))));
        assert_eq!(std::iter::from_fn(|| peer.poll_event()).filter(|it| *it == Event::PeerDrains).count(), 1);
    }
}

fn received(link: &mut Link, flow: FlowId) -> Option<Received> {
    link.poll_payload(flow, Now::ZERO)
}
