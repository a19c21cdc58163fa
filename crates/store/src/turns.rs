//! The order in which reads are served.

use std::collections::{HashMap, VecDeque};

/// Reads that wait: those which take no request to the disk before all others, and those which the same request brings
/// together, when the first of them has its turn.
pub(crate) struct Turns<R> {
    at_hand: VecDeque<R>,
    /// The numbers of requests in the order in which they were first wanted, and what each brings.
    order: VecDeque<u64>,
    brought: HashMap<u64, Vec<R>>,
}

impl<R> Default for Turns<R> {
    fn default() -> Self {
        Self { at_hand: VecDeque::new(), order: VecDeque::new(), brought: HashMap::new() }
    }
}

impl<R> Turns<R> {
    /// Adds a read; `request` is the one that brings it, if it takes any.
    pub(crate) fn push(&mut self, request: Option<u64>, read: R) {
        let Some(request) = request else { return self.at_hand.push_back(read) };
        let together = self.brought.entry(request).or_default();
        if together.is_empty() {
            self.order.push_back(request);
        }
        together.push(read);
    }

    /// Takes the reads that are served next, one after the other by the same reader.
    pub(crate) fn pop(&mut self) -> Option<Vec<R>> {
        if let Some(read) = self.at_hand.pop_front() {
            return Some(vec![read]);
        }
        self.brought.remove(&self.order.pop_front()?)
    }

    /// Takes all.
    pub(crate) fn take(&mut self) -> VecDeque<R> {
        std::iter::from_fn(|| self.pop()).flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_request_brings_is_served_together_and_what_takes_none_at_once() {
        let mut turns = Turns::default();
        for (request, read) in [(Some(5), 'a'), (Some(7), 'b'), (None, 'c'), (Some(5), 'd'), (None, 'e')] {
            turns.push(request, read);
        }
        assert_eq!(turns.pop(), Some(vec!['c']));
        assert_eq!(turns.pop(), Some(vec!['e']));
        assert_eq!(turns.pop(), Some(vec!['a', 'd']));
        turns.push(Some(5), 'f');
        turns.push(None, 'g');
        assert_eq!(turns.take(), ['g', 'b', 'f']);
        assert_eq!(turns.pop(), None);
    }
}
