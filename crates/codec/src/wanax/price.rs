//! The cost of bytes sent: if it is below a name's, they are not named.

use super::{LEAST_NAMED, NAME_LEN, SHORT_NAME_LEN};
use crate::entropy::{Entropy, Kind};

/// What the entropy stage has lately made of a flow's bytes; the later ones weigh more.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    into: usize,
    out: usize,
}

impl Spent {
    /// Counts a body that became so many bytes.
    pub(crate) const fn count(&mut self, into: usize, out: usize) {
        self.into += into;
        self.out += out;
        while self.into > REMEMBERED {
            (self.into, self.out) = (self.into / 2, self.out / 2);
        }
    }
}

/// What bytes of a block are likely to cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Price {
    kind: Option<Kind>,
    spent: Spent,
}

impl Price {
    /// That of the next block of a flow.
    pub(crate) const fn new(entropy: Entropy, spent: Spent) -> Self {
        Self { kind: entropy.kind(), spent }
    }

    /// The shortest chunk that is worth a name: compressed, the bytes of a short one take little more.
    pub(crate) const fn least_named(self) -> usize {
        if self.kind.is_some() { LEAST_COMPRESSED } else { LEAST_NAMED }
    }

    /// Whether a chunk is likely to cost less than its name, taking `name` bytes.
    ///
    /// A run does, however long it is. Of anything else only short chunks are believed to, and these only with few
    /// different bytes: earlier content may have been of another kind. Without compression, bytes cost themselves, and
    /// a name has to save as much as it takes.
    pub(crate) fn is_below_name(self, chunk: &[u8], name: usize) -> bool {
        let Some(kind) = self.kind else { return chunk.len() < 2 * name };
        let run = match kind {
            Kind::Zstd => RUN,
            // A byte for each 255 of its length.
            Kind::Lz4 => RUN + chunk.len() / 255,
        };
        if run < name && is_run(chunk) {
            return true;
        }
        let Spent { into, out } = self.spent;
        chunk.len() <= SHORT
            && into >= ENOUGH
            && chunk.len() / MOST_GAIN < name
            && chunk.len() * out < name * into
            && is_plain(chunk)
    }
}

/// Whether a chunk repeats its first few bytes.
fn is_run(chunk: &[u8]) -> bool {
    PERIODS.iter().any(|&period| {
        let overlap = chunk.len().saturating_sub(period);
        overlap > 0 && chunk.get(period..) == chunk.get(..overlap)
    })
}

/// Whether a short chunk has so few different bytes as text.
fn is_plain(chunk: &[u8]) -> bool {
    let mut seen = [0u64; 4];
    for &byte in chunk {
        if let Some(word) = seen.get_mut(usize::from(byte >> 6)) {
            *word |= 1 << (byte & 63);
        }
    }
    seen.iter().map(|word| word.count_ones()).sum::<u32>() <= PLAIN
}

/// What a name takes in a list of several, with gap, length and level.
pub(crate) const NAME: usize = NAME_LEN + 4;
/// The same of a short one.
pub(crate) const SHORT_NAME: usize = SHORT_NAME_LEN + 3;
/// The shortest chunk named where something compresses it.
const LEAST_COMPRESSED: usize = 64;
/// What a run costs in the middle of other bytes.
const RUN: usize = 8;
/// The lengths of what runs consist of.
const PERIODS: [usize; 4] = [1, 2, 4, 8];
/// The longest chunk judged by what came before.
const SHORT: usize = 256;
/// No more than to one part in so many are bytes believed to shrink.
const MOST_GAIN: usize = 8;
/// So many bytes say something about those following.
const ENOUGH: usize = 1 << 10;
/// Of so many bytes about is known what became of them.
const REMEMBERED: usize = 256 << 10;
/// The most different bytes of what is taken for text; noise of 64 bytes has 57.
const PLAIN: u32 = 48;

#[cfg(test)]
mod tests {
    use super::*;

    fn price(entropy: Entropy, into: usize, out: usize) -> Price {
        let mut spent = Spent::default();
        spent.count(into, out);
        Price::new(entropy, spent)
    }

    #[test]
    fn compressible_run_is_never_named() {
        let words: Vec<u8> = b"abcdefgh".repeat(1000);
        for entropy in [Entropy::Zstd(1), Entropy::Lz4] {
            let price = price(entropy, 0, 0);
            assert!(
                price.is_below_name(&[0; 2048], NAME) && price.is_below_name(&words[3..1003], NAME),
                "{entropy}"
            );
            assert!(!price.is_below_name(b"abcdefgh-abcdefgh", NAME), "{entropy}");
        }
        assert!(price(Entropy::Zstd(1), 0, 0).is_below_name(&words, NAME));
        assert!(!price(Entropy::Lz4, 0, 0).is_below_name(&words, NAME), "a byte for each 255");
        assert!(!price(Entropy::None, 1 << 20, 1).is_below_name(&[0; 2048], NAME));
        let plain = price(Entropy::None, 1 << 20, 1);
        assert!(plain.is_below_name(&[0; 2 * NAME - 1], NAME) && !plain.is_below_name(&[0; 2 * NAME], NAME));
        assert!(!plain.is_below_name(&[0; LEAST_NAMED], SHORT_NAME));
        assert!(!price(Entropy::Zstd(1), 0, 0).is_below_name(b"", NAME));
    }

    #[test]
    fn short_text_is_not_named_while_a_flow_compresses_well() {
        let text: Vec<u8> =
            (0..).flat_map(|i: u32| format!("{} of {}; ", i * 7, i).into_bytes()).take(300).collect();
        let well = price(Entropy::Zstd(1), 100_000, 15_000);
        assert!(well.is_below_name(&text[..150], NAME));
        assert!(!well.is_below_name(&text[..170], NAME), "25 bytes");
        assert!(!price(Entropy::Zstd(1), 100_000, 40_000).is_below_name(&text[..100], NAME));
        assert!(price(Entropy::Zstd(1), 100_000, 40_000).is_below_name(&text[..59], NAME));
        assert!(!price(Entropy::Zstd(1), 1000, 10).is_below_name(&text[..100], NAME), "too little is known");
        assert!(
            !price(Entropy::Zstd(1), 100_000, 100).is_below_name(&text[..200], NAME),
            "too good to be true"
        );
        assert!(!well.is_below_name(&text[..68], SHORT_NAME), "10 bytes");
        assert!(well.is_below_name(&text[..59], SHORT_NAME));
        let noise: Vec<u8> = (0..100u8).collect();
        assert!(!well.is_below_name(&noise, NAME), "of another kind");
    }

    #[test]
    fn old_results_count_little() {
        let mut spent = Spent::default();
        (0..100).for_each(|_| spent.count(65_536, 60_000));
        (0..12).for_each(|_| spent.count(65_536, 6_000));
        let price = Price::new(Entropy::Zstd(1), spent);
        assert!(price.is_below_name(&b"some text, ".repeat(13)[..140], NAME));
    }
}
