//! Chunks that links want from the store and do not ask it for yet, since it has enough to do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// What all links hold back.
#[derive(Debug, Default)]
pub(super) struct HeldBack(Arc<AtomicU32>);

/// What one link adds to it, until it ends.
#[derive(Debug)]
pub(crate) struct HeldBackShare {
    all: Arc<AtomicU32>,
    own: u32,
}

impl HeldBack {
    pub(super) fn chunks(&self) -> u32 {
        self.0.load(Relaxed)
    }

    pub(super) fn share(&self) -> HeldBackShare {
        HeldBackShare { all: Arc::clone(&self.0), own: 0 }
    }
}

impl HeldBackShare {
    /// Says what the link holds back now.
    pub(crate) fn set(&mut self, chunks: u32) {
        if chunks != self.own {
            // Modulo 2³², as the sum is.
            self.all.fetch_add(chunks.wrapping_sub(self.own), Relaxed);
            self.own = chunks;
        }
    }
}

impl Drop for HeldBackShare {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_add_up_and_one_that_ends_takes_its_part_with_it() {
        let all = HeldBack::default();
        let (mut first, mut second) = (all.share(), all.share());
        first.set(500);
        second.set(70);
        first.set(20);
        assert_eq!(all.chunks(), 90);
        drop(first);
        assert_eq!(all.chunks(), 70);
        drop(second);
        assert_eq!(all.chunks(), 0);
    }
}
