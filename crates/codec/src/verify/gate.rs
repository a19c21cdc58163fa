//! The verify gate.

use bytes::Bytes;

use super::{Digests, StrongKind};
use crate::transfer::Head;
use crate::wire::Digest;

/// Compares rebuilt blocks with their digests.
pub(crate) struct Gate {
    digests: Digests,
    /// Blocks sent again and wrong again.
    failed_resends: u32,
}

/// A block behind the gate.
pub(crate) struct Verified(Bytes);

impl Verified {
    /// The block's bytes.
    pub(crate) fn plain(&self) -> &Bytes {
        &self.0
    }
}

impl From<Verified> for Bytes {
    fn from(verified: Verified) -> Self {
        verified.0
    }
}

/// Resent blocks hold all their bytes, so they are right unless memory fails; with more wrong ones, the lane ends.
const MOST_FAILED_RESENDS: u32 = 16;

impl Gate {
    /// Takes the seed and kind of the peer's digests.
    pub(crate) const fn new(seed: u64, kind: StrongKind) -> Self {
        Self { digests: Digests::new(seed, kind), failed_resends: 0 }
    }

    /// Passes a rebuilt block with the length and digest of its header, as `freeze` shares it.
    pub(crate) fn check(
        &mut self,
        head: &Head,
        plain: Vec<u8>,
        freeze: impl FnOnce(Vec<u8>) -> Bytes,
    ) -> Option<Verified> {
        let is_right = plain.len() == head.plain_len
            && head.digest
                == match head.digest {
                    Digest::Fast(_) => self.digests.fast(head.epoch, &plain),
                    Digest::Strong(_) => self.digests.strong(head.epoch, &plain),
                };
        self.failed_resends += u32::from(!is_right && head.resent);
        is_right.then(|| Verified(freeze(plain)))
    }

    /// Takes the fault of too many wrong blocks; the count begins anew.
    pub(crate) fn take_fault(&mut self) -> bool {
        let is_faulty = self.failed_resends > MOST_FAILED_RESENDS;
        if is_faulty {
            self.failed_resends = 0;
        }
        is_faulty
    }
}
