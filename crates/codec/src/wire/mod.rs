//! The wire format: varints, hellos and frames; `docs/reference/spec/wire-format.md` is its specification.
//!
//! Decoding never panics and never allocates more than its input justifies: every length is compared with a
//! named bound and with the bytes that are there before anything is reserved. Trailing bytes are an error.

mod bitmap;
mod block;
mod chunks;
mod codecs;
mod frame;
mod framing;
mod group;
mod hello;
mod names;
mod network;
mod probe;
mod reader;
mod registry;
#[cfg(test)]
mod tests;
pub mod varint;

pub use block::{Block, BlockBody, Body, Digest, Range64};
pub use chunks::{ChunkReason, ChunkRequest, Chunks, NameEntry, StoreHeld, encode_entries};
pub use codecs::{CodecId, CodecOffer, CodecOffers, MAX_CODEC_PARAMETERS, MAX_CODECS};
pub use frame::{
    Ack, Frame, KeepAlive, LaneTail, LogHeld, MAX_CREDIT_SHIFT, MAX_KEEPALIVE, Message, More, Networks, Open,
    Opened, Refetch, RefetchReason, Reset, SavingsCurve,
};
pub(crate) use framing::encode_block_in_pieces;
pub use framing::{RawFrame, take_frame};
pub use group::{GroupFrame, Load, MAX_PEEK, MAX_TAGS, Sought};
pub use hello::{GroupProof, Hello, HelloError, LogClaim, NamesHello, Sample, Understood};
pub use names::{Destination, FlowId, Host, LaneId, LaneRole, OpenFailure, ResetReason};
pub use network::{Network, NetworkError};
pub use probe::{Probe, Probed};
pub use reader::{Reader, WireError};
pub use registry::{Owner, owner};

/// The most plain bytes that one block stands for.
pub const MAX_BLOCK: usize = 64 * 1024;
/// The largest epoch, and the largest log offset at which a block is encoded.
pub const MAX_LOG_NUMBER: u64 = u64::MAX / 4;
/// The largest epoch or offset of a claim: there is room to go on behind it, for either end.
pub const MAX_CLAIMED: u64 = MAX_LOG_NUMBER / 2;
/// The largest frame read, its type and length included.
pub const MAX_FRAME: usize = 80 * 1024;
/// The newest protocol version this build speaks.
pub const VERSION: u16 = 3;
/// The oldest protocol version this build still speaks.
pub const OLDEST: u16 = 1;
/// The first frame type to be passed over by a receiver without knowledge of it; only a peer of version 2 or later does
/// so.
pub const FIRST_OPTIONAL: u8 = 0x80;
/// The first version knowing of named chunks.
pub const NAMES_SINCE: u16 = 3;
/// The most names a block refers to.
pub const MAX_NAMES: usize = 1024;
/// The most ranges that one acknowledgement, or one request, lists.
pub const MAX_RANGES: usize = 256;
/// The most chunks by which a store is probed.
pub const MAX_PROBES: usize = 16;
/// The most sizes for which a log's worth is told.
pub const MAX_CURVE: usize = 16;
/// The most networks a gateway announces.
pub const MAX_NETWORKS: usize = 256;
