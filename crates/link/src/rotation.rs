//! The order of blocks with requested chunks: whose flow is answered next.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use oncewire_codec::wire::FlowId;

/// Blocks of flows. Every second turn is the oldest block's, since younger ones of any flow may wait for it; in the
/// others flows take turns, with their oldest blocks. So nothing waits for more than twice the older bytes, and no
/// flow for all of another's.
#[derive(Debug, Default)]
pub(crate) struct Rotation {
    /// Flows with blocks here, each once; the one with the last turn is last.
    turns: VecDeque<FlowId>,
    blocks: BTreeSet<(FlowId, u64)>,
    /// The same by their age.
    ages: BTreeMap<u64, FlowId>,
    /// Whether the last turn was the oldest block's.
    by_age: bool,
}

impl Rotation {
    /// Adds a block; a new flow has its turn after all others.
    pub(crate) fn insert(&mut self, flow: FlowId, seq: u64) {
        if self.oldest_of(flow).is_none() {
            self.turns.push_back(flow);
        }
        self.blocks.insert((flow, seq));
        self.ages.insert(seq, flow);
    }

    /// Takes the next block with something for `send` to send, and returns it. A block with nothing is dropped,
    /// without a turn.
    pub(crate) fn pop(&mut self, mut send: impl FnMut(u64) -> bool) -> Option<u64> {
        while let Some((flow, seq)) = self.next() {
            self.blocks.remove(&(flow, seq));
            self.ages.remove(&seq);
            let sent = send(seq);
            let has_more = self.oldest_of(flow).is_some();
            if sent || !has_more {
                match self.turns.front() {
                    Some(&front) if front == flow => drop(self.turns.pop_front()),
                    _ => self.turns.retain(|&waiting| waiting != flow),
                }
            }
            if sent {
                self.turns.extend(has_more.then_some(flow));
                self.by_age = !self.by_age;
                return Some(seq);
            }
        }
        None
    }

    pub(crate) fn len(&self) -> usize {
        self.ages.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ages.is_empty()
    }

    pub(crate) fn retain(&mut self, still_wait: impl Fn(u64) -> bool) {
        self.blocks.retain(|&(_, seq)| still_wait(seq));
        self.ages.retain(|&seq, _| still_wait(seq));
        let turns = std::mem::take(&mut self.turns);
        self.turns = turns.into_iter().filter(|&flow| self.oldest_of(flow).is_some()).collect();
    }

    fn next(&self) -> Option<(FlowId, u64)> {
        if !self.by_age {
            return self.ages.first_key_value().map(|(&seq, &flow)| (flow, seq));
        }
        let flow = *self.turns.front()?;
        self.oldest_of(flow).map(|seq| (flow, seq))
    }

    fn oldest_of(&self, flow: FlowId) -> Option<u64> {
        self.blocks.range((flow, 0)..=(flow, u64::MAX)).next().map(|&(_, seq)| seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The flow of a block, in tests.
    fn flow_of(seq: u64) -> FlowId {
        FlowId((seq / 10) as u32)
    }

    fn of_two_flows() -> Rotation {
        let mut rotation = Rotation::default();
        [12, 11, 10, 21, 20, 13].into_iter().for_each(|seq| rotation.insert(flow_of(seq), seq));
        rotation
    }

    /// Sends all there is, of some blocks in parts: this many times once more.
    fn send_all(rotation: &mut Rotation, parts: &[u64], mut send: impl FnMut(u64) -> bool) -> Vec<u64> {
        let mut parts = parts.to_vec();
        let next = || {
            let sent = rotation.pop(&mut send)?;
            if let Some(at) = parts.iter().position(|&part| part == sent) {
                parts.remove(at);
                rotation.insert(flow_of(sent), sent);
            }
            let flows: BTreeSet<FlowId> = rotation.blocks.iter().map(|&(flow, _)| flow).collect();
            let turns: BTreeSet<FlowId> = rotation.turns.iter().copied().collect();
            assert_eq!((rotation.turns.len(), turns), (flows.len(), flows), "each flow that has blocks once");
            assert_eq!(rotation.blocks.len(), rotation.len());
            Some(sent)
        };
        let sent = std::iter::from_fn(next).collect();
        assert!(rotation.is_empty() && rotation.turns.is_empty() && rotation.blocks.is_empty());
        sent
    }

    #[test]
    fn flows_take_turns_and_the_oldest_block_has_every_second() {
        let mut rotation = of_two_flows();
        // Asked for once more.
        rotation.insert(FlowId(1), 10);
        assert_eq!(rotation.len(), 6);
        assert_eq!(send_all(&mut rotation, &[], |_| true), [10, 20, 11, 21, 12, 13]);
        let mut rotation = of_two_flows();
        [30, 31, 14].into_iter().for_each(|seq| rotation.insert(flow_of(seq), seq));
        assert_eq!(send_all(&mut rotation, &[], |_| true), [10, 20, 11, 30, 12, 21, 13, 31, 14]);
    }

    #[test]
    fn rest_of_a_block_waits_behind_another_flow() {
        let sent = send_all(&mut of_two_flows(), &[10, 10, 20], |_| true);
        assert_eq!(sent, [10, 20, 10, 20, 10, 21, 11, 12, 13]);
        // All bytes of its flow, or not.
        let sent = send_all(&mut of_two_flows(), &[21, 21, 13], |_| true);
        assert_eq!(sent, [10, 20, 11, 21, 12, 21, 13, 21, 13]);
    }

    #[test]
    fn abandoned_block_takes_no_turn() {
        let mut tried = Vec::new();
        let sent = send_all(&mut of_two_flows(), &[], |seq| {
            tried.push(seq);
            ![10, 11, 20].contains(&seq)
        });
        assert_eq!(sent, [12, 21, 13]);
        assert_eq!(tried, [10, 11, 12, 20, 21, 13]);
    }

    #[test]
    fn flow_without_blocks_has_no_turn() {
        let mut rotation = of_two_flows();
        rotation.retain(|seq| seq >= 20);
        assert_eq!((rotation.len(), rotation.turns.len()), (2, 1));
        rotation.insert(FlowId(1), 14);
        assert_eq!(send_all(&mut rotation, &[], |_| true), [14, 20, 21]);
    }
}
