//! EndRE: sender-driven, fine-grained elimination [EndRE §4 to §6].

pub mod chunks;
mod density;
mod ghosts;
mod headroom;
mod left_out;
pub(crate) mod log_decoder;
pub(crate) mod log_encoder;
pub mod matcher;
pub(crate) mod remote_log;
mod sampling;
mod savings;
pub(crate) mod suspects;
pub mod tokens;

/// The epoch of a log that never started over.
pub(crate) const FIRST_EPOCH: u64 = 1;

// Why a log starts over, as either half may find.
pub(crate) const NOTHING_HERE: &str = "nothing is left of it here";
pub(crate) const TOO_LITTLE: &str = "too little is left of it for the ends to compare";
