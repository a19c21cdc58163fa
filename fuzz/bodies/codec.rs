//! The codec fuzzers' checks. `crates/codec/tests/replay.rs` replays their corpora with this code.

#[allow(dead_code, reason = "a part of it is used here")]
pub(crate) mod script;
pub(crate) mod steps;

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use oncewire_codec::contract::{
    Decoder, Delivery, Encoder, Feedback, Parts, Payload, PeerSender, PeerState, Repair, StorePort as _,
    StoreReply, StoreRequest,
};
use oncewire_codec::endre::matcher::MatchParams;
use oncewire_codec::endre::tokens as token_format;
use oncewire_codec::entropy::{Decompressor, Entropy, Kind, Mode};
use oncewire_codec::log::LogOffset;
use oncewire_codec::stream::{Receiver, ReceiverConfig, Sender, SenderConfig};
use oncewire_codec::wanax::{NameKey, NamesConfig, SHORT_BELOW, Shape, Tree};
use oncewire_codec::wire::{FlowId, Frame, Hello, LaneId, MAX_BLOCK, MAX_FRAME, NamesHello, take_frame};
use oncewire_codec::{Layers, Matching, Now, Plan, StrongKind};

use script::{Script, noise};

/// Any bytes readable as a hello can be written and read again, and the reading takes no more than there is.
pub(crate) fn hello(data: &[u8]) {
    if let Ok(Some((hello, used))) = Hello::decode(data) {
        assert!(used <= data.len());
        let mut again = Vec::new();
        hello.encode(&mut again);
        assert_eq!(Hello::decode(&again), Ok(Some((hello, again.len()))));
    }
}

/// Any bytes readable as a frame can be written and read again, and keep its bounds.
pub(crate) fn frames(mut data: &[u8]) {
    while let Ok(Some((kind, body, used))) = take_frame(data) {
        assert!(used <= data.len() && used <= MAX_FRAME && body.len() < used);
        if let Ok(frame) = Frame::decode(kind, body) {
            if let Frame::Block(block) = &frame {
                assert!(block.plain_len <= MAX_BLOCK);
            }
            let mut again = Vec::new();
            frame.encode(&mut again);
            let (kind, body, _) = take_frame(&again).unwrap().unwrap();
            assert_eq!(Frame::decode(kind, body), Ok(frame));
        }
        data = &data[used..];
    }
}

/// Accepted tokens describe a block of exactly the announced length, from existing bytes.
pub(crate) fn tokens(data: &[u8]) {
    let mut script = Script::new(data);
    let plain_len = script.wide();
    let base = LogOffset(script.wide() as u64);
    let literals = script.wide();
    let mut copies = Vec::new();
    if token_format::decode(script.rest(), plain_len, base, literals, &mut copies).is_ok() {
        let mut end = 0;
        for copy in &copies {
            assert!(copy.at as usize >= end && copy.len > 0);
            assert!(copy.source.0 + u64::from(copy.len) <= base.0);
            end = copy.at as usize + copy.len as usize;
        }
        assert!(end <= plain_len);
        let copied: usize = copies.iter().map(|copy| copy.len as usize).sum();
        assert_eq!(copied + literals, plain_len);
    }
}

/// Compressed bytes of a stranger expand to exactly the announced length, or are an error.
pub(crate) fn entropy(data: &[u8]) {
    let mut script = Script::new(data);
    let mut decompressor = Decompressor::new(2);
    let mut out = Vec::new();
    while let Some(what) = script.next() {
        let kind = if what & 1 == 0 { Kind::Zstd } else { Kind::Lz4 };
        let slot = script.below(3);
        let mode = match what >> 1 & 3 {
            0 | 3 => Mode::Alone,
            1 => Mode::First(slot),
            _ => Mode::Next(slot),
        };
        let plain_len = script.wide();
        let len = script.below(256) * (1 + usize::from(what >> 3 & 7));
        out.clear();
        if decompressor.decompress(kind, mode, script.bytes(len), plain_len, &mut out).is_ok() {
            assert_eq!(out.len(), plain_len);
        }
    }
}

/// Frames of a stranger cost the receiving half bounded memory, and only whole blocks come out.
pub(crate) fn receiver(mut data: &[u8]) {
    let mut receiver = Receiver::new(receiver_config());
    receiver.handle_peer(peer_sender());
    let mut store = Store::default();
    let mut now = Now::ZERO;
    let (mut came, mut delivered) = (0, 0);
    while let Ok(Some((kind, body, used))) = take_frame(data) {
        data = &data[used..];
        now += Now::from_millis(7);
        let taken = match Frame::decode(kind, body) {
            Ok(Frame::Block(block)) => {
                came += block.plain_len;
                receiver.handle_block(block, LaneId(1), now)
            }
            Ok(Frame::Message { seq, flow, message }) => receiver.handle_message(seq, flow, message, now),
            Ok(Frame::Chunks(chunks)) => receiver.handle_chunks(chunks, now),
            Ok(Frame::SavingsCurve(worth)) => {
                receiver.handle_savings(&worth);
                Ok(())
            }
            Ok(Frame::Probe(probe)) => {
                receiver.handle_probe(probe);
                Ok(())
            }
            _ => return,
        };
        if taken.is_err() {
            return;
        }
        store.serve(&mut receiver, now);
        receiver.handle_timeout(now);
        receiver.poll_frame(true, &mut Vec::new());
        while let Some(delivery) = receiver.poll_payload() {
            if let Delivery::Data { plain, .. } = delivery {
                delivered += plain.len();
            }
        }
        assert!(delivered <= came);
    }
}

/// A sending and a receiving half over lanes with delays, losses and repeats: every byte arrives once, unchanged.
pub(crate) fn codec_pair(data: &[u8]) {
    let mut script = Script::new(data);
    let mut world = World::new(script.below(8));
    for _ in 0..MAX_STEPS {
        let Some(what) = script.next() else { break };
        world.step(what, &mut script);
    }
    world.settle();
}

/// Both halves and the frames between them.
struct World {
    entropy: Entropy,
    sender: Sender,
    receiver: Receiver,
    now: Now,
    lanes: [Lane; LANES],
    repairs: VecDeque<u8>,
    feedback: VecDeque<u8>,
    next_lane: u64,
    sent: BTreeMap<FlowId, Vec<u8>>,
    got: BTreeMap<FlowId, Vec<Option<u8>>>,
    history: Vec<u8>,
    store: Store,
}

/// A chunk store with some of the chunks put into it.
#[derive(Default)]
struct Store(BTreeMap<u64, Bytes>);

impl Store {
    fn serve(&mut self, receiver: &mut Receiver, now: Now) {
        while let Some(request) = receiver.poll_chunk_store() {
            match request {
                StoreRequest::Put { plain, key, shape } => {
                    for node in Tree::new(shape).grow(&plain) {
                        let chunk = plain.slice(node.range());
                        self.0.insert(key.tag(&chunk), chunk);
                    }
                }
                StoreRequest::Peek { ticket, .. } => {
                    // Sometimes never answered, too.
                    if ticket % 16 != 15 {
                        receiver.handle_store(StoreReply::each_apart(ticket), now);
                    }
                }
                StoreRequest::Read { ticket, name, .. } => {
                    let reply = match (self.0.get(&name.tag()), name.tag() % 8) {
                        // Never answered.
                        (_, 0) => continue,
                        (_, 1) => StoreReply::Failed { ticket },
                        (Some(bytes), _) => StoreReply::Found { ticket, bytes: bytes.clone() },
                        (None, _) => StoreReply::Absent { ticket },
                    };
                    receiver.handle_store(reply, now);
                }
            }
        }
    }
}

struct Lane {
    id: LaneId,
    bytes: VecDeque<u8>,
}

impl World {
    fn new(kind: usize) -> Self {
        let entropy = [Entropy::None, Entropy::Lz4, Entropy::Zstd(1), Entropy::Zstd(3)][kind % 4];
        let config = SenderConfig {
            capacity: CAPACITY,
            max_in_flight: None,
            entropy,
            contexts: 2,
            params: MatchParams::default(),
            keeps_bytes: kind < 4,
            digest_seed: 1,
            persist: false,
            names: Some(NamesConfig {
                key: key(),
                group: None,
                shape: Shape::default(),
                hint_memory: 1 << 14,
                saved: None,
                clock_secs: 0,
            }),
        };
        let (mut sender, mut receiver) = (Sender::new(config), Receiver::new(receiver_config()));
        sender.handle_peer(PeerState {
            capacity: CAPACITY,
            contexts: 2,
            claim: None,
            store: Some(1),
            short_names_below: SHORT_BELOW,
            is_of_group: false,
            continues: false,
            strong: StrongKind::default(),
        });
        receiver.handle_peer(peer_sender());
        Self {
            entropy,
            sender,
            receiver,
            store: Store::default(),
            now: Now::ZERO,
            lanes: [0, 1, 2].map(|id| Lane { id: LaneId(id), bytes: VecDeque::new() }),
            repairs: VecDeque::new(),
            feedback: VecDeque::new(),
            next_lane: LANES as u64,
            sent: BTreeMap::new(),
            got: BTreeMap::new(),
            history: noise(9, 4096),
        }
    }

    fn step(&mut self, what: u8, script: &mut Script<'_>) {
        let lane = script.below(LANES);
        match what % 8 {
            0 | 1 => self.send(lane, script),
            2 | 3 => self.deliver(lane, 1 + script.below(4)),
            4 => self.cut(lane),
            5 => {
                let mut out = Vec::new();
                self.receiver.poll_frame(lane == 0, &mut out);
                self.feedback.extend(out);
                self.take_feedback();
            }
            6 => self.repair(lane),
            _ => self.wait(script.wide() as u64),
        }
        self.collect();
    }

    /// Sends a piece of a flow: new bytes, or bytes already sent by some flow.
    fn send(&mut self, lane: usize, script: &mut Script<'_>) {
        let (flow, how, len) = (FlowId(lane as u32), script.below(256), script.wide());
        if !self.sender.load().has_room || self.sender.pending(flow).lost {
            return;
        }
        let from = (how * 257) % self.history.len();
        let mut plain = match how % 2 {
            0 => noise((how * 65536 + len) as u64, len % 40_000),
            _ => self.history.iter().skip(from).take(len).copied().collect(),
        };
        if how % 5 == 1 {
            plain.extend_from_slice(script.bytes(40));
        }
        plain.truncate(MAX_BLOCK);
        self.history.extend_from_slice(&plain);
        let forget = self.history.len().saturating_sub(2 * CAPACITY as usize);
        self.history.drain(..forget);
        let sent = self.sent.entry(flow).or_default();
        let offset = sent.len() as u64;
        sent.extend_from_slice(&plain);
        let entropy = [self.entropy, Entropy::Zstd(1), Entropy::Lz4, Entropy::None][how / 64];
        let matching = if how & 8 == 0 { Matching::Max } else { Matching::Chunk };
        let layers = [Layers::Log, Layers::Both, Layers::Names, Layers::Both][how >> 4 & 3];
        let period = 64 << (how % 3);
        let plan = (how != 7).then(|| Plan { layers, entropy, matching, period, ..Plan::default() });
        let payload =
            Payload { flow, offset, plain: Bytes::from(plain), fin: false, plan, parts: Parts::default() };
        let mut out = Vec::new();
        self.sender.handle_payload(payload, self.lanes[lane].id, self.now, &mut out);
        self.lanes[lane].bytes.extend(out);
    }

    /// Lets frames of a lane arrive.
    fn deliver(&mut self, lane: usize, count: usize) {
        for _ in 0..count {
            let bytes = &mut self.lanes[lane].bytes;
            if !deliver_one(&mut self.receiver, bytes, self.now) {
                return;
            }
        }
    }

    /// Breaks a lane, with the frames on it.
    fn cut(&mut self, lane: usize) {
        self.sender.handle_lane_lost(self.lanes[lane].id);
        self.next_lane += 1;
        self.lanes[lane] = Lane { id: LaneId(self.next_lane), bytes: VecDeque::new() };
    }

    /// Sends again the blocks lost on lanes, and those asked for.
    fn repair(&mut self, lane: usize) {
        let mut out = Vec::new();
        while self.sender.poll_repair(Repair::Lost(FlowId(lane as u32), self.lanes[lane].id), &mut out) {}
        self.lanes[lane].bytes.extend(out.drain(..));
        while self.sender.poll_repair(Repair::Chunks(None), &mut out)
            || self.sender.poll_repair(Repair::Block, &mut out)
        {}
        self.repairs.extend(out);
        while deliver_one(&mut self.receiver, &mut self.repairs, self.now) {}
    }

    fn wait(&mut self, millis: u64) {
        self.now += Now::from_millis(millis);
        self.receiver.handle_timeout(self.now);
    }

    fn take_feedback(&mut self) {
        let bytes: Vec<u8> = self.feedback.drain(..).collect();
        let mut rest = &bytes[..];
        while let Some((kind, body, used)) = take_frame(rest).unwrap() {
            let feedback = match Frame::decode(kind, body).unwrap() {
                Frame::Ack(ack) => Feedback::Ack(ack),
                Frame::Need(ranges) => Feedback::Need(ranges),
                Frame::Refetch(refetch) => Feedback::Refetch(refetch),
                Frame::LogHeld(held) => Feedback::Held(held),
                Frame::ChunkRequest(request) => Feedback::Chunks(request),
                other => panic!("not feedback: {other:?}"),
            };
            self.sender.handle_feedback(feedback, self.now).unwrap();
            rest = &rest[used..];
        }
        while self.sender.poll_event().is_some() {}
    }

    /// Puts delivered bytes in their place, and fails if the place is taken.
    fn collect(&mut self) {
        self.store.serve(&mut self.receiver, self.now);
        while let Some(delivery) = self.receiver.poll_payload() {
            let Delivery::Data { flow, offset, plain, .. } = delivery else { panic!("{delivery:?}") };
            let (got, end) = (self.got.entry(flow).or_default(), offset as usize + plain.len());
            got.resize(got.len().max(end), None);
            for (place, byte) in got[offset as usize..end].iter_mut().zip(plain) {
                assert_eq!(place.replace(byte), None, "flow {flow:?} got a byte twice");
            }
        }
    }

    /// Lets everything arrive and compares.
    fn settle(&mut self) {
        for _ in 0..MAX_ROUNDS {
            for lane in 0..LANES {
                self.repair(lane);
                self.deliver(lane, usize::MAX);
            }
            self.wait(1000);
            self.collect();
            let mut out = Vec::new();
            self.receiver.poll_frame(true, &mut out);
            self.feedback.extend(out);
            self.take_feedback();
            if self.sent.keys().all(|flow| self.sender.pending(*flow).items == 0) {
                break;
            }
        }
        for (flow, sent) in &self.sent {
            let got: Option<Vec<u8>> =
                self.got.get(flow).map_or(Some(Vec::new()), |got| got.iter().copied().collect());
            assert!(got.as_ref() == Some(sent), "flow {flow:?}: not what was sent");
            assert_eq!(self.sender.pending(*flow).items, 0, "flow {flow:?} is not acknowledged");
        }
        assert_eq!(self.receiver.stats().mismatches, 0);
    }
}

/// Hands the first whole frame of `bytes` to the receiving half.
fn deliver_one(receiver: &mut Receiver, bytes: &mut VecDeque<u8>, now: Now) -> bool {
    let Some((kind, body, used)) = take_frame(bytes.make_contiguous()).unwrap() else { return false };
    match Frame::decode(kind, body).unwrap() {
        Frame::Block(block) => receiver.handle_block(block, LaneId(1), now).unwrap(),
        Frame::Chunks(chunks) => receiver.handle_chunks(chunks, now).unwrap(),
        other => panic!("neither block nor chunks: {other:?}"),
    }
    bytes.drain(..used);
    true
}

fn receiver_config() -> ReceiverConfig {
    ReceiverConfig {
        capacity: CAPACITY,
        max_in_flight: CAPACITY / 4,
        contexts: 2,
        digest_seed: 1,
        persist: false,
        store: true,
    }
}

fn peer_sender() -> PeerSender {
    PeerSender {
        capacity: CAPACITY,
        max_in_flight: CAPACITY / 4,
        digest_seed: 1,
        names: Some(NamesHello { key: key(), shape: Shape::default() }),
        strong: StrongKind::default(),
        continues: false,
        probe: None,
    }
}

fn key() -> NameKey {
    NameKey::new([3; 32])
}

/// No power of two, and small enough for scripts to reach its end.
const CAPACITY: u64 = 262_207;
const LANES: usize = 3;
const MAX_STEPS: usize = 400;
const MAX_ROUNDS: usize = 50;
