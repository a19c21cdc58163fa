//! Seeded bytes, the same on every machine, for tests and benches.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// A generator of bytes like those of links.
#[derive(Debug)]
pub struct Corpus {
    rng: Pcg64Mcg,
}

impl Corpus {
    /// Starts over with `seed`.
    pub fn new(seed: u64) -> Self {
        Self { rng: Pcg64Mcg::seed_from_u64(seed) }
    }

    /// Incompressible bytes.
    pub fn random(&mut self, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.rng.fill_bytes(&mut out);
        out
    }

    /// Lines of words, few of them frequent, as in logs and sources.
    pub fn text(&mut self, len: usize) -> Vec<u8> {
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

    /// Records of little-endian numbers: counters, rarely set ones, and random ones.
    pub fn records(&mut self, len: usize) -> Vec<u8> {
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

    /// Lines of a log, of a few hundred bytes each: a few dozen forms, with times and numbers in them.
    pub fn log(&mut self, len: usize) -> Vec<u8> {
        let forms: Vec<(String, String)> = (0..40).map(|_| (self.sentence(), self.sentence())).collect();
        let mut out = Vec::with_capacity(len + 256);
        let mut millis = 1_700_000_000_000u64;
        while out.len() < len {
            millis += self.below(3000) as u64;
            let ((before, after), number) = (&forms[self.below(forms.len())], self.below(100_000));
            out.extend_from_slice(
                format!("{millis} [{}] {before} {number} {after}\n", number % 7).as_bytes(),
            );
        }
        out.truncate(len);
        out
    }

    /// A copy of compiled code with moved addresses: every 20 to 400 bytes, four are raised by the same distance.
    pub fn relocated(&mut self, of: &[u8]) -> Vec<u8> {
        let (mut out, distance) = (of.to_vec(), self.rng.next_u32() % 100_000);
        let mut at = 0;
        while let Some(address) = out.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
            *address = u32::from_le_bytes(*address).wrapping_add(distance).to_le_bytes();
            at += 20 + self.below(380);
        }
        out
    }

    /// A copy with a tenth of its lines moved, dropped or followed by a new one, as a next release of sources.
    pub fn reworked(&mut self, of: &[u8]) -> Vec<u8> {
        let mut lines: Vec<&[u8]> = of.split_inclusive(|byte| *byte == b'\n').collect();
        let fresh = self.text(of.len() / 30);
        let mut fresh = fresh.split_inclusive(|byte| *byte == b'\n');
        for _ in 0..lines.len() / 30 {
            let (from, to) = (self.below(lines.len()), self.below(lines.len() - 1));
            let moved = lines.remove(from);
            lines.insert(to, moved);
            lines.remove(self.below(lines.len()));
            lines.insert(self.below(lines.len()), fresh.next().unwrap_or(b"\n"));
        }
        lines.concat()
    }

    /// A copy with `count` runs of 1 to 32 bytes replaced, inserted or deleted.
    pub fn edited(&mut self, of: &[u8], count: usize) -> Vec<u8> {
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

    fn sentence(&mut self) -> String {
        let words = (0..20 + self.below(20)).map(|_| (0..3 + self.below(7)).map(|_| self.letter()).collect());
        words
            .collect::<Vec<Vec<u8>>>()
            .iter()
            .map(|word| String::from_utf8_lossy(word))
            .collect::<Vec<_>>()
            .join(" ")
    }

    fn letter(&mut self) -> u8 {
        b"etaoinshrdlcumwfgypbvk_.(){}=;"[self.below(30)]
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.rng.next_u64() % bound as u64) as usize
    }
}
