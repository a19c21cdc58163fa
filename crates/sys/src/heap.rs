//! Giving free memory of the allocator back to the system.
//!
//! The allocator of the GNU C library keeps free space between pieces in use, in each thread's heap, until
//! asked for it.

/// Gives back whole free pages of the heap; says whether there were any. Takes time in proportion to the
/// number of free pieces. Without effect with another allocator.
pub fn trim() -> bool {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: it takes no pointer, locks the heaps itself, and touches only free memory.
        #[allow(unsafe_code, reason = "no safe wrapper is there")]
        unsafe {
            libc::malloc_trim(0) == 1
        }
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    false
}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    use super::*;

    /// Anonymous memory of this process, in bytes.
    fn anonymous() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").expect("procfs");
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("a line for it");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("kilobytes") << 10
    }

    #[test]
    fn free_pieces_between_used_ones_go_back() {
        let mut pieces: Vec<Option<Vec<u8>>> = (0..1000).map(|_| Some(vec![7; 64 << 10])).collect();
        let full = anonymous();
        // All but each hundredth.
        pieces.iter_mut().enumerate().filter(|(at, _)| at % 100 != 0).for_each(|(_, piece)| *piece = None);
        trim();
        let rest = anonymous();
        assert!(rest + (40 << 20) < full, "{rest} B of {full}");
        assert!(pieces.iter().flatten().all(|piece| piece.iter().all(|byte| *byte == 7)));
    }
}
