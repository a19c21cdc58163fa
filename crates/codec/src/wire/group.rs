//! Frames between members of a trust group: what gateways ask of each other's chunk stores, and tell of their own.
//!
//! All of them are optional, and travel only on links whose two hellos carry the same name key.

use bytes::Bytes;

use super::bitmap::{put_bits, take_bits};
use super::reader::{Reader, WireError};
use super::varint::put_varint;
use crate::Now;
use crate::wanax::{Name, Shape, tag_of_hash};

/// A frame between members of a trust group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupFrame {
    /// Asks which chunks are there.
    Peek {
        /// Comes back in the answer.
        request: u64,
        /// At most [`MAX_PEEK`].
        chunks: Vec<Sought>,
    },
    /// Answers a PEEK, in its order.
    Have {
        /// The request's number.
        request: u64,
        /// Whether each chunk is there.
        held: Vec<bool>,
    },
    /// Asks for a chunk.
    Get {
        /// Comes back in the answer.
        request: u64,
        /// The chunk.
        name: Name,
        /// Its length, at most [`super::MAX_BLOCK`].
        len: u32,
    },
    /// Answers a GET.
    Chunk {
        /// The request's number.
        request: u64,
        /// The chunk's bytes, or none if it is not there or there is no time for it.
        bytes: Option<Bytes>,
    },
    /// Says that the answer to a GET takes its time: another gateway fetches the chunk, and is to bring it.
    Wait {
        /// The request's number.
        request: u64,
        /// After how many milliseconds the answer comes in any case.
        time_ms: u32,
    },
    /// Brings a chunk to be stored, which the receiver names itself.
    Put {
        /// By which the far side cut it.
        shape: Shape,
        /// The chunk's bytes, 1 to [`super::MAX_BLOCK`].
        bytes: Bytes,
    },
    /// How busy the sender's disk is; replaces what was said before.
    Load(Load),
    /// How much the sender waits for from other sites [Wanax §3.4]; replaces what was said before.
    Pending {
        /// Bytes of chunks it asked for over the network and has not got.
        bytes: u64,
    },
    /// Chunks that are new in the sender's store.
    Stored {
        /// The binary logarithm of a length that none of them is below; at most 16.
        least_log2: u8,
        /// Their tags, at most [`MAX_TAGS`].
        tags: Vec<u64>,
    },
}

/// How busy a gateway's chunk store is [Wanax §3.4].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Reads waiting for the disk.
    pub queued: u32,
    /// What one read takes, in microseconds.
    pub service_us: u32,
}

impl Load {
    /// Returns how long a read waits for the disk.
    pub fn wait(&self) -> Now {
        Now::from_micros(u64::from(self.service_us)).saturating_mul(self.queued.saturating_add(1))
    }
}

/// A chunk looked for by its tag, as tables go by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sought {
    /// The first part of its name.
    pub tag: u64,
    /// Its length, at most [`super::MAX_BLOCK`].
    pub len: u32,
}

/// The most chunks in one PEEK.
pub const MAX_PEEK: usize = 1024;
/// The most tags in one STORED.
pub const MAX_TAGS: usize = 1024;

pub(super) const PEEK: u8 = 0x90;
const HAVE: u8 = 0x91;
const GET: u8 = 0x92;
const CHUNK: u8 = 0x93;
const PUT: u8 = 0x94;
const LOAD: u8 = 0x95;
const STORED: u8 = 0x96;
const WAIT: u8 = 0x97;
pub(super) const PENDING: u8 = 0x98;

impl GroupFrame {
    /// Reads a frame whose type lies between [`PEEK`] and [`PENDING`].
    pub(super) fn decode(kind: u8, reader: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(match kind {
            PEEK => {
                let request = reader.varint("request")?;
                let count = reader.varint_up_to(MAX_PEEK as u64, "count of chunks")?;
                let chunks = (0..count).map(|_| take_sought(reader)).collect::<Result<_, _>>()?;
                Self::Peek { request, chunks }
            }
            HAVE => decode_have(reader)?,
            GET => {
                let request = reader.varint("request")?;
                let (name, len) = take_named(reader)?;
                Self::Get { request, name, len }
            }
            CHUNK => {
                let request = reader.varint("request")?;
                let bytes = match reader.byte("answer")? {
                    0 => None,
                    1 => Some(take_chunk(reader)?),
                    _ => return Err(WireError::Invalid("answer")),
                };
                Self::Chunk { request, bytes }
            }
            WAIT => {
                Self::Wait { request: reader.varint("request")?, time_ms: reader.varint_u32("time to wait")? }
            }
            PUT => {
                let [degree, root, leaf] = reader.array("shape")?;
                let shape = Shape::new(degree, root, leaf).map_err(|_| WireError::Invalid("shape"))?;
                Self::Put { shape, bytes: take_chunk(reader)? }
            }
            LOAD => Self::Load(Load {
                queued: reader.varint_u32("queue")?,
                service_us: reader.varint_u32("service time")?,
            }),
            PENDING => Self::Pending { bytes: reader.varint("pending bytes")? },
            STORED => {
                let least_log2 = reader.byte("length of chunks")?;
                if least_log2 > super::MAX_BLOCK.ilog2() as u8 {
                    return Err(WireError::Invalid("length of chunks"));
                }
                let count = reader.varint_up_to(MAX_TAGS as u64, "count of tags")?;
                let tags = (0..count).map(|_| reader.u64("tag")).collect::<Result<_, _>>()?;
                Self::Stored { least_log2, tags }
            }
            other => return Err(WireError::UnknownType(other)),
        })
    }

    /// Appends the frame's body and returns its type.
    pub(super) fn encode(&self, body: &mut Vec<u8>) -> u8 {
        match self {
            Self::Peek { request, chunks } => {
                put_varint(body, *request);
                put_varint(body, chunks.len() as u64);
                for chunk in chunks {
                    body.extend_from_slice(&chunk.tag.to_le_bytes());
                    put_varint(body, u64::from(chunk.len));
                }
                PEEK
            }
            Self::Have { request, held } => {
                put_varint(body, *request);
                put_varint(body, held.len() as u64);
                put_bits(body, held);
                HAVE
            }
            Self::Get { request, name, len } => {
                put_varint(body, *request);
                body.extend_from_slice(&name.0);
                put_varint(body, u64::from(*len));
                GET
            }
            Self::Chunk { request, bytes } => {
                put_varint(body, *request);
                body.push(u8::from(bytes.is_some()));
                body.extend_from_slice(bytes.as_deref().unwrap_or_default());
                CHUNK
            }
            Self::Wait { request, time_ms } => {
                put_varint(body, *request);
                put_varint(body, u64::from(*time_ms));
                WAIT
            }
            Self::Put { shape, bytes } => {
                body.extend_from_slice(&[shape.degree(), shape.root_log2(), shape.leaf_log2()]);
                body.extend_from_slice(bytes);
                PUT
            }
            Self::Load(load) => {
                put_varint(body, u64::from(load.queued));
                put_varint(body, u64::from(load.service_us));
                LOAD
            }
            Self::Pending { bytes } => {
                put_varint(body, *bytes);
                PENDING
            }
            Self::Stored { least_log2, tags } => {
                body.push(*least_log2);
                put_varint(body, tags.len() as u64);
                tags.iter().for_each(|tag| body.extend_from_slice(&tag.to_le_bytes()));
                STORED
            }
        }
    }

    /// Returns about how many bytes the frame takes.
    pub fn size(&self) -> usize {
        size_of::<Self>()
            + match self {
                Self::Peek { chunks, .. } => size_of_val(&chunks[..]),
                Self::Have { held, .. } => size_of_val(&held[..]),
                Self::Chunk { bytes, .. } => bytes.as_ref().map_or(0, Bytes::len),
                Self::Put { bytes, .. } => bytes.len(),
                Self::Get { .. } | Self::Load(_) | Self::Pending { .. } | Self::Wait { .. } => 0,
                Self::Stored { tags, .. } => size_of_val(&tags[..]),
            }
    }

    /// Says whether the frame brings content, which travels on the repair lane so control frames need not wait.
    pub fn is_content(&self) -> bool {
        matches!(self, Self::Chunk { bytes: Some(_), .. } | Self::Put { .. })
    }
}

pub(super) fn take_name(reader: &mut Reader<'_>) -> Result<Name, WireError> {
    Ok(Name(reader.array("name")?))
}

/// Reads a chunk's name, and its length behind it.
pub(super) fn take_named(reader: &mut Reader<'_>) -> Result<(Name, u32), WireError> {
    let (name, len) = (take_name(reader)?, take_len(reader)?);
    Ok((name.folded(len), len))
}

fn take_len(reader: &mut Reader<'_>) -> Result<u32, WireError> {
    Ok(reader.varint_up_to(super::MAX_BLOCK as u64, "length of a chunk")? as u32)
}

fn take_sought(reader: &mut Reader<'_>) -> Result<Sought, WireError> {
    let (tag, len) = (reader.u64("tag")?, take_len(reader)?);
    Ok(Sought { tag: tag_of_hash(tag, len as usize), len })
}

fn take_chunk(reader: &mut Reader<'_>) -> Result<Bytes, WireError> {
    match reader.rest() {
        bytes if (1..=super::MAX_BLOCK).contains(&bytes.len()) => Ok(Bytes::copy_from_slice(bytes)),
        _ => Err(WireError::Invalid("length of a chunk")),
    }
}

fn decode_have(reader: &mut Reader<'_>) -> Result<GroupFrame, WireError> {
    let request = reader.varint("request")?;
    let count = reader.varint_up_to(MAX_PEEK as u64, "count of chunks")? as usize;
    Ok(GroupFrame::Have { request, held: take_bits(reader, count)? })
}

#[cfg(test)]
mod tests {
    use super::super::{Frame, take_frame};
    use super::*;
    use crate::wanax::NAME_LEN;

    fn name(first: u8) -> Name {
        let mut name = [0; NAME_LEN];
        name[0] = first;
        name[NAME_LEN - 1] = 0xff;
        Name(name)
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn decode(bytes: &[u8]) -> Result<Frame<'_>, WireError> {
        let (kind, body, _) = take_frame(bytes)?.ok_or(WireError::Short("frame"))?;
        Frame::decode(kind, body)
    }

    #[test]
    fn frames_of_a_group_are_these_bytes() {
        let zeros = "00".repeat(NAME_LEN - 2);
        let golden = [
            (
                GroupFrame::Peek {
                    request: 300,
                    chunks: vec![Sought { tag: 1, len: 300 }, Sought { tag: 2, len: 5 }],
                },
                "9016 ac0202 0100000000000000ac02 020000000000000005".into(),
            ),
            (
                GroupFrame::Have {
                    request: 3,
                    held: vec![true, false, true, true, false, false, false, false, true],
                },
                "9104 0309 0d01".into(),
            ),
            (
                GroupFrame::Get { request: 4, name: name(1), len: 65536 },
                format!("9218 04 01{zeros}ff 808004"),
            ),
            (GroupFrame::Chunk { request: 4, bytes: None }, "9302 0400".into()),
            (
                GroupFrame::Chunk { request: 4, bytes: Some(Bytes::from_static(b"hi")) },
                "9304 0401 6869".into(),
            ),
            (
                GroupFrame::Put { shape: Shape::default(), bytes: Bytes::from_static(b"hi") },
                "9405 081007 6869".into(),
            ),
            (GroupFrame::Load(Load { queued: 5, service_us: 300 }), "9503 05ac02".into()),
            (GroupFrame::Pending { bytes: 300 }, "9802 ac02".into()),
            (GroupFrame::Stored { least_log2: 14, tags: vec![2] }, "960a 0e01 0200000000000000".into()),
            (GroupFrame::Wait { request: 4, time_ms: 300 }, "9703 04ac02".into()),
        ];
        for (frame, expected) in golden {
            let mut out = Vec::new();
            Frame::Group(frame.clone()).encode(&mut out);
            assert_eq!(hex(&out), expected.replace(' ', ""), "{frame:?}");
            assert_eq!(decode(&out), Ok(Frame::Group(frame)));
        }
    }

    #[test]
    fn wrong_group_frames_name_their_fault() {
        let too_long = [&[0x92, 24, 4][..], &[0; NAME_LEN], &[0x81, 0x80, 4]].concat();
        let cases: [(&[u8], WireError); 15] = [
            (&[0x90, 3, 1, 1, 0], WireError::Short("tag")),
            (&[0x90, 4, 1, 0x81, 8, 0], WireError::Invalid("count of chunks")),
            (&[0x91, 3, 1, 0x81, 8], WireError::Invalid("count of chunks")),
            (&[0x91, 3, 1, 3, 8], WireError::Invalid("bitmap")),
            (&[0x91, 2, 1, 3], WireError::Short("bitmap")),
            (&too_long, WireError::Invalid("length of a chunk")),
            (&[0x93, 2, 1, 2], WireError::Invalid("answer")),
            (&[0x93, 2, 1, 1], WireError::Invalid("length of a chunk")),
            (&[0x93, 3, 1, 0, 0], WireError::Trailing(1)),
            (&[0x94, 4, 3, 16, 7, 1], WireError::Invalid("shape")),
            (&[0x96, 3, 14, 0x81, 8], WireError::Invalid("count of tags")),
            (&[0x96, 2, 17, 0], WireError::Invalid("length of chunks")),
            (&[0x97, 1, 4], WireError::Short("time to wait")),
            (&[0x98, 0], WireError::Short("pending bytes")),
            (&[0x99, 0], WireError::UnknownType(0x99)),
        ];
        for (frame, error) in cases {
            assert_eq!(decode(frame), Err(error), "{frame:?}");
        }
    }
}
