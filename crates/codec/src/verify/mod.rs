//! Digests of blocks and logs: the check before anything rebuilt is written, acknowledged or delivered.

pub(crate) mod digest;
pub(crate) mod strong;
