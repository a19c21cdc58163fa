//! The verify gate's digests: fast ones, since the sending end of Max-Match compared the very bytes.

use std::hash::Hasher as _;

use twox_hash::XxHash3_64;

use crate::log::{Log, LogOffset};

/// The digest of a block's plain bytes, keyed by the link's seed and the log's epoch.
pub(crate) fn block_digest(seed: u64, epoch: u64, plain: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(seed ^ epoch.wrapping_mul(0x9e37_79b9_7f4a_7c15), plain)
}

/// The digest of a part of a log, by which two ends find out whether they still have the same one.
pub(crate) fn log_digest(log: &Log, start: u64, len: usize) -> u64 {
    let (first, second) = log.slices(LogOffset(start), len);
    let mut digest = XxHash3_64::new();
    digest.write(first);
    digest.write(second);
    digest.finish()
}
