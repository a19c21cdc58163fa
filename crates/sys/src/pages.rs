//! Memory for logs and large tables, from the system and back to it.
//!
//! Logs and tables are to take memory only for their lifetime. An allocator may keep freed memory for a
//! thread with no further use of it, as the GNU C library's does after a few large pieces. So large pieces
//! are maps of their own.
//!
//! A lookup in a fingerprint table of 128 MiB, or a copy from a log of 1 GiB, usually misses the TLB; with
//! pages of 2 MiB it mostly hits. Linux gives them on request (`madvise(MADV_HUGEPAGE)`).
//!
//! All of this changes the place and mapping of memory, and no observable behaviour. So the state machines,
//! otherwise free of system calls, may use it.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// The element type of [`Pages`]: integers, and arrays of them.
pub trait Plain: Copy + Send + Sync + sealed::Sealed + 'static {
    /// The value with all bytes zero.
    const ZERO: Self;
}

/// A slice of fixed length, zero at first.
///
/// From 128 KiB on it lies in memory of its own. The system gives pages of it on first use, and has them back
/// on drop. From 4 MiB on it begins at a multiple of 2 MiB, and asks for large pages. Both are hints: a
/// system without them gives ordinary memory.
pub struct Pages<T: Plain> {
    first: NonNull<T>,
    len: usize,
    /// Whether it is a map, and not a boxed slice.
    mapped: bool,
}

// SAFETY: it owns its memory, as a boxed slice does, and its elements are `Send` and `Sync`.
#[allow(unsafe_code, reason = "a pointer is neither by itself")]
unsafe impl<T: Plain> Send for Pages<T> {}
// SAFETY: as above.
#[allow(unsafe_code, reason = "a pointer is neither by itself")]
unsafe impl<T: Plain> Sync for Pages<T> {}

impl<T: Plain> Pages<T> {
    /// Takes `len` zeros.
    pub fn zeroed(len: usize) -> Self {
        let bytes = len.saturating_mul(size_of::<T>());
        if bytes >= OF_ITS_OWN
            && align_of::<T>() <= SMALL_PAGE
            && let Some(first) = map::zeros(bytes)
        {
            return Self { first: first.cast(), len, mapped: true };
        }
        let first = Box::leak(vec![T::ZERO; len].into_boxed_slice());
        Self { first: NonNull::from(first).cast(), len, mapped: false }
    }
}

#[allow(unsafe_code, reason = "what was mapped is known by a pointer only")]
impl<T: Plain> Deref for Pages<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `first` begins `len` values, of a boxed slice or of zeros from a map; they are ours until
        // the drop.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

#[allow(unsafe_code, reason = "what was mapped is known by a pointer only")]
impl<T: Plain> DerefMut for Pages<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as for `deref`; `&mut self` is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.first.as_ptr(), self.len) }
    }
}

impl<T: Plain> Drop for Pages<T> {
    #[allow(unsafe_code, reason = "memory goes back by its address")]
    fn drop(&mut self) {
        if self.mapped {
            map::give_back(self.first.cast(), self.len * size_of::<T>());
            return;
        }
        let slice = NonNull::slice_from_raw_parts(self.first, self.len);
        // SAFETY: it was leaked from a box of this length, and nobody else has it.
        drop(unsafe { Box::from_raw(slice.as_ptr()) });
    }
}

impl<T: Plain> Clone for Pages<T> {
    fn clone(&self) -> Self {
        let mut clone = Self::zeroed(self.len);
        clone.copy_from_slice(self);
        clone
    }
}

impl<T: Plain> fmt::Debug for Pages<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pages").field("len", &self.len).finish_non_exhaustive()
    }
}

impl Plain for u8 {
    const ZERO: Self = 0;
}

impl Plain for u16 {
    const ZERO: Self = 0;
}

impl Plain for u32 {
    const ZERO: Self = 0;
}

impl Plain for u64 {
    const ZERO: Self = 0;
}

impl<T: Plain, const N: usize> Plain for [T; N] {
    const ZERO: Self = [T::ZERO; N];
}

mod sealed {
    /// Types with zeros, the content of a fresh map, as a value.
    pub trait Sealed {}

    impl Sealed for u8 {}
    impl Sealed for u16 {}
    impl Sealed for u32 {}
    impl Sealed for u64 {}
    impl<T: Sealed, const N: usize> Sealed for [T; N] {}
}

/// Maps of zeros, of at least one byte each.
#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "mmap, munmap and madvise take pointers")]
mod map {
    use std::ffi::c_void;
    use std::ptr::{NonNull, null_mut};

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    use super::{LARGE_PAGE, SMALL_PAGE, WITH_LARGE_PAGES};

    /// Maps so many zeros; none if the system has no room for them, or no room for another map.
    pub(super) fn zeros(bytes: usize) -> Option<NonNull<c_void>> {
        let len = bytes.checked_next_multiple_of(SMALL_PAGE)?;
        if len < WITH_LARGE_PAGES {
            return map(len);
        }
        let around = map(len.checked_add(LARGE_PAGE)?)?;
        let before = around.as_ptr().addr().wrapping_neg() % LARGE_PAGE;
        // SAFETY: all three begin within the map, and the middle one does not reach the others: `before` and
        // `LARGE_PAGE - before` are the bytes beyond `len`. Nobody else knows of the map yet. Large pages may
        // be refused, so this result does not matter.
        unsafe {
            let first = around.byte_add(before);
            unmap(around, before);
            unmap(first.byte_add(len), LARGE_PAGE - before);
            let _ = madvise(first.as_ptr(), len, Advice::LinuxHugepage);
            Some(first)
        }
    }

    /// Gives back memory of this length from [`zeros`].
    pub(super) fn give_back(first: NonNull<c_void>, bytes: usize) {
        // SAFETY: this is the whole map, rounded up as there, and its only owner is being dropped.
        unsafe { unmap(first, bytes.next_multiple_of(SMALL_PAGE)) }
    }

    fn map(len: usize) -> Option<NonNull<c_void>> {
        // SAFETY: without a given address, the system chooses an unused one.
        let mapped =
            unsafe { mmap_anonymous(null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) };
        mapped.ok().and_then(NonNull::new)
    }

    /// Unmaps a part of a map; none of it if `len` is 0.
    ///
    /// # Safety
    /// Nobody uses it any more.
    unsafe fn unmap(first: NonNull<c_void>, len: usize) {
        if len > 0 {
            // SAFETY: as the caller says. It fails only if it would divide a map at the system's limit of
            // maps; the memory stays taken then, and nobody touches it.
            let _ = unsafe { munmap(first.as_ptr(), len) };
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod map {
    use std::ffi::c_void;
    use std::ptr::NonNull;

    pub(super) fn zeros(_bytes: usize) -> Option<NonNull<c_void>> {
        None
    }

    pub(super) fn give_back(_first: NonNull<c_void>, _bytes: usize) {}
}

/// Smaller pieces are the allocator's: as maps they would be too many.
const OF_ITS_OWN: usize = 128 << 10;

/// Below this, small pages are few enough.
#[cfg(target_os = "linux")]
const WITH_LARGE_PAGES: usize = 4 << 20;

/// Large pages begin at multiples of this.
#[cfg(target_os = "linux")]
const LARGE_PAGE: usize = 2 << 20;

/// The largest "small" page of any system; maps are rounded up to it.
const SMALL_PAGE: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// Lengths around each limit, and some with a part of a page.
    fn lengths() -> impl Iterator<Item = usize> {
        let borders = [OF_ITS_OWN, SMALL_PAGE * 3, 4 << 20, 6 << 20];
        [0, 1, 4095].into_iter().chain(borders.into_iter().flat_map(|at| [at - 1, at, at + 1]))
    }

    #[test]
    fn pages_begin_with_zeros_and_keep_written_values() {
        for len in lengths() {
            let mut pages = Pages::<u8>::zeroed(len);
            assert!(pages.len() == len && pages.iter().all(|byte| *byte == 0), "{len}");
            pages.iter_mut().enumerate().for_each(|(at, byte)| *byte = at as u8);
            let clone = pages.clone();
            drop(pages);
            assert!(clone.iter().enumerate().all(|(at, byte)| *byte == at as u8), "{len}");
        }
    }

    #[test]
    fn length_in_values_holds_for_every_size_of_value() {
        for len in [0, 1, 30_000, 1 << 20] {
            let mut pages = Pages::<[u16; 5]>::zeroed(len);
            assert_eq!(size_of_val(&pages[..]), len * 10);
            if let Some(last) = pages.last_mut() {
                *last = [1, 2, 3, 4, 5];
            }
            assert!(pages.iter().rev().skip(1).all(|value| *value == [0; 5]), "{len}");
        }
    }

    #[test]
    fn dropped_memory_returns_to_the_system_and_its_neighbours_stay() {
        let pieces: Vec<_> = lengths().chain([5 << 20; 8]).map(Pages::<u8>::zeroed).collect();
        let (mut dropped, mut kept) = (Vec::new(), Vec::new());
        for (at, mut piece) in pieces.into_iter().enumerate() {
            piece.fill(at as u8 + 1);
            if at % 2 == 0 { dropped.push(piece) } else { kept.push((at, piece)) }
        }
        drop(dropped);
        assert!(kept.iter().all(|(at, piece)| piece.iter().all(|byte| *byte == *at as u8 + 1)));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn large_slices_begin_at_large_pages() {
        for len in [4 << 20, (7 << 20) + 5] {
            assert_eq!(Pages::<u8>::zeroed(len).as_ptr().addr() % LARGE_PAGE, 0);
        }
    }
}
