//! NEON: two registers of 16 bytes side by side.

use std::arch::aarch64::*;

use super::{LANES, Vector};

/// NEON, available to every build for this target.
#[derive(Clone, Copy, Debug)]
pub(super) struct Neon;

/// The lower and the upper half of 32 bytes.
#[derive(Clone, Copy)]
pub(super) struct Pair(uint8x16_t, uint8x16_t);

/// Calls intrinsics whose only requirement is the processor's support.
macro_rules! neon {
    ($($code:tt)*) => {
        // SAFETY: this file is compiled for targets with NEON only; registers are values, and no memory is touched.
        unsafe { $($code)* }
    };
}

/// Applies an intrinsic for 16 bytes to both halves.
macro_rules! both {
    ($f:expr, $a:expr) => {
        neon! { Pair($f($a.0), $f($a.1)) }
    };
    ($f:expr, $a:expr, $b:expr) => {
        neon! { Pair($f($a.0, $b.0), $f($a.1, $b.1)) }
    };
}

/// Applies an intrinsic for four numbers to both halves, and takes its result as bytes.
macro_rules! numbers {
    ($f:expr, $from:expr, $to:expr, $a:expr, $b:expr) => {
        neon! { Pair($to($f($from($a.0), $from($b.0))), $to($f($from($a.1), $from($b.1)))) }
    };
}

impl Vector for Neon {
    type Register = Pair;

    #[inline(always)]
    fn load(self, bytes: &[u8; LANES]) -> Pair {
        // SAFETY: this file is compiled for targets with NEON only; the 32 bytes are there, at any address.
        unsafe { Pair(vld1q_u8(bytes.as_ptr()), vld1q_u8(bytes.as_ptr().add(LANES / 2))) }
    }

    #[inline(always)]
    fn twice(self, half: &[u8; LANES / 2]) -> Pair {
        // SAFETY: this file is compiled for targets with NEON only; the 16 bytes are there, at any address.
        let half = unsafe { vld1q_u8(half.as_ptr()) };
        Pair(half, half)
    }

    #[inline(always)]
    fn splat_u32(self, number: u32) -> Pair {
        let half = neon! { vreinterpretq_u8_u32(vdupq_n_u32(number)) };
        Pair(half, half)
    }

    #[inline(always)]
    fn and(self, a: Pair, b: Pair) -> Pair {
        both!(vandq_u8, a, b)
    }

    #[inline(always)]
    fn or(self, a: Pair, b: Pair) -> Pair {
        both!(vorrq_u8, a, b)
    }

    #[inline(always)]
    fn lower_nibbles(self, a: Pair) -> Pair {
        self.and(a, self.splat_u32(0x0F0F_0F0F))
    }

    #[inline(always)]
    fn upper_nibbles(self, a: Pair) -> Pair {
        both!(vshrq_n_u8::<4>, a)
    }

    #[inline(always)]
    fn look_up(self, table: Pair, indices: Pair) -> Pair {
        both!(vqtbl1q_u8, table, indices)
    }

    #[inline(always)]
    fn nonzero_bytes(self, a: Pair) -> u32 {
        bits(both!(vtstq_u8, a, a))
    }

    #[inline(always)]
    fn mul_u32(self, a: Pair, b: Pair) -> Pair {
        numbers!(vmulq_u32, vreinterpretq_u32_u8, vreinterpretq_u8_u32, a, b)
    }

    #[inline(always)]
    fn max_u32(self, a: Pair, b: Pair) -> Pair {
        numbers!(vmaxq_u32, vreinterpretq_u32_u8, vreinterpretq_u8_u32, a, b)
    }

    #[inline(always)]
    fn eq_u32(self, a: Pair, b: Pair) -> Pair {
        numbers!(vceqq_u32, vreinterpretq_u32_u8, vreinterpretq_u8_u32, a, b)
    }

    #[inline(always)]
    fn select(self, mask: Pair, a: Pair, b: Pair) -> Pair {
        neon! { Pair(vbslq_u8(mask.0, a.0, b.0), vbslq_u8(mask.1, a.1, b.1)) }
    }

    #[inline(always)]
    fn gt_i32(self, a: Pair, b: Pair) -> Pair {
        numbers!(vcgtq_s32, vreinterpretq_s32_u8, vreinterpretq_u8_u32, a, b)
    }

    #[inline(always)]
    fn highest_u32(self, a: Pair) -> Pair {
        let highest = neon! { vmaxvq_u32(vmaxq_u32(vreinterpretq_u32_u8(a.0), vreinterpretq_u32_u8(a.1))) };
        self.splat_u32(highest)
    }

    #[inline(always)]
    fn first_u32(self, a: Pair) -> u32 {
        neon! { vgetq_lane_u32::<0>(vreinterpretq_u32_u8(a.0)) }
    }

    #[inline(always)]
    fn interleave(self, [a, b, c, d]: [Pair; 4]) -> u32 {
        let (odd_bytes, odd_words) = (self.splat_u32(0xFF00_FF00), self.splat_u32(0xFFFF_0000));
        bits(self.select(odd_words, self.select(odd_bytes, d, c), self.select(odd_bytes, b, a)))
    }
}

/// Returns a bit for each byte; each byte is all ones or 0.
#[inline(always)]
fn bits(a: Pair) -> u32 {
    const PLACES: [u8; LANES / 2] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];
    let a = Neon.and(a, Neon.twice(&PLACES));
    neon! {
        let eighths = vpaddq_u8(a.0, a.1);
        let quarters = vpaddq_u8(eighths, eighths);
        let halves = vpaddq_u8(quarters, quarters);
        vgetq_lane_u32::<0>(vreinterpretq_u32_u8(halves))
    }
}
