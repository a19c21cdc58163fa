//! Blocks asked for whole, and when to ask for them again.

use super::Head;
use super::by_flow::ByFlow;
use super::timed::{Due, Timed};
use crate::Now;
use crate::wire::{FlowId, RefetchReason};

/// Blocks asked for.
#[derive(Default)]
pub(crate) struct Refetches {
    blocks: Timed<Asked>,
    by_flow: ByFlow,
}

/// A block asked for.
#[derive(Clone, Copy)]
struct Asked {
    head: Head,
    deadline: Now,
    /// How long it was waited for the last time.
    interval: Now,
    reason: RefetchReason,
}

impl Due for Asked {
    fn due(&self) -> Option<Now> {
        Some(self.deadline)
    }
}

/// A request is repeated for the first time after so many times the patience, and then after twice as long each
/// time: a repair waits behind others for a slow line, and each request would bring it once more. Lanes lose nothing,
/// and when one is lost everything is asked for at once.
const ASK_PATIENCE: u32 = 8;
const LONGEST_ASK: Now = Now::from_secs(30);

impl Refetches {
    /// Notes that a block is asked for now.
    pub(crate) fn insert(&mut self, head: &Head, reason: RefetchReason, patience: Now, now: Now) {
        let interval = patience * ASK_PATIENCE;
        self.put(Asked { head: *head, deadline: now + interval, interval, reason });
    }

    /// Notes a block to be requested with the next [`Self::overdue`].
    pub(crate) fn insert_late(&mut self, head: &Head, reason: RefetchReason, now: Now) {
        self.put(Asked { head: *head, deadline: now, interval: Now::ZERO, reason });
    }

    fn put(&mut self, asked: Asked) {
        self.remove(asked.head.seq);
        self.by_flow.insert(&asked.head);
        self.blocks.insert(asked.head.seq, asked);
    }

    /// Forgets a block: it is there.
    pub(crate) fn remove(&mut self, seq: u64) {
        if let Some(asked) = self.blocks.remove(seq) {
            self.by_flow.remove(&asked.head);
        }
    }

    pub(crate) fn contains(&self, seq: u64) -> bool {
        self.blocks.contains(seq)
    }

    /// Whether one is of a flow and begins before an offset.
    pub(crate) fn holds(&self, flow: FlowId, before: u64) -> bool {
        self.by_flow.begins(flow, before)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Has everything asked for with the next [`Self::overdue`]: requests, or repairs, may have been lost with a lane.
    pub(crate) fn resend_control_state(&mut self) {
        for seq in self.blocks.such(|_| true) {
            self.blocks.change(seq, |asked| asked.deadline = Now::ZERO);
        }
    }

    /// When [`Self::overdue`] has something to say.
    pub(crate) fn deadline(&self) -> Option<Now> {
        self.blocks.deadline()
    }

    /// Returns at most `most` blocks to be asked for now, by the reason for which they were first.
    pub(crate) fn overdue(&mut self, now: Now, patience: Now, most: usize) -> Vec<(RefetchReason, Vec<u64>)> {
        let [mut missing, mut mismatched] = [Vec::new(), Vec::new()];
        for seq in self.blocks.late(now).take(most).collect::<Vec<u64>>() {
            let Some(&Asked { head, interval: before, reason, .. }) = self.blocks.get(seq) else { continue };
            let interval = (before * 2).min(LONGEST_ASK).max(patience * ASK_PATIENCE);
            self.put(Asked { head, deadline: now + interval, interval, reason });
            match reason {
                RefetchReason::Missing => missing.push(seq),
                RefetchReason::Mismatch => mismatched.push(seq),
            }
        }
        let both = [(RefetchReason::Missing, missing), (RefetchReason::Mismatch, mismatched)];
        both.into_iter().filter(|(_, seqs)| !seqs.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::refetch::RefetchReason::{Mismatch, Missing as Lost};

    const PATIENCE: Now = Now::from_millis(400);

    /// The blocks to be asked for, if all for one reason.
    fn overdue(missing: &mut Refetches, now: Now, most: usize) -> Vec<u64> {
        let asked = missing.overdue(now, PATIENCE, most);
        assert!(asked.iter().all(|(reason, _)| *reason == Lost));
        asked.into_iter().flat_map(|(_, seqs)| seqs).collect()
    }

    #[test]
    fn a_block_is_asked_for_ever_more_seldom() {
        let mut missing = Refetches::default();
        missing.insert(&Head::of(7), Lost, PATIENCE, Now::ZERO);
        let mut asked = Vec::new();
        for _ in 0..7 {
            let next = missing.deadline().unwrap();
            assert!(overdue(&mut missing, next - Now::from_nanos(1), 9).is_empty());
            assert_eq!(overdue(&mut missing, next, 9), [7]);
            asked.push(next.as_millis());
        }
        assert_eq!(asked, [3200, 9600, 22_400, 48_000, 78_000, 108_000, 138_000]);
    }

    #[test]
    fn longer_path_does_not_hasten_repeated_requests() {
        let mut missing = Refetches::default();
        missing.insert(&Head::of(7), Lost, PATIENCE, Now::ZERO);
        let slow = Now::from_secs(5);
        missing.overdue(Now::from_secs(4), slow, 9);
        assert_eq!(missing.deadline(), Some(Now::from_secs(44)));
    }

    #[test]
    fn requests_lost_with_a_lane_are_repeated_once_each() {
        let mut missing = Refetches::default();
        (0..5).for_each(|seq| missing.insert(&Head::of(seq), Lost, PATIENCE, Now::ZERO));
        missing.insert_late(&Head::of(5), Lost, Now::ZERO);
        assert_eq!(overdue(&mut missing, Now::ZERO, 9), [5]);
        missing.resend_control_state();
        missing.remove(2);
        let now = Now::from_millis(100);
        assert_eq!(overdue(&mut missing, now, 3), [0, 1, 3]);
        assert_eq!(overdue(&mut missing, now, 3), [4, 5]);
        assert_eq!(overdue(&mut missing, now, 3), [0; 0]);
        (0..6).for_each(|seq| missing.remove(seq));
        assert!(missing.is_empty() && missing.deadline().is_none());
    }

    #[test]
    fn repeated_request_keeps_its_first_reason() {
        let mut missing = Refetches::default();
        missing.insert(&Head::of(3), Mismatch, PATIENCE, Now::ZERO);
        missing.insert(&Head::of(4), Lost, PATIENCE, Now::ZERO);
        missing.insert_late(&Head::of(5), Mismatch, Now::ZERO);
        let again = [(Lost, vec![4]), (Mismatch, vec![3, 5])];
        for _ in 0..2 {
            missing.resend_control_state();
            assert_eq!(missing.overdue(Now::from_millis(100), PATIENCE, 9), again);
        }
    }
}
