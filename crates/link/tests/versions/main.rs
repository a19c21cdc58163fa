//! One version apart: frames of older and newer gateways, by the rules of `docs/reference/spec/wire-format.md`.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

#[path = "../common/mod.rs"]
mod common;
mod recording;
mod script;

use bytes::BytesMut;
use common::{Said, config};
use oncewire_codec::contract::PeerFault;
use oncewire_codec::wire::{FIRST_OPTIONAL, Frame, Hello, VERSION, WireError};
use oncewire_link::{LaneId, LaneRole, Link, Now};
use recording::Replay;

/// A dialling link and its one lane to a peer with a hello of `version`.
fn met(version: u16) -> (Link, LaneId) {
    let peer = Link::new(config(false, 2), Now::ZERO).hello(LaneId(0), LaneRole::Control);
    let mut link = Link::new(config(true, 1), Now::ZERO);
    let said = link.hello(LaneId(1), LaneRole::Control).instance;
    let hello = Hello { version, ..peer };
    link.handle_lane_up(said, &hello, LaneId(1), LaneRole::Control, true, Now::ZERO).unwrap();
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
fn unknown_optional_frame_is_passed_over_alone() {
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
fn unknown_mandatory_frame_costs_the_lane() {
    let (mut link, lane) = met(VERSION);
    let outcome = link.handle_input(lane, &mut BytesMut::from(&[0x7f, 0][..]), Now::ZERO);
    assert_eq!(outcome, Err(PeerFault::Wire(WireError::UnknownType(0x7f))));
}

/// A session of two gateways of the first version, as its code played [`script`].
const FIRST_VERSION: &str = include_str!("version-1.txt");

/// The same of the third version.
const THIRD_VERSION: &str = include_str!("version-3.txt");

/// Checks that each side of this build can take the other's place in a recorded session.
fn interoperates(session: &str, version: u16) {
    let stages = recording::read(session);
    let (expected, _) = script::play();
    for (index, expected) in expected.iter().enumerate() {
        let replay = Replay::run(index, &stages);
        let stats = replay.side.link.stats();
        assert_eq!(stats.version, Some(version));
        assert!(replay.side.received == expected.received, "side {index}: {:?}", replay.side.notes);
        // The recorded side's acknowledgements equal this build's sent bytes.
        assert_eq!(stats.out.unacked, expected.link.stats().out.unacked, "side {index}");
        assert_eq!((stats.inbound.mismatches, stats.passed_over), (0, 0), "side {index}");
        for hello in &replay.hellos {
            // Version 1's demands on a hello: overlapping versions, and a length for all its fields.
            assert_eq!(hello[..8], *b"oncewire");
            assert!(u16::from_le_bytes([hello[10], hello[11]]) <= version);
        }
        let ours = recording::census(&replay.frames);
        let optional = ours.keys().any(|&kind| kind >= FIRST_OPTIONAL);
        assert_eq!(optional, version > 1, "{ours:?} to a peer of version {version}");
    }
}

#[test]
fn first_versions_session_continues_with_either_side_replaced() {
    interoperates(FIRST_VERSION, 1);
}

#[test]
fn third_versions_session_continues_with_either_side_replaced() {
    interoperates(THIRD_VERSION, 3);
}

/// Checks that this build's hellos are a recorded session's, byte by byte.
#[test]
fn hellos_equal_those_of_the_recorded_third_version() {
    let hellos = |stages: Vec<Vec<Said>>| -> Vec<Vec<u8>> {
        let said = stages.into_iter().flatten();
        said.filter_map(|said| if let Said::Hello { bytes, .. } = said { Some(bytes) } else { None })
            .collect()
    };
    assert_eq!(VERSION, 3, "a new version has a recording of its own");
    assert_eq!(hellos(script::play().1), hellos(recording::read(THIRD_VERSION)));
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a recording is written only when somebody asks for it")]
fn this_build_replaces_either_side_of_its_own_session() {
    let (_, stages) = script::play();
    let session = recording::write(&stages);
    interoperates(&session, VERSION);
    // The recording of a version's session: with its code, once.
    if let Some(path) = std::env::var_os("ONCEWIRE_RECORD") {
        std::fs::write(path, session).unwrap();
    }
}

#[test]
fn recorded_session_has_every_unsolicited_frame() {
    let mut said = Vec::new();
    for entry in recording::read(FIRST_VERSION).into_iter().flatten() {
        match entry {
            Said::Frames { bytes, .. } => said.extend(bytes),
            Said::Hello { bytes, .. } => {
                let (hello, _) = Hello::decode(&bytes).unwrap().unwrap();
                assert_eq!((hello.version, hello.oldest), (1, 1));
            }
            Said::Cut(_) => {}
        }
    }
    let types: Vec<u8> = recording::census(&said).into_keys().collect();
    assert_eq!(types, [0x10, 0x11, 0x12, 0x13, 0x20, 0x24, 0x25, 0x26, 0x30, 0x31, 0x32, 0x33]);
}
