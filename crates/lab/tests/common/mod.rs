//! Bytes from a seed, the same on every machine.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// A generator of bytes like those that cross links.
pub(crate) struct Corpus {
    rng: Pcg64Mcg,
}

impl Corpus {
    pub(crate) fn new(seed: u64) -> Self {
        Self { rng: Pcg64Mcg::seed_from_u64(seed) }
    }

    /// Bytes that nothing can shrink.
    pub(crate) fn random(&mut self, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.rng.fill_bytes(&mut out);
        out
    }

    /// Lines of words, of which few are frequent, as in logs and sources.
    pub(crate) fn text(&mut self, len: usize) -> Vec<u8> {
        let words: Vec<Vec<u8>> =
            (0..4000).map(|_| (0..2 + self.below(9)).map(|_| self.letter()).collect()).collect();
        let mut out = Vec::with_capacity(len + 16);
        while out.len() < len {
            // The product of two draws prefers the first words.
            let frequent = self.below(words.len()) * self.below(words.len()) / words.len();
            out.extend_from_slice(&words[frequent]);
            out.push(if self.below(10) == 0 { b'\n' } else { b' ' });
        }
        out.truncate(len);
        out
    }

    /// Records of little-endian numbers, some of which count, some of which are rarely set, and some random.
    pub(crate) fn records(&mut self, len: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(len + 32);
        for count in 0u64.. {
            if out.len() >= len {
                break;
            }
            out.extend_from_slice(&count.to_le_bytes());
            out.extend_from_slice(&(1_700_000_000 + count as u32 / 7).to_le_bytes());
            out.extend_from_slice(&[if self.below(20) == 0 { 1 } else { 0 }; 6]);
            out.extend_from_slice(&(self.rng.next_u32() as u16).to_le_bytes());
            out.extend_from_slice(b"\0\0\0\0");
        }
        out.truncate(len);
        out
    }

    /// A copy with `count` runs of 1 to 32 bytes replaced, inserted or deleted.
    pub(crate) fn edited(&mut self, of: &[u8], count: usize) -> Vec<u8> {
        let mut places: Vec<usize> = (0..count).map(|_| self.below(of.len() - 32)).collect();
        places.sort_unstable();
        let (mut out, mut done) = (Vec::with_capacity(of.len() + 32 * count), 0);
        for place in places {
            let (place, len) = (place.max(done), 1 + self.below(32));
            out.extend_from_slice(&of[done..place]);
            let kind = self.below(3);
            if kind < 2 {
                out.extend(self.random(len));
            }
            done = if kind == 1 { place } else { place + len };
        }
        out.extend_from_slice(&of[done.min(of.len())..]);
        out
    }

    fn letter(&mut self) -> u8 {
        b"etaoinshrdlcumwfgypbvk_.(){}=;"[self.below(30)]
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.rng.next_u64() % bound as u64) as usize
    }
}
