//! A queue of events, by time and then by creation.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use oncewire_codec::Now;

/// Events due at known times.
#[derive(Debug)]
pub(super) struct Queue<E> {
    events: BinaryHeap<Reverse<Entry<E>>>,
    sequence: u64,
}

#[derive(Debug)]
struct Entry<E> {
    at: Now,
    sequence: u64,
    event: E,
}

impl<E> Queue<E> {
    /// Adds an event.
    pub(super) fn push(&mut self, at: Now, event: E) {
        self.events.push(Reverse(Entry { at, sequence: self.sequence, event }));
        self.sequence += 1;
    }

    /// Returns when the next event is due.
    pub(super) fn next_due(&self) -> Option<Now> {
        self.events.peek().map(|Reverse(entry)| entry.at)
    }

    /// Takes the next event due by `now`.
    pub(super) fn pop_due(&mut self, now: Now) -> Option<E> {
        self.next_due().filter(|at| *at <= now)?;
        self.events.pop().map(|Reverse(entry)| entry.event)
    }
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        Self { events: BinaryHeap::new(), sequence: 0 }
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Entry<E> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_by_creation() {
        let mut queue = Queue::default();
        for (at, name) in [(3, "c"), (1, "a"), (3, "d"), (2, "b")] {
            queue.push(Now::from_secs(at), name);
        }
        let mut taken = String::new();
        while let Some(at) = queue.next_due() {
            assert_eq!(queue.pop_due(at - Now::from_nanos(1)), None);
            taken.extend(queue.pop_due(at));
        }
        assert_eq!(taken, "abcd");
    }
}
