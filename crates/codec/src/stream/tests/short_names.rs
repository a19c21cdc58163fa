//! Chunks named by their tags alone: bytes across, and tags of other bytes.

mod mistakes;
mod parts;

use std::collections::BTreeMap;

use bytes::Bytes;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng as _, SeedableRng as _};

use super::verify::{CAPACITY, LANE, SEED, sender_config};
use crate::contract::{
    ChunkPlace, Decoder as _, DecoderLog as _, Delivery, Encoder as _, EncoderNames as _, Feedback, Parts,
    Payload, PeerSender, PeerState, Repair, SendEvent, StorePort as _, StoreReply, StoreRequest, Tail,
};
use crate::entropy::Entropy;
use crate::plan::Layers;
use crate::stream::{Receiver, ReceiverConfig, Sender, SenderConfig};
use crate::wanax::hints::PackedTag;
use crate::wanax::{ChunkName, LEAST_NAMED, NameKey, NamesConfig, SHORT_BELOW, Shape, Tree};
use crate::wire::{
    Ack, Block, BlockBody, ChunkReason, ChunkRequest, Digest, FlowId, Frame, NameEntry, NamesHello, Refetch,
    RefetchReason, take_frame,
};
use crate::{Now, Plan, StrongKind};

/// Both halves, and a store that answers at once.
struct Halves {
    sender: Sender,
    receiver: Receiver,
    chunks: BTreeMap<u64, Bytes>,
    /// The next chunk read by its tag is another one.
    mistakes: bool,
    asks_neighbours: bool,
    plan: Plan,
    shape: Shape,
    offset: u64,
    now: Now,
    /// The names and the digests of the blocks that crossed last.
    names: Vec<NameEntry>,
    digests: Vec<Digest>,
}

impl Halves {
    fn new(short_names_below: u32) -> Self {
        Self::with_shape(short_names_below, Shape::default())
    }

    fn with_shape(short_names_below: u32, shape: Shape) -> Self {
        let plan = Plan { layers: Layers::Names, entropy: Entropy::None, ..Plan::default() };
        let (hint_memory, clock_secs) = (1 << 18, 1 << 30);
        let names = NamesConfig { key: key(), group: None, shape, hint_memory, saved: None, clock_secs };
        let mut halves = Self {
            sender: Sender::new(SenderConfig { names: Some(names), ..sender_config(plan, CAPACITY) }),
            receiver: Receiver::new(ReceiverConfig {
                capacity: CAPACITY,
                max_in_flight: CAPACITY / 4,
                contexts: 2,
                digest_seed: SEED,
                persist: false,
                store: true,
            }),
            chunks: BTreeMap::new(),
            mistakes: false,
            asks_neighbours: false,
            plan,
            shape,
            offset: 0,
            now: Now::from_secs(1),
            names: Vec::new(),
            digests: Vec::new(),
        };
        halves.meet(short_names_below);
        halves
    }

    fn meet(&mut self, short_names_below: u32) {
        self.receiver.handle_peer(PeerSender {
            capacity: CAPACITY,
            max_in_flight: CAPACITY / 4,
            digest_seed: SEED,
            names: Some(NamesHello { key: key(), shape: self.shape }),
            strong: StrongKind::default(),
            continues: false,
            probe: None,
        });
        let claim = self.receiver.claim();
        let store = Some(7);
        self.sender.handle_peer(PeerState {
            capacity: CAPACITY,
            contexts: 2,
            claim,
            store,
            short_names_below,
            is_of_group: self.asks_neighbours,
            strong: StrongKind::default(),
            continues: false,
        });
    }

    /// Sends all of `plain` and lets both sides say all they have to; returns what was delivered.
    fn cross(&mut self, mut plain: &[u8]) -> Vec<u8> {
        (self.names, self.digests) = (Vec::new(), Vec::new());
        let mut delivered = Vec::new();
        while !plain.is_empty() {
            let (flow, most) = (FlowId(1), 1 << 16);
            let cut = self.sender.cut(flow, &self.plan, plain, Tail::EndOfStream, most, self.now);
            let (block, rest) = plain.split_at(cut.len);
            plain = rest;
            let payload = Payload {
                flow,
                offset: self.offset,
                plain: Bytes::copy_from_slice(block),
                fin: false,
                plan: Some(self.plan),
                parts: cut.parts,
            };
            self.offset += block.len() as u64;
            let mut out = Vec::new();
            self.sender.handle_payload(payload, LANE, self.now, &mut out);
            while !out.is_empty() {
                self.receive(&out, &mut delivered);
                out.clear();
                let mut feedback = Vec::new();
                self.receiver.poll_frame(true, &mut feedback);
                self.answer(&feedback);
                while self.sender.poll_repair(Repair::Chunks(None), &mut out)
                    || self.sender.poll_repair(Repair::Block, &mut out)
                {}
            }
        }
        delivered
    }

    /// Sends a block that is not delivered; returns its frames.
    fn send(&mut self, plain: Vec<u8>) -> Vec<u8> {
        let (plan, offset, plain, mut out) = (Some(self.plan), self.offset, Bytes::from(plain), Vec::new());
        let payload = Payload { flow: FlowId(1), offset, plain, fin: false, plan, parts: Parts::default() };
        self.sender.handle_payload(payload, LANE, self.now, &mut out);
        out
    }

    fn receive(&mut self, mut frames: &[u8], delivered: &mut Vec<u8>) {
        while let Some((kind, body, used)) = take_frame(frames).unwrap() {
            match Frame::decode(kind, body).unwrap() {
                Frame::Block(block) => {
                    if let BlockBody::Coded(body) = &block.body {
                        self.names.extend(&body.names);
                        self.digests.push(body.digest);
                    }
                    self.receiver.handle_block(block, LANE, self.now).unwrap();
                }
                Frame::Probe(probe) => self.receiver.handle_probe(probe),
                other => panic!("unexpected {other:?}"),
            }
            frames = &frames[used..];
        }
        while let Some(request) = self.receiver.poll_chunk_store() {
            self.serve(request);
        }
        while let Some(Delivery::Data { plain, .. }) = self.receiver.poll_payload() {
            delivered.extend_from_slice(&plain);
        }
    }

    fn serve(&mut self, request: StoreRequest) {
        let reply = match request {
            StoreRequest::Put { plain, key, shape } => {
                for node in Tree::new(shape).grow(&plain) {
                    let chunk = plain.slice(node.range());
                    self.chunks.insert(key.tag(&chunk), chunk);
                }
                return;
            }
            StoreRequest::Peek { ticket, chunks, .. } => {
                let places = vec![ChunkPlace::Near; chunks.len()];
                StoreReply::Places { ticket, places, neighbours: Vec::new() }
            }
            StoreRequest::Read { ticket, name, .. } => {
                let mistakes = name.is_short() && std::mem::take(&mut self.mistakes);
                match self.chunks.get(&name.tag()) {
                    Some(bytes) if mistakes => {
                        StoreReply::Found { ticket, bytes: vec![0; bytes.len()].into() }
                    }
                    Some(bytes) => StoreReply::Found { ticket, bytes: bytes.clone() },
                    None => StoreReply::Absent { ticket },
                }
            }
        };
        self.receiver.handle_store(reply, self.now);
    }

    fn answer(&mut self, mut frames: &[u8]) {
        while let Some((kind, body, used)) = take_frame(frames).unwrap() {
            let feedback = match Frame::decode(kind, body).unwrap() {
                Frame::Ack(ack) => Feedback::Ack(ack),
                Frame::Refetch(refetch) => Feedback::Refetch(refetch),
                Frame::ChunkRequest(request) => Feedback::Chunks(request),
                other => panic!("unexpected {other:?}"),
            };
            self.sender.handle_feedback(feedback, self.now).unwrap();
            frames = &frames[used..];
        }
    }

    fn epochs(&mut self) -> usize {
        let events = std::iter::from_fn(|| self.sender.poll_event());
        events.filter(|event| matches!(event, SendEvent::LogStarts { .. })).count()
    }
}

fn key() -> NameKey {
    NameKey::new([3; 32])
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    (0..len).map(|_| rng.next_u64() as u8).collect()
}

/// With another byte in each 20,000.
fn edited(plain: &[u8], from: usize) -> Vec<u8> {
    let mut plain = plain.to_vec();
    plain.iter_mut().skip(from).step_by(20_000).for_each(|byte| *byte ^= 1);
    plain
}

#[test]
fn short_names_go_with_a_strong_digest() {
    let plain = noise(1, 300_000);
    for below in [0, 256, SHORT_BELOW] {
        let mut halves = Halves::new(below);
        assert_eq!(halves.cross(&plain), plain);
        assert!(halves.names.is_empty());
        let again = edited(&plain, 5000);
        assert_eq!(halves.cross(&again), again);
        let (mut short, mut full) = (0, 0);
        for entry in &halves.names {
            assert_eq!(entry.name.is_short(), entry.len < below, "{entry:?} below {below}");
            *(if entry.name.is_short() { &mut short } else { &mut full }) += 1;
        }
        assert_eq!((short > 0, full > 0), (below > 0, below < SHORT_BELOW), "{short}, {full} below {below}");
        let strong = halves.digests.iter().any(|digest| matches!(digest, Digest::Strong(_)));
        assert_eq!(strong, below > 0);
        // All of it again is named by its roots, in full.
        assert_eq!(halves.cross(&again), again);
        assert!(halves.names.iter().any(|entry| !entry.name.is_short()));
    }
}

#[test]
fn chunks_below_64_bytes_are_named_only_without_compression() {
    let plain = noise(7, 100_000);
    for (entropy, least) in [(Entropy::None, LEAST_NAMED as u32), (Entropy::Zstd(1), 64)] {
        let mut halves = Halves::with_shape(SHORT_BELOW, Shape::tree(2, 32).unwrap());
        halves.plan.entropy = entropy;
        assert_eq!(halves.cross(&plain), plain);
        let mut edited = plain.clone();
        edited.iter_mut().step_by(500).for_each(|byte| *byte ^= 1);
        assert_eq!(halves.cross(&edited), edited);
        let shortest = halves.names.iter().map(|entry| entry.len).min();
        assert!(shortest.is_some_and(|len| (least..least + 8).contains(&len)), "{entropy}: {shortest:?}");
    }
}

#[test]
fn block_known_in_many_pieces_is_named_so_once() {
    let mut plain = noise(5, 400_000);
    let mut halves = Halves::new(SHORT_BELOW);
    assert_eq!(halves.cross(&plain), plain);
    // Fewer new bytes than a block is put for.
    plain.iter_mut().skip(30_000).step_by(65_536).for_each(|byte| *byte ^= 1);
    assert_eq!(halves.cross(&plain), plain);
    let (blocks, names) = (halves.digests.len(), halves.names.len());
    assert!(names > 10 * blocks, "{names} names in {blocks} blocks");
    let named: u32 = halves.names.iter().map(|entry| entry.len).sum();
    assert!(named as usize > plain.len() - plain.len() / 128, "{named}");
    assert_eq!(halves.cross(&plain), plain);
    assert_eq!((halves.digests.len(), halves.names.len()), (blocks, blocks));
}

#[test]
fn tag_of_other_bytes_costs_its_block_once() {
    let plain = noise(2, 200_000);
    let mut halves = Halves::new(SHORT_BELOW);
    halves.cross(&plain);
    halves.cross(&edited(&plain, 3000));
    // The store has another chunk by the tag of one named so: somebody made both.
    let short =
        halves.names.iter().filter(|entry| entry.name.is_short()).max_by_key(|entry| entry.len).unwrap();
    let (tag, len) = (short.name.tag(), short.len as usize);
    let right = halves.chunks.insert(tag, vec![0; len].into()).unwrap();
    let resent = halves.sender.stats().resent;
    let epochs = halves.epochs();
    // Other edits at the same places have the same chunks beside them.
    let more = edited(&edited(&edited(&plain, 3000), 3001), 3002);
    assert_eq!(halves.cross(&more), more);
    assert!(halves.names.iter().any(|entry| entry.name.tag() == tag), "an edit fell into the chunk");
    let stats = halves.sender.stats();
    assert_eq!((stats.mismatches, stats.resent - resent), (1, 1));
    assert_eq!((epochs, halves.epochs()), (0, 0), "the log is not suspected");
    assert_eq!(halves.chunks.get(&tag), Some(&right), "what crossed whole was put");
    // For a while chunks are named in full.
    let last = edited(&plain, 15_000);
    assert_eq!(halves.cross(&last), last);
    assert!(!halves.names.is_empty());
    assert!(halves.names.iter().all(|entry| matches!(entry.name, ChunkName::Full(_))));
    halves.now += Now::from_secs(61);
    let next = edited(&plain, 17_000);
    assert_eq!(halves.cross(&next), next);
    assert!(halves.names.iter().any(|entry| entry.name.is_short()));
    assert_eq!(halves.sender.stats().mismatches, 1);
}

#[test]
fn wrong_log_is_not_relied_on_again_despite_tags() {
    let (old, new) = (noise(4, 200_000), noise(6, 50_000));
    let mut halves = Halves::new(SHORT_BELOW);
    halves.plan.layers = Layers::Both;
    halves.cross(&old);
    halves.cross(&noise(5, 1 << 20));
    let start = halves.sender.stats().remembered;
    halves.cross(&new);
    // Half of it from the store, of which the log has nothing any more, and half from the log, in turns.
    let mixed = |round: usize| {
        let (old, new) = (old[round * 50_000..].chunks(10_000), new.chunks(10_000));
        old.zip(new).flat_map(|(old, new)| [&old[..5000], &new[..5000]].concat()).collect::<Vec<u8>>()
    };
    let right = mixed(0);
    assert_eq!(halves.cross(&right), right);
    assert!(halves.names.iter().any(|entry| entry.name.is_short()) && halves.sender.stats().copied > 20_000);
    (start..start + 50_000).step_by(500).for_each(|offset| halves.receiver.damage(offset));
    let mut mismatches = 0;
    for round in 1..4 {
        let more = mixed(round);
        assert_eq!(halves.cross(&more), more);
        let before = std::mem::replace(&mut mismatches, halves.sender.stats().mismatches);
        match round {
            1 => {
                assert!(halves.names.iter().any(|entry| entry.name.is_short()), "it could have been a tag");
                assert!(mismatches > 0);
            }
            _ => assert_eq!(mismatches, before, "what was wrong is not referred to any more"),
        }
    }
}

#[test]
fn right_chunk_of_a_tag_is_put_without_news() {
    let plain = noise(7, 9000);
    let mut halves = Halves::new(SHORT_BELOW);
    halves.cross(&plain);
    let tag = key().tag(&plain);
    let right = halves.chunks.insert(tag, vec![0; plain.len()].into()).unwrap();
    assert_eq!(halves.cross(&plain), plain);
    assert_eq!(halves.names.iter().map(|entry| entry.name).collect::<Vec<_>>(), [ChunkName::Short(tag)]);
    assert_eq!(halves.chunks.get(&tag), Some(&right));
    // It is known again, by its name for a while.
    assert_eq!(halves.cross(&plain), plain);
    assert_eq!(halves.names.len(), 1);
    assert_eq!(halves.sender.stats().mismatches, 1);
}

/// Sends 9000 bytes that have crossed before once more, by their names, and does not deliver them; returns the block
/// too.
fn named_in_flight(seed: u64) -> (Halves, u64) {
    let plain = noise(seed, 9000);
    let mut halves = Halves::new(SHORT_BELOW);
    halves.cross(&plain);
    let seq = halves.sender.stats().blocks;
    halves.send(plain);
    (halves, seq)
}

/// Asks for the first chunk a block names.
fn first_chunk(seq: u64, reason: ChunkReason) -> Feedback {
    Feedback::Chunks(ChunkRequest { seq, reason, indexes: vec![0] })
}

#[test]
fn absent_chunk_already_crossing_does_not_cross_again() {
    let (mut halves, seq) = named_in_flight(9);
    let (mut out, lane, now) = (Vec::new(), LANE, halves.now);
    let mut crosses = |reason| {
        halves.sender.handle_feedback(first_chunk(seq, reason), now).unwrap();
        out.clear();
        let sender = &mut halves.sender;
        while sender.poll_repair(Repair::Chunks(None), &mut out)
            || sender.poll_repair(Repair::Chunks(Some(lane)), &mut out)
        {}
        (out.len() > 9000, halves.sender.stats().absent)
    };
    assert_eq!(crosses(ChunkReason::Shed), (true, 0));
    assert_eq!(crosses(ChunkReason::Absent), (false, 1));
    // Lost with a lane, perhaps.
    assert_eq!(crosses(ChunkReason::Shed), (true, 1));
}

#[test]
fn block_sent_once_more_by_names_brings_absent_chunks() {
    let whole = |seq| Feedback::Refetch(Refetch { reason: RefetchReason::Missing, seqs: vec![seq] });
    let by_chunk = |seq| first_chunk(seq, ChunkReason::Shed);
    for ask in [whole as fn(u64) -> Feedback, by_chunk] {
        let (mut halves, seq) = named_in_flight(10);
        let (now, mut out) = (halves.now, Vec::new());
        // What it is asked for crosses, and is lost with all lanes.
        halves.sender.handle_feedback(ask(seq), now).unwrap();
        while halves.sender.poll_repair(Repair::Block, &mut out)
            || halves.sender.poll_repair(Repair::Chunks(None), &mut out)
        {}
        assert!(out.len() > 9000, "{} bytes", out.len());
        halves.sender.handle_lane_lost(LANE);
        out.clear();
        assert!(
            halves.sender.poll_repair(Repair::Lost(FlowId(1), LANE), &mut out) && out.len() < 1000,
            "{} bytes",
            out.len()
        );
        halves.sender.handle_feedback(first_chunk(seq, ChunkReason::Absent), now).unwrap();
        out.clear();
        while halves.sender.poll_repair(Repair::Chunks(Some(LANE)), &mut out) {}
        assert!(out.len() > 9000, "{} bytes", out.len());
    }
}

#[test]
fn requested_chunk_of_a_resent_block_proves_nothing() {
    let mut halves = Halves::new(SHORT_BELOW);
    (0..17).for_each(|seed| drop(halves.cross(&noise(seed, 9000))));
    let (first, now, mut out) = (halves.sender.stats().blocks, halves.now, Vec::new());
    (0..16).for_each(|seed| drop(halves.send(noise(seed, 9000))));
    // The store is busy, and has nothing of the others.
    for seq in first..first + 16 {
        let reason = if seq == first { ChunkReason::Shed } else { ChunkReason::Absent };
        halves.sender.handle_feedback(first_chunk(seq, reason), now).unwrap();
    }
    while halves.sender.poll_repair(Repair::Chunks(None), &mut out) {}
    assert!(out.len() > 9000, "{} bytes", out.len());
    halves.sender.handle_lane_lost(LANE);
    out.clear();
    assert!(
        halves.sender.poll_repair(Repair::Lost(FlowId(1), LANE), &mut out) && out.len() < 1000,
        "{} bytes",
        out.len()
    );
    let ack = Ack { next: first + 1, ranges: Vec::new() };
    halves.sender.handle_feedback(Feedback::Ack(ack), now).unwrap();
    // So the store is doubted still, and asked instead.
    let frames = halves.send(noise(16, 9000));
    let (kind, body, used) = take_frame(&frames).unwrap().unwrap();
    assert!(matches!(Frame::decode(kind, body).unwrap(), Frame::Probe(_)));
    assert!(frames.len() - used > 9000, "{} bytes", frames.len() - used);
}

#[test]
fn announced_chunk_has_its_full_name_among_neighbours() {
    let plain = noise(8, 200_000);
    let mut other = Halves::new(SHORT_BELOW);
    other.cross(&plain);
    for (asks_neighbours, told) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut halves = Halves::new(SHORT_BELOW);
        halves.asks_neighbours = asks_neighbours;
        halves.meet(SHORT_BELOW);
        if told {
            // As if the peer's neighbours had them, of which this one says nothing.
            halves.chunks = other.chunks.clone();
            let tags = other.chunks.iter().map(|(&tag, chunk)| PackedTag::new(tag, chunk.len() as u32));
            halves.sender.handle_stored(&tags.collect::<Vec<_>>(), halves.now);
        } else {
            halves.cross(&plain);
        }
        let more = edited(&plain, 5000);
        assert_eq!(halves.cross(&more), more);
        assert!(halves.names.iter().any(|entry| (256..SHORT_BELOW).contains(&entry.len)));
        for entry in &halves.names {
            let short = match (asks_neighbours, told) {
                (false, _) => entry.len < SHORT_BELOW,
                (true, false) => entry.len < 2048,
                (true, true) => entry.len < 256,
            };
            assert_eq!(entry.name.is_short(), short, "{entry:?}: {asks_neighbours}, {told}");
        }
    }
}
