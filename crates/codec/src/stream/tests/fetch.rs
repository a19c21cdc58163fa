//! What a peer can make the receiving half hold by naming chunks, and how often it asks.

use std::num::NonZeroU32;

use crate::contract::{
    ChunkPlace, Decoder, PeerSender, StorePort as _, StoreReply, StoreRequest, StoreState,
};
use crate::endre::tokens;
use crate::endre::tokens::Copy;
use crate::log::LogOffset;
use crate::stream::{Receiver, ReceiverConfig};
use crate::verify::digest::block_digest;
use crate::wanax::{ChunkName, NameKey, Shape};
use crate::wire::{
    Block, BlockBody, Body, ChunkReason, Chunks, Digest, FlowId, Frame, LaneId, NameEntry, NamesHello,
    Range64, take_frame,
};
use crate::{Now, StrongKind};

const LANE: LaneId = LaneId(1);
const SEED: u64 = 3;

mod late;
mod queue;

fn receiver() -> Receiver {
    let mut receiver = Receiver::new(ReceiverConfig {
        capacity: 1 << 20,
        max_in_flight: 1 << 18,
        contexts: 1,
        digest_seed: SEED,
        persist: false,
        store: true,
    });
    let names = Some(NamesHello { key: key(), shape: Shape::default() });
    receiver.handle_peer(PeerSender {
        capacity: 1 << 20,
        max_in_flight: 1 << 18,
        digest_seed: SEED,
        names,
        strong: StrongKind::default(),
        continues: false,
        probe: None,
    });
    receiver.handle_patience(Now::from_millis(50));
    receiver
}

fn key() -> NameKey {
    NameKey::new([1; 32])
}

/// Hands over a block of `chunks` chunks of `len` bytes each, all of them named.
fn name(receiver: &mut Receiver, seq: u64, chunks: u32, len: u32, now: Now) {
    let plain = vec![7; (chunks * len) as usize];
    let chunk = key().name(&plain[..len as usize]);
    let names = (0..chunks).map(|at| NameEntry {
        at: at * len,
        len,
        level: 0,
        name: ChunkName::Full(chunk),
        behind: None,
    });
    let names = names.collect();
    block(receiver, seq, &plain, names, now);
}

fn block(receiver: &mut Receiver, seq: u64, plain: &[u8], names: Vec<NameEntry>, now: Now) {
    put_block(receiver, seq, plain, (names, true), now);
}

/// Hands over a block with these names, which is to be put or not.
fn put_block(
    receiver: &mut Receiver,
    seq: u64,
    plain: &[u8],
    (names, keep): (Vec<NameEntry>, bool),
    now: Now,
) {
    let literals = if names.is_empty() { plain } else { &[] };
    let body = Body {
        epoch: 1,
        start: 0,
        remembered: false,
        keep,
        names,
        digest: Digest::Fast(block_digest(SEED, 1, plain)),
        tokens: None,
        literals: literals.len(),
        entropy: None,
        bytes: literals,
    };
    let (flow, offset, plain_len) = (FlowId(0), seq * 65_536, plain.len());
    let body = BlockBody::Coded(body);
    let block = Block { seq, flow, offset, plain_len, fin: false, resent: false, body };
    receiver.handle_block(block, LANE, now).unwrap();
}

/// The indexes asked for, by reason, and the blocks asked for whole.
fn asked(receiver: &mut Receiver) -> (Vec<(ChunkReason, Vec<u32>)>, usize) {
    let (mut out, mut chunks, mut blocks) = (Vec::new(), Vec::new(), 0);
    receiver.poll_frame(true, &mut out);
    let mut rest = &out[..];
    while let Some((kind, body, used)) = take_frame(rest).unwrap() {
        match Frame::decode(kind, body).unwrap() {
            Frame::ChunkRequest(request) => chunks.push((request.reason, request.indexes)),
            Frame::Refetch(refetch) => blocks += refetch.seqs.len(),
            _ => {}
        }
        rest = &rest[used..];
    }
    (chunks, blocks)
}

/// The ranges of the log asked for.
fn needed(receiver: &mut Receiver) -> Vec<Range64> {
    let (mut out, mut ranges) = (Vec::new(), Vec::new());
    receiver.poll_frame(true, &mut out);
    let mut rest = &out[..];
    while let Some((kind, body, used)) = take_frame(rest).unwrap() {
        if let Frame::Need(some) = Frame::decode(kind, body).unwrap() {
            ranges.extend(some);
        }
        rest = &rest[used..];
    }
    ranges
}

/// The tickets of all that is to be read, once it is said each chunk takes a read of its own.
fn reads(receiver: &mut Receiver) -> Vec<u64> {
    reads_with(receiver, Now::ZERO, |_| Vec::new())
}

/// The tickets of all reads, after an answer of so many places.
fn reads_with(receiver: &mut Receiver, now: Now, places: impl Fn(usize) -> Vec<ChunkPlace>) -> Vec<u64> {
    let mut tickets = Vec::new();
    while let Some(request) = receiver.poll_chunk_store() {
        match request {
            StoreRequest::Read { ticket, .. } => tickets.push(ticket),
            StoreRequest::Peek { ticket, chunks, .. } => {
                let places = places(chunks.len());
                receiver.handle_store(StoreReply::Places { ticket, places, neighbours: Vec::new() }, now);
            }
            StoreRequest::Put { .. } => {}
        }
    }
    tickets
}

#[test]
fn blocks_without_a_store_are_still_delivered() {
    let mut receiver = receiver();
    for seq in 0..600 {
        block(&mut receiver, seq, b"something to keep", Vec::new(), Now::ZERO);
    }
    let chunks = receiver.stats().chunks;
    assert_eq!((chunks.put, chunks.not_put), (512, 88));
    assert_eq!(std::iter::from_fn(|| receiver.poll_payload()).count(), 600);
    assert_eq!(std::iter::from_fn(|| receiver.poll_chunk_store()).count(), 512);
}

#[test]
fn absent_chunk_is_requested_at_once_and_then_less_often() {
    let mut receiver = receiver();
    name(&mut receiver, 0, 3, 64, Now::ZERO);
    let tickets = reads(&mut receiver);
    receiver.handle_store(StoreReply::Absent { ticket: tickets[1] }, Now::ZERO);
    receiver.handle_store(StoreReply::Failed { ticket: tickets[2] }, Now::ZERO);
    assert_eq!(asked(&mut receiver).0, [(ChunkReason::Absent, vec![1, 2])]);
    receiver.handle_store(StoreReply::Found { ticket: tickets[0], bytes: vec![7; 64].into() }, Now::ZERO);
    assert_eq!(asked(&mut receiver).0, []);
    let mut times = Vec::new();
    while times.len() < 6 {
        let now = receiver.poll_timeout().unwrap();
        receiver.handle_timeout(now);
        if !asked(&mut receiver).0.is_empty() {
            times.push(now.as_millis());
        }
    }
    assert_eq!(times, [400, 1200, 2800, 6000, 12_400, 25_200]);
    // A lane was lost: at once.
    receiver.resend_control_state(Now::ZERO);
    assert_eq!(asked(&mut receiver).0, [(ChunkReason::Shed, vec![1, 2])]);
    let chunks = Chunks { seq: 0, indexes: vec![1, 2], entropy: None, bytes: &[7; 128] };
    receiver.handle_chunks(chunks, Now::ZERO).unwrap();
    assert_eq!(receiver.stats().blocks, 1);
}

#[test]
fn store_is_told_of_chunks_brought_by_a_block() {
    let mut receiver = receiver();
    let plain = [7; 64];
    let entry = |name, behind| NameEntry { at: 0, len: 64, level: 0, name: ChunkName::Full(name), behind };
    block(&mut receiver, 0, &plain, Vec::new(), Now::ZERO);
    for (seq, behind) in [(1, NonZeroU32::new(1)), (2, None)] {
        block(&mut receiver, seq, &plain, vec![entry(key().name(&plain), behind)], Now::ZERO);
        let mut reads = Vec::new();
        while let Some(request) = receiver.poll_chunk_store() {
            match request {
                StoreRequest::Read { is_brought, .. } => reads.push(is_brought),
                StoreRequest::Peek { ticket, .. } => {
                    let (places, neighbours) = (vec![ChunkPlace::Near], Vec::new());
                    receiver.handle_store(StoreReply::Places { ticket, places, neighbours }, Now::ZERO);
                }
                StoreRequest::Put { .. } => {}
            }
        }
        assert_eq!(reads, [behind.is_some()]);
    }
}

/// The blocks put.
fn puts(receiver: &mut Receiver) -> usize {
    let requests = std::iter::from_fn(|| receiver.poll_chunk_store());
    requests.filter(|request| matches!(request, StoreRequest::Put { .. })).count()
}

#[test]
fn busy_chunk_is_requested_but_neither_forgotten_nor_put() {
    type Reply = fn(u64) -> StoreReply;
    let busy: Reply = |ticket| StoreReply::Busy { ticket };
    let absent: Reply = |ticket| StoreReply::Absent { ticket };
    let failed: Reply = |ticket| StoreReply::Failed { ticket };
    for (reply, reason, put) in
        [(busy, ChunkReason::Shed, 0), (absent, ChunkReason::Absent, 1), (failed, ChunkReason::Absent, 1)]
    {
        let mut receiver = receiver();
        let plain = [7; 64];
        let names = vec![NameEntry {
            at: 0,
            len: 64,
            level: 0,
            name: ChunkName::Full(key().name(&plain)),
            behind: None,
        }];
        // Its sender takes it for known.
        put_block(&mut receiver, 0, &plain, (names, false), Now::ZERO);
        let ticket = reads(&mut receiver)[0];
        receiver.handle_store(reply(ticket), Now::ZERO);
        assert_eq!(asked(&mut receiver).0, [(reason, vec![0])]);
        let chunks = Chunks { seq: 0, indexes: vec![0], entropy: None, bytes: &plain };
        receiver.handle_chunks(chunks, Now::ZERO).unwrap();
        assert_eq!((receiver.stats().blocks, puts(&mut receiver)), (1, put), "{reason:?}");
        let stats = receiver.stats().chunks;
        assert_eq!((stats.busy + stats.absent + stats.failed, stats.busy), (1, 1 - put as u64));
    }
}

#[test]
fn repeatedly_absent_chunk_is_requested_and_put_each_time() {
    let mut receiver = receiver();
    for seq in 0..20 {
        let now = Now::from_secs(seq);
        name(&mut receiver, seq, 2, 64, now);
        let tickets = reads(&mut receiver);
        receiver.handle_store(StoreReply::Found { ticket: tickets[0], bytes: vec![7; 64].into() }, now);
        receiver.handle_store(StoreReply::Absent { ticket: tickets[1] }, now);
        // Nobody waits for a second answer.
        receiver.handle_store(StoreReply::Absent { ticket: tickets[1] }, now);
        assert_eq!(asked(&mut receiver), (vec![(ChunkReason::Absent, vec![1])], 0));
        let chunks = Chunks { seq, indexes: vec![1], entropy: None, bytes: &[7; 64] };
        receiver.handle_chunks(chunks, now).unwrap();
        let stats = receiver.stats();
        let (times, chunks) = (seq + 1, stats.chunks);
        assert_eq!((stats.blocks, chunks.names.count, chunks.hits.count), (times, 2 * times, times));
        assert_eq!((chunks.absent, chunks.requested_bytes, chunks.put), (times, 64 * times, times));
        assert_eq!((stats.refetched, stats.mismatches, chunks.late), (0, 0, 0));
        assert!(matches!(receiver.poll_chunk_store(), Some(StoreRequest::Put { .. })));
        assert_eq!(receiver.poll_chunk_store(), None);
    }
}

#[test]
fn chunk_unlike_its_name_costs_only_its_block() {
    let mut receiver = receiver();
    name(&mut receiver, 0, 2, 64, Now::ZERO);
    for ticket in reads(&mut receiver) {
        receiver.handle_store(StoreReply::Found { ticket, bytes: vec![8; 64].into() }, Now::ZERO);
    }
    let stats = receiver.stats();
    assert_eq!((stats.blocks, stats.mismatches, asked(&mut receiver).1), (0, 1, 1));
    assert_eq!(receiver.poll_payload(), None);
    // Of another length it is no answer at all.
    name(&mut receiver, 1, 1, 64, Now::ZERO);
    let ticket = reads(&mut receiver)[0];
    receiver.handle_store(StoreReply::Found { ticket, bytes: vec![7; 63].into() }, Now::ZERO);
    assert_eq!(asked(&mut receiver).0, [(ChunkReason::Absent, vec![0])]);
}

/// A block that names the whole of the one before it.
fn repeat(receiver: &mut Receiver, seq: u64, behind: u32, plain: &[u8], now: Now) {
    let (name, behind) = (key().name(plain), NonZeroU32::new(behind));
    block(
        receiver,
        seq,
        plain,
        vec![NameEntry { at: 0, len: plain.len() as u32, level: 0, name: ChunkName::Full(name), behind }],
        now,
    );
}

const FILM: &[u8] = &[5; 900];

#[test]
fn chunk_of_a_coming_block_is_read_after_its_put() {
    let mut receiver = receiver();
    repeat(&mut receiver, 2, 2, FILM, Now::ZERO);
    repeat(&mut receiver, 1, 1, FILM, Now::ZERO);
    assert_eq!((reads(&mut receiver), asked(&mut receiver)), (vec![], (vec![], 0)));
    block(&mut receiver, 0, FILM, Vec::new(), Now::ZERO);
    assert!(matches!(receiver.poll_chunk_store(), Some(StoreRequest::Put { .. })));
    for ticket in reads(&mut receiver) {
        receiver.handle_store(StoreReply::Found { ticket, bytes: FILM.into() }, Now::ZERO);
    }
    let stats = receiver.stats();
    assert_eq!((stats.blocks, stats.chunks.waited, stats.chunks.hits.count), (3, 2, 2));
    // From then on there is nothing to wait for.
    repeat(&mut receiver, 3, 3, FILM, Now::ZERO);
    assert_eq!(reads(&mut receiver).len(), 1);
    assert_eq!(asked(&mut receiver), (vec![], 0));
}

#[test]
fn block_awaited_by_many_is_requested_once() {
    let mut receiver = receiver();
    for seq in 1..=5 {
        repeat(&mut receiver, seq, seq as u32, FILM, Now::ZERO);
    }
    let mut times = Vec::new();
    while times.len() < 3 {
        let now = receiver.poll_timeout().unwrap();
        receiver.handle_timeout(now);
        match asked(&mut receiver) {
            (chunks, 1) if chunks.is_empty() => times.push(now.as_millis()),
            other => assert_eq!(other, (vec![], 0)),
        }
    }
    assert_eq!(times, [200, 600, 1000]);
    receiver.resend_control_state(Now::ZERO);
    let now = receiver.poll_timeout().unwrap();
    receiver.handle_timeout(now);
    assert_eq!((now, asked(&mut receiver).1), (Now::ZERO, 1), "a lane was lost: at once");
    // As it was sent, and not again.
    block(&mut receiver, 0, FILM, Vec::new(), Now::from_secs(1));
    assert_eq!((receiver.stats().blocks, reads(&mut receiver).len()), (1, 5));
}

#[test]
fn waiting_block_is_not_requested() {
    let mut receiver = receiver();
    let ms = Now::from_millis;
    repeat(&mut receiver, 1, 1, FILM, Now::ZERO);
    repeat(&mut receiver, 2, 1, FILM, Now::ZERO);
    receiver.handle_timeout(ms(200));
    assert_eq!(asked(&mut receiver), (vec![], 1), "the first of them all");
    receiver.handle_timeout(ms(500));
    assert_eq!(asked(&mut receiver), (vec![], 0));
    block(&mut receiver, 0, FILM, Vec::new(), ms(500));
    let ticket = reads(&mut receiver)[0];
    receiver.handle_store(StoreReply::Found { ticket, bytes: FILM.into() }, ms(500));
    assert_eq!((receiver.stats().blocks, reads(&mut receiver).len()), (2, 1));
}

#[test]
fn a_distance_beyond_the_first_block_is_none() {
    let mut receiver = receiver();
    repeat(&mut receiver, 1, 2, FILM, Now::ZERO);
    assert_eq!((reads(&mut receiver).len(), receiver.stats().chunks.waited), (1, 0));
}

#[test]
fn waiting_blocks_are_bounded_and_end_with_the_peer() {
    let mut receiver = receiver();
    for seq in 5000..6100 {
        repeat(&mut receiver, seq, 4000, FILM, Now::ZERO);
    }
    assert_eq!(asked(&mut receiver).1, 0, "they are short");
    receiver.handle_timeout(Now::from_millis(200));
    let (mut whole, mut more) = (0, 1);
    while more > 0 {
        receiver.handle_timeout(Now::from_millis(200));
        more = asked(&mut receiver).1;
        whole += more;
    }
    assert_eq!(whole, 1100, "those that are waited for");
    let names = None;
    receiver.handle_peer(PeerSender {
        capacity: 1 << 20,
        max_in_flight: 1 << 18,
        digest_seed: SEED,
        names,
        strong: StrongKind::default(),
        continues: false,
        probe: None,
    });
    assert_eq!(receiver.poll_timeout(), None);
}

/// A body that copies from the log and brings nothing else.
fn copying(epoch: u64, start: u64, tokens: &[u8]) -> Body<'_> {
    Body {
        epoch,
        start,
        remembered: false,
        keep: false,
        names: Vec::new(),
        digest: Digest::Fast(0),
        tokens: Some(tokens.len()),
        literals: 0,
        entropy: None,
        bytes: tokens,
    }
}

#[test]
fn all_missing_ranges_of_a_block_are_requested() {
    let mut receiver = receiver();
    let copies: Vec<Copy> =
        (0..600).map(|at| Copy { at: at * 20, len: 20, source: LogOffset(u64::from(at) * 30) }).collect();
    let mut bytes = Vec::new();
    tokens::encode(&copies, LogOffset(100_000), &mut bytes);
    let body = BlockBody::Coded(copying(0, 100_000, &bytes));
    let (flow, plain_len) = (FlowId(0), 12_000);
    let block = Block { seq: 1, flow, offset: 0, plain_len, fin: false, resent: false, body };
    receiver.handle_block(block, LANE, Now::ZERO).unwrap();
    receiver.handle_timeout(Now::from_millis(50));
    let lacking: Vec<Range64> = copies.iter().map(|copy| copy.range()).collect();
    assert_eq!(needed(&mut receiver), lacking);
}

#[test]
fn arrived_block_of_a_flow_is_held_until_delivery() {
    let mut receiver = receiver();
    let held = |receiver: &Receiver, seq: u64| {
        let behind = seq * 65_536;
        assert!(!receiver.holds(FlowId(1), u64::MAX), "of another flow");
        [behind, behind + 1].map(|before| receiver.holds(FlowId(0), before))
    };
    // It is read.
    name(&mut receiver, 1, 1, 64, Now::ZERO);
    assert_eq!(held(&receiver, 1), [false, true]);
    let ticket = reads(&mut receiver)[0];
    receiver.handle_store(StoreReply::Found { ticket, bytes: vec![7; 64].into() }, Now::ZERO);
    assert_eq!(held(&receiver, 1), [false, false]);
    // There is no room to read it.
    receiver.set_room([0, 0, 1 << 20, 1]);
    name(&mut receiver, 2, 1, 64, Now::ZERO);
    name(&mut receiver, 3, 1, 64, Now::ZERO);
    reads(&mut receiver).into_iter().for_each(|ticket| {
        assert_eq!(held(&receiver, 3), [true, true]);
        receiver.handle_store(StoreReply::Found { ticket, bytes: vec![7; 64].into() }, Now::ZERO);
    });
    assert_eq!(held(&receiver, 3), [false, true]);
    let ticket = reads(&mut receiver)[0];
    receiver.handle_store(StoreReply::Found { ticket, bytes: vec![7; 64].into() }, Now::ZERO);
    // It copies what is not there, and is then asked for whole.
    let mut bytes = Vec::new();
    tokens::encode(&[Copy { at: 0, len: 64, source: LogOffset(0) }], LogOffset(1000), &mut bytes);
    let block = |body, resent| Block {
        seq: 4,
        flow: FlowId(0),
        offset: 4 * 65_536,
        plain_len: 64,
        fin: false,
        resent,
        body,
    };
    receiver.handle_block(block(BlockBody::Coded(copying(1, 1000, &bytes)), false), LANE, Now::ZERO).unwrap();
    assert_eq!(held(&receiver, 4), [false, true]);
    receiver.handle_timeout(Now::from_millis(50));
    assert_eq!(asked(&mut receiver).1, 0);
    receiver.handle_timeout(Now::from_secs(1));
    assert_eq!((asked(&mut receiver).1, held(&receiver, 4)), (1, [false, true]));
    receiver.handle_block(block(BlockBody::Uncoded(&[7; 64]), true), LANE, Now::ZERO).unwrap();
    assert_eq!(held(&receiver, 4), [false, false]);
}
