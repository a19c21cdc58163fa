//! What the store was asked for and has not answered: tickets, and how many reads of which disk they are.

use std::collections::BTreeMap;

use crate::Now;

/// All requests to the store that are not answered.
#[derive(Default)]
pub(super) struct Reads {
    tickets: BTreeMap<u64, Ticket>,
    next: u64,
    /// Chunks that each read of a disk is to bring.
    chunks: BTreeMap<Place, u32>,
    /// Reads of each disk.
    queued: BTreeMap<u16, u32>,
    /// Chunks that disks were asked for and did not bring.
    of_disks: usize,
    /// Reads, and the chunks that they brought, lately.
    seen: (u64, u64),
    /// Chunks that were brought, in all.
    brought: u64,
}

/// How far the store was when reads were planned, and when it was last looked at.
#[derive(Clone, Copy)]
pub(super) struct Progress {
    planned: Now,
    waiting: u32,
    brought: u64,
    looked: u64,
}

/// A read of a disk: chunks with the same one come together.
pub(super) type Place = (u16, u64);

struct Ticket {
    block: u64,
    place: Option<Place>,
}

/// So many chunks are remembered, and half of them at least.
const REMEMBERED: u64 = 2048;

impl Reads {
    /// Returns a ticket for a request of a block, and where what it asks for is, if that takes a read.
    pub(super) fn open(&mut self, block: u64, place: Option<Place>) -> u64 {
        let ticket = self.number();
        self.tickets.insert(ticket, Ticket { block, place });
        if let Some(place) = place {
            self.of_disks += 1;
            let chunks = self.chunks.entry(place).or_default();
            *chunks += 1;
            let is_first = *chunks == 1;
            *self.queued.entry(place.0).or_default() += u32::from(is_first);
            self.seen = (self.seen.0 + u64::from(is_first), self.seen.1 + 1);
            if self.seen.1 >= REMEMBERED {
                self.seen = (self.seen.0 / 2, self.seen.1 / 2);
            }
        }
        ticket
    }

    /// Returns a ticket that no other request has.
    pub(super) fn number(&mut self) -> u64 {
        let ticket = self.next;
        self.next += 1;
        ticket
    }

    /// Ends a request, answered or not; returns its block.
    pub(super) fn close(&mut self, ticket: u64) -> Option<u64> {
        let Ticket { block, place } = self.tickets.remove(&ticket)?;
        self.of_disks -= usize::from(place.is_some());
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
        Some(block)
    }

    /// Counts a chunk that the store brought.
    pub(super) fn handle_brought(&mut self) {
        self.brought += 1;
    }

    /// Returns how far the store is.
    pub(super) fn progress(&self, now: Now) -> Progress {
        let brought = self.brought;
        Progress { planned: now, waiting: self.len(), brought, looked: brought }
    }

    /// Looks at what was brought since reads were planned; returns how long that took, and how long the rest of what
    /// waited then takes at that pace. Nothing if nothing was brought since the last look, or so much that what is
    /// wanting is no longer in the order of requests.
    pub(super) fn look(&self, progress: &mut Progress, now: Now) -> Option<(Now, Now)> {
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
    pub(super) fn block_of(&self, ticket: u64) -> Option<u64> {
        self.tickets.get(&ticket).map(|ticket| ticket.block)
    }

    /// Returns a number for a read that brings one chunk alone.
    pub(super) fn alone(&self, index: u32) -> u64 {
        u64::MAX - self.next - u64::from(index)
    }

    /// Returns the reads that a disk was asked for by this half.
    pub(super) fn queued(&self, disk: u16) -> u32 {
        self.queued.get(&disk).copied().unwrap_or_default()
    }

    /// Returns the requests that are not answered.
    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.tickets.len()).unwrap_or(u32::MAX)
    }

    /// Returns the chunks that disks were asked for.
    pub(super) fn of_disks(&self) -> usize {
        self.of_disks
    }

    /// Returns how many reads bring so many chunks, if they are like those of this half.
    pub(super) fn for_chunks(&self, chunks: u32) -> u32 {
        let (reads, seen) = self.seen;
        let reads = (u64::from(chunks) * reads).checked_div(seen).unwrap_or(chunks.into());
        u32::try_from(reads).unwrap_or(u32::MAX)
    }

    /// Forgets all requests.
    pub(super) fn clear(&mut self) {
        self.tickets.clear();
        self.chunks.clear();
        self.queued.clear();
        self.of_disks = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_of_one_read_count_once_until_the_last_is_there() {
        let mut reads = Reads::default();
        let tickets: Vec<u64> = [5, 5, 6].map(|read| reads.open(1, Some((0, read)))).into();
        reads.open(1, None);
        assert_eq!((reads.queued(0), reads.queued(1)), (2, 0));
        assert_eq!(reads.of_disks(), 3);
        assert_eq!(reads.for_chunks(30), 20, "two reads bring three chunks");
        assert_eq!(reads.close(tickets[0]), Some(1));
        assert_eq!((reads.queued(0), reads.close(tickets[0])), (2, None));
        reads.close(tickets[1]);
        assert_eq!(reads.queued(0), 1);
        reads.clear();
        assert_eq!((reads.queued(0), reads.of_disks(), reads.close(tickets[2])), (0, 0, None));
    }

    #[test]
    fn what_is_left_takes_as_long_as_what_was_brought() {
        let ms = Now::from_millis;
        let mut reads = Reads::default();
        for read in 0..10 {
            reads.open(1, Some((0, read)));
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
    fn what_reads_bring_is_forgotten_by_and_by() {
        let mut reads = Reads::default();
        for chunk in 0..REMEMBERED {
            let ticket = reads.open(1, Some((0, chunk)));
            reads.close(ticket);
        }
        assert_eq!(reads.for_chunks(100), 100);
        for _ in 0..20 * REMEMBERED {
            reads.open(1, Some((0, 1)));
        }
        assert_eq!(reads.for_chunks(100), 0);
    }
}
