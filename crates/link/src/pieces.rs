//! A byte queue in pieces, none much smaller than its overhead.

use std::collections::VecDeque;
use std::mem::take;

use bytes::{Bytes, BytesMut};

/// A queue of bytes. A short piece is put together with the ones before and behind it if it has to wait; a long one,
/// or one into an empty queue, is handed on as it is, without a copy.
#[derive(Debug, Default)]
pub struct Pieces {
    queue: VecDeque<Bytes>,
    /// Short pieces behind those in the queue.
    tail: BytesMut,
}

/// A piece below this is short: beside its bytes each takes some 70 of memory, and a sender may choose one byte.
const SHORT: usize = 4 << 10;

impl Pieces {
    /// Appends bytes.
    pub fn push(&mut self, piece: Bytes) {
        if piece.len() >= SHORT || self.is_empty() {
            self.close_tail();
            self.queue.push_back(piece);
            return;
        }
        self.tail.extend_from_slice(&piece);
        if self.tail.len() >= SHORT {
            self.close_tail();
        }
    }

    /// Takes the first piece.
    pub fn pop(&mut self) -> Option<Bytes> {
        self.front_mut()?;
        self.queue.pop_front()
    }

    /// The first piece, perhaps with a part taken; an empty one is to be [popped](Self::pop).
    pub fn front_mut(&mut self) -> Option<&mut Bytes> {
        if self.queue.is_empty() {
            self.close_tail();
        }
        self.queue.front_mut()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.tail.is_empty()
    }

    /// Drops everything.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    fn close_tail(&mut self) {
        if !self.tail.is_empty() {
            self.queue.push_back(take(&mut self.tail).freeze());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn taken_bytes_equal_the_appended_ones(
            steps in prop::collection::vec((0usize..3 * SHORT, 0usize..4), 0..60),
        ) {
            let (mut pieces, mut stream, mut out) = (Pieces::default(), Vec::new(), Vec::new());
            for (len, takes) in steps {
                // Most are short.
                let len = 1 + if len % 3 == 0 { len } else { len % 100 };
                let piece: Vec<u8> = (stream.len()..stream.len() + len).map(|i| (i * 7 / 3) as u8).collect();
                stream.extend_from_slice(&piece);
                pieces.push(piece.into());
                (0..takes).filter_map(|_| pieces.pop()).for_each(|piece| out.extend_from_slice(&piece));
            }
            while let Some(piece) = pieces.pop() {
                out.extend_from_slice(&piece);
            }
            prop_assert!(pieces.is_empty());
            prop_assert_eq!(out, stream);
        }

        #[test]
        fn waiting_pieces_are_few_for_their_bytes(lens in prop::collection::vec(1usize..2 * SHORT, 1..400)) {
            let mut pieces = Pieces::default();
            lens.iter().for_each(|&len| pieces.push(vec![7; len].into()));
            let bytes: usize = lens.iter().sum();
            prop_assert!(pieces.queue.len() <= 2 + 2 * bytes / SHORT);
            prop_assert!(pieces.tail.capacity() <= 4 * SHORT);
        }
    }

    #[test]
    fn long_pieces_and_unqueued_ones_are_not_copied() {
        let mut pieces = Pieces::default();
        for len in [1, SHORT, 64 << 10] {
            let piece = Bytes::from(vec![7; len]);
            pieces.push(piece.clone());
            if len > 1 {
                pieces.push(piece.clone());
                assert_eq!(pieces.pop().map(|first| first.as_ptr()), Some(piece.as_ptr()));
            }
            assert_eq!(pieces.pop().map(|last| last.as_ptr()), Some(piece.as_ptr()));
        }
    }
}
