//! Bytes from a seed: random, like text, and edited.

use std::hash::Hasher;

/// A small generator of random numbers (SplitMix64): the same numbers from the same seed, everywhere.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    /// Starts at `seed`; near seeds give unrelated numbers.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Draws 64 random bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Draws a number below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }
}

/// Makes `len` incompressible bytes.
pub(crate) fn random(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        out.extend_from_slice(&rng.next().to_le_bytes());
    }
    out.truncate(len);
    out
}

/// Makes `len` bytes of lines of words from a small vocabulary, compressed by zstd to about a third.
pub(crate) fn text(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let words: Vec<Vec<u8>> = (0..2000)
        .map(|_| (0..3 + rng.below(8)).map(|_| b"etaoinshrdlucmfw"[rng.below(16)]).collect())
        .collect();
    let mut out = Vec::with_capacity(len + 16);
    while out.len() < len {
        out.extend_from_slice(&words[rng.below(words.len())]);
        out.push(if rng.below(12) == 0 { b'\n' } else { b' ' });
    }
    out.truncate(len);
    out
}

/// Copies `data` with `count` bytes flipped at random places.
pub(crate) fn edited(data: &[u8], seed: u64, count: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let mut out = data.to_vec();
    for _ in 0..count {
        let at = rng.below(out.len());
        out[at] ^= 0x55;
    }
    out
}

/// Sums up `data` in 64 bits, for comparison between the ends.
pub(crate) fn digest(data: &[u8]) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write(data);
    hasher.finish()
}

/// Fails with the first difference of two long byte strings, instead of printing them.
#[track_caller]
pub(crate) fn assert_same(got: &[u8], expected: &[u8], what: &str) {
    if got != expected {
        let at = got.iter().zip(expected).position(|(a, b)| a != b).unwrap_or(got.len().min(expected.len()));
        panic!("{what}: {} of {} bytes; the first difference is at {at}", got.len(), expected.len());
    }
}
