//! A test of records' first bytes: spread as evenly as a cipher's.

/// A count of bytes.
#[derive(Debug)]
pub(super) struct Spread {
    counts: Box<[u16; 256]>,
    total: u16,
}

impl Default for Spread {
    fn default() -> Self {
        Self { counts: Box::new([0; 256]), total: 0 }
    }
}

impl Spread {
    /// Counts bytes, as many as are still to be counted.
    pub(super) fn count(&mut self, bytes: &[u8]) {
        let left = usize::from(ENOUGH.saturating_sub(self.total));
        for byte in bytes.iter().take(left) {
            if let Some(count) = self.counts.get_mut(usize::from(*byte)) {
                *count += 1;
            }
            self.total += 1;
        }
    }

    /// Says whether the bytes are evenly spread, once enough are counted.
    pub(super) fn verdict(&self) -> Option<bool> {
        if self.total < ENOUGH {
            return None;
        }
        let pairs = self.counts.iter().map(|&count| u64::from(count) * u64::from(count).saturating_sub(1));
        let (equal, total) = (pairs.sum::<u64>(), u64::from(self.total));
        Some(equal * 200 < total * total.saturating_sub(1))
    }
}

/// Bytes to tell noise, with a probability of 1/256 for equal pairs, from anything above 1/200, at six standard
/// deviations.
const ENOUGH: u16 = 512;
