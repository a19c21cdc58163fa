//! Non-temporal copies, for memory without a read soon.

/// Copies `from` to `to` past the caches if the processor can.
///
/// A plain copy first reads every line before overwriting it, and evicts useful lines from the caches. This one does
/// neither: right for memory much larger than the caches, wrong for bytes to be read again at once. Of slices of
/// different lengths, the shorter one counts.
#[inline]
pub fn copy_streaming(to: &mut [u8], from: &[u8]) {
    let len = to.len().min(from.len());
    let (Some(to), Some(from)) = (to.get_mut(..len), from.get(..len)) else { return };
    if len < WORTHWHILE {
        to.copy_from_slice(from);
    } else {
        machine::copy(to, from);
    }
}

/// Shorter copies leave too many lines half written.
const WORTHWHILE: usize = 1024;

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod machine {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};

    /// Bytes of a line, written as a whole.
    const LINE: usize = 64;

    /// Both slices have the same length, of at least a line.
    pub(super) fn copy(to: &mut [u8], from: &[u8]) {
        let start = to.as_ptr().align_offset(LINE).min(to.len());
        let (to_start, to_rest) = to.split_at_mut(start);
        let (from_start, from_rest) = from.split_at(start);
        to_start.copy_from_slice(from_start);
        let (to_lines, to_end) = to_rest.as_chunks_mut::<LINE>();
        let (from_lines, from_end) = from_rest.as_chunks::<LINE>();
        for (to, from) in to_lines.iter_mut().zip(from_lines) {
            let (to, from): (*mut __m128i, *const __m128i) = (to.as_mut_ptr().cast(), from.as_ptr().cast());
            for part in 0..LINE / size_of::<__m128i>() {
                // SAFETY: SSE2 is part of every x86_64. Both lines have 64 bytes, and `part` names 16 of them; the
                // first line begins at a multiple of 64, and hence they all do.
                unsafe { _mm_stream_si128(to.add(part), _mm_loadu_si128(from.add(part))) };
            }
        }
        // SAFETY: SSE is part of every x86_64. The fence makes the writes visible before any later ones, as for a
        // plain copy.
        unsafe { _mm_sfence() };
        to_end.copy_from_slice(from_end);
    }
}

#[cfg(any(miri, not(target_arch = "x86_64")))]
mod machine {
    pub(super) fn copy(to: &mut [u8], from: &[u8]) {
        to.copy_from_slice(from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_arrive_for_all_lengths_and_places() {
        let from: Vec<u8> = (0..9000u32).map(|at| ((at * 7) >> 3) as u8).collect();
        for len in [0, 1, 63, 1023, 1024, 1025, 4096, 8191] {
            for (there, here) in [(0, 0), (1, 0), (0, 3), (17, 64), (63, 1)] {
                let mut to = vec![0xee; 9000];
                copy_streaming(&mut to[there..there + len], &from[here..here + len]);
                assert_eq!(to[there..there + len], from[here..here + len]);
                assert!(to[..there].iter().chain(&to[there + len..]).all(|byte| *byte == 0xee));
            }
        }
    }

    #[test]
    fn the_shorter_slice_counts() {
        let mut to = [0; 3000];
        copy_streaming(&mut to[..2000], &[1; 3000]);
        copy_streaming(&mut to[2000..], &[2; 500]);
        assert_eq!(to.iter().filter(|byte| **byte == 1).count(), 2000);
        assert_eq!(to.iter().filter(|byte| **byte == 2).count(), 500);
    }
}
