//! Sorted numbers in few bits.
//!
//! Gaps between neighbours are Rice codes: a quotient in ones up to a zero, then enough bits of the rest for small
//! quotients in the mean. Hashes have gaps of all sizes, so they take a bit and a half more than the mean gap.

/// Appends numbers below `limit`, each once and in their order, and fills up the last byte; sorts them for it.
///
/// Each of evenly spread numbers takes about `log2(limit / count) + 1.5` bits.
pub(crate) fn encode(numbers: &mut Vec<u64>, limit: u64, into: &mut Vec<u8>) {
    numbers.sort_unstable();
    numbers.dedup();
    let rest = rest_bits(numbers.len(), limit);
    let mut bits = Writer { into, word: 0, used: 0 };
    let mut least = 0;
    for number in numbers.iter() {
        let gap = number - least;
        let ones = gap >> rest;
        (0..ones / 32).for_each(|_| bits.put((1 << 32) - 1, 32));
        let ones = (ones % 32) as u32;
        bits.put((1 << ones) - 1, ones + 1);
        bits.put(gap & ((1 << rest) - 1), rest);
        least = number + 1;
    }
    bits.finish();
}

/// Returns the most bytes of so many numbers below `limit`.
pub(crate) fn most_bytes(count: usize, limit: u64) -> usize {
    let rest = rest_bits(count, limit);
    // All quotients together are at most those of the whole range.
    let ones = (limit >> rest).min(usize::MAX as u64 / 16) as usize;
    (count * (rest as usize + 1) + ones).div_ceil(8)
}

/// Takes so many numbers from the beginning, and returns the bytes behind them; none unless all are there and below
/// `limit`.
pub(crate) fn decode<'a>(
    bytes: &'a [u8],
    count: usize,
    limit: u64,
    numbers: &mut Vec<u64>,
) -> Option<&'a [u8]> {
    let rest = rest_bits(count, limit);
    let mut bits = Reader { bytes, at: 0 };
    let mut least = 0;
    for _ in 0..count {
        let quotient = bits.ones()?;
        let gap = quotient.checked_mul(1 << rest)?.checked_add(bits.take(rest)?)?;
        let number = gap.checked_add(least).filter(|number| *number < limit)?;
        numbers.push(number);
        least = number + 1;
    }
    bytes.get(bits.at.div_ceil(8)..)
}

/// Returns how many bits of a gap are put as they are.
fn rest_bits(count: usize, limit: u64) -> u32 {
    (limit / (count as u64 + 1)).checked_ilog2().unwrap_or(0).min(MOST_REST)
}

struct Writer<'a> {
    into: &'a mut Vec<u8>,
    word: u64,
    /// Bits of the word, less than 8 between two calls.
    used: u32,
}

impl Writer<'_> {
    /// Puts at most [`MOST_REST`] bits, the lowest first.
    fn put(&mut self, bits: u64, count: u32) {
        self.word |= bits << self.used;
        self.used += count;
        let whole = self.used / 8;
        self.into.extend_from_slice(&self.word.to_le_bytes()[..whole as usize]);
        self.word >>= 8 * whole;
        self.used %= 8;
    }

    fn finish(self) {
        if self.used > 0 {
            self.into.push(self.word as u8);
        }
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    /// The next bit.
    at: usize,
}

impl Reader<'_> {
    /// Returns the next 57 bits, and more; zeros behind the end.
    fn word(&self) -> u64 {
        let mut word = [0; 8];
        let rest = self.bytes.get(self.at / 8..).unwrap_or_default();
        word.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        u64::from_le_bytes(word) >> (self.at % 8)
    }

    fn skip(&mut self, bits: u32) -> Option<()> {
        self.at += bits as usize;
        (self.at <= self.bytes.len() * 8).then_some(())
    }

    /// Counts ones up to a zero, and takes the zero, too.
    fn ones(&mut self) -> Option<u64> {
        let mut count = 0;
        loop {
            let ones = self.word().trailing_ones().min(MOST_REST);
            count += u64::from(ones);
            let is_all = ones < MOST_REST;
            self.skip(ones + u32::from(is_all))?;
            if is_all {
                return Some(count);
            }
        }
    }

    fn take(&mut self, bits: u32) -> Option<u64> {
        let taken = self.word() & ((1 << bits) - 1);
        self.skip(bits)?;
        Some(taken)
    }
}

/// Bits of a word from any start within a byte.
const MOST_REST: u32 = 56;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn encoded_numbers_are_decoded(
            limit_bits in 1..57u32, raw in proptest::collection::vec(any::<u64>(), 0..600), behind: Vec<u8>,
        ) {
            let limit = 1 << limit_bits;
            let mut numbers: Vec<u64> = raw.into_iter().map(|number| number % limit).collect();
            let mut bytes = Vec::new();
            encode(&mut numbers, limit, &mut bytes);
            prop_assert!(bytes.len() <= most_bytes(numbers.len(), limit));
            bytes.extend_from_slice(&behind);
            let mut taken = Vec::new();
            prop_assert_eq!(decode(&bytes, numbers.len(), limit, &mut taken), Some(&behind[..]));
            prop_assert_eq!(taken, numbers);
        }

        #[test]
        fn any_bytes_are_numbers_below_the_limit_or_none(
            limit in 0..u64::MAX >> 8, count in 0..9000usize, bytes in proptest::collection::vec(any::<u8>(), 0..500),
        ) {
            let mut taken = Vec::new();
            let _ = decode(&bytes, count, limit, &mut taken);
            prop_assert!(taken.iter().all(|number| *number < limit) && taken.is_sorted());
        }
    }

    #[test]
    fn evenly_spread_numbers_take_little_more_than_their_gaps() {
        let limit = 1 << 33;
        let mut state = 1_u64;
        let mut numbers: Vec<u64> = (0..512)
            .map(|_| {
                state = state.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1);
                state >> 31
            })
            .collect();
        let mut bytes = Vec::new();
        encode(&mut numbers, limit, &mut bytes);
        assert!(bytes.len() * 8 < 512 * 26, "{} bytes", bytes.len());
    }
}
