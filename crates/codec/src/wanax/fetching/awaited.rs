//! Chunks named before the block bringing them is there: they are read once it is.
//!
//! The name tells the chunk's block, and its sequence number is lower; so no wait is circular. The sending half keeps a
//! block until it is acknowledged, so it can be requested again; once, however many wait for it.

use std::collections::BTreeSet;

use super::Fetching;
use super::blocks::Fetch;
use crate::Now;
use crate::transfer::timed::{Due, Timed};
use crate::wire::ChunkReason;

/// Blocks others wait for.
#[derive(Default)]
pub(crate) struct Awaited {
    blocks: Timed<Await>,
}

/// A block waited for.
struct Await {
    /// Who waits: each has entries among the fetching ones.
    waiting: BTreeSet<u64>,
    /// When it should be there.
    deadline: Now,
    /// Whether it was asked for.
    asked: bool,
}

impl Due for Await {
    fn due(&self) -> Option<Now> {
        Some(self.deadline)
    }
}

/// A long block on a lane that is new takes some round trips, and asking sooner would bring it twice.
const FIRST_PATIENCE: u32 = 4;
/// What was asked for is given so many times the patience, as ranges of the log are.
const ASKED_PATIENCE: u32 = 8;

impl Awaited {
    /// Lets block `waiting` wait for block `seq`.
    pub(crate) fn wait(&mut self, seq: u64, waiting: u64, patience: Now, now: Now) {
        if self.blocks.change(seq, |block| block.waiting.insert(waiting)).is_none() {
            let deadline = now + patience * FIRST_PATIENCE;
            self.blocks.insert(seq, Await { waiting: [waiting].into(), deadline, asked: false });
        }
    }

    /// Whether others wait for a block.
    pub(crate) fn contains(&self, seq: u64) -> bool {
        self.blocks.contains(seq)
    }

    /// Takes the waiters for an arrived block.
    pub(crate) fn take(&mut self, seq: u64) -> BTreeSet<u64> {
        self.blocks.remove(seq).map(|block| block.waiting).unwrap_or_default()
    }

    /// Lets block `waiting` wait no longer for block `seq`.
    pub(crate) fn leave(&mut self, seq: u64, waiting: u64) {
        let left = self.blocks.change(seq, |block| {
            block.waiting.remove(&waiting);
            block.waiting.len()
        });
        if left == Some(0) {
            self.blocks.remove(seq);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.blocks.clear();
    }

    /// Repeats requests with the next [`Self::overdue`]: they may have been lost with a lane.
    pub(crate) fn resend_control_state(&mut self) {
        for seq in self.blocks.such(|block| block.asked) {
            self.blocks.change(seq, |block| block.deadline = Now::ZERO);
        }
    }

    /// When [`Self::overdue`] has something to say.
    pub(crate) fn deadline(&self) -> Option<Now> {
        self.blocks.deadline()
    }

    /// Returns at most `most` blocks to be asked for now. Those of which something is there already, as `is_known`
    /// says, are waited for.
    pub(crate) fn overdue(
        &mut self,
        now: Now,
        patience: Now,
        most: usize,
        is_known: impl Fn(u64) -> bool,
    ) -> Vec<u64> {
        let mut overdue = Vec::new();
        for seq in self.blocks.late(now).collect::<Vec<u64>>() {
            if overdue.len() >= most {
                break;
            }
            if is_known(seq) {
                self.blocks.change(seq, |block| block.deadline = now + patience);
            } else {
                let deadline = now + patience * ASKED_PATIENCE;
                self.blocks.change(seq, |block| (block.deadline, block.asked) = (deadline, true));
                overdue.push(seq);
            }
        }
        overdue
    }
}

impl Fetching {
    /// Lets an entry wait for the block bringing its chunk.
    pub(crate) fn wait(&mut self, fetch: &mut Fetch, index: u32, seq: u64, patience: Now, now: Now) {
        self.counts.waited += 1;
        fetch.awaited.entry(seq).or_default().push(index);
        self.awaited.wait(seq, fetch.head.seq, patience, now);
        self.note_wanted(seq);
    }

    /// Goes on with the entries behind a block, arrived and, with a store, put.
    pub(crate) fn handle_arrived(&mut self, seq: u64, now: Now) {
        let waiting = self.awaited.take(seq);
        self.note_wanted(seq);
        for waiting in waiting {
            let Some(mut fetch) = self.blocks.remove(waiting) else { continue };
            let brought = fetch.awaited.remove(&seq).unwrap_or_default();
            match fetch.key {
                Some(_) => self.peek(&mut fetch, brought, now),
                None => brought.iter().for_each(|&index| self.ask(&mut fetch, index, ChunkReason::Absent)),
            }
            self.blocks.insert(waiting, fetch);
        }
    }

    /// Returns at most `most` blocks to be requested for their waiters; not those being fetched themselves, or there,
    /// as `is_known` says.
    pub(crate) fn overdue_blocks(
        &mut self,
        now: Now,
        patience: Now,
        most: usize,
        is_known: impl Fn(u64) -> bool,
    ) -> Vec<u64> {
        let Self { awaited, blocks, queue, .. } = self;
        let is_here = |seq| blocks.contains(seq) || queue.contains(seq);
        awaited.overdue(now, patience, most, |seq| is_here(seq) || is_known(seq))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Now = Now::from_millis(100);

    #[test]
    fn first_block_to_be_requested_sets_the_deadline() {
        let ms = Now::from_millis;
        let mut awaited = Awaited::default();
        for (seq, waiting, now) in [(7, 20, 0), (5, 21, 10), (7, 22, 20)] {
            awaited.wait(seq, waiting, PATIENCE, ms(now));
        }
        assert_eq!(awaited.deadline(), Some(ms(400)));
        assert_eq!(awaited.overdue(ms(400), PATIENCE, 9, |_| false), [7]);
        assert_eq!(awaited.deadline(), Some(ms(410)));
        assert_eq!(awaited.overdue(ms(410), PATIENCE, 9, |_| true), [0; 0]);
        assert_eq!(awaited.deadline(), Some(ms(510)));
        awaited.resend_control_state();
        assert_eq!(awaited.deadline(), Some(ms(0)), "what was asked for");
        awaited.leave(7, 20);
        assert_eq!(awaited.deadline(), Some(ms(0)));
        awaited.leave(7, 22);
        assert_eq!(awaited.deadline(), Some(ms(510)));
        assert_eq!(awaited.take(5), [21].into());
        assert_eq!(awaited.deadline(), None);
    }
}
