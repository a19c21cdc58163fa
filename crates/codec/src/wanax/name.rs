//! Names of chunks: a fast half to look for, and a strong half to rely on.
//!
//! Every chunk of every level needs a number for look-ups, mostly its only use; digests of all of them would cost
//! several times the chunking. So the first 8 bytes of a name, the *tag*, are a fast hash, and only a chunk referred to
//! by all of its name, or read by it, gets the other 12, a cryptographic one. Both are keyed: nobody without the key
//! can tell the name of known content. Content with equal tags can be found with the key, and, without knowledge of
//! success, by trial without it.

use std::fmt;
use std::sync::Arc;

use twox_hash::XxHash3_64;

use crate::wire::MAX_NAMES;

/// The name of a chunk: 8 bytes of tag, 12 bytes of keyed BLAKE3.
///
/// The tag of a chunk below 4 KiB, of which there are many, says 48 bits: bits 16 to 31 repeat bits 32 to 47. It is
/// looked for together with its length.
///
/// Chunks of different bytes share a name with a probability of 2⁻⁹⁶ unless someone with the key looks for such, at a
/// cost of 2⁴⁸ digests. The length is not part of it: each reference states it too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(pub [u8; NAME_LEN]);

/// The bytes of a name: as many as the paper's SHA-1 has.
pub const NAME_LEN: usize = 20;

/// The bytes of a name that are its tag.
pub const TAG_LEN: usize = 8;

impl Name {
    /// Returns the fast half, by which tables and indexes go.
    pub fn tag(&self) -> u64 {
        self.0.first_chunk().map_or(0, |tag| u64::from_le_bytes(*tag))
    }

    /// Returns the meaning of a name from a peer without tags of 48 bits, for a chunk of `len` bytes.
    pub(crate) fn folded(mut self, len: u32) -> Self {
        let tag = tag_of_hash(self.tag(), len as usize);
        self.0.iter_mut().zip(tag.to_le_bytes()).for_each(|(to, from)| *to = from);
        self
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A tag with bits 16 to 31 repeating bits 32 to 47, in the six bytes of its value.
///
/// So are those of chunks below 4 KiB. Tables go by the upper half and the lowest bits: these are the bits between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag48(pub(crate) [u8; Self::LEN]);

impl Tag48 {
    /// Its bytes.
    pub(crate) const LEN: usize = 6;

    /// Returns the short form of a tag; none if other bits stand in place of repeated ones.
    pub(crate) fn of(tag: u64) -> Option<Self> {
        let short = Self::of_hash(tag);
        (short.tag() == tag).then_some(short)
    }

    /// Returns what is kept of a hash.
    const fn of_hash(hash: u64) -> Self {
        let [a, b, _, _, c, d, e, f] = hash.to_le_bytes();
        Self([a, b, c, d, e, f])
    }

    /// Returns the tag.
    pub(crate) const fn tag(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_le_bytes([a, b, c, d, c, d, e, f])
    }
}

/// Chunks of fewer bytes have tags of 48 bits. So do only those a chunk store has in tables of one choice, going by
/// other bits than those repeating.
const TAG_48_BELOW: usize = 4096;

/// Returns the tag of a chunk of `len` bytes, of its hash or of what another build takes for its tag.
pub(crate) const fn tag_of_hash(hash: u64, len: usize) -> u64 {
    if len < TAG_48_BELOW { Tag48::of_hash(hash).tag() } else { hash }
}

/// How a block refers to a chunk, and a store is asked for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkName {
    /// By its name: whoever reads the chunk can tell whether it is the one.
    Full(Name),
    /// By its tag alone: that of other bytes of its length with a probability of 2⁻⁶⁴, below 4 KiB 2⁻⁴⁸, or on purpose.
    /// Its block needs a strong digest.
    Short(u64),
}

/// The bytes of a short name of a chunk below 4 KiB; others have all of the tag, 8.
pub const SHORT_NAME_LEN: usize = Tag48::LEN;

/// A receiving half with a store takes short names for chunks of fewer bytes: all but roots, where the degree is 8.
pub const SHORT_BELOW: u32 = 16 << 10;

/// What a strong digest takes more than another, in bytes.
pub const STRONG_MORE: usize = 8;

/// Whether so many chunks of a block are named by their tags, taking a strong digest of all of it at both ends.
///
/// A byte is to be saved for each 2 KiB: the digest takes about as long as the entropy stage for one byte in so many.
/// Chunks are taken for such as are below 4 KiB; larger ones save two bytes less each.
pub const fn are_tags_worth_it(chunks: usize, block_len: usize) -> bool {
    chunks * (NAME_LEN - SHORT_NAME_LEN) >= STRONG_MORE + block_len / 2048
}

/// Whether a chunk of `len` bytes is worth one of the names a block may have, of which it has `names`, with `rest`
/// bytes from the chunk's first to the block's end.
///
/// Half of them are free for all; with the others the whole rest could be named in pieces as long as this one, so a
/// chunk of 64 bytes or more always finds one left.
pub const fn is_worth_one_of_the_names(names: usize, len: usize, rest: usize) -> bool {
    names < MAX_NAMES / 2 || rest <= len.saturating_mul(MAX_NAMES.saturating_sub(names))
}

/// Nothing is named in a block of fewer bytes: a name would save little, and a record in a store would cost more.
pub const LEAST_BLOCK: usize = 512;

/// The fewest bytes named without an entropy stage; one would make nearly as little of them: a short name takes 8 to 12
/// bytes of a block, in a row of several mostly 8 or 9.
pub const LEAST_NAMED: usize = 18;

/// The shortest chunk offered and announced between the gateways of a site; shorter ones lie with the larger ones
/// around them.
pub const LEAST_SHARED: u32 = 2048;

/// The shortest chunk asked for at the gateways of a site.
pub const LEAST_SOUGHT: u32 = 256;

impl ChunkName {
    /// Returns the tag, which both kinds have.
    pub fn tag(&self) -> u64 {
        match self {
            Self::Full(name) => name.tag(),
            Self::Short(tag) => *tag,
        }
    }

    /// Whether it is a tag alone.
    pub const fn is_short(&self) -> bool {
        matches!(self, Self::Short(_))
    }

    /// Whether `chunk` is what is referred to, as far as this says.
    pub fn matches(&self, chunk: &[u8], key: &NameKey) -> bool {
        match self {
            Self::Full(name) => key.matches(name, chunk),
            Self::Short(tag) => key.tag(chunk) == *tag,
        }
    }
}

/// The key of names: one gateway's for one peer, or a trust group's.
///
/// Names of equal content under different keys have nothing in common. Clones share their memory, 260 bytes.
#[derive(Clone)]
pub struct NameKey(Arc<Keys>);

struct Keys {
    group: [u8; KEY_LEN],
    /// XXH3's secret input, in place of public constants.
    fast: [u8; FAST_SECRET],
    strong: [u8; blake3::KEY_LEN],
}

impl NameKey {
    /// Derives the keys of both halves from a secret, shared by all readers of the names.
    pub fn new(group: [u8; KEY_LEN]) -> Self {
        let mut fast = [0; FAST_SECRET];
        blake3::Hasher::new_derive_key(FAST_CONTEXT).update(&group).finalize_xof().fill(&mut fast);
        let strong = blake3::derive_key(STRONG_CONTEXT, &group);
        Self(Arc::new(Keys { group, fast, strong }))
    }

    /// Returns what it was made from, to be told to a peer.
    pub fn bytes(&self) -> &[u8; KEY_LEN] {
        &self.0.group
    }

    /// Returns the tag of a chunk: the fast half of its name, as a little-endian number.
    #[inline]
    pub fn tag(&self, chunk: &[u8]) -> u64 {
        // A secret of this length is never refused.
        let hash = XxHash3_64::oneshot_with_secret(&self.0.fast, chunk).unwrap_or_default();
        tag_of_hash(hash, chunk.len())
    }

    /// Returns the name of a chunk.
    pub fn name(&self, chunk: &[u8]) -> Name {
        self.name_tagged(self.tag(chunk), chunk)
    }

    /// Returns the name of a chunk whose tag is known already.
    pub fn name_tagged(&self, tag: u64, chunk: &[u8]) -> Name {
        let mut name = [0; NAME_LEN];
        let digest = blake3::keyed_hash(&self.0.strong, chunk);
        let halves = tag.to_le_bytes().into_iter().chain(digest.as_bytes().iter().copied());
        name.iter_mut().zip(halves).for_each(|(to, from)| *to = from);
        Name(name)
    }

    /// Returns whether `chunk` is what `name` names, both halves compared.
    pub fn matches(&self, name: &Name, chunk: &[u8]) -> bool {
        let tag = self.tag(chunk);
        tag == name.tag() && self.name_tagged(tag, chunk) == *name
    }
}

impl PartialEq for NameKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.group == other.0.group
    }
}

impl Eq for NameKey {}

impl fmt::Debug for NameKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NameKey(..)")
    }
}

/// The bytes a key is made from.
const KEY_LEN: usize = 32;

/// As long as XXH3's own secret.
const FAST_SECRET: usize = 192;

/// What the fast half's secret is for; both are part of the names' format.
const FAST_CONTEXT: &str = "oncewire 2026-11-22 tag of a chunk";
const STRONG_CONTEXT: &str = "oncewire 2026-11-22 name of a chunk";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::MAX_BLOCK;

    fn key(byte: u8) -> NameKey {
        NameKey::new([byte; KEY_LEN])
    }

    #[test]
    fn names_are_pinned() {
        let long: Vec<u8> = (0..1000u32).map(|i| ((i * i) >> 3) as u8).collect();
        let names = [&b""[..], b"once", &long[..200], &long].map(|chunk| format!("{:?}", key(7).name(chunk)));
        assert_eq!(names, PINNED, "{names:#?}");
    }

    const PINNED: [&str; 4] = [
        "5b9d13a413a46bb4241071f69a46e4bf3397050c",
        "c6f1795679567163d03c6fe8c02d28d519a1aabc",
        "2b72014e014e434b269fd25806add6f163c85a2d",
        "f2a6adeeadee48abba21219000376281b64a45e5",
    ];

    #[test]
    fn tag_below_4_kib_has_48_bits() {
        let key = key(1);
        let tags = [1, 100, 4095, 4096, 9000].map(|len| Tag48::of(key.tag(&vec![3; len])).map(Tag48::tag));
        let whole = [1, 100, 4095].map(|len| Some(key.tag(&vec![3; len])));
        assert_eq!((&tags[..3], &tags[3..]), (&whole[..], &[None, None][..]));
        let short = Tag48([1, 2, 3, 4, 5, 6]);
        assert_eq!((short.tag(), Tag48::of(short.tag())), (0x0605_0403_0403_0201, Some(short)));
        assert!((0..64).all(|bit| Tag48::of(short.tag() ^ 1 << bit).is_some() != (16..48).contains(&bit)));
    }

    #[test]
    fn names_of_builds_without_48_bit_tags_are_equal() {
        let key = key(1);
        for len in [1, 4095, 4096] {
            let chunk = vec![3; len];
            let mut theirs = key.name(&chunk);
            let hash = XxHash3_64::oneshot_with_secret(&key.0.fast, &chunk).unwrap();
            theirs.0[..TAG_LEN].copy_from_slice(&hash.to_le_bytes());
            assert_eq!(theirs == key.name(&chunk), len == 4096);
            assert_eq!(theirs.folded(len as u32), key.name(&chunk));
            assert_eq!(key.name(&chunk).folded(len as u32), key.name(&chunk));
        }
    }

    #[test]
    fn a_name_begins_with_the_tag() {
        let key = key(1);
        let name = key.name(b"chunk");
        assert_eq!(name.tag(), key.tag(b"chunk"));
        assert_eq!(name, key.name_tagged(key.tag(b"chunk"), b"chunk"));
    }

    #[test]
    fn both_halves_are_compared() {
        let key = key(1);
        let name = key.name(b"chunk");
        assert!(key.matches(&name, b"chunk"));
        assert!(!key.matches(&name, b"chunl"));
        for byte in 0..NAME_LEN {
            let mut other = name;
            other.0[byte] ^= 1;
            assert!(!key.matches(&other, b"chunk"), "byte {byte}");
        }
    }

    #[test]
    fn names_under_another_key_have_nothing_in_common() {
        let (one, other) = (key(1), key(2));
        for len in [0, 3, 16, 100, 200, 1000] {
            let chunk = vec![9; len];
            let (a, b) = (one.name(&chunk), other.name(&chunk));
            assert_ne!(a.tag(), b.tag(), "{len} bytes");
            assert_ne!(a.0[TAG_LEN..], b.0[TAG_LEN..], "{len} bytes");
            assert!(!other.matches(&a, &chunk), "{len} bytes");
        }
        assert_ne!(one, other);
        assert_eq!(one, NameKey::new(*one.bytes()));
    }

    #[test]
    fn a_key_does_not_print_its_secret() {
        assert_eq!(format!("{:?}", key(0xab)), "NameKey(..)");
    }

    proptest! {
        #[test]
        fn chunk_of_64_bytes_always_finds_a_name_left(
            lens in prop::collection::vec(prop_oneof![9 => LEAST_NAMED..64, 1 => LEAST_NAMED..4000], 0..3000),
        ) {
            let (mut names, mut at) = (0, 0);
            for len in lens.into_iter().cycle().take(3000) {
                let len = len.min(MAX_BLOCK - at);
                let is_named = is_worth_one_of_the_names(names, len, MAX_BLOCK - at);
                prop_assert!(is_named || len < 64, "{names} names, {len} bytes at {at}");
                names += usize::from(is_named && len > 0);
                prop_assert!(names <= MAX_NAMES);
                at += len;
            }
        }
    }
}
