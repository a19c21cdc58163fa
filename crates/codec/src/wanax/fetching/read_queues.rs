//! Reads the store is not asked for yet, since it has enough to do.
//!
//! Each disk has a queue of its own, so none waits for another, and chunks without a disk wait for nothing. Chunks of
//! one read leave together, for any blocks, so the read is not done again for each.

use std::collections::{BTreeMap, BTreeSet};

use crate::contract::StoreRequest;

/// A chunk's place: a disk, and the number of a read with other chunks; none without a disk.
pub(crate) type ReadPlace = Option<(u16, u64)>;

/// All queues: by disk, before them what takes none.
#[derive(Default)]
pub(crate) struct ReadQueues {
    queues: BTreeMap<Option<u16>, ReadQueue>,
    asked: usize,
}

#[derive(Default)]
struct ReadQueue {
    /// What the store is not asked for by ticket, with the read bringing it: the first was planned first.
    waiting: BTreeMap<u64, (Option<u64>, StoreRequest)>,
    /// The tickets of them by read.
    together: BTreeMap<u64, BTreeSet<u64>>,
    /// Those for whose read the store was asked already.
    joining: BTreeSet<u64>,
    /// What the store was asked for and has not answered, and how many of them each read brings.
    asked: usize,
    reads: BTreeMap<u64, usize>,
    /// The reads it has done since nothing waited.
    done: usize,
}

impl ReadQueues {
    pub(crate) fn push(&mut self, ticket: u64, place: ReadPlace, request: StoreRequest) {
        self.queues.entry(disk(place)).or_default().push(ticket, read(place), request);
    }

    /// Takes the next of a queue with less than `most` reads at the store, or a chunk of a read at the store, within
    /// [`MOST_CHUNKS`]. `most` is told the disk, and the reads it has done since nothing waited for it.
    pub(crate) fn pop(&mut self, most: impl Fn(u16, usize) -> usize) -> Option<StoreRequest> {
        let mut queues = self.queues.iter_mut();
        let request = queues.find_map(|(disk, queue)| match disk {
            Some(disk) => queue.pop(most(*disk, queue.done), MOST_CHUNKS),
            None => queue.pop(usize::MAX, usize::MAX),
        })?;
        self.asked += 1;
        Some(request)
    }

    /// Takes out what the store was not asked for; returns whether it was such.
    pub(crate) fn withdraw(&mut self, ticket: u64, place: ReadPlace) -> bool {
        self.queues.get_mut(&disk(place)).is_some_and(|queue| {
            let found = queue.withdraw(ticket).is_some();
            queue.rest();
            found
        })
    }

    /// Ends what the store was asked for: done, turned away, or nobody waits for it any more.
    pub(crate) fn end(&mut self, place: ReadPlace, is_done: bool) {
        if let Some(queue) = self.queues.get_mut(&disk(place)) {
            queue.end(read(place), is_done);
            self.asked -= 1;
        }
    }

    /// Returns what the store is not asked for yet of a disk.
    pub(crate) fn waiting(&self, disk: u16) -> usize {
        self.queues.get(&Some(disk)).map_or(0, |queue| queue.waiting.len())
    }

    /// Returns what the store was asked for and has not answered.
    pub(crate) const fn asked(&self) -> usize {
        self.asked
    }
}

impl ReadQueue {
    fn push(&mut self, ticket: u64, read: Option<u64>, request: StoreRequest) {
        self.waiting.insert(ticket, (read, request));
        if let Some(read) = read {
            self.together.entry(read).or_default().insert(ticket);
            if self.reads.contains_key(&read) {
                self.joining.insert(ticket);
            }
        }
    }

    fn pop(&mut self, most_reads: usize, most_chunks: usize) -> Option<StoreRequest> {
        if self.asked >= most_chunks {
            return None;
        }
        let next = || self.waiting.keys().next().filter(|_| self.reads.len() < most_reads);
        let ticket = self.joining.first().or_else(next).copied()?;
        let (read, request) = self.withdraw(ticket)?;
        self.asked += 1;
        if let Some(read) = read {
            let chunks = self.reads.entry(read).or_default();
            *chunks += 1;
            if *chunks == 1 {
                self.joining.extend(self.together.get(&read).into_iter().flatten());
            }
        }
        Some(request)
    }

    fn withdraw(&mut self, ticket: u64) -> Option<(Option<u64>, StoreRequest)> {
        let found = self.waiting.remove(&ticket)?;
        self.joining.remove(&ticket);
        if let Some(read) = found.0
            && let Some(tickets) = self.together.get_mut(&read)
        {
            tickets.remove(&ticket);
            if tickets.is_empty() {
                self.together.remove(&read);
            }
        }
        Some(found)
    }

    fn end(&mut self, read: Option<u64>, is_done: bool) {
        self.asked -= 1;
        if let Some(read) = read
            && let Some(chunks) = self.reads.get_mut(&read)
        {
            *chunks -= 1;
            if *chunks == 0 {
                self.reads.remove(&read);
                self.done = self.done.saturating_add(usize::from(is_done));
                for ticket in self.together.get(&read).into_iter().flatten() {
                    self.joining.remove(ticket);
                }
            }
        }
        self.rest();
    }

    /// Forgets what was done, if nothing waits.
    fn rest(&mut self) {
        if self.asked == 0 && self.waiting.is_empty() {
            self.done = 0;
        }
    }
}

/// A store is asked for so many chunks of a disk at a time, however few reads bring them.
const MOST_CHUNKS: usize = 2048;

fn disk(place: ReadPlace) -> Option<u16> {
    place.map(|(disk, _)| disk)
}

fn read(place: ReadPlace) -> Option<u64> {
    place.map(|(_, read)| read)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{Purpose, StoreReply};

    fn push(queues: &mut ReadQueues, ticket: u64, place: ReadPlace) {
        // Only its ticket is looked at.
        let key = crate::wanax::NameKey::new([0; 32]);
        queues.push(
            ticket,
            place,
            StoreRequest::Peek { ticket, chunks: Vec::new(), key, purpose: Purpose::Plan },
        );
    }

    fn popped(queues: &mut ReadQueues, most: usize) -> Vec<u64> {
        let requests = std::iter::from_fn(|| queues.pop(|_, _| most));
        let ticket = |request| match request {
            StoreRequest::Peek { ticket, .. } => StoreReply::each_apart(ticket).ticket(),
            other => panic!("{other:?}"),
        };
        requests.map(ticket).collect()
    }

    fn waiting(queues: &ReadQueues) -> usize {
        [0, 1].map(|disk| queues.waiting(disk)).iter().sum()
    }

    #[test]
    fn no_lane_waits_for_another() {
        let mut queues = ReadQueues::default();
        for ticket in 0..3 {
            push(&mut queues, ticket, Some((0, ticket)));
            push(&mut queues, 10 + ticket, Some((1, ticket)));
            push(&mut queues, 20 + ticket, None);
        }
        assert_eq!(popped(&mut queues, 2), [20, 21, 22, 0, 1, 10, 11]);
        assert_eq!((queues.asked(), waiting(&queues)), (7, 2));
        queues.end(Some((1, 0)), true);
        assert_eq!(popped(&mut queues, 2), [12]);
        queues.end(None, true);
        assert!(queues.withdraw(2, Some((0, 2))) && !queues.withdraw(2, Some((0, 2))));
        queues.end(Some((0, 0)), true);
        assert_eq!(popped(&mut queues, 2), []);
        assert_eq!((queues.asked(), waiting(&queues)), (5, 0));
    }

    #[test]
    fn a_store_is_asked_for_reads_and_not_for_chunks() {
        let mut queues = ReadQueues::default();
        // Five containers of ten chunks.
        for ticket in 0..50 {
            push(&mut queues, ticket, Some((0, ticket / 10)));
        }
        assert_eq!(popped(&mut queues, 4).len(), 40);
        (0..9).for_each(|_| queues.end(Some((0, 2)), true));
        assert_eq!(popped(&mut queues, 4).len(), 0, "one of them is wanting yet");
        queues.end(Some((0, 2)), true);
        let after_one = |disk, done| if (disk, done) == (0, 1) { 4 } else { 0 };
        assert_eq!(std::iter::from_fn(|| queues.pop(after_one)).count(), 10);
        for place in [0, 1, 3, 4].map(|read| Some((0, read))) {
            (0..10).for_each(|_| queues.end(place, place != Some((0, 3))));
        }
        push(&mut queues, 60, Some((0, 9)));
        let afresh = |_, done| 1 - done;
        assert!(queues.pop(afresh).is_some(), "nothing waited, so what was done before does not count");
    }

    #[test]
    fn chunks_of_one_read_leave_together() {
        let mut queues = ReadQueues::default();
        for (ticket, read) in (0..).zip([7, 8, 9, 7, 8, 7]) {
            push(&mut queues, ticket, Some((0, read)));
        }
        assert!(queues.withdraw(5, Some((0, 7))));
        assert_eq!(popped(&mut queues, 1), [0, 3], "of read 7, beyond what the store is asked for");
        push(&mut queues, 6, Some((0, 7)));
        assert_eq!(popped(&mut queues, 1), [6], "it is still to be done");
        for _ in 0..3 {
            queues.end(Some((0, 7)), true);
        }
        push(&mut queues, 7, Some((0, 7)));
        assert_eq!(popped(&mut queues, 1), [1, 4], "7 is done, so it is one like others");
        queues.end(Some((0, 8)), true);
        assert_eq!(popped(&mut queues, 1), []);
        queues.end(Some((0, 8)), true);
        assert_eq!((popped(&mut queues, 1), waiting(&queues)), (vec![2], 1));
        (10..10 + MOST_CHUNKS as u64).for_each(|ticket| push(&mut queues, ticket, Some((0, 9))));
        assert_eq!(popped(&mut queues, 1).len(), MOST_CHUNKS - 1, "not all of them at a time");
        queues.end(Some((0, 9)), true);
        assert_eq!(popped(&mut queues, 1).len(), 1);
    }
}
