//! What noise was left out of the log, so it is known when it comes again.

/// A sample of the markers of blocks left out.
pub(crate) struct LeftOut {
    /// Upper halves of fingerprints; 0 is empty.
    tags: Vec<u32>,
    /// One marker in 2 to the power of `rate` is sampled.
    rate: u32,
}

impl LeftOut {
    /// Starts with nothing left out of a log of `capacity` bytes with a marker every `period` bytes.
    pub(crate) fn new(capacity: u64, period: usize) -> Self {
        let slots = (capacity / BYTES_PER_SLOT).clamp(256, MOST_SLOTS).next_power_of_two();
        let markers = capacity / period.max(1) as u64;
        // Twice as many slots as samples of a whole log.
        let rate = (2 * markers / slots).max(1).next_power_of_two().trailing_zeros().min(MOST_RATE);
        Self { tags: vec![0; slots as usize], rate }
    }

    /// Whether a block with these fingerprints was left out before: a quarter of its sample is enough.
    pub(crate) fn knows(&self, fingerprints: impl Iterator<Item = u64>) -> bool {
        let (mut sampled, mut known) = (0, 0);
        for fingerprint in fingerprints.filter(|&fingerprint| self.is_sampled(fingerprint)) {
            sampled += 1;
            known += u32::from(self.tags.get(self.index(fingerprint)) == Some(&tag(fingerprint)));
        }
        known > 0 && 4 * known >= sampled
    }

    /// Notes a block with these fingerprints, left out.
    pub(crate) fn note(&mut self, fingerprints: impl Iterator<Item = u64>) {
        for fingerprint in fingerprints {
            let index = self.index(fingerprint);
            if self.is_sampled(fingerprint)
                && let Some(slot) = self.tags.get_mut(index)
            {
                *slot = tag(fingerprint);
            }
        }
    }

    pub(crate) fn memory(&self) -> u64 {
        (self.tags.len() * size_of::<u32>()) as u64
    }

    fn is_sampled(&self, fingerprint: u64) -> bool {
        fingerprint >> SAMPLE_BITS & ((1 << self.rate) - 1) == 0
    }

    fn index(&self, fingerprint: u64) -> usize {
        (fingerprint & (self.tags.len() as u64 - 1)) as usize
    }
}

fn tag(fingerprint: u64) -> u32 {
    ((fingerprint >> 32) as u32).max(1)
}

/// Bytes of the log for each slot: a block of 64 KiB has some sixteen samples.
const BYTES_PER_SLOT: u64 = 2048;
/// Four megabytes of slots. With a log above 2 GiB, a block has fewer samples.
const MOST_SLOTS: u64 = 1 << 20;
/// The bits of a fingerprint for the choice of samples: none of its index or tag.
const SAMPLE_BITS: u32 = 20;
const MOST_RATE: u32 = 10;

#[cfg(test)]
mod tests {
    use oncewire_fingerprint::fingerprint;

    use super::*;

    fn markers(block: u64) -> impl Iterator<Item = u64> {
        (0..1024u64).map(move |n| fingerprint(&(block * 1024 + n).to_le_bytes().repeat(4)))
    }

    #[test]
    fn block_left_out_before_is_known_and_others_are_not() {
        for capacity in [64 << 10, 64 << 20, 8 << 30] {
            let mut left_out = LeftOut::new(capacity, 64);
            let blocks = (capacity / 65_536).min(1000);
            (0..blocks).for_each(|block| left_out.note(markers(block)));
            let known = (0..blocks).filter(|&block| left_out.knows(markers(block))).count() as u64;
            assert!(10 * known >= 9 * blocks, "{known} of {blocks} in {capacity}");
            assert_eq!((1000..2000).filter(|&block| left_out.knows(markers(block))).count(), 0);
            assert!(left_out.memory() <= MOST_SLOTS * 4);
        }
    }

    #[test]
    fn shifted_block_is_known_by_a_quarter_of_its_markers() {
        let mut left_out = LeftOut::new(64 << 20, 64);
        left_out.note(markers(1));
        assert!(left_out.knows(markers(1).skip(500)));
        assert!(left_out.knows(markers(1).take(500).chain(markers(2).take(500))));
        assert!(!left_out.knows(std::iter::empty()));
    }
}
