//! A tiny codec: blocks as they are, each with a digest.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use oncewire_codec::contract::*;
use oncewire_codec::wire::varint::put_varint;
use oncewire_codec::wire::{Ack, FlowId, Frame, LaneId, MAX_RANGES, Message, Reader, WireError};
use oncewire_codec::{Now, log::Arrived};
use oncewire_link::{CodecFactory, CodecId, DefaultCodec};

/// Makes it for a link.
pub(crate) fn raw() -> Arc<dyn CodecFactory> {
    let capabilities = Capabilities { needs_order: false, ..Capabilities::STREAM };
    Arc::new(DefaultCodec::<RawEncoder, RawDecoder>::new(CodecId(0xff00), capabilities))
}

#[derive(Default)]
struct RawEncoder {
    next: u64,
    /// Unacknowledged frames, each with its flow and its lane; without a lane once that is lost.
    items: BTreeMap<u64, (FlowId, Option<LaneId>, Vec<u8>)>,
    events: VecDeque<SendEvent>,
}

impl RawEncoder {
    fn push(&mut self, flow: FlowId, lane: LaneId, frame: Vec<u8>, out: &mut Vec<u8>) {
        out.extend_from_slice(&frame);
        self.items.insert(self.next, (flow, Some(lane), frame));
        self.next += 1;
    }
}

impl Encoder for RawEncoder {
    fn handle_payload(&mut self, payload: Payload, lane: LaneId, _: Now, out: &mut Vec<u8>) {
        let Payload { flow, offset, plain, fin, .. } = payload;
        let head = [self.next, flow.0.into(), offset, fin.into(), digest(&plain)].map(u64::to_le_bytes);
        let mut frame = vec![BLOCK];
        put_varint(&mut frame, (size_of_val(&head) + plain.len()) as u64);
        frame.extend_from_slice(head.as_flattened());
        frame.extend_from_slice(&plain);
        self.push(flow, lane, frame, out);
    }
    fn handle_message(&mut self, flow: FlowId, message: Message, lane: LaneId, out: &mut Vec<u8>) {
        let mut frame = Vec::new();
        Frame::Message { seq: self.next, flow, message }.encode(&mut frame);
        self.push(flow, lane, frame, out);
    }

    fn handle_frame(&mut self, kind: u8, body: &[u8], _: LaneId, _: Now) -> Result<Heard, PeerFault> {
        let Frame::Ack(Ack { next, ranges }) = Frame::decode(kind, body)? else {
            return Err(WireError::UnknownType(kind).into());
        };
        let is_acked = |seq: &u64| *seq < next || ranges.iter().any(|range| range.contains(seq));
        let gone: Vec<_> =
            self.items.extract_if(.., |seq, _| is_acked(seq)).map(|(_, item)| item.0).collect();
        let settled: Vec<_> = gone.into_iter().filter(|flow| self.pending(*flow).items == 0).collect();
        self.events.extend(settled.into_iter().map(SendEvent::Settled));
        Ok(Heard::default())
    }
    fn handle_lane_lost(&mut self, lane: LaneId) {
        self.items.values_mut().for_each(|(_, on, _)| _ = on.take_if(|on| *on == lane));
    }
    fn handle_peer(&mut self, _: PeerState) {
        *self = Self::default();
    }
    fn poll_repair(&mut self, repair: Repair, out: &mut Vec<u8>) -> bool {
        let Repair::Lost(flow, lane) = repair else { return false };
        let mut items = self.items.values_mut();
        let Some((_, on, frame)) = items.find(|(of, on, _)| *of == flow && on.is_none()) else {
            return false;
        };
        *on = Some(lane);
        out.extend_from_slice(frame);
        true
    }
    fn load(&self) -> EncoderLoad {
        let kept_bytes = self.items.values().map(|(.., frame)| frame.len() as u64).sum();
        let has_room = (self.items.len() as u64) < MAX_UNACKED;
        EncoderLoad { kept_bytes, has_room, ..EncoderLoad::default() }
    }
    fn pending(&self, flow: FlowId) -> Pending {
        let of_flow = || self.items.values().filter(|(of, ..)| *of == flow);
        Pending { items: of_flow().count() as u64, lost: of_flow().any(|(_, on, _)| on.is_none()) }
    }
    fn poll_event(&mut self) -> Option<SendEvent> {
        self.events.pop_front()
    }
}

#[derive(Default)]
struct RawDecoder {
    arrived: Arrived,
    ack_due: bool,
    deliveries: VecDeque<Delivery>,
}

impl Decoder for RawDecoder {
    fn handle_frame(&mut self, kind: u8, body: &[u8], _: LaneId, _: Now) -> Taken {
        let (seq, flow, end, delivery) = if kind == BLOCK {
            let mut reader = Reader::new(body);
            let mut number = || reader.u64("number of a raw block");
            let [seq, flow, offset, fin, sum] = [number()?, number()?, number()?, number()?, number()?];
            let (flow, plain) = (FlowId(flow as u32), Bytes::copy_from_slice(reader.rest()));
            if digest(&plain) != sum {
                return Err(WireError::Invalid("digest").into());
            }
            let end = Some(offset.saturating_add(plain.len() as u64));
            (seq, flow, end, Delivery::Data { flow, offset, plain, fin: fin == 1 })
        } else if let Frame::Message { seq, flow, message } = Frame::decode(kind, body)? {
            (seq, flow, None, Delivery::Message { flow, message })
        } else {
            return Err(WireError::UnknownType(kind).into());
        };
        let next = self.arrived.next();
        if seq.saturating_sub(next) > MAX_UNACKED {
            return Err(PeerFault::TooFarAhead { seq, next });
        }
        self.deliveries.extend(self.arrived.insert(seq).then_some(delivery));
        self.ack_due = true;
        Ok(Some(Arrival::Item { flow, seq, is_resent: false, end }))
    }
    fn handle_peer(&mut self, _: PeerSender) {
        *self = Self::default();
    }
    fn poll_feedback(&mut self, _: LaneId, _: bool, out: &mut Vec<u8>) -> bool {
        let ranges = self.arrived.above().iter().take(MAX_RANGES).collect();
        let ack = Frame::Ack(Ack { next: self.arrived.next(), ranges });
        let is_due = std::mem::take(&mut self.ack_due);
        is_due.then(|| ack.encode(out)).is_some()
    }
    fn has_urgent_frame(&self) -> bool {
        self.ack_due
    }
    fn poll_payload(&mut self) -> Option<Delivery> {
        self.deliveries.pop_front()
    }
}

/// FNV-1a.
fn digest(plain: &[u8]) -> u64 {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    plain.iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

type Taken = Result<Option<Arrival>, PeerFault>;
const BLOCK: u8 = 0x10;
const MAX_UNACKED: u64 = 1000;
