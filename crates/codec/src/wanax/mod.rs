//! Wanax: chunks of several sizes, known to both ends by their names and kept on disk at the receiving end
//! [Wanax §3].
//!
//! Here it is a layer of the stream codec: a block may refer to the log and to named chunks. Design:
//! `docs/internals/wanax.md`.

pub mod backlog;
pub(crate) mod fetching;
pub mod gain;
pub mod hints;
mod name;
pub(crate) mod naming;
pub mod path;
pub(crate) mod price;
mod shape;
pub mod shed;
pub(crate) mod store_side;
mod tree;
pub mod under_way;

pub use hints::{Hints, HintsError};
pub use name::{
    ChunkName, LEAST_BLOCK, LEAST_NAMED, LEAST_SHARED, LEAST_SOUGHT, NAME_LEN, Name, NameKey, SHORT_BELOW,
    SHORT_NAME_LEN, STRONG_MORE, TAG_LEN, are_tags_worth_it, is_worth_one_of_the_names,
};
pub(crate) use name::{Tag48, tag_of_hash};
pub use shape::{Shape, ShapeError};
pub use tree::{Node, Tree};

/// How a sending half names chunks.
#[derive(Clone, Debug)]
pub struct NamesConfig {
    /// What names are made with for the peer alone.
    pub key: NameKey,
    /// What names are made with between members of the trust group the peer is to be in.
    pub group: Option<NameKey>,
    /// How blocks are cut.
    pub shape: Shape,
    /// Bytes of memory for what is known of the peer's store; 8 bytes a chunk.
    pub hint_memory: u64,
    /// What [`save_by`](hints::save_by) made of [`save_hints`](crate::contract::EncoderNames::save_hints) in an earlier
    /// process.
    pub saved: Option<Vec<u8>>,
    /// The time of day at the origin of [`Now`](crate::Now), in seconds since any moment that stays the same from
    /// process to process.
    pub clock_secs: u64,
}
