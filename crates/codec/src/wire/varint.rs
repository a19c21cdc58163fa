//! Variable-length integers: unsigned LEB128 in its shortest form, at most ten bytes.
//!
//! Seven bits a byte, the lowest first; the top bit of a byte says another follows. Exactly one encoding of each number
//! is accepted, so equal frames have equal bytes and a parser has one less way to be surprised. Signed numbers are
//! zigzagged first (0, −1, 1, −2 … become 0, 1, 2, 3 …).

/// The most bytes a varint takes.
pub const MAX_VARINT_LEN: usize = 10;

/// Appends `value` in its shortest form.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Takes a varint off the front of `input`.
///
/// Returns `None`, and leaves `input` as it was, when the input ends early, the number exceeds 64 bits, or it
/// is not in its shortest form.
#[inline]
pub fn take_varint(input: &mut &[u8]) -> Option<u64> {
    let (value, rest) = match input.split_first()? {
        (&only, rest) if only < 0x80 => (u64::from(only), rest),
        _ => take_from_word(input).unwrap_or_else(|| take_by_bytes(input))?,
    };
    *input = rest;
    Some(value)
}

/// Reads a varint from the first eight bytes at once, and what is behind it; `None` if it does not end within eight
/// bytes, or they are not there.
#[inline]
fn take_from_word(input: &[u8]) -> Option<Option<(u64, &[u8])>> {
    const TOPS: u64 = 0x8080_8080_8080_8080;
    let word = u64::from_le_bytes(*input.first_chunk()?);
    let ends = !word & TOPS;
    if ends == 0 {
        return None;
    }
    let len = ends.trailing_zeros() as usize / 8 + 1;
    // Nothing above the end's bit belongs to it.
    let word = word & (ends ^ (ends - 1));
    if len > 1 && word >> (8 * (len - 1)) == 0 {
        return Some(None);
    }
    // Groups of 7 bits become groups of 14, of 28, of 56.
    let word = (word & 0x007f_007f_007f_007f) | (word & 0x7f00_7f00_7f00_7f00) >> 1;
    let word = (word & 0x0000_3fff_0000_3fff) | (word & 0x3fff_0000_3fff_0000) >> 2;
    let word = (word & 0x0000_0000_0fff_ffff) | (word & 0x0fff_ffff_0000_0000) >> 4;
    Some(input.get(len..).map(|rest| (word, rest)))
}

/// Reads a varint of any length byte by byte, and what is behind it.
fn take_by_bytes(input: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0u64;
    for (index, &byte) in input.iter().take(MAX_VARINT_LEN).enumerate() {
        let bits = u64::from(byte & 0x7f);
        // The tenth byte has room for the 64th bit only.
        if index == MAX_VARINT_LEN - 1 && byte > 1 {
            return None;
        }
        value |= bits << (7 * index);
        if byte & 0x80 == 0 {
            if byte == 0 && index > 0 {
                return None;
            }
            return Some((value, input.get(index + 1..)?));
        }
    }
    None
}

/// Returns how many bytes [`put_varint`] appends for `value`: 1 to [`MAX_VARINT_LEN`].
#[inline]
pub fn varint_len(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

/// Maps a signed number to an unsigned one, small magnitudes to small numbers.
#[inline]
pub fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Undoes [`zigzag`].
#[inline]
pub fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn put(value: u64) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, value);
        out
    }

    fn take(mut input: &[u8]) -> Option<(u64, usize)> {
        let whole = input.len();
        take_varint(&mut input).map(|value| (value, whole - input.len()))
    }

    #[test]
    fn the_bytes_are_those_of_the_specification() {
        assert_eq!(put(0), [0]);
        assert_eq!(put(127), [0x7f]);
        assert_eq!(put(128), [0x80, 1]);
        assert_eq!(put(300), [0xac, 2]);
        assert_eq!(put(u64::MAX), [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]);
    }

    #[test]
    fn overlong_oversized_and_cut_numbers_are_refused() {
        assert_eq!(take(&[0x80, 0]), None, "overlong zero");
        assert_eq!(take(&[0xff, 0x80, 0]), None, "overlong");
        assert_eq!(take(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]), None, "65 bits");
        assert_eq!(take(&[0x80; 11]), None, "eleven bytes");
        assert_eq!(take(&[0xff; 10]), None, "unfinished at ten bytes");
        assert_eq!(take(&[0x80]), None, "cut");
        assert_eq!(take(&[]), None, "empty");
        assert_eq!(take(&[0x80, 0, 1, 1, 1, 1, 1, 1, 1]), None, "overlong zero with more behind it");
        assert_eq!(take(&[0xff, 0x80, 0, 1, 1, 1, 1, 1, 1]), None, "overlong with more behind it");
    }

    #[test]
    fn a_refused_number_leaves_the_input_alone() {
        let mut input: &[u8] = &[0x80, 0, 7];
        assert_eq!(take_varint(&mut input), None);
        assert_eq!(input, [0x80, 0, 7]);
    }

    proptest! {
        #[test]
        fn every_number_survives_the_trip(
            value: u64,
            shift in 0u32..64,
            behind in prop::collection::vec(any::<u8>(), 0..9),
        ) {
            let value = value >> shift;
            let mut bytes = put(value);
            let len = bytes.len();
            prop_assert_eq!(len, varint_len(value));
            bytes.extend(behind);
            prop_assert_eq!(take(&bytes), Some((value, len)));
        }

        #[test]
        fn accepted_varint_is_the_written_one(bytes in prop::collection::vec(any::<u8>(), 0..12)) {
            if let Some((value, len)) = take(&bytes) {
                prop_assert_eq!(&put(value)[..], &bytes[..len]);
            }
        }

        #[test]
        fn word_and_byte_readers_agree(
            bytes in prop::collection::vec(prop_oneof![Just(0u8), Just(0x80), any::<u8>(), 0x80u8..], 0..14),
        ) {
            if let Some(taken) = take_from_word(&bytes) {
                prop_assert_eq!(taken, take_by_bytes(&bytes));
            }
            let taken = take_by_bytes(&bytes).map(|(value, rest)| (value, bytes.len() - rest.len()));
            prop_assert_eq!(take(&bytes), taken);
        }

        #[test]
        fn zigzag_is_undone(value: i64) {
            prop_assert_eq!(unzigzag(zigzag(value)), value);
            prop_assert!(value.unsigned_abs() > 1000 || zigzag(value) <= 2000);
        }
    }
}
