//! The model of a link: random applications on random lanes, against the delivered bytes.
//!
//! Applications send, stop reading, end and reset; lanes are cut, go deaf one way, are replaced, all vanish; sides
//! restart, with their chunk stores or without, or take no new flows until they do; stores hang, refuse and forget;
//! output is limited or not, windows are small or large, and members of a group announce chunks, rightly and wrongly.
//! A stream must at all times be a prefix of the sent bytes; one with a clean end must be all of them; and in the end
//! nothing may be left behind.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on is to fail there")]

mod common;

use std::collections::BTreeMap;

use common::store::naming;
use common::{Pair, config};
use oncewire_codec::Layers;
use oncewire_codec::wanax::{NameKey, NamesConfig, Shape, Tree};
use oncewire_codec::wire::{Frame, GroupFrame, Sought};
use oncewire_link::{FlowId, LinkConfig, LogLimits, Now, ResetReason, StoreRequest, StoreState};
use rand_pcg::rand_core::Rng;

/// The model's state of a flow: sent bytes, end and reset of each side's application.
#[derive(Default)]
struct Reference {
    sent: [Vec<u8>; 2],
    finished: [bool; 2],
    /// Whether either application reset the flow, or a side restarted.
    broken: bool,
    /// The opening side.
    opener: usize,
}

struct Model {
    pair: Pair,
    flows: BTreeMap<FlowId, Reference>,
    history: Vec<u8>,
    /// Sides without new flows.
    drains: [bool; 2],
    /// Flows opened towards a draining side.
    turned_back: u64,
    /// Applications about to give more.
    expecting: Vec<(usize, FlowId)>,
}

/// Both ends hold the same key.
fn in_group(config: LinkConfig) -> LinkConfig {
    let names = config.names.map(|names| NamesConfig { group: Some(NameKey::new([7; 32])), ..names });
    LinkConfig { names, ..config }
}

/// Some let several blocks be sent, some less than one.
const CREDITS: [u64; 5] = [20_000, 3_000, 150_000, 64 << 10, 300_000];
/// Bits a second.
const RATES: [Option<u64>; 4] = [None, Some(4_000_000), None, Some(20_000_000)];
const MAX_SEND: u64 = 40_000;
/// The link's queue for an application before it is read no further.
const QUEUE: usize = 512 * 1024;

impl Model {
    fn new(seed: u64) -> Self {
        let small = |config: LinkConfig| LinkConfig {
            log_capacity: 256 << 10,
            initial_credit: CREDITS[seed as usize / 2 % CREDITS.len()],
            max_lanes: 3,
            rate_limit: RATES[seed as usize % RATES.len()],
            ..config
        };
        let mut configs = [config(true, 1), config(false, 2)].map(small);
        // In two of three runs the dialling side has a chunk store, in one of them both have.
        let stores = [!seed.is_multiple_of(3), seed % 3 == 2];
        for (config, store) in configs.iter_mut().zip(stores) {
            *config = naming(config.clone(), store.then_some(1));
        }
        if seed % 5 < 2 {
            configs = configs.map(in_group);
        }
        let [dialer, acceptor] = configs;
        let mut pair = Pair::with(seed, dialer, acceptor);
        pair.at_once = seed / 8 % 2 == 1;
        Self {
            pair,
            flows: BTreeMap::new(),
            history: Vec::new(),
            drains: [false; 2],
            turned_back: 0,
            expecting: Vec::new(),
        }
    }

    fn some_flow(&mut self) -> Option<FlowId> {
        let pick = self.pair.below(self.flows.len() as u64) as usize;
        self.flows.keys().nth(pick).copied()
    }

    fn content(&mut self) -> Vec<u8> {
        let len = self.pair.below(MAX_SEND) as usize;
        let mut plain = Vec::with_capacity(len);
        while plain.len() < len {
            let piece = 1 + self.pair.below(6000) as usize;
            if self.history.len() > 8000 && self.pair.below(3) > 0 {
                let start = self.pair.below(self.history.len() as u64 - 7000) as usize;
                plain.extend_from_slice(&self.history[start..start + piece.min(7000)]);
            } else {
                let fresh = self.pair.random_bytes(piece);
                plain.extend_from_slice(&fresh);
            }
        }
        plain.truncate(len);
        self.history.extend_from_slice(&plain);
        plain
    }

    fn open(&mut self) {
        let side = self.pair.below(2) as usize;
        if self.flows.len() < 12 && !self.drains[side] && self.pair.sides[side].link.takes_flows() {
            let pick = self.pair.below(3) as usize;
            self.pair.plan.layers = [Layers::Log, Layers::Names, Layers::Both][pick];
            let flow = self.pair.open(side);
            self.flows.insert(flow, Reference { opener: side, ..Reference::default() });
        }
    }

    fn answer(&mut self) {
        for side in [0, 1] {
            while let Some(flow) = self.pair.sides[side].offered.pop_front() {
                let local = std::net::SocketAddr::from(([127, 0, 0, 1], 9));
                self.pair.sides[side].link.answer_flow(flow, Ok(local), self.pair.now);
            }
        }
    }

    fn send(&mut self) {
        let Some(id) = self.some_flow() else { return };
        let side = self.pair.below(2) as usize;
        let known = self.pair.sides[side].link.flow(id).is_some();
        let flow = &self.flows[&id];
        let queued = flow.sent[side].len().saturating_sub(self.pair.sides[1 - side].stream(id).bytes.len());
        if flow.broken || flow.finished[side] || !known || queued > QUEUE {
            return;
        }
        let plain = self.content();
        let now = self.pair.now;
        // More is about to come, as far as is known.
        let more = self.pair.below(3) == 0;
        let link = &mut self.pair.sides[side].link;
        if link.handle_payload(id, plain.clone().into(), now).is_ok() {
            self.flows.get_mut(&id).unwrap().sent[side].extend_from_slice(&plain);
            link.expect_payload(id, more);
            self.expecting.extend(more.then_some((side, id)));
        }
    }

    /// Nothing more comes after all.
    fn stop_expecting(&mut self) {
        for (side, id) in std::mem::take(&mut self.expecting) {
            self.pair.sides[side].link.expect_payload(id, false);
        }
    }

    /// A member of the group announces chunks readable at its neighbours, or asks for some, or says anything.
    fn talk(&mut self) {
        let side = self.pair.below(2) as usize;
        let (what, at) = (self.pair.below(4), self.pair.below(self.history.len() as u64) as usize);
        let (tag, now) = (self.pair.rng.next_u64(), self.pair.now);
        let Some(key) = self.pair.sides[side].config.names.as_ref().map(|names| names.key.clone()) else {
            return;
        };
        // Chunks of sent bytes, known to the other side or not.
        let mut tree = Tree::new(Shape::default());
        let nodes = tree.grow(&self.history[at..(at + 7000).min(self.history.len())]);
        let tags: Vec<u64> = nodes
            .iter()
            .filter(|node| node.len >= 2048)
            .filter_map(|node| Some(key.tag(self.history.get(at..)?.get(node.range())?)))
            .collect();
        let link = &mut self.pair.sides[side].link;
        match what {
            0 | 1 => link.learn_chunks(2048, &tags, now),
            2 => _ = link.tell_group(GroupFrame::Stored { least_log2: 11, tags }),
            _ => {
                _ = link
                    .tell_group(GroupFrame::Peek { request: tag, chunks: vec![Sought { tag, len: 300 }; 9] });
            }
        }
    }

    fn finish_or_abort(&mut self) {
        let Some(id) = self.some_flow() else { return };
        let side = self.pair.below(2) as usize;
        let (now, reset) = (self.pair.now, self.pair.below(4) == 0);
        let link = &mut self.pair.sides[side].link;
        if link.flow(id).is_none() {
            return;
        }
        let flow = self.flows.get_mut(&id).unwrap();
        if reset {
            flow.broken = true;
            link.abort_flow(id, ResetReason::Application, now);
        } else {
            flow.finished[side] = true;
            link.finish_flow(id, now);
        }
    }

    fn stall(&mut self) {
        let Some(id) = self.some_flow() else { return };
        let side = self.pair.below(2) as usize;
        let stalled = &mut self.pair.sides[side].stalled;
        if stalled.contains(&id) {
            stalled.retain(|&other| other != id)
        } else {
            stalled.push(id)
        }
        self.pair.read(side, id);
    }

    fn hurt(&mut self) {
        let lanes = self.pair.lanes();
        let pick = self.pair.below(lanes.len() as u64) as usize;
        let (kind, side) = (self.pair.below(12), self.pair.below(2) as usize);
        match (kind, lanes.get(pick)) {
            (0..6, Some(&lane)) => self.pair.cut(lane),
            (6..9, Some(&lane)) => self.pair.block(lane, side, true),
            (9 | 10, _) => self.pair.cut_all(),
            _ if self.pair.below(6) == 0 => self.restart(side),
            _ => {}
        }
    }

    /// The accepting side asks for another lane in one's place, in the midst of traffic.
    fn wear(&mut self) {
        let lanes = self.pair.lanes();
        let pick = self.pair.below(lanes.len() as u64) as usize;
        let Some(&lane) = lanes.get(pick) else { return };
        let (mut worn, now) = (Vec::new(), self.pair.clock(0));
        Frame::LaneWorn.encode(&mut worn);
        self.pair.sides[0].link.handle_input(lane, &mut (&worn[..]).into(), now).unwrap();
    }

    fn restart(&mut self, side: usize) {
        let chunks = std::mem::take(&mut self.pair.sides[side].chunks);
        self.pair.restart(side);
        self.drains[side] = false;
        // The store's id is the same, with any content.
        if self.pair.below(2) == 0 {
            self.pair.sides[side].chunks = chunks;
        }
        self.flows.values_mut().for_each(|flow| flow.broken = true);
        // The applications of the restarted side are gone with it.
        self.pair.sides[side].received.clear();
        self.pair.sides[side].stalled.clear();
    }

    /// A side takes no new flows from now on, or stops, having done so, and comes back.
    fn drain(&mut self) {
        let side = self.pair.below(2) as usize;
        match self.drains[side] {
            true => self.restart(side),
            false if self.pair.below(6) == 0 => {
                // An open under way learns of it.
                if self.pair.below(2) == 0 {
                    self.open();
                }
                self.drains[side] = true;
                self.pair.sides[side].link.drain();
            }
            false => {}
        }
    }

    /// Takes note of flows towards a draining side: nothing of them may have arrived.
    fn note_turned_back(&mut self) {
        for (&id, flow) in self.flows.iter_mut().filter(|(_, flow)| !flow.broken) {
            let far = 1 - flow.opener;
            if self.pair.sides[flow.opener].received.get(&id).is_some_and(|got| got.opened == Some(false)) {
                assert!(self.drains[far], "flow {} was refused by a side that takes flows", id.0);
                let arrived = self.pair.sides[far].received.get(&id);
                assert!(arrived.is_none_or(|got| got.bytes.is_empty()), "flow {} arrived", id.0);
                flow.broken = true;
                self.turned_back += 1;
            }
        }
    }

    /// A side has more memory for its logs, or less, or forgets them.
    fn change_logs(&mut self) {
        let side = self.pair.below(2) as usize;
        let limits = LogLimits { out: self.pair.below(300_000), inbound: self.pair.below(300_000) };
        let (clear, now) = (self.pair.below(8) == 0, self.pair.now);
        let link = &mut self.pair.sides[side].link;
        if clear {
            link.clear_logs(now);
        } else {
            link.set_log_limits(limits, now);
        }
    }

    /// A store is slow for a while, loses chunks, or says how it stands.
    fn trouble_store(&mut self) {
        let side = self.pair.below(2) as usize;
        let (what, pick, now) = (self.pair.below(13), self.pair.below(100), self.pair.now);
        let side = &mut self.pair.sides[side];
        match what {
            8 => side.holds_peeks = true,
            9 | 10 => side.holds_peeks = false,
            11 => side.bad_reads = pick % 7,
            12 => {
                if let Some(StoreRequest::Read { ticket, .. }) = side.reads.front() {
                    side.link.handle_store_wait(*ticket, Now::from_millis(pick * 20), now);
                }
            }
            0 => side.holds_reads = true,
            1..4 => side.holds_reads = false,
            4 => side.chunks.clear(),
            5 => side.chunks.retain(|tag, _| tag % 5 != pick % 5),
            _ => {
                let (queued, service_time) = (side.reads.len() as u32, Now::from_millis(pick / 8));
                let (neighbours_pending, taking) = (pick << 10, pick > 10);
                let state = StoreState { queued, service_time, age_secs: pick, taking, neighbours_pending };
                side.link.handle_store_state(state, now);
            }
        }
    }

    fn step(&mut self) {
        match self.pair.below(100) {
            0..6 => self.open(),
            6..45 => self.send(),
            45..50 => self.finish_or_abort(),
            50..54 => self.stall(),
            54..57 => self.hurt(),
            57 => self.change_logs(),
            62..66 => self.trouble_store(),
            66 | 67 => self.talk(),
            68 => self.stop_expecting(),
            69 => self.drain(),
            70 => self.wear(),
            58..62 => {
                let time = Now::from_millis(self.pair.below(400));
                self.pair.pass(time);
            }
            _ => {
                let amount = 1 + self.pair.below(60_000) as usize;
                self.pair.step(amount);
            }
        }
        self.answer();
        self.check();
    }

    fn check(&mut self) {
        self.note_turned_back();
        for (&id, flow) in &self.flows {
            for side in [0, 1] {
                let Some(stream) = self.pair.sides[side].received.get(&id) else { continue };
                let sent = &flow.sent[1 - side];
                assert!(sent.starts_with(&stream.bytes), "flow {} got wrong bytes", id.0);
                if stream.finished {
                    assert!(flow.finished[1 - side], "flow {} ended and nobody ended it", id.0);
                    assert_eq!(stream.bytes.len(), sent.len(), "flow {} ended short", id.0);
                }
                assert!(stream.reset.is_none() || flow.broken, "flow {} reset: {:?}", id.0, stream.reset);
            }
        }
    }

    /// Lets every application read and end, and checks that everything arrived and nothing is left.
    fn settle(&mut self) {
        for side in [0, 1] {
            self.pair.sides[side].stalled.clear();
            // The store of every other run never answers again.
            self.pair.sides[side].holds_reads &= self.flows.len().is_multiple_of(2);
            let ids: Vec<FlowId> = self.flows.keys().copied().collect();
            ids.iter().for_each(|&id| self.pair.read(side, id));
        }
        self.stop_expecting();
        for _ in 0..20 {
            self.pair.pass(Now::from_secs(2));
            self.answer();
        }
        self.note_turned_back();
        for side in [0, 1] {
            let known = self.pair.sides[side].link.peer_drains();
            assert_eq!(known, self.drains[1 - side], "what side {side} knows of the other");
        }
        // Nothing waits for a stream's end.
        for (&id, flow) in self.flows.iter().filter(|(_, flow)| !flow.broken) {
            for side in [0, 1] {
                let (there, sent) = (self.pair.sides[side].stream(id).bytes.len(), flow.sent[1 - side].len());
                assert_eq!(there, sent, "flow {} stands still at side {side}", id.0);
            }
        }
        for _ in 0..20 {
            self.pair.pass(Now::from_secs(2));
            self.answer();
            let now = self.pair.now;
            for side in &mut self.pair.sides {
                self.flows.keys().for_each(|&id| side.link.finish_flow(id, now));
            }
            self.flows.values_mut().for_each(|flow| flow.finished = [true, true]);
        }
        self.check();
        for (&id, flow) in self.flows.iter().filter(|(_, flow)| !flow.broken) {
            for side in [0, 1] {
                let stream = self.pair.sides[side].stream(id);
                assert!(stream.finished, "flow {} never ended at side {side}", id.0);
                assert_eq!(stream.bytes.len(), flow.sent[1 - side].len());
            }
        }
        for side in [0, 1] {
            let left = self.pair.sides[side].link.flows();
            assert!(left.is_empty(), "left at side {side}: {left:?}");
            let stats = self.pair.sides[side].link.stats();
            assert_eq!((stats.out.unacked, stats.inbound.mismatches, stats.inbound.overwritten), (0, 0, 0));
        }
    }
}

#[test]
fn streams_are_right_and_nothing_is_left_behind() {
    let (mut whole, mut resumed, mut copied, mut waited) = (0, 0, 0, 0);
    let (mut hits, mut requested, mut turned_back, mut renewed) = (0, 0, 0, 0);
    let seeds = more_seeds().unwrap_or(0..SEEDS);
    let runs = seeds.end - seeds.start;
    for seed in seeds {
        println!("seed {seed}");
        let mut model = Model::new(seed);
        for _ in 0..500 {
            model.step();
        }
        model.settle();
        turned_back += model.turned_back;
        whole += model.flows.values().filter(|flow| !flow.broken).count();
        for side in &model.pair.sides {
            let stats = side.link.stats();
            resumed += stats.resumes;
            copied += stats.inbound.copied;
            waited += stats.inbound.waited;
            renewed += stats.lanes_renewed;
            hits += stats.inbound.chunks.hits.bytes;
            requested += stats.inbound.chunks.requested_bytes;
        }
    }
    println!("{whole} flows whole, {resumed} resumed, {copied} bytes copied, {waited} blocks waited");
    println!(
        "{hits} bytes from stores, {requested} asked for; {turned_back} flows turned back, {renewed} lanes renewed"
    );
    if runs < SEEDS {
        return println!("too few runs to say that all of it happened");
    }
    // The runs must have met the dangerous cases.
    assert!(turned_back > runs / 20 && renewed > runs);
    assert!(hits > runs << 12 && requested > runs << 10);
    assert!(whole as u64 > runs && resumed > runs && copied > runs << 17 && waited > runs);
}

const SEEDS: u64 = 60;

/// Other runs than those of every test: `ONCEWIRE_SEEDS=1000..2000`, or `7..8` for a failed one.
#[allow(clippy::disallowed_methods, reason = "which runs is said by whoever starts them")]
fn more_seeds() -> Option<std::ops::Range<u64>> {
    let seeds = std::env::var("ONCEWIRE_SEEDS").ok()?;
    let (start, end) = seeds.split_once("..").unwrap();
    Some(start.parse().unwrap()..end.parse().unwrap())
}
