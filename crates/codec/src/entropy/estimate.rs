//! A cheap guess whether a block is compressed or encrypted already.

/// Returns whether the bytes of `block` are so evenly spread that compression is unlikely to help.
///
/// About 1024 bytes are counted, or twice as many, and the probability of two equal ones is compared with 1/200; it is
/// 1/256 for noise, and some 1/20 for text. Even a body like noise deserves a trial before it is given up, since
/// repeats do not show in a count of bytes. Of less than 512 bytes nothing can be said.
pub(crate) fn looks_random(block: &[u8]) -> bool {
    if block.len() < MIN_COUNTED {
        return false;
    }
    // An odd stride, lest only the low bytes of samples or pixels are counted.
    let stride = (block.len() / COUNTED) | 1;
    let mut counts = [0u32; 256];
    let mut total = 0u64;
    for byte in block.iter().step_by(stride) {
        if let Some(count) = counts.get_mut(usize::from(*byte)) {
            *count += 1;
        }
        total += 1;
    }
    let equal_pairs: u64 =
        counts.iter().map(|&count| u64::from(count) * u64::from(count).saturating_sub(1)).sum();
    equal_pairs * 200 < total * (total - 1)
}

/// Appends what a trial compression is made of: all of a short block, three pieces of a longer one.
pub(super) fn sample(block: &[u8], out: &mut Vec<u8>) {
    if block.len() <= 4 * PIECE {
        out.extend_from_slice(block);
        return;
    }
    for start in [0, (block.len() - PIECE) / 2, block.len() - PIECE] {
        out.extend_from_slice(block.get(start..start + PIECE).unwrap_or_default());
    }
}

const MIN_COUNTED: usize = 512;
/// Of noise so many bytes have 2,050 equal pairs, give or take 45, and 2,600 are asked for. From half to twice as many
/// are counted.
const COUNTED: usize = 1024;
const PIECE: usize = 2048;
