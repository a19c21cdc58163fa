//! Buffers for blocks coming in, used again once nobody holds the block any more.
//!
//! An allocator gives memory of this size back to the system and asks for it again from block to block, and the
//! page faults cost more than rebuilding the block.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::wire::MAX_BLOCK;

/// The last large blocks handed out, as far as somebody may still hold them.
#[derive(Debug, Default)]
pub(crate) struct BlockBuffers {
    recent: VecDeque<Bytes>,
}

impl BlockBuffers {
    /// Returns an empty buffer with room for `len` bytes.
    pub(crate) fn take(&mut self, len: usize) -> Vec<u8> {
        if len < WORTHWHILE {
            return Vec::with_capacity(len);
        }
        match self.recent.pop_front().map(Bytes::try_into_mut) {
            Some(Ok(mut buffer)) => {
                buffer.clear();
                let mut buffer = Vec::from(buffer);
                buffer.reserve(len);
                buffer
            }
            Some(Err(held)) => {
                self.recent.push_back(held);
                Vec::with_capacity(MAX_BLOCK)
            }
            None => Vec::with_capacity(MAX_BLOCK),
        }
    }

    /// Makes a block of what [`Self::take`] returned and was filled.
    pub(crate) fn freeze(&mut self, buffer: Vec<u8>) -> Bytes {
        let block = Bytes::from(buffer);
        if block.len() >= WORTHWHILE {
            if self.recent.len() == KEPT {
                self.recent.pop_back();
            }
            self.recent.push_front(block.clone());
        }
        block
    }
}

/// Smaller blocks are a matter for the allocator.
const WORTHWHILE: usize = MAX_BLOCK / 2;

/// Blocks looked back on, 256 KiB of them: with more, memory leaves the processor's caches.
const KEPT: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffer_comes_back_only_once_its_block_is_dropped() {
        let mut buffers = BlockBuffers::default();
        let mut filled = buffers.take(MAX_BLOCK);
        filled.resize(MAX_BLOCK, 7);
        let address = filled.as_ptr();
        let block = buffers.freeze(filled);
        let mut other = buffers.take(MAX_BLOCK);
        assert_ne!(other.as_ptr(), address);
        other.resize(MAX_BLOCK, 8);
        assert_eq!(block, vec![7; MAX_BLOCK]);
        drop(block);
        let again = buffers.take(MAX_BLOCK - 5);
        assert!(again.is_empty() && again.capacity() >= MAX_BLOCK - 5);
        assert_eq!(again.as_ptr(), address);
    }

    #[test]
    fn blocks_held_for_long_are_forgotten() {
        let mut buffers = BlockBuffers::default();
        let held: Vec<Bytes> = (0..20)
            .map(|_| {
                let mut filled = buffers.take(MAX_BLOCK);
                filled.resize(MAX_BLOCK, 1);
                buffers.freeze(filled)
            })
            .collect();
        assert_eq!(buffers.recent.len(), KEPT);
        drop(held);
    }
}
