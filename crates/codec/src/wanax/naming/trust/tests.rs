use std::collections::BTreeSet;

use bytes::Bytes;

use super::*;
use crate::contract::Parts;
use crate::entropy::Entropy;
use crate::transfer::RetransmitBuffer;
use crate::wanax::naming::{Named, Source, Tags};
use crate::wanax::price::Spent;
use crate::wanax::{ChunkName, NAME_LEN, NameKey, NamesConfig, Shape};
use crate::wire::{FlowId, StoreHeld};

const LEN: u32 = 60_000;
const CLOCK_SECS: u64 = 10_000;

fn name(number: u64) -> Name {
    let mut name = [number as u8; NAME_LEN];
    name[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    Name(name)
}

/// Meets a store in which so many probes are believed to be, put some time ago.
fn naming(probes: u64, put_secs: impl Fn(u64) -> u64) -> Naming {
    let (key, shape) = (NameKey::new([1; 32]), Shape::default());
    let config =
        NamesConfig { key, group: None, shape, hint_memory: 1 << 20, saved: None, clock_secs: CLOCK_SECS };
    let (mut naming, _) = Naming::new(&config);
    naming.hints.bind(7);
    for number in 0..probes {
        let (name, put_secs) = (name(number), put_secs(number));
        naming.hints.insert(PackedTag::new(name.tag(), LEN), put_secs);
        naming.hints.keep_probe(name, LEN, put_secs);
    }
    naming.meet(Some(7), Tags::default(), false);
    naming
}

/// Answers the first question: so many of them are not there.
fn answer(naming: &mut Naming, absent: u64) -> Option<Doubted> {
    let Probe { request, chunks } = naming.poll_probe().unwrap();
    let held = (0..chunks.len() as u64).map(|at| at >= absent).collect();
    naming.handle_probed(&Probed { request, held }, Now::ZERO)
}

/// A block of a chunk of the largest size, unlike any other of another number.
fn block(number: u64) -> Bytes {
    let mut state = number + 1;
    let byte = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..20_000).map(byte).collect()
}

/// Names a block sent at a time; returns whether anything was named.
fn send(naming: &mut Naming, plain: &Bytes, now: Now) -> (bool, Item) {
    let mut named = named(naming, plain, now);
    let (keep, news) = (named.keep, named.take_news());
    let is_named = !named.names.is_empty();
    (is_named, Item { keep, names: named.names, news, ..item(plain) })
}

fn named(naming: &mut Naming, plain: &[u8], now: Now) -> Named {
    let source = Source { plain, copies: &[], parts: &Parts::default(), price: price() };
    let mut named = Named::default();
    naming.name(&source, &RetransmitBuffer::default(), now, &mut named);
    named
}

fn price() -> Price {
    Price::new(Entropy::None, Spent::default())
}

fn item(plain: &Bytes) -> Item {
    let content = Content::Block { offset: 0, plain: plain.clone(), fin: false, coded: true };
    Item::new(FlowId(1), None, content, 1, 0)
}

/// Has sent blocks and got them acknowledged, then meets the store again.
fn filled(blocks: std::ops::Range<u64>) -> Naming {
    let mut naming = naming(0, |_| 0);
    for number in blocks {
        let (_, item) = send(&mut naming, &block(number), Now::ZERO);
        naming.settle(&item, Now::ZERO);
    }
    naming.meet(Some(7), Tags::default(), false);
    naming
}

/// Answers the question that went ahead of a block.
fn answer_ahead(naming: &mut Naming, held: bool) -> Option<Doubted> {
    let Probe { request, chunks } = naming.poll_probe_ahead().unwrap();
    assert_eq!(chunks.len(), 1);
    naming.handle_probed(&Probed { request, held: vec![held] }, Now::ZERO)
}

/// Has the store say it has only the last of what it is asked for first.
fn deny(naming: &mut Naming) {
    let Probe { request, chunks } = naming.poll_probe().unwrap();
    let held = (1..=chunks.len()).map(|at| at == chunks.len()).collect();
    assert!(naming.handle_probed(&Probed { request, held }, Now::ZERO).is_some());
}

#[test]
fn all_hints_of_an_empty_store_are_forgotten() {
    for (blocks, is_forgotten) in [(200, true), (20, false)] {
        let mut naming = filled(0..blocks);
        let doubted = answer(&mut naming, 16).unwrap();
        assert_eq!(doubted.absent >= LEAST_TO_FORGET, is_forgotten, "{doubted:?}");
        let (_, item) = send(&mut naming, &block(5), Now::ZERO);
        assert!(!naming.hints.is_empty(), "it may have been a mistake");
        answer_ahead(&mut naming, false);
        assert_eq!(naming.hints.is_empty(), is_forgotten);
        // Later traffic is known, and named at once without other copies.
        naming.settle(&item, Now::ZERO);
        assert_eq!(send(&mut naming, &block(5), Now::ZERO).0, is_forgotten);
        naming.meet(Some(7), Tags::default(), false);
        assert!(send(&mut naming, &block(5), Now::ZERO).0);
    }
}

#[test]
fn chunks_put_since_the_denial_are_not_forgotten() {
    for held in [false, true] {
        let mut naming = filled(0..200);
        assert!(answer(&mut naming, 16).is_some());
        let (_, asked) = send(&mut naming, &block(5), Now::ZERO);
        let (_, more) = send(&mut naming, &block(6), Now::ZERO);
        // Both are there before the question is answered that went ahead of them.
        [&asked, &more].into_iter().for_each(|item| drop(naming.settle(item, Now::ZERO)));
        answer_ahead(&mut naming, held);
        for (number, is_known) in [(5, true), (6, true), (7, held)] {
            assert_eq!(send(&mut naming, &block(number), Now::ZERO).0, is_known, "{number}, {held}");
        }
    }
}

#[test]
fn forgotten_store_is_believed_from_then_on() {
    let mut naming = filled(0..200);
    assert!(answer(&mut naming, 16).is_some());
    let (_, item) = send(&mut naming, &block(5), Now::ZERO);
    naming.settle(&item, Now::ZERO);
    naming.clear();
    for is_known in [false, true] {
        let (is_named, item) = send(&mut naming, &block(6), Now::ZERO);
        assert_eq!(is_named, is_known);
        naming.settle(&item, Now::ZERO);
    }
    assert!(!send(&mut naming, &block(5), Now::ZERO).0);
}

#[test]
fn smaller_chunks_of_a_vainly_named_block_are_known() {
    for keep in [true, false] {
        let mut naming = naming(0, |_| 0);
        let plain = block(0);
        let root = PackedTag::new(naming.key.tag(&plain), plain.len() as u32);
        naming.stored(&[root], Now::ZERO);
        let (is_named, item) = send(&mut naming, &plain, Now::ZERO);
        assert!(is_named && item.news.is_empty());
        naming.forget(item.names.iter());
        naming.settle(&Item { keep, absent: [0].into(), ..item }, Now::ZERO);
        assert_eq!(send(&mut naming, &plain, Now::ZERO).0, keep);
        assert_eq!(send(&mut naming, &plain.slice(5000..), Now::ZERO).0, keep, "cut otherwise");
    }
}

#[test]
fn neighbours_chunk_is_known_behind_an_emptied_store() {
    for is_there in [true, false] {
        let mut naming = filled(0..1);
        let (soon, later) = (Now::from_secs(31), Now::from_secs(100));
        naming.handle_held(&StoreHeld { serial: 1, taking: true, age_secs: 0 }, soon);
        let (is_named, item) = send(&mut naming, &block(0), soon);
        assert!(is_named, "times are rounded");
        let absent = if is_there { BTreeSet::new() } else { [0].into() };
        naming.settle(&Item { absent, ..item }, soon);
        assert_eq!(send(&mut naming, &block(0), later).0, is_there);
        assert_eq!(send(&mut naming, &block(0).slice(5000..), later).0, is_there, "cut otherwise");
    }
}

#[test]
fn crossed_chunks_and_silent_stores_prove_nothing() {
    for (crosses, taking, is_known) in [(false, true, true), (true, true, false), (false, false, false)] {
        let mut naming = filled(0..1);
        let (soon, later) = (Now::from_secs(31), Now::from_secs(100));
        let (is_named, item) = send(&mut naming, &block(0), soon);
        assert!(is_named);
        naming.handle_held(&StoreHeld { serial: 1, taking, age_secs: 0 }, soon);
        naming.doubt(u64::MAX);
        let crossed = if crosses { [0].into() } else { BTreeSet::new() };
        let there = naming.settle(&Item { crossed, ..item }, later);
        assert!(there.is_empty(), "nobody is told");
        assert_eq!(naming.trust.doubt < 2 * crate::wanax::naming::trust::DOUBTFUL, !crosses);
        naming.handle_held(&StoreHeld { serial: 2, taking: true, age_secs: 10 }, later);
        naming.trust.meet(&[]);
        assert_eq!(send(&mut naming, &block(0), later).0, is_known, "{crosses}, {taking}");
    }
}

#[test]
fn store_with_half_of_the_named_chunks_stays_believed() {
    let (mut naming, plain) = (filled(0..2), block(0));
    let entry = |len| NameEntry { at: 0, len, level: 0, name: ChunkName::Full(name(1)), behind: None };
    // Two in vain, and then two that are right, for as long as anybody names.
    for _ in 0..100 {
        naming.doubt(2 * u64::from(LEN));
        assert!(naming.trust.is_given());
        let names = vec![entry(LEN), entry(LEN)];
        naming.settle(&Item { names, ..item(&plain) }, Now::ZERO);
    }
}

#[test]
fn store_lacking_more_than_half_is_doubted() {
    for (probes, absent, is_doubted) in [
        (1, 0, false),
        (1, 1, true),
        (2, 1, false),
        (3, 2, true),
        (16, 8, false),
        (16, 9, true),
        (16, 16, true),
    ] {
        let mut naming = naming(probes, |_| CLOCK_SECS - 60);
        let doubted = answer(&mut naming, absent);
        let expected = Doubted { absent: absent as usize, believed: probes as usize };
        assert_eq!(doubted, is_doubted.then_some(expected), "{absent} of {probes}");
        assert_eq!(naming.trust.is_given(), !is_doubted, "{absent} of {probes}");
        // What is not there is named no more.
        let known = (0..probes).filter(|at| naming.hints.lookup(name(*at).tag(), LEN, CLOCK_SECS)).count();
        assert_eq!(known as u64, probes - absent);
    }
}

#[test]
fn denying_store_is_asked_until_it_has_something() {
    let mut naming = filled(0..500);
    deny(&mut naming);
    for number in 0..400 {
        assert!(!send(&mut naming, &block(number), Now::ZERO).0, "{number}");
        // Long doubted: that is no news.
        assert_eq!(answer_ahead(&mut naming, false), None);
    }
    assert!(!send(&mut naming, &block(400), Now::ZERO).0);
    assert_eq!(answer_ahead(&mut naming, true), None);
    assert!(send(&mut naming, &block(401), Now::ZERO).0);
    // What is in vain then is soon found out.
    naming.doubt(DOUBTFUL / 2);
    assert!(!send(&mut naming, &block(402), Now::ZERO).0);
}

#[test]
fn denying_silent_store_is_tried_after_many_blocks() {
    let mut naming = filled(0..300);
    deny(&mut naming);
    let tried = (0..).position(|number| send(&mut naming, &block(number), Now::ZERO).0);
    assert_eq!(tried, Some(MOST_PASSES as usize));
}

#[test]
fn exposed_store_is_believed_once_until_a_right_name() {
    let mut naming = filled(0..40);
    answer(&mut naming, 0);
    naming.doubt(2 * DOUBTFUL);
    assert!(!send(&mut naming, &block(0), Now::ZERO).0);
    answer_ahead(&mut naming, true);
    assert!(send(&mut naming, &block(1), Now::ZERO).0);
    // In vain, as before: it does not know what it lacks.
    naming.doubt(DOUBTFUL / 2);
    for number in 0..LEAST_PASSES {
        assert!(!send(&mut naming, &block(number.into()), Now::ZERO).0, "{number}");
        answer_ahead(&mut naming, true);
    }
    assert!(send(&mut naming, &block(20), Now::ZERO).0);
    let entry = NameEntry { at: 0, len: 1, level: 0, name: ChunkName::Full(name(1)), behind: None };
    naming.settle(&Item { names: vec![entry], ..item(&block(20)) }, Now::ZERO);
    naming.doubt(2 * DOUBTFUL);
    assert!(!send(&mut naming, &block(21), Now::ZERO).0);
    answer_ahead(&mut naming, true);
    assert!(send(&mut naming, &block(22), Now::ZERO).0);
}

#[test]
fn chunk_probed_ahead_of_its_block_is_not_forgotten() {
    let mut naming = filled(0..20);
    answer(&mut naming, 16);
    let (_, item) = send(&mut naming, &block(3), Now::ZERO);
    let probe = naming.poll_probe_ahead().unwrap();
    naming.settle(&item, Now::ZERO);
    naming.handle_probed(&Probed { request: probe.request, held: vec![false] }, Now::ZERO);
    let (name, len) = probe.chunks[0];
    assert!(naming.hints.lookup(name.tag(), len, CLOCK_SECS));
}

#[test]
fn one_question_goes_ahead_and_none_is_resent() {
    let mut naming = filled(0..20);
    answer(&mut naming, 16);
    send(&mut naming, &block(1), Now::ZERO);
    let first = naming.poll_probe_ahead().unwrap();
    send(&mut naming, &block(2), Now::ZERO);
    assert_eq!(naming.poll_probe_ahead(), None);
    for lose in [Naming::handle_lane_lost, Naming::resend_control_state] {
        lose(&mut naming);
        assert_eq!(naming.poll_probe(), None);
        send(&mut naming, &block(3), Now::ZERO);
        let next = naming.poll_probe_ahead().unwrap();
        assert!(next.request > first.request);
        assert_ne!(next.chunks, first.chunks);
    }
}

#[test]
fn chunks_sent_to_a_doubted_store_are_current() {
    for (is_doubted, is_known) in [(true, true), (false, false)] {
        let mut naming = filled(0..20);
        answer(&mut naming, if is_doubted { 16 } else { 0 });
        // The same blocks come again, whole, some time later, since the store was emptied.
        let later = Now::from_secs(200);
        let items: Vec<Item> = (0..20)
            .map(|number| {
                let mut named = named(&mut naming, &block(number), later);
                let tags = named.names.iter().map(|entry| PackedTag::new(entry.name.tag(), entry.len));
                let news = if is_doubted { named.take_news() } else { tags.collect() };
                Item { keep: true, news, ..item(&block(number)) }
            })
            .collect();
        for item in &items {
            naming.settle(item, later);
        }
        naming.meet(Some(7), Tags::default(), false);
        naming.handle_held(&StoreHeld { serial: 1, taking: true, age_secs: 10 }, later);
        assert_eq!(send(&mut naming, &block(5), later).0, is_known, "{is_doubted}");
    }
}

#[test]
fn exposed_store_is_tried_less_until_a_right_name() {
    let mut naming = filled(0..2);
    naming.trust.cease();
    naming.doubt(2 * DOUBTFUL);
    let next = |naming: &mut Naming| {
        let passed = (0..).find(|_| naming.trust.trusts()).unwrap();
        naming.trust.tried(true);
        passed
    };
    let passed: Vec<u32> = (0..7).map(|_| next(&mut naming)).collect();
    assert_eq!(passed, [16, 32, 64, 128, 256, 256, 256]);
    let plain = block(0);
    let entry = NameEntry { at: 0, len: 1, level: 0, name: ChunkName::Full(name(1)), behind: None };
    let right = Item { names: vec![entry], ..item(&plain) };
    naming.settle(&right, Now::ZERO);
    assert_eq!([next(&mut naming), next(&mut naming)], [16, 32]);
    naming.settle(&Item { absent: [0].into(), ..right }, Now::ZERO);
    assert_eq!(next(&mut naming), 64);
    naming.meet(Some(7), Tags::default(), false);
    assert_eq!([next(&mut naming), next(&mut naming)], [0, 0]);
}

#[test]
fn evicted_chunks_are_not_believed() {
    let mut naming = naming(8, |number| CLOCK_SECS - if number < 5 { 4000 } else { 100 });
    naming.handle_held(&StoreHeld { serial: 1, taking: true, age_secs: 1000 }, Now::ZERO);
    assert_eq!(answer(&mut naming, 6), None);
    assert!(naming.trust.is_given());
}

#[test]
fn empty_hints_ask_nothing() {
    assert_eq!(naming(0, |_| 0).poll_probe(), None);
    let mut other = naming(3, |_| CLOCK_SECS);
    other.meet(Some(8), Tags::default(), false);
    assert_eq!(other.poll_probe(), None);
    let mut none = naming(3, |_| CLOCK_SECS);
    none.meet(None, Tags::default(), false);
    assert_eq!(none.poll_probe(), None);
    none.resend_control_state();
    assert_eq!(none.poll_probe(), None);
    none.meet(Some(7), Tags::default(), false);
    none.clear();
    assert_eq!(none.poll_probe(), None);
}

#[test]
fn answer_to_a_replaced_question_does_not_count() {
    let mut naming = naming(3, |_| CLOCK_SECS);
    let first = naming.poll_probe().unwrap();
    naming.meet(Some(7), Tags::default(), false);
    let none = Probed { request: first.request, held: vec![false; 3] };
    assert_eq!(naming.handle_probed(&none, Now::ZERO), None);
    let second = naming.poll_probe().unwrap();
    assert_eq!(second, Probe { request: first.request + 1, ..first });
    naming.resend_control_state();
    assert_eq!(naming.poll_probe(), Some(second.clone()), "it is said again");
    let none = Probed { request: second.request, ..none };
    assert!(naming.handle_probed(&none, Now::ZERO).is_some());
    assert_eq!(naming.handle_probed(&none, Now::ZERO), None);
    naming.resend_control_state();
    assert_eq!(naming.poll_probe(), None);
}
