//! One version apart: what an older or newer gateway says is understood, passed over or refused by the rule in
//! `docs/spec/wire-format.md`.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;

use bytes::BytesMut;
use common::config;
use oncewire_codec::contract::PeerFault;
use oncewire_codec::wire::{Frame, Hello, VERSION, WireError};
use oncewire_link::{LaneId, LaneRole, Link, Now};

/// A dialling link and its one lane to a peer whose hello is of `version`.
fn met(version: u16) -> (Link, LaneId) {
    let peer = Link::new(config(false, 2), Now::ZERO).hello(LaneId(0), LaneRole::Control);
    let mut link = Link::new(config(true, 1), Now::ZERO);
    link.handle_lane_up(&Hello { version, ..peer }, LaneId(1), LaneRole::Control, Now::ZERO).unwrap();
    (link, LaneId(1))
}

#[test]
fn the_smaller_of_both_newest_versions_is_spoken() {
    for (theirs, spoken) in [(1, 1), (VERSION, VERSION), (VERSION + 1, VERSION)] {
        let (link, _) = met(theirs);
        assert_eq!(link.stats().version, Some(spoken));
    }
}

#[test]
fn an_unknown_optional_frame_is_passed_over_and_what_follows_it_is_not() {
    let (mut link, lane) = met(VERSION);
    let mut input = BytesMut::from(&[0x80, 0, 0xff, 3, 1, 2, 3][..]);
    let mut ping = Vec::new();
    Frame::Ping(7).encode(&mut ping);
    input.extend_from_slice(&ping);
    link.handle_input(lane, &mut input, Now::ZERO).unwrap();
    assert!(input.is_empty());
    assert_eq!(link.stats().passed_over, 2);
    let mut answer = Vec::new();
    link.poll_transmit(lane, Now::ZERO, &mut answer);
    let mut pong = Vec::new();
    Frame::Pong(7).encode(&mut pong);
    assert!(answer.starts_with(&pong), "{answer:?}");
}

#[test]
fn an_unknown_frame_that_is_not_optional_costs_the_lane() {
    let (mut link, lane) = met(VERSION);
    let outcome = link.handle_input(lane, &mut BytesMut::from(&[0x7f, 0][..]), Now::ZERO);
    assert_eq!(outcome, Err(PeerFault::Wire(WireError::UnknownType(0x7f))));
}
