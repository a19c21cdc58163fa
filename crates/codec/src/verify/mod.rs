//! Digests of blocks and logs, and the gate in front of log, store and application.
//!
//! [`Gate::check`] is the one way to [`Verified`]: no rebuilt byte is written, acknowledged or delivered without it.

pub(crate) mod digest;
mod gate;
mod strong;

pub(crate) use digest::log_digest;
pub(crate) use gate::{Gate, Verified};
pub use strong::StrongKind;

use self::digest::block_digest;
use self::strong::StrongDigests;
use crate::wire::Digest;

/// Makes the block digests of one direction of a link.
pub(crate) struct Digests {
    seed: u64,
    strong: StrongDigests,
}

impl Digests {
    /// Takes the seed of the encoding side's hello, and the strong digest known to both sides.
    pub(crate) const fn new(seed: u64, kind: StrongKind) -> Self {
        Self { seed, strong: StrongDigests::new(seed, kind) }
    }

    /// Returns the fast digest of a block, enough after a comparison of its bytes.
    pub(crate) fn fast(&self, epoch: u64, plain: &[u8]) -> Digest {
        Digest::Fast(block_digest(self.seed, epoch, plain))
    }

    /// Returns the strong digest of a block.
    pub(crate) fn strong(&mut self, epoch: u64, plain: &[u8]) -> Digest {
        Digest::Strong(self.strong.digest(epoch, plain))
    }
}
