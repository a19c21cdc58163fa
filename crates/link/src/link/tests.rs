//! The link with its parts.

use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use oncewire_codec::wire::ResetReason;

use super::*;
use crate::event::OpenRequest;

/// Twice the time of a spare lane without use.
const LATER: Now = Now::from_secs(120);

#[test]
fn queue_of_flows_ended_by_applications_goes_with_the_peer() {
    let config = |first| LinkConfig { instance: u64::from(first), first, ..LinkConfig::default() };
    let mut link = Link::new(config(true), Now::ZERO);
    let (lane, role) = (LaneId(1), LaneRole::Control);
    let hello = Link::new(config(false), Now::ZERO).hello(lane, role);
    link.handle_lane_up(1, &hello, lane, role, true, Now::ZERO).unwrap();
    let destination = SocketAddr::from(([127, 0, 0, 1], 80)).into();
    let request = OpenRequest { destination, source: None, as_client: false, plan: None };
    let flow = link.open_flow(request, Now::ZERO).unwrap();
    let room = |link: &Link| link.flows.get(flow).unwrap().out.room(1 << 20);
    let empty = room(&link);
    link.handle_payload(flow, Bytes::from(vec![7; 100_000]), Now::ZERO).unwrap();
    link.handle_lane_lost(lane, Now::ZERO);
    link.abort_flow(flow, ResetReason::Application, Now::ZERO);
    assert_eq!(link.poll_timeout(), Some(link.config.resume_window));
    link.handle_timeout(link.config.resume_window / 2);
    assert_eq!(room(&link), empty - 100_000);
    link.handle_timeout(link.config.resume_window);
    assert_eq!(room(&link), empty);
    assert_eq!(link.poll_timeout(), None, "there is nothing left to give up");
}

#[test]
fn lanes_for_crowded_flows_are_not_closed_and_redialled() {
    let config = |first| LinkConfig {
        instance: u64::from(first),
        first,
        dialer: first,
        spare_lanes: 1,
        max_lanes: 8,
        ..LinkConfig::default()
    };
    let mut link = Link::new(config(true), Now::ZERO);
    let meet = |link: &mut Link, lane: u64, role| {
        let hello = Link::new(config(false), Now::ZERO).hello(LaneId(lane), role);
        link.handle_lane_up(1, &hello, LaneId(lane), role, true, Now::ZERO).unwrap();
    };
    meet(&mut link, 1, LaneRole::Control);
    meet(&mut link, 2, LaneRole::Flow);
    for _ in 0..5 {
        let destination = SocketAddr::from(([127, 0, 0, 1], 80)).into();
        let request = OpenRequest { destination, source: None, as_client: false, plan: None };
        let flow = link.open_flow(request, Now::ZERO).unwrap();
        link.handle_payload(flow, Bytes::from_static(b"not acknowledged"), Now::ZERO).unwrap();
    }
    (1..3).for_each(|lane| while link.poll_transmit(LaneId(lane), Now::ZERO, &mut Vec::new()) {});
    (3..8).for_each(|lane| meet(&mut link, lane, LaneRole::Flow));
    for lane in 1..8 {
        let mut heard = Vec::new();
        Frame::Ping(1).encode(&mut heard);
        link.handle_input(LaneId(lane), &mut BytesMut::from(&heard[..]), LATER).unwrap();
    }
    link.handle_timeout(LATER);
    let events: Vec<Event> = std::iter::from_fn(|| link.poll_event()).collect();
    assert!(!events.iter().any(|event| matches!(event, Event::CloseLane(..))), "{events:?}");
    assert_eq!(link.stats().lanes, 7);
}
