//! Asking for memory before it is needed.

/// Prefetches the cache line with the first byte of `slice[index]`, for reading.
///
/// Without effect if `index` is out of bounds, or on a processor without such an instruction here.
#[inline(always)]
pub fn prefetch_read<T>(slice: &[T], index: usize) {
    if let Some(item) = slice.get(index) {
        machine::read(std::ptr::from_ref(item).cast());
    }
}

/// Prefetches the cache line with the first byte of `slice[index]`, for writing.
///
/// As [`prefetch_read`]; a processor without the difference reads.
#[inline(always)]
pub fn prefetch_write<T>(slice: &[T], index: usize) {
    if let Some(item) = slice.get(index) {
        machine::write(std::ptr::from_ref(item).cast());
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod machine {
    use std::arch::x86_64::{_MM_HINT_ET0, _MM_HINT_T0, _mm_prefetch};

    #[inline(always)]
    pub(super) fn read(address: *const i8) {
        // SAFETY: SSE is part of every x86_64; a prefetch has no effect on memory and cannot fault.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address) }
    }

    #[inline(always)]
    pub(super) fn write(address: *const i8) {
        // SAFETY: SSE is part of every x86_64; a prefetch has no effect on memory and cannot fault.
        unsafe { _mm_prefetch::<_MM_HINT_ET0>(address) }
    }
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
mod machine {
    use std::arch::asm;

    #[inline(always)]
    pub(super) fn read(address: *const i8) {
        // SAFETY: every aarch64 has the instruction; it has no effect on memory, registers or flags and cannot fault.
        unsafe { asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly)) }
    }

    #[inline(always)]
    pub(super) fn write(address: *const i8) {
        // SAFETY: every aarch64 has the instruction; it has no effect on memory, registers or flags and cannot fault.
        unsafe { asm!("prfm pstl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly)) }
    }
}

#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod machine {
    #[inline(always)]
    pub(super) fn read(_: *const i8) {}

    #[inline(always)]
    pub(super) fn write(_: *const i8) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefetching_changes_nothing_and_takes_any_index() {
        let slots: Vec<u32> = (0..100).collect();
        for index in [0, 1, 50, 99, 100, usize::MAX] {
            prefetch_read(&slots, index);
            prefetch_write(&slots, index);
            prefetch_write::<u64>(&[], index);
        }
        assert!(slots.iter().copied().eq(0..100));
    }
}
