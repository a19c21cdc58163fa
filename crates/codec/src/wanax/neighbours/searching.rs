//! Looking for small chunks, which lie where the large ones do that they came with: all neighbours are asked which of
//! them they have [Wanax §3.3], many at a time, and one that says so is asked for the chunk.

use std::collections::BTreeMap;

use super::{Asked, LEAST_SHARED, LEAST_SOUGHT, MemberId, Neighbourhood, Read};
use crate::Now;
use crate::wire::{GroupFrame, MAX_PEEK, Sought};

/// What is looked for.
#[derive(Debug, Default)]
pub(super) struct Searches {
    /// Reads since neighbours were asked last.
    gathered: Vec<Read>,
    by_id: BTreeMap<u64, Search>,
    next: u64,
}

/// Chunks that several neighbours were asked for in one question.
#[derive(Debug)]
struct Search {
    /// Those that nobody has said to have.
    reads: Vec<Option<Read>>,
    /// How many have not answered.
    open: usize,
}

impl Searches {
    /// Says whether a chunk is looked for so.
    pub(super) fn are_for(len: u32) -> bool {
        (LEAST_SOUGHT..LEAST_SHARED).contains(&len)
    }

    pub(super) fn gather(&mut self, read: Read) {
        self.gathered.push(read);
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.gathered.is_empty() && self.by_id.is_empty()
    }
}

impl Neighbourhood {
    /// Looks for the small chunks that were asked for since the last call, all together: to be called after
    /// [`Self::read`], once or after many.
    pub fn look_around(&mut self, now: Now) {
        let gathered = std::mem::take(&mut self.searches.gathered);
        for reads in gathered.chunks(MAX_PEEK) {
            let able: Vec<MemberId> =
                self.members.keys().copied().filter(|id| self.can_ask(*id, now)).collect();
            match able[..] {
                [] => reads.iter().for_each(|read| self.give_up(read)),
                // Whoever has it brings it at once.
                [only] => reads.iter().for_each(|read| self.ask(*read, only, None, now)),
                _ => self.search(reads, &able, now),
            }
        }
    }

    fn search(&mut self, reads: &[Read], members: &[MemberId], now: Now) {
        let id = self.searches.next;
        self.searches.next += 1;
        let search = Search { reads: reads.iter().copied().map(Some).collect(), open: members.len() };
        self.searches.by_id.insert(id, search);
        let sought = |read: &Read| Sought { tag: read.name.tag(), len: read.len };
        let chunks: Vec<Sought> = reads.iter().map(sought).collect();
        for &member in members {
            let request = self.wait_for(member, Asked::Search(id), now);
            self.send(member, GroupFrame::Peek { request, chunks: chunks.clone() });
        }
        let patience = members.iter().filter_map(|id| self.members.get(id)).map(|member| member.patience());
        let time = patience.max().unwrap_or_default();
        reads.iter().for_each(|read| self.tell_wait(read, time));
    }

    /// A neighbour said what it has; returns false if that answers something else.
    pub(super) fn handle_seen(&mut self, from: MemberId, id: u64, held: &[bool], now: Now) -> bool {
        // One that is over was answered by others.
        let Some(search) = self.searches.by_id.get_mut(&id) else { return true };
        if search.reads.len() != held.len() {
            self.leave_search(id);
            return false;
        }
        let there = search.reads.iter_mut().zip(held).filter(|(_, held)| **held);
        let found: Vec<Read> = there.filter_map(|(read, _)| read.take()).collect();
        found.into_iter().for_each(|read| self.ask(read, from, None, now));
        self.leave_search(id);
        true
    }

    /// One neighbour fewer is waited for; what none has is given up.
    pub(super) fn leave_search(&mut self, id: u64) {
        let Some(search) = self.searches.by_id.get_mut(&id) else { return };
        search.open = search.open.saturating_sub(1);
        if search.open > 0 && search.reads.iter().any(Option::is_some) {
            return;
        }
        if let Some(search) = self.searches.by_id.remove(&id) {
            search.reads.iter().flatten().for_each(|read| self.give_up(read));
        }
    }
}
