//! Blocks by their flows, so whether one of a flow waits is no walk over those of all others.

use std::collections::BTreeSet;

use super::Head;
use crate::wire::FlowId;

/// Blocks by flow, offset and sequence number.
#[derive(Default)]
pub(crate) struct ByFlow(BTreeSet<(FlowId, u64, u64)>);

impl ByFlow {
    pub(crate) fn insert(&mut self, head: &Head) {
        self.0.insert((head.flow, head.offset, head.seq));
    }

    pub(crate) fn remove(&mut self, head: &Head) {
        self.0.remove(&(head.flow, head.offset, head.seq));
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether a block of a flow begins before an offset.
    pub(crate) fn begins(&self, flow: FlowId, before: u64) -> bool {
        self.0.range((flow, 0, 0)..(flow, before, 0)).next().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_flows_own_earlier_blocks_count() {
        let mut by_flow = ByFlow::default();
        let head = |seq, flow, offset| Head { flow: FlowId(flow), offset, ..Head::of(seq) };
        let heads = [head(1, 7, 100), head(2, 7, 100), head(3, 8, 0), head(4, 6, 0)];
        heads.iter().for_each(|head| by_flow.insert(head));
        by_flow.remove(&heads[0]);
        let begins = |flow, before| by_flow.begins(FlowId(flow), before);
        assert!(begins(7, 101) && !begins(7, 100) && !begins(7, 0));
        assert!(begins(8, 1) && !begins(8, 0) && !begins(5, u64::MAX) && !begins(9, u64::MAX));
        by_flow.remove(&heads[1]);
        assert!(!by_flow.begins(FlowId(7), u64::MAX));
    }
}
