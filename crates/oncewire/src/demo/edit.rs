//! Small seeded edits, like those between two transfers of a file.

use std::sync::Arc;

use super::corpus::File;

/// Returns an edited copy of each file.
pub(crate) fn edit_all(files: &[File], seed: u64) -> Vec<File> {
    let edited = |(index, file): (usize, &File)| {
        let mut dice = Dice(seed.wrapping_add((index as u64) << 32));
        File { path: file.path.clone(), bytes: Arc::from(edit(&file.bytes, &mut dice)) }
    };
    files.iter().enumerate().map(edited).collect()
}

/// Replaces, inserts or deletes a few bytes at about one place in [`BYTES_PER_EDIT`].
fn edit(bytes: &[u8], dice: &mut Dice) -> Vec<u8> {
    let count = (bytes.len() / BYTES_PER_EDIT).max(1);
    let mut places: Vec<usize> = (0..count).map(|_| dice.below(bytes.len() + 1)).collect();
    places.sort_unstable();
    let mut out = Vec::with_capacity(bytes.len() + count * LONGEST_EDIT);
    let mut rest = bytes;
    let mut done = 0;
    for place in places {
        // An edit before may have deleted beyond this place.
        let (kept, behind) = rest.split_at(place.saturating_sub(done).min(rest.len()));
        out.extend_from_slice(kept);
        let len = 1 + dice.below(LONGEST_EDIT);
        let deleted = if dice.below(3) == 0 { 0 } else { len.min(behind.len()) };
        if dice.below(3) > 0 || deleted == 0 {
            out.extend((0..len).map(|_| b'a' + dice.below(26) as u8));
        }
        rest = behind.get(deleted..).unwrap_or_default();
        done = bytes.len() - rest.len();
    }
    out.extend_from_slice(rest);
    out
}

/// SplitMix64 [Steele et al. 2014]: enough to choose places, and the same everywhere.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below a nonzero `bound`.
    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

const BYTES_PER_EDIT: usize = 32 << 10;
const LONGEST_EDIT: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    fn file(bytes: &[u8]) -> File {
        File { path: String::from("f"), bytes: Arc::from(bytes) }
    }

    #[test]
    fn edits_are_small_and_repeat_with_their_seed() {
        let original = file(&vec![b'-'; 1_000_000]);
        let edited = edit_all(std::slice::from_ref(&original), 7);
        assert_eq!(*edited[0].bytes, *edit_all(std::slice::from_ref(&original), 7)[0].bytes);
        assert_ne!(*edited[0].bytes, *edit_all(std::slice::from_ref(&original), 8)[0].bytes);
        let written = edited[0].bytes.iter().filter(|byte| **byte != b'-').count();
        assert!((50..=30 * 24).contains(&written), "{written}");
        let change = edited[0].bytes.len().abs_diff(1_000_000);
        assert!(change <= 30 * 24, "{change}");
    }

    #[test]
    fn even_the_smallest_file_is_changed() {
        for seed in 0..200 {
            for len in [0, 1, 2, 30] {
                let original = vec![b'-'; len];
                let edited = edit_all(&[file(&original)], seed);
                assert_ne!(*edited[0].bytes, *original, "seed {seed}, {len} bytes");
            }
        }
    }
}
