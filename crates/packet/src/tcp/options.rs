//! Options of TCP.

use crate::options::{END, NOP, Options, RawOption};
use crate::{Error, Layer, room};

/// An option of TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpOption<'a> {
    /// One byte of padding.
    Nop,
    /// The longest payload of a segment [RFC 9293 §3.7.1].
    Mss(u16),
    /// The window's scale as a power of two; more than 14 counts as 14 [RFC 7323 §2.3].
    WindowScale(u8),
    /// The sender understands selective acknowledgments [RFC 2018].
    SackPermitted,
    /// Selective acknowledgments [RFC 2018].
    Sack(SackBlocks<'a>),
    /// The sender's clock and the last value of the receiver's [RFC 7323 §3].
    Timestamps {
        /// The sender's clock.
        value: u32,
        /// The receiver's clock as last seen.
        echo: u32,
    },
    /// Any other, and one of those above with an invalid length; Linux passes over both.
    Other(RawOption<'a>),
}

/// Blocks received beyond the acknowledgment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SackBlocks<'a>(&'a [[u8; 8]]);

/// The options of a segment, up to the end of their list; an error ends them, too.
#[derive(Clone, Debug)]
pub struct TcpOptions<'a>(Options<'a>);

impl<'a> SackBlocks<'a> {
    /// Returns blocks to write; [`SackBlocks::block`] makes one.
    #[must_use]
    pub fn new(blocks: &'a [[u8; 8]]) -> Self {
        Self(blocks)
    }

    /// Returns a block from the number of its first byte to the number behind its last.
    #[must_use]
    pub fn block(left: u32, right: u32) -> [u8; 8] {
        let [[a, b, c, d], [e, f, g, h]] = [left, right].map(u32::to_be_bytes);
        [a, b, c, d, e, f, g, h]
    }

    /// Returns the number of the first byte of each block, and the number behind its last.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u32, u32)> + use<'a> {
        self.0.iter().map(|&[a, b, c, d, e, f, g, h]| {
            (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]))
        })
    }
}

impl<'a> TcpOptions<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(Options::new(bytes, LAYER))
    }
}

impl<'a> Iterator for TcpOptions<'a> {
    type Item = Result<TcpOption<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.0.next()?.map(TcpOption::from_raw))
    }
}

impl<'a> TcpOption<'a> {
    fn from_raw(raw: RawOption<'a>) -> Self {
        match (raw.kind, raw.data) {
            (NOP, _) => Self::Nop,
            (MSS, &[a, b]) => Self::Mss(u16::from_be_bytes([a, b])),
            (WINDOW_SCALE, &[scale]) => Self::WindowScale(scale),
            (SACK_PERMITTED, []) => Self::SackPermitted,
            (SACK, data) => match data.as_chunks::<8>() {
                (blocks, []) => Self::Sack(SackBlocks(blocks)),
                _ => Self::Other(raw),
            },
            (TIMESTAMPS, &[a, b, c, d, e, f, g, h]) => Self::Timestamps {
                value: u32::from_be_bytes([a, b, c, d]),
                echo: u32::from_be_bytes([e, f, g, h]),
            },
            _ => Self::Other(raw),
        }
    }

    /// Returns the option's length in the header.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Nop => 1,
            Self::Mss(_) => 4,
            Self::WindowScale(_) => 3,
            Self::SackPermitted => 2,
            Self::Sack(blocks) => 2 + blocks.0.as_flattened().len(),
            Self::Timestamps { .. } => 10,
            Self::Other(raw) => 2 + raw.data.len(),
        }
    }

    /// Writes the option and returns the rest of the buffer.
    pub(crate) fn write<'b>(&self, into: &'b mut [u8]) -> Result<&'b mut [u8], Error> {
        match *self {
            Self::Nop => room::put(into, &[NOP], LAYER),
            Self::Mss(mss) => write(MSS, &mss.to_be_bytes(), into),
            Self::WindowScale(scale) => write(WINDOW_SCALE, &[scale], into),
            Self::SackPermitted => write(SACK_PERMITTED, &[], into),
            Self::Sack(blocks) => write(SACK, blocks.0.as_flattened(), into),
            Self::Timestamps { value, echo } => write(TIMESTAMPS, &SackBlocks::block(value, echo), into),
            Self::Other(RawOption { kind: kind @ (END | NOP), .. }) => {
                Err(Error::Invalid { layer: LAYER, field: "kind", value: kind.into() })
            }
            Self::Other(RawOption { kind, data }) => write(kind, data, into),
        }
    }
}

fn write<'b>(kind: u8, data: &[u8], into: &'b mut [u8]) -> Result<&'b mut [u8], Error> {
    let data_len = room::at_most(data.len(), usize::from(u8::MAX) - 2, "data", LAYER)?;
    let (option, rest) = room::split(into, 2 + data_len, LAYER)?;
    room::put(room::put(option, &[kind, 2 + data_len as u8], LAYER)?, data, LAYER)?;
    Ok(rest)
}

const LAYER: Layer = Layer::TcpOption;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;
