//! How far two runs of bytes agree. Long repeats cost little else, so these loops matter most.

/// Bytes compared in one step of the long loops.
const STEP: usize = 32;

/// Returns how many bytes at the start of `a` and `b` are equal.
#[inline]
pub fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let len = a.len().min(b.len());
    let (Some(a), Some(b)) = (a.get(..len), b.get(..len)) else { return 0 };
    let (steps_a, _) = a.as_chunks::<STEP>();
    let (steps_b, _) = b.as_chunks::<STEP>();
    let equal = steps_a.iter().zip(steps_b).take_while(|(a, b)| a == b).count() * STEP;
    let (Some(a), Some(b)) = (a.get(equal..), b.get(equal..)) else { return equal };
    equal + prefix_by_words(a, b)
}

/// Returns how many bytes at the end of `a` and `b` are equal.
#[inline]
pub fn common_suffix(a: &[u8], b: &[u8]) -> usize {
    let len = a.len().min(b.len());
    let (Some(a), Some(b)) = (a.get(a.len() - len..), b.get(b.len() - len..)) else { return 0 };
    let (_, steps_a) = a.as_rchunks::<STEP>();
    let (_, steps_b) = b.as_rchunks::<STEP>();
    let equal = steps_a.iter().zip(steps_b).rev().take_while(|(a, b)| a == b).count() * STEP;
    let (Some(a), Some(b)) = (a.get(..len - equal), b.get(..len - equal)) else { return equal };
    equal + suffix_by_words(a, b)
}

/// Returns the first position from which on `a` and `b` are equal for 16 bytes, or for the 8 or more remaining ones.
#[inline]
pub fn resync(a: &[u8; 64], b: &[u8; 64]) -> Option<usize> {
    let mut differ = 0;
    for (index, (a, b)) in a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0).enumerate() {
        differ |= differing_bytes(u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b)) << (8 * index);
    }
    // A position is spoilt by a difference in any of the bytes from it on.
    let spoilt = differ | differ >> 1;
    let spoilt = spoilt | spoilt >> 2;
    let spoilt = spoilt | spoilt >> 4;
    let spoilt = spoilt | spoilt >> 8;
    let first = (!spoilt).trailing_zeros() as usize;
    (first <= a.len() - 8).then_some(first)
}

/// Returns a bit for each nonzero byte of `word`.
#[inline]
fn differing_bytes(word: u64) -> u64 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let nonzero = (((word & LOW) + LOW) | word) & !LOW;
    // Moves the upper bit of byte i to bit 56 + i.
    (nonzero >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

/// The prefix of two slices of one length, eight bytes at a time; the mismatch is among the first few.
#[inline]
fn prefix_by_words(a: &[u8], b: &[u8]) -> usize {
    let (words_a, rest_a) = a.as_chunks::<8>();
    let (words_b, rest_b) = b.as_chunks::<8>();
    for (index, (a, b)) in words_a.iter().zip(words_b).enumerate() {
        let differ = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if differ != 0 {
            return index * 8 + differ.trailing_zeros() as usize / 8;
        }
    }
    words_a.len() * 8 + rest_a.iter().zip(rest_b).take_while(|(a, b)| a == b).count()
}

/// The suffix of two slices of one length, eight bytes at a time; the mismatch is among the last few.
#[inline]
fn suffix_by_words(a: &[u8], b: &[u8]) -> usize {
    let (rest_a, words_a) = a.as_rchunks::<8>();
    let (rest_b, words_b) = b.as_rchunks::<8>();
    for (index, (a, b)) in words_a.iter().zip(words_b).rev().enumerate() {
        let differ = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if differ != 0 {
            return index * 8 + differ.leading_zeros() as usize / 8;
        }
    }
    words_a.len() * 8 + rest_a.iter().zip(rest_b).rev().take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn naive_prefix(a: &[u8], b: &[u8]) -> usize {
        a.iter().zip(b).take_while(|(a, b)| a == b).count()
    }

    fn naive_suffix(a: &[u8], b: &[u8]) -> usize {
        a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count()
    }

    #[test]
    fn a_difference_at_every_place_is_seen() {
        for len in 0..150 {
            let a = vec![7u8; len];
            assert_eq!((common_prefix(&a, &a), common_suffix(&a, &a)), (len, len));
            for place in 0..len {
                let mut b = a.clone();
                b[place] ^= 0x80;
                assert_eq!(common_prefix(&a, &b), place);
                assert_eq!(common_suffix(&a, &b), len - place - 1);
            }
        }
    }

    fn naive_resync(a: &[u8; 64], b: &[u8; 64]) -> Option<usize> {
        (0..=56).find(|&first| (first..64.min(first + 16)).all(|at| a[at] == b[at]))
    }

    proptest! {
        #[test]
        fn resync_agrees_with_the_naive_version(
            a in prop::array::uniform32(any::<[u8; 2]>()),
            differ in prop::collection::vec((0usize..64, 1u8..), 0..12),
        ) {
            let mut first = [0; 64];
            first.copy_from_slice(a.as_flattened());
            let mut second = first;
            differ.iter().for_each(|&(at, by)| second[at] ^= by);
            prop_assert_eq!(resync(&first, &second), naive_resync(&first, &second));
        }

        #[test]
        fn both_agree_with_the_naive_versions(
            a in prop::collection::vec(0u8..2, 0..300),
            b in prop::collection::vec(0u8..2, 0..300),
            shared in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let before = |own: &[u8]| [&shared[..], own].concat();
            let after = |own: &[u8]| [own, &shared[..]].concat();
            prop_assert_eq!(
                common_prefix(&before(&a), &before(&b)),
                naive_prefix(&before(&a), &before(&b))
            );
            prop_assert_eq!(common_suffix(&after(&a), &after(&b)), naive_suffix(&after(&a), &after(&b)));
        }
    }
}
