//! The verify gate's digest against chosen bytes, for blocks without a comparison of bytes.

use highway::{HighwayHash, HighwayHasher, Key};

/// How such digests are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StrongKind {
    /// HighwayHash, which is made for short keyed digests and takes a third of the time.
    #[default]
    Highway,
    /// BLAKE3, for peers knowing nothing else.
    Blake3,
}

/// Makes the digests of one direction of a link; it remembers the last epoch's key, which costs as much to derive as
/// a short digest.
pub(crate) struct StrongDigests {
    seed: u64,
    kind: StrongKind,
    key: Option<(u64, [u8; 32])>,
}

/// The length of a digest: nobody who lacks the key can do better than guess, and 128 bits are not guessed.
pub(crate) const STRONG_LEN: usize = 16;

impl StrongDigests {
    /// Takes the seed the encoding side named in its hello, and what both sides understand.
    pub(crate) const fn new(seed: u64, kind: StrongKind) -> Self {
        Self { seed, kind, key: None }
    }

    /// Returns the digest of a block's plain bytes, keyed by seed and epoch.
    pub(crate) fn digest(&mut self, epoch: u64, plain: &[u8]) -> [u8; STRONG_LEN] {
        let key = match self.key {
            Some((of, key)) if of == epoch => key,
            _ => self.derive(epoch),
        };
        match self.kind {
            StrongKind::Highway => {
                let [low, high] = HighwayHasher::new(Key(words(&key))).hash128(plain);
                (u128::from(high) << 64 | u128::from(low)).to_le_bytes()
            }
            StrongKind::Blake3 => {
                let whole = blake3::keyed_hash(&key, plain);
                *whole.as_bytes().first_chunk().unwrap_or(&[0; STRONG_LEN])
            }
        }
    }

    fn derive(&mut self, epoch: u64) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
        hasher.update(&self.seed.to_le_bytes()).update(&epoch.to_le_bytes());
        let key = *hasher.finalize().as_bytes();
        self.key = Some((epoch, key));
        key
    }
}

/// A key as the words it is made of, the first byte of each being the lowest.
fn words(key: &[u8; 32]) -> [u64; 4] {
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(key.as_chunks().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    words
}

/// What the keys are for; part of the wire format.
const CONTEXT: &str = "oncewire 2026-11-22 strong block digest";

#[cfg(test)]
mod tests {
    use highway::PortableHash;

    use super::*;

    #[test]
    fn digests_are_pinned_and_depend_on_kind_seed_and_epoch() {
        for (kind, pinned) in [(StrongKind::Highway, HIGHWAY), (StrongKind::Blake3, BLAKE3)] {
            let mut digests = StrongDigests::new(5, kind);
            let first = digests.digest(1, b"once");
            assert_eq!(first, pinned, "{kind:?}: {first:02x?}");
            assert_ne!(digests.digest(2, b"once"), first);
            assert_eq!(digests.digest(1, b"once"), first);
            assert_ne!(StrongDigests::new(6, kind).digest(1, b"once"), first);
            assert_ne!(digests.digest(1, b"oncf"), first);
        }
    }

    #[test]
    fn highway_hash_is_the_published_one() {
        // Those of no byte, of 0, and of 0 and 1, under the key of the bytes 0 to 31 [google/highwayhash].
        let key: [u8; 32] = std::array::from_fn(|at| at as u8);
        let vectors = [
            [0x0fed_268f_9d8f_fec7, 0x3356_5e76_7f09_3e6f],
            [0xd6b0_a889_3681_e7a8, 0xdc29_1df9_eb9c_dcb4],
            [0x3d15_ad26_5a16_da04, 0x7808_5638_dc32_e868],
        ];
        for (len, expected) in vectors.into_iter().enumerate() {
            assert_eq!(HighwayHasher::new(Key(words(&key))).hash128(&[0, 1][..len]), expected);
        }
    }

    #[test]
    fn every_processor_makes_the_same_digests() {
        let plain: Vec<u8> = (0..65_537u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for len in (0..200).chain([4096, 65_536, 65_537]) {
            let (key, plain) = (Key([1, 2, 3, 4]), &plain[..len]);
            let (here, anywhere) = (HighwayHasher::new(key), PortableHash::new(key));
            assert_eq!(here.hash128(plain), anywhere.hash128(plain), "{len} bytes");
        }
    }

    const HIGHWAY: [u8; STRONG_LEN] =
        [0x9a, 0x31, 0xec, 0xa0, 0x30, 0x4f, 0xba, 0x74, 0x59, 0x3e, 0xfe, 0x81, 0x9b, 0xbe, 0x09, 0x21];
    const BLAKE3: [u8; STRONG_LEN] =
        [0x22, 0xe2, 0xb7, 0xa7, 0x81, 0x9e, 0xca, 0xfe, 0xd5, 0x51, 0x4f, 0xb1, 0xcf, 0x56, 0xe5, 0xf7];
}
