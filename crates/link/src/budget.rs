//! One budget of bytes for all flows of a link.
//!
//! Three kinds of bytes share it: bytes of our applications before they are sent, sent bytes before they are
//! acknowledged, and credit of the peer. Each kind has a share the others cannot take, and each flow has a small one,
//! so every flow goes on under any use by others. Shares of a flow are smaller with more flows.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use oncewire_codec::wire::MAX_CREDIT_SHIFT;

use crate::MAX_FLOWS;

/// Bytes of an application before they are sent, per flow.
pub(crate) const SEND_QUEUE: u64 = 512 << 10;
/// The same with many waiting applications.
const LEAST_QUEUE: u64 = 16 << 10;
/// The same if the queues of all flows would exceed the budget.
const LEAST_QUEUE_OF_MANY: u64 = 4 << 10;
/// The first credit is halved for each doubling of flows beyond so many.
const FLOWS_AT_WHOLE_CREDIT: usize = 64;
/// No first credit is halved below this.
const LEAST_CREDIT: u64 = 2 << 10;
/// The least share of unacknowledged bytes.
const LEAST_KEPT: u64 = 1 << 20;

/// A sum of bytes over all flows of a link.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sum(Arc<AtomicU64>);

impl Sum {
    /// Returns the sum.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// One flow's part of a [`Sum`], for as long as this is there.
#[derive(Debug, Default)]
pub(crate) struct Part {
    sum: Sum,
    own: u64,
}

impl Part {
    /// Begins with nothing.
    pub(crate) fn of(sum: &Sum) -> Self {
        Self { sum: sum.clone(), own: 0 }
    }

    /// Sets how many bytes it is.
    pub(crate) fn set(&mut self, bytes: u64) {
        // Wraps on a decrease, and so does the sum.
        self.sum.0.fetch_add(bytes.wrapping_sub(self.own), Relaxed);
        self.own = bytes;
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// The budget, and all its uses except the codec's memory.
#[derive(Debug)]
pub(crate) struct Budget {
    /// Bytes of the budget.
    memory: u64,
    /// Bytes beside it for unacknowledged blocks: planned with the log.
    beside: u64,
    /// Bytes of our applications before they are sent.
    pub(crate) queued: Sum,
    /// Bytes of the peer not taken by our applications.
    pub(crate) received: Sum,
    /// First credits of all flows.
    pub(crate) first_credits: Sum,
    /// Sum of the windows' growth beyond first credits.
    growth: u64,
}

impl Budget {
    /// Makes an empty budget.
    pub(crate) fn new(memory: u64) -> Self {
        let (queued, received, first_credits) = Default::default();
        Self { memory, beside: 0, queued, received, first_credits, growth: 0 }
    }

    /// Sets the memory beside the budget for unacknowledged blocks.
    pub(crate) fn set_beside(&mut self, bytes: u64) {
        self.beside = bytes;
    }

    /// Sets the bytes of the budget. While it is below its use, nothing is added.
    pub(crate) fn set_memory(&mut self, bytes: u64) {
        self.memory = bytes;
    }

    /// Counts how a window has grown.
    pub(crate) fn grow(&mut self, bytes: u64) {
        self.growth += bytes;
    }

    /// Counts the end of a flow with so much growth.
    pub(crate) fn give_back(&mut self, growth: u64) {
        self.growth = self.growth.saturating_sub(growth);
    }

    /// Returns by how many bytes windows may still grow, with so many unacknowledged: an eighth is for the other
    /// direction.
    pub(crate) fn spare(&self, kept: u64) -> u64 {
        let sending = (self.queued.bytes() + kept.saturating_sub(self.beside)).max(self.memory / 8);
        self.memory.saturating_sub(sending).saturating_sub(self.credit())
    }

    /// Whether new windows may grow by so much: most of the budget is for flows in need of growth.
    pub(crate) fn fits_beginners(&self, bytes: u64, kept: u64) -> bool {
        self.growth + bytes <= self.memory / 4 && bytes <= self.spare(kept)
    }

    /// Whether a block may be sent, with so many bytes unacknowledged.
    pub(crate) fn fits_block(&self, kept: u64) -> bool {
        let sending = self.sending();
        kept < (sending / 2).max(sending.saturating_sub(self.queued.bytes()))
    }

    /// Returns the most queued bytes of each of so many flows, with so many unacknowledged: a part of the rest, so
    /// few flows get much.
    pub(crate) fn queue_limit(&self, flows: usize, kept: u64) -> u64 {
        let (sending, queued) = (self.sending(), self.queued.bytes());
        let left = (sending / 2).min(sending.saturating_sub(kept)).saturating_sub(queued);
        let least = (self.memory / flows.max(1) as u64).clamp(LEAST_QUEUE_OF_MANY, LEAST_QUEUE);
        (left / 4).clamp(least, SEND_QUEUE)
    }

    /// Whether the peer has sent more than allowed under division of first credits, with `initial` as the announced
    /// one. In a shrunken budget, windows keep their growth.
    pub(crate) fn is_overrun(&self, initial: u64) -> bool {
        self.received.bytes() > self.memory.max(self.growth).saturating_add(all_first_credits(initial))
    }

    /// The memory of both directions: for how much a link is to be counted.
    pub(crate) fn taken(&self, kept: u64) -> u64 {
        self.queued.bytes() + self.received.bytes() + kept
    }

    /// The used bytes of the budget, with so many unacknowledged: credit counts, used or not.
    pub(crate) fn reserved(&self, kept: u64) -> u64 {
        self.credit() + self.queued.bytes() + kept.saturating_sub(self.beside)
    }

    /// The most bytes of our applications queued and unacknowledged together.
    fn sending(&self) -> u64 {
        let rest = self.memory.saturating_sub(self.credit());
        rest.max(self.memory / 8).max(LEAST_KEPT) + self.beside
    }

    /// All credit of the peer, used or not.
    fn credit(&self) -> u64 {
        self.first_credits.bytes() + self.growth
    }
}

/// Returns the halvings of the first credit of a flow opened beside so many others.
pub(crate) fn credit_shift(flows: usize) -> u8 {
    let doublings = (flows / FLOWS_AT_WHOLE_CREDIT).checked_ilog2().map_or(0, |log| log + 1);
    doublings.min(MAX_CREDIT_SHIFT.into()) as u8
}

/// Returns a first credit after so many halvings.
pub(crate) fn divided(initial: u64, shift: u8) -> u64 {
    (initial >> shift.min(MAX_CREDIT_SHIFT)).max(initial.min(LEAST_CREDIT))
}

/// Returns the first credits of as many flows as there can be.
fn all_first_credits(initial: u64) -> u64 {
    let mut flows = 0;
    let mut sum = 0_u64;
    for shift in 0..=MAX_CREDIT_SHIFT {
        let end = if shift == MAX_CREDIT_SHIFT { MAX_FLOWS } else { FLOWS_AT_WHOLE_CREDIT << shift };
        sum = sum.saturating_add(divided(initial, shift).saturating_mul((end - flows) as u64));
        flows = end;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn first_credits_of_all_flows_fit_beside_the_budget() {
        for (memory, initial) in [(16 * MIB, 64 << 10), (512 * MIB, 512 << 10), (4096 * MIB, MIB)] {
            let budget = Budget::new(memory);
            let mut parts = Vec::new();
            for flows in 0..MAX_FLOWS {
                let mut part = Part::of(&budget.first_credits);
                part.set(divided(initial, credit_shift(flows)));
                parts.push(part);
            }
            let sum = budget.first_credits.bytes();
            assert_eq!(sum, all_first_credits(initial));
            let most = (memory / 2).max(memory + MAX_FLOWS as u64 * LEAST_CREDIT);
            assert!(sum <= most, "{sum} of {memory}");
            parts.clear();
            assert_eq!(budget.first_credits.bytes(), 0);
        }
    }

    #[test]
    fn few_flows_begin_with_full_credit_and_each_with_some() {
        assert_eq!([0, 63, 64, 127, 128, 1024].map(credit_shift), [0, 0, 1, 1, 2, 5]);
        assert_eq!(credit_shift(MAX_FLOWS), MAX_CREDIT_SHIFT);
        assert_eq!(divided(64 << 10, 7), LEAST_CREDIT);
        assert_eq!(divided(1000, 7), 1000, "no less than a small one");
        assert_eq!(divided(1 << 20, 7), 8 << 10);
    }

    /// Flows with full queues, in an order drawn from a seed, while so many bytes are unacknowledged at most.
    fn fill(memory: u64, flows: usize, beside: u64) -> u64 {
        let mut budget = Budget::new(memory);
        budget.set_beside(beside);
        let mut parts: Vec<Part> = (0..flows).map(|_| Part::of(&budget.queued)).collect();
        let mut kept = 0;
        let mut random = 7_u64;
        for _ in 0..flows * 200 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let part = &mut parts[(random >> 33) as usize % flows];
            if random & 1 << 32 == 0 && part.own > 0 && budget.fits_block(kept) {
                let block = part.own.min(64 << 10);
                part.set(part.own - block);
                kept += block;
            } else {
                let limit = budget.queue_limit(flows, kept);
                part.set(part.own.max(limit));
            }
        }
        budget.taken(kept)
    }

    #[test]
    fn queues_and_unacknowledged_bytes_stay_within_the_budget() {
        for memory in [16 * MIB, 256 * MIB] {
            for (flows, beside) in [(1, 0), (10, MIB), (300, 16 * MIB), (2500, 0), (MAX_FLOWS, 0)] {
                let taken = fill(memory, flows, beside);
                let least = (memory / flows as u64).clamp(LEAST_QUEUE_OF_MANY, LEAST_QUEUE);
                let most = memory + beside + flows as u64 * least + MIB;
                assert!(taken <= most, "{taken} of {memory} with {flows} flows");
                assert!(taken >= (memory / 4).min(flows as u64 * SEND_QUEUE), "{taken} of {memory}");
            }
        }
    }

    #[test]
    fn smaller_budget_grants_nothing_and_takes_nothing_back() {
        let mut budget = Budget::new(16 * MIB);
        budget.grow(14 * MIB);
        let mut received = Part::of(&budget.received);
        received.set(14 * MIB + all_first_credits(64 << 10));
        budget.set_memory(4 * MIB);
        assert_eq!((budget.spare(0), budget.reserved(0)), (0, 14 * MIB));
        assert!(!budget.is_overrun(64 << 10), "the peer may send what was granted");
        received.set(16 * MIB + all_first_credits(64 << 10));
        assert!(budget.is_overrun(64 << 10), "but no more");
        budget.give_back(14 * MIB);
        assert_eq!(budget.spare(0), 4 * MIB - MIB / 2);
        budget.set_memory(16 * MIB);
        assert_eq!(budget.spare(0), 14 * MIB);
        assert!(!budget.is_overrun(64 << 10));
    }

    #[test]
    fn each_direction_has_a_share_of_its_own() {
        let mut budget = Budget::new(16 * MIB);
        assert_eq!(budget.spare(0), 14 * MIB);
        budget.grow(14 * MIB);
        assert_eq!(budget.spare(0), 0);
        assert!(budget.fits_block(MIB) && !budget.fits_block(2 * MIB));
        assert!(budget.queue_limit(1, 0) >= 128 << 10);
        budget.give_back(14 * MIB);
        assert_eq!(budget.spare(20 * MIB), 0);
        assert!(budget.fits_block(15 * MIB) && !budget.fits_block(16 * MIB));
        assert_eq!(budget.queue_limit(1, 0), SEND_QUEUE);
        assert_eq!(budget.queue_limit(5000, 16 * MIB), LEAST_QUEUE_OF_MANY);
    }
}
