//! Frames with much work for few bytes: taken in turns, and charged for.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;

use bytes::BytesMut;
use common::config;
use oncewire_codec::entropy::{Compressor, Entropy, Kind, Mode};
use oncewire_codec::wire::{Block, BlockBody, Body, Digest, FlowId, Frame, MAX_BLOCK};
use oncewire_link::{LaneId, LaneRole, Link, Now, ProtocolError, Turn};

const LANE: LaneId = LaneId(1);

/// A link with a lane.
fn link() -> Link {
    let mut link = Link::new(config(true, 1), Now::ZERO);
    let hello = Link::new(config(false, 2), Now::ZERO).hello(LANE, LaneRole::Control);
    link.handle_lane_up(1, &hello, LANE, LaneRole::Control, true, Now::ZERO).unwrap();
    link
}

/// Blocks of 64 KiB in few bytes, with wrong digests.
fn wrong(seqs: std::ops::Range<u64>, resent: bool) -> BytesMut {
    let (mut bytes, mut input) = (Vec::new(), Vec::new());
    let plain = vec![0; MAX_BLOCK];
    assert!(Compressor::new(Entropy::Zstd(1), 0).compress(Mode::Alone, &plain, &mut bytes));
    for seq in seqs {
        let body = BlockBody::Coded(Body {
            epoch: 1,
            start: 1 << 20,
            remembered: false,
            keep: false,
            names: Vec::new(),
            digest: Digest::Fast(0),
            tokens: None,
            literals: MAX_BLOCK,
            entropy: Some((Kind::Zstd, Mode::Alone)),
            bytes: &bytes,
        });
        let (flow, plain_len) = (FlowId(1), MAX_BLOCK);
        Frame::Block(Block { seq, flow, offset: 0, plain_len, fin: false, resent, body }).encode(&mut input);
    }
    BytesMut::from(&input[..])
}

#[test]
fn much_work_for_few_bytes_is_divided_and_charged() {
    for count in [100, 1000] {
        let (mut link, mut input) = (link(), wrong(0..count, false));
        assert!(input.len() < 100 * count as usize);
        let (mut turns, mut excess) = (0, 0);
        loop {
            let before = input.len();
            let turn = link.handle_some_input(LANE, &mut input, Now::ZERO).unwrap();
            turns += 1;
            excess += turn.excess;
            assert!(before - input.len() < 50 * 100, "{} bytes in a turn", before - input.len());
            if !turn.more {
                break;
            }
        }
        assert!(input.is_empty());
        assert!(turns >= count / 50, "{turns} turns for {count} blocks");
        assert!(excess >= 2000 * count, "{excess} steps for {count} blocks");
    }
}

#[test]
fn rest_of_a_turn_is_taken_by_handle_input() {
    let (mut link, mut input) = (link(), wrong(0..200, false));
    link.handle_input(LANE, &mut input, Now::ZERO).unwrap();
    assert!(input.is_empty());
    assert_eq!(link.stats().inbound.mismatches, 200);
    assert_eq!(link.handle_some_input(LANE, &mut input, Now::ZERO), Ok(Turn::default()));
}

#[test]
fn lane_with_repeatedly_wrong_blocks_ends() {
    let mut link = link();
    link.handle_input(LANE, &mut wrong(0..1, false), Now::ZERO).unwrap();
    let again = |link: &mut Link| link.handle_input(LANE, &mut wrong(0..1, true), Now::ZERO);
    let taken = (0..1000).take_while(|_| again(&mut link).is_ok()).count();
    assert!((4..100).contains(&taken), "{taken}");
    let next = (0..1000).find_map(|_| again(&mut link).err());
    assert_eq!(next, Some(ProtocolError::NeverRight { seq: 0 }));
}
