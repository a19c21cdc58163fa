//! A second codec, by the contract alone, and codecs chosen by both ends.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;
#[path = "common/raw.rs"]
mod raw;

use std::sync::{Arc, Mutex};

use common::store::naming;
use common::{Pair, Side, config, text};
use oncewire_codec::contract::{
    Arrival, Decoder, Delivery, Encoder, EncoderLoad, Heard, Payload, PeerFault, PeerSender, PeerState,
    Pending, Repair, SavedLog, SendEvent,
};
use oncewire_codec::wire::{Message, WireError};
use oncewire_link::{
    CodecFactory, CodecId, Endre, FlowId, LaneId, LaneRefused, LaneRole, LinkConfig, Now, StoreState,
};
use raw::raw;

fn with(codecs: Vec<Arc<dyn CodecFactory>>, dialer: bool, instance: u64) -> LinkConfig {
    LinkConfig { codecs, ..config(dialer, instance) }
}

fn pair(seed: u64) -> Pair {
    Pair::with(seed, with(vec![raw()], true, 1), with(vec![raw()], false, 2))
}

#[test]
fn raw_blocks_cross_a_link_both_ways() {
    let mut pair = pair(1);
    let flow = pair.connect(0);
    let sent = [0, 1].map(|_| pair.random_bytes(300_000));
    for (side, bytes) in sent.iter().enumerate() {
        pair.send(side, flow, bytes);
    }
    pair.run();
    for (side, bytes) in sent.iter().enumerate() {
        assert!(pair.sides[1 - side].stream(flow).bytes == *bytes, "side {side}");
    }
    assert!(pair.sides.iter().all(|side| side.link.stats().codec == Some(CodecId(0xff00))));
}

#[test]
fn raw_blocks_survive_cut_lanes() {
    for seed in 0..20 {
        let mut pair = pair(seed);
        let flow = pair.connect(0);
        let bytes = pair.random_bytes(200_000);
        for part in bytes.chunks(50_000) {
            pair.send(0, flow, part);
            let steps = pair.below(200_000) as usize;
            pair.step(steps);
            pair.cut_all();
        }
        pair.run();
        assert!(pair.sides[1].stream(flow).bytes == bytes, "seed {seed}");
    }
}

/// Whether a text that crosses twice crosses as copies.
fn saves(pair: &mut Pair) -> bool {
    let flow = pair.connect(0);
    let text = text(100_000);
    pair.send(0, flow, &text);
    pair.run();
    pair.send(0, flow, &text);
    pair.run();
    assert!(pair.sides[1].stream(flow).bytes == [&text[..], &text].concat());
    pair.sides[1].link.stats().inbound.copied > 0
}

#[test]
fn ends_with_different_preferences_use_the_shared_codec() {
    let (raw, endre) = (raw(), Arc::new(Endre) as Arc<dyn CodecFactory>);
    let both = || vec![Arc::clone(&raw), Arc::clone(&endre)];
    for (dialer, acceptor, codec) in [
        (both(), vec![Arc::clone(&endre)], CodecId::ENDRE),
        (vec![Arc::clone(&endre)], both(), CodecId::ENDRE),
        (both(), vec![Arc::clone(&raw)], raw.id()),
        (both(), both(), raw.id()),
    ] {
        let mut pair = Pair::with(3, with(dialer, true, 1), with(acceptor, false, 2));
        assert!(pair.sides.iter().all(|side| side.link.stats().codec == Some(codec)));
        assert_eq!(saves(&mut pair), codec == CodecId::ENDRE);
    }
}

#[test]
fn restarted_peer_with_another_codec_ends_flows_and_goes_on() {
    let both = vec![raw(), Arc::new(Endre) as Arc<dyn CodecFactory>];
    let mut pair = Pair::with(4, with(both, true, 1), with(vec![raw()], false, 2));
    let flow = pair.connect(0);
    pair.send(0, flow, &text(10_000));
    for (instance, codec) in [(3, CodecId::ENDRE), (4, CodecId(0xff00))] {
        let codecs = if codec == CodecId::ENDRE {
            vec![Arc::new(Endre) as Arc<dyn CodecFactory>]
        } else {
            vec![raw()]
        };
        pair.cut_all();
        pair.sides[1] = Side::new(with(codecs, false, instance), pair.now);
        pair.run();
        assert_eq!(pair.sides[0].link.stats().codec, Some(codec));
        assert_eq!(saves(&mut pair), codec == CodecId::ENDRE);
    }
    assert!(pair.sides[0].stream(flow).reset.is_some());
}

#[test]
fn ends_without_a_shared_codec_name_a_remedy() {
    let now = Now::ZERO;
    let mut sides = [vec![raw()], vec![Arc::new(Endre) as Arc<dyn CodecFactory>]]
        .into_iter()
        .zip([true, false])
        .map(|(codecs, dialer)| Side::new(with(codecs, dialer, 1 + u64::from(dialer)), now))
        .collect::<Vec<_>>();
    let hellos = [0, 1].map(|side: usize| sides[side].link.hello(LaneId(1), LaneRole::Control));
    for (side, told) in [
        "no codec in common: the peer has 1 (endre), this gateway 65280; run builds at both ends that share one",
        "no codec in common: the peer has 65280, this gateway 1 (endre); run builds at both ends that share one",
    ]
    .into_iter()
    .enumerate()
    {
        let link = &mut sides[side].link;
        let refused =
            link.handle_lane_up(hellos[side].instance, &hellos[1 - side], LaneId(1), LaneRole::Control, side == 0, now);
        assert_eq!(refused.unwrap_err().to_string(), told);
        assert!(!link.is_up() && link.stats().codec.is_none());
    }
}

/// The parameters that halves were given.
type Notes = Arc<Mutex<Vec<Vec<u8>>>>;

/// Halves that note the peer's parameters, and refuse some.
#[derive(Debug)]
struct Noting {
    own: Vec<u8>,
    noted: Notes,
}

struct Noted<H> {
    half: H,
    noted: Notes,
}

impl<H> Noted<H> {
    fn note(&self, parameters: &[u8]) -> Result<(), PeerFault> {
        if parameters == b"bad" {
            return Err(WireError::Invalid("level").into());
        }
        self.noted.lock().unwrap().push(parameters.to_vec());
        Ok(())
    }
}

impl CodecFactory for Noting {
    fn id(&self) -> CodecId {
        CodecId(0xff01)
    }

    fn parameters(&self, _: &LinkConfig) -> Vec<u8> {
        self.own.clone()
    }

    fn encoder(&self, config: &LinkConfig, saved: Option<SavedLog>) -> Box<dyn Encoder + Send> {
        Box::new(Noted { half: raw().encoder(config, saved), noted: Arc::clone(&self.noted) })
    }

    fn decoder(&self, config: &LinkConfig, saved: Option<SavedLog>) -> Box<dyn Decoder + Send> {
        Box::new(Noted { half: raw().decoder(config, saved), noted: Arc::clone(&self.noted) })
    }
}

impl Encoder for Noted<Box<dyn Encoder + Send>> {
    fn handle_parameters(&mut self, parameters: &[u8]) -> Result<(), PeerFault> {
        self.note(parameters)
    }

    fn handle_payload(&mut self, payload: Payload, lane: LaneId, now: Now, out: &mut Vec<u8>) {
        self.half.handle_payload(payload, lane, now, out);
    }

    fn handle_message(&mut self, flow: FlowId, message: Message, lane: LaneId, out: &mut Vec<u8>) {
        self.half.handle_message(flow, message, lane, out);
    }

    fn handle_frame(&mut self, kind: u8, body: &[u8], lane: LaneId, now: Now) -> Result<Heard, PeerFault> {
        self.half.handle_frame(kind, body, lane, now)
    }

    fn handle_lane_lost(&mut self, lane: LaneId) {
        self.half.handle_lane_lost(lane);
    }

    fn handle_peer(&mut self, peer: PeerState) {
        self.half.handle_peer(peer);
    }

    fn poll_repair(&mut self, repair: Repair, out: &mut Vec<u8>) -> bool {
        self.half.poll_repair(repair, out)
    }

    fn load(&self) -> EncoderLoad {
        self.half.load()
    }

    fn pending(&self, flow: FlowId) -> Pending {
        self.half.pending(flow)
    }

    fn poll_event(&mut self) -> Option<SendEvent> {
        self.half.poll_event()
    }
}

impl Decoder for Noted<Box<dyn Decoder + Send>> {
    fn handle_parameters(&mut self, parameters: &[u8]) -> Result<(), PeerFault> {
        self.note(parameters)
    }

    fn handle_frame(
        &mut self,
        kind: u8,
        body: &[u8],
        lane: LaneId,
        now: Now,
    ) -> Result<Option<Arrival>, PeerFault> {
        self.half.handle_frame(kind, body, lane, now)
    }

    fn handle_peer(&mut self, peer: PeerSender) {
        self.half.handle_peer(peer);
    }

    fn poll_feedback(&mut self, lane: LaneId, flush: bool, out: &mut Vec<u8>) -> bool {
        self.half.poll_feedback(lane, flush, out)
    }

    fn has_urgent_frame(&self) -> bool {
        self.half.has_urgent_frame()
    }

    fn poll_payload(&mut self) -> Option<Delivery> {
        self.half.poll_payload()
    }
}

fn noting(own: &[u8]) -> (Arc<dyn CodecFactory>, Notes) {
    let noted = Notes::default();
    (Arc::new(Noting { own: own.to_vec(), noted: Arc::clone(&noted) }), noted)
}

#[test]
fn halves_get_the_peers_parameters_before_its_bytes() {
    let ((near, at_near), (far, at_far)) = (noting(b"near"), noting(b"far"));
    let mut pair = Pair::with(5, with(vec![near], true, 1), with(vec![far], false, 2));
    assert!(!saves(&mut pair));
    // Each of the two halves.
    assert_eq!(*at_near.lock().unwrap(), [b"far", b"far"]);
    assert_eq!(*at_far.lock().unwrap(), [b"near", b"near"]);
}

#[test]
fn parameters_of_no_use_cost_the_lane_and_nothing_else() {
    let now = Now::ZERO;
    let (near, noted) = noting(b"near");
    let mut near = Side::new(with(vec![near], true, 1), now);
    let hello = |parameters: &[u8], instance| {
        let far = Side::new(with(vec![noting(parameters).0], false, instance), now);
        far.link.hello(LaneId(1), LaneRole::Control)
    };
    near.link.handle_lane_up(1, &hello(b"far", 2), LaneId(1), LaneRole::Control, true, now).unwrap();
    let refused =
        near.link.handle_lane_up(1, &hello(b"bad", 3), LaneId(2), LaneRole::Flow, true, now).unwrap_err();
    assert!(matches!(refused, LaneRefused::CodecParameters { .. }));
    assert_eq!(
        refused.to_string(),
        "the peer's parameters for codec 65281 are of no use: invalid level; run builds that agree on them at both ends"
    );
    assert_eq!((near.link.stats().lanes, near.link.stats().peer_restarts), (1, 0));
    assert_eq!(noted.lock().unwrap().len(), 2);
}

#[test]
fn codec_chosen_by_a_hello_learns_the_stores_state() {
    let (endre, now) = (Arc::new(Endre) as Arc<dyn CodecFactory>, Now::from_secs(100));
    let said = |codecs: Vec<Arc<dyn CodecFactory>>, state: Option<StoreState>| {
        let mut near = Side::new(naming(with(codecs, true, 1), Some(77)), now);
        if let Some(state) = state {
            near.link.handle_store_state(state, now);
        }
        let far = Side::new(naming(with(vec![Arc::clone(&endre)], false, 2), Some(78)), now);
        let hello = far.link.hello(LaneId(1), LaneRole::Control);
        near.link.handle_lane_up(1, &hello, LaneId(1), LaneRole::Control, true, now).unwrap();
        let mut bytes = Vec::new();
        while near.link.poll_transmit(LaneId(1), now, &mut bytes) {}
        bytes
    };
    let state = Some(StoreState { age_secs: 5, ..StoreState::default() });
    let known = said(vec![Arc::clone(&endre)], state);
    assert_ne!(known, said(vec![Arc::clone(&endre)], None), "the peer is told");
    assert_eq!(said(vec![raw(), Arc::clone(&endre)], state), known);
}
