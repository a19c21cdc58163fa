//! The verify gate's cryptographic digest, for blocks of which nobody compared the bytes.

/// Makes the digests of one direction of a link; it remembers the last epoch's key, which costs as much to derive as
/// a short digest.
pub(crate) struct StrongDigests {
    seed: u64,
    key: Option<(u64, [u8; 32])>,
}

/// The length of a digest: nobody who lacks the key can do better than guess, and 128 bits are not guessed.
pub(crate) const STRONG_LEN: usize = 16;

impl StrongDigests {
    /// Takes the seed that the encoding side named in its hello.
    pub(crate) const fn new(seed: u64) -> Self {
        Self { seed, key: None }
    }

    /// Returns the digest of a block's plain bytes: the first half of BLAKE3, keyed by seed and epoch.
    pub(crate) fn digest(&mut self, epoch: u64, plain: &[u8]) -> [u8; STRONG_LEN] {
        let key = match self.key {
            Some((of, key)) if of == epoch => key,
            _ => self.derive(epoch),
        };
        let whole = blake3::keyed_hash(&key, plain);
        *whole.as_bytes().first_chunk().unwrap_or(&[0; STRONG_LEN])
    }

    fn derive(&mut self, epoch: u64) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
        hasher.update(&self.seed.to_le_bytes()).update(&epoch.to_le_bytes());
        let key = *hasher.finalize().as_bytes();
        self.key = Some((epoch, key));
        key
    }
}

/// What the keys are for; part of the wire format.
const CONTEXT: &str = "oncewire 2026-11-22 strong block digest";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_pinned_and_depends_on_seed_and_epoch() {
        let mut digests = StrongDigests::new(5);
        let first = digests.digest(1, b"once");
        assert_eq!(first, PINNED, "{first:02x?}");
        assert_ne!(digests.digest(2, b"once"), first);
        assert_eq!(digests.digest(1, b"once"), first);
        assert_ne!(StrongDigests::new(6).digest(1, b"once"), first);
        assert_ne!(digests.digest(1, b"oncf"), first);
    }

    const PINNED: [u8; STRONG_LEN] =
        [0x22, 0xe2, 0xb7, 0xa7, 0x81, 0x9e, 0xca, 0xfe, 0xd5, 0x51, 0x4f, 0xb1, 0xcf, 0x56, 0xe5, 0xf7];
}
