//! A search for one of two bytes before a third.

/// Bytes looked at in one step of the loop.
const STEP: usize = 64;

/// Returns the first position of one of `firsts` directly before `second`.
pub fn find_pair(bytes: &[u8], firsts: [u8; 2], second: u8) -> Option<usize> {
    let is_pair = |a: u8, b: u8| ((a == firsts[0]) | (a == firsts[1])) & (b == second);
    let mut from = 0;
    // Without a branch for each byte: a step becomes a few vectors.
    while let Some((first, behind)) = bytes.get(from..from + STEP).zip(bytes.get(from + 1..=from + STEP)) {
        if first.iter().zip(behind).fold(false, |any, (a, b)| any | is_pair(*a, *b)) {
            break;
        }
        from += STEP;
    }
    let rest = bytes.get(from..).unwrap_or_default();
    let found = rest.iter().zip(rest.iter().skip(1)).position(|(a, b)| is_pair(*a, *b))?;
    Some(from + found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pair_anywhere_in_noise_is_found_as_by_windows() {
        let mut state = 1u64;
        let mut bytes: Vec<u8> = Vec::new();
        for _ in 0..3000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Few values, for frequent pairs.
            bytes.push((state >> 33) as u8 % 40);
        }
        let (mut from, mut pairs) = (0, 0);
        loop {
            let rest = &bytes[from..];
            let naive = rest.windows(2).position(|pair| (pair[0] == 22 || pair[0] == 23) && pair[1] == 3);
            assert_eq!(find_pair(rest, [22, 23], 3), naive, "from {from}");
            let Some(found) = naive else { break };
            from += found + 1;
            pairs += 1;
        }
        assert!(pairs > 1, "{pairs}");
    }

    #[test]
    fn pair_across_steps_and_at_the_end_is_found() {
        for len in [2, 63, 64, 65, 66, 128, 129, 130, 1000] {
            for at in 0..len - 1 {
                let mut bytes = vec![0u8; len];
                (bytes[at], bytes[at + 1]) = (23, 3);
                assert_eq!(find_pair(&bytes, [22, 23], 3), Some(at), "{at} of {len}");
                assert_eq!(find_pair(&bytes[..=at], [22, 23], 3), None);
            }
        }
        assert_eq!(find_pair(&[], [22, 23], 3), None);
        assert_eq!(find_pair(&[22], [22, 23], 3), None);
    }
}
