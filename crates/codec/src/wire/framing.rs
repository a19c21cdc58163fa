//! Frames as bytes.

use super::block::{Block, Range64};
use super::chunks::{ChunkRequest, Chunks, StoreHeld};
use super::frame::{
    Ack, Frame, KeepAlive, LogHeld, MAX_CREDIT_SHIFT, MAX_KEEPALIVE, Message, More, Networks, Open, Opened,
    Refetch, RefetchReason, Reset, SavingsCurve,
};
use super::group::{self, GroupFrame};
use super::names::{Destination, FlowId, LaneId, OpenFailure, ResetReason, put_address, take_address};
use super::network::Network;
use super::probe::{Probe, Probed};
use super::reader::{Reader, WireError};
use super::registry::*;
use super::varint::{put_varint, take_varint};
use super::{MAX_BLOCK, MAX_CURVE, MAX_FRAME, MAX_NETWORKS, MAX_RANGES};

/// A frame's type and body, and its length with both.
pub type RawFrame<'a> = (u8, &'a [u8], usize);

/// Takes the first whole frame off `input`; `None` if it is not whole yet.
///
/// # Errors
/// [`WireError::TooLong`] as soon as the length is known; a length that is no varint.
pub fn take_frame(input: &[u8]) -> Result<Option<RawFrame<'_>>, WireError> {
    let Some((&kind, mut rest)) = input.split_first() else { return Ok(None) };
    let before = rest.len();
    let Some(len) = take_varint(&mut rest) else {
        // A length of up to MAX_FRAME takes at most three bytes.
        return if before >= 3 { Err(WireError::Invalid("frame length")) } else { Ok(None) };
    };
    let header = 1 + before - rest.len();
    if len > (MAX_FRAME - header) as u64 {
        return Err(WireError::TooLong(len));
    }
    Ok(rest.get(..len as usize).map(|body| (kind, body, header + len as usize)))
}

impl<'a> Frame<'a> {
    /// Reads a frame from its type and body.
    ///
    /// # Errors
    /// Whatever is not exactly one frame of this version.
    pub fn decode(kind: u8, body: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(body);
        let frame = match kind {
            BLOCK => return Ok(Self::Block(Block::decode(reader)?)),
            MORE => return Ok(Self::More(decode_more(reader)?)),
            OPEN | OPENED | RESET => decode_message(kind, &mut reader)?,
            ACK => Self::Ack(decode_ack(&mut reader)?),
            ACKED => Self::Acked(reader.varint("acknowledgement")?),
            NEED => Self::Need(decode_ranges(&mut reader, 0)?),
            REFETCH_MISSING | REFETCH_MISMATCH => {
                let reason =
                    if kind == REFETCH_MISMATCH { RefetchReason::Mismatch } else { RefetchReason::Missing };
                let count = reader.varint_up_to(MAX_RANGES as u64, "count of blocks")?;
                let seqs = (0..count).map(|_| reader.varint("sequence number")).collect::<Result<_, _>>()?;
                Self::Refetch(Refetch { reason, seqs })
            }
            CREDIT => Self::Credit {
                flow: FlowId(reader.varint_u32("flow")?),
                limit: reader.varint_up_to(u64::MAX / 2, "credit")?,
            },
            LOG_HELD => Self::LogHeld(LogHeld {
                serial: reader.varint("serial number")?,
                epoch: reader.varint("epoch")?,
                oldest: reader.varint("offset held")?,
                limit: reader.varint("log limit")?,
            }),
            LOG_WORTH => Self::SavingsCurve(decode_savings(&mut reader)?),
            CHUNK_REQUEST => Self::ChunkRequest(ChunkRequest::decode(&mut reader)?),
            CHUNKS => return Ok(Self::Chunks(Chunks::decode(reader)?)),
            STORE_HELD => Self::StoreHeld(StoreHeld::decode(&mut reader)?),
            PING => Self::Ping(reader.u64("ping")?),
            PONG => Self::Pong(reader.u64("pong")?),
            LANES_WANTED => Self::LanesWanted(reader.varint_u32("count of lanes")?),
            LANE_DEAD => Self::LaneDead(LaneId(reader.u64("lane")?)),
            NETWORKS => {
                let serial = reader.varint("serial number")?;
                let count = reader.varint_up_to(MAX_NETWORKS as u64, "count of networks")?;
                let networks = (0..count).map(|_| Network::decode(&mut reader)).collect::<Result<_, _>>()?;
                Self::Networks(Networks { serial, networks })
            }
            DRAINING => Self::Draining,
            PROBE => Self::Probe(Probe::decode(&mut reader)?),
            PROBED => Self::Probed(Probed::decode(&mut reader)?),
            LANE_WORN => Self::LaneWorn,
            LANE_LEFT => Self::LaneLeft,
            KEEPALIVE => Self::KeepAlive(decode_keepalive(&mut reader)?),
            group::PEEK..=group::PENDING => Self::Group(GroupFrame::decode(kind, &mut reader)?),
            other => return Err(WireError::UnknownType(other)),
        };
        reader.finish()?;
        Ok(frame)
    }

    /// Appends the frame, its type and length included.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut body = Vec::with_capacity(64);
        let kind = match self {
            Self::Block(block) => {
                block.encode_header(&mut body);
                return put_frame(out, BLOCK, &body, block.body.bytes());
            }
            Self::More(more) => {
                put_varint(&mut body, more.after);
                return put_frame(out, MORE, &body, more.plain);
            }
            Self::Message { seq, flow, message } => encode_message(&mut body, *seq, *flow, message),
            Self::Ack(ack) => {
                put_varint(&mut body, ack.next);
                encode_ranges(&mut body, ack.next, &ack.ranges);
                ACK
            }
            Self::Acked(distance) => {
                put_varint(&mut body, *distance);
                ACKED
            }
            Self::Need(ranges) => {
                encode_ranges(&mut body, 0, ranges);
                NEED
            }
            Self::Refetch(refetch) => {
                put_varint(&mut body, refetch.seqs.len() as u64);
                refetch.seqs.iter().for_each(|&seq| put_varint(&mut body, seq));
                if refetch.reason == RefetchReason::Mismatch { REFETCH_MISMATCH } else { REFETCH_MISSING }
            }
            Self::Credit { flow, limit } => {
                put_varint(&mut body, u64::from(flow.0));
                put_varint(&mut body, *limit);
                CREDIT
            }
            Self::LogHeld(held) => {
                [held.serial, held.epoch, held.oldest, held.limit]
                    .into_iter()
                    .for_each(|value| put_varint(&mut body, value));
                LOG_HELD
            }
            Self::SavingsCurve(worth) => {
                [worth.serial, worth.limit, worth.curve.len() as u64]
                    .iter()
                    .chain(&worth.curve)
                    .for_each(|&value| put_varint(&mut body, value));
                LOG_WORTH
            }
            Self::ChunkRequest(request) => {
                request.encode(&mut body);
                CHUNK_REQUEST
            }
            Self::Chunks(chunks) => {
                chunks.encode_header(&mut body);
                return put_frame(out, CHUNKS, &body, chunks.bytes);
            }
            Self::StoreHeld(held) => {
                held.encode(&mut body);
                STORE_HELD
            }
            Self::Ping(token) => put_u64(&mut body, *token, PING),
            Self::Pong(token) => put_u64(&mut body, *token, PONG),
            Self::LanesWanted(count) => {
                put_varint(&mut body, u64::from(*count));
                LANES_WANTED
            }
            Self::LaneDead(lane) => put_u64(&mut body, lane.0, LANE_DEAD),
            Self::Networks(Networks { serial, networks }) => {
                put_varint(&mut body, *serial);
                put_varint(&mut body, networks.len() as u64);
                networks.iter().for_each(|network| network.encode(&mut body));
                NETWORKS
            }
            Self::Draining => DRAINING,
            Self::Probe(probe) => {
                probe.encode(&mut body);
                PROBE
            }
            Self::Probed(probed) => {
                probed.encode(&mut body);
                PROBED
            }
            Self::LaneWorn => LANE_WORN,
            Self::LaneLeft => LANE_LEFT,
            Self::KeepAlive(KeepAlive { flow, seconds }) => {
                put_varint(&mut body, u64::from(flow.0));
                put_varint(&mut body, u64::from(*seconds));
                KEEPALIVE
            }
            Self::Group(frame) => frame.encode(&mut body),
        };
        put_frame(out, kind, &body, &[]);
    }
}

fn put_u64(body: &mut Vec<u8>, value: u64, kind: u8) -> u8 {
    body.extend_from_slice(&value.to_le_bytes());
    kind
}

/// Appends a block's frame whose bytes are those of its body and, behind them, `pieces` of `len` bytes in all.
pub(crate) fn encode_block_in_pieces<'p>(
    block: &Block<'_>,
    len: usize,
    pieces: impl Iterator<Item = &'p [u8]>,
    out: &mut Vec<u8>,
) {
    let mut header = Vec::with_capacity(64);
    block.encode_header(&mut header);
    let bytes = block.body.bytes();
    put_frame_header(out, BLOCK, header.len() + bytes.len() + len);
    out.extend_from_slice(&header);
    out.extend_from_slice(bytes);
    pieces.for_each(|piece| out.extend_from_slice(piece));
}

fn put_frame(out: &mut Vec<u8>, kind: u8, body: &[u8], more: &[u8]) {
    put_frame_header(out, kind, body.len() + more.len());
    out.extend_from_slice(body);
    out.extend_from_slice(more);
}

fn put_frame_header(out: &mut Vec<u8>, kind: u8, len: usize) {
    out.push(kind);
    put_varint(out, len as u64);
}

fn encode_message(body: &mut Vec<u8>, seq: u64, flow: FlowId, message: &Message) -> u8 {
    put_varint(body, seq);
    put_varint(body, u64::from(flow.0));
    match message {
        Message::Open(open) => {
            body.extend_from_slice(&open.id.to_le_bytes());
            let shift = open.credit_shift.min(MAX_CREDIT_SHIFT);
            body.push(u8::from(open.coded) | u8::from(open.as_client) << 1 | shift << 2);
            open.destination.encode(body);
            put_address(body, open.source);
            OPEN
        }
        Message::Opened(answer) => {
            match answer {
                Ok(opened) => {
                    body.extend_from_slice(&[0, u8::from(opened.coded)]);
                    put_address(body, opened.address);
                }
                Err(failure) => body.push(failure.to_byte()),
            }
            OPENED
        }
        Message::Reset(Reset { reason, behind }) => {
            body.push(reason.to_byte());
            if let Some(behind) = behind {
                put_varint(body, *behind);
            }
            RESET
        }
    }
}

fn decode_message<'a>(kind: u8, reader: &mut Reader<'_>) -> Result<Frame<'a>, WireError> {
    let seq = reader.varint_up_to(u64::MAX - 1, "sequence number")?;
    let flow = FlowId(reader.varint_u32("flow")?);
    let message = match kind {
        OPEN => {
            let id = u128::from(reader.u64("flow id")?) | u128::from(reader.u64("flow id")?) << 64;
            let flags = reader.byte("flags of an open")?;
            if flags >> 2 > MAX_CREDIT_SHIFT {
                return Err(WireError::Invalid("flags of an open"));
            }
            let destination = Destination::decode(reader)?;
            let (source, coded, as_client) = (take_address(reader)?, flags & 1 != 0, flags & 2 != 0);
            Message::Open(Open { id, destination, source, coded, as_client, credit_shift: flags >> 2 })
        }
        OPENED => Message::Opened(match reader.byte("answer to an open")? {
            0 => Ok(Opened { coded: decode_coding(reader)?, address: take_address(reader)? }),
            code => Err(OpenFailure::from_byte(code).ok_or(WireError::Invalid("answer to an open"))?),
        }),
        _ => Message::Reset(Reset {
            reason: ResetReason::from_byte(reader.byte("reason of a reset")?)
                .ok_or(WireError::Invalid("reason of a reset"))?,
            behind: match reader.is_empty() {
                true => None,
                false => Some(reader.varint("bytes before a reset")?),
            },
        }),
    };
    Ok(Frame::Message { seq, flow, message })
}

fn decode_more<'a>(mut reader: Reader<'a>) -> Result<More<'a>, WireError> {
    let after = reader.varint("sequence number")?;
    let plain = reader.rest();
    if after == 0 {
        return Err(WireError::Invalid("sequence number"));
    }
    if plain.is_empty() || plain.len() > MAX_BLOCK {
        return Err(WireError::Invalid("plain length"));
    }
    Ok(More { after, plain })
}

fn decode_keepalive(reader: &mut Reader<'_>) -> Result<KeepAlive, WireError> {
    let flow = FlowId(reader.varint_u32("flow")?);
    let seconds = reader.varint_up_to(u64::from(MAX_KEEPALIVE), "keep-alive")?;
    Ok(KeepAlive { flow, seconds: seconds as u16 })
}

fn decode_coding(reader: &mut Reader<'_>) -> Result<bool, WireError> {
    match reader.byte("coding")? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(WireError::Invalid("coding")),
    }
}

/// Ranges are written as gap from the end of the last one, and length; both at least 1 but for the first gap
/// of a list that starts at 0.
fn encode_ranges(out: &mut Vec<u8>, mut from: u64, ranges: &[Range64]) {
    put_varint(out, ranges.len() as u64);
    for range in ranges {
        put_varint(out, range.start - from);
        put_varint(out, range.end - range.start);
        from = range.end;
    }
}

fn decode_ranges(reader: &mut Reader<'_>, mut from: u64) -> Result<Vec<Range64>, WireError> {
    let count = reader.varint_up_to(MAX_RANGES as u64, "count of ranges")?;
    let mut ranges = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let start = from.checked_add(reader.varint("range")?).ok_or(WireError::Invalid("range"))?;
        let len = reader.varint("range")?;
        let end = start.checked_add(len).ok_or(WireError::Invalid("range"))?;
        if len == 0 {
            return Err(WireError::Invalid("range"));
        }
        ranges.push(start..end);
        from = end;
    }
    Ok(ranges)
}

fn decode_savings(reader: &mut Reader<'_>) -> Result<SavingsCurve, WireError> {
    let (serial, limit) = (reader.varint("serial number")?, reader.varint("log limit")?);
    let count = reader.varint_up_to(MAX_CURVE as u64, "count of sizes")?;
    let curve = (0..count).map(|_| reader.varint("worth")).collect::<Result<_, _>>()?;
    Ok(SavingsCurve { serial, limit, curve })
}

fn decode_ack(reader: &mut Reader<'_>) -> Result<Ack, WireError> {
    let next = reader.varint("acknowledgement")?;
    Ok(Ack { next, ranges: decode_ranges(reader, next)? })
}
