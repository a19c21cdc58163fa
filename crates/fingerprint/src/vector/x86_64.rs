//! AVX2.

use std::arch::x86_64::*;

use super::{LANES, Task, Vector};

/// The proof of AVX2, BMI1, BMI2 and LZCNT on this processor: there is no other way to one than [`Self::new`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Avx2(());

impl Avx2 {
    /// Returns a value if the processor has the instructions.
    #[inline(always)]
    pub(super) fn new() -> Option<Self> {
        let has_all = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt");
        has_all.then_some(Self(()))
    }

    /// Does `task`, compiled for these instructions.
    #[inline(always)]
    pub(super) fn run<T: Task>(self, task: T) -> T::Output {
        #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt")]
        fn compiled<T: Task>(vector: Avx2, task: T) -> T::Output {
            task.vectors(vector)
        }
        // SAFETY: `self` exists, so the processor has the instructions.
        unsafe { compiled(self, task) }
    }
}

/// Calls intrinsics whose only requirement is the processor's support.
macro_rules! avx2 {
    ($($code:tt)*) => {
        // SAFETY: `self` exists, so the processor has AVX2; registers are values, and no memory is touched.
        unsafe { $($code)* }
    };
}

impl Vector for Avx2 {
    type Register = __m256i;

    #[inline(always)]
    fn load(self, bytes: &[u8; LANES]) -> __m256i {
        // SAFETY: `self` exists, so the processor has AVX2; the 32 bytes are there, and may lie at any address.
        unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
    }

    #[inline(always)]
    fn twice(self, half: &[u8; LANES / 2]) -> __m256i {
        // SAFETY: `self` exists, so the processor has AVX2; the 16 bytes are there, and may lie at any address.
        unsafe { _mm256_broadcastsi128_si256(_mm_loadu_si128(half.as_ptr().cast())) }
    }

    #[inline(always)]
    fn splat_u32(self, number: u32) -> __m256i {
        avx2! { _mm256_set1_epi32(number.cast_signed()) }
    }

    #[inline(always)]
    fn and(self, a: __m256i, b: __m256i) -> __m256i {
        avx2! { _mm256_and_si256(a, b) }
    }

    #[inline(always)]
    fn or(self, a: __m256i, b: __m256i) -> __m256i {
        avx2! { _mm256_or_si256(a, b) }
    }

    #[inline(always)]
    fn lower_nibbles(self, a: __m256i) -> __m256i {
        avx2! { _mm256_and_si256(a, _mm256_set1_epi8(15)) }
    }

    #[inline(always)]
    fn upper_nibbles(self, a: __m256i) -> __m256i {
        avx2! { _mm256_and_si256(_mm256_srli_epi16::<4>(a), _mm256_set1_epi8(15)) }
    }

    #[inline(always)]
    fn look_up(self, table: __m256i, indices: __m256i) -> __m256i {
        avx2! { _mm256_shuffle_epi8(table, indices) }
    }

    #[inline(always)]
    fn nonzero_bytes(self, a: __m256i) -> u32 {
        avx2! { !_mm256_movemask_epi8(_mm256_cmpeq_epi8(a, _mm256_setzero_si256())).cast_unsigned() }
    }

    #[inline(always)]
    fn mul_u32(self, a: __m256i, b: __m256i) -> __m256i {
        avx2! { _mm256_mullo_epi32(a, b) }
    }

    #[inline(always)]
    fn max_u32(self, a: __m256i, b: __m256i) -> __m256i {
        avx2! { _mm256_max_epu32(a, b) }
    }

    #[inline(always)]
    fn eq_u32(self, a: __m256i, b: __m256i) -> __m256i {
        avx2! { _mm256_cmpeq_epi32(a, b) }
    }

    #[inline(always)]
    fn select(self, mask: __m256i, a: __m256i, b: __m256i) -> __m256i {
        avx2! { _mm256_blendv_epi8(b, a, mask) }
    }

    #[inline(always)]
    fn gt_i32(self, a: __m256i, b: __m256i) -> __m256i {
        avx2! { _mm256_cmpgt_epi32(a, b) }
    }

    #[inline(always)]
    fn highest_u32(self, a: __m256i) -> __m256i {
        avx2! {
            let a = _mm256_max_epu32(a, _mm256_permute2x128_si256::<1>(a, a));
            let a = _mm256_max_epu32(a, _mm256_shuffle_epi32::<0b01_00_11_10>(a));
            _mm256_max_epu32(a, _mm256_shuffle_epi32::<0b10_11_00_01>(a))
        }
    }

    #[inline(always)]
    fn first_u32(self, a: __m256i) -> u32 {
        avx2! { _mm256_extract_epi32::<0>(a).cast_unsigned() }
    }

    #[inline(always)]
    fn interleave(self, [a, b, c, d]: [__m256i; 4]) -> u32 {
        avx2! {
            let even = _mm256_blend_epi16::<0b1010_1010>(a, c);
            let odd = _mm256_blend_epi16::<0b1010_1010>(b, d);
            let all = _mm256_blendv_epi8(even, odd, _mm256_set1_epi16(0xFF00u16.cast_signed()));
            _mm256_movemask_epi8(all).cast_unsigned()
        }
    }
}
