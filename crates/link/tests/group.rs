//! What members of a trust group say to each other beside the flows.

mod common;

use bytes::Bytes;
use common::{Pair, config};
use oncewire_codec::wanax::{NameKey, NamesConfig, Shape};
use oncewire_codec::wire::{GroupFrame, Load, MAX_BLOCK};
use oncewire_codec::{Layers, Plan};
use oncewire_link::{LinkConfig, Now};

/// The settings of an end that names chunks with a key.
fn naming(first: bool, key: u8, group: bool) -> LinkConfig {
    let names = NamesConfig {
        key: NameKey::new([key; 32]),
        shape: Shape::default(),
        hint_memory: 1 << 20,
        saved: None,
        clock_secs: 0,
    };
    LinkConfig { names: Some(names), group, ..config(first, 2 - u64::from(first)) }
}

fn load(queued: u32) -> GroupFrame {
    GroupFrame::Load(Load { queued, ..Load::default() })
}

fn put(first: u8) -> GroupFrame {
    GroupFrame::Put { shape: Shape::default(), bytes: Bytes::from(vec![first; MAX_BLOCK]) }
}

#[test]
fn members_of_a_group_hear_each_other_in_order_whatever_flows_do() {
    let mut pair = Pair::with(1, naming(true, 7, true), naming(false, 7, true));
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

#[test]
fn only_who_shows_the_key_of_the_group_is_of_it() {
    for (case, other) in [(0, naming(false, 8, true)), (1, naming(false, 7, false)), (2, config(false, 2))] {
        let mut pair = Pair::with(1, naming(true, 7, true), other);
        pair.connect(0);
        // An end that is in no group may still be shown its key, and then finds itself alone in it.
        assert_eq!(pair.sides[0].link.is_of_group(), case == 1, "case {case}");
        assert!(!pair.sides[1].link.is_of_group(), "case {case}");
        assert_eq!(pair.sides[1].link.tell_group(load(1)), Err(load(1)));
        let told = pair.sides[0].link.tell_group(load(1)).is_ok();
        pair.pass(Now::from_secs(1));
        assert_eq!(pair.sides[1].heard, []);
        assert_eq!(pair.sides[1].link.stats().passed_over, u64::from(told));
    }
}

#[test]
fn what_waits_is_bounded_and_forgotten_with_the_last_lane() {
    let mut pair = Pair::with(1, naming(true, 7, true), naming(false, 7, true));
    pair.connect(0);
    let mut taken = |frame: &GroupFrame| {
        let is_taken = |_: &usize| pair.sides[0].link.tell_group(frame.clone()).is_ok();
        (0..1_000_000).filter(is_taken).count()
    };
    // What is urgent has room where the rest has none.
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
fn what_one_gateway_of_a_site_was_sent_is_named_to_another_from_its_small_chunks_on() {
    let start = |seed| {
        let store = LinkConfig { store: Some(77), ..naming(false, 7, true) };
        let mut pair = Pair::with(seed, naming(true, 7, true), store);
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
    let store = LinkConfig { store: Some(77), ..naming(false, 7, false) };
    let mut alone = Pair::with(1, naming(true, 7, false), store);
    alone.plan = Plan { layers: Layers::Names, ..Plan::default() };
    let flow = alone.connect(0);
    alone.send(0, flow, &file);
    alone.pass(Now::from_secs(1));
    assert!(alone.sides[0].stored.is_empty());
}
