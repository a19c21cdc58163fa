//! Recent mismatches, and the number of them ending an epoch.

use std::collections::VecDeque;

use crate::Now;
use crate::transfer::MAX_UNACKED;

/// Mismatches within [`MISMATCH_WINDOW`] that start a new epoch.
const MISMATCHES_TO_NEW_EPOCH: usize = 4;
const MISMATCH_WINDOW: Now = Now::from_secs(60);
/// Ranges a wrong block may have referred to for them to be forgotten one by one.
pub(crate) const SOURCES_TO_FORGET: usize = 16;
/// Ranges that all of them together may have, within [`MISMATCH_WINDOW`].
const SOURCES_IN_WINDOW: usize = 4 * SOURCES_TO_FORGET;
/// Ranges that may be left out of the log; with more, a new epoch is cheaper.
pub(crate) const MOST_HOLES: usize = 2 * MAX_UNACKED as usize;

/// Recent blocks rebuilt wrongly from the log as it is now.
#[derive(Default)]
pub(crate) struct Suspects(VecDeque<Suspect>);

struct Suspect {
    at: Now,
    /// Whether it counts towards a new epoch.
    counts: bool,
    /// The ranges it referred to.
    sources: usize,
}

impl Suspects {
    /// Adds a wrong block with so many sources; returns whether a new epoch is cheaper than to forget them.
    pub(crate) fn add(&mut self, sources: usize, counts: bool, now: Now) -> bool {
        self.0.push_back(Suspect { at: now, counts, sources });
        while self.0.front().is_some_and(|block| block.at + MISMATCH_WINDOW < now) {
            self.0.pop_front();
        }
        sources > SOURCES_TO_FORGET
            || self.0.iter().filter(|block| block.counts).count() >= MISMATCHES_TO_NEW_EPOCH
            || self.0.iter().map(|block| block.sources).sum::<usize>() > SOURCES_IN_WINDOW
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
