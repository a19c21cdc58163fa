//! Probes: a few of the chunks a sending half believes its peer's store to have, and whether they are there.

use super::MAX_PROBES;
use super::bitmap::{put_bits, take_bits};
use super::group::take_named;
use super::reader::{Reader, WireError};
use super::varint::put_varint;
use crate::wanax::Name;

/// Asks whether chunks are in the store, as the sender of this frame believes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Comes back in the answer; each question of a process has a number of its own.
    pub request: u64,
    /// The chunks, each with its length in bytes; at least one and at most [`MAX_PROBES`].
    pub chunks: Vec<(Name, u32)>,
}

/// Answers [`Probe`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probed {
    /// The question's number.
    pub request: u64,
    /// Whether each chunk is there, in their order.
    pub held: Vec<bool>,
}

impl Probe {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.request);
        put_varint(out, self.chunks.len() as u64);
        for (name, len) in &self.chunks {
            out.extend_from_slice(&name.0);
            put_varint(out, u64::from(*len));
        }
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let request = reader.varint("request")?;
        let chunks = (0..take_count(reader)?).map(|_| take_named(reader));
        Ok(Self { request, chunks: chunks.collect::<Result<_, _>>()? })
    }
}

impl Probed {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.request);
        put_varint(out, self.held.len() as u64);
        put_bits(out, &self.held);
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let request = reader.varint("request")?;
        let count = take_count(reader)?;
        Ok(Self { request, held: take_bits(reader, count)? })
    }
}

fn take_count(reader: &mut Reader<'_>) -> Result<usize, WireError> {
    match reader.varint_up_to(MAX_PROBES as u64, "count of probes")? {
        0 => Err(WireError::Invalid("count of probes")),
        count => Ok(count as usize),
    }
}
