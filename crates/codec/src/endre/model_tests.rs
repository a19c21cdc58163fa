//! The model: a sender and a receiver over lanes that lose, delay and repeat, against plain copies of the flows.
//!
//! The reference knows nothing of logs: it remembers what each flow sent and checks that each delivered byte
//! is that byte, once. A seed names a run. In two of three runs the receiving half has a chunk store, which loses,
//! delays and damages chunks, is replaced by another, and in some runs lies.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

use super::matcher::MatchParams;
use super::model_store::{ModelStore, Read};
use super::{PreparedLog, Receiver, ReceiverConfig, Sender, SenderConfig};
use crate::cache::{Log, LogOffset, RangeSet};
use crate::contract::{
    Delivery, Feedback, LogWrite, Payload, PeerSender, PeerState, ReceivingHalf, SavedLog, SendEvent,
    SendingHalf, StoreState,
};
use crate::entropy::Entropy;
use crate::wanax::hints::save_by;
use crate::wanax::{NameKey, NamesConfig, Shape};
use crate::wire::{FlowId, Frame, LaneId, LogClaim, LogWorth, NamesHello, take_frame};
use crate::{Layers, Matching, Now, Plan, Quota};

const CAPACITY: u64 = 48 * 1024;
const MAX_PLAIN: u64 = 3000;
const SEED: u64 = 77;

/// What the reference knows of one flow.
#[derive(Default)]
struct Reference {
    sent: Vec<u8>,
    delivered: RangeSet,
    finished: bool,
    fin_delivered: bool,
    lane: Option<LaneId>,
}

struct Model {
    rng: Pcg64Mcg,
    now: Now,
    sender: Sender,
    receiver: Receiver,
    /// What each half had written to disk.
    disk: [Vec<LogWrite>; 2],
    entropy: Entropy,
    keeps_bytes: bool,
    flows: BTreeMap<FlowId, Reference>,
    next_flow: u32,
    lanes: BTreeMap<LaneId, VecDeque<Vec<u8>>>,
    /// Lanes that the sender gave up and that still bring frames, in their order.
    late: Vec<(LaneId, VecDeque<Vec<u8>>)>,
    next_lane: u64,
    feedback: VecDeque<Vec<u8>>,
    worths: VecDeque<LogWorth>,
    restored: u64,
    history: Vec<u8>,
    /// The block that was sent last.
    last: Vec<u8>,
    warm_bytes: u64,
    store: Option<Store>,
    /// Whether the logs' limits change, and logs are cleared; in every second run.
    changes_logs: bool,
    /// The most ranges that the receiving half remembers, in some of these.
    few_ranges: Option<usize>,
}

/// The receiving side's store.
struct Store {
    id: u64,
    model: ModelStore,
    lies: bool,
    /// Chunks that lied, so that there may be mismatches.
    lied: u64,
}

/// How one sending half begins.
#[derive(Default)]
struct Begin {
    planted: bool,
    saved: Option<SavedLog>,
    /// What was saved of the hints.
    hints: Option<Vec<u8>>,
}

fn sender(entropy: Entropy, keeps_bytes: bool, begin: Begin) -> Sender {
    let Begin { planted, saved, hints } = begin;
    let names = NamesConfig {
        key: NameKey::new([5; 32]),
        shape: Shape::default(),
        hint_memory: 1 << 16,
        saved: hints,
        clock_secs: 1000,
    };
    let config = SenderConfig { names: Some(names), ..sender_config(entropy, keeps_bytes) };
    let mut sender = match saved {
        None => Sender::new(config),
        Some(saved) => Sender::with_log(config, saved, &Plan { period: 16, ..Plan::default() }),
    };
    sender.planted_error = planted;
    sender.set_least_in_flight(CAPACITY / 24);
    sender
}

fn sender_config(entropy: Entropy, keeps_bytes: bool) -> SenderConfig {
    SenderConfig {
        capacity: CAPACITY,
        max_in_flight: Some(CAPACITY / 3),
        entropy,
        contexts: 3,
        params: MatchParams { period: 16, window: 16, ..MatchParams::default() },
        keeps_bytes,
        digest_seed: SEED,
        persist: true,
        names: None,
    }
}

fn receiver(store: bool, saved: Option<SavedLog>) -> Receiver {
    let config = ReceiverConfig {
        capacity: CAPACITY,
        max_in_flight: CAPACITY / 3,
        contexts: 3,
        digest_seed: SEED,
        persist: true,
        store,
    };
    match saved {
        None => Receiver::new(config),
        Some(saved) => Receiver::with_log(config, saved),
    }
}

fn peer_sender() -> PeerSender {
    let names = NamesHello { key: NameKey::new([5; 32]), shape: Shape::default() };
    PeerSender { capacity: CAPACITY, max_in_flight: CAPACITY / 3, digest_seed: SEED, names: Some(names) }
}

/// What a file would hold of a log, and the writes that are left of it: some of the last writes may be missing, and some in the middle.
fn saved(writes: &[LogWrite], mut pick: impl FnMut(u64) -> u64) -> Option<(SavedLog, Vec<LogWrite>)> {
    let kept = writes.len() - pick(3).min(writes.len() as u64) as usize;
    let epoch = writes[..kept].last()?.epoch;
    let mut saved = SavedLog { epoch, log: Log::new(CAPACITY as usize), ranges: RangeSet::default() };
    let mut left = Vec::new();
    for write in writes[..kept].iter().filter(|write| write.epoch == epoch) {
        let end = write.start + write.plain.len() as u64;
        if pick(40) == 0 {
            continue;
        }
        saved.log.write(LogOffset(write.start), &write.plain);
        saved.ranges.insert(write.start..end);
        left.push(write.clone());
    }
    let highest = saved.ranges.iter().next_back()?.end;
    saved.ranges.remove_below(highest.saturating_sub(CAPACITY));
    Some((saved, left))
}

impl Model {
    fn new(seed: u64, planted: bool) -> Self {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let entropy = [Entropy::None, Entropy::Lz4, Entropy::Zstd(1)][rng.next_u64() as usize % 3];
        // Chunk-Match seldom finds the oldest bytes, which is where the planted error is.
        let keeps_bytes = rng.next_u64() % 3 != 0 || planted;
        let has_store = !seed.is_multiple_of(3);
        let mut model = Self {
            rng,
            now: Now::from_secs(1),
            sender: sender(entropy, keeps_bytes, Begin { planted, ..Begin::default() }),
            receiver: receiver(has_store, None),
            disk: Default::default(),
            entropy,
            keeps_bytes,
            flows: BTreeMap::new(),
            next_flow: 0,
            lanes: BTreeMap::new(),
            late: Vec::new(),
            next_lane: 0,
            feedback: VecDeque::new(),
            worths: VecDeque::new(),
            restored: 0,
            history: Vec::new(),
            last: Vec::new(),
            warm_bytes: 0,
            store: has_store.then(|| Store {
                id: 1,
                model: ModelStore::default(),
                lies: seed % 7 == 5,
                lied: 0,
            }),
            changes_logs: seed % 2 == 1,
            few_ranges: (seed % 8 == 3).then_some(1 + seed as usize / 8 % 4),
        };
        model.receiver.few_ranges = model.few_ranges;
        model.receiver.handle_peer_restart(peer_sender());
        model.meet(None);
        for _ in 0..4 {
            model.add_lane();
        }
        model
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.rng.next_u64() % bound.max(1)
    }

    fn add_lane(&mut self) {
        self.lanes.insert(LaneId(self.next_lane), VecDeque::new());
        self.next_lane += 1;
    }

    fn some_lane(&mut self) -> LaneId {
        let pick = self.below(self.lanes.len() as u64) as usize;
        *self.lanes.keys().nth(pick).unwrap()
    }

    /// Half fresh bytes, half pieces of anything sent before, the very old included; where there is a store, now and
    /// then what was sent just before, so that it is named while it is under way.
    fn content(&mut self) -> Vec<u8> {
        if self.store.is_some() && self.below(6) == 0 {
            return self.last.clone();
        }
        let len = self.below(MAX_PLAIN) as usize;
        let mut plain = Vec::with_capacity(len);
        while plain.len() < len {
            let piece = (1 + self.below(700) as usize).min(len - plain.len());
            if self.history.len() > 1000 && self.below(4) != 0 {
                let reach = if self.below(2) == 0 { self.history.len() as u64 } else { CAPACITY + 4000 };
                let back = 1 + self.below(reach.min(self.history.len() as u64)) as usize;
                let start = self.history.len() - back;
                plain.extend_from_slice(&self.history[start..(start + piece).min(self.history.len())]);
            } else {
                plain.extend((0..piece).map(|_| (self.rng.next_u64() >> 11) as u8));
            }
        }
        plain.truncate(len);
        plain
    }

    fn send(&mut self) {
        if !self.sender.has_room() {
            return;
        }
        if self.flows.len() < 6 && self.below(10) == 0 || self.flows.is_empty() {
            self.flows.insert(FlowId(self.next_flow), Reference::default());
            self.next_flow += 1;
        }
        let pick = self.below(self.flows.len() as u64) as usize;
        let (&id, _) = self.flows.iter().nth(pick).unwrap();
        if self.flows[&id].finished {
            return;
        }
        let lane = self.lane_of(id);
        let mut out = Vec::new();
        while self.sender.poll_lost(id, lane, &mut out) {}
        let plain = self.content();
        let fin = self.below(40) == 0;
        let plan = (id.0 % 7 != 3).then(|| self.plan());
        self.history.extend_from_slice(&plain);
        self.last.clone_from(&plain);
        let flow = self.flows.get_mut(&id).unwrap();
        let offset = flow.sent.len() as u64;
        flow.sent.extend_from_slice(&plain);
        flow.finished = fin;
        let payload = Payload { flow: id, offset, plain: Bytes::from(plain), fin, plan };
        self.sender.handle_payload(payload, lane, self.now, &mut out);
        self.put(lane, &out);
    }

    /// Plans differ between blocks, as policies and a controller make them.
    fn plan(&mut self) -> Plan {
        let entropy = match self.below(8) {
            0 => Entropy::None,
            1 => Entropy::Lz4,
            2 => Entropy::Zstd(3),
            _ => self.entropy,
        };
        let period = 16 << self.below(8).saturating_sub(5);
        let class = self.below(8) as u16;
        let quota = (class < 3).then_some(Quota { class, bytes: u64::from(class) * CAPACITY / 8 });
        let is_max = self.below(2) == 0 || self.sender.planted_error;
        let matching = if is_max { Matching::Max } else { Matching::Chunk };
        let layers = match self.below(4) {
            _ if self.sender.planted_error => Layers::Log,
            0 => Layers::Log,
            1 => Layers::Names,
            _ => Layers::Both,
        };
        Plan { layers, entropy, period, matching, quota, ..Plan::default() }
    }

    /// A flow keeps its lane while it has anything unacknowledged.
    fn lane_of(&mut self, id: FlowId) -> LaneId {
        match self.flows[&id].lane.filter(|lane| self.lanes.contains_key(lane)) {
            Some(lane) if self.sender.unacked(id) > 0 => lane,
            _ => {
                let lane = self.some_lane();
                self.flows.get_mut(&id).unwrap().lane = Some(lane);
                lane
            }
        }
    }

    fn put(&mut self, lane: LaneId, out: &[u8]) {
        let queue = self.lanes.get_mut(&lane).unwrap();
        split(out).into_iter().for_each(|frame| queue.push_back(frame));
    }

    fn deliver(&mut self) {
        let lane = self.some_lane();
        if self.below(12) == 0 && !self.late.is_empty() {
            let pick = self.below(self.late.len() as u64) as usize;
            let (lane, frames) = &mut self.late[pick];
            let (lane, frame) = (*lane, frames.pop_front());
            match frame {
                Some(frame) => self.receive(lane, &frame),
                None => drop(self.late.swap_remove(pick)),
            }
        } else if let Some(frame) = self.lanes.get_mut(&lane).and_then(VecDeque::pop_front) {
            self.receive(lane, &frame);
        }
    }

    fn receive(&mut self, lane: LaneId, frame: &[u8]) {
        let (kind, body, _) = take_frame(frame).unwrap().unwrap();
        match Frame::decode(kind, body).unwrap() {
            Frame::Block(block) => self.receiver.handle_block(block, lane, self.now).unwrap(),
            Frame::Chunks(chunks) => self.receiver.handle_chunks(chunks, self.now).unwrap(),
            Frame::Probe(probe) => self.receiver.handle_probe(probe),
            other => panic!("neither block nor chunks nor a question: {other:?}"),
        }
        self.collect();
    }

    fn collect(&mut self) {
        while let Some(Delivery::Data { flow, offset, plain, fin }) = self.receiver.poll_payload() {
            let Some(reference) = self.flows.get_mut(&flow) else { continue };
            let range = offset..offset + plain.len() as u64;
            assert_eq!(plain, reference.sent[range.start as usize..range.end as usize], "wrong bytes");
            assert!(!reference.delivered.overlaps(&range), "bytes delivered twice");
            reference.delivered.insert(range.clone());
            assert!(!fin || (reference.finished && range.end == reference.sent.len() as u64), "wrong end");
            reference.fin_delivered |= fin;
        }
        while let Some(request) = self.receiver.poll_chunk_store() {
            self.store.as_mut().unwrap().model.handle(request);
        }
        self.poll_feedback(false);
    }

    /// The store answers a read, or never will, or something becomes of it.
    fn run_store(&mut self) {
        let (pick, how) = (self.below(1 << 20), self.below(40));
        let (now, rng) = (self.now, &mut self.rng);
        let Some(Store { id, model, lies, lied }) = &mut self.store else { return };
        let how = match how {
            0 => Read::Fails,
            1 => Read::Hangs,
            3 => Read::Refuses,
            2 if *lies => Read::Lies,
            _ => Read::Honest,
        };
        if let Some(reply) = model.answer(pick, how) {
            *lied += u64::from(how == Read::Lies);
            self.receiver.handle_store(reply, now);
        }
        match pick % 400 {
            0 => model.lose(8, |bound| rng.next_u64() % bound),
            // All of it, with or without saying so.
            1 => *model = ModelStore::default(),
            2 if pick % 7 == 0 => {
                *model = ModelStore::default();
                *id += 1;
            }
            10..20 => self.receiver.handle_store_wait(pick >> 9, Now::from_millis(pick % 900), now),
            3..10 => {
                let service_time = Now::from_millis(pick >> 9 & 15);
                let (age_secs, taking) = (pick >> 5 & 255, pick % 11 != 0);
                let state = StoreState { queued: model.waiting(), service_time, age_secs, taking };
                self.receiver.handle_store_state(state, now);
                self.receiver.handle_path(Now::from_millis(40), pick);
            }
            _ => {}
        }
        self.collect();
    }

    /// Lets both halves meet anew.
    fn meet(&mut self, claim: Option<LogClaim>) {
        let store = self.store.as_ref().map(|store| store.id);
        self.sender.handle_peer_state(PeerState { capacity: CAPACITY, contexts: 3, claim, store });
    }

    fn poll_feedback(&mut self, flush: bool) {
        let mut out = Vec::new();
        if self.receiver.poll_frame(flush, &mut out) {
            self.feedback.extend(split(&out));
        }
    }

    fn handle_feedback(&mut self) {
        let Some(frame) = self.feedback.pop_front() else { return };
        let (kind, body, _) = take_frame(&frame).unwrap().unwrap();
        let feedback = match Frame::decode(kind, body).unwrap() {
            Frame::Ack(ack) => Feedback::Ack(ack),
            Frame::Need(ranges) => Feedback::Need(ranges),
            Frame::Refetch(refetch) => Feedback::Refetch(refetch),
            Frame::LogHeld(held) => Feedback::Held(held),
            Frame::ChunkRequest(request) => Feedback::Chunks(request),
            Frame::StoreHeld(held) => Feedback::Store(held),
            Frame::Probed(probed) => Feedback::Probed(probed),
            other => panic!("unexpected feedback {other:?}"),
        };
        self.sender.handle_frame(feedback, self.now).unwrap();
        let mut out = Vec::new();
        while self.sender.poll_repair(&mut out) {}
        let lane = self.some_lane();
        self.put(lane, &out);
        for lane in self.lanes.keys().copied().collect::<Vec<_>>() {
            let mut out = Vec::new();
            while self.sender.poll_chunks(lane, &mut out) {}
            self.put(lane, &out);
        }
        while let Some(event) = self.sender.poll_event() {
            if let SendEvent::Warm { bytes } = event {
                self.warm_bytes += bytes;
            }
        }
    }

    /// Kills a lane: what it still held is lost, or some of it arrives late, beside what is sent again.
    fn kill_lane(&mut self) {
        let lane = self.some_lane();
        let mut held = self.lanes.remove(&lane).unwrap();
        let keep = self.below(held.len() as u64 + 1) as usize;
        held.truncate(keep);
        self.late.push((lane, held));
        self.add_lane();
        self.sender.handle_lane_lost(lane);
        // Acknowledgements that were under way on it are lost too.
        let keep = self.below(self.feedback.len() as u64 + 1) as usize;
        self.feedback.truncate(keep);
        self.sender.restate();
        self.receiver.restate(self.now);
        self.resend_lost();
    }

    fn resend_lost(&mut self) {
        let ids: Vec<FlowId> = self.flows.keys().copied().collect();
        for id in ids {
            if self.sender.has_lost(id) {
                let lane = self.lane_of(id);
                let mut out = Vec::new();
                while self.sender.poll_lost(id, lane, &mut out) {}
                self.put(lane, &out);
            }
        }
    }

    /// All lanes at once: an outage.
    fn reconnect(&mut self) {
        for _ in 0..self.lanes.len() {
            self.kill_lane();
        }
    }

    fn write_to_disk(&mut self) {
        self.disk[0].extend(std::iter::from_fn(|| self.sender.poll_log_write()));
        self.disk[1].extend(std::iter::from_fn(|| self.receiver.poll_log_write()));
    }

    /// One side is a new process; with `keep_log` it found what it had written of its log.
    fn restart(&mut self, keep_log: bool, sending_side: bool) {
        self.write_to_disk();
        let rng = &mut self.rng;
        let disk = &mut self.disk[usize::from(!sending_side)];
        let found = if keep_log { saved(disk, |bound| rng.next_u64() % bound) } else { None };
        // The next life finds what this one found, and what it writes itself.
        let (saved, left) = found.unzip();
        *disk = left.unwrap_or_default();
        self.flows.clear();
        self.late.clear();
        self.feedback.clear();
        self.worths.clear();
        self.lanes.values_mut().for_each(VecDeque::clear);
        if sending_side {
            let hints = save_by(|at| self.sender.save_hints(at)).filter(|_| keep_log);
            let planted = self.sender.planted_error;
            self.sender = sender(self.entropy, self.keeps_bytes, Begin { planted, saved, hints });
        } else {
            self.receiver = receiver(self.store.is_some(), saved);
            self.receiver.few_ranges = self.few_ranges;
        }
        let claim = self.receiver.claim();
        self.receiver.handle_peer_restart(peer_sender());
        self.meet(claim);
        self.sender.restate();
        self.receiver.restate(self.now);
        let mut out = Vec::new();
        if self.sender.poll_probe(&mut out) {
            let (kind, body, _) = take_frame(&out).unwrap().unwrap();
            let Frame::Probe(probe) = Frame::decode(kind, body).unwrap() else { panic!("not a probe") };
            self.receiver.handle_probe(probe);
            self.collect();
        }
    }

    /// Lets everything arrive and checks that nothing is missing.
    fn settle(&mut self) {
        for _ in 0..100_000 {
            let frames = self.lanes.values().map(VecDeque::len).sum::<usize>();
            if frames == 0 && self.feedback.is_empty() && self.sender.stats().unacked == 0 {
                break;
            }
            self.deliver();
            self.run_store();
            self.poll_feedback(frames == 0);
            self.handle_feedback();
            if frames == 0 {
                self.pass_time();
            }
        }
        assert_eq!(self.sender.stats().unacked, 0, "something was never acknowledged");
        for (id, flow) in &self.flows {
            assert!(flow.delivered.contains(&(0..flow.sent.len() as u64)), "flow {} lacks bytes", id.0);
            assert_eq!(flow.finished, flow.fin_delivered, "flow {} ended wrongly", id.0);
        }
    }

    /// Either end gets more memory or less, or forgets everything.
    fn change_logs(&mut self) {
        let limit = match self.below(3) {
            0 => CAPACITY,
            _ => self.below(CAPACITY + 1000),
        };
        match self.below(20) {
            0 => self.sender.clear_log(),
            1 => self.receiver.clear_log(),
            // Idle, or nearly so.
            16 | 17 => {
                self.settle();
                assert!(self.sender.release_log());
                self.receiver.release_log();
            }
            18 | 19 => drop(self.receiver.release_log()),
            2..9 => self.sender.set_limit(limit, self.now),
            _ => self.receiver.set_limit(limit),
        }
        let mut out = Vec::new();
        if self.sender.poll_worth(&mut out) {
            let (kind, body, _) = take_frame(&out).unwrap().unwrap();
            let Frame::LogWorth(worth) = Frame::decode(kind, body).unwrap() else { panic!("not a worth") };
            self.worths.push_back(worth);
        }
        self.poll_feedback(false);
    }

    /// Logs come back from disk, as far as they were there; mostly soon.
    fn restore_logs(&mut self) {
        let [out, inbound] = [self.sender.stats().released, self.receiver.stats().released];
        self.restored += u64::from(out) + u64::from(inbound);
        if out || inbound {
            self.write_to_disk();
        }
        let Self { rng, disk, .. } = self;
        if out {
            let found = saved(&disk[0], |bound| rng.next_u64() % bound);
            let config = sender_config(self.entropy, self.keeps_bytes);
            self.sender.restore_log(
                found.map(|(found, _)| {
                    PreparedLog::new(&config, found, &Plan { period: 16, ..Plan::default() })
                }),
            );
        }
        if inbound {
            let found = saved(&disk[1], |bound| rng.next_u64() % bound);
            self.receiver.restore_log(found.map(|(found, _)| found), self.now);
            self.collect();
        }
    }

    /// What a log is worth comes late, or is overtaken.
    fn hear_worth(&mut self) {
        let pick = self.below(self.worths.len() as u64) as usize;
        if let Some(worth) = self.worths.remove(pick) {
            self.receiver.handle_worth(&worth);
            self.poll_feedback(false);
        }
    }

    fn pass_time(&mut self) {
        self.hear_worth();
        if self.below(4) == 0 {
            self.restore_logs();
        }
        self.now += Now::from_millis(self.rng.next_u64() % 120);
        let mut calls = 0;
        while self.receiver.poll_timeout().is_some_and(|at| at <= self.now) {
            calls += 1;
            assert!(calls < 4, "what was due at {:?} is due again and again", self.now);
            self.receiver.handle_timeout(self.now);
            self.poll_feedback(false);
        }
    }

    fn step(&mut self) {
        if self.store.is_some() && self.below(3) == 0 {
            self.run_store();
        }
        match self.below(100) {
            0..45 => self.send(),
            45..78 => self.deliver(),
            78..90 => self.handle_feedback(),
            90..97 => self.pass_time(),
            97 => self.kill_lane(),
            98 if self.below(8) == 0 => self.reconnect(),
            99 if self.below(4) == 0 => {
                let (keep_log, sending) = (self.below(2) == 0, self.below(2) == 0);
                self.restart(keep_log, sending);
            }
            _ => {}
        }
        if self.changes_logs && self.below(80) == 0 {
            self.change_logs();
        }
        if self.below(60) == 0 {
            // An aborted flow: nobody waits for its bytes any more, its blocks still go to the log.
            let first = self.flows.keys().next().copied();
            if let Some(id) = first.filter(|&id| self.flows[&id].finished && !self.sender.has_lost(id)) {
                self.sender.finish_flow(id);
                if self.sender.unacked(id) == 0 {
                    self.flows.remove(&id);
                }
            }
        }
    }
}

fn split(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        let (_, _, used) = take_frame(bytes).unwrap().unwrap();
        frames.push(bytes[..used].to_vec());
        bytes = &bytes[used..];
    }
    frames
}

#[derive(Debug)]
struct Outcome {
    violations: u64,
    waited: u64,
    copied: u64,
    warm: u64,
    wraps: u64,
    resent: u64,
    given_up: u64,
    restored: u64,
    /// Plain bytes of chunks that the store had.
    hit_bytes: u64,
    absent: u64,
    /// Chunks that were named before the blocks that bring them were there.
    awaited: u64,
    /// Chunks that were asked for though they were there: shed, or late.
    hurried: u64,
}

fn run(seed: u64, steps: u32, planted: bool) -> Outcome {
    let mut model = Model::new(seed, planted);
    for _ in 0..steps {
        model.step();
    }
    model.settle();
    let (received, sent) = (model.receiver.stats(), model.sender.stats());
    let lied = model.store.as_ref().map_or(0, |store| store.lied);
    let chunks = received.chunks;
    Outcome {
        violations: received.overwritten + received.mismatches.saturating_sub(lied),
        hit_bytes: chunks.hits.bytes,
        absent: chunks.absent,
        awaited: chunks.waited,
        hurried: chunks.shed + chunks.late,
        waited: received.waited,
        copied: received.copied,
        warm: model.warm_bytes,
        wraps: sent.remembered / CAPACITY,
        resent: sent.resent,
        given_up: received.given_up,
        restored: model.restored,
    }
}

const SEEDS: u64 = 120;
const STEPS: u32 = 4000;

/// Other runs than those of every test: `ONCEWIRE_SEEDS=1000..2000`.
#[allow(clippy::disallowed_methods, reason = "which runs is said by whoever starts them")]
fn more_seeds() -> Option<std::ops::Range<u64>> {
    let seeds = std::env::var("ONCEWIRE_SEEDS").ok()?;
    let (start, end) = seeds.split_once("..").unwrap();
    Some(start.parse().unwrap()..end.parse().unwrap())
}

#[test]
fn every_byte_arrives_once_and_no_reference_is_ever_overwritten() {
    let mut total = Outcome {
        violations: 0,
        waited: 0,
        copied: 0,
        warm: 0,
        wraps: 0,
        resent: 0,
        given_up: 0,
        restored: 0,
        hit_bytes: 0,
        absent: 0,
        awaited: 0,
        hurried: 0,
    };
    let seeds = more_seeds().unwrap_or(0..SEEDS);
    let runs = seeds.end - seeds.start;
    for seed in seeds {
        println!("seed {seed}");
        let outcome = run(seed, STEPS, false);
        assert_eq!(outcome.violations, 0, "seed {seed}");
        total.waited += outcome.waited;
        total.copied += outcome.copied;
        total.warm += outcome.warm;
        total.wraps += outcome.wraps;
        total.resent += outcome.resent;
        total.given_up += outcome.given_up;
        total.restored += outcome.restored;
        total.hit_bytes += outcome.hit_bytes;
        total.absent += outcome.absent;
        total.awaited += outcome.awaited;
        total.hurried += outcome.hurried;
    }
    // The runs must have been where it is dangerous.
    println!("{total:?}");
    assert!(total.waited > 100 && total.copied > 1 << 19 && total.resent > 100 && total.given_up > runs / 4);
    let Outcome { hit_bytes, absent, awaited, hurried, .. } = total;
    assert!(hit_bytes > 1 << 16 && absent > 300 && awaited > 90 && hurried > 80);
    assert!(total.restored > runs / 4, "{} logs restored", total.restored);
    let (warm, wraps) = (total.warm, total.wraps);
    assert!(warm > 0 && wraps > runs / 5, "{warm} warm bytes, {wraps} wraps");
}

#[test]
fn a_window_measured_from_the_oldest_unacknowledged_block_is_found_out() {
    let found = (0..SEEDS).filter(|&seed| run(seed, STEPS, true).violations > 0).count();
    assert!(found as u64 > SEEDS / 8, "the planted error was found by {found} of {SEEDS} seeds only");
}
