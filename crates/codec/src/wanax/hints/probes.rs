//! Probes: whole names of a few chunks the store is believed to have, to ask whether it is the same store. A hint
//! cannot be asked for: it is a part of a tag.

use super::{Hints, HintsError};
use crate::wanax::{NAME_LEN, Name};
use crate::wire::{MAX_BLOCK, MAX_PROBES};

/// The probes of one store, spread evenly over all that was put into it and is still believed to be there.
#[derive(Clone, Debug)]
pub(super) struct Probes {
    /// In the order in which they were put, each with its length in bytes.
    chunks: Vec<(Name, u32)>,
    /// One is kept of so many bytes put.
    stride: u64,
    /// So many are put before the next one is kept.
    wait: u64,
}

/// The stride while there is room for all.
const LEAST_STRIDE: u64 = 1 << 20;
/// The words a probe is saved as.
pub(super) const SAVED_WORDS: usize = 3;

impl Default for Probes {
    fn default() -> Self {
        Self { chunks: Vec::new(), stride: LEAST_STRIDE, wait: 0 }
    }
}

impl Probes {
    /// Keeps every second one, and from now on half as many.
    fn thin(&mut self) {
        let mut even = false;
        self.chunks.retain(|_| {
            even = !even;
            even
        });
        self.stride = self.stride.saturating_mul(2);
    }

    /// Appends what [`Self::restore`] takes.
    pub(super) fn save(&self, mut put: impl FnMut(u64)) {
        [self.stride, self.wait, self.chunks.len() as u64].into_iter().for_each(&mut put);
        for (Name(name), len) in &self.chunks {
            let mut bytes = [0; 8 * SAVED_WORDS];
            let (front, back) = bytes.split_at_mut(NAME_LEN);
            front.copy_from_slice(name);
            back.copy_from_slice(&len.to_le_bytes());
            bytes.chunks_exact(8).for_each(|word| put(word.try_into().map_or(0, u64::from_le_bytes)));
        }
    }

    /// Takes up what was saved; nothing if no probes were known of then.
    pub(super) fn restore(mut word: impl FnMut() -> Option<u64>) -> Result<Self, HintsError> {
        let Some(stride) = word() else { return Ok(Self::default()) };
        let mut word = || word().ok_or(HintsError::Damaged);
        let (stride, wait, count) = (stride.max(LEAST_STRIDE), word()?, word()?);
        if count > MAX_PROBES as u64 {
            return Err(HintsError::Damaged);
        }
        let mut probes = Self { chunks: Vec::new(), stride, wait: wait.min(stride) };
        for _ in 0..count {
            let words = [word()?, word()?, word()?].map(u64::to_le_bytes);
            let bytes = words.as_flattened();
            let (name, len) = (bytes.first_chunk(), bytes.last_chunk().map(|len| u32::from_le_bytes(*len)));
            match (name, len) {
                (Some(name), Some(len @ 1..=LONGEST)) => probes.chunks.push((Name(*name), len)),
                _ => return Err(HintsError::Damaged),
            }
        }
        Ok(probes)
    }
}

/// The longest chunk there is.
const LONGEST: u32 = MAX_BLOCK as u32;

impl Hints {
    /// Returns what the store can be asked for, at most [`MAX_PROBES`] chunks with their lengths; some may no longer be
    /// believed to be there.
    pub fn probes(&self) -> &[(Name, u32)] {
        &self.probes.chunks
    }

    /// Takes note of bytes put; returns whether one of their chunks is wanted as a probe.
    pub fn wants_probe(&mut self, put: u64) -> bool {
        self.probes.wait = self.probes.wait.saturating_sub(put);
        self.probes.wait == 0
    }

    /// Keeps a chunk put as a probe. Without room, disbelieved ones go first, else every second one, and from then on
    /// half as many are wanted.
    pub fn keep_probe(&mut self, name: Name, len: u32, now_secs: u64) {
        self.changes += 1;
        if self.probes.chunks.len() >= MAX_PROBES {
            let mut chunks = std::mem::take(&mut self.probes.chunks);
            chunks.retain(|(name, len)| self.lookup(name.tag(), *len, now_secs));
            self.probes.chunks = chunks;
        }
        if self.probes.chunks.len() >= MAX_PROBES {
            self.probes.thin();
        }
        if !self.probes.chunks.contains(&(name, len)) {
            self.probes.chunks.push((name, len));
        }
        self.probes.wait = self.probes.stride;
    }
}

#[cfg(test)]
mod tests {
    use super::super::{PackedTag, tests::tag};
    use super::*;

    const LEN: u32 = 65_536;
    const MEMORY: u64 = 1 << 20;

    fn name(number: u64) -> Name {
        let mut name = [number as u8; NAME_LEN];
        name[..8].copy_from_slice(&tag(number).to_le_bytes());
        Name(name)
    }

    fn number(name: &Name) -> u64 {
        (0..10_000).find(|number| tag(*number) == name.tag()).unwrap()
    }

    /// Puts chunks as the sending half does.
    fn put(hints: &mut Hints, numbers: std::ops::Range<u64>, now_secs: u64) {
        for number in numbers {
            hints.insert(PackedTag::new(tag(number), LEN), now_secs);
            if hints.wants_probe(LEN.into()) {
                hints.keep_probe(name(number), LEN, now_secs);
            }
        }
    }

    fn numbers(hints: &Hints) -> Vec<u64> {
        hints.probes().iter().map(|(name, _)| number(name)).collect()
    }

    #[test]
    fn one_chunk_of_each_mebibyte_is_a_probe() {
        let mut hints = Hints::new(MEMORY);
        put(&mut hints, 0..80, 50);
        assert_eq!(numbers(&hints), [0, 16, 32, 48, 64]);
    }

    #[test]
    fn probes_are_few_and_evenly_spread() {
        let mut hints = Hints::new(MEMORY);
        for end in 1..400 {
            put(&mut hints, (end - 1) * 20..end * 20, 50);
            let numbers = numbers(&hints);
            assert!(numbers.len() <= MAX_PROBES && (end < 16 || numbers.len() >= MAX_PROBES / 2));
            let gaps: Vec<u64> = numbers.windows(2).map(|two| two[1] - two[0]).collect();
            assert!(gaps.iter().all(|gap| *gap == gaps[0]), "{numbers:?}");
            assert!(
                numbers[0] == 0
                    && end * 20 - numbers[numbers.len() - 1] <= gaps.first().map_or(20, |gap| *gap)
            );
        }
        assert_eq!(hints.probes.stride, 32 * LEAST_STRIDE);
    }

    #[test]
    fn disbelieved_probes_give_way_first() {
        let mut hints = Hints::new(MEMORY);
        put(&mut hints, 0..256, 50);
        assert_eq!(hints.probes().len(), MAX_PROBES);
        for number in (0..256).filter(|number| number % 32 == 0 || *number > 200) {
            hints.forget(tag(number), LEN);
        }
        put(&mut hints, 1000..1001, 50);
        assert_eq!(numbers(&hints), [16, 48, 80, 112, 144, 176, 1000]);
        assert_eq!(hints.probes.stride, LEAST_STRIDE);
        // Nor is what the store says it has evicted.
        put(&mut hints, 1016..1160, 2000);
        assert_eq!(hints.probes().len(), MAX_PROBES);
        hints.set_oldest(1900);
        put(&mut hints, 1160..1176, 2000);
        assert!(numbers(&hints).iter().all(|number| *number >= 1016), "{:?}", numbers(&hints));
    }

    #[test]
    fn a_chunk_is_a_probe_once() {
        let mut hints = Hints::new(MEMORY);
        put(&mut hints, 0..16, 50);
        put(&mut hints, 0..16, 50);
        assert_eq!(numbers(&hints), [0]);
    }

    #[test]
    fn probes_are_saved_with_the_hints_and_forgotten_with_them() {
        let mut hints = Hints::new(MEMORY);
        hints.bind(7);
        put(&mut hints, 0..1000, 50);
        let mut again = Hints::restore(MEMORY, &hints.save()).unwrap();
        assert_eq!(again.probes(), hints.probes());
        assert_eq!(again.save(), hints.save());
        put(&mut again, 1000..1500, 50);
        put(&mut hints, 1000..1500, 50);
        assert_eq!(again.probes(), hints.probes(), "they go on where they were");
        again.bind(8);
        assert_eq!(again.probes(), []);
        hints.clear();
        assert_eq!(hints.probes(), []);
    }

    #[test]
    fn hints_without_probes_and_damaged_ones_do_no_harm() {
        let restored = |words: &[u64]| {
            let mut words = words.iter().copied();
            Probes::restore(|| words.next()).map(|probes| (probes.chunks.len(), probes.stride, probes.wait))
        };
        assert_eq!(restored(&[]), Ok((0, LEAST_STRIDE, 0)), "saved before there were any");
        assert_eq!(restored(&[0, u64::MAX, 0]), Ok((0, LEAST_STRIDE, LEAST_STRIDE)));
        assert_eq!(restored(&[u64::MAX, 5, 1, 1, 2, 9 << 32]), Ok((1, u64::MAX, 5)));
        let wrong: [&[u64]; 6] = [
            &[1],
            &[1, 2],
            &[1, 2, 17],
            &[1, 2, 1, 1, 2],
            &[1, 2, 1, 1, 2, 3],
            &[1, 2, 1, 1, 2, 65_537 << 32],
        ];
        for words in wrong {
            assert_eq!(restored(words), Err(HintsError::Damaged), "{words:?}");
        }
    }
}
