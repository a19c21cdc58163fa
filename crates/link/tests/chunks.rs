//! Named chunks between two links, in order and under faults.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on is to fail there")]

mod common;

use std::collections::BTreeMap;

use bytes::Bytes;
use common::store::naming;
use common::{Pair, Said, config};
use oncewire_codec::entropy::Entropy;
use oncewire_codec::wanax::hints::save_by;
use oncewire_codec::wire::{Frame, LaneRole, Understood, take_frame};
use oncewire_codec::{Layers, Plan};
use oncewire_link::{
    FlowId, LaneId, Link, LinkConfig, Now, ResetReason, StoreReply, StoreRequest, StoreState,
};

/// A pair with a store at side 1, and one flow from side 0 with names and without the log.
fn pair() -> (Pair, FlowId) {
    of(config(true, 1), config(false, 2))
}

fn of(dialer: LinkConfig, acceptor: LinkConfig) -> (Pair, FlowId) {
    let dialer = LinkConfig { initial_credit: 1 << 20, ..naming(dialer, None) };
    let acceptor = LinkConfig { initial_credit: 1 << 20, ..naming(acceptor, Some(77)) };
    let mut pair = Pair::with(1, dialer, acceptor);
    pair.plan = Plan { layers: Layers::Names, ..Plan::default() };
    let flow = pair.connect(0);
    (pair, flow)
}

/// Sends bytes and lets everything arrive; returns the number of frames of each kind of interest: blocks with names,
/// blocks without, requests for chunks, chunks, and other requests.
fn send(pair: &mut Pair, flow: FlowId, bytes: &[u8]) -> [usize; 5] {
    pair.said.clear();
    pair.send(0, flow, bytes);
    pair.pass(Now::from_millis(30));
    census(pair)
}

fn census(pair: &Pair) -> [usize; 5] {
    let mut counts = [0; 5];
    for said in &pair.said {
        let Said::Frames { bytes, .. } = said else { continue };
        let mut rest = &bytes[..];
        while let Some((kind, body, used)) = take_frame(rest).unwrap() {
            let index = match Frame::decode(kind, body).unwrap() {
                Frame::Block(block) => Some(usize::from(!block.has_names())),
                Frame::ChunkRequest(_) => Some(2),
                Frame::Chunks(_) => Some(3),
                Frame::Need(_) | Frame::Refetch(_) => Some(4),
                _ => None,
            };
            index.into_iter().for_each(|index| counts[index] += 1);
            rest = &rest[used..];
        }
    }
    counts
}

/// Checks that all sent bytes, and nothing else, have arrived.
fn arrived(pair: &mut Pair, flow: FlowId, sent: &[&Vec<u8>]) {
    let sent: Vec<u8> = sent.iter().flat_map(|bytes| bytes.iter().copied()).collect();
    assert!(pair.sides[1].stream(flow).bytes == sent, "not what was sent");
    assert_eq!(pair.sides[0].link.stats().out.unacked, 0);
}

#[test]
fn wrong_prediction_takes_one_round_trip_and_right_none() {
    let (mut pair, flow) = pair();
    // One block.
    let file = pair.random_bytes(14_000);
    assert_eq!(send(&mut pair, flow, &file), [0, 1, 0, 0, 0]);
    let before = pair.sides[0].link.stats().out;
    assert_eq!(send(&mut pair, flow, &file), [1, 0, 0, 0, 0]);
    let after = pair.sides[0].link.stats().out;
    assert_eq!((after.names.bytes - before.names.bytes, after.absent), (14_000, 0));
    pair.sides[1].chunks.clear();
    assert_eq!(send(&mut pair, flow, &file), [1, 0, 1, 1, 0]);
    assert_eq!(pair.sides[0].link.stats().out.chunk_bytes_sent, 14_000);
    arrived(&mut pair, flow, &[&file; 3]);
}

/// The lanes of side 0's frames accepted by `is_so`, and their lengths.
fn lanes_of(pair: &Pair, is_so: impl Fn(&Frame<'_>) -> bool) -> Vec<(LaneId, usize)> {
    let mut lanes = Vec::new();
    for said in &pair.said {
        let Said::Frames { side: 0, lane, bytes } = said else { continue };
        let mut rest = &bytes[..];
        while let Some((kind, body, used)) = take_frame(rest).unwrap() {
            lanes.extend(Some((*lane, used)).filter(|_| is_so(&Frame::decode(kind, body).unwrap())));
            rest = &rest[used..];
        }
    }
    lanes
}

/// The lanes of chunks, and the bytes on each.
fn chunk_lanes(pair: &Pair) -> BTreeMap<LaneId, usize> {
    let mut lanes = BTreeMap::new();
    for (lane, bytes) in lanes_of(pair, |frame| matches!(frame, Frame::Chunks(_))) {
        *lanes.entry(lane).or_default() += bytes;
    }
    lanes
}

/// The lanes of names.
fn naming_lanes(pair: &Pair) -> Vec<LaneId> {
    let named = lanes_of(pair, |frame| matches!(frame, Frame::Block(block) if block.has_names()));
    named.into_iter().map(|(lane, _)| lane).collect()
}

#[test]
fn missing_chunk_comes_on_the_lane_of_its_name() {
    let (mut pair, flow) = pair();
    let file = pair.random_bytes(14_000);
    send(&mut pair, flow, &file);
    pair.sides[1].chunks.clear();
    send(&mut pair, flow, &file);
    assert_eq!(chunk_lanes(&pair).into_keys().collect::<Vec<_>>(), naming_lanes(&pair));
    // It may break before they are there.
    pair.sides[1].chunks.clear();
    pair.said.clear();
    pair.send(0, flow, &file);
    while pair.sides[0].link.stats().out.absent < 2 {
        assert!(pair.step(usize::MAX), "it is asked for");
    }
    pair.cut(naming_lanes(&pair)[0]);
    pair.pass(Now::from_secs(1));
    arrived(&mut pair, flow, &[&file; 3]);
}

#[test]
fn missed_chunk_is_stored_and_missed_only_once() {
    let (mut pair, flow) = pair();
    let file = pair.random_bytes(14_000);
    let mut edited = file.clone();
    edited.splice(5000..5010, *b"and something else");
    send(&mut pair, flow, &file);
    pair.sides[1].chunks.clear();
    assert_eq!(send(&mut pair, flow, &file), [1, 0, 1, 1, 0]);
    // All of it, for the smaller chunks within the named ones are there again, too.
    assert_eq!(send(&mut pair, flow, &file), [1, 0, 0, 0, 0]);
    assert_eq!(send(&mut pair, flow, &edited), [1, 0, 0, 0, 0]);
    arrived(&mut pair, flow, &[&file, &file, &file, &edited]);
    assert_eq!(pair.sides[0].link.stats().out.chunk_bytes_sent, 14_000);
}

#[test]
fn new_part_of_a_block_crosses_between_names() {
    let (mut pair, flow) = pair();
    let file = pair.random_bytes(14_000);
    let mut edited = file.clone();
    edited.splice(5000..5010, *b"and something else");
    send(&mut pair, flow, &file);
    assert_eq!(send(&mut pair, flow, &edited), [1, 0, 0, 0, 0]);
    assert_eq!(send(&mut pair, flow, &edited), [1, 0, 0, 0, 0]);
    let stats = pair.sides[0].link.stats().out;
    assert!(stats.names.bytes > 26_000 && stats.names.count > 3, "{:?}", stats.names);
    arrived(&mut pair, flow, &[&file, &edited, &edited]);
}

#[test]
fn log_comes_first_and_the_store_for_the_rest() {
    let (mut pair, _) = pair();
    pair.plan.layers = Layers::Both;
    let flow = pair.connect(0);
    let file = pair.random_bytes(14_000);
    send(&mut pair, flow, &file);
    assert_eq!(send(&mut pair, flow, &file), [0, 1, 0, 0, 0]);
    assert!(pair.sides[0].link.stats().out.copied > 13_000);
    // No noise, for it would push the repeats out.
    let filler: Vec<u8> = pair.random_bytes(1 << 20).iter().map(|byte| byte & 15).collect();
    // With more in flight at once not all would be remembered.
    filler.chunks(1 << 17).for_each(|part| {
        send(&mut pair, flow, part);
    });
    assert_eq!(send(&mut pair, flow, &file), [1, 0, 0, 0, 0]);
    arrived(&mut pair, flow, &[&file, &file, &filler, &file]);
}

#[test]
fn hanging_disk_delays_its_block_for_a_while_only() {
    let (mut pair, flow) = pair();
    let other = pair.connect(0);
    let (file, new) = (pair.random_bytes(14_000), pair.random_bytes(3000));
    let others = pair.random_bytes(3000);
    send(&mut pair, flow, &file);
    pair.sides[1].holds_reads = true;
    pair.send(0, flow, &file);
    pair.send(0, flow, &new);
    pair.send(0, other, &others);
    pair.run();
    assert!(pair.sides[1].stream(other).bytes == others);
    assert_eq!(pair.sides[1].stream(flow).bytes.len(), file.len());
    pair.pass(Now::from_secs(5));
    arrived(&mut pair, flow, &[&file, &file, &new]);
    let stats = pair.sides[1].link.stats().inbound.chunks;
    assert_eq!((stats.late, stats.hits.count, stats.absent), (stats.names.count, 0, 0));
    // Later answers belong to nobody.
    let now = pair.now;
    while pair.sides[1].answer_read(now) {}
    pair.run();
    arrived(&mut pair, flow, &[&file, &file, &new]);
}

#[test]
fn block_copying_from_a_fetched_one_waits_without_a_request() {
    let (mut pair, flow) = pair();
    let file = pair.random_bytes(14_000);
    send(&mut pair, flow, &file);
    // Named now, and remembered in the log.
    pair.plan.layers = Layers::Both;
    let both = pair.connect(0);
    let now = pair.now;
    pair.sides[1].link.handle_store_state(
        StoreState {
            queued: 100,
            service_time: Now::from_secs(1),
            age_secs: 1000,
            taking: true,
            ..StoreState::default()
        },
        now,
    );
    pair.sides[1].holds_reads = true;
    pair.said.clear();
    pair.send(0, both, &file);
    pair.run();
    pair.send(0, both, &file);
    pair.pass(Now::from_secs(20));
    assert_eq!(pair.sides[1].link.stats().inbound.waited, 1);
    assert_eq!(census(&pair)[2..], [0, 0, 0]);
    pair.sides[1].holds_reads = false;
    pair.pass(Now::from_millis(30));
    arrived(&mut pair, flow, &[&file]);
    arrived(&mut pair, both, &[&file, &file]);
}

#[test]
fn chunks_and_requests_lost_with_their_lanes_come_again() {
    for lost in 0..4 {
        let (mut pair, flow) = pair();
        let file = pair.random_bytes(14_000);
        send(&mut pair, flow, &file);
        pair.sides[1].chunks.clear();
        let lanes: Vec<LaneId> = pair.lanes();
        // Requests go one way, chunks the other.
        let way = usize::from(lost % 2 == 0);
        pair.send(0, flow, &file);
        pair.step(usize::MAX);
        lanes.iter().for_each(|&lane| pair.block(lane, way, true));
        pair.run();
        match lost / 2 {
            0 => pair.cut_all(),
            _ => lanes.into_iter().for_each(|lane| pair.cut(lane)),
        }
        pair.pass(Now::from_secs(120));
        arrived(&mut pair, flow, &[&file; 2]);
    }
}

#[test]
fn nothing_is_pending_while_the_link_is_down() {
    let (mut pair, flow) = pair();
    let file = pair.random_bytes(14_000);
    send(&mut pair, flow, &file);
    pair.sides[1].chunks.clear();
    pair.lanes().into_iter().for_each(|lane| pair.block(lane, 1, true));
    pair.send(0, flow, &file);
    pair.run();
    assert_eq!(pair.sides[1].link.chunks_pending(), 14_000);
    pair.reachable = false;
    pair.cut_all();
    assert_eq!(pair.sides[1].link.chunks_pending(), 0);
    pair.reachable = true;
    pair.pass(Now::from_secs(1));
    assert_eq!(pair.sides[1].link.chunks_pending(), 0);
    arrived(&mut pair, flow, &[&file; 2]);
}

/// As [`send`], with a store that reads nothing: all named chunks are requested.
fn send_to_busy_store(pair: &mut Pair, flow: FlowId, bytes: &[u8]) {
    pair.said.clear();
    pair.sides[1].holds_reads = true;
    pair.send(0, flow, bytes);
    pair.run();
    while let Some(StoreRequest::Read { ticket, .. }) = pair.sides[1].reads.pop_front() {
        let now = pair.now;
        pair.sides[1].link.handle_store(StoreReply::Busy { ticket }, now);
        pair.run();
    }
}

#[test]
fn chunks_come_on_their_flows_lane_beside_full_repairs() {
    for rate_limit in [None, Some(1_000_000_000)] {
        let limited = |config| LinkConfig { rate_limit, ..config };
        let (mut pair, flow) = of(limited(config(true, 1)), limited(config(false, 2)));
        let files = [14_000, 700_000].map(|len| pair.random_bytes(len));
        for file in &files {
            send_file(&mut pair, flow, file);
        }
        send_to_busy_store(&mut pair, flow, &files[0]);
        let usual: Vec<LaneId> = chunk_lanes(&pair).into_keys().collect();
        assert_eq!(usual.len(), 1, "there is a lane for repairs");
        pair.block(usual[0], 0, true);
        send_to_busy_store(&mut pair, flow, &files[1]);
        let lanes = chunk_lanes(&pair);
        if rate_limit.is_some() {
            assert_eq!(lanes.into_keys().collect::<Vec<_>>(), usual, "no lane brings them sooner");
        } else {
            let other: usize =
                lanes.iter().filter(|(lane, _)| **lane != usual[0]).map(|(_, bytes)| bytes).sum();
            assert!(lanes.len() == 2 && other > 300_000, "{other} bytes elsewhere, {lanes:?}");
        }
        pair.block(usual[0], 0, false);
        pair.pass(Now::from_secs(5));
        arrived(&mut pair, flow, &[&files[0], &files[1], &files[0], &files[1]]);
    }
}

#[test]
fn new_process_goes_on_with_saved_hints() {
    let (mut pair, flow) = pair();
    let file = pair.random_bytes(14_000);
    send(&mut pair, flow, &file);
    let saved = save_by(|at| pair.sides[0].link.save_hints(at));
    assert!(saved.is_some());
    pair.sides[0].config.names.as_mut().unwrap().saved = saved;
    pair.restart(0);
    pair.pass(Now::from_millis(30));
    let flow = pair.connect(0);
    assert_eq!(send(&mut pair, flow, &file), [1, 0, 0, 0, 0]);
    // Damaged ones are left aside, with an event.
    pair.sides[0].config.names.as_mut().unwrap().saved = Some(b"damaged".to_vec());
    pair.restart(0);
    pair.pass(Now::from_millis(30));
    let flow = pair.connect(0);
    assert_eq!(send(&mut pair, flow, &file), [0, 1, 0, 0, 0]);
    assert!(pair.sides[0].notes.iter().any(|note| note.contains("hints")), "{:?}", pair.sides[0].notes);
}

#[test]
fn peer_with_another_store_gets_no_unknown_names() {
    let (mut pair, flow) = pair();
    let file = pair.random_bytes(14_000);
    send(&mut pair, flow, &file);
    for store in [Some(78), None] {
        pair.sides[1].config.store = store;
        pair.restart(1);
        pair.pass(Now::from_millis(30));
        let flow = pair.connect(0);
        assert_eq!(send(&mut pair, flow, &file), [0, 1, 0, 0, 0]);
    }
}

#[test]
fn peer_without_names_hears_nothing_of_a_store() {
    let mut pair = Pair::with(1, config(true, 1), naming(config(false, 2), Some(77)));
    let flow = pair.connect(0);
    pair.said.clear();
    let (now, state) = (pair.now, StoreState { age_secs: 5, taking: true, ..StoreState::default() });
    pair.sides[1].link.handle_store_state(state, now);
    pair.send(0, flow, b"bytes");
    pair.pass(Now::from_secs(1));
    let said = pair.said.iter().filter_map(|said| match said {
        Said::Frames { bytes, .. } => Some(bytes),
        _ => None,
    });
    for bytes in said {
        let mut rest = &bytes[..];
        while let Some((kind, _, used)) = take_frame(rest).unwrap() {
            assert!(!(0x27..=0x29).contains(&kind), "frame {kind:#x}");
            rest = &rest[used..];
        }
    }
}

#[test]
fn store_out_of_use_is_named_nothing_until_its_return() {
    let (mut pair, flow) = pair();
    let file = pair.random_bytes(14_000);
    send(&mut pair, flow, &file);
    pair.pass(Now::from_secs(100));
    // A gateway's state while the store is being opened, or its disk hangs.
    let now = pair.now;
    pair.sides[1].link.handle_store_state(StoreState::default(), now);
    pair.pass(Now::from_millis(30));
    assert_eq!(send(&mut pair, flow, &file), [0, 1, 0, 0, 0]);
    let (now, state) = (pair.now, StoreState { age_secs: 1000, taking: true, ..StoreState::default() });
    pair.sides[1].link.handle_store_state(state, now);
    pair.pass(Now::from_millis(30));
    assert_eq!(send(&mut pair, flow, &file), [1, 0, 0, 0, 0]);
    arrived(&mut pair, flow, &[&file; 3]);
}

#[test]
fn evicted_chunk_is_not_named() {
    let (mut pair, flow) = pair();
    let file = pair.random_bytes(14_000);
    send(&mut pair, flow, &file);
    let state = |age_secs, taking| StoreState { age_secs, taking, ..StoreState::default() };
    pair.pass(Now::from_secs(100));
    let now = pair.now;
    pair.sides[1].link.handle_store_state(state(200, true), now);
    assert_eq!(send(&mut pair, flow, &file), [1, 0, 0, 0, 0]);
    let now = pair.now;
    pair.sides[1].link.handle_store_state(state(20, true), now);
    pair.run();
    assert_eq!(send(&mut pair, flow, &file), [0, 1, 0, 0, 0]);
    assert_eq!(send(&mut pair, flow, &file), [1, 0, 0, 0, 0]);
    // A closed store is given nothing, and nothing new is named to it.
    let now = pair.now;
    pair.sides[1].link.handle_store_state(state(0, false), now);
    pair.run();
    let (other, before) = (pair.random_bytes(14_000), pair.sides[1].link.stats().inbound.chunks);
    assert_eq!(send(&mut pair, flow, &other), [0, 1, 0, 0, 0]);
    assert_eq!(send(&mut pair, flow, &other), [0, 1, 0, 0, 0]);
    let after = pair.sides[1].link.stats().inbound.chunks;
    assert_eq!((after.put, after.not_put), (before.put, 0));
}

#[test]
fn emptied_store_is_soon_no_longer_believed() {
    let (mut pair, flow) = pair();
    let pieces: Vec<Vec<u8>> = (0..40).map(|_| pair.random_bytes(30_000)).collect();
    let all = |pair: &mut Pair| {
        pieces.iter().for_each(|piece| {
            send(pair, flow, piece);
        });
    };
    let asked = |pair: &Pair| pair.sides[1].link.stats().inbound.chunks.requested_bytes;
    all(&mut pair);
    pair.sides[1].chunks.clear();
    all(&mut pair);
    let before = asked(&pair);
    assert!((100_000..300_000).contains(&before), "{before} of 1,200,000 bytes");
    // Repeated chunks are there again: once some names were right, all count.
    (0..4).for_each(|_| all(&mut pair));
    let named = pair.sides[0].link.stats().out.names.bytes;
    all(&mut pair);
    assert!(pair.sides[0].link.stats().out.names.bytes - named > 1_190_000);
    assert_eq!(asked(&pair), before);
    let sent: Vec<&Vec<u8>> = (0..7).flat_map(|_| &pieces).collect();
    arrived(&mut pair, flow, &sent);
}

/// Sends a file as a gateway does, and lets it arrive; returns the bytes of all frames from the sending side.
fn send_file(pair: &mut Pair, flow: FlowId, file: &[u8]) -> usize {
    pair.said.clear();
    let end = pair.sides[1].stream(flow).bytes.len() + file.len();
    for piece in file.chunks(READ) {
        let (bytes, now) = (Bytes::copy_from_slice(piece), pair.now);
        let mut room = pair.sides[0].link.handle_payload(flow, bytes, now).unwrap();
        while room == 0 {
            pair.pass(Now::from_millis(5));
            room = pair.sides[0].link.handle_payload(flow, Bytes::new(), pair.now).unwrap();
        }
    }
    while pair.sides[1].stream(flow).bytes.len() < end {
        pair.pass(Now::from_millis(50));
    }
    let frames = pair.said.iter().filter_map(|said| match said {
        Said::Frames { side: 0, bytes, .. } => Some(bytes.len()),
        _ => None,
    });
    frames.sum()
}

/// A gateway's read size.
const READ: usize = 64 << 10;

#[test]
fn repeated_file_under_a_limit_saves_as_without() {
    for rate in [512_000, 20_000_000, 1_000_000_000] {
        for layers in [Layers::Names, Layers::Both] {
            let limited = |config| LinkConfig { rate_limit: Some(rate), ..config };
            let (mut pair, _) = of(limited(config(true, 1)), limited(config(false, 2)));
            pair.plan = Plan { layers, entropy: Entropy::None, ..Plan::default() };
            let flow = pair.connect(0);
            // More than the log holds.
            let file = pair.random_bytes(1_500_000);
            send_file(&mut pair, flow, &file);
            pair.pass(Now::from_secs(1));
            let mut again = || {
                let sent = send_file(&mut pair, flow, &file);
                pair.pass(Now::from_secs(1));
                sent
            };
            let sent = [again(), again()];
            let is_little = |&sent: &usize| sent < file.len() / 160;
            assert!(sent.iter().all(is_little), "{rate} bit/s, {layers:?}: {sent:?} bytes");
            arrived(&mut pair, flow, &[&file; 3]);
        }
    }
}

/// A block of parts is put as a whole: its new part is no chunk of its own, unlike that of a short block.
#[test]
fn new_bytes_between_parts_are_not_believed_stored() {
    let limited = |config| LinkConfig { rate_limit: Some(512_000), ..config };
    let (mut pair, _) = of(limited(config(true, 1)), limited(config(false, 2)));
    pair.plan = Plan { layers: Layers::Names, entropy: Entropy::None, ..Plan::default() };
    let flow = pair.connect(0);
    let file = pair.random_bytes(1_000_000);
    let mut edited = file.clone();
    for at in (10_000..file.len()).step_by(70_000) {
        edited[at..at + 2000].copy_from_slice(&pair.random_bytes(2000));
    }
    for (file, most) in [(&file, 1_020_000), (&edited, 150_000), (&edited, 10_000), (&edited, 5000)] {
        let sent = send_file(&mut pair, flow, file);
        assert!(sent < most, "{sent} of {most}");
        pair.pass(Now::from_secs(1));
        assert_eq!(pair.sides[0].link.stats().out.absent, 0);
    }
    arrived(&mut pair, flow, &[&file, &edited, &edited, &edited]);
}

#[test]
fn short_names_are_taken_with_a_store() {
    let takes = |store| {
        let config = naming(LinkConfig { instance: 1, ..LinkConfig::default() }, store);
        Link::new(config, Now::ZERO).hello(LaneId(0), LaneRole::Control).short_names_below
    };
    assert_eq!([takes(None), takes(Some(1))], [0, 16 << 10]);
}

#[test]
fn nothing_is_named_to_a_peer_with_other_tags() {
    for tags_of_48_bits in [true, false] {
        let (mut pair, _) = pair();
        pair.understands = Understood { tags_of_48_bits, ..Understood::ALL };
        pair.restart(0);
        let flow = pair.connect(0);
        let file = pair.random_bytes(14_000);
        send(&mut pair, flow, &file);
        let [named, ..] = send(&mut pair, flow, &file);
        assert_eq!(named > 0, tags_of_48_bits);
        arrived(&mut pair, flow, &[&file; 2]);
    }
}

/// Has a neighbour ask for three seconds for each read of side 1.
fn wait_for_neighbour(pair: &mut Pair) {
    let now = pair.now;
    (0..300).for_each(|ticket| pair.sides[1].link.handle_store_wait(ticket, Now::from_secs(3), now));
}

#[test]
fn reset_waits_for_a_neighbours_extended_read() {
    let (mut pair, flow) = pair();
    let file = pair.random_bytes(14_000);
    send(&mut pair, flow, &file);
    let second = pair.connect(0);
    pair.pass(Now::from_millis(100));
    pair.sides[1].holds_reads = true;
    pair.send(0, second, &file);
    pair.run();
    wait_for_neighbour(&mut pair);
    pair.sides[0].link.abort_flow(second, ResetReason::Application, pair.now);
    pair.pass(Now::from_millis(2500));
    assert!(pair.sides[1].stream(second).reset.is_none());
    let now = pair.now;
    while pair.sides[1].answer_read(now) {}
    pair.run();
    let stream = pair.sides[1].stream(second).clone();
    assert!(stream.bytes == file && stream.reset.is_some());
    assert_eq!(pair.sides[1].link.stats().inbound.chunks.late, 0);
}

#[test]
fn neighbours_extra_time_survives_further_planning_of_the_block() {
    let (mut pair, flow) = pair();
    let (file, fresh) = (pair.random_bytes(14_000), pair.random_bytes(14_000));
    send(&mut pair, flow, &file);
    let (new, other) = (pair.connect(0), pair.connect(0));
    pair.pass(Now::from_millis(300));
    // The new part is stuck on its lane, so the names of it wait.
    let lanes = pair.lanes();
    lanes.iter().for_each(|lane| pair.block(*lane, 0, true));
    pair.send(0, new, &fresh);
    pair.run();
    let lane = *lanes.iter().find(|lane| pair.under_way(**lane, 0) >= fresh.len()).unwrap();
    lanes.iter().filter(|other| **other != lane).for_each(|lane| pair.block(*lane, 0, false));
    pair.sides[1].holds_reads = true;
    let both = [&file[..], &fresh[..]].concat();
    pair.send(0, other, &both);
    pair.run();
    assert!(pair.sides[1].link.stats().inbound.chunks.waited > 0);
    wait_for_neighbour(&mut pair);
    pair.said.clear();
    pair.block(lane, 0, false);
    pair.pass(Now::from_millis(2500));
    assert_eq!((census(&pair)[2], pair.sides[1].link.stats().inbound.chunks.late), (0, 0));
    pair.sides[1].holds_reads = false;
    pair.pass(Now::from_millis(30));
    assert!(pair.sides[1].stream(other).bytes == both);
}
