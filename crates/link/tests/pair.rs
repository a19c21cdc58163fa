//! Two links over lanes in memory: the promises to applications.

mod common;

use common::{Pair, config, text};
use oncewire_codec::entropy::Entropy;
use oncewire_link::{
    Adapt, AdaptReason, Effort, FlowId, FlowOutcome, LaneId, LaneRole, Link, LinkConfig, Now, OpenFailure,
    OpenRequest, ResetReason,
};

#[test]
fn bytes_and_ends_cross_in_both_directions() {
    let mut pair = Pair::new(1);
    let flow = pair.connect(0);
    let (there, back) = (text(300_000), text(50_000));
    pair.send(0, flow, &there);
    pair.send(1, flow, &back);
    pair.run();
    pair.sides[0].link.finish_flow(flow, pair.now);
    pair.run();
    assert_eq!(pair.sides[1].stream(flow).bytes, there);
    assert!(pair.sides[1].stream(flow).finished && !pair.sides[0].stream(flow).finished);
    // Half-closed: the other direction goes on, however much later.
    pair.pass(Now::from_secs(3600));
    pair.send(1, flow, b"still here");
    pair.sides[1].link.finish_flow(flow, pair.now);
    pair.pass(Now::from_secs(1));
    assert!(pair.sides[0].stream(flow).bytes.ends_with(b"still here"));
    assert!(pair.sides[0].stream(flow).finished);
    assert_eq!([0, 1].map(|side| pair.sides[side].link.open_flows()), [0, 0]);
}

#[test]
fn returning_old_instance_makes_both_ends_begin_anew() {
    for case in 0..8 {
        let [side, at_once, busy] = [case & 1, case >> 1 & 1, case >> 2 & 1];
        println!("side {side}, all lanes at once: {at_once}, something under way: {busy}");
        let mut pair = Pair::new(4);
        pair.at_once = at_once == 1;
        let flow = pair.connect(0);
        let before = pair.random_bytes(50_000);
        pair.send(0, flow, &before);
        pair.run();
        // Another process has the other side's key, for a moment.
        let other = Link::new(config(side == 1, 77), pair.now);
        let (lane, now) = (LaneId(1 << 40), pair.now);
        let hello = other.hello(lane, LaneRole::Control);
        if busy == 1 {
            let more = pair.random_bytes(30_000);
            (0..2).for_each(|side| pair.send(side, flow, &more));
        }
        let link = &mut pair.sides[side].link;
        let said = link.hello(lane, LaneRole::Control).instance;
        link.handle_lane_up(said, &hello, lane, LaneRole::Control, side == 0, now).unwrap();
        link.handle_lane_lost(lane, now);
        pair.pass(Now::from_secs(10));
        assert_eq!(pair.sides[side].restarts, 2);
        assert_eq!(pair.sides[1 - side].restarts, 1);
        // Neither takes the other's frames for familiar ones.
        for _ in 0..3 {
            let (there, back) = (pair.random_bytes(300_000), pair.random_bytes(100_000));
            let flow = pair.connect(side);
            pair.send(side, flow, &there);
            pair.send(1 - side, flow, &back);
            pair.pass(Now::from_secs(10));
            assert!(pair.sides[1 - side].stream(flow).bytes == there);
            assert!(pair.sides[side].stream(flow).bytes == back);
        }
    }
}

#[test]
fn ended_link_is_empty_and_takes_nothing_more() {
    let mut pair = Pair::new(3);
    let flow = pair.connect(0);
    let bytes = pair.random_bytes(400_000);
    pair.send(0, flow, &bytes);
    pair.pass(Now::from_secs(1));
    let (now, lanes) = (pair.now, pair.lanes());
    for side in &mut pair.sides {
        let was = side.link.end(now);
        let used = |link: &Link| link.stats().out.log_used + link.stats().inbound.log_used;
        assert!(used(&was) >= 400_000 && was.is_up());
        assert_eq!((used(&side.link), side.link.is_up(), side.link.open_flows()), (0, false, 0));
        let request = OpenRequest {
            destination: std::net::SocketAddr::from(([127, 0, 0, 1], 80)).into(),
            source: None,
            as_client: false,
            plan: None,
        };
        assert!(side.link.open_flow(request, now).is_err());
        // The end still without the news.
        assert!(
            side.link.is_over(flow) && side.link.handle_payload(flow, bytes.clone().into(), now).is_err()
        );
        side.link.finish_flow(flow, now);
        side.link.handle_consumed(flow, 1, now);
        side.link.handle_timeout(now);
        for lane in &lanes {
            assert!(!side.link.poll_transmit(*lane, now, &mut Vec::new()));
            side.link.handle_lane_lost(*lane, now);
        }
        assert!(side.link.poll_payload(flow, now).is_none() && side.link.poll_event().is_none());
    }
}

#[test]
fn a_repeat_costs_almost_nothing() {
    let mut pair = Pair::new(2);
    let bytes = pair.random_bytes(400_000);
    let first = pair.connect(0);
    pair.send(0, first, &bytes);
    pair.pass(Now::from_secs(1));
    let copied = pair.sides[1].link.stats().inbound.copied;
    let second = pair.connect(0);
    pair.send(0, second, &bytes);
    pair.pass(Now::from_secs(1));
    assert_eq!(pair.sides[1].stream(second).bytes, bytes);
    assert!(pair.sides[1].link.stats().inbound.copied - copied > 390_000);
}

/// A pair with this adaptation at the first side, and its flow.
fn adapting(adapt: Adapt) -> (Pair, FlowId) {
    let mut pair = Pair::with(9, LinkConfig { adapt, ..config(true, 1) }, config(false, 2));
    let flow = pair.connect(0);
    (pair, flow)
}

/// Sends the bytes and reports lanes with bytes to send all the time, limited only by this end.
fn send_held_up(pair: &mut Pair, flow: FlowId, bytes: &[u8]) {
    let tick = Now::from_millis(200);
    pair.send(0, flow, bytes);
    pair.pass(tick);
    let now = pair.now;
    pair.sides[0].link.handle_load(Effort { span: tick, active: tick, ..Effort::default() }, now);
}

#[test]
fn repeats_are_saved_under_reported_load() {
    let (mut pair, flow) = adapting(Adapt::Savings);
    let bytes = pair.random_bytes(100_000);
    let mut sent = Vec::new();
    let start = pair.now;
    while pair.sides[0].link.stats().pace.plan.unwrap().entropy != Entropy::None {
        let news = pair.random_bytes(100_000);
        send_held_up(&mut pair, flow, &news);
        sent.extend_from_slice(&news);
        assert!(pair.now < start + Now::from_secs(20), "{:?}", pair.sides[0].link.stats().pace);
    }
    let first = pair.sides[0].link.flow(flow).unwrap();
    assert_eq!((first.entropy, first.effort), (Some(Entropy::None), AdaptReason::EncoderBound));
    for _ in 0..20 {
        let before = pair.sides[0].link.stats().out;
        send_held_up(&mut pair, flow, &bytes);
        sent.extend_from_slice(&bytes);
        let out = pair.sides[0].link.stats().out;
        let is_first = sent.len() < 2 * bytes.len() || before.copied == 0;
        assert!(is_first || out.copied - before.copied > 99_000, "{:?}", pair.sides[0].link.stats().pace);
    }
    let out = pair.sides[0].link.stats().out;
    assert!(out.copied > 1_800_000 && out.uncoded == 0, "{out:?}");
    assert!(pair.sides[1].stream(flow).bytes == sent);
}

#[test]
fn bytes_stay_exact_under_lowered_and_raised_plans() {
    let (mut pair, flow) = adapting(Adapt::Speed);
    let (mut sent, start) = (Vec::new(), pair.now);
    let mut send = |pair: &mut Pair, bytes: &[u8]| {
        send_held_up(pair, flow, bytes);
        sent.extend_from_slice(bytes);
        assert!(pair.sides[1].stream(flow).bytes == sent);
    };
    while pair.sides[0].link.stats().pace.plan.is_some() {
        let bytes = pair.random_bytes(100_000);
        send(&mut pair, &bytes);
        let pace = pair.sides[0].link.stats().pace;
        assert!(pair.now < start + Now::from_secs(60), "not coding at all was never reached: {pace:?}");
    }
    assert!(pair.sides[0].link.stats().pace.changes > 1);
    let bytes = pair.random_bytes(20_000);
    let uncoded = |pair: &Pair| pair.sides[0].link.stats().out.uncoded;
    assert_eq!(uncoded(&pair), 0);
    send(&mut pair, &bytes);
    assert_eq!(uncoded(&pair), bytes.len() as u64);
    for _ in 0..17 {
        let now = pair.now;
        let quiet = Effort { span: Now::from_millis(200), ..Effort::default() };
        pair.sides[0].link.handle_load(quiet, now);
    }
    assert!(pair.sides[0].link.is_as_configured());
    let copied = pair.sides[0].link.stats().out.copied;
    // Uncoded bytes were not remembered either.
    send(&mut pair, &bytes);
    assert_eq!(pair.sides[0].link.stats().out.copied, copied);
    send(&mut pair, &bytes);
    assert!(pair.sides[0].link.stats().out.copied - copied > 19_000);
}

#[test]
fn a_refused_open_tells_the_application_and_leaves_nothing_behind() {
    let mut pair = Pair::new(3);
    let flow = pair.open(0);
    pair.send(0, flow, b"sent before the answer");
    pair.run();
    pair.sides[1].link.answer_flow(flow, Err(OpenFailure::Refused), pair.now);
    pair.pass(Now::from_secs(1));
    assert_eq!(pair.sides[0].stream(flow).opened, Some(false));
    assert_eq!(pair.sides[0].stream(flow).reset, None);
    assert_eq!([0, 1].map(|side| pair.sides[side].link.open_flows()), [0, 0]);
}

#[test]
fn reset_reaches_the_far_application_and_blocks_the_log() {
    let mut pair = Pair::new(4);
    let flow = pair.connect(0);
    let bytes = pair.random_bytes(60_000);
    pair.send(0, flow, &bytes);
    pair.step(1000);
    pair.sides[1].link.abort_flow(flow, ResetReason::Application, pair.now);
    pair.pass(Now::from_secs(1));
    assert_eq!(pair.sides[0].stream(flow).reset.as_deref(), Some("reset by the application"));
    assert_eq!([0, 1].map(|side| pair.sides[side].link.open_flows()), [0, 0]);
    let again = pair.connect(0);
    pair.send(0, again, &bytes);
    pair.pass(Now::from_secs(1));
    assert_eq!(pair.sides[1].stream(again).bytes, bytes);
    assert!(
        pair.sides[1].link.stats().inbound.copied > 50_000,
        "the aborted flow's blocks were not remembered"
    );
}

#[test]
fn stopped_reader_holds_back_nobody_and_gets_only_its_credit() {
    let mut pair = Pair::new(5);
    let (slow, quick) = (pair.connect(0), pair.connect(0));
    pair.sides[1].stalled.push(slow);
    let bytes = pair.random_bytes(500_000);
    pair.send(0, slow, &bytes);
    pair.send(0, quick, &bytes);
    pair.pass(Now::from_secs(60));
    assert_eq!(pair.sides[1].stream(quick).bytes, bytes);
    let sent = pair.sides[0].link.flow(slow).map(|flow| flow.sent);
    assert_eq!(sent, Some(64 << 10), "exactly the initial credit");
    assert_eq!(pair.sides[0].link.stats().out.unacked, 0);
    pair.sides[1].stalled.clear();
    pair.read(1, slow);
    pair.pass(Now::from_secs(1));
    assert_eq!(pair.sides[1].stream(slow).bytes, bytes);
}

#[test]
fn flows_go_on_when_lanes_are_cut_again_and_again() {
    for seed in 0..20 {
        println!("seed {seed}");
        let mut pair = Pair::new(seed);
        let flows: Vec<_> = (0..5).map(|_| pair.connect(0)).collect();
        let bytes: Vec<_> = flows.iter().map(|_| text(200_000)).collect();
        for (flow, bytes) in flows.iter().zip(&bytes) {
            pair.send(0, *flow, bytes);
            pair.sides[0].link.finish_flow(*flow, pair.now);
        }
        for _ in 0..12 {
            for _ in 0..=pair.below(3) {
                pair.step(20_000);
            }
            match pair.below(3) {
                0 => pair.cut_all(),
                _ => {
                    let lanes = pair.lanes();
                    let pick = pair.below(lanes.len() as u64) as usize;
                    lanes.get(pick).copied().into_iter().for_each(|lane| pair.cut(lane));
                }
            }
        }
        pair.pass(Now::from_secs(5));
        for (flow, bytes) in flows.iter().zip(&bytes) {
            let stream = pair.sides[1].stream(*flow);
            assert_eq!(&stream.bytes, bytes, "seed {seed}");
            assert!(stream.finished);
        }
        assert_eq!(pair.sides[1].link.stats().inbound.mismatches, 0);
    }
}

#[test]
fn outage_is_survived_only_within_the_resume_window() {
    for (outage, survives) in [(60, true), (180, false)] {
        let mut pair = Pair::new(6);
        let flow = pair.connect(0);
        let bytes = pair.random_bytes(150_000);
        pair.send(0, flow, &bytes);
        pair.step(30_000);
        pair.reachable = false;
        pair.cut_all();
        pair.pass(Now::from_secs(outage));
        pair.reachable = true;
        pair.pass(Now::from_secs(5));
        assert_eq!(pair.sides[1].stream(flow).bytes == bytes, survives);
        assert_eq!(pair.sides[0].stream(flow).reset.is_none(), survives);
        assert_eq!(pair.sides[1].stream(flow).reset.is_none(), survives);
        if !survives {
            assert_eq!([0, 1].map(|side| pair.sides[side].link.open_flows()), [0, 0]);
        }
    }
}

#[test]
fn lane_deaf_one_way_is_given_up_and_flows_survive() {
    let mut pair = Pair::new(7);
    let flow = pair.connect(0);
    let bytes = pair.random_bytes(200_000);
    pair.send(0, flow, &bytes);
    let lanes = pair.lanes();
    lanes.iter().take(2).for_each(|&lane| pair.block(lane, 0, true));
    pair.pass(Now::from_secs(25));
    assert_eq!(pair.sides[1].stream(flow).bytes, bytes);
    assert!(lanes.iter().take(2).all(|lane| !pair.lanes().contains(lane)), "a deaf lane is still in use");
}

#[test]
fn lane_with_a_full_socket_is_given_up_after_silence() {
    let mut pair = Pair::new(8);
    let flows: Vec<_> = (0..40).map(|_| pair.connect(0)).collect();
    pair.lanes().into_iter().for_each(|lane| pair.block(lane, 0, true));
    for flow in flows {
        let bytes = pair.random_bytes(60_000);
        pair.send(0, flow, &bytes);
    }
    // The peer is heard while a question waits behind a full socket; then it is gone.
    pair.pass(Now::from_secs(6));
    let (mut now, link) = (pair.clock(0), &mut pair.sides[0].link);
    let end = now + Now::from_secs(30);
    while let Some(due) = link.poll_timeout().filter(|due| *due <= end) {
        assert!(due > now, "what was due at {now:?} is due again");
        now = due;
        link.handle_timeout(now);
    }
    let stats = link.stats();
    assert_eq!((stats.lanes_busy, stats.lanes_spare), (0, 0));
}

#[test]
fn restarted_peer_resets_old_flows_and_serves_new_ones() {
    for side in [0, 1] {
        let mut pair = Pair::new(8);
        let flow = pair.connect(0);
        pair.send(0, flow, &text(100_000));
        pair.run();
        pair.restart(side);
        pair.pass(Now::from_secs(1));
        assert_eq!(pair.sides[1 - side].restarts, 1);
        assert_eq!(pair.sides[1 - side].stream(flow).reset.as_deref(), Some("peer restarted"));
        let again = pair.connect(1);
        pair.send(1, again, &text(90_000));
        pair.pass(Now::from_secs(1));
        assert_eq!(pair.sides[0].stream(again).bytes, text(90_000));
    }
}

#[test]
fn a_restarted_opener_does_not_meet_its_old_flows() {
    let mut pair = Pair::new(12);
    let old = pair.connect(0);
    // The far application is slow: it has not even been told of its flow's end when the next one comes.
    pair.sides[1].stalled.push(old);
    pair.restart(0);
    let new = pair.connect(0);
    assert_ne!(old, new);
    pair.send(0, new, b"hello again");
    pair.run();
    assert_eq!(pair.sides[1].stream(new).bytes, b"hello again");
    pair.sides[1].stalled.clear();
    pair.read(1, old);
    assert_eq!(pair.sides[1].stream(old).reset.as_deref(), Some("peer restarted"));
}

#[test]
fn more_flows_than_lanes_share_them() {
    let mut pair = Pair::new(9);
    let flows: Vec<_> = (0..200).map(|n| pair.connect(n % 2)).collect();
    for (n, flow) in flows.iter().enumerate() {
        let bytes = text(3000 + n * 31);
        pair.send(n % 2, *flow, &bytes);
    }
    pair.pass(Now::from_secs(2));
    for (n, flow) in flows.iter().enumerate() {
        assert_eq!(pair.sides[1 - n % 2].stream(*flow).bytes, text(3000 + n * 31));
    }
    assert!(pair.lanes().len() <= 6 + 2);
}

#[test]
fn ciphers_are_recognised_and_not_remembered() {
    let mut pair = Pair::new(10);
    let flow = pair.connect(0);
    let mut bytes = vec![0x16, 3, 1, 2, 0, 1, 0, 1];
    bytes.extend_from_slice(&text(30_000));
    pair.send(0, flow, &bytes);
    pair.pass(Now::from_secs(1));
    assert_eq!(pair.sides[1].stream(flow).bytes, bytes);
    let out = pair.sides[0].link.stats().out;
    assert_eq!((out.uncoded, out.remembered), (bytes.len() as u64, 0));
}

#[test]
fn different_log_sizes_agree_on_the_smaller() {
    let small = LinkConfig { log_capacity: 300 << 10, ..config(false, 2) };
    let mut pair = Pair::with(11, config(true, 1), small);
    let flow = pair.connect(0);
    pair.send(0, flow, &text(400_000));
    pair.pass(Now::from_secs(1));
    assert_eq!(pair.sides[1].stream(flow).bytes, text(400_000));
    assert_eq!(pair.sides[0].link.stats().out.log_capacity, 300 << 10);
    assert_eq!(pair.sides[1].link.stats().inbound.log_capacity, 300 << 10);
}

#[test]
fn bytes_sent_before_a_reset_arrive_before_it() {
    let mut pair = Pair::new(13);
    let flow = pair.connect(0);
    pair.send(1, flow, &text(40_000));
    pair.sides[1].link.abort_flow(flow, ResetReason::Application, pair.now);
    pair.pass(Now::from_secs(1));
    let stream = pair.sides[0].stream(flow);
    assert_eq!(stream.bytes, text(40_000));
    assert_eq!(stream.reset.as_deref(), Some("reset by the application"));
    // Beyond credit nothing is waited for.
    let flow = pair.connect(0);
    pair.sides[0].stalled.push(flow);
    pair.send(1, flow, &text(400_000));
    pair.sides[1].link.abort_flow(flow, ResetReason::Application, pair.now);
    pair.pass(Now::from_secs(1));
    pair.sides[0].stalled.clear();
    pair.read(0, flow);
    let stream = pair.sides[0].stream(flow);
    assert_eq!(stream.bytes, &text(400_000)[..64 << 10]);
    assert!(stream.reset.is_some());
    assert_eq!([0, 1].map(|side| pair.sides[side].link.open_flows()), [0, 0]);
}

#[test]
fn either_side_may_rule_out_coding_of_a_flow() {
    let mut pair = Pair::new(14);
    let flow = pair.open(0);
    pair.run();
    pair.sides[1].link.plan_flow(flow, None);
    pair.sides[1].link.answer_flow(flow, Ok(([127, 0, 0, 1], 5).into()), pair.now);
    pair.run();
    pair.send(0, flow, &text(9000));
    pair.send(1, flow, &text(9000));
    pair.pass(Now::from_secs(1));
    assert_eq!([0, 1].map(|side| pair.sides[side].link.stats().out.uncoded), [9000, 9000]);
}

#[test]
fn each_end_knows_the_policy_against_coding_a_flow() {
    use FlowOutcome::{Coded, PeerPolicy, Policy};
    for (opener_codes, accepter_codes, outcomes) in [
        (true, true, [Coded, Coded]),
        (true, false, [PeerPolicy, Policy]),
        (false, true, [Policy, PeerPolicy]),
        // The opener decided first.
        (false, false, [Policy, PeerPolicy]),
    ] {
        let mut pair = Pair::new(14);
        let plan = |codes: bool| codes.then_some(pair.plan);
        let [opener, accepter] = [opener_codes, accepter_codes].map(plan);
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 80));
        let request =
            OpenRequest { destination: address.into(), source: None, as_client: false, plan: opener };
        let flow = pair.sides[0].link.open_flow(request, pair.now).unwrap();
        pair.run();
        pair.sides[1].link.plan_flow(flow, accepter);
        pair.sides[1].link.answer_flow(flow, Ok(address), pair.now);
        pair.run();
        let told = [0, 1].map(|side| pair.sides[side].link.flow(flow).unwrap().outcome);
        assert_eq!(told, outcomes, "opener codes: {opener_codes}, accepter: {accepter_codes}");
    }
}

#[test]
fn application_leaving_during_an_open_leaves_nothing_behind() {
    for refused in [false, true] {
        let mut pair = Pair::new(15);
        let flow = pair.open(0);
        pair.run();
        // The answer is under way when the application leaves.
        let local = std::net::SocketAddr::from(([127, 0, 0, 1], 5));
        let answer = if refused { Err(OpenFailure::TimedOut) } else { Ok(local) };
        pair.sides[1].link.answer_flow(flow, answer, pair.now);
        pair.sides[0].link.abort_flow(flow, ResetReason::Application, pair.now);
        pair.pass(Now::from_secs(1));
        pair.sides[1].link.abort_flow(flow, ResetReason::Application, pair.now);
        pair.pass(Now::from_secs(1));
        assert_eq!([0, 1].map(|side| pair.sides[side].link.open_flows()), [0, 0], "refused: {refused}");
    }
}

#[test]
fn unwanted_answer_leaves_nothing_behind() {
    let mut pair = Pair::new(18);
    let flow = pair.open(0);
    pair.run();
    let local = std::net::SocketAddr::from(([127, 0, 0, 1], 5));
    for lane in pair.lanes() {
        pair.block(lane, 1, true);
    }
    pair.sides[1].link.answer_flow(flow, Ok(local), pair.now);
    pair.run();
    // The answer is lost with its lane, and comes again long after the flow was given up.
    pair.reachable = false;
    pair.cut_all();
    pair.pass(Now::from_secs(180));
    assert!(pair.sides[0].stream(flow).reset.is_some());
    pair.sides[0].stalled.push(flow);
    pair.reachable = true;
    pair.pass(Now::from_secs(600));
    assert_eq!([0, 1].map(|side| pair.sides[side].link.open_flows()), [0, 0]);
}

#[test]
fn reset_after_the_applications_end_leaves_nothing_behind() {
    let mut pair = Pair::new(16);
    let flow = pair.connect(0);
    // The far application ends its stream and reads no further than its credit.
    pair.sides[1].stalled.push(flow);
    pair.send(0, flow, &text(300_000));
    pair.sides[0].link.finish_flow(flow, pair.now);
    pair.sides[1].link.finish_flow(flow, pair.now);
    pair.pass(Now::from_secs(1));
    assert!(pair.sides[0].stream(flow).finished);
    pair.sides[1].link.abort_flow(flow, ResetReason::Application, pair.now);
    pair.pass(Now::from_secs(1));
    assert_eq!([0, 1].map(|side| pair.sides[side].link.open_flows()), [0, 0]);
}

#[test]
fn peer_without_streaming_contexts_gets_independent_blocks() {
    for side in [0, 1] {
        let [dialer, acceptor] = [config(true, 1), config(false, 2)];
        let with = |of: usize, config| if of == side { LinkConfig { contexts: 0, ..config } } else { config };
        let mut pair = Pair::with(9, with(0, dialer), with(1, acceptor));
        let flow = pair.connect(0);
        for from in [0, 1] {
            pair.send(from, flow, &text(100_000));
            pair.run();
            assert_eq!(pair.sides[1 - from].stream(flow).bytes, text(100_000));
        }
    }
}
