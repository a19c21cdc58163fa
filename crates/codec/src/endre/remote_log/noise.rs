//! Which noise the log takes; see [`NoiseBound`].

use super::{RemoteLog, Searched};
use crate::Matching;
use crate::endre::left_out::LeftOut;
use crate::endre::matcher::Copy;
use crate::entropy::looks_random;
use crate::log::{Log, LogOffset, NoiseBound};
use crate::wire::{MAX_BLOCK, Range64};

/// The known noise in a log, and the noise left out of it.
pub(crate) struct Noise {
    bound: NoiseBound,
    /// Made when something is left out.
    left_out: Option<LeftOut>,
}

impl Noise {
    pub(crate) fn new(capacity: u64) -> Self {
        Self { bound: NoiseBound::new(capacity), left_out: None }
    }

    /// Nothing remembered may be referred to any more.
    pub(crate) fn clear(&mut self) {
        self.bound.clear();
    }

    /// What was found is of worth.
    pub(crate) fn note_found(&mut self, copies: &[Copy]) {
        copies.iter().for_each(|copy| self.bound.copied(copy.source.0, u64::from(copy.len)));
    }

    /// Notes a block written at `start` and its copies; `is_noise`: it is new noise.
    pub(crate) fn note_written(&mut self, start: u64, len: usize, copies: &[Copy], is_noise: bool) {
        copies.iter().for_each(|copy| self.bound.moved(copy.source.0, u64::from(copy.len)));
        self.bound.take(start, len as u64, is_noise);
    }

    /// Looks at what a log holds found on disk.
    pub(crate) fn learn(&mut self, log: &Log, range: Range64) {
        let mut piece = Vec::with_capacity(MAX_BLOCK);
        for at in range.clone().step_by(MAX_BLOCK) {
            piece.clear();
            log.copy_to(LogOffset(at), (range.end - at).min(MAX_BLOCK as u64) as usize, &mut piece);
            self.bound.take(at, piece.len() as u64, looks_random(&piece));
        }
    }

    pub(crate) fn memory(&self) -> u64 {
        self.left_out.as_ref().map_or(0, LeftOut::memory)
    }
}

impl RemoteLog {
    /// Whether the block last searched, with its `copies`, is no noise, or noise with room in the log. Noise left out
    /// before has shown it comes again, and is taken.
    pub(crate) fn takes(&mut self, block: &[u8], copies: &[Copy], searched: &mut Searched) -> bool {
        let copied: usize = copies.iter().map(|copy| copy.len as usize).sum();
        if 2 * copied >= block.len() || !looks_random(block) {
            return true;
        }
        let (reach, period) = (self.reach(), self.settings.params.period);
        let Self { noise, max, chunks, .. } = self;
        let matching = searched.matching;
        let fingerprints = || {
            let max = max.as_ref().filter(|_| matching == Matching::Max);
            let chunks = chunks.as_ref().filter(|_| matching == Matching::Chunk);
            let markers = max.into_iter().flat_map(|max| max.looked_up().map(|(_, fingerprint)| fingerprint));
            markers.chain(chunks.into_iter().flat_map(|chunks| chunks.hashes()))
        };
        if noise.left_out.as_ref().is_some_and(|left_out| left_out.knows(fingerprints())) {
            return true;
        }
        if noise.bound.allows(self.head, block.len() as u64, reach, self.base) {
            searched.is_noise = true;
            return true;
        }
        noise.left_out.get_or_insert_with(|| LeftOut::new(self.capacity, period)).note(fingerprints());
        false
    }
}
