//! Large pages for large tables.
//!
//! A lookup in a fingerprint table of 128 MiB or a copy from a log of 1 GiB touches a page that the processor's
//! address cache does not hold; with pages of 2 MiB it mostly does. Linux gives them on request
//! (`madvise(MADV_HUGEPAGE)`), which changes how memory is mapped and nothing that a program can see of it, so
//! the state machines that are otherwise free of system calls may make this one.

/// Asks for large pages under `memory`, as far as whole ones fit into it.
///
/// It is a wish: a system that has no such pages, or none to spare, goes on with small ones, and there is no
/// error. Call it before the memory is first written; a page that exists already stays as it is. Memory is then
/// taken from the system in pieces of 2 MiB.
pub fn prefer_large<T>(memory: &mut [T]) {
    if size_of_val(memory) >= WORTHWHILE {
        advise(memory);
    }
}

/// Below this, small pages are few enough.
const WORTHWHILE: usize = 4 << 20;

#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "madvise takes a pointer")]
fn advise<T>(memory: &mut [T]) {
    use rustix::mm::{Advice, madvise};

    let range = memory.as_mut_ptr_range();
    let start = range.start.addr().next_multiple_of(PAGE);
    let len = (range.end.addr() / PAGE * PAGE).saturating_sub(start);
    let first = range.start.with_addr(start).cast();
    // SAFETY: the range lies within `memory`, which is borrowed for us alone, and this advice neither moves nor
    // changes what is there. That it may be refused is why the result does not matter.
    let _ = unsafe { madvise(first, len, Advice::LinuxHugepage) };
}

#[cfg(not(target_os = "linux"))]
fn advise<T>(_memory: &mut [T]) {}

/// `madvise` wants whole small pages. Systems with larger ones refuse what is not theirs.
#[cfg(target_os = "linux")]
const PAGE: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_there_whatever_pages_it_lies_in() {
        for len in [0, 1, 4095, WORTHWHILE - 1, WORTHWHILE, 3 * WORTHWHILE + 5] {
            let mut memory = vec![0u8; len];
            prefer_large(&mut memory);
            assert!(memory.iter().all(|byte| *byte == 0));
            memory.iter_mut().enumerate().for_each(|(at, byte)| *byte = at as u8);
            prefer_large(&mut memory);
            assert!(memory.iter().enumerate().all(|(at, byte)| *byte == at as u8));
        }
    }
}
