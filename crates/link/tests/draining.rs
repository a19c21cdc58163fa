//! An end that takes no new flows: what it says, what the other makes of it, and when that is over.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;

use bytes::BytesMut;
use common::{Pair, config};
use oncewire_codec::wire::{Frame, Message, OpenFailure, Understood, VERSION, take_frame};
use oncewire_link::{
    Destination, Event, FlowId, Hello, LaneId, LaneRole, Link, Now, OpenRefused, OpenRequest, Received,
};

const CONTROL: LaneId = LaneId(1);

/// What a link sends on a lane.
fn said(link: &mut Link, lane: LaneId) -> Vec<u8> {
    let mut out = Vec::new();
    while link.poll_transmit(lane, Now::ZERO, &mut out) {}
    out
}

/// How often these bytes say that no flows are taken.
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
fn it_is_said_once_and_again_on_a_new_control_lane() {
    let mut link = Link::new(config(true, 1), Now::ZERO);
    meet(&mut link, CONTROL, &hello(2));
    assert_eq!(news(&said(&mut link, CONTROL)), 0);
    link.drain();
    link.drain();
    assert_eq!(news(&said(&mut link, CONTROL)), 1);
    meet(&mut link, LaneId(2), &hello(2));
    assert_eq!(news(&said(&mut link, CONTROL)) + news(&said(&mut link, LaneId(2))), 1);
    // And to a peer that comes only now.
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
fn flows_that_are_open_go_on_and_no_new_one_is_opened() {
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
fn a_peer_that_comes_anew_takes_flows_again_and_one_that_is_only_away_does_not() {
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
fn an_open_that_was_under_way_is_turned_back_and_is_news_by_itself() {
    let mut pair = Pair::new(3);
    let flow = pair.open(0);
    // What the draining side says on the control lane arrives later than the answer.
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

/// Has a link that drains be asked for a flow by a peer with this hello; returns its answers.
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
fn a_peer_that_does_not_understand_why_is_told_what_it_understands() {
    let mut link = Link::new(config(true, 1), Now::ZERO);
    assert_eq!(asked(&mut link, &hello(2)), [Err(OpenFailure::Draining)]);
    let mut link = Link::new(config(true, 1), Now::ZERO);
    let older = Hello { understands: Understood::default(), ..hello(2) };
    assert_eq!(older.version, VERSION);
    assert_eq!(asked(&mut link, &older), [Err(OpenFailure::Other)]);
}

#[test]
fn a_flow_that_was_offered_before_is_answered_in_words_that_the_peer_understands() {
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
