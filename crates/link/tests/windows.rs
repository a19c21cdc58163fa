//! How much the peer may send before it is read.

mod common;

use bytes::BytesMut;
use common::{Pair, config};
use oncewire_codec::wire::{Block, BlockBody, Frame, Message, Open};
use oncewire_link::{FlowId, LaneId, LaneRole, Link, LinkConfig, Now, Received};

/// More than any flow begins with.
const FILE: usize = 5 << 20;

/// The largest first window.
const LEARNED: u64 = 4 << 20;

/// The window of a flow with a read.
const EARLY: u64 = 2 << 20;

/// Connects, and sends a file to an application with reads of the first bytes only; returns the delivered bytes.
fn sent_unread(pair: &mut Pair, opener: usize, sender: usize, read: usize) -> (FlowId, u64) {
    let flow = pair.connect(opener);
    let bytes = pair.random_bytes(FILE);
    pair.send(sender, flow, &bytes[..read]);
    pair.pass(Now::from_secs(1));
    pair.sides[1 - sender].stalled.push(flow);
    pair.send(sender, flow, &bytes[read..]);
    pair.pass(Now::from_secs(1));
    (flow, pair.sides[sender].link.flow(flow).map_or(0, |stats| stats.sent))
}

/// Sends a file to a reading application.
fn transfer(pair: &mut Pair, sender: usize) {
    let flow = pair.connect(0);
    let bytes = pair.random_bytes(FILE);
    pair.send(sender, flow, &bytes);
    pair.pass(Now::from_secs(1));
    assert!(pair.sides[1 - sender].stream(flow).bytes == bytes);
    (0..2).for_each(|side| pair.sides[side].link.finish_flow(flow, pair.now));
    pair.pass(Now::from_secs(1));
    assert!(pair.sides[1 - sender].link.flow(flow).is_none());
}

fn with(flow_memory: u64) -> Pair {
    let config = |first: bool| LinkConfig {
        flow_memory,
        max_credit: LinkConfig::default().max_credit,
        ..config(first, if first { 1 } else { 2 })
    };
    Pair::with(5, config(true), config(false))
}

#[test]
fn flow_begins_with_the_window_another_needed() {
    for (opener, sender) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        println!("opened by {opener}, sent by {sender}");
        let mut pair = with(256 << 20);
        let initial = pair.sides[0].config.initial_credit;
        let eighth = initial as usize / 8;
        assert_eq!(sent_unread(&mut pair, opener, sender, 0).1, initial);
        assert_eq!(sent_unread(&mut pair, opener, sender, eighth - 1).1, initial, "it may be a few words");
        assert_eq!(sent_unread(&mut pair, opener, sender, eighth).1, EARLY);
        transfer(&mut pair, sender);
        let (flow, sent) = sent_unread(&mut pair, opener, sender, 0);
        // The opener said so with the open; the other end waits for more than a few words.
        assert_eq!(sent, if opener == sender { initial } else { LEARNED });
        assert_eq!(sent_unread(&mut pair, opener, sender, eighth).1, LEARNED);
        assert_eq!(
            sent_unread(&mut pair, opener, 1 - sender, 0).1,
            initial,
            "nothing was needed the other way"
        );
        pair.sides[1 - sender].stalled.clear();
        pair.read(1 - sender, flow);
        pair.pass(Now::from_secs(1));
        assert_eq!(pair.sides[1 - sender].stream(flow).bytes.len(), FILE);
        pair.pass(Now::from_secs(1300));
        assert_eq!(sent_unread(&mut pair, opener, sender, 0).1, initial, "it was long ago");
    }
}

#[test]
fn large_beginnings_leave_most_memory_for_growth() {
    let initial = config(true, 1).initial_credit;
    let mut pair = with(40 << 20);
    transfer(&mut pair, 1);
    let sent: Vec<u64> = (0..4).map(|_| sent_unread(&mut pair, 0, 1, 0).1).collect();
    assert_eq!(sent, [LEARNED, LEARNED, initial, initial]);
    let eighth = initial as usize / 8;
    let sent: Vec<u64> = (0..2).map(|_| sent_unread(&mut pair, 0, 1, eighth).1).collect();
    assert_eq!(sent, [EARLY, initial], "two megabytes are left of the quarter");
}

#[test]
fn grant_ahead_of_its_flow_is_repeated() {
    for seed in 0..4 {
        println!("seed {seed}");
        let mut pair = with(256 << 20);
        transfer(&mut pair, 1);
        pair.rng = rand_pcg::rand_core::SeedableRng::seed_from_u64(seed);
        let flow = pair.open(0);
        // The open is lost with its lane, and comes by another one.
        let moves = pair.below(6);
        for _ in 0..moves {
            pair.step(40);
        }
        for lane in pair.lanes() {
            if pair.below(2) == 0 {
                pair.cut(lane);
            }
        }
        pair.pass(Now::from_secs(60));
        assert_eq!(pair.sides[1].offered.pop_back(), Some(flow));
        let now = pair.clock(1);
        pair.sides[1].link.answer_flow(flow, Ok(([127, 0, 0, 1], 5).into()), now);
        let bytes = pair.random_bytes(FILE);
        pair.send(1, flow, &bytes);
        pair.pass(Now::from_secs(60));
        assert!(pair.sides[0].stream(flow).bytes == bytes);
    }
}

#[test]
fn slow_reader_behind_a_fast_shell_is_not_waiting() {
    for quick_at_first in [false, true] {
        let mut pair = with(512 << 20);
        let flow = pair.connect(0);
        let bytes = pair.random_bytes(FILE);
        if quick_at_first {
            pair.send(1, flow, &bytes[..100_000]);
            pair.pass(Now::from_secs(1));
        }
        // From here on the shell takes more than its application.
        pair.sides[0].stalled.push(flow);
        let taken = pair.sides[0].stream(flow).bytes.len() as u64;
        let (mut sent, mut consumed) = (taken, taken);
        for _ in 0..1500 {
            if pair.sides[1].link.flow(flow).is_some_and(|stats| stats.unacked < 256 << 10) {
                pair.send(1, flow, &bytes[..64 << 10]);
            }
            pair.pass(Now::from_millis(100));
            while let Some(received) = pair.sides[0].link.poll_payload(flow, pair.now) {
                let Received::Data(bytes) = received else { panic!("{received:?}") };
                sent += bytes.len() as u64;
            }
            let takes = (sent - consumed).min(10_000);
            consumed += takes;
            pair.sides[0].link.handle_consumed(flow, takes as usize, pair.now);
            assert!(sent - consumed <= EARLY, "{} B wait for their reader", sent - consumed);
        }
        assert!(consumed > 12 << 20, "{consumed} B");
    }
}

#[test]
fn one_byte_blocks_wait_together_in_bounded_number() {
    const BLOCKS: usize = 256 << 10;
    for first in [0, 1] {
        let mut link = Link::new(LinkConfig { initial_credit: 1 << 20, ..config(true, 1) }, Now::ZERO);
        let (lane, flow) = (LaneId(1), FlowId(1));
        let hello = Link::new(config(false, 2), Now::ZERO).hello(lane, LaneRole::Control);
        link.handle_lane_up(1, &hello, lane, LaneRole::Control, true, Now::ZERO).unwrap();
        let destination = std::net::SocketAddr::from(([127, 0, 0, 1], 80)).into();
        let open = Message::Open(Open {
            id: 7,
            destination,
            source: None,
            coded: false,
            as_client: false,
            credit_shift: 0,
        });
        let mut say = |frame: Frame<'_>| {
            let mut said = Vec::new();
            frame.encode(&mut said);
            link.handle_input(lane, &mut BytesMut::from(&said[..]), Now::ZERO)
        };
        say(Frame::Message { seq: 0, flow, message: open }).unwrap();
        let taken = (0..BLOCKS).take_while(|n| {
            let (offset, body) = ((first + n) as u64, BlockBody::Uncoded(b"x"));
            let (seq, plain_len, fin, resent) = (1 + *n as u64, 1, false, false);
            say(Frame::Block(Block { seq, flow, offset, plain_len, fin, resent, body })).is_ok()
        });
        let taken = taken.count();
        let mut waiting = Vec::new();
        while let Some(Received::Data(bytes)) = link.poll_payload(flow, Now::ZERO) {
            waiting.push(bytes.len());
        }
        match first {
            0 => assert_eq!((taken, waiting.iter().sum()), (BLOCKS, BLOCKS)),
            _ => assert_eq!((taken, waiting.len()), (16 << 10, 0)),
        }
        assert!(waiting.len() <= 2 + BLOCKS / 4096, "{} pieces", waiting.len());
    }
}
