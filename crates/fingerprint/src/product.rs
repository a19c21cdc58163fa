//! The hash of MAXP and MODP: four bytes, multiplied.
//!
//! A product costs one vector instruction for eight positions; a rolling hash costs several scalar ones a position
//! [EndRE §5.1.1 on the cost of Rabin's]. Its upper bits depend on all four bytes.

/// The bytes of a position's hash.
pub(crate) const HASHED: usize = 4;

/// The multiplier: the golden ratio's fraction, as a prime of 32 bits (Knuth).
pub(crate) const MULTIPLIER: u32 = 0x9E37_79B1;

/// Returns the hash of the four bytes at `position`: as a little-endian number, times the multiplier, modulo 2^32.
///
/// It is 0 without four bytes.
#[inline(always)]
pub(crate) fn hash(bytes: &[u8], position: usize) -> u32 {
    let next = bytes.get(position..).and_then(<[u8]>::first_chunk);
    next.map_or(0, |next| u32::from_le_bytes(*next)).wrapping_mul(MULTIPLIER)
}
