//! Frames between members of a trust group.

mod common;

use bytes::Bytes;
use common::{Pair, config};
use oncewire_codec::wanax::{NameKey, NamesConfig, Shape};
use oncewire_codec::wire::{GroupFrame, Load, MAX_BLOCK};
use oncewire_codec::{Layers, Plan};
use oncewire_link::{LaneId, LaneRole, LinkConfig, Now};

/// The settings of an end in the group of a key, if any.
fn naming(first: bool, group: Option<u8>) -> LinkConfig {
    let names = NamesConfig {
        key: NameKey::new([1 + u8::from(first); 32]),
        group: group.map(|key| NameKey::new([key; 32])),
        shape: Shape::default(),
        hint_memory: 1 << 20,
        saved: None,
        clock_secs: 0,
    };
    LinkConfig { names: Some(names), ..config(first, 2 - u64::from(first)) }
}

fn load(queued: u32) -> GroupFrame {
    GroupFrame::Load(Load { queued, ..Load::default() })
}

fn put(first: u8) -> GroupFrame {
    GroupFrame::Put { shape: Shape::default(), bytes: Bytes::from(vec![first; MAX_BLOCK]) }
}

#[test]
fn members_hear_each_other_in_order_beside_flows() {
    let mut pair = Pair::with(1, naming(true, Some(7)), naming(false, Some(7)));
    let flow = pair.connect(0);
    let bytes = pair.random_bytes(300_000);
    pair.send(0, flow, &bytes);
    assert!(pair.sides.iter().all(|side| side.link.is_of_group()));
    for n in 0..20 {
        assert!(pair.sides[0].link.tell_group(load(n.into())).is_ok());
        assert!(pair.sides[0].link.tell_group(put(n)).is_ok());
    }
    assert!(pair.sides[1].link.tell_group(load(99)).is_ok());
    pair.pass(Now::from_secs(1));
    assert_eq!(pair.sides[1].stream(flow).bytes, bytes);
    let (puts, loads): (Vec<_>, Vec<_>) =
        pair.sides[1].heard.iter().cloned().partition(GroupFrame::is_content);
    assert_eq!(loads, (0..20).map(load).collect::<Vec<_>>());
    assert_eq!(puts, (0..20).map(put).collect::<Vec<_>>());
    assert_eq!(pair.sides[0].heard, [load(99)]);
}

/// Whether each end of a pair takes the other for one of its group; words to others are passed over.
fn members(mut pair: Pair) -> [bool; 2] {
    pair.connect(0);
    let told = [0, 1].map(|side| pair.sides[side].link.tell_group(load(1)).is_ok());
    assert_eq!(told, [0, 1].map(|side| pair.sides[side].link.is_of_group()));
    pair.pass(Now::from_secs(1));
    for (side, told) in pair.sides.iter().zip([told[1], told[0]]) {
        let heard = side.heard.len() as u64;
        assert_eq!(heard + side.link.stats().passed_over, u64::from(told));
        assert!(heard == 0 || side.link.is_of_group());
    }
    told
}

#[test]
fn only_peers_with_the_group_key_are_members() {
    for (other, is_member) in [
        (naming(false, Some(7)), true),
        (naming(false, Some(8)), false),
        (naming(false, None), false),
        (config(false, 2), false),
    ] {
        let pair = Pair::with(1, naming(true, Some(7)), other);
        assert_eq!(members(pair), [is_member; 2]);
    }
}

#[test]
fn peer_without_proof_is_no_member() {
    for proves in [[true, false], [false, true], [false, false]] {
        let pair = Pair::proving(1, naming(true, Some(7)), naming(false, Some(7)), proves);
        // The shell reports its checks; here each end goes by the other's proof alone.
        assert_eq!(members(pair), [proves[1], proves[0]]);
    }
}

#[test]
fn hello_never_carries_the_group_name_key() {
    let group = NameKey::new([7; 32]);
    let mut pair = Pair::with(1, naming(true, Some(7)), naming(false, Some(7)));
    pair.connect(0);
    for side in &pair.sides {
        assert!(side.link.is_of_group());
        let said = side.link.hello(LaneId(1), LaneRole::Control).names.unwrap();
        assert_ne!(said.key, group);
    }
}

/// Sends a file twice on one link, the second time past the log; returns the plain bytes behind names.
fn named_the_second_time(pair: &mut Pair) -> u64 {
    pair.plan = Plan { layers: Layers::Names, ..Plan::default() };
    let file = pair.random_bytes(100_000);
    for _ in 0..2 {
        let flow = pair.connect(0);
        pair.send(0, flow, &file);
        pair.pass(Now::from_secs(1));
        assert!(pair.sides[1].stream(flow).bytes == file);
    }
    pair.sides[0].link.stats().out.names.bytes
}

#[test]
fn peer_without_proof_is_still_named_its_own_chunks() {
    // Both ends of a lane come to the same view: each proves if it would accept a proof.
    for proves in [[true; 2], [false; 2]] {
        let store = LinkConfig { store: Some(77), ..naming(false, Some(7)) };
        let mut pair = Pair::proving(1, naming(true, Some(7)), store, proves);
        let named = named_the_second_time(&mut pair);
        assert!(named > 90_000, "{proves:?}: {named}");
        let key = if proves == [true; 2] { [7; 32] } else { [2; 32] };
        let (chunks, key) = (&pair.sides[1].chunks, NameKey::new(key));
        assert!(!chunks.is_empty() && chunks.iter().all(|(tag, chunk)| key.tag(chunk) == *tag));
    }
}

#[test]
fn queue_is_bounded_and_forgotten_with_the_last_lane() {
    let mut pair = Pair::with(1, naming(true, Some(7)), naming(false, Some(7)));
    pair.connect(0);
    let mut taken = |frame: &GroupFrame| {
        let is_taken = |_: &usize| pair.sides[0].link.tell_group(frame.clone()).is_ok();
        (0..1_000_000).filter(is_taken).count()
    };
    // Urgent frames have room in spite of a full queue.
    let chunk = GroupFrame::Chunk { request: 1, bytes: Some(Bytes::from(vec![1; MAX_BLOCK])) };
    let full = [(put(1), 4 << 20), (chunk, 7 << 20), (load(1), 8 << 20)];
    let mut waiting = 0;
    for (frame, most) in &full {
        let count = taken(frame);
        assert_eq!(count, (most - waiting) / frame.size(), "{most}");
        waiting += count * frame.size();
    }
    assert!(full.iter().all(|(frame, _)| taken(frame) == 0));
    pair.reachable = false;
    pair.cut_all();
    assert!(!pair.sides[0].link.is_of_group() && pair.sides[0].link.tell_group(load(1)).is_err());
    pair.reachable = true;
    pair.pass(Now::from_secs(5));
    assert!(pair.sides[0].link.is_of_group());
    assert!(pair.sides[0].link.tell_group(load(2)).is_ok());
    pair.pass(Now::from_secs(1));
    assert_eq!(pair.sides[1].heard, [load(2)]);
}

#[test]
fn content_at_one_gateway_is_named_to_its_neighbour() {
    let start = |seed| {
        let store = LinkConfig { store: Some(77), ..naming(false, Some(7)) };
        let mut pair = Pair::with(seed, naming(true, Some(7)), store);
        pair.plan = Plan { layers: Layers::Names, ..Plan::default() };
        let flow = pair.connect(0);
        (pair, flow)
    };
    let (mut first, flow) = start(1);
    let file = first.random_bytes(100_000);
    first.send(0, flow, &file);
    first.pass(Now::from_secs(1));
    let stored = std::mem::take(&mut first.sides[0].stored);
    assert!(stored.len() > 100, "{}", stored.len());
    // Its neighbour is sent the file with 40 bytes changed in each 10,000.
    let mut edited = file.clone();
    edited.chunks_mut(10_000).for_each(|part| part[5_000..5_040].fill(7));
    let named = |learns: bool| {
        let (mut second, flow) = start(2);
        let now = second.clock(0);
        if learns {
            second.sides[0].link.learn_stored(&stored, now);
        }
        second.send(0, flow, &edited);
        second.pass(Now::from_secs(1));
        assert!(second.sides[1].stream(flow).bytes == edited);
        second.sides[0].link.stats().out.names.bytes
    };
    assert_eq!(named(false), 0);
    let named = named(true);
    assert!(named > 80_000, "{named}");
    // In no group nothing is to be passed on.
    let store = LinkConfig { store: Some(77), ..naming(false, None) };
    let mut alone = Pair::with(1, naming(true, None), store);
    alone.plan = Plan { layers: Layers::Names, ..Plan::default() };
    let flow = alone.connect(0);
    alone.send(0, flow, &file);
    alone.pass(Now::from_secs(1));
    assert!(alone.sides[0].stored.is_empty());
}
