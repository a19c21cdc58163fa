//! Reads that the store is not asked for yet, since it has enough to do.
//!
//! Each disk has a lane of its own, so none waits for what another one is slow with, and what takes no disk waits for
//! nothing. Chunks that one read brings leave together, whichever blocks they are for, so that it need not be done again
//! for each.

use std::collections::{BTreeMap, BTreeSet};

use crate::contract::StoreRequest;

/// Where a chunk is read: a disk, and the read of it that brings the chunk with others; none if it takes no disk.
pub(super) type Place = Option<(u16, u64)>;

/// All lanes: by disk, before them what takes none.
#[derive(Default)]
pub(super) struct Lanes {
    lanes: BTreeMap<Option<u16>, Lane>,
    asked: usize,
}

#[derive(Default)]
struct Lane {
    /// What the store is not asked for by ticket, with the read that brings it: the first was planned first.
    waiting: BTreeMap<u64, (Option<u64>, StoreRequest)>,
    /// The tickets of them by read.
    together: BTreeMap<u64, BTreeSet<u64>>,
    /// Those for whose read the store was asked already.
    joining: BTreeSet<u64>,
    /// What the store was asked for and has not answered, and how many of them each read brings.
    asked: usize,
    reads: BTreeMap<u64, usize>,
}

impl Lanes {
    pub(super) fn push(&mut self, ticket: u64, place: Place, request: StoreRequest) {
        self.lanes.entry(disk(place)).or_default().push(ticket, read(place), request);
    }

    /// Takes the next of a lane of which the store has less than `most`, or what a read brings that it has, within
    /// [`JOINING`] times as much.
    pub(super) fn pop(&mut self, most: usize) -> Option<StoreRequest> {
        let mut lanes = self.lanes.iter_mut();
        let request =
            lanes.find_map(|(disk, lane)| lane.pop(if disk.is_some() { most } else { usize::MAX }))?;
        self.asked += 1;
        Some(request)
    }

    /// Takes out what the store was not asked for; returns whether it was such.
    pub(super) fn withdraw(&mut self, ticket: u64, place: Place) -> bool {
        self.lanes.get_mut(&disk(place)).is_some_and(|lane| lane.withdraw(ticket).is_some())
    }

    /// Counts what the store was asked for as answered.
    pub(super) fn handle_answer(&mut self, place: Place) {
        if let Some(lane) = self.lanes.get_mut(&disk(place)) {
            lane.handle_answer(read(place));
            self.asked -= 1;
        }
    }

    /// Returns whether there is something that the store is not asked for yet.
    pub(super) fn is_waiting(&self) -> bool {
        self.lanes.values().any(|lane| !lane.waiting.is_empty())
    }

    /// Returns what the store was asked for and has not answered.
    pub(super) const fn asked(&self) -> usize {
        self.asked
    }
}

impl Lane {
    fn push(&mut self, ticket: u64, read: Option<u64>, request: StoreRequest) {
        self.waiting.insert(ticket, (read, request));
        if let Some(read) = read {
            self.together.entry(read).or_default().insert(ticket);
            if self.reads.contains_key(&read) {
                self.joining.insert(ticket);
            }
        }
    }

    fn pop(&mut self, most: usize) -> Option<StoreRequest> {
        let joining = self.joining.first().filter(|_| self.asked < most.saturating_mul(JOINING));
        let next = || self.waiting.first_key_value().filter(|_| self.asked < most).map(|(&ticket, _)| ticket);
        let ticket = joining.copied().or_else(next)?;
        let (read, request) = self.withdraw(ticket)?;
        self.asked += 1;
        if let Some(read) = read {
            *self.reads.entry(read).or_default() += 1;
            self.joining.extend(self.together.get(&read).into_iter().flatten());
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

    fn handle_answer(&mut self, read: Option<u64>) {
        self.asked -= 1;
        if let Some(read) = read
            && let Some(chunks) = self.reads.get_mut(&read)
        {
            *chunks -= 1;
            if *chunks == 0 {
                self.reads.remove(&read);
                for ticket in self.together.get(&read).into_iter().flatten() {
                    self.joining.remove(ticket);
                }
            }
        }
    }
}

/// With what comes with other reads, the store has at most so many times what it is else asked for.
const JOINING: usize = 4;

fn disk(place: Place) -> Option<u16> {
    place.map(|(disk, _)| disk)
}

fn read(place: Place) -> Option<u64> {
    place.map(|(_, read)| read)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{Purpose, StoreReply};

    fn push(lanes: &mut Lanes, ticket: u64, place: Place) {
        // Only its ticket is looked at.
        let key = crate::wanax::NameKey::new([0; 32]);
        lanes.push(
            ticket,
            place,
            StoreRequest::Peek { ticket, chunks: Vec::new(), key, purpose: Purpose::Plan },
        );
    }

    fn popped(lanes: &mut Lanes, most: usize) -> Vec<u64> {
        let requests = std::iter::from_fn(|| lanes.pop(most));
        let ticket = |request| match request {
            StoreRequest::Peek { ticket, .. } => StoreReply::each_apart(ticket).ticket(),
            other => panic!("{other:?}"),
        };
        requests.map(ticket).collect()
    }

    fn waiting(lanes: &Lanes) -> usize {
        lanes.lanes.values().map(|lane| lane.waiting.len()).sum()
    }

    #[test]
    fn no_lane_waits_for_another() {
        let mut lanes = Lanes::default();
        for ticket in 0..3 {
            push(&mut lanes, ticket, Some((0, ticket)));
            push(&mut lanes, 10 + ticket, Some((1, ticket)));
            push(&mut lanes, 20 + ticket, None);
        }
        assert_eq!(popped(&mut lanes, 2), [20, 21, 22, 0, 1, 10, 11]);
        assert_eq!((lanes.asked(), waiting(&lanes)), (7, 2));
        lanes.handle_answer(Some((1, 0)));
        assert_eq!(popped(&mut lanes, 2), [12]);
        lanes.handle_answer(None);
        assert!(lanes.withdraw(2, Some((0, 2))) && !lanes.withdraw(2, Some((0, 2))));
        lanes.handle_answer(Some((0, 0)));
        assert_eq!(popped(&mut lanes, 2), []);
        assert_eq!((lanes.asked(), waiting(&lanes)), (5, 0));
    }

    #[test]
    fn what_one_read_brings_leaves_together() {
        let mut lanes = Lanes::default();
        for (ticket, read) in (0..).zip([7, 8, 9, 7, 8, 7]) {
            push(&mut lanes, ticket, Some((0, read)));
        }
        assert!(lanes.withdraw(5, Some((0, 7))));
        assert_eq!(popped(&mut lanes, 1), [0, 3], "of read 7, beyond what the store is asked for");
        push(&mut lanes, 6, Some((0, 7)));
        assert_eq!(popped(&mut lanes, 1), [6], "it is still to be done");
        for _ in 0..3 {
            lanes.handle_answer(Some((0, 7)));
        }
        push(&mut lanes, 7, Some((0, 7)));
        assert_eq!(popped(&mut lanes, 1), [1, 4], "7 is done, so it is one like others");
        lanes.handle_answer(Some((0, 8)));
        assert_eq!(popped(&mut lanes, 1), []);
        lanes.handle_answer(Some((0, 8)));
        assert_eq!((popped(&mut lanes, 1), waiting(&lanes)), (vec![2], 1));
        (10..20).for_each(|ticket| push(&mut lanes, ticket, Some((0, 9))));
        assert_eq!(popped(&mut lanes, 1).len(), JOINING - 1, "not all of them at a time");
        lanes.handle_answer(Some((0, 9)));
        assert_eq!(popped(&mut lanes, 1).len(), 1);
    }
}
