//! Two links joined by lanes in memory, with a clock of their own.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part of the harness")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on is to fail there")]

pub mod store;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use oncewire_codec::Plan;
use oncewire_codec::wanax::hints::PackedTag;
use oncewire_codec::wire::{GroupFrame, GroupProof, Hello, Understood};
use oncewire_link::{
    CloseReason, Destination, Event, FlowId, FlowTally, LaneId, LaneRefused, LaneRole, Link, LinkConfig, Now,
    OpenRequest, Received, SavedLogs, StoreReply, StoreRequest,
};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// One side: its link, and the events for its shell.
pub struct Side {
    pub link: Link,
    pub config: LinkConfig,
    pub offered: VecDeque<FlowId>,
    pub received: BTreeMap<FlowId, Stream>,
    pub notes: Vec<String>,
    pub restarts: u32,
    /// The traffic of flows forgotten by the link.
    pub ended: Vec<FlowTally>,
    /// How often logs were said to fill.
    pub filled: usize,
    /// The peer's words as a member of the group.
    pub heard: Vec<GroupFrame>,
    /// The peer's stored chunks, passed on by the link's events.
    pub stored: Vec<PackedTag>,
    /// Flows with a stalled application.
    pub stalled: Vec<FlowId>,
    /// The side's chunk store. Its content, by tags.
    pub chunks: BTreeMap<u64, Bytes>,
    /// Unanswered reads.
    pub reads: VecDeque<StoreRequest>,
    /// Whether reads wait until [`Side::answer_read`].
    pub holds_reads: bool,
    /// Whether questions for places wait with the reads.
    pub holds_peeks: bool,
    /// One read in so many is refused, and one damaged; 0 for none.
    pub bad_reads: u64,
}

/// The bytes and end given to an application.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct Stream {
    pub bytes: Vec<u8>,
    pub opened: Option<bool>,
    pub finished: bool,
    pub reset: Option<String>,
}

/// Events on the lanes, for recordings.
pub enum Said {
    /// A side's hello, in its bytes on the lane.
    Hello { side: usize, lane: LaneId, role: LaneRole, bytes: Vec<u8> },
    /// Whole frames.
    Frames { side: usize, lane: LaneId, bytes: Vec<u8> },
    /// A lane was cut.
    Cut(LaneId),
}

/// Bytes under way on one lane, each direction.
#[derive(Default)]
struct Pipe {
    wires: [VecDeque<u8>; 2],
    /// Whether bytes of a direction get nowhere.
    pub blocked: [bool; 2],
    /// Whether each side's writer has something to ask for: it was woken, and has not asked in vain since.
    ready: [bool; 2],
}

/// The pair; side 0 dials, and side 1 too if it is configured so.
pub struct Pair {
    pub sides: [Side; 2],
    pub now: Now,
    pub rng: Pcg64Mcg,
    pipes: BTreeMap<LaneId, Pipe>,
    /// The next lane to be dialled.
    pub next_lane: u64,
    wanted: [BTreeMap<LaneRole, u32>; 2],
    /// Whether lanes are dialled at all.
    pub reachable: bool,
    /// Whether all wanted lanes are dialled together, and not one after the other.
    pub at_once: bool,
    /// How far each side's clock is ahead of `now`.
    pub skew: [Now; 2],
    /// The events, in their order.
    pub said: Vec<Said>,
    /// The plan of newly opened flows.
    pub plan: Plan,
    /// The understood frames in each side's hello.
    pub understands: Understood,
    /// Whether each side's hello proves its membership of its group, if it has one.
    pub proves: [bool; 2],
}

/// Stands for a shell's authentication code.
fn group_proof(config: &LinkConfig) -> Option<GroupProof> {
    config.names.as_ref()?.group.as_ref().map(|key| GroupProof(*key.bytes()))
}

/// Compressible text with repeats.
pub fn text(len: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for n in 0u32.. {
        out.extend_from_slice(format!("line {n} of a file, {}\n", n.wrapping_mul(2_654_435_761)).as_bytes());
        if out.len() >= len {
            break;
        }
    }
    out.truncate(len);
    out
}

pub fn config(first: bool, instance: u64) -> LinkConfig {
    LinkConfig {
        instance,
        secret: instance * 7 + 1,
        first,
        dialer: first,
        log_capacity: 1 << 20,
        contexts: 4,
        max_lanes: 6,
        spare_lanes: 1,
        initial_credit: 64 << 10,
        // Less than the limit in flight: beyond it, nothing is remembered.
        max_credit: 192 << 10,
        ..LinkConfig::default()
    }
}

impl Side {
    pub fn new(config: LinkConfig, now: Now) -> Self {
        Self::with_logs(config, SavedLogs::default(), now)
    }

    pub fn with_logs(config: LinkConfig, saved: SavedLogs, now: Now) -> Self {
        Self {
            link: Link::with_logs(config.clone(), saved, now),
            config,
            offered: VecDeque::new(),
            received: BTreeMap::new(),
            notes: Vec::new(),
            restarts: 0,
            ended: Vec::new(),
            filled: 0,
            heard: Vec::new(),
            stored: Vec::new(),
            stalled: Vec::new(),
            chunks: BTreeMap::new(),
            reads: VecDeque::new(),
            holds_reads: false,
            holds_peeks: false,
            bad_reads: 0,
        }
    }

    /// Executes the link's requests to the chunk store; returns whether there were any.
    fn run_store(&mut self, now: Now) -> bool {
        let mut any = false;
        while let Some(request) = self.link.poll_chunk_store() {
            any = true;
            match request {
                StoreRequest::Put { .. } => drop(store::serve(&mut self.chunks, request)),
                StoreRequest::Peek { .. } if !self.holds_peeks => {
                    let reply = store::serve(&mut self.chunks, request);
                    reply.into_iter().for_each(|reply| self.link.handle_store(reply, now));
                }
                request => self.reads.push_back(request),
            }
        }
        while !self.holds_reads && self.answer_read(now) {}
        any
    }

    /// Answers the oldest read; returns whether there was one.
    pub fn answer_read(&mut self, now: Now) -> bool {
        let read = self.reads.pop_front();
        let reply = read.and_then(|read| match read {
            StoreRequest::Read { ticket, .. } if self.bad_reads > 0 && ticket % self.bad_reads == 1 => {
                Some(StoreReply::Busy { ticket })
            }
            StoreRequest::Read { ticket, .. } if self.bad_reads > 0 && ticket % self.bad_reads == 2 => {
                Some(StoreReply::Failed { ticket })
            }
            request => store::serve(&mut self.chunks, request),
        });
        reply.map(|reply| self.link.handle_store(reply, now)).is_some()
    }

    pub fn stream(&mut self, flow: FlowId) -> &mut Stream {
        self.received.entry(flow).or_default()
    }

    /// Reads all bytes available to the flow's application, unless it is stalled.
    pub fn read(&mut self, flow: FlowId, now: Now) {
        if self.stalled.contains(&flow) {
            return;
        }
        while let Some(received) = self.link.poll_payload(flow, now) {
            let stream = self.received.entry(flow).or_default();
            match received {
                Received::Opened(answer) => stream.opened = Some(answer.is_ok()),
                Received::Data(bytes) => {
                    assert!(!stream.finished && stream.reset.is_none(), "bytes behind the end");
                    stream.bytes.extend_from_slice(&bytes);
                    self.link.handle_consumed(flow, bytes.len(), now);
                }
                Received::Finished => stream.finished = true,
                Received::Reset(reason) => stream.reset = Some(reason.to_string()),
            }
        }
    }
}

impl Pair {
    pub fn new(seed: u64) -> Self {
        Self::with(seed, config(true, 1), config(false, 2))
    }

    pub fn with(seed: u64, dialer: LinkConfig, acceptor: LinkConfig) -> Self {
        Self::proving(seed, dialer, acceptor, [true; 2])
    }

    /// A pair with a proof of membership from some sides only.
    pub fn proving(seed: u64, dialer: LinkConfig, acceptor: LinkConfig, proves: [bool; 2]) -> Self {
        let now = Now::from_secs(100);
        let mut pair = Self {
            sides: [Side::new(dialer, now), Side::new(acceptor, now)],
            now,
            rng: Pcg64Mcg::seed_from_u64(seed),
            pipes: BTreeMap::new(),
            next_lane: 1,
            wanted: Default::default(),
            reachable: true,
            at_once: false,
            skew: [Now::ZERO; 2],
            said: Vec::new(),
            plan: Plan::default(),
            understands: Understood::ALL,
            proves,
        };
        pair.run();
        pair
    }

    /// A side's clock.
    pub fn clock(&self, side: usize) -> Now {
        self.now + self.skew[side]
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.rng.next_u64() % bound.max(1)
    }

    pub fn random_bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| (self.rng.next_u64() >> 17) as u8).collect()
    }

    pub fn open(&mut self, side: usize) -> FlowId {
        let destination = Destination::from(SocketAddr::from(([127, 0, 0, 1], 80)));
        let request = OpenRequest { destination, source: None, as_client: false, plan: Some(self.plan) };
        let now = self.clock(side);
        self.sides[side].link.open_flow(request, now).unwrap()
    }

    /// Opens a flow and waits until the far side has answered.
    pub fn connect(&mut self, side: usize) -> FlowId {
        let flow = self.open(side);
        self.run_until(|pair| !pair.sides[1 - side].offered.is_empty());
        assert_eq!(self.sides[1 - side].offered.pop_back(), Some(flow));
        let local = SocketAddr::from(([127, 0, 0, 1], 5));
        let now = self.clock(1 - side);
        self.sides[1 - side].link.answer_flow(flow, Ok(local), now);
        self.run_until(|pair| pair.sides[side].received.get(&flow).is_some_and(|got| got.opened.is_some()));
        assert_eq!(self.sides[side].stream(flow).opened, Some(true));
        flow
    }

    pub fn send(&mut self, side: usize, flow: FlowId, bytes: &[u8]) {
        let bytes = Bytes::copy_from_slice(bytes);
        let now = self.clock(side);
        self.sides[side].link.handle_payload(flow, bytes, now).unwrap();
    }

    /// Dials these lanes, with all hellos exchanged before either side takes the first of them.
    fn dial(&mut self, dialler: usize, roles: &[LaneRole]) {
        let clocks = [0, 1].map(|side| self.clock(side));
        let mut exchanged = Vec::new();
        for &role in roles {
            let lane = LaneId(self.next_lane);
            self.next_lane += 1;
            let hello = |side: usize, lane, role| Hello {
                understands: self.understands,
                group_proof: group_proof(&self.sides[side].config).filter(|_| self.proves[side]),
                ..self.sides[side].link.hello(lane, role)
            };
            let (theirs, ours) =
                (hello(1 - dialler, LaneId(0), LaneRole::Control), hello(dialler, lane, role));
            for (side, hello) in [(1 - dialler, &theirs), (dialler, &ours)] {
                let mut bytes = Vec::new();
                hello.encode(&mut bytes);
                self.said.push(Said::Hello { side, lane, role, bytes });
            }
            self.pipes.insert(lane, Pipe::default());
            let hellos = if dialler == 0 { [ours, theirs] } else { [theirs, ours] };
            exchanged.push((lane, role, hellos));
        }
        let mut refused = Vec::new();
        for (side, now) in clocks.into_iter().enumerate() {
            for (lane, role, hellos) in &exchanged {
                let (said, hello) = (hellos[side].instance, &hellos[1 - side]);
                let expected = group_proof(&self.sides[side].config);
                let (link, dialled) = (&mut self.sides[side].link, side == dialler);
                if expected.is_some() && hello.group_proof == expected {
                    link.handle_group_proof();
                }
                if let Err(why) = link.handle_lane_up(said, hello, *lane, *role, dialled, now) {
                    assert!(matches!(why, LaneRefused::Superseded | LaneRefused::Outdated), "{why}");
                    refused.push(*lane);
                }
            }
        }
        // A refusing side has said hello, and the other takes it.
        refused.into_iter().for_each(|lane| self.cut(lane));
    }

    fn events(&mut self, side: usize) -> bool {
        let now = self.clock(side);
        let mut any = self.sides[side].run_store(now);
        while let Some(event) = self.sides[side].link.poll_event() {
            any = true;
            match event {
                Event::LanesWanted { role, count } => drop(self.wanted[side].insert(role, count)),
                Event::LaneReady(lane) => {
                    if let Some(pipe) = self.pipes.get_mut(&lane) {
                        pipe.ready[side] = true;
                    }
                }
                Event::FlowOffered { flow, .. } => self.sides[side].offered.push_back(flow),
                Event::CloseLane(lane, CloseReason::Left) => self.end_lane(lane, side),
                Event::CloseLane(lane, _) if self.pipes.remove(&lane).is_some() => {
                    let now = self.clock(1 - side);
                    self.sides[1 - side].link.handle_lane_lost(lane, now);
                }
                Event::FlowReadable(flow) => self.read(side, flow),
                Event::FlowEnded(tally) => self.sides[side].ended.push(*tally),
                Event::PeerRestarted => self.sides[side].restarts += 1,
                Event::LogsFill => self.sides[side].filled += 1,
                Event::Group(frame) => self.sides[side].heard.push(frame),
                Event::Stored(chunks) => self.sides[side].stored.extend(chunks),
                Event::Note(note) => self.sides[side].notes.push(note.to_string()),
                _ => {}
            }
        }
        any
    }

    /// Ends a lane in order: the other side has all earlier bytes on it.
    fn end_lane(&mut self, lane: LaneId, side: usize) {
        let Some(mut pipe) = self.pipes.remove(&lane) else { return };
        let mut rest: BytesMut = pipe.wires[side].drain(..).collect();
        let (other, now) = (1 - side, self.clock(1 - side));
        self.sides[other].link.handle_input(lane, &mut rest, now).unwrap();
        self.sides[other].link.handle_lane_ended(lane, now);
    }

    /// Reads all bytes available to an application.
    pub fn read(&mut self, side: usize, flow: FlowId) {
        let now = self.clock(side);
        self.sides[side].read(flow, now);
    }

    /// Moves bytes until nothing moves any more; time stands still.
    pub fn run(&mut self) {
        while self.step(usize::MAX) {}
    }

    /// Moves bytes until something is so, and lets time pass only if it is not: there may be a limit.
    pub fn run_until(&mut self, is_so: impl Fn(&Self) -> bool) {
        self.run();
        for _ in 0..1000 {
            if is_so(self) {
                return;
            }
            self.pass(Now::from_millis(1));
        }
        panic!("it never came");
    }

    /// Lets every lane move up to `amount` bytes each way; returns whether anything happened.
    pub fn step(&mut self, amount: usize) -> bool {
        let mut any = self.events(0) | self.events(1);
        while self.reachable && self.wanted.iter().flatten().any(|(_, count)| *count > 0) {
            for dialler in [0, 1] {
                let wanted =
                    self.wanted[dialler].iter().flat_map(|(role, count)| vec![*role; *count as usize]);
                let roles: Vec<LaneRole> = wanted.take(if self.at_once { usize::MAX } else { 1 }).collect();
                self.dial(dialler, &roles);
                any |= !roles.is_empty();
            }
            any |= self.events(0) | self.events(1);
            // New lanes are dialled while bytes move on the others.
            if self.at_once {
                break;
            }
        }
        let lanes: Vec<LaneId> = self.pipes.keys().copied().collect();
        for lane in lanes {
            for side in [0, 1] {
                any |= self.transmit(lane, side) | self.receive(lane, side, amount);
                any |= self.events(0) | self.events(1);
            }
        }
        any
    }

    fn transmit(&mut self, lane: LaneId, side: usize) -> bool {
        let now = self.clock(side);
        let Some(pipe) = self.pipes.get_mut(&lane) else { return false };
        // A socket takes more only when its bytes are on their way.
        if !pipe.ready[side] || pipe.wires[side].len() > 200_000 {
            return false;
        }
        let mut out = Vec::new();
        let any = self.sides[side].link.poll_transmit(lane, now, &mut out);
        pipe.ready[side] = any;
        if !out.is_empty() {
            self.said.push(Said::Frames { side, lane, bytes: out.clone() });
        }
        pipe.wires[side].extend(out);
        any
    }

    fn receive(&mut self, lane: LaneId, side: usize, amount: usize) -> bool {
        let Some(pipe) = self.pipes.get_mut(&lane) else { return false };
        if pipe.blocked[side] || pipe.wires[side].is_empty() {
            return false;
        }
        // Moved bytes without a whole frame are put back: the receiver's buffer is the pipe's front.
        let len = pipe.wires[side].len().min(amount);
        let mut input: BytesMut = pipe.wires[side].iter().take(len).copied().collect();
        let now = self.clock(1 - side);
        self.sides[1 - side].link.handle_input(lane, &mut input, now).unwrap();
        let used = len - input.len();
        let Some(pipe) = self.pipes.get_mut(&lane) else { return true };
        pipe.wires[side].drain(..used);
        used > 0
    }

    /// Keeps one side's bytes on a lane from arriving.
    pub fn block(&mut self, lane: LaneId, side: usize, blocked: bool) {
        if let Some(pipe) = self.pipes.get_mut(&lane) {
            pipe.blocked[side] = blocked;
        }
    }

    /// Bytes of one side on a lane, not arrived yet.
    pub fn under_way(&self, lane: LaneId, side: usize) -> usize {
        self.pipes.get(&lane).map_or(0, |pipe| pipe.wires[side].len())
    }

    pub fn lanes(&self) -> Vec<LaneId> {
        self.pipes.keys().copied().collect()
    }

    /// Cuts a lane: bytes under way are lost.
    pub fn cut(&mut self, lane: LaneId) {
        if self.pipes.remove(&lane).is_some() {
            self.said.push(Said::Cut(lane));
            for side in [0, 1] {
                let now = self.clock(side);
                self.sides[side].link.handle_lane_lost(lane, now);
            }
        }
    }

    /// Cuts a lane for one side; bytes of either get nowhere, and the other is not told.
    pub fn cut_one(&mut self, lane: LaneId, side: usize) {
        if let Some(pipe) = self.pipes.get_mut(&lane) {
            pipe.wires = Default::default();
            pipe.blocked = [true; 2];
            let now = self.clock(side);
            self.sides[side].link.handle_lane_lost(lane, now);
        }
    }

    pub fn cut_all(&mut self) {
        self.lanes().into_iter().for_each(|lane| self.cut(lane));
    }

    /// Lets time pass in steps, with its due events.
    pub fn pass(&mut self, time: Now) {
        self.run();
        let end = self.now + time;
        while self.now < end {
            let due = [0, 1]
                .into_iter()
                .filter_map(|side| {
                    Some(self.sides[side].link.poll_timeout()?.saturating_sub(self.skew[side]))
                })
                .min();
            self.now = due.unwrap_or(end).max(self.now + Now::from_millis(1)).min(end);
            for side in [0, 1] {
                let (now, link) = (self.clock(side), &mut self.sides[side].link);
                // A lane given up may make something else due at once.
                let mut calls = 0;
                while let Some(at) = link.poll_timeout().filter(|at| *at <= now) {
                    calls += 1;
                    assert!(calls < 4, "what was due at {at:?} is due at {now:?} again and again");
                    link.handle_timeout(now);
                }
            }
            self.run();
        }
    }

    /// Replaces a side by a new process.
    pub fn restart(&mut self, side: usize) {
        self.restart_with(side, SavedLogs::default());
    }

    /// Replaces a side by a new process with these logs.
    pub fn restart_with(&mut self, side: usize, saved: SavedLogs) {
        let lanes = self.lanes();
        self.pipes.clear();
        self.wanted[side].clear();
        let mut config = self.sides[side].config.clone();
        config.instance += 100;
        for lane in lanes {
            let now = self.clock(1 - side);
            self.sides[1 - side].link.handle_lane_lost(lane, now);
        }
        self.sides[side] = Side::with_logs(config, saved, self.clock(side));
        self.run();
    }
}
