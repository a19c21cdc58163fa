//! How far the head of a log may go while blocks are under way, and how much of the log blocks therefore leave free: rules
//! 2 and 3 of the [cache](crate::log).

use std::collections::VecDeque;

/// The free part of a log with at most `most` in flight, and the ends set to it by blocks under way.
#[derive(Debug)]
pub(crate) struct Headroom {
    /// What is never gone below, unless no more may be in flight.
    least: u64,
    /// What blocks leave free, before it is brought between the least and the most.
    free: u64,
    /// The most that was in flight since the head was at `since`.
    peak: u64,
    since: u64,
    /// The ends set by blocks that may be under way, by number, without those a later block sets nearer.
    ends: VecDeque<End>,
}

#[derive(Clone, Copy, Debug)]
struct End {
    seq: u64,
    /// Writing beyond this offset would write over what the block refers to.
    at: u64,
}

impl Headroom {
    /// Starts with nothing under way, and the least.
    pub(crate) fn new() -> Self {
        Self { least: LEAST, free: 0, peak: 0, since: 0, ends: VecDeque::new() }
    }

    /// Returns how much blocks leave free now: between a quarter of the most, but at least 1 MiB, and all of it.
    pub(crate) fn free(&self, most: u64) -> u64 {
        self.free.clamp((most / 4).max(self.least.min(most)), most)
    }

    /// Returns how far back blocks refer now into a full log of `size` bytes, of which `most` may be in flight.
    pub(crate) fn reach(&self, size: u64, most: u64) -> u64 {
        size.saturating_sub(self.free(most))
    }

    /// Follows the traffic, by what will be in flight with the next block: leaves free twice as much as soon as half of
    /// it is in flight, and half as much if little of it was for long.
    pub(crate) fn note(&mut self, in_flight: u64, head: u64, most: u64) {
        self.peak = self.peak.max(in_flight);
        let free = self.free(most);
        if in_flight > free / 2 {
            self.free = in_flight.max(free).saturating_mul(2).min(most);
        } else if head.saturating_sub(self.since) >= most {
            if self.peak <= free / SPARE {
                self.free = free / 2;
            }
            (self.peak, self.since) = (in_flight, head);
        }
    }

    /// Takes note of the end a block sets, while blocks from `oldest` on are under way.
    pub(crate) fn set_end(&mut self, seq: u64, at: u64, oldest: u64) {
        while self.ends.front().is_some_and(|end| end.seq < oldest) {
            self.ends.pop_front();
        }
        while self.ends.back().is_some_and(|end| end.at >= at) {
            self.ends.pop_back();
        }
        self.ends.push_back(End { seq, at });
    }

    /// Returns the offset up to which may be remembered while blocks from `oldest` on are under way.
    pub(crate) fn end(&self, oldest: u64) -> u64 {
        self.ends.iter().find(|end| end.seq >= oldest).map_or(u64::MAX, |end| end.at)
    }

    /// Forgets all ends, where nothing is under way any more and numbers begin anew.
    pub(crate) fn forget_ends(&mut self) {
        self.ends.clear();
    }

    /// Lets small logs meet what larger ones do.
    #[cfg(test)]
    pub(crate) fn set_least(&mut self, least: u64) {
        self.least = least;
    }
}

/// If no more than this part was in flight for a while, half as much is left free.
const SPARE: u64 = 8;

/// Sixteen of the largest blocks; of a log with less in flight all of that.
const LEAST: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    use super::*;

    /// What a sending half does with a log, without its bytes.
    struct Model {
        headroom: Headroom,
        size: u64,
        head: u64,
        next: u64,
        /// Where blocks under way began, and the oldest offset they refer to.
        under_way: BTreeMap<u64, (u64, u64)>,
        refused: u64,
    }

    /// A block, or the acknowledgement of one.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        /// Its length, and how far back it refers, in thousandths of what it may.
        Send(u64, u64),
        Acknowledge(usize),
    }

    impl Model {
        fn new(size: u64, least: u64) -> Self {
            let mut headroom = Headroom::new();
            headroom.set_least(least);
            Self { headroom, size, head: 1 << 40, next: 0, under_way: BTreeMap::new(), refused: 0 }
        }

        fn free(&self) -> u64 {
            self.headroom.free(self.size / 4)
        }

        /// Sends a block; `blindly` plants the error nobody heeds what others refer to.
        fn send(&mut self, len: u64, back: u64, blindly: bool) {
            let most = self.size / 4;
            let oldest = self.under_way.first_key_value().map_or(self.next, |(&seq, _)| seq);
            let in_flight =
                self.under_way.first_key_value().map_or(0, |(_, (start, _))| self.head - start) + len;
            self.headroom.note(in_flight, self.head, most);
            assert!((most / 4..=most).contains(&self.free()));
            let source = self.head - (self.size - self.free()) * back / 1000;
            let end = self.headroom.end(oldest);
            self.headroom.set_end(self.next, source + self.size, oldest);
            self.under_way.insert(self.next, (self.head, source));
            self.next += 1;
            if in_flight <= most && (blindly || self.head + len <= end) {
                self.head += len;
            } else {
                self.refused += 1;
            }
        }

        fn acknowledge(&mut self, number: usize) {
            if let Some(&seq) = self.under_way.keys().nth(number % self.under_way.len().max(1)) {
                self.under_way.remove(&seq);
            }
        }

        /// Whether anything was written over what a block under way refers to, its own bytes aside.
        fn is_wrong(&self) -> bool {
            let overwritten = self.head.saturating_sub(self.size);
            let last = self.next.saturating_sub(1);
            self.under_way.iter().any(|(&seq, &(_, source))| seq != last && source < overwritten)
        }
    }

    /// Returns whether the rule was broken.
    fn breaks(steps: &[Step], blindly: bool) -> bool {
        let mut model = Model::new(256_000, 3000);
        steps.iter().any(|&step| {
            match step {
                Step::Send(len, back) => model.send(len, back, blindly),
                Step::Acknowledge(number) => model.acknowledge(number),
            }
            model.is_wrong()
        })
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        // Phases in which much or little is under way.
        let phase = (1u32..9, 1u64..9000, 1usize..120).prop_flat_map(|(often, len, count)| {
            let send = (1..=len, 0u64..=1000).prop_map(|(len, back)| Step::Send(len, back));
            let acknowledge = (0usize..40).prop_map(Step::Acknowledge);
            prop::collection::vec(prop_oneof![often => send, 10 - often => acknowledge], count)
        });
        prop::collection::vec(phase, 1..12).prop_map(|phases| phases.concat())
    }

    proptest! {
        #[test]
        fn sources_of_blocks_under_way_are_never_overwritten(steps in steps()) {
            prop_assert!(!breaks(&steps, false));
        }
    }

    #[test]
    fn blind_remembering_is_detected() {
        let mut runner = TestRunner::deterministic();
        let found =
            (0..200).filter(|_| breaks(&steps().new_tree(&mut runner).unwrap().current(), true)).count();
        assert!(found > 20, "found by {found} of 200");
    }

    #[test]
    fn connection_doubling_each_round_trip_is_never_refused() {
        let mut model = Model::new(64 << 20, LEAST);
        let mut window = 10 * 1460;
        while window < 8 << 20 {
            let sent = model.next;
            let mut left = window;
            while left > 0 {
                let len = left.min(64 << 10);
                model.send(len, 1000, false);
                left -= len;
                // What the last round trip sent, half as much, is acknowledged meanwhile.
                if model.next.is_multiple_of(2) {
                    model.acknowledge(0);
                }
            }
            model.under_way.retain(|&seq, _| seq >= sent);
            window *= 2;
        }
        assert_eq!((model.refused, model.free()), (0, 16 << 20));
    }

    #[test]
    fn burst_of_repeats_is_remembered_and_its_headroom_given_back() {
        let mut model = Model::new(64 << 20, LEAST);
        (0..200).for_each(|_| model.send(64 << 10, 100, false));
        assert_eq!((model.refused, model.free()), (0, 16 << 20));
        model.under_way.clear();
        for _ in 0..5 * 256 {
            model.send(64 << 10, 1000, false);
            model.under_way.clear();
        }
        assert_eq!((model.refused, model.free()), (0, 4 << 20));
    }
}
