//! The entropy stage of a receiving half: a context for each stream, in step with one lane.

use std::collections::BTreeMap;

use super::{Decompressor, Kind, Mode};
use crate::wire::LaneId;

/// The contexts of a receiving half.
pub(crate) struct EntropyDecoder {
    contexts: usize,
    decompressor: Decompressor,
    /// The lane and block of each context's start; only blocks of that lane are in step with it.
    starts: BTreeMap<usize, (LaneId, u64)>,
}

impl EntropyDecoder {
    pub(crate) fn new(contexts: usize) -> Self {
        Self { contexts, decompressor: Decompressor::new(contexts), starts: BTreeMap::new() }
    }

    /// Whether a block from a lane is in step with its context; a first one starts it.
    pub(crate) fn admit(&mut self, seq: u64, lane: LaneId, mode: Mode) -> bool {
        match mode {
            Mode::Alone => true,
            Mode::First(slot) if slot >= self.contexts => false,
            // A late one, by a slower lane, does not take back a later start.
            Mode::First(slot) if self.starts.get(&slot).is_some_and(|&(_, since)| since > seq) => false,
            Mode::First(slot) => {
                self.starts.insert(slot, (lane, seq));
                true
            }
            Mode::Next(slot) => self.starts.get(&slot).is_some_and(|&(own, _)| own == lane),
        }
    }

    /// Appends the `len` bytes of a compressed body; returns whether it was sound.
    pub(crate) fn decompress(
        &mut self,
        kind: Kind,
        mode: Mode,
        bytes: &[u8],
        len: usize,
        out: &mut Vec<u8>,
    ) -> bool {
        self.decompressor.decompress(kind, mode, bytes, len, out).is_ok()
    }

    pub(crate) fn memory(&self) -> usize {
        self.decompressor.memory()
    }
}
