//! Fingerprints: a hash of the window at a marker.
//!
//! Two 128-bit products a 32-byte window, in the manner of wyhash. The hash need not resist an adversary: bytes are
//! compared before anything is copied, and a collision costs one comparison.

/// Odd numbers with as many ones as zeros, from the fractions of π.
const SECRET: [u64; 4] =
    [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7345, 0xa409_3822_299f_31d1, 0x082e_fa98_ec4e_6c89];

/// Returns the fingerprint of `window`, fastest for 32 and 24 bytes.
///
/// All 64 bits are well mixed. The value is the same on every platform. The value of 32 bytes decides the cut of
/// chunks ([`crate::Levels`]), and the two ends of a link agree on it.
#[inline]
pub fn fingerprint(window: &[u8]) -> u64 {
    match window.as_chunks::<8>() {
        ([a, b, c, d], []) => of_words(*a, *b, *c, *d),
        ([a, b, c], []) => of_words(*a, *b, *c, [0; 8]),
        _ => of_any(window),
    }
}

#[inline]
fn of_words(a: [u8; 8], b: [u8; 8], c: [u8; 8], d: [u8; 8]) -> u64 {
    let low = mix(u64::from_le_bytes(a) ^ SECRET[0], u64::from_le_bytes(b) ^ SECRET[1]);
    let high = mix(u64::from_le_bytes(c) ^ SECRET[2], u64::from_le_bytes(d) ^ SECRET[3]);
    low.wrapping_add(high.rotate_left(29))
}

/// Sixteen bytes at a time, the last ones padded by zeros, the length mixed in.
fn of_any(window: &[u8]) -> u64 {
    window.chunks(16).fold(window.len() as u64, |state, chunk| {
        let mut padded = [0; 16];
        for (to, from) in padded.iter_mut().zip(chunk) {
            *to = *from;
        }
        let whole = u128::from_le_bytes(padded);
        mix(whole as u64 ^ SECRET[0] ^ state, (whole >> 64) as u64 ^ SECRET[1])
            .wrapping_add(state.rotate_left(29))
    })
}

/// Multiplies to 128 bits and folds the halves.
#[inline]
fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::noise;

    #[test]
    fn fingerprints_are_pinned() {
        let counting: Vec<u8> = (0..64).collect();
        let found: Vec<u64> =
            [0, 1, 12, 16, 31, 32, 33, 64].map(|len| fingerprint(&counting[..len])).to_vec();
        assert_eq!(found, PINNED, "{found:#018x?}");
        assert_eq!(fingerprint(&[0; 32]), ZEROS, "{:#018x}", fingerprint(&[0; 32]));
    }

    const PINNED: [u64; 8] = [
        0x0000_0000_0000_0000,
        0xcd79_6654_cf48_3bef,
        0x0a05_746b_f73f_b4eb,
        0x8577_53ad_a0fc_9b46,
        0x24e3_dd64_df83_98a2,
        0x508a_e838_bd79_5df4,
        0x6f88_f172_ee27_32c6,
        0x0771_bef6_9372_ac56,
    ];
    const ZEROS: u64 = 0x0e0b_b3c3_c91b_c2de;

    #[test]
    fn each_bit_of_the_window_moves_half_of_the_fingerprint() {
        for len in [12, 16, 24, 32, 48, 64] {
            let window = noise(len, 0);
            let plain = fingerprint(&window);
            for bit in 0..len * 8 {
                let mut flipped = window.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                let moved = (fingerprint(&flipped) ^ plain).count_ones();
                assert!((12..=52).contains(&moved), "bit {bit} of {len} bytes moves {moved}");
            }
        }
    }

    #[test]
    fn upper_and_lower_bits_spread_evenly() {
        let content = noise(70_000, 0);
        let windows = content.windows(32).take(65_536);
        let (mut upper, mut lower) = ([0u32; 256], [0u32; 256]);
        for window in windows {
            let hash = fingerprint(window);
            upper[(hash >> 56) as usize] += 1;
            lower[(hash & 0xff) as usize] += 1;
        }
        for count in upper.into_iter().chain(lower) {
            assert!((170..=350).contains(&count), "{count} of 256 expected");
        }
    }
}
