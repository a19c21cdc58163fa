//! Looking for small chunks, lying with the large ones of their blocks: all neighbours are asked for their holdings
//! [Wanax §3.3], many at a time, and one holder is asked for the chunk, another after it.

use std::collections::BTreeMap;

use oncewire_codec::Now;
use oncewire_codec::wanax::{LEAST_SHARED, LEAST_SOUGHT};
use oncewire_codec::wire::{GroupFrame, MAX_PEEK, Sought};

use super::asking::MOST_ASKING;
use super::{Asked, MemberId, Neighbourhood, Read};

/// Chunks in search.
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
    chunks: Vec<Quest>,
    /// How many have not answered.
    open: usize,
    /// When nobody is asked for them any more.
    until: Now,
}

/// The state of one chunk in search.
#[derive(Clone, Copy, Debug)]
enum Quest {
    /// Nobody has said to have it, or who said so has not brought it.
    Sought(Read),
    /// One holder was asked for it, by a request perhaps over.
    Asked(u64),
}

/// A chunk of a search.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    search: u64,
    at: usize,
}

impl Searches {
    /// Says whether a chunk is looked for so.
    pub(super) fn are_for(len: u32) -> bool {
        (LEAST_SOUGHT..LEAST_SHARED).contains(&len)
    }

    pub(super) fn gather(&mut self, read: Read) {
        self.gathered.push(read);
    }

    /// One that said to have a chunk is asked for it.
    pub(super) fn asked(&mut self, place: Place, request: u64) {
        if let Some(chunk) = self.chunk(place) {
            *chunk = Quest::Asked(request);
        }
    }

    /// Who said to have a chunk did not bring it. Returns whether others may still say so.
    pub(super) fn seek_again(&mut self, place: Place, read: Read) -> bool {
        let chunk = self.chunk(place);
        chunk.map(|chunk| *chunk = Quest::Sought(read)).is_some()
    }

    fn chunk(&mut self, place: Place) -> Option<&mut Quest> {
        self.by_id.get_mut(&place.search)?.chunks.get_mut(place.at)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.gathered.is_empty() && self.by_id.is_empty()
    }
}

impl Neighbourhood {
    /// Looks for the small chunks asked for since the last call, all together: to be called after [`Self::read`], once
    /// or after many.
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
        let quests = reads.iter().copied().map(Quest::Sought).collect();
        let search = Search { chunks: quests, open: members.len(), until: now + MOST_ASKING };
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

    /// Takes a neighbour's holdings; returns false if they answer something else. A chunk already asked of another is
    /// asked of it next, so a member claiming everything shuts nobody out.
    pub(super) fn handle_seen(&mut self, from: MemberId, id: u64, held: &[bool], now: Now) -> bool {
        let Some(search) = self.searches.by_id.get(&id) else { return true };
        let (is_answer, until) = (search.chunks.len() == held.len(), search.until);
        if is_answer {
            let said = search.chunks.iter().copied().enumerate().zip(held).filter(|(_, held)| **held);
            let said: Vec<(usize, Quest)> = said.map(|(chunk, _)| chunk).collect();
            for (at, chunk) in said {
                match chunk {
                    Quest::Sought(read) => {
                        self.ask_until(read, from, None, until, Some(Place { search: id, at }), now);
                    }
                    Quest::Asked(request) => self.ask_next(request, from),
                }
            }
        }
        self.leave_search(id);
        is_answer
    }

    /// One neighbour fewer is waited for; when none is, what none has is given up.
    pub(super) fn leave_search(&mut self, id: u64) {
        let Some(search) = self.searches.by_id.get_mut(&id) else { return };
        search.open = search.open.saturating_sub(1);
        if search.open > 0 {
            return;
        }
        let chunks = self.searches.by_id.remove(&id).map(|search| search.chunks).unwrap_or_default();
        for chunk in chunks {
            if let Quest::Sought(read) = chunk {
                self.give_up(&read);
            }
        }
    }
}
