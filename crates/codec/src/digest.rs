//! The verify gate's digests: fast ones, since both ends of Max-Match compared the very bytes.

use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

use crate::cache::{Log, LogOffset};

/// The digest of a block's plain bytes, keyed by the link's seed and the log's epoch.
pub(crate) fn block_digest(seed: u64, epoch: u64, plain: &[u8]) -> u64 {
    xxh3_64_with_seed(plain, seed ^ epoch.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// The digest of a part of a log, by which two ends find out whether they still have the same one.
pub(crate) fn log_digest(log: &Log, start: u64, len: usize) -> u64 {
    let (first, second) = log.slices(LogOffset(start), len);
    let mut digest = Xxh3::new();
    digest.update(first);
    digest.update(second);
    digest.digest()
}
