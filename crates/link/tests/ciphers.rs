//! Streams with changes to a cipher and back, between two links.

mod common;

use common::{Pair, config, text};
use oncewire_codec::{Layers, Plan};
use oncewire_link::{Cipher, FlowId, FlowOutcome, LinkConfig, Now};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Pcg64Mcg::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}

fn record(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind, 3, 3][..], &(body.len() as u16).to_be_bytes(), body].concat()
}

/// A hello of a client (1) or a server (2).
fn hello(kind: u8) -> Vec<u8> {
    record(
        22,
        &[&[kind, 0, 0, 72, 3, 3][..], &noise(7, 32), &[32], &noise(8, 32), &[0, 2, 0x13, 1, 1]].concat(),
    )
}

fn data(seed: u64, records: u64, len: usize) -> Vec<u8> {
    (0..records).flat_map(|n| record(23, &noise(seed * 1000 + n, len))).collect()
}

fn outcome(pair: &Pair, side: usize, flow: FlowId) -> (FlowOutcome, Option<u64>) {
    let flow = pair.sides[side].link.flow(flow).expect("the flow is there");
    (flow.outcome, flow.begins_after)
}

#[test]
fn tls_behind_a_tunnel_request_is_neither_remembered_nor_unnamed() {
    let mut pair = Pair::new(1);
    let flow = pair.connect(0);
    let request = b"CONNECT a:443 HTTP/1.1\r\n\r\n";
    pair.send(0, flow, request);
    pair.pass(Now::from_secs(1));
    let answer = b"HTTP/1.1 200 OK\r\n\r\n";
    pair.send(1, flow, answer);
    pair.send(0, flow, &hello(1));
    pair.pass(Now::from_secs(1));
    assert_eq!(outcome(&pair, 0, flow), (FlowOutcome::Coded, None));
    let secret = data(1, 25, 16_000);
    let stream = [&hello(2)[..], &secret].concat();
    for piece in stream.chunks(65_536) {
        pair.send(1, flow, piece);
        pair.pass(Now::from_secs(1));
    }
    let sent = [&answer[..], &stream].concat();
    assert!(pair.sides[0].stream(flow).bytes == sent);
    let out = pair.sides[1].link.stats().out;
    assert_eq!(out.uncoded, secret.len() as u64);
    assert!(out.remembered <= (sent.len() - secret.len()) as u64, "{out:?}");
    // Of the client, with few bytes, the hello alone was seen: its gateway knows by the answers.
    let is_tls = FlowOutcome::Cipher(Cipher::Tls);
    assert_eq!(outcome(&pair, 1, flow), (is_tls, Some(answer.len() as u64)));
    assert_eq!(outcome(&pair, 0, flow), (is_tls, Some(answer.len() as u64)));
}

#[test]
fn content_behind_the_last_record_is_coded_and_remembered() {
    let mut pair = Pair::new(2);
    let flow = pair.connect(0);
    let (page, secret) = (text(40_000), data(2, 5, 3000));
    let stream = [b"x", &hello(1)[..], &secret, &page].concat();
    pair.send(0, flow, &stream);
    pair.pass(Now::from_secs(1));
    assert_eq!(outcome(&pair, 0, flow), (FlowOutcome::Coded, None));
    let before = pair.sides[0].link.stats().out;
    assert_eq!(before.uncoded, secret.len() as u64);
    pair.send(0, flow, &page);
    pair.pass(Now::from_secs(1));
    let after = pair.sides[0].link.stats().out;
    assert!(after.copied - before.copied > 39_000, "{after:?}");
    assert!(pair.sides[1].stream(flow).bytes == [&stream[..], &page].concat());
}

#[test]
fn streams_turning_again_and_again_cross_unchanged() {
    let limited = |first, instance| LinkConfig { rate_limit: Some(4_000_000), ..config(first, instance) };
    type Configure = fn(bool, u64) -> LinkConfig;
    let setups: [(Plan, Configure); 3] = [
        (Plan::default(), config),
        (Plan { layers: Layers::Both, ..Plan::default() }, config),
        (Plan::default(), limited),
    ];
    for seed in 0..12 {
        let (plan, config) = setups[seed as usize % 3];
        println!("seed {seed}");
        let mut pair = Pair::with(seed, config(true, 1), config(false, 2));
        pair.plan = plan;
        let flow = pair.connect(0);
        let mut sent = vec![b'x'];
        for n in 0..12 {
            let len = 1 + pair.below(40_000) as usize;
            sent.extend(match pair.below(5) {
                0 => noise(seed * 100 + n, len),
                1 | 2 => [hello(1), data(seed * 100 + n, 8 + pair.below(8), 1 + len / 8)].concat(),
                _ => text(len),
            });
        }
        let mut rest = &sent[..];
        while !rest.is_empty() {
            let len = (1 + pair.below(30_000) as usize).min(rest.len());
            pair.send(0, flow, &rest[..len]);
            rest = &rest[len..];
            if pair.below(3) == 0 {
                pair.run();
            }
        }
        pair.sides[0].link.finish_flow(flow, pair.now);
        pair.pass(Now::from_secs(30));
        let stream = pair.sides[1].stream(flow);
        assert!(stream.bytes == sent && stream.finished, "seed {seed}");
    }
}
