//! The packets of the model.

use super::ConnectionId;
use super::network::Side;

/// A packet of the model: it has a length on the wire, and no bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    pub(crate) connection: ConnectionId,
    /// The sending side.
    pub(crate) from: Side,
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Syn,
    SynAck,
    /// Answers a refused or unknown connection.
    Refused,
    Data(Segment),
    Ack(Ack),
    /// Asks for an acknowledgement while the window is closed [RFC 9293 §3.8.6.1].
    WindowProbe,
}

/// A range of one direction's sequence space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Offset in the stream; the first byte has 0.
    pub(crate) start: u64,
    pub(crate) content: Content,
    /// Whether this range was sent before.
    pub(crate) repeated: bool,
}

/// The content of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// So many payload bytes.
    Payload(u32),
    /// The end of the stream; it takes one place in sequence space, as a FIN does.
    End(EndOfStream),
}

/// How a stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndOfStream {
    Finished,
    Reset,
}

/// An acknowledgement.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ack {
    /// Everything below has arrived.
    pub(crate) next: u64,
    /// Received ranges above `next`, the latest first; empty ones are unused [RFC 2018].
    pub(crate) sacks: [(u64, u64); 3],
    /// The sender may send below this offset.
    pub(crate) right_edge: u64,
}

impl Content {
    /// Places taken in sequence space.
    pub(crate) fn span(self) -> u64 {
        match self {
            Self::Payload(bytes) => u64::from(bytes),
            Self::End(_) => 1,
        }
    }

    /// Payload bytes.
    pub(crate) fn payload(self) -> u32 {
        match self {
            Self::Payload(bytes) => bytes,
            Self::End(_) => 0,
        }
    }
}

impl Segment {
    pub(crate) fn end(&self) -> u64 {
        self.start + self.content.span()
    }
}

impl Kind {
    /// Length on the wire, headers included.
    pub(crate) fn wire_len(&self) -> u32 {
        match self {
            Self::Data(segment) => HEADER_BYTES + segment.content.payload(),
            _ => HEADER_BYTES,
        }
    }
}

/// Payload of a full segment: an MTU of 1500 without [`HEADER_BYTES`].
pub const MSS: u32 = 1448;

/// Bytes of header per packet: IPv4, TCP and the timestamp option. Selective acknowledgements are not added.
pub const HEADER_BYTES: u32 = 52;
