//! The order of reads.

use std::collections::{HashMap, VecDeque};

/// Waiting reads: first those without a request to the disk; of those with the same request, one for all that came
/// until it is done.
pub(crate) struct Turns<R> {
    at_hand: VecDeque<R>,
    /// The requests not under way, in the order of their first reads.
    order: VecDeque<u64>,
    /// The reads of each, also of those under way.
    brought: HashMap<u64, VecDeque<R>>,
}

/// The next read.
pub(crate) struct Turn<R> {
    pub(crate) read: R,
    /// Its request; [`Turns::end`] is told of its end.
    pub(crate) request: Option<u64>,
}

impl<R> Default for Turns<R> {
    fn default() -> Self {
        Self { at_hand: VecDeque::new(), order: VecDeque::new(), brought: HashMap::new() }
    }
}

impl<R> Turns<R> {
    /// Adds a read; `request` is its request, if it takes any.
    pub(crate) fn push(&mut self, request: Option<u64>, read: R) {
        let Some(request) = request else { return self.at_hand.push_back(read) };
        let order = &mut self.order;
        let together = self.brought.entry(request).or_insert_with(|| {
            order.push_back(request);
            VecDeque::new()
        });
        together.push_back(read);
    }

    /// Takes the next read.
    pub(crate) fn pop(&mut self) -> Option<Turn<R>> {
        if let Some(read) = self.at_hand.pop_front() {
            return Some(Turn { read, request: None });
        }
        while let Some(request) = self.order.pop_front() {
            match self.brought.get_mut(&request).and_then(VecDeque::pop_front) {
                Some(read) => return Some(Turn { read, request: Some(request) }),
                None => self.brought.remove(&request),
            };
        }
        None
    }

    /// A request is done: returns the reads it `brought`. The others are now `at_hand`, or take one more, behind the
    /// waiting ones; returns also how many of them can be served.
    pub(crate) fn end(
        &mut self,
        request: u64,
        at_hand: bool,
        brought: impl Fn(&R) -> bool,
    ) -> (Vec<R>, usize) {
        let Some(together) = self.brought.remove(&request) else { return (Vec::new(), 0) };
        let (same, others): (Vec<R>, Vec<R>) = together.into_iter().partition(brought);
        let count = others.len();
        if at_hand {
            self.at_hand.extend(others);
            return (same, count);
        }
        if count > 0 {
            self.order.push_back(request);
            self.brought.insert(request, others.into());
        }
        (same, count.min(1))
    }

    /// Takes all those not under way.
    pub(crate) fn take(&mut self) -> VecDeque<R> {
        let mut all = std::mem::take(&mut self.at_hand);
        for request in std::mem::take(&mut self.order) {
            all.extend(self.brought.remove(&request).into_iter().flatten());
        }
        // Requests under way stay.
        all.extend(self.brought.values_mut().flat_map(std::mem::take));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(turns: &mut Turns<char>) -> Option<(char, Option<u64>)> {
        turns.pop().map(|turn| (turn.read, turn.request))
    }

    fn turns() -> Turns<char> {
        let mut turns = Turns::default();
        for (request, read) in [(Some(5), 'a'), (Some(7), 'b'), (None, 'c'), (Some(5), 'd'), (None, 'e')] {
            turns.push(request, read);
        }
        turns
    }

    #[test]
    fn one_read_goes_for_all_of_its_request() {
        let mut turns = turns();
        assert_eq!(next(&mut turns), Some(('c', None)));
        assert_eq!(next(&mut turns), Some(('e', None)));
        assert_eq!(next(&mut turns), Some(('a', Some(5))));
        turns.push(Some(5), 'A');
        assert_eq!(next(&mut turns), Some(('b', Some(7))));
        assert_eq!(next(&mut turns), None, "the rest waits for the request that is under way");
        assert_eq!(turns.end(5, true, |read| *read == 'A'), (vec!['A'], 1));
        assert_eq!(next(&mut turns), Some(('d', None)));
        assert_eq!(turns.end(7, true, |_| true), (vec![], 0));
        turns.push(Some(5), 'f');
        assert_eq!(next(&mut turns), Some(('f', Some(5))), "it is under way no more");
    }

    #[test]
    fn chunk_missed_by_a_request_takes_another_one() {
        let mut turns = turns();
        (0..3).for_each(|_| _ = turns.pop());
        turns.push(Some(5), 'f');
        assert_eq!(turns.end(5, false, |_| false), (vec![], 1));
        assert_eq!(next(&mut turns), Some(('b', Some(7))));
        assert_eq!(next(&mut turns), Some(('d', Some(5))));
        assert_eq!(turns.end(5, false, |_| false), (vec![], 1));
        assert_eq!(next(&mut turns), Some(('f', Some(5))));
        assert_eq!(turns.end(5, false, |_| false), (vec![], 0));
        assert_eq!(next(&mut turns), None);
    }

    #[test]
    fn waiting_reads_can_be_taken_out() {
        let mut turns = turns();
        (0..3).for_each(|_| _ = turns.pop());
        let mut taken: Vec<char> = turns.take().into();
        taken.sort_unstable();
        assert_eq!(taken, ['b', 'd']);
        turns.push(Some(5), 'f');
        assert_eq!(next(&mut turns), None, "5 is under way");
        turns.end(5, true, |_| false);
        turns.push(Some(7), 'g');
        assert_eq!(next(&mut turns), Some(('f', None)));
        assert_eq!(next(&mut turns), Some(('g', Some(7))));
    }
}
