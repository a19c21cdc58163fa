//! A tiny codec: blocks as they are, each with a digest.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use oncewire_codec::Now;
use oncewire_codec::contract::*;
use oncewire_codec::log::RangeSet;
use oncewire_codec::wire::varint::put_varint;
use oncewire_codec::wire::{Ack, FlowId, Frame, LaneId, MAX_RANGES, Message, Reader, WireError};
use oncewire_link::{CodecFactory, LinkConfig, SavedLog};

#[derive(Debug)]
pub(crate) struct Raw;

impl CodecFactory for Raw {
    fn encoder(&self, _: &LinkConfig, _: Option<SavedLog>) -> Box<dyn Encoder + Send> {
        Box::new(RawEncoder::default())
    }

    fn decoder(&self, _: &LinkConfig, _: Option<SavedLog>) -> Box<dyn Decoder + Send> {
        Box::new(RawDecoder::default())
    }
}

/// What is not acknowledged: its flow, the lane that it was sent on unless that was lost, and its frame.
type Item = (FlowId, Option<LaneId>, Vec<u8>);

#[derive(Default)]
struct RawEncoder {
    next: u64,
    items: BTreeMap<u64, Item>,
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
        let mut body = Vec::new();
        let head = [self.next, flow.0.into(), offset, fin.into(), digest(&plain)];
        head.into_iter().for_each(|number| body.extend(number.to_le_bytes()));
        body.extend_from_slice(&plain);
        let mut frame = vec![BLOCK];
        put_varint(&mut frame, body.len() as u64);
        frame.extend_from_slice(&body);
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
        for range in std::iter::once(0..next).chain(ranges) {
            if range.end > self.next {
                return Err(PeerFault::AckOfUnsent(range.end));
            }
            let gone: Vec<u64> = self.items.range(range).map(|(seq, _)| *seq).collect();
            let gone: Vec<Item> = gone.iter().filter_map(|seq| self.items.remove(seq)).collect();
            for (flow, ..) in gone {
                if self.pending(flow).items == 0 {
                    self.events.push_back(SendEvent::Settled(flow));
                }
            }
        }
        Ok(Heard::default())
    }

    fn handle_lane_lost(&mut self, lane: LaneId) {
        self.items.values_mut().for_each(|(_, on, _)| _ = on.take_if(|on| *on == lane));
    }

    fn handle_peer(&mut self, _: PeerState) {
        (self.next, self.items) = (0, BTreeMap::new());
    }

    fn poll_repair(&mut self, repair: Repair, out: &mut Vec<u8>) -> bool {
        let Repair::Lost(flow, lane) = repair else { return false };
        let lost = self.items.values_mut().find(|(of, on, _)| *of == flow && on.is_none());
        let Some((_, on, frame)) = lost else { return false };
        *on = Some(lane);
        out.extend_from_slice(frame);
        true
    }

    fn load(&self) -> EncoderLoad {
        let kept_bytes = self.items.values().map(|(.., frame)| frame.len() as u64).sum();
        EncoderLoad { kept_bytes, has_room: self.items.len() < 1000, ..EncoderLoad::default() }
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
    arrived: RangeSet,
    ack_due: bool,
    deliveries: VecDeque<Delivery>,
}

impl Decoder for RawDecoder {
    fn handle_frame(
        &mut self,
        kind: u8,
        body: &[u8],
        _: LaneId,
        _: Now,
    ) -> Result<Option<Arrival>, PeerFault> {
        let (seq, flow, end, delivery) = match kind {
            BLOCK => {
                let mut reader = Reader::new(body);
                let mut number = || reader.u64("number of a raw block");
                let (seq, flow) = (number()?, FlowId(number()? as u32));
                let (offset, fin, sum) = (number()?, number()? == 1, number()?);
                let plain = Bytes::copy_from_slice(reader.rest());
                if digest(&plain) != sum {
                    return Err(WireError::Invalid("digest").into());
                }
                let end = offset.saturating_add(plain.len() as u64);
                (seq, flow, Some(end), Delivery::Data { flow, offset, plain, fin })
            }
            _ => match Frame::decode(kind, body)? {
                Frame::Message { seq, flow, message } => {
                    (seq, flow, None, Delivery::Message { flow, message })
                }
                _ => return Err(WireError::UnknownType(kind).into()),
            },
        };
        let range = seq..seq.checked_add(1).ok_or(WireError::Invalid("sequence number"))?;
        if !self.arrived.contains(&range) {
            self.deliveries.push_back(delivery);
            self.arrived.insert(range);
        }
        self.ack_due = true;
        Ok(Some(Arrival::Item { flow, seq, is_resent: false, end }))
    }

    fn handle_peer(&mut self, _: PeerSender) {
        *self = Self::default();
    }

    fn poll_feedback(&mut self, _: LaneId, _: bool, out: &mut Vec<u8>) -> bool {
        let next = self.arrived.from(0).filter(|first| first.start == 0).map_or(0, |first| first.end);
        let ranges = self.arrived.iter().filter(|range| range.start > next).take(MAX_RANGES).collect();
        let is_due = std::mem::take(&mut self.ack_due);
        if is_due {
            Frame::Ack(Ack { next, ranges }).encode(out);
        }
        is_due
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
    plain
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

const BLOCK: u8 = 0x10;
