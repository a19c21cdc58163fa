//! Chunks pending for the peer: for any lane, or for the lane of their names.

use std::collections::{BTreeMap, BTreeSet};

use super::MAX_UNACKED;
use crate::wire::LaneId;

/// Pending chunks by block, as indexes of the block's names.
#[derive(Default)]
pub(crate) struct ChunkQueue {
    any_lane: BTreeMap<u64, BTreeSet<u32>>,
    by_lane: LaneQueues,
}

impl ChunkQueue {
    /// Adds chunks of a block. Blocks acknowledged meanwhile stay until there are too many.
    pub(crate) fn insert(
        &mut self,
        lane: Option<LaneId>,
        seq: u64,
        indexes: impl IntoIterator<Item = u32>,
        is_unacked: impl Fn(u64) -> bool,
    ) {
        if let Some(lane) = lane {
            return self.by_lane.insert(lane, seq, indexes, is_unacked);
        }
        let mut indexes = indexes.into_iter().peekable();
        if indexes.peek().is_none() {
            return;
        }
        if self.any_lane.len() as u64 > 2 * MAX_UNACKED {
            self.any_lane.retain(|&seq, _| is_unacked(seq));
        }
        self.any_lane.entry(seq).or_default().extend(indexes);
    }

    /// Whether chunks of a block are pending, for a lane or for any.
    pub(crate) fn contains(&self, lane: Option<LaneId>, seq: u64) -> bool {
        match lane {
            Some(lane) => self.by_lane.contains(lane, seq),
            None => self.any_lane.contains_key(&seq),
        }
    }

    /// Whether chunks are pending for any lane.
    pub(crate) fn has_any_lane(&self) -> bool {
        !self.any_lane.is_empty()
    }

    /// Takes the chunks of the oldest block, for a lane or for any.
    pub(crate) fn pop(&mut self, lane: Option<LaneId>) -> Option<(u64, BTreeSet<u32>)> {
        match lane {
            Some(lane) => self.by_lane.pop(lane),
            None => self.any_lane.pop_first(),
        }
    }

    /// Takes the chunks of a block, for a lane or for any.
    pub(crate) fn take(&mut self, lane: Option<LaneId>, seq: u64) -> Option<BTreeSet<u32>> {
        match lane {
            Some(lane) => self.by_lane.take(lane, seq),
            None => self.any_lane.remove(&seq),
        }
    }

    /// Forgets the chunks for a lost lane.
    pub(crate) fn lose_lane(&mut self, lane: LaneId) {
        self.by_lane.lose_lane(lane);
    }
}

/// Chunks for the lanes of their names: each lane finds its own, however many others have.
#[derive(Default)]
struct LaneQueues {
    lanes: BTreeMap<LaneId, BTreeMap<u64, BTreeSet<u32>>>,
    blocks: usize,
}

impl LaneQueues {
    /// Adds chunks of a block. Blocks acknowledged meanwhile stay until there are too many.
    fn insert(
        &mut self,
        lane: LaneId,
        seq: u64,
        indexes: impl IntoIterator<Item = u32>,
        is_unacked: impl Fn(u64) -> bool,
    ) {
        let mut indexes = indexes.into_iter().peekable();
        if indexes.peek().is_none() {
            return;
        }
        if self.blocks as u64 > 2 * MAX_UNACKED {
            self.lanes.values_mut().for_each(|blocks| blocks.retain(|&seq, _| is_unacked(seq)));
            self.lanes.retain(|_, blocks| !blocks.is_empty());
            self.blocks = self.lanes.values().map(BTreeMap::len).sum();
        }
        let blocks = self.lanes.entry(lane).or_default();
        let before = blocks.len();
        blocks.entry(seq).or_default().extend(indexes);
        self.blocks += blocks.len() - before;
    }

    fn contains(&self, lane: LaneId, seq: u64) -> bool {
        self.lanes.get(&lane).is_some_and(|blocks| blocks.contains_key(&seq))
    }

    /// Takes the chunks of a lane's oldest block.
    fn pop(&mut self, lane: LaneId) -> Option<(u64, BTreeSet<u32>)> {
        let (&seq, _) = self.lanes.get(&lane)?.first_key_value()?;
        Some((seq, self.take(lane, seq)?))
    }

    /// Takes the chunks of a block.
    fn take(&mut self, lane: LaneId, seq: u64) -> Option<BTreeSet<u32>> {
        let blocks = self.lanes.get_mut(&lane)?;
        let indexes = blocks.remove(&seq)?;
        if blocks.is_empty() {
            self.lanes.remove(&lane);
        }
        self.blocks -= 1;
        Some(indexes)
    }

    /// Forgets what is for a lane, lost.
    fn lose_lane(&mut self, lane: LaneId) {
        self.blocks -= self.lanes.remove(&lane).map_or(0, |blocks| blocks.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_lane_has_its_own_blocks_oldest_first() {
        let mut queues = LaneQueues::default();
        for seq in (0..9).rev() {
            queues.insert(LaneId(seq % 3), seq, [1, 0], |_| true);
        }
        queues.insert(LaneId(1), 20, [], |_| true);
        assert!(queues.contains(LaneId(2), 5) && !queues.contains(LaneId(1), 5));
        assert!(!queues.contains(LaneId(1), 20), "no chunk of it");
        queues.lose_lane(LaneId(0));
        assert_eq!(queues.take(LaneId(2), 5), Some([0, 1].into()));
        let popped = |queues: &mut LaneQueues, lane| -> Vec<u64> {
            std::iter::from_fn(|| queues.pop(LaneId(lane))).map(|(seq, _)| seq).collect()
        };
        assert_eq!([0, 1, 2].map(|lane| popped(&mut queues, lane)), [vec![], vec![1, 4, 7], vec![2, 8]]);
        assert_eq!(queues.blocks, 0);
    }

    #[test]
    fn acknowledged_blocks_are_dropped_once_there_are_many() {
        let mut queues = LaneQueues::default();
        let most = 2 * MAX_UNACKED;
        (0..=most + 1).for_each(|seq| queues.insert(LaneId(seq % 2), seq, [0], |seq| seq > most - 9));
        assert_eq!(queues.blocks, 10);
    }
}
