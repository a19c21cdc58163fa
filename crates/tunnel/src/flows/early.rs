//! A flow's bytes sent before the far side's answer.
//!
//! If the far side takes no new flows, the flow goes another way. A flow without any bytes also does so on a
//! lost link.

use bytes::{Bytes, BytesMut};

use super::pump::BLOCK;

/// All bytes given to the link so far. The link holds most of them anyway.
#[derive(Debug, Default)]
pub(super) struct Early {
    pieces: Vec<Bytes>,
    len: usize,
    /// Whether the far side takes no flows by its answer, or was lost before it got a byte.
    turned_back: bool,
}

impl Early {
    /// Keeps a piece; returns whether all pieces could be kept.
    #[must_use]
    pub(super) fn keep(&mut self, bytes: &Bytes) -> bool {
        self.len += bytes.len();
        if self.len <= LIMIT && self.pieces.len() < MAX_PIECES {
            self.pieces.push(bytes.clone());
            return true;
        }
        false
    }

    /// Whether the link was given nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn turn_back(&mut self) {
        self.turned_back = true;
    }

    pub(super) fn is_turned_back(&self) -> bool {
        self.turned_back
    }

    /// Returns everything in one piece, for another way.
    pub(super) fn take(self) -> Option<Bytes> {
        if !self.turned_back {
            return None;
        }
        match <[Bytes; 1]>::try_from(self.pieces) {
            Ok([all]) => Some(all),
            Err(pieces) => {
                let mut all = BytesMut::with_capacity(self.len);
                pieces.iter().for_each(|piece| all.extend_from_slice(piece));
                Some(all.freeze())
            }
        }
    }
}

/// A link's queue for a flow, and the possible excess of the last block.
const LIMIT: usize = (512 << 10) + BLOCK;

/// Pieces of few bytes take more memory than they hold.
const MAX_PIECES: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn early_bytes_return_completely_in_order_or_not_at_all() {
        let mut early = Early::default();
        assert!(early.keep(&Bytes::from_static(b"ab")) && early.keep(&Bytes::from_static(b"c")));
        early.turn_back();
        assert_eq!(early.take().unwrap(), "abc");
        let answered_otherwise = Early::default();
        assert_eq!(answered_otherwise.take(), None);
        let block = Bytes::from(vec![0; LIMIT]);
        let mut early = Early::default();
        assert!(early.keep(&block) && !early.keep(&Bytes::from_static(b"x")));
        let mut early = Early::default();
        let kept = (0..2 * MAX_PIECES).filter(|_| early.keep(&Bytes::from_static(b"x"))).count();
        assert_eq!(kept, MAX_PIECES);
    }
}
