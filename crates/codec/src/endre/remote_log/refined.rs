//! Parts of the log indexed for a finer search.
//!
//! Content from before the finer search has a marker each 64 bytes. A place with short copies is likely to have more:
//! that part of the log is indexed anew, once.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::endre::matcher::{Copy, MaxMatch};
use crate::log::{Log, LogOffset};

/// The pieces of a log, by number, that are indexed finely, or are to be.
#[derive(Debug, Default)]
pub(crate) struct Refined {
    done: BTreeSet<u64>,
    asked: Vec<u64>,
}

impl Refined {
    /// Asks for the sources of short copies, and the pieces behind them: the next block may repeat them.
    pub(crate) fn ask(&mut self, copies: &[Copy]) {
        let short = copies.iter().filter(|copy| copy.len < SHORT);
        for piece in short.flat_map(|copy| [0, 1].map(|next| copy.source.0 / PIECE + next)) {
            if self.asked.len() < MOST_ASKED && self.done.insert(piece) {
                self.asked.push(piece);
            }
        }
    }

    /// Indexes what was asked for, as far as it lies in `range` of the log; the markers are set already.
    pub(crate) fn index(&mut self, max: &mut MaxMatch, log: &Log, range: Range<LogOffset>) {
        for piece in self.asked.drain(..) {
            let start = LogOffset(piece * PIECE).max(range.start);
            let end = LogOffset((piece + 1) * PIECE).min(range.end);
            if end.0 < (piece + 1) * PIECE {
                // It is being written; who asks again later has all of it.
                self.done.remove(&piece);
            } else if start < end {
                max.index(log, start..end);
            }
        }
        // What is out of reach is never asked for again.
        if let Some(&first) = self.done.first()
            && first < range.start.0 / PIECE
        {
            self.done = self.done.split_off(&(range.start.0 / PIECE));
        }
    }
}

/// Bytes of the log indexed at once.
const PIECE: u64 = 64 << 10;
/// Pieces that one block may ask for: indexing them takes as long as searching a few blocks.
const MOST_ASKED: usize = 16;
/// Copies from which a piece is asked for are shorter.
const SHORT: u32 = 256;
