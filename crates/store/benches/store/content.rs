//! Numbered blocks, and their trees.

use oncewire_store::Part;

/// A block's length.
pub(crate) const BLOCK: usize = 65_536;

/// Mixes a number well enough for a tag.
pub(crate) fn mixed(i: u64) -> u64 {
    let mut x = i.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Fills a block with incompressible bytes.
pub(crate) fn fill(number: u64, block: &mut [u8]) {
    let mut state = mixed(number);
    for word in block.chunks_exact_mut(8) {
        state = state.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(number | 1);
        word.copy_from_slice(&(state ^ (state >> 29)).to_le_bytes());
    }
}

/// Makes the tree of a block: its root, and every level of chunks of these sizes. Tags are numbers, as nothing here
/// measures how names are computed.
pub(crate) fn tree(number: u64, sizes: &[usize], parts: &mut Vec<Part>) {
    parts.clear();
    for (level, size) in [BLOCK].iter().chain(sizes).enumerate() {
        for i in 0..BLOCK / size {
            let tag = tag(number, level, i);
            parts.push(Part { tag, level: level as u8, start: (i * size) as u32, len: *size as u32 });
        }
    }
}

/// The tag of one chunk of a tree.
pub(crate) fn tag(number: u64, level: usize, i: usize) -> u64 {
    mixed((number << 16) | ((level as u64) << 12) | i as u64)
}
