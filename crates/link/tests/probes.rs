//! Probes of a peer's store when gateways meet, and their effect.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on is to fail there")]

mod common;

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use common::store::naming;
use common::{Pair, Said, config};
use oncewire_codec::wanax::hints::save_by;
use oncewire_codec::wanax::{NAME_LEN, Name, Shape, Tree};
use oncewire_codec::wire::{Frame, MAX_BLOCK, Probe, Probed, take_frame};
use oncewire_codec::{Layers, Plan};
use oncewire_link::{Event, Hello, LaneId, LaneRole, Link, LinkConfig, Note, Now, StoreRequest, StoreState};

/// A pair with a store at side 1, and side 0's content in it.
struct Filled {
    pair: Pair,
    pieces: Vec<Vec<u8>>,
}

impl Filled {
    fn new(pieces: usize) -> Self {
        let with_credit = |config| LinkConfig { initial_credit: 1 << 20, ..config };
        let (dialer, acceptor) = (naming(config(true, 1), None), naming(config(false, 2), Some(77)));
        let mut pair = Pair::with(1, with_credit(dialer), with_credit(acceptor));
        pair.plan = Plan { layers: Layers::Names, ..Plan::default() };
        // Each is a chunk of the largest size, and so a block.
        let mut tree = Tree::new(Shape::default());
        let chunk = |_| {
            let mut bytes = pair.random_bytes(MAX_BLOCK);
            bytes.truncate(tree.root_end_within(MAX_BLOCK, &bytes, false));
            bytes
        };
        let pieces: Vec<Vec<u8>> = (0..pieces).map(chunk).collect();
        let mut filled = Self { pair, pieces };
        let all = 0..filled.pieces.len();
        assert_eq!(filled.send(all).0, 0);
        filled
    }

    /// The probed pieces: the first, and the first behind each MiB.
    fn probes(&self) -> Vec<usize> {
        let (mut probes, mut wait) = (Vec::new(), 0usize);
        for (at, piece) in self.pieces.iter().enumerate() {
            wait = wait.saturating_sub(piece.len());
            if wait == 0 {
                (probes, wait) = ([probes, vec![at]].concat(), 1 << 20);
            }
        }
        probes
    }

    /// The answer to the first question, with all requested chunks there or none.
    fn probed(&self, held: bool) -> Probed {
        Probed { request: 1, held: vec![held; self.probes().len()] }
    }

    /// Replaces side 0 by a new process with its hints; the two meet anew.
    fn meet(&mut self) {
        let saved = save_by(|at| self.pair.sides[0].link.save_hints(at));
        self.pair.sides[0].config.names.as_mut().unwrap().saved = saved;
        self.pair.said.clear();
        self.pair.restart(0);
    }

    /// Sends pieces, each as a block, on a flow of their own; returns the number of named blocks, and of chunks named
    /// in vain.
    fn send(&mut self, pieces: std::ops::Range<usize>) -> (u64, u64) {
        let before = self.pair.sides[0].link.stats().out;
        let flow = self.pair.connect(0);
        let mut sent = Vec::new();
        for piece in &self.pieces[pieces] {
            self.pair.send(0, flow, piece);
            self.pair.pass(Now::from_millis(30));
            sent.extend_from_slice(piece);
        }
        assert!(self.pair.sides[1].stream(flow).bytes == sent, "not what was sent");
        let after = self.pair.sides[0].link.stats().out;
        (after.names.count - before.names.count, after.absent - before.absent)
    }

    /// A side's frames of a kind since the meeting.
    fn said<T>(&self, from: usize, is_so: impl Fn(Frame<'_>) -> Option<T>) -> Vec<T> {
        let bytes = self.pair.said.iter().filter_map(|said| match said {
            Said::Frames { side, bytes, .. } if *side == from => Some(bytes),
            _ => None,
        });
        bytes.flat_map(|bytes| all(bytes, &is_so)).collect()
    }

    fn questions(&self) -> Vec<Probe> {
        self.said(0, question)
    }

    /// Side 1's answers; hello and frame ask the same.
    fn answers(&self) -> Vec<Probed> {
        let mut answers = self.said(1, answer);
        answers.dedup();
        answers
    }

    /// Has the store of side 1 answer nothing, or all again except requests made meanwhile.
    fn hold(&mut self, holds: bool) {
        let side = &mut self.pair.sides[1];
        (side.holds_peeks, side.holds_reads) = (holds, holds);
        side.reads.clear();
    }

    /// Hands a side frames as if the other had sent them.
    fn hear(&mut self, side: usize, frames: &[Frame<'_>]) {
        let mut input = Vec::new();
        frames.iter().for_each(|frame| frame.encode(&mut input));
        let (lane, now) = (self.pair.lanes()[0], self.pair.now);
        self.pair.sides[side].link.handle_input(lane, &mut BytesMut::from(&input[..]), now).unwrap();
    }

    fn is_doubted(&self) -> bool {
        self.pair.sides[0].notes.iter().any(|note| note.contains("chunk store lacks"))
    }
}

#[test]
fn unknowingly_emptied_store_is_doubted_from_the_first_block() {
    let mut filled = Filled::new(80);
    filled.pair.sides[1].chunks.clear();
    filled.meet();
    assert_eq!(filled.answers(), [filled.probed(false)]);
    assert!(filled.is_doubted());
    // Nothing is named as a test: the store is asked for each, and reports its losses.
    assert_eq!(filled.send(0..80), (0, 0));
    assert!(filled.answers()[1..].iter().all(|answer| answer.held == [false]), "{:?}", filled.answers());
    // Sent chunks are there again, and nothing speaks against them at the next meeting.
    filled.meet();
    assert!(!filled.is_doubted());
    assert_eq!(filled.send(0..80), (80, 0));
}

#[test]
fn sound_store_is_asked_once_and_named_everything() {
    let mut filled = Filled::new(40);
    filled.meet();
    let key = filled.pair.sides[0].config.names.as_ref().unwrap().key.clone();
    let chunk = |at: &usize| (key.name(&filled.pieces[*at]), filled.pieces[*at].len() as u32);
    let probes = filled.probes().iter().map(chunk).collect();
    assert_eq!(filled.questions(), [Probe { request: 1, chunks: probes }]);
    assert_eq!(filled.answers(), [filled.probed(true)]);
    assert_eq!(filled.send(0..40), (40, 0));
    assert!(!filled.is_doubted());
}

#[test]
fn store_with_less_than_half_lost_is_named_the_rest() {
    let mut filled = Filled::new(80);
    let probes = filled.probes();
    let lost = probes.len() / 2;
    let key = filled.pair.sides[0].config.names.as_ref().unwrap().key.clone();
    for piece in &filled.pieces[..probes[lost]] {
        filled.pair.sides[1].chunks.remove(&key.tag(piece)).unwrap();
    }
    filled.meet();
    let held: Vec<bool> = (0..probes.len()).map(|probe| probe >= lost).collect();
    assert_eq!(filled.answers(), [Probed { request: 1, held }]);
    assert!(!filled.is_doubted());
    assert_eq!(filled.send(probes[lost]..80), ((80 - probes[lost]) as u64, 0));
    // The missing chunk is not named, but its parts are: they are there.
    let (named, absent) = filled.send(0..1);
    assert!(named > 1 && absent == 0, "{named} and {absent}");
}

#[test]
fn silent_peer_is_not_waited_for() {
    let mut filled = Filled::new(20);
    filled.hold(true);
    filled.meet();
    assert_eq!((filled.questions().len(), filled.answers()), (1, vec![]));
    filled.hold(false);
    assert_eq!(filled.send(0..20), (20, 0));
}

#[test]
fn peer_without_the_known_store_is_asked_nothing() {
    for store in [None, Some(78)] {
        let mut filled = Filled::new(20);
        filled.pair.sides[1].config.store = store;
        filled.pair.said.clear();
        filled.pair.restart(1);
        assert_eq!(filled.questions(), [], "{store:?}");
    }
}

#[test]
fn unasked_answers_and_wrong_numbers_mean_nothing() {
    let mut filled = Filled::new(40);
    filled.hold(true);
    filled.meet();
    filled.hold(false);
    let absent = |request, count| Frame::Probed(Probed { request, held: vec![false; count] });
    let count = filled.probes().len();
    filled.hear(
        0,
        &[absent(0, count), absent(2, count), absent(1, count - 1), absent(1, count + 1), absent(1, 16)],
    );
    assert_eq!(filled.send(0..1), (1, 0));
    // Late: the names meanwhile were right.
    filled.hear(0, &[absent(1, count)]);
    assert_eq!(filled.send(1..40), (39, 0));
    assert!(!filled.is_doubted());
}

#[test]
fn the_first_answer_counts_and_no_other() {
    let mut filled = Filled::new(40);
    filled.meet();
    assert_eq!(filled.answers(), [filled.probed(true)]);
    filled.hear(0, &[Frame::Probed(filled.probed(false))]);
    assert_eq!(filled.send(0..40), (40, 0));
    assert!(!filled.is_doubted());
}

#[test]
fn peer_denying_its_content_is_sent_a_little_more() {
    let mut filled = Filled::new(80);
    filled.hold(true);
    filled.meet();
    filled.hold(false);
    filled.hear(0, &[Frame::Probed(filled.probed(false))]);
    // It is asked again with the first block, and the doubt is gone.
    assert_eq!(filled.send(1..2), (0, 0));
    let (named, absent) = filled.send(2..80);
    assert!(named >= 78 && absent == 0, "{named} and {absent}");
}

#[test]
fn refilled_store_is_named_from_the_first_block() {
    let mut filled = Filled::new(40);
    filled.pair.sides[1].chunks.clear();
    filled.meet();
    assert_eq!(filled.send(0..40), (0, 0));
    assert_eq!(filled.send(0..40), (40, 0));
}

#[test]
fn doubted_store_is_asked_ahead_of_the_chunks_block() {
    let mut filled = Filled::new(20);
    filled.pair.sides[1].chunks.clear();
    filled.meet();
    filled.pair.said.clear();
    filled.send(5..6);
    let key = &filled.pair.sides[0].config.names.as_ref().unwrap().key;
    let chunk = (key.name(&filled.pieces[5]), filled.pieces[5].len() as u32);
    let kinds = filled.said(0, |frame| match frame {
        Frame::Probe(probe) => Some(Some(probe)),
        Frame::Block(_) => Some(None),
        _ => None,
    });
    let [Some(Probe { request: 2, chunks }), None] = &kinds[..] else { panic!("{kinds:?}") };
    assert_eq!(*chunks, [chunk]);
}

#[test]
fn chunks_sent_to_an_emptied_store_are_believed_while_kept() {
    let mut filled = Filled::new(20);
    filled.pair.pass(Now::from_secs(20));
    filled.pair.sides[1].chunks.clear();
    filled.meet();
    assert_eq!(filled.send(0..20), (0, 0));
    filled.pair.pass(Now::from_secs(200));
    filled.meet();
    let now = filled.pair.now;
    // All of its content was put after it was emptied.
    let state = StoreState { age_secs: 201, taking: true, ..StoreState::default() };
    filled.pair.sides[1].link.handle_store_state(state, now);
    filled.pair.run();
    assert_eq!(filled.send(0..20), (20, 0));
}

/// The matches among some frames.
fn all<T>(mut bytes: &[u8], is_so: impl Fn(Frame<'_>) -> Option<T>) -> Vec<T> {
    let mut found = Vec::new();
    while let Some((kind, body, used)) = take_frame(bytes).unwrap() {
        found.extend(is_so(Frame::decode(kind, body).unwrap()));
        bytes = &bytes[used..];
    }
    found
}

fn question(frame: Frame<'_>) -> Option<Probe> {
    match frame {
        Frame::Probe(probe) => Some(probe),
        _ => None,
    }
}

fn answer(frame: Frame<'_>) -> Option<Probed> {
    match frame {
        Frame::Probed(probed) => Some(probed),
        _ => None,
    }
}

/// A link's frames on a lane.
fn frames(link: &mut Link, lane: LaneId, now: Now) -> Vec<u8> {
    let mut out = Vec::new();
    while link.poll_transmit(lane, now, &mut out) {}
    out
}

#[test]
fn first_hello_is_answered_right_behind_the_second() {
    for knows in [true, false] {
        let filled = Filled::new(40);
        let (now, lane) = (filled.pair.now, LaneId(99));
        let saved = save_by(|at| filled.pair.sides[0].link.save_hints(at));
        let mut first = filled.pair.sides[0].config.clone();
        first.names.as_mut().unwrap().saved = saved;
        let mut first = Link::new(LinkConfig { instance: 300, ..first }, now);
        let mut second = Link::new(LinkConfig { instance: 400, ..filled.pair.sides[1].config.clone() }, now);
        let hello = first.hello(LaneId(0), LaneRole::Control);
        assert_eq!(hello.probe.as_ref().map(|probe| probe.chunks.len()), Some(filled.probes().len()));
        let answer = second.hello(lane, LaneRole::Control);
        // A peer without knowledge of the question passes over it.
        let heard = Hello { probe: hello.probe.clone().filter(|_| knows), ..hello.clone() };
        second.handle_lane_up(answer.instance, &heard, lane, LaneRole::Control, false, now).unwrap();
        while let Some(request) = second.poll_chunk_store() {
            let reply = common::store::serve(&mut BTreeMap::new(), request).unwrap();
            second.handle_store(reply, now);
        }
        let behind = frames(&mut second, lane, now);
        first.handle_lane_up(hello.instance, &answer, lane, LaneRole::Control, true, now).unwrap();
        assert_eq!(first.hello(LaneId(0), LaneRole::Flow).probe, None, "it has been asked");
        first.handle_input(lane, &mut BytesMut::from(&behind[..]), now).unwrap();
        let doubts = std::iter::from_fn(|| first.poll_event())
            .any(|event| matches!(event, Event::Note(Note::StoreDoubted { .. })));
        assert_eq!(doubts, knows);
        // An answered question is not asked again.
        assert_eq!(all(&frames(&mut first, lane, now), question).len(), usize::from(!knows));
    }
}

#[test]
fn question_is_repeated_on_new_control_lanes_until_answered() {
    let mut filled = Filled::new(40);
    filled.pair.sides[1].chunks.clear();
    filled.hold(true);
    filled.meet();
    filled.pair.cut_all();
    filled.hold(false);
    filled.pair.run();
    assert_eq!((filled.questions().len(), filled.answers().len()), (2, 1));
    assert!(filled.is_doubted());
    filled.pair.cut_all();
    filled.pair.run();
    assert_eq!((filled.questions().len(), filled.answers().len()), (2, 1));
}

#[test]
fn store_out_of_use_is_asked_on_its_return() {
    let mut filled = Filled::new(40);
    filled.pair.sides[1].chunks.clear();
    filled.hold(true);
    filled.meet();
    let tell = |filled: &mut Filled, state| {
        let now = filled.pair.now;
        filled.pair.sides[1].link.handle_store_state(state, now);
        filled.pair.run();
    };
    tell(&mut filled, StoreState::default());
    filled.hold(false);
    tell(&mut filled, StoreState { age_secs: 1000, taking: true, ..StoreState::default() });
    assert_eq!(filled.questions().iter().map(|probe| probe.request).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(filled.answers(), [Probed { request: 2, ..filled.probed(false) }]);
    assert_eq!(filled.send(0..16), (0, 0));
}

/// An end with a store in its meeting with `peer`, and the peer's questions.
fn asked(peer: LinkConfig, questions: &[Probe]) -> (Link, Vec<StoreRequest>) {
    let (now, lane) = (Now::from_secs(100), LaneId(1));
    let mut link = Link::new(naming(config(false, 2), Some(77)), now);
    let hello = Link::new(peer, now).hello(lane, LaneRole::Control);
    link.handle_lane_up(2, &hello, lane, LaneRole::Control, false, now).unwrap();
    let mut input = Vec::new();
    questions.iter().for_each(|probe| Frame::Probe(probe.clone()).encode(&mut input));
    link.handle_input(lane, &mut BytesMut::from(&input[..]), now).unwrap();
    let requests = std::iter::from_fn(|| link.poll_chunk_store()).collect();
    (link, requests)
}

fn questions(count: u64) -> Vec<Probe> {
    (0..count).map(|request| Probe { request, chunks: vec![(Name([7; NAME_LEN]), 5)] }).collect()
}

#[test]
fn of_many_questions_one_is_answered() {
    let (mut link, requests) = asked(naming(config(true, 1), None), &questions(1000));
    let (now, lane) = (Now::from_secs(100), LaneId(1));
    let [request @ StoreRequest::Peek { .. }] = &requests[..] else { panic!("{requests:?}") };
    let reply = common::store::serve(&mut BTreeMap::<u64, Bytes>::new(), request.clone()).unwrap();
    link.handle_store(reply.clone(), now);
    link.handle_store(reply, now);
    let answers = all(&frames(&mut link, lane, now), answer);
    assert_eq!(answers, [Probed { request: 999, held: vec![false] }]);
}

#[test]
fn peer_without_names_is_told_nothing() {
    assert!(!asked(naming(config(true, 1), None), &questions(1)).1.is_empty());
    assert!(asked(config(true, 1), &questions(1)).1.is_empty());
}
