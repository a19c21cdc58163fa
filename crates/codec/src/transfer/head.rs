//! The header of a block under way.

use crate::wire::{Digest, FlowId, Range64};

/// What is left of a block's header once its body is decoded.
#[derive(Clone, Copy)]
pub(crate) struct Head {
    pub(crate) seq: u64,
    pub(crate) flow: FlowId,
    pub(crate) offset: u64,
    pub(crate) plain_len: usize,
    pub(crate) fin: bool,
    /// Whether it was sent again, and so brings all that it consists of.
    pub(crate) resent: bool,
    pub(crate) epoch: u64,
    pub(crate) start: u64,
    pub(crate) remembered: bool,
    /// Whether the block is to be put into the store.
    pub(crate) keep: bool,
    pub(crate) digest: Digest,
}

impl Head {
    /// The range of the log the block takes, if it takes one.
    pub(crate) fn range(&self) -> Option<Range64> {
        self.remembered.then(|| self.start..self.start.saturating_add(self.plain_len as u64))
    }

    /// Of a block of a thousand bytes remembered.
    #[cfg(test)]
    pub(crate) fn of(seq: u64) -> Self {
        Self {
            seq,
            flow: FlowId(1),
            offset: 0,
            plain_len: 1000,
            fin: false,
            resent: false,
            epoch: 0,
            start: 10_000 * seq,
            remembered: true,
            keep: false,
            digest: Digest::Fast(0),
        }
    }
}
