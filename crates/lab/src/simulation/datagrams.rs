//! A codec of single packets: a bare encoder and decoder across a path without order and without delivery.
//!
//! Each packet of the near side is one payload, each frame one datagram. Nothing is sent again but at the codec's own
//! wish, and no lane is ever lost. Loss, jitter, reordering and duplicates are the path's; TCP, TLS and links have no
//! part in it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use oncewire_codec::contract::{
    Decoder, Delivery, Encoder, Parts, Payload, PeerFault, PeerSender, PeerState, Repair,
};
use oncewire_codec::wire::{FlowId, LaneId, take_frame};
use oncewire_codec::{Now, Plan, StrongKind};
use oncewire_link::CodecFactory;
use oncewire_netem::{Link, LinkParams, ParamsError};

use super::gateway::link_config;
use super::host::Host;
use super::queue::Queue;
use super::{FAR, GatewayConfig, HostConfig, NEAR, PathConfig, Report};

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct DatagramConfig {
    /// The path between both sides; its congestion control is of no use here.
    pub path: PathConfig,
    /// The largest packet on the path, headers included.
    pub mtu: u32,
    /// The machines of both sides.
    pub hosts: [HostConfig; 2],
    /// The codec.
    pub codec: Arc<dyn CodecFactory>,
    /// The plan of the payloads; `None`: they are not coded.
    pub plan: Option<Plan>,
    /// The codec's memory, in bytes.
    pub log_memory: u64,
}

/// Why a run did not go on.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DatagramError {
    /// There is no such path.
    #[error(transparent)]
    Path(#[from] ParamsError),
    /// One half refused a frame of the other.
    #[error("one half refused a frame of the other: {0}")]
    Refused(#[from] PeerFault),
    /// A packet came out changed, or one of no offered packet's place.
    #[error("the packet at byte {offset} came out changed")]
    Changed {
        /// The offset of the packet, in all packets.
        offset: u64,
    },
    /// It took too long.
    #[error("the codec still has something to send long after the last packet")]
    Endless,
}

/// Carries packets from the near to the far side, each at its time. In the [`Report`] they are the flows of one class.
///
/// # Errors
/// An impossible path, and a mistake of the codec. A lost packet is none.
pub fn carry(config: &DatagramConfig, packets: &[(Duration, Bytes)]) -> Result<Report, DatagramError> {
    let mut run = Run::new(config, packets)?;
    while run.step()? {}
    Ok(run.report())
}

/// One run.
struct Run<'a> {
    config: &'a DatagramConfig,
    packets: Vec<Packet<'a>>,
    encoder: Box<dyn Encoder + Send>,
    decoder: Box<dyn Decoder + Send>,
    hosts: [Host; 2],
    links: [Link<Bytes>; 2],
    due: Queue<Due>,
    now: Now,
    /// When a packet or frame last moved.
    moved: Now,
    /// Packets without their turn at the encoder.
    waiting: VecDeque<usize>,
    /// Arrived datagrams, by receiving side, while its host is busy.
    unread: [VecDeque<Bytes>; 2],
    repairs: u64,
}

/// A packet, and its fate.
struct Packet<'a> {
    at: Now,
    offset: u64,
    plain: &'a Bytes,
    arrived: Option<Now>,
}

enum Due {
    /// The application has a packet.
    Offer(usize),
    /// A host is done with frames of its side.
    Leave(usize, Vec<u8>),
    /// A host may be done with its work.
    HostFree,
}

impl<'a> Run<'a> {
    fn new(config: &'a DatagramConfig, packets: &'a [(Duration, Bytes)]) -> Result<Self, DatagramError> {
        let gateway = GatewayConfig {
            codec: Arc::clone(&config.codec),
            plan: config.plan,
            log_memory: config.log_memory,
            ..GatewayConfig::default()
        };
        let [near, far] = [NEAR, FAR].map(|side| link_config(&gateway, side));
        let (mut encoder, mut decoder) =
            (config.codec.encoder(&near, None), config.codec.decoder(&far, None));
        encoder.handle_parameters(&config.codec.parameters(&far))?;
        decoder.handle_parameters(&config.codec.parameters(&near))?;
        encoder.handle_peer(PeerState {
            capacity: config.log_memory,
            contexts: far.contexts as usize,
            ..PeerState::default()
        });
        decoder.handle_peer(PeerSender {
            capacity: config.log_memory,
            max_in_flight: config.log_memory / 4,
            digest_seed: near.secret,
            names: None,
            strong: StrongKind::default(),
            continues: false,
            probe: None,
        });
        let link = |side| Link::new(LinkParams { mtu: config.mtu, ..config.path.params(side) });
        let (mut due, mut offset) = (Queue::default(), 0);
        let packets: Vec<Packet<'_>> = packets
            .iter()
            .enumerate()
            .map(|(index, (at, plain))| {
                let packet = Packet { at: *at, offset, plain, arrived: None };
                due.push(*at, Due::Offer(index));
                offset += plain.len() as u64;
                packet
            })
            .collect();
        Ok(Self {
            config,
            packets,
            encoder,
            decoder,
            hosts: config.hosts.map(Host::new),
            links: [link(0)?, link(1)?],
            due,
            now: Now::ZERO,
            moved: Now::ZERO,
            waiting: VecDeque::new(),
            unread: Default::default(),
            repairs: 0,
        })
    }

    /// Handles the next event; returns false if there is none.
    fn step(&mut self) -> Result<bool, DatagramError> {
        self.settle()?;
        let [up, down] = self.links.each_ref().map(Link::next_due);
        let moves = [self.due.next_due(), up, down].into_iter().flatten().min();
        let patience = self.decoder.poll_timeout().filter(|at| *at <= self.moved + DRAIN);
        let Some(next) = moves.into_iter().chain(patience).min() else { return Ok(false) };
        let last = self.packets.iter().map(|packet| packet.at).max().unwrap_or_default();
        if next > last + LIMIT {
            return Err(DatagramError::Endless);
        }
        self.now = next.max(self.now);
        if self.decoder.poll_timeout().is_some_and(|at| at <= self.now) {
            self.decoder.handle_timeout(self.now);
        }
        while let Some(due) = self.due.pop_due(self.now) {
            self.moved = self.now;
            match due {
                Due::Offer(index) => self.waiting.push_back(index),
                Due::Leave(side, frames) => self.leave(side, &frames),
                Due::HostFree => {}
            }
        }
        for side in [NEAR, FAR] {
            while let Some(frame) = self.links[side].poll(self.now) {
                self.moved = self.now;
                self.unread[1 - side].push_back(frame);
            }
        }
        Ok(true)
    }

    /// Does everything possible without passing time.
    fn settle(&mut self) -> Result<(), DatagramError> {
        while !self.hosts[FAR].is_busy(self.now)
            && let Some(frame) = self.unread[FAR].pop_front()
        {
            self.decode(&frame)?;
        }
        while !self.hosts[NEAR].is_busy(self.now)
            && let Some(frame) = self.unread[NEAR].pop_front()
        {
            self.hosts[NEAR].receive(1, self.now);
            if let Some((kind, body, _)) = take_frame(&frame).map_err(PeerFault::from)? {
                self.encoder.handle_frame(kind, body, LANE, self.now)?;
            }
            while self.encoder.poll_event().is_some() {}
            self.await_host(NEAR);
        }
        self.repair();
        while !self.hosts[NEAR].is_busy(self.now)
            && self.encoder.load().has_room
            && let Some(index) = self.waiting.pop_front()
        {
            self.encode(index);
        }
        Ok(())
    }

    fn encode(&mut self, index: usize) {
        let Some(packet) = self.packets.get(index) else { return };
        let (offset, plain) = (packet.offset, packet.plain.clone());
        let bytes = plain.len() as u64;
        let mut frames = Vec::new();
        self.encoder.poll_control(&mut frames);
        let payload = Payload {
            flow: FLOW,
            offset,
            plain,
            fin: false,
            plan: self.config.plan,
            parts: Parts::default(),
        };
        self.encoder.handle_payload(payload, LANE, self.now, &mut frames);
        while self.encoder.poll_event().is_some() {}
        self.hosts[NEAR].encode(bytes, &frames, self.now);
        self.send(NEAR, frames);
    }

    /// Sends again at the codec's wish.
    fn repair(&mut self) {
        let mut frames = Vec::new();
        while [Repair::Chunks(Some(LANE)), Repair::Chunks(None), Repair::Block]
            .into_iter()
            .any(|repair| self.encoder.poll_repair(repair, &mut frames))
        {
            self.repairs += 1;
        }
        if !frames.is_empty() {
            self.hosts[NEAR].encode(0, &frames, self.now);
            self.send(NEAR, frames);
        }
    }

    fn decode(&mut self, frame: &[u8]) -> Result<(), DatagramError> {
        self.hosts[FAR].receive(1, self.now);
        if let Some((kind, body, _)) = take_frame(frame).map_err(PeerFault::from)? {
            self.decoder.handle_frame(kind, body, LANE, self.now)?;
        }
        while self.decoder.poll_event().is_some() {}
        while let Some(delivery) = self.decoder.poll_payload() {
            if let Delivery::Data { offset, plain, .. } = delivery {
                self.deliver(offset, &plain)?;
            }
        }
        let mut feedback = Vec::new();
        self.decoder.poll_feedback(LANE, false, &mut feedback);
        if !feedback.is_empty() {
            self.hosts[FAR].encode(0, &feedback, self.now);
            self.send(FAR, feedback);
        }
        self.await_host(FAR);
        Ok(())
    }

    fn deliver(&mut self, offset: u64, plain: &Bytes) -> Result<(), DatagramError> {
        let host = &mut self.hosts[FAR];
        host.decode(plain.len() as u64, self.now);
        // Empty packets share the offset of the next.
        let behind = self.packets.partition_point(|packet| packet.offset <= offset);
        let packet = self.packets.get_mut(..behind).and_then(|packets| packets.last_mut());
        let right = packet.filter(|packet| packet.offset == offset && packet.plain == plain);
        let Some(packet) = right else { return Err(DatagramError::Changed { offset }) };
        packet.arrived.get_or_insert(host.free_at(self.now));
        Ok(())
    }

    /// Lets frames leave once the host is done with them.
    fn send(&mut self, side: usize, frames: Vec<u8>) {
        self.due.push(self.hosts[side].free_at(self.now), Due::Leave(side, frames));
    }

    /// Puts each frame into a datagram.
    fn leave(&mut self, side: usize, frames: &[u8]) {
        let mut rest = frames;
        while let Ok(Some((.., used))) = take_frame(rest) {
            let (frame, behind) = rest.split_at(used);
            self.links[side].send(self.now, used as u32 + HEADER_BYTES, Bytes::copy_from_slice(frame));
            rest = behind;
        }
    }

    fn await_host(&mut self, side: usize) {
        if self.hosts[side].is_busy(self.now) {
            self.due.push(self.hosts[side].free_at(self.now), Due::HostFree);
        }
    }

    fn report(&self) -> Report {
        let mut report = Report { time: self.moved, ..Report::default() };
        let class = report.classes.entry(CLASS.to_owned()).or_default();
        for packet in &self.packets {
            let (bytes, took) = (packet.plain.len() as u64, packet.arrived.map(|at| at - packet.at));
            class.add_bytes(bytes, if took.is_some() { bytes } else { 0 });
            class.add_flow(took);
        }
        class.times.sort_unstable();
        let (offered, delivered) = (class.offered, class.delivered);
        for (side, direction) in report.directions.iter_mut().enumerate() {
            let counters = self.links[side].counters();
            direction.wire = counters.carried_bytes;
            direction.lost = counters.lost + counters.queue_full + counters.too_big;
            direction.cpu = self.hosts[side].worked();
        }
        let [near, _] = &mut report.directions;
        (near.offered, near.delivered, near.retransmits) = (offered, delivered, self.repairs);
        report
    }
}

/// The class of all packets in the report.
pub const CLASS: &str = "packet";

const FLOW: FlowId = FlowId(0);
const LANE: LaneId = LaneId(1);
/// IPv4 and UDP.
const HEADER_BYTES: u32 = 28;
/// A decoder's patience after the last movement.
const DRAIN: Duration = Duration::from_secs(10);
const LIMIT: Duration = Duration::from_secs(3600);
