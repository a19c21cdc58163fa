//! The link fuzzers' checks. `crates/link/tests/replay.rs` replays their corpora with this code.

#[path = "../../crates/link/tests/common/raw.rs"]
mod raw;
#[allow(dead_code, reason = "a part of it is used here")]
pub(crate) mod script;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use oncewire_codec::entropy::Entropy;
use oncewire_codec::wanax::{NameKey, NamesConfig, Shape, Tree};
use oncewire_codec::wire::Sought;
use oncewire_codec::{Layers, Plan};
use oncewire_link::{
    ChunkPlace, Destination, Event, FlowId, Host, LaneId, LaneRole, Link, LinkConfig, Now, OpenRequest,
    Received, ResetReason, StoreReply, StoreRequest, StoreState,
};

use script::{Script, noise};

/// An authenticated peer may send anything: the link refuses it or goes on, in bounded memory.
pub(crate) fn link_input(data: &[u8]) {
    take_anything(Setup::new(0), data);
}

fn take_anything(setup: Setup, data: &[u8]) {
    let mut script = Script::new(data);
    let mut link = Link::new(setup.config(true), Now::ZERO);
    let peer = Link::new(setup.config(false), Now::ZERO);
    let mut now = Now::ZERO;
    for (lane, role) in ROLES {
        let hello = peer.hello(lane, role);
        link.handle_lane_up(link.hello(lane, role).instance, &hello, lane, role, true, now).unwrap();
    }
    while let Some(what) = script.next() {
        let lane = ROLES[usize::from(what) % ROLES.len()].0;
        now += Now::from_millis(u64::from(what));
        let len = script.wide();
        let mut input = BytesMut::from(script.bytes(len));
        let before = input.len();
        if link.handle_input(lane, &mut input, now).is_err() {
            return;
        }
        assert!(input.len() <= before);
        link.handle_timeout(now);
        while let Some(event) = link.poll_event() {
            match event {
                Event::FlowOffered { flow, .. } => link.answer_flow(flow, Ok(ADDRESS), now),
                Event::FlowReadable(flow) => while link.poll_payload(flow, now).is_some() {},
                Event::CloseLane(..) => return,
                _ => {}
            }
        }
        while let Some(request) = link.poll_chunk_store() {
            match request {
                StoreRequest::Read { ticket, .. } => link.handle_store(StoreReply::Absent { ticket }, now),
                StoreRequest::Peek { ticket, .. } => link.handle_store(StoreReply::each_apart(ticket), now),
                StoreRequest::Put { .. } => {}
            }
        }
        for (lane, _) in ROLES {
            link.poll_transmit(lane, now, &mut Vec::new());
        }
    }
}

/// Two links over late and broken lanes, with chunk stores whose answers are late, reordered, wrong or missing: an
/// application gets a beginning of the sent bytes, and a stream with an end is whole.
pub(crate) fn link_pair(data: &[u8]) {
    play(data, |setup| setup);
}

/// As [`link_pair`], with the tiny codec, which has neither log nor names.
pub(crate) fn raw_pair(data: &[u8]) {
    play(data, |setup| Setup { is_raw: true, stores: [false; 2], ..setup });
}

/// Plays a script with two links that are set up as its first byte says, but for a change.
fn play(data: &[u8], change: impl FnOnce(Setup) -> Setup) {
    let mut script = Script::new(data);
    let setup = Setup::new(script.next().unwrap_or(0));
    let mut world = World::new(change(setup));
    for _ in 0..MAX_STEPS {
        let Some(what) = script.next() else { break };
        world.step(what, &mut script);
    }
    world.settle();
}

/// A peer with the tiny codec may send anything too.
pub(crate) fn raw_input(data: &[u8]) {
    take_anything(Setup { is_raw: true, stores: [false; 2], ..Setup::new(0) }, data);
}

/// How both links of a pair are set up.
#[derive(Clone, Copy)]
struct Setup {
    plan: Plan,
    shape: Shape,
    rate_limit: Option<u64>,
    /// Whether each side has a store.
    stores: [bool; 2],
    shed: bool,
    /// Whether the codec is the tiny one.
    is_raw: bool,
}

impl Setup {
    fn new(what: u8) -> Self {
        let layers = [Layers::Both, Layers::Names, Layers::Both, Layers::Log][usize::from(what % 4)];
        let entropy = if what & 4 == 0 { Entropy::Zstd(1) } else { Entropy::None };
        let shape = if what & 8 == 0 { Shape::default() } else { Shape::tree(2, 32).unwrap_or_default() };
        Self {
            plan: Plan { layers, entropy, ..Plan::default() },
            shape,
            rate_limit: [None, Some(4_000_000), None, Some(40_000_000)][usize::from(what >> 4) % 4],
            stores: [what & 64 == 0, true],
            shed: what & 128 != 0,
            is_raw: false,
        }
    }

    fn config(&self, dialer: bool) -> LinkConfig {
        let side = usize::from(!dialer);
        LinkConfig {
            instance: 1 + u64::from(dialer),
            secret: 7,
            first: dialer,
            dialer,
            log_capacity: LinkConfig::MIN_LOG,
            contexts: 2,
            max_lanes: 4,
            plan: self.plan,
            rate_limit: self.rate_limit,
            names: Some(NamesConfig {
                key: NameKey::new([side as u8; 32]),
                group: None,
                shape: self.shape,
                hint_memory: 1 << 16,
                saved: None,
                clock_secs: 1 << 30,
            }),
            store: self.stores.get(side).is_some_and(|has| *has).then_some(1),
            shed: self.shed,
            codecs: if self.is_raw { vec![raw::raw()] } else { LinkConfig::default().codecs },
            ..LinkConfig::default()
        }
    }
}

/// Two gateways, the lanes between them and the applications beside them.
struct World {
    setup: Setup,
    ends: [End; 2],
    lanes: BTreeMap<LaneId, [VecDeque<u8>; 2]>,
    next_lane: u64,
    now: Now,
}

/// One gateway and its applications.
struct End {
    link: Link,
    inputs: BTreeMap<LaneId, BytesMut>,
    wanted: Vec<LaneRole>,
    sent: BTreeMap<FlowId, Sent>,
    got: BTreeMap<FlowId, Got>,
    chunks: BTreeMap<u64, Bytes>,
    /// Unanswered reads.
    reads: VecDeque<StoreRequest>,
    /// Whether they wait until they are answered one by one.
    holds_reads: bool,
}

/// The outcome of a read.
#[derive(Clone, Copy)]
enum Answer {
    Honest,
    Absent,
    Failed,
    /// Other bytes of the same length.
    Other,
    Never,
}

#[derive(Default)]
struct Sent {
    bytes: Vec<u8>,
    finished: bool,
}

#[derive(Default)]
struct Got {
    bytes: Vec<u8>,
    finished: bool,
    reset: bool,
}

impl World {
    fn new(setup: Setup) -> Self {
        let end = |dialer| End {
            link: Link::new(setup.config(dialer), Now::ZERO),
            inputs: BTreeMap::new(),
            wanted: Vec::new(),
            sent: BTreeMap::new(),
            got: BTreeMap::new(),
            chunks: BTreeMap::new(),
            reads: VecDeque::new(),
            holds_reads: false,
        };
        let ends = [end(true), end(false)];
        let mut world = Self { setup, ends, lanes: BTreeMap::new(), next_lane: 1, now: Now::ZERO };
        world.drain_events();
        world.dial();
        world
    }

    fn step(&mut self, what: u8, script: &mut Script<'_>) {
        let side = usize::from(what >> 7);
        let pick = script.below(256);
        match what % 128 % 15 {
            0 => self.open(side),
            1 => self.send(side, pick, script.wide()),
            2 => self.finish(side, pick),
            3 => self.carry(pick, 1 + script.wide()),
            4 => self.cut(pick),
            5 => self.dial(),
            6 => self.wait(script.wide() as u64),
            7 => self.ends[side].holds_reads ^= true,
            8 | 9 => {
                let how = [Answer::Honest, Answer::Absent, Answer::Failed, Answer::Other, Answer::Never];
                self.ends[side].answer(pick, how[script.below(how.len())], self.now);
            }
            10 => self.lose(side, pick),
            11 => self.tell_store(side, pick, script.below(256) as u64),
            12 => self.announce(side, pick),
            13 => self.ends[side].link.clear_logs(self.now),
            _ => self.carry_all(),
        }
        self.drain_events();
    }

    fn open(&mut self, side: usize) {
        let destination = Destination { host: Host::Ip(ADDRESS.ip()), port: 80 };
        let request =
            OpenRequest { destination, source: None, as_client: false, plan: Some(self.setup.plan) };
        let end = &mut self.ends[side];
        if end.sent.len() < MAX_FLOWS
            && let Ok(flow) = end.link.open_flow(request, self.now)
        {
            end.sent.insert(flow, Sent::default());
        }
    }

    fn send(&mut self, side: usize, pick: usize, len: usize) {
        let Some(flow) = pick_key(&self.ends[side].sent, pick) else { return };
        // Few seeds, so flows repeat each other.
        let bytes = noise(pick as u64 % 5, len);
        let end = &mut self.ends[side];
        let sent = end.sent.entry(flow).or_default();
        if !sent.finished && end.link.handle_payload(flow, Bytes::from(bytes.clone()), self.now).is_ok() {
            sent.bytes.extend_from_slice(&bytes);
        }
    }

    fn finish(&mut self, side: usize, pick: usize) {
        let Some(flow) = pick_key(&self.ends[side].sent, pick) else { return };
        let end = &mut self.ends[side];
        end.link.finish_flow(flow, self.now);
        end.sent.entry(flow).or_default().finished = true;
    }

    /// Lets at most `most` bytes of one lane arrive, both ways.
    fn carry(&mut self, pick: usize, most: usize) {
        let Some(lane) = pick_key(&self.lanes, pick) else { return };
        for side in 0..2 {
            let mut out = Vec::new();
            self.ends[side].link.poll_transmit(lane, self.now, &mut out);
            let Some(ways) = self.lanes.get_mut(&lane) else { return };
            ways[side].extend(out);
            let count = most.min(ways[side].len());
            let arriving: Vec<u8> = ways[side].drain(..count).collect();
            let end = &mut self.ends[1 - side];
            let input = end.inputs.entry(lane).or_default();
            input.extend_from_slice(&arriving);
            end.link.handle_input(lane, input, self.now).unwrap();
            self.drain_events();
        }
    }

    fn carry_all(&mut self) {
        for pick in 0..self.lanes.len() {
            self.carry(pick, usize::MAX);
        }
    }

    fn cut(&mut self, pick: usize) {
        if let Some(lane) = pick_key(&self.lanes, pick) {
            self.close(lane);
        }
    }

    fn close(&mut self, lane: LaneId) {
        self.lanes.remove(&lane);
        for end in &mut self.ends {
            end.inputs.remove(&lane);
            end.link.handle_lane_lost(lane, self.now);
        }
    }

    /// Loses one chunk in so many of a store.
    fn lose(&mut self, side: usize, one_in: usize) {
        let mut at = 0;
        self.ends[side].chunks.retain(|_, _| {
            at += 1;
            at % (1 + one_in) != 0
        });
    }

    fn tell_store(&mut self, side: usize, queued: usize, millis: u64) {
        let state = StoreState {
            queued: queued as u32,
            service_time: Now::from_millis(millis),
            age_secs: millis,
            taking: !queued.is_multiple_of(4),
            neighbours_pending: (queued as u64) << 12,
        };
        self.ends[side].link.handle_store_state(state, self.now);
    }

    /// Tells the sending half of a chunk in the other side's store, or of one perhaps missing there.
    fn announce(&mut self, side: usize, pick: usize) {
        let chunk = self.ends[1 - side].chunks.iter().nth(pick);
        let (tag, len) = chunk.map_or((pick as u64, 4096), |(tag, bytes)| (*tag, bytes.len()));
        self.ends[side].link.learn_chunks(len as u32, &[tag], self.now);
    }

    /// Brings up the lanes wanted by the dialling side.
    fn dial(&mut self) {
        for role in std::mem::take(&mut self.ends[0].wanted) {
            let lane = LaneId(self.next_lane);
            self.next_lane += 1;
            let hellos = [0, 1].map(|side: usize| self.ends[side].link.hello(lane, role));
            self.lanes.insert(lane, Default::default());
            for side in 0..2 {
                let (said, hello) = (hellos[side].instance, &hellos[1 - side]);
                self.ends[side].link.handle_lane_up(said, hello, lane, role, side == 0, self.now).unwrap();
            }
            self.drain_events();
        }
    }

    fn wait(&mut self, millis: u64) {
        self.now += Now::from_millis(millis % 2000);
        for end in &mut self.ends {
            end.link.handle_timeout(self.now);
        }
    }

    fn drain_events(&mut self) {
        let mut closed = Vec::new();
        for end in &mut self.ends {
            end.serve_store(self.now);
            while let Some(event) = end.link.poll_event() {
                match event {
                    Event::LanesWanted { role, count } => {
                        end.wanted.retain(|wanted| *wanted != role);
                        end.wanted.extend(std::iter::repeat_n(role, count as usize));
                    }
                    Event::FlowOffered { flow, .. } => {
                        end.link.answer_flow(flow, Ok(ADDRESS), self.now);
                        end.sent.insert(flow, Sent::default());
                    }
                    Event::FlowReadable(flow) => read(end, flow, self.now),
                    Event::CloseLane(lane, _) => closed.push(lane),
                    _ => {}
                }
            }
            end.serve_store(self.now);
        }
        closed.into_iter().for_each(|lane| self.close(lane));
    }

    /// Ends every stream, lets everything arrive and compares.
    fn settle(&mut self) {
        for end in &mut self.ends {
            for (flow, sent) in &mut end.sent {
                sent.finished = true;
                end.link.finish_flow(*flow, self.now);
            }
        }
        for round in 0..MAX_ROUNDS {
            if round % 16 == 0 && self.is_over() {
                break;
            }
            self.ends.iter_mut().for_each(|end| end.holds_reads = false);
            self.drain_events();
            self.dial();
            self.carry_all();
            self.wait(100);
            for side in 0..2 {
                let offered: Vec<FlowId> = self.ends[side].sent.keys().copied().collect();
                for flow in offered {
                    let sent = self.ends[side].sent.entry(flow).or_default();
                    if !std::mem::replace(&mut sent.finished, true) {
                        self.ends[side].link.finish_flow(flow, self.now);
                    }
                }
            }
        }
        for side in 0..2 {
            for (flow, sent) in &self.ends[side].sent {
                let nothing = Got::default();
                let got = self.ends[1 - side].got.get(flow).unwrap_or(&nothing);
                assert!(sent.bytes.starts_with(&got.bytes), "flow {flow:?}: not what was sent");
                assert!(
                    !got.finished || got.bytes.len() == sent.bytes.len(),
                    "flow {flow:?}: short, but looks whole"
                );
                assert!(got.finished || got.reset, "flow {flow:?} of side {side} never ended");
            }
        }
    }

    /// Whether every stream has come to its end.
    fn is_over(&self) -> bool {
        self.ends.iter().zip(self.ends.iter().rev()).all(|(from, to)| {
            from.sent.keys().all(|flow| to.got.get(flow).is_some_and(|got| got.finished || got.reset))
        })
    }
}

impl End {
    /// Executes the link's requests to its store.
    fn serve_store(&mut self, now: Now) {
        while let Some(request) = self.link.poll_chunk_store() {
            match request {
                StoreRequest::Put { plain, key, shape } => {
                    for node in Tree::new(shape).grow(&plain) {
                        let chunk = plain.slice(node.range());
                        self.chunks.insert(key.tag(&chunk), chunk);
                    }
                }
                StoreRequest::Peek { ticket, chunks, .. } => {
                    let place = |&Sought { tag, .. }: &Sought| match self.chunks.contains_key(&tag) {
                        true => ChunkPlace::Disk { disk: 0, read: None },
                        false => ChunkPlace::Absent,
                    };
                    let places = chunks.iter().map(place).collect();
                    let reply = StoreReply::Places { ticket, places, neighbours: Vec::new() };
                    self.link.handle_store(reply, now);
                }
                read @ StoreRequest::Read { .. } => self.reads.push_back(read),
            }
        }
        while !self.holds_reads && !self.reads.is_empty() {
            self.answer(0, Answer::Honest, now);
        }
    }

    /// Answers one of the pending reads.
    fn answer(&mut self, pick: usize, how: Answer, now: Now) {
        let place = pick % self.reads.len().max(1);
        let Some(StoreRequest::Read { ticket, name, len, .. }) = self.reads.remove(place) else { return };
        let other = || Bytes::from(noise(pick as u64, len as usize));
        let reply = match (how, self.chunks.get(&name.tag())) {
            (Answer::Never, _) => return,
            (Answer::Honest, Some(bytes)) => StoreReply::Found { ticket, bytes: bytes.clone() },
            (Answer::Honest | Answer::Absent, _) => StoreReply::Absent { ticket },
            (Answer::Failed, _) => StoreReply::Failed { ticket },
            (Answer::Other, _) => StoreReply::Found { ticket, bytes: other() },
        };
        self.link.handle_store(reply, now);
    }
}

/// Takes all bytes available for an application.
fn read(end: &mut End, flow: FlowId, now: Now) {
    while let Some(received) = end.link.poll_payload(flow, now) {
        let got = end.got.entry(flow).or_default();
        assert!(!got.reset, "something came after the reset");
        match received {
            Received::Opened(answer) => assert_eq!(answer, Ok(ADDRESS)),
            Received::Data(bytes) => {
                assert!(!got.finished, "bytes after the end");
                got.bytes.extend_from_slice(&bytes);
                end.link.handle_consumed(flow, bytes.len(), now);
            }
            Received::Finished => got.finished = true,
            Received::Reset(reason) => {
                assert_eq!(reason, ResetReason::PeerLost, "nobody reset anything");
                got.reset = true;
            }
        }
    }
}

fn pick_key<K: Copy + Ord, V>(map: &BTreeMap<K, V>, pick: usize) -> Option<K> {
    map.keys().nth(pick % map.len().max(1)).copied()
}

const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 4000);
const ROLES: [(LaneId, LaneRole); 4] = [
    (LaneId(1), LaneRole::Control),
    (LaneId(2), LaneRole::Repair),
    (LaneId(3), LaneRole::Flow),
    (LaneId(4), LaneRole::Flow),
];
const MAX_FLOWS: usize = 6;
const MAX_STEPS: usize = 300;
const MAX_ROUNDS: usize = 6000;
