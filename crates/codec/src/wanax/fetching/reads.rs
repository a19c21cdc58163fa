//! Unanswered requests to the store: tickets, and the reads of each disk.

use std::collections::BTreeMap;

use super::read_queues::{ReadPlace, ReadQueues};
use crate::Now;
use crate::contract::StoreRequest;

/// All requests to the store that are not answered.
#[derive(Default)]
pub(crate) struct Reads {
    tickets: BTreeMap<u64, Ticket>,
    next: u64,
    /// What of it the store is not asked for yet.
    queues: ReadQueues,
    /// Chunks each read of a disk is to bring.
    chunks: BTreeMap<(u16, u64), u32>,
    /// Reads of each disk.
    queued: BTreeMap<u16, u32>,
    /// Reads, and the chunks they brought, lately.
    seen: (u64, u64),
    /// Chunks brought, in all.
    brought: u64,
}

/// How far the store was when reads were planned, and when it was last looked at.
#[derive(Clone, Copy)]
pub(crate) struct Progress {
    planned: Now,
    waiting: u32,
    brought: u64,
    looked: u64,
}

struct Ticket {
    block: u64,
    /// None for the question where chunks are.
    read: Option<ReadPlace>,
}

/// So many chunks are remembered, and half of them at least.
const REMEMBERED: u64 = 2048;

impl Reads {
    /// Returns a ticket for a block's question where chunks are.
    pub(crate) fn open_peek(&mut self, block: u64) -> u64 {
        let ticket = self.number();
        self.tickets.insert(ticket, Ticket { block, read: None });
        ticket
    }

    /// Has the store asked for a chunk of a block at `place`; returns the ticket, the input of `request`.
    pub(crate) fn open(
        &mut self,
        block: u64,
        place: ReadPlace,
        request: impl FnOnce(u64) -> StoreRequest,
    ) -> u64 {
        let ticket = self.number();
        self.tickets.insert(ticket, Ticket { block, read: Some(place) });
        self.queues.push(ticket, place, request(ticket));
        if let Some(read) = place {
            let chunks = self.chunks.entry(read).or_default();
            *chunks += 1;
            let is_first = *chunks == 1;
            *self.queued.entry(read.0).or_default() += u32::from(is_first);
            self.seen = (self.seen.0 + u64::from(is_first), self.seen.1 + 1);
            if self.seen.1 >= REMEMBERED {
                self.seen = (self.seen.0 / 2, self.seen.1 / 2);
            }
        }
        ticket
    }

    /// Returns the next read to ask the store for, if it has less than `most` of its disk, by the reads it has done of
    /// that.
    pub(crate) fn poll(&mut self, most: impl Fn(u16, usize) -> usize) -> Option<StoreRequest> {
        self.queues.pop(most)
    }

    /// Returns a ticket that no other request has.
    pub(crate) fn number(&mut self) -> u64 {
        let ticket = self.next;
        self.next += 1;
        ticket
    }

    /// Ends a request nobody waits for any more, whether or not the store was asked for it.
    pub(crate) fn close(&mut self, ticket: u64) {
        if !self.withdraw(ticket) {
            self.end(ticket, false);
        }
    }

    /// Ends a request, done by the store or not; returns its block.
    pub(crate) fn end(&mut self, ticket: u64, is_done: bool) -> Option<u64> {
        let Ticket { block, read } = self.tickets.remove(&ticket)?;
        if let Some(place) = read {
            self.queues.end(place, is_done);
            self.finish(place);
        }
        Some(block)
    }

    /// Ends a request if the store was not asked for it yet; returns whether it was such.
    pub(crate) fn withdraw(&mut self, ticket: u64) -> bool {
        let place = self.tickets.get(&ticket).and_then(|ticket| ticket.read);
        let waits = place.filter(|&place| self.queues.withdraw(ticket, place));
        if let Some(place) = waits {
            self.tickets.remove(&ticket);
            self.finish(place);
        }
        waits.is_some()
    }

    /// As [`Self::withdraw`], if it is of a disk; returns the read that would bring it.
    pub(crate) fn withdraw_from(&mut self, disk: u16, ticket: u64) -> Option<u64> {
        let (of, read) = self.tickets.get(&ticket)?.read??;
        (of == disk && self.withdraw(ticket)).then_some(read)
    }

    fn finish(&mut self, place: ReadPlace) {
        if let Some(place) = place
            && let Some(chunks) = self.chunks.get_mut(&place)
        {
            *chunks -= 1;
            if *chunks == 0 {
                self.chunks.remove(&place);
                if let Some(queued) = self.queued.get_mut(&place.0) {
                    *queued -= 1;
                }
            }
        }
    }

    /// Counts a chunk the store brought.
    pub(crate) fn handle_brought(&mut self) {
        self.brought += 1;
    }

    /// Returns how far the store is.
    pub(crate) fn progress(&self, now: Now) -> Progress {
        let brought = self.brought;
        Progress { planned: now, waiting: self.len(), brought, looked: brought }
    }

    /// Looks at the chunks brought since reads were planned; returns their time, and the time of the rest at that rate.
    /// None if nothing came since the last look, or so much that the missing ones are no longer in the order of
    /// requests.
    pub(crate) fn look(&self, progress: &mut Progress, now: Now) -> Option<(Now, Now)> {
        let looked = std::mem::replace(&mut progress.looked, self.brought);
        let brought = u32::try_from(self.brought - progress.brought).unwrap_or(u32::MAX);
        if self.brought == looked || brought / 2 >= progress.waiting {
            return None;
        }
        let took = now.saturating_sub(progress.planned);
        let rest = progress.waiting.saturating_sub(brought).max(1);
        Some((took, took.checked_div(brought)?.saturating_mul(rest)))
    }

    /// Returns the block of a request that is not answered.
    pub(crate) fn block_of(&self, ticket: u64) -> Option<u64> {
        self.tickets.get(&ticket).map(|ticket| ticket.block)
    }

    /// Returns a number for a read bringing one chunk alone.
    pub(crate) fn alone(&mut self) -> u64 {
        u64::MAX - self.number()
    }

    /// Returns the reads a disk was asked for by this half.
    pub(crate) fn queued(&self, disk: u16) -> u32 {
        self.queued.get(&disk).copied().unwrap_or_default()
    }

    /// Returns the requests that are not answered.
    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.tickets.len()).unwrap_or(u32::MAX)
    }

    /// Returns the chunks the store was asked for and did not bring.
    pub(crate) fn asked(&self) -> u32 {
        u32::try_from(self.queues.asked()).unwrap_or(u32::MAX)
    }

    /// Returns the chunks on the own disk the store is not asked for yet.
    pub(crate) fn held_back(&self) -> u32 {
        u32::try_from(self.queues.waiting(0)).unwrap_or(u32::MAX)
    }

    /// Returns how many reads bring so many chunks, if they are like those of this half.
    pub(crate) fn for_chunks(&self, chunks: u32) -> u32 {
        let (reads, seen) = self.seen;
        let reads = (u64::from(chunks) * reads).checked_div(seen).unwrap_or(chunks.into());
        u32::try_from(reads).unwrap_or(u32::MAX)
    }

    /// Forgets all requests.
    pub(crate) fn clear(&mut self) {
        self.tickets.clear();
        self.queues = ReadQueues::default();
        self.chunks.clear();
        self.queued.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::Purpose;

    fn open(reads: &mut Reads, place: ReadPlace) -> u64 {
        let key = crate::wanax::NameKey::new([0; 32]);
        reads.open(1, place, |ticket| StoreRequest::Peek {
            ticket,
            chunks: Vec::new(),
            key,
            purpose: Purpose::Plan,
        })
    }

    #[test]
    fn chunks_of_one_read_count_once_until_the_last() {
        let mut reads = Reads::default();
        let tickets: Vec<u64> = [5, 5, 6].map(|read| open(&mut reads, Some((0, read)))).into();
        open(&mut reads, None);
        reads.open_peek(1);
        assert_eq!((reads.queued(0), reads.queued(1), reads.len()), (2, 0, 5));
        assert_eq!(std::iter::from_fn(|| reads.poll(|_, _| 1)).count(), 3);
        assert_eq!(reads.asked(), 3, "the third waits, and a question is no read");
        assert_eq!(reads.for_chunks(30), 20, "two reads bring three chunks");
        assert_eq!(reads.end(tickets[0], true), Some(1));
        assert_eq!((reads.queued(0), reads.end(tickets[0], true)), (2, None));
        assert!(reads.withdraw(tickets[2]) && !reads.withdraw(tickets[2]) && !reads.withdraw(tickets[1]));
        assert_eq!((reads.queued(0), reads.asked()), (1, 2));
        reads.close(tickets[1]);
        assert_eq!((reads.queued(0), reads.asked(), reads.len()), (0, 1, 2));
        reads.clear();
        assert_eq!((reads.len(), reads.asked()), (0, 0));
    }

    #[test]
    fn remaining_reads_are_estimated_from_finished_ones() {
        let ms = Now::from_millis;
        let mut reads = Reads::default();
        for read in 0..10 {
            open(&mut reads, Some((0, read)));
        }
        let mut progress = reads.progress(ms(100));
        assert_eq!(reads.look(&mut progress, ms(500)), None, "of a disk that hangs nothing is known");
        (0..4).for_each(|_| reads.handle_brought());
        assert_eq!(reads.look(&mut progress, ms(500)), Some((ms(400), ms(600))));
        assert_eq!(reads.look(&mut progress, ms(501)), None, "nothing more");
        (0..8).for_each(|_| reads.handle_brought());
        assert_eq!(
            reads.look(&mut progress, ms(580)),
            Some((ms(480), ms(40))),
            "one at least, since it is wanting"
        );
        (0..8).for_each(|_| reads.handle_brought());
        assert_eq!(reads.look(&mut progress, ms(590)), None, "twice as much: it does not come in its turn");
    }

    #[test]
    fn chunks_per_read_follow_recent_reads() {
        let mut reads = Reads::default();
        for chunk in 0..REMEMBERED {
            let ticket = open(&mut reads, Some((0, chunk)));
            reads.close(ticket);
        }
        assert_eq!(reads.for_chunks(100), 100);
        for _ in 0..20 * REMEMBERED {
            open(&mut reads, Some((0, 1)));
        }
        assert_eq!(reads.for_chunks(100), 0);
    }
}
