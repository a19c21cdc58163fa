//! The flows' traffic, and the transport of frames and feedback.

use std::collections::VecDeque;

use bytes::Bytes;
use rand_pcg::rand_core::Rng as _;

use super::{CAPACITY, MAX_PLAIN, Model, Reference};
use crate::contract::{
    Decoder as _, Delivery, Encoder as _, Feedback, LogStart, Parts, Payload, Repair, SendEvent,
    StorePort as _,
};
use crate::entropy::Entropy;
use crate::wire::{FlowId, Frame, LaneId, take_frame};
use crate::{Layers, Matching, Plan, Quota};

impl Model {
    /// Half fresh bytes, half pieces of earlier traffic, the very old included; with a store, now and then the last
    /// bytes, so they are named while under way.
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

    pub(crate) fn send(&mut self) {
        if !self.sender.load().has_room {
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
        while self.sender.poll_repair(Repair::Lost(id, lane), &mut out) {}
        let plain = self.content();
        let fin = self.below(40) == 0;
        let plan = (id.0 % 7 != 3).then(|| self.plan());
        self.history.extend_from_slice(&plain);
        self.last.clone_from(&plain);
        let flow = self.flows.get_mut(&id).unwrap();
        let offset = flow.sent.len() as u64;
        flow.sent.extend_from_slice(&plain);
        flow.finished = fin;
        let payload =
            Payload { flow: id, offset, plain: Bytes::from(plain), fin, plan, parts: Parts::default() };
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
        let class = self.below(8);
        let quota = (class < 3).then_some(Quota { class, bytes: class * CAPACITY / 8 });
        let is_max = self.below(2) == 0 || self.sender.has_planted_error();
        let matching = if is_max { Matching::Max } else { Matching::Chunk };
        let layers = match self.below(4) {
            _ if self.sender.has_planted_error() => Layers::Log,
            0 => Layers::Log,
            1 => Layers::Names,
            _ => Layers::Both,
        };
        Plan { layers, entropy, period, matching, quota, ..Plan::default() }
    }

    /// A flow keeps its lane while it has anything unacknowledged.
    pub(crate) fn lane_of(&mut self, id: FlowId) -> LaneId {
        match self.flows[&id].lane.filter(|lane| self.lanes.contains_key(lane)) {
            Some(lane) if self.sender.pending(id).items > 0 => lane,
            _ => {
                let lane = self.some_lane();
                self.flows.get_mut(&id).unwrap().lane = Some(lane);
                lane
            }
        }
    }

    pub(crate) fn put(&mut self, lane: LaneId, out: &[u8]) {
        let queue = self.lanes.get_mut(&lane).unwrap();
        split(out).into_iter().for_each(|frame| queue.push_back(frame));
    }

    pub(crate) fn deliver(&mut self) {
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

    pub(crate) fn collect(&mut self) {
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

    pub(crate) fn poll_feedback(&mut self, flush: bool) {
        let mut out = Vec::new();
        if self.receiver.poll_frame(flush, &mut out) {
            self.feedback.extend(split(&out));
        }
    }

    pub(crate) fn handle_feedback(&mut self) {
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
        if let Feedback::Chunks(request) = &feedback {
            self.asked.insert(request.seq);
        }
        self.sender.handle_feedback(feedback, self.now).unwrap();
        let mut out = Vec::new();
        while self.parts.is_none() && self.sender.poll_repair(Repair::Chunks(None), &mut out)
            || self.sender.poll_repair(Repair::Block, &mut out)
        {}
        let lane = self.some_lane();
        self.put(lane, &out);
        for lane in self.lanes.keys().copied().collect::<Vec<_>>() {
            let mut out = Vec::new();
            while self.parts.is_none() && self.sender.poll_repair(Repair::Chunks(Some(lane)), &mut out) {}
            self.put(lane, &out);
        }
        while let Some(event) = self.sender.poll_event() {
            if let SendEvent::LogStarts { start: LogStart::Resumed { bytes }, .. } = event {
                self.warm_bytes += bytes;
            }
        }
    }

    /// Sends a part of the chunks waiting, of any block, as a link does that has a limit.
    pub(crate) fn answer(&mut self) {
        let Some(most) = self.parts else { return };
        let pick = self.below(self.asked.len() as u64) as usize;
        let Some(&seq) = self.asked.iter().nth(pick) else { return };
        let Some(asked) = self.sender.pending_chunks(seq) else {
            self.asked.remove(&seq);
            return;
        };
        let of_lane = asked.lane.filter(|_| !asked.any_lane || pick.is_multiple_of(2));
        let mut out = Vec::new();
        assert!(self.sender.poll_repair(Repair::ChunksOf { seq, lane: of_lane, most }, &mut out));
        let lane = of_lane.unwrap_or_else(|| self.some_lane());
        self.put(lane, &out);
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
