//! Chunks that the peer lacks, for the lanes that brought their names: each lane finds its own, however many others have.

use std::collections::{BTreeMap, BTreeSet};

use super::MAX_UNACKED;
use crate::wire::LaneId;

/// Such chunks by lane, by block, as indexes of the block's names.
#[derive(Default)]
pub(crate) struct Lacked {
    lanes: BTreeMap<LaneId, BTreeMap<u64, BTreeSet<u32>>>,
    blocks: usize,
}

impl Lacked {
    /// Adds chunks of a block. Blocks that are acknowledged meanwhile stay until there are too many.
    pub(crate) fn insert(
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

    pub(crate) fn contains(&self, lane: LaneId, seq: u64) -> bool {
        self.lanes.get(&lane).is_some_and(|blocks| blocks.contains_key(&seq))
    }

    /// Takes the chunks of a lane's oldest block.
    pub(crate) fn pop(&mut self, lane: LaneId) -> Option<(u64, BTreeSet<u32>)> {
        let (&seq, _) = self.lanes.get(&lane)?.first_key_value()?;
        Some((seq, self.take(lane, seq)?))
    }

    /// Takes the chunks of a block.
    pub(crate) fn take(&mut self, lane: LaneId, seq: u64) -> Option<BTreeSet<u32>> {
        let blocks = self.lanes.get_mut(&lane)?;
        let indexes = blocks.remove(&seq)?;
        if blocks.is_empty() {
            self.lanes.remove(&lane);
        }
        self.blocks -= 1;
        Some(indexes)
    }

    /// Forgets what is for a lane, which was lost.
    pub(crate) fn lose_lane(&mut self, lane: LaneId) {
        self.blocks -= self.lanes.remove(&lane).map_or(0, |blocks| blocks.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_lane_has_its_own_blocks_oldest_first() {
        let mut lacked = Lacked::default();
        for seq in (0..9).rev() {
            lacked.insert(LaneId(seq % 3), seq, [1, 0], |_| true);
        }
        lacked.insert(LaneId(1), 20, [], |_| true);
        assert!(lacked.contains(LaneId(2), 5) && !lacked.contains(LaneId(1), 5));
        assert!(!lacked.contains(LaneId(1), 20), "nothing of it is lacked");
        lacked.lose_lane(LaneId(0));
        assert_eq!(lacked.take(LaneId(2), 5), Some([0, 1].into()));
        let popped = |lacked: &mut Lacked, lane| -> Vec<u64> {
            std::iter::from_fn(|| lacked.pop(LaneId(lane))).map(|(seq, _)| seq).collect()
        };
        assert_eq!([0, 1, 2].map(|lane| popped(&mut lacked, lane)), [vec![], vec![1, 4, 7], vec![2, 8]]);
        assert_eq!(lacked.blocks, 0);
    }

    #[test]
    fn acknowledged_blocks_are_dropped_once_there_are_many() {
        let mut lacked = Lacked::default();
        let most = 2 * MAX_UNACKED;
        (0..=most + 1).for_each(|seq| lacked.insert(LaneId(seq % 2), seq, [0], |seq| seq > most - 9));
        assert_eq!(lacked.blocks, 10);
    }
}
