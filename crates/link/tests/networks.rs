//! Announced networks: complete, repeated, and never out of date.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;

use bytes::BytesMut;
use common::config;
use oncewire_codec::wire::{Frame, Networks, VERSION, take_frame};
use oncewire_link::{Event, Hello, LaneId, LaneRole, Link, MAX_NETWORKS, Network, Now};

const CONTROL: LaneId = LaneId(1);

fn network(text: &str) -> Network {
    text.parse().unwrap()
}

/// A dialling link.
fn link() -> Link {
    Link::new(config(true, 1), Now::ZERO)
}

/// The hello of a peer of this instance and version.
fn hello(instance: u64, version: u16) -> Hello {
    let hello = Link::new(config(false, instance), Now::ZERO).hello(LaneId(0), LaneRole::Control);
    Hello { version, ..hello }
}

fn meet(link: &mut Link, lane: LaneId, role: LaneRole, hello: &Hello) {
    let said = link.hello(lane, role).instance;
    link.handle_lane_up(said, hello, lane, role, true, Now::ZERO).unwrap();
}

/// The link's announcements on a lane.
fn told(link: &mut Link, lane: LaneId) -> Vec<Networks> {
    let mut out = Vec::new();
    while link.poll_transmit(lane, Now::ZERO, &mut out) {}
    let (mut told, mut rest) = (Vec::new(), &out[..]);
    while let Some((kind, body, used)) = take_frame(rest).unwrap() {
        if let Frame::Networks(networks) = Frame::decode(kind, body).unwrap() {
            told.push(networks);
        }
        rest = &rest[used..];
    }
    told
}

fn hear(link: &mut Link, serial: u64, networks: Vec<Network>) {
    let mut input = Vec::new();
    Frame::Networks(Networks { serial, networks }).encode(&mut input);
    link.handle_input(CONTROL, &mut BytesMut::from(&input[..]), Now::ZERO).unwrap();
}

/// The link's events on the peer's networks since the last call.
fn announced(link: &mut Link) -> Vec<Vec<Network>> {
    let mut all = Vec::new();
    while let Some(event) = link.poll_event() {
        if let Event::Announced(networks) = event {
            all.push(networks);
        }
    }
    all
}

#[test]
fn networks_are_repeated_on_a_new_control_lane() {
    let mut link = link();
    let ten = vec![network("10.0.0.0/8")];
    link.announce(ten.clone());
    meet(&mut link, CONTROL, LaneRole::Control, &hello(2, VERSION));
    let first = told(&mut link, CONTROL);
    assert_eq!(first, [Networks { serial: 2, networks: ten.clone() }]);
    assert_eq!(told(&mut link, CONTROL), [], "once is enough");
    meet(&mut link, LaneId(2), LaneRole::Control, &hello(2, VERSION));
    let again = [told(&mut link, CONTROL), told(&mut link, LaneId(2))].concat();
    assert_eq!(again, first);
}

#[test]
fn change_is_announced_at_once_and_repetition_is_not() {
    let mut link = link();
    meet(&mut link, CONTROL, LaneRole::Control, &hello(2, VERSION));
    assert_eq!(told(&mut link, CONTROL), [Networks { serial: 1, networks: vec![] }]);
    link.announce(vec![network("10.0.0.0/8")]);
    link.announce(vec![network("10.0.0.0/8"), network("2001:db8::/32")]);
    assert_eq!(
        told(&mut link, CONTROL),
        [Networks { serial: 3, networks: vec![network("10.0.0.0/8"), network("2001:db8::/32")] }],
        "only the last counts"
    );
    link.announce(vec![network("10.0.0.0/8"), network("2001:db8::/32")]);
    assert_eq!(told(&mut link, CONTROL), []);
}

#[test]
fn highest_number_counts_in_any_order() {
    let mut link = link();
    meet(&mut link, CONTROL, LaneRole::Control, &hello(2, VERSION));
    let (old, new) = (vec![network("10.0.0.0/8")], vec![network("10.1.0.0/16")]);
    hear(&mut link, 3, new.clone());
    hear(&mut link, 2, old);
    hear(&mut link, 3, new.clone());
    assert_eq!(announced(&mut link), [new]);
}

#[test]
fn new_process_counts_anew_after_its_first_word() {
    let mut link = link();
    meet(&mut link, CONTROL, LaneRole::Control, &hello(2, VERSION));
    hear(&mut link, 9, vec![network("10.0.0.0/8")]);
    assert_eq!(announced(&mut link).len(), 1);
    link.handle_lane_lost(CONTROL, Now::ZERO);
    meet(&mut link, CONTROL, LaneRole::Control, &hello(3, VERSION));
    assert_eq!(announced(&mut link), Vec::<Vec<Network>>::new());
    hear(&mut link, 1, vec![]);
    assert_eq!(announced(&mut link), [vec![]]);
}

#[test]
fn peer_of_version_1_is_told_nothing_and_fronts_nothing() {
    let mut link = link();
    link.announce(vec![network("10.0.0.0/8")]);
    meet(&mut link, CONTROL, LaneRole::Control, &hello(2, 1));
    assert_eq!(told(&mut link, CONTROL), []);
    assert_eq!(announced(&mut link), [vec![]]);
}

#[test]
fn no_more_is_announced_than_a_peer_takes() {
    let mut link = link();
    link.announce((0..=255).chain(0..=255).map(|at| network(&format!("10.0.{at}.0/24"))).collect());
    meet(&mut link, CONTROL, LaneRole::Control, &hello(2, VERSION));
    assert_eq!(told(&mut link, CONTROL)[0].networks.len(), MAX_NETWORKS);
}
