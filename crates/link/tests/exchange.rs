//! The cost of small exchanges on an open flow, in simulated time.

mod common;

use common::{Pair, Said};
use oncewire_codec::wire::{Frame, Understood, take_frame};
use oncewire_link::{FlowId, Now, records};

/// The bytes of TLS records around the frames: 22 each beside the frames.
fn wire(pair: &Pair) -> usize {
    let bytes = |said: &Said| match said {
        Said::Frames { bytes, .. } => records(bytes).map(|record| record.len() + 22).sum(),
        _ => 0,
    };
    pair.said.iter().map(bytes).sum()
}

/// Maps each frame of a kind, in order.
fn frames<T>(pair: &Pair, of: impl Fn(&Frame<'_>) -> Option<T>) -> Vec<T> {
    let mut found = Vec::new();
    for said in &pair.said {
        let Said::Frames { bytes, .. } = said else { continue };
        let mut rest = &bytes[..];
        while let Ok(Some((kind, body, used))) = take_frame(rest) {
            found.extend(Frame::decode(kind, body).ok().as_ref().and_then(&of));
            rest = &rest[used..];
        }
    }
    found
}

/// A pair and a flow with much earlier traffic both ways, and so many bytes there and back each time.
fn exchanges(pair: &mut Pair, len: usize, count: usize, answer_after: Now, pause: Now) -> usize {
    let flow = pair.connect(0);
    let mut sent = [Vec::new(), Vec::new()];
    for round in 0..count + 40 {
        if round == 40 {
            pair.said.clear();
        }
        for side in [0, 1] {
            let bytes = pair.random_bytes(if round < 20 { 9000 } else { len });
            pair.send(side, flow, &bytes);
            sent[side].extend(bytes);
            pair.run();
            let then = [answer_after, pause][side];
            (then > Now::ZERO).then(|| pair.pass(then));
        }
    }
    for side in [0, 1] {
        assert!(pair.sides[1 - side].stream(flow).bytes == sent[side], "bytes of side {side}");
    }
    wire(pair) / count
}

#[test]
fn twenty_bytes_there_and_back_cost_little() {
    // How long the answer takes, how long until the next, in milliseconds; and the bytes at most.
    let cases = [(0, 0, 98), (30, 0, 104), (0, 35, 104), (2, 100, 124), (100, 100, 154)];
    let costs = cases.map(|(answer_after, pause, _)| {
        let mut pair = Pair::new(1);
        exchanges(&mut pair, 20, 200, Now::from_millis(answer_after), Now::from_millis(pause))
    });
    let is_less = |(cost, (_, _, most)): (&usize, &(u64, u64, usize))| cost <= most;
    assert!(costs.iter().zip(&cases).all(is_less), "{costs:?}");
    println!("{costs:?}");
}

#[test]
fn peer_without_continuation_is_sent_whole_blocks() {
    let mut pair = Pair::with(1, common::config(true, 1), common::config(false, 2));
    pair.cut_all();
    pair.understands = Understood { continues: false, ..Understood::ALL };
    (0..2).for_each(|side| pair.restart(side));
    let cost = exchanges(&mut pair, 20, 200, Now::ZERO, Now::ZERO);
    let new = frames(&pair, |frame| matches!(frame, Frame::More(_) | Frame::Acked(_)).then_some(()));
    assert_eq!(new, []);
    assert!(cost <= 124, "{cost} bytes");
}

#[test]
fn acknowledgement_of_a_few_bytes_waits_for_their_answer() {
    let mut pair = Pair::new(2);
    let flow = pair.connect(0);
    pair.pass(Now::from_secs(1));
    pair.said.clear();
    let acks = |pair: &Pair| {
        frames(pair, |frame| matches!(frame, Frame::Ack(_) | Frame::Acked(_)).then_some(())).len()
    };
    pair.send(0, flow, b"a few");
    pair.pass(Now::from_millis(39));
    assert_eq!(acks(&pair), 0);
    pair.pass(Now::from_millis(1));
    assert_eq!(acks(&pair), 1);
    assert_eq!(pair.sides[0].link.flow(flow).map(|flow| flow.unacked), Some(0));
    // Frames that hold more than memory are acknowledged as soon as ever: a context, or the end of a stream.
    let text = common::text(300);
    let now = pair.now;
    type Send = fn(&mut Pair, FlowId, &[u8], Now);
    let more: [Send; 2] = [
        |pair, flow, text, _| pair.send(0, flow, text),
        |pair, flow, _, now| pair.sides[0].link.finish_flow(flow, now),
    ];
    for (nth, send) in more.into_iter().enumerate() {
        send(&mut pair, flow, &text, now);
        pair.pass(Now::from_millis(10));
        assert_eq!(acks(&pair), 2 + nth);
    }
}

#[test]
fn short_blocks_cross_uncoded_and_longer_ones_coded() {
    let mut pair = Pair::new(3);
    let flow = pair.connect(0);
    for (len, is_coded) in [(40, false), (41, true), (1, false), (5000, true), (40, false)] {
        pair.said.clear();
        let text = common::text(len);
        pair.send(0, flow, &text);
        pair.run();
        let coded = frames(&pair, |frame| match frame {
            Frame::Block(block) => Some(matches!(block.body, oncewire_codec::wire::BlockBody::Coded(_))),
            Frame::More(_) => Some(false),
            _ => None,
        });
        assert_eq!(coded, [is_coded], "{len} bytes");
    }
    assert_eq!(pair.sides[0].link.stats().out.uncoded, 0, "its plan is to code it");
}

#[test]
fn flows_on_one_lane_share_no_context() {
    let mut pair = Pair::new(4);
    let flows: Vec<FlowId> = (0..20).map(|_| pair.connect(0)).collect();
    let mut sent = vec![Vec::new(); flows.len()];
    for _ in 0..300 {
        for _ in 0..3 {
            let at = pair.below(20) as usize;
            let len = 1 + pair.below(60) as usize;
            let bytes = pair.random_bytes(len);
            pair.send(0, flows[at], &bytes);
            sent[at].extend(bytes);
        }
        pair.step(30);
        if pair.below(40) == 0 {
            let lanes = pair.lanes();
            let lane = pair.below(lanes.len() as u64) as usize;
            pair.cut(lanes[lane]);
        }
    }
    pair.pass(Now::from_secs(5));
    assert!(frames(&pair, |frame| matches!(frame, Frame::More(_)).then_some(())).len() > 100);
    for (flow, sent) in flows.iter().zip(&sent) {
        assert!(pair.sides[1].stream(*flow).bytes == *sent, "flow {flow:?}");
    }
}
