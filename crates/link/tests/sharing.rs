//! A link's limit and its shares, on a modelled bottleneck.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on is to fail there")]

#[path = "sharing/answers.rs"]
mod answers;
#[path = "common/store.rs"]
mod store;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use oncewire_codec::transfer::MAX_UNACKED;
use oncewire_codec::{Layers, Plan};
use oncewire_link::{
    Destination, Event, FlowId, LaneId, LaneRole, Link, LinkConfig, Now, OpenRequest, Priority, Received,
    ResetReason, StoreReply, StoreRequest,
};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// The bottleneck, each way.
const RATE_BITS_PER_S: u64 = 20_000_000;
const DELAY: Now = Now::from_millis(25);
/// Bytes of a lane in its socket before they are on the link.
const SOCKET: usize = 128 << 10;
const TICK: Now = Now::from_micros(250);
/// Timers come so late.
const TICKS_PER_TIMER: u64 = 4;

/// Two links over lanes with one common queue each way; side 0 dials.
struct Wan {
    now: Now,
    ticks: u64,
    sides: [Side; 2],
    lanes: u64,
    rng: Pcg64Mcg,
    /// How flows are coded.
    plan: Option<Plan>,
    /// The repeated bytes of sources; if there is nothing, always new ones.
    file: Bytes,
    sent_of_file: BTreeMap<FlowId, usize>,
}

struct Side {
    link: Link,
    /// Lanes with writers about to ask.
    ready: BTreeSet<LaneId>,
    /// The time at which this side's queue is empty.
    free_at: Now,
    /// Under way: the time out of the queue, and the lane; it arrives [`DELAY`] later.
    under_way: VecDeque<(Now, LaneId, Vec<u8>)>,
    input: BTreeMap<LaneId, BytesMut>,
    /// Lanes with full sockets, and whether their writers wait for that already.
    stuck: BTreeMap<LaneId, bool>,
    /// Flows with an endless source.
    sources: BTreeSet<FlowId>,
    /// Flows with an echo.
    echoes: BTreeSet<FlowId>,
    received: BTreeMap<FlowId, usize>,
    wanted: BTreeMap<LaneRole, u32>,
    chunks: BTreeMap<u64, Bytes>,
    /// The answer to reads, by their tickets, if not with chunks.
    refuses: Option<fn(u64) -> StoreReply>,
    /// Whether arrivals wait.
    deaf: bool,
}

fn config(first: bool) -> LinkConfig {
    LinkConfig {
        instance: 1 + u64::from(first),
        first,
        dialer: first,
        log_capacity: 4 << 20,
        contexts: 8,
        ..LinkConfig::default()
    }
}

fn limited(config: LinkConfig) -> LinkConfig {
    LinkConfig { rate_limit: Some(RATE_BITS_PER_S * 95 / 100), ..config }
}

impl Wan {
    fn new(change: impl Fn(LinkConfig) -> LinkConfig) -> Self {
        let now = Now::from_secs(100);
        let side = |first| Side {
            link: Link::new(change(config(first)), now),
            ready: BTreeSet::new(),
            free_at: now,
            under_way: VecDeque::new(),
            input: BTreeMap::new(),
            stuck: BTreeMap::new(),
            sources: BTreeSet::new(),
            echoes: BTreeSet::new(),
            received: BTreeMap::new(),
            wanted: BTreeMap::new(),
            chunks: BTreeMap::new(),
            refuses: None,
            deaf: false,
        };
        let sides = [side(true), side(false)];
        let (rng, file) = (Pcg64Mcg::seed_from_u64(17), Bytes::new());
        let mut wan =
            Self { now, ticks: 0, sides, lanes: 0, rng, plan: None, file, sent_of_file: BTreeMap::new() };
        wan.run(Now::from_millis(300));
        wan
    }

    /// Side 0 has a chunk store, and side 1 names chunks.
    fn naming(change: impl Fn(LinkConfig) -> LinkConfig) -> Self {
        let plan = Plan { layers: Layers::Names, ..Plan::default() };
        let mut wan = Self::new(|config| {
            let store = config.first.then_some(77);
            let config = LinkConfig { plan, initial_credit: 1 << 20, ..config };
            store::naming(change(config), store)
        });
        wan.plan = Some(plan);
        wan
    }

    /// Opens a flow from side 0; side 1's bytes on it have this priority.
    fn open(&mut self, priority: Option<Priority>) -> FlowId {
        let destination = Destination::from(SocketAddr::from(([127, 0, 0, 1], 80)));
        let request = OpenRequest { destination, source: None, as_client: false, plan: self.plan };
        let flow = self.sides[0].link.open_flow(request, self.now).unwrap();
        self.run(Now::from_millis(150));
        self.sides[1].link.prioritize_flow(flow, priority);
        flow
    }

    /// A flow with an endless source at side 1.
    fn open_source(&mut self, priority: Option<Priority>) -> FlowId {
        let flow = self.open(priority);
        self.sides[1].sources.insert(flow);
        self.feed(1, flow);
        flow
    }

    fn run(&mut self, time: Now) {
        let end = self.now + time;
        while self.now < end {
            self.tick();
        }
    }

    fn tick(&mut self) {
        self.now += TICK;
        self.ticks += 1;
        for side in [0, 1] {
            self.arrive(side);
            let link = &mut self.sides[side].link;
            if self.ticks.is_multiple_of(TICKS_PER_TIMER)
                && link.poll_timeout().is_some_and(|at| at <= self.now)
            {
                link.handle_timeout(self.now);
                let next = link.poll_timeout();
                assert!(
                    next.is_none_or(|at| at > self.now),
                    "what was due at {:?} is due again at {next:?}",
                    self.now
                );
            }
        }
        // One side's events take effect at the other in the same tick.
        for side in [0, 1, 0, 1] {
            self.events(side);
            self.transmit(side);
        }
    }

    /// Hands arrived bytes over to `side`.
    fn arrive(&mut self, side: usize) {
        let now = self.now;
        let has_come = |(left, ..): &(Now, LaneId, Vec<u8>)| *left + DELAY <= now;
        while !self.sides[side].deaf && self.sides[1 - side].under_way.front().is_some_and(has_come) {
            let (_, lane, bytes) = self.sides[1 - side].under_way.pop_front().unwrap();
            let here = &mut self.sides[side];
            let input = here.input.entry(lane).or_default();
            input.extend_from_slice(&bytes);
            here.link.handle_input(lane, input, now).unwrap();
            self.events(side);
        }
    }

    fn transmit(&mut self, side: usize) {
        let now = self.now;
        let Side { link, ready, free_at, under_way, stuck, .. } = &mut self.sides[side];
        let lanes: Vec<LaneId> = ready.iter().copied().collect();
        for lane in lanes {
            if let Some(waits) = stuck.get_mut(&lane) {
                *waits = *waits || link.poll_transmit(lane, now, &mut Vec::new());
                continue;
            }
            let queued = |(left, its, bytes): &(Now, LaneId, Vec<u8>)| {
                if *its == lane && *left > now { bytes.len() } else { 0 }
            };
            while under_way.iter().rev().map(queued).sum::<usize>() < SOCKET {
                let mut out = Vec::new();
                if !link.poll_transmit(lane, now, &mut out) {
                    ready.remove(&lane);
                    break;
                }
                // With the overhead of TLS, TCP and IP.
                let nanos = out.len() as u64 * 104 / 100 * 8 * 1000 / (RATE_BITS_PER_S / 1_000_000);
                *free_at = now.max(*free_at) + Now::from_nanos(nanos);
                under_way.push_back((*free_at, lane, out));
            }
        }
    }

    fn events(&mut self, side: usize) {
        while let Some(event) = self.sides[side].link.poll_event() {
            match event {
                Event::LaneReady(lane) => drop(self.sides[side].ready.insert(lane)),
                Event::LanesWanted { role, count } => drop(self.sides[side].wanted.insert(role, count)),
                Event::FlowOffered { flow, .. } => {
                    let local = SocketAddr::from(([127, 0, 0, 1], 5));
                    self.sides[side].link.answer_flow(flow, Ok(local), self.now);
                }
                Event::FlowReadable(flow) => self.read(side, flow),
                Event::FlowWritable(flow) => self.feed(side, flow),
                _ => {}
            }
        }
        while let Some(request) = self.sides[side].link.poll_chunk_store() {
            let here = &mut self.sides[side];
            let reply = match (&request, here.refuses) {
                (StoreRequest::Read { ticket, .. }, Some(refuse)) => Some(refuse(*ticket)),
                _ => store::serve(&mut here.chunks, request),
            };
            if let Some(reply) = reply {
                here.link.handle_store(reply, self.now);
            }
        }
        while let Some((&role, _)) = self.sides[side].wanted.iter().find(|(_, count)| **count > 0) {
            self.dial(role);
        }
    }

    fn dial(&mut self, role: LaneRole) {
        self.lanes += 1;
        let (lane, now) = (LaneId(self.lanes), self.now);
        let hellos = [0, 1].map(|side: usize| self.sides[side].link.hello(lane, role));
        *self.sides[0].wanted.get_mut(&role).unwrap() -= 1;
        for (side, other) in [(0, 1), (1, 0)] {
            let link = &mut self.sides[side].link;
            link.handle_lane_up(hellos[side].instance, &hellos[other], lane, role, side == 0, now).unwrap();
        }
        while let Some(event) = self.sides[0].link.poll_event() {
            match event {
                Event::LanesWanted { role, count } => drop(self.sides[0].wanted.insert(role, count)),
                Event::LaneReady(lane) => drop(self.sides[0].ready.insert(lane)),
                _ => {}
            }
        }
    }

    fn read(&mut self, side: usize, flow: FlowId) {
        let now = self.now;
        let Side { link, echoes, received, .. } = &mut self.sides[side];
        while let Some(got) = link.poll_payload(flow, now) {
            match got {
                Received::Data(bytes) => {
                    *received.entry(flow).or_default() += bytes.len();
                    link.handle_consumed(flow, bytes.len(), now);
                    if echoes.contains(&flow) {
                        link.handle_payload(flow, bytes, now).unwrap();
                    }
                }
                Received::Opened(answer) => drop(answer.unwrap()),
                Received::Reset(_) => return,
                other => panic!("{other:?}"),
            }
        }
    }

    fn feed(&mut self, side: usize, flow: FlowId) {
        while self.sides[side].sources.contains(&flow) {
            let block = if self.file.is_empty() { self.noise(65_536) } else { self.next_of_file(flow) };
            if self.sides[side].link.handle_payload(flow, block, self.now).unwrap() == 0 {
                break;
            }
        }
    }

    fn noise(&mut self, len: usize) -> Bytes {
        (0..len / 8).flat_map(|_| self.rng.next_u64().to_le_bytes()).collect()
    }

    fn next_of_file(&mut self, flow: FlowId) -> Bytes {
        let sent = self.sent_of_file.entry(flow).or_default();
        let at = *sent % self.file.len();
        let block = self.file.slice(at..(at + 65_536).min(self.file.len()));
        *sent += block.len();
        block
    }

    /// Side 0's bytes of each flow while `time` passes.
    fn received_in<const N: usize>(&mut self, flows: [FlowId; N], time: Now) -> [usize; N] {
        let count = |wan: &Self| flows.map(|flow| wan.sides[0].received.get(&flow).copied().unwrap_or(0));
        let before = count(self);
        self.run(time);
        let after = count(self);
        std::array::from_fn(|at| after[at] - before[at])
    }

    /// The longest of so many round trips of 100 bytes on a flow, from side 0 and back.
    fn longest_echo(&mut self, flow: FlowId, times: u32) -> Now {
        self.sides[1].echoes.insert(flow);
        let mut longest = Now::ZERO;
        for _ in 0..times {
            let (sent, before) = (self.now, self.sides[0].received.get(&flow).copied().unwrap_or(0));
            self.sides[0].link.handle_payload(flow, Bytes::from(vec![b'e'; 100]), sent).unwrap();
            while self.sides[0].received.get(&flow).copied().unwrap_or(0) < before + 100 {
                self.tick();
                assert!(self.now < sent + Now::from_secs(10), "no echo");
            }
            longest = longest.max(self.now - sent);
            self.run(Now::from_micros(7_300));
        }
        longest
    }

    /// Sends a byte from side 1 without its arrival, with nothing else to be sent; returns its lane.
    fn send_alone(&mut self, flow: FlowId) -> LaneId {
        let (link, now) = (&mut self.sides[1].link, self.now);
        let blocks = link.stats().out.blocks;
        link.handle_payload(flow, Bytes::from_static(b"x"), now).unwrap();
        while let Some(event) = link.poll_event() {
            let Event::LaneReady(lane) = event else { continue };
            while link.poll_transmit(lane, now, &mut Vec::new()) {}
            if link.stats().out.blocks > blocks {
                return lane;
            }
        }
        panic!("{flow:?} sends nothing");
    }

    fn flow_lane(&self, side: usize, flow: FlowId) -> LaneId {
        let under_way = self.sides[side].under_way.iter();
        let lanes: BTreeSet<_> =
            under_way.filter(|(_, _, bytes)| bytes.len() > 4000).map(|(_, lane, _)| *lane).collect();
        assert_eq!(lanes.len(), 1, "one flow sends: {flow:?}");
        *lanes.first().unwrap()
    }
}

#[test]
fn the_limit_is_reached_and_not_exceeded() {
    let mut wan = Wan::new(limited);
    let flow = wan.open_source(None);
    wan.run(Now::from_secs(3));
    let [received] = wan.received_in([flow], Now::from_secs(4));
    let most = (RATE_BITS_PER_S * 95 / 100 / 8 * 4) as usize;
    // Headers are in the limit: some 4 %.
    assert!((most * 94 / 100..most * 97 / 100).contains(&received), "{received} of {most}");
    // Nothing waits in the queue of the bottleneck.
    let side = &wan.sides[1];
    assert!(side.free_at.saturating_sub(wan.now) < Now::from_millis(10), "{:?}", side.free_at - wan.now);
}

#[test]
fn echo_beside_bulk_stays_under_twice_the_round_trip() {
    for priority in [None, Some(Priority::Interactive)] {
        let mut wan = Wan::new(limited);
        let echo = wan.open(priority);
        wan.sides[0].link.prioritize_flow(echo, priority);
        let idle = wan.longest_echo(echo, 20);
        assert!((2 * DELAY..2 * DELAY + Now::from_millis(3)).contains(&idle), "{idle:?}");
        for _ in 0..4 {
            wan.open_source(None);
        }
        wan.run(Now::from_secs(5));
        let beside = wan.longest_echo(echo, 60);
        assert!(beside < 2 * idle, "{beside:?} beside bulk, {idle:?} alone");
    }
}

#[test]
fn echo_beside_names_stays_under_twice_the_round_trip() {
    let mut wan = Wan::naming(limited);
    let echo = wan.open(None);
    let idle = wan.longest_echo(echo, 20);
    wan.file = wan.noise(2 << 20);
    let flows = [(); 4].map(|()| wan.open_source(None));
    // Beside a file's first transfer, and its repeats.
    for passes in 1..4 {
        while wan.sent_of_file.values().any(|&sent| sent < passes * wan.file.len()) {
            let beside = wan.longest_echo(echo, 1);
            assert!(beside < 2 * idle, "{beside:?} beside bulk, {idle:?} alone");
        }
    }
    let named = wan.sides[1].link.stats().out.names.bytes;
    assert!(named > (flows.len() * wan.file.len()) as u64, "{named}");
}

#[test]
fn classes_have_their_weights_on_any_lanes() {
    let one_lane = |config| LinkConfig { max_lanes: 1, spare_lanes: 0, ..config };
    let changes: [&dyn Fn(LinkConfig) -> LinkConfig; 2] = [&limited, &one_lane];
    for (at, change) in changes.into_iter().enumerate() {
        let mut wan = Wan::new(change);
        let flows = Priority::ALL.map(|class| wan.open_source(Some(class)));
        wan.run(Now::from_secs(3));
        let received = wan.received_in(flows, Now::from_secs(15));
        let all: usize = received.iter().sum();
        for (class, received) in Priority::ALL.into_iter().zip(received) {
            let (share, due) = (received as f64 / all as f64, class.weight() as f64 / 21.0);
            assert!((share / due - 1.0).abs() < 0.15, "{at}: {class:?} has {share:.3}, due {due:.3}");
        }
    }
}

#[test]
fn flows_of_one_class_have_equal_shares() {
    let mut wan = Wan::new(limited);
    let flows = [(); 5].map(|()| wan.open_source(None));
    wan.run(Now::from_secs(3));
    let received = wan.received_in(flows, Now::from_secs(6));
    let (least, most) = (received.iter().min().unwrap(), received.iter().max().unwrap());
    assert!(most - least < most / 10, "{received:?}");
}

#[test]
fn flow_with_much_sent_yields_unless_ruled_otherwise() {
    for (rule, share) in [(None, 0.8), (Some(Priority::Normal), 0.5)] {
        let mut wan = Wan::new(|config| LinkConfig { bulk_after: 12 << 20, ..limited(config) });
        let old = wan.open_source(rule);
        wan.run(Now::from_secs(8));
        let new = wan.open_source(None);
        wan.run(Now::from_millis(500));
        let [old, new] = wan.received_in([old, new], Now::from_secs(2));
        let had = new as f64 / (old + new) as f64;
        assert!((had - share).abs() < 0.08, "the new flow has {had:.2}, not {share}");
    }
}

#[test]
fn lane_with_a_full_socket_keeps_nobodys_share() {
    let mut wan = Wan::new(limited);
    let stuck = wan.open_source(Some(Priority::Interactive));
    wan.run(Now::from_secs(2));
    let lane = wan.flow_lane(1, stuck);
    wan.sides[1].stuck.insert(lane, false);
    let bulk = wan.open_source(Some(Priority::Bulk));
    wan.run(Now::from_secs(3));
    let [received] = wan.received_in([bulk], Now::from_secs(3));
    let most = (RATE_BITS_PER_S * 95 / 100 / 8 * 3) as usize;
    assert!(received > most * 94 / 100, "{received} of {most}");
}

#[test]
fn lanes_without_room_are_not_called_repeatedly() {
    let mut wan = Wan::new(|config| limited(LinkConfig { max_lanes: 2, spare_lanes: 2, ..config }));
    let flows = [None; 10].map(|priority| wan.open(priority));
    // Nothing is acknowledged from here on, so flows stay on their lanes.
    wan.sides[0].stuck.extend((1..=wan.lanes).map(|lane| (LaneId(lane), false)));
    let mut by_lane = BTreeMap::<LaneId, Vec<FlowId>>::new();
    for flow in flows {
        wan.run(Now::from_millis(10));
        by_lane.entry(wan.send_alone(flow)).or_default().push(flow);
    }
    let (&shared, of_shared) = by_lane.iter().find(|(_, flows)| flows.len() > 1).unwrap();
    let (&other, of_other) = by_lane.iter().find(|(lane, _)| **lane != shared).unwrap();
    let (interactive, bulk, filler) = (of_shared[0], of_shared[1], of_other[0]);
    let link = &mut wan.sides[1].link;
    link.prioritize_flow(interactive, Some(Priority::Interactive));
    [bulk, filler].into_iter().for_each(|flow| link.prioritize_flow(flow, Some(Priority::Bulk)));
    while wan.sides[1].link.stats().out.unacked < MAX_UNACKED - 1 {
        wan.sides[1].link.handle_payload(filler, Bytes::from_static(b"x"), wan.now).unwrap();
        wan.tick();
    }
    // The last item within the room closes the line for a while, and both lanes ask for their turn.
    let noise = wan.noise(40_000);
    let (mut now, link) = (wan.now + Now::from_millis(20), &mut wan.sides[1].link);
    link.handle_payload(filler, noise, now).unwrap();
    assert!(link.poll_transmit(other, now, &mut Vec::new()));
    assert_eq!(link.stats().out.unacked, MAX_UNACKED);
    assert!(!link.poll_transmit(other, now, &mut Vec::new()));
    for flow in [interactive, bulk] {
        link.handle_payload(flow, Bytes::from_static(b"x"), now).unwrap();
    }
    assert!(!link.poll_transmit(shared, now, &mut Vec::new()));
    while link.poll_event().is_some() {}
    now += Now::from_millis(20);
    link.handle_timeout(now);
    let mut calls = 0;
    while let Some(event) = link.poll_event() {
        if let Event::LaneReady(lane) = event {
            calls += 1;
            assert!(calls < 1000, "{lane:?} is called again and again");
            link.poll_transmit(lane, now, &mut Vec::new());
        }
    }
    assert!(calls > 0, "nobody was called");
}

#[test]
fn lane_waiting_for_a_vanished_flow_leaves_no_timer() {
    let mut wan = Wan::new(limited);
    let flow = wan.open(Some(Priority::Bulk));
    let beside = wan.open_source(Some(Priority::Interactive));
    wan.run(Now::from_secs(1));
    // Its reset arrives while its bytes wait for their turn.
    let (link, now) = (&mut wan.sides[0].link, wan.now);
    link.abort_flow(flow, ResetReason::Application, now);
    wan.run(DELAY - Now::from_millis(1));
    let (link, now) = (&mut wan.sides[1].link, wan.now);
    link.handle_payload(flow, Bytes::from_static(b"x"), now).unwrap();
    wan.run(Now::from_millis(5));
    assert!(wan.sides[1].link.flow(flow).is_none());
    wan.sides[1].sources.remove(&beside);
    wan.run(Now::from_secs(1));
}
