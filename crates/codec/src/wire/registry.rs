//! Frame types, and to which part of a link each belongs.
//!
//! A link passes the frames of a codec's halves and of a trust group on as bytes. It reads its own only.

use super::group;

pub(super) const BLOCK: u8 = 0x10;
pub(super) const OPEN: u8 = 0x11;
pub(super) const OPENED: u8 = 0x12;
pub(super) const RESET: u8 = 0x13;
pub(super) const MORE: u8 = 0x14;
pub(super) const ACK: u8 = 0x20;
pub(super) const NEED: u8 = 0x21;
pub(super) const REFETCH_MISSING: u8 = 0x22;
pub(super) const REFETCH_MISMATCH: u8 = 0x23;
pub(super) const CREDIT: u8 = 0x24;
pub(super) const LOG_HELD: u8 = 0x25;
pub(super) const LOG_WORTH: u8 = 0x26;
pub(super) const CHUNK_REQUEST: u8 = 0x27;
pub(super) const CHUNKS: u8 = 0x28;
pub(super) const STORE_HELD: u8 = 0x29;
pub(super) const ACKED: u8 = 0x2A;
pub(super) const PING: u8 = 0x30;
pub(super) const PONG: u8 = 0x31;
pub(super) const LANES_WANTED: u8 = 0x32;
pub(super) const LANE_DEAD: u8 = 0x33;
pub(super) const NETWORKS: u8 = 0x81;
pub(super) const DRAINING: u8 = 0x82;
pub(super) const PROBE: u8 = 0x83;
pub(super) const PROBED: u8 = 0x84;
pub(super) const LANE_WORN: u8 = 0x85;
pub(super) const LANE_LEFT: u8 = 0x86;
pub(super) const KEEPALIVE: u8 = 0x87;

/// The part of a link that handles frames of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The codec's sending half: words of the peer's decoder.
    Encoder,
    /// The codec's receiving half: blocks, messages, and other words of the peer's encoder.
    Decoder,
    /// The link: lanes, credit, liveness, what gateways announce.
    Link,
    /// Members of a trust group.
    Group,
}

/// Returns to whom frames of a type belong; none if this build knows no such type.
pub fn owner(kind: u8) -> Option<Owner> {
    Some(match kind {
        BLOCK | OPEN | OPENED | RESET | MORE | LOG_WORTH | CHUNKS | PROBE => Owner::Decoder,
        ACK | ACKED | NEED | REFETCH_MISSING | REFETCH_MISMATCH | LOG_HELD | CHUNK_REQUEST | STORE_HELD
        | PROBED => Owner::Encoder,
        CREDIT | PING | PONG | LANES_WANTED | LANE_DEAD | NETWORKS | DRAINING | LANE_WORN | LANE_LEFT
        | KEEPALIVE => Owner::Link,
        group::PEEK..=group::PENDING => Owner::Group,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Frame, WireError};

    #[test]
    fn every_known_type_has_an_owner() {
        for kind in 0..=u8::MAX {
            let is_known = Frame::decode(kind, &[]) != Err(WireError::UnknownType(kind));
            assert_eq!(owner(kind).is_some(), is_known, "{kind:#x}");
        }
    }
}
