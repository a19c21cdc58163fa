//! The frame carrying a block of a flow.

use super::chunks::{NameEntry, decode_entries, encode_entries};
use super::names::FlowId;
use super::reader::{Reader, WireError};
use super::varint::put_varint;
use super::{MAX_BLOCK, MAX_LOG_NUMBER};
use crate::entropy::{Kind, Mode};

/// A half-open range of log offsets or sequence numbers.
pub type Range64 = std::ops::Range<u64>;

/// A block as it stands in its frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block<'a> {
    /// The link-wide sequence number.
    pub seq: u64,
    /// The flow the block belongs to.
    pub flow: FlowId,
    /// The flow offset of the first plain byte.
    pub offset: u64,
    /// How many plain bytes the block stands for, at most [`MAX_BLOCK`].
    pub plain_len: usize,
    /// Whether the flow's stream ends behind this block.
    pub fin: bool,
    /// Whether the block was sent before and now refers to nothing but itself.
    pub resent: bool,
    /// The coded body, or the plain bytes as they are.
    pub body: BlockBody<'a>,
}

/// What a block's body is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockBody<'a> {
    /// The flow is not coded: the plain bytes, nothing remembered, no digest.
    Uncoded(&'a [u8]),
    /// Coded.
    Coded(Body<'a>),
}

impl<'a> BlockBody<'a> {
    /// Returns the bytes as they stand in the frame.
    pub(super) fn bytes(&self) -> &'a [u8] {
        match self {
            Self::Uncoded(bytes) => bytes,
            Self::Coded(coded) => coded.bytes,
        }
    }
}

/// A coded body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body<'a> {
    /// The log epoch that offsets belong to.
    pub epoch: u64,
    /// The log's head when the block was encoded.
    pub start: u64,
    /// Whether the plain bytes take the range `start..start + plain_len` of the log.
    pub remembered: bool,
    /// Whether the plain bytes are to be put into the chunk store.
    pub keep: bool,
    /// Named parts of the block, in order; the rest of it is the *residue*, of tokens and literals.
    pub names: Vec<NameEntry>,
    /// Digest of the plain bytes.
    pub digest: Digest,
    /// Length of the tokens that precede the literals; `None`: no copies, the literals are the residue.
    pub tokens: Option<usize>,
    /// Length of the literals.
    pub literals: usize,
    /// The entropy stage, and its context.
    pub entropy: Option<(Kind, Mode)>,
    /// Tokens and literals, compressed if `entropy` says so.
    pub bytes: &'a [u8],
}

/// What the rebuilt bytes of a block are checked against, keyed by the link's seed and the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Digest {
    /// XXH3-64: finds drift and damage. For blocks with all copies compared by the encoder, and with full names of
    /// chunks.
    Fast(u64),
    /// A [strong one](crate::StrongKind): also finds bytes that somebody chose to be mistaken for others.
    Strong([u8; 16]),
}

const FIN: u8 = 1;
const RESENT: u8 = 2;
const CODED: u8 = 4;
const REMEMBERED: u8 = 8;
const TOKENS: u8 = 16;
const STRONG: u8 = 32;
const NAMES: u8 = 64;
const KEEP: u8 = 128;

impl<'a> Block<'a> {
    /// Returns whether the block refers to named chunks.
    pub fn has_names(&self) -> bool {
        matches!(&self.body, BlockBody::Coded(body) if !body.names.is_empty())
    }

    /// Appends the frame's body up to its last field; the bytes of `body` follow it.
    pub fn encode_header(&self, out: &mut Vec<u8>) {
        let mut flags = if self.fin { FIN } else { 0 } | if self.resent { RESENT } else { 0 };
        if let BlockBody::Coded(body) = &self.body {
            flags |= CODED | if body.remembered { REMEMBERED } else { 0 };
            flags |= if body.tokens.is_some() { TOKENS } else { 0 };
            flags |= if let Digest::Strong(_) = body.digest { STRONG } else { 0 };
            flags |= if body.names.is_empty() { 0 } else { NAMES } | if body.keep { KEEP } else { 0 };
        }
        out.push(flags);
        put_varint(out, self.seq);
        put_varint(out, u64::from(self.flow.0));
        put_varint(out, self.offset);
        put_varint(out, self.plain_len as u64);
        if let BlockBody::Coded(body) = &self.body {
            body.encode_header(out);
        }
    }

    /// Reads a frame's body.
    ///
    /// # Errors
    /// Any field outside its bounds; lengths that do not add up.
    pub fn decode(mut reader: Reader<'a>) -> Result<Self, WireError> {
        let flags = reader.byte("block flags")?;
        let seq = reader.varint("sequence number")?;
        let flow = FlowId(reader.varint_u32("flow")?);
        let offset = reader.varint("flow offset")?;
        let plain_len = reader.varint_up_to(MAX_BLOCK as u64, "plain length")? as usize;
        if offset.checked_add(plain_len as u64).is_none() || seq == u64::MAX {
            return Err(WireError::Invalid("flow offset"));
        }
        let body = if flags & CODED == 0 {
            if flags & (REMEMBERED | TOKENS | STRONG | NAMES | KEEP) != 0 {
                return Err(WireError::Invalid("block flags"));
            }
            let bytes = reader.rest();
            if bytes.len() != plain_len {
                return Err(WireError::Invalid("length of an uncoded block"));
            }
            BlockBody::Uncoded(bytes)
        } else {
            BlockBody::Coded(Body::decode(&mut reader, flags, plain_len)?)
        };
        Ok(Self { seq, flow, offset, plain_len, fin: flags & FIN != 0, resent: flags & RESENT != 0, body })
    }
}

impl<'a> Body<'a> {
    fn encode_header(&self, out: &mut Vec<u8>) {
        put_varint(out, self.epoch);
        put_varint(out, self.start);
        match self.digest {
            Digest::Fast(digest) => out.extend_from_slice(&digest.to_le_bytes()),
            Digest::Strong(digest) => out.extend_from_slice(&digest),
        }
        if !self.names.is_empty() {
            encode_entries(&self.names, out);
        }
        if let Some(len) = self.tokens {
            put_varint(out, len as u64);
            put_varint(out, self.literals as u64);
        }
        match self.entropy {
            None => out.push(0),
            Some((Kind::Lz4, _)) => out.push(1),
            Some((Kind::Zstd, Mode::Alone)) => out.push(2),
            Some((Kind::Zstd, Mode::First(slot))) => {
                out.push(3);
                put_varint(out, slot as u64);
            }
            Some((Kind::Zstd, Mode::Next(slot))) => {
                out.push(4);
                put_varint(out, slot as u64);
            }
        }
    }

    fn decode(reader: &mut Reader<'a>, flags: u8, plain_len: usize) -> Result<Self, WireError> {
        let epoch = reader.varint_up_to(MAX_LOG_NUMBER, "epoch")?;
        let start = reader.varint_up_to(MAX_LOG_NUMBER, "log offset")?;
        let digest = match flags & STRONG {
            0 => Digest::Fast(reader.u64("digest")?),
            _ => Digest::Strong(reader.array("digest")?),
        };
        let names = if flags & NAMES != 0 { decode_entries(reader, plain_len)? } else { Vec::new() };
        if names.iter().any(|entry| entry.name.is_short()) && matches!(digest, Digest::Fast(_)) {
            return Err(WireError::Invalid("short name in a block without a strong digest"));
        }
        let residue = plain_len - named_len(&names);
        let (tokens, literals) = if flags & TOKENS != 0 {
            let tokens = reader.varint_up_to(MAX_BLOCK as u64, "length of tokens")? as usize;
            (Some(tokens), reader.varint_up_to(residue as u64, "length of literals")? as usize)
        } else {
            (None, residue)
        };
        let entropy = match reader.byte("entropy stage")? {
            0 => None,
            1 => Some((Kind::Lz4, Mode::Alone)),
            2 => Some((Kind::Zstd, Mode::Alone)),
            3 => Some((Kind::Zstd, Mode::First(reader.varint_u32("context")? as usize))),
            4 => Some((Kind::Zstd, Mode::Next(reader.varint_u32("context")? as usize))),
            _ => return Err(WireError::Invalid("entropy stage")),
        };
        let bytes = reader.rest();
        if entropy.is_none() && bytes.len() != tokens.unwrap_or(0) + literals {
            return Err(WireError::Invalid("length of a block's body"));
        }
        let (remembered, keep) = (flags & REMEMBERED != 0, flags & KEEP != 0);
        Ok(Self { epoch, start, remembered, keep, names, digest, tokens, literals, entropy, bytes })
    }

    /// Length of what the names leave of a block.
    pub fn residue_len(&self, plain_len: usize) -> usize {
        plain_len.saturating_sub(named_len(&self.names))
    }

    /// Length of tokens and literals before the entropy stage.
    pub fn uncompressed_len(&self) -> usize {
        self.tokens.unwrap_or(0) + self.literals
    }
}

/// Returns how many bytes of a block are named.
fn named_len(names: &[NameEntry]) -> usize {
    names.iter().map(|entry| entry.len as usize).sum()
}
