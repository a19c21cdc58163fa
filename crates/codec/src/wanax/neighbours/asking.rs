//! Reading: who is asked for a chunk, and what its answer leads to.

use bytes::Bytes;

use super::claims::{MOST_WAIT, Verdict, Waiter};
use super::{Answer, Asked, LEAST_SHARED, MemberId, Neighbourhood, Output, Read, responsible};
use crate::Now;
use crate::wire::GroupFrame;

impl Neighbourhood {
    /// Reads a chunk: from the own store, from a neighbour, or not at all.
    pub fn read(&mut self, read: Read, now: Now) {
        let tag = read.name.tag();
        if read.len < LEAST_SHARED {
            return self.give_up(&read);
        }
        if read.held {
            let responsible = self.responsible(tag).filter(|id| self.is_less_busy(*id, now));
            return match responsible {
                Some(member) => self.ask(read, member, None, now),
                None => self.answer(&read, Answer::Own),
            };
        }
        let first = responsible(self.members.keys().copied(), tag);
        let next = responsible(self.members.keys().copied().filter(|id| Some(*id) != first), tag);
        match first {
            Some(first) => self.ask(read, first, next, now),
            None => self.answer(&read, Answer::Absent),
        }
    }

    fn is_less_busy(&self, id: MemberId, now: Now) -> bool {
        self.can_ask(id, now)
            && self.members.get(&id).is_some_and(|member| self.load.wait() > member.wait().saturating_mul(2))
    }

    fn ask(&mut self, read: Read, member: MemberId, next: Option<MemberId>, now: Now) {
        let what = Asked::Chunk { read, next, put_off: false };
        if !self.can_ask(member, now) {
            return self.go_on(what, now);
        }
        self.stats.asked += 1;
        let request = self.wait_for(member, what, now);
        if let Some(waiting) = self.waiting.get(&request) {
            let time = waiting.deadline.saturating_sub(now);
            self.outputs.push_back(Output::Wait { ticket: read.ticket, time });
        }
        self.send(member, GroupFrame::Get { request, name: read.name, len: read.len });
    }

    /// Goes on without an answer, or with one that says no.
    pub(super) fn go_on(&mut self, what: Asked, now: Now) {
        match what {
            Asked::Chunk { read, next: Some(next), .. } => self.ask(read, next, None, now),
            Asked::Chunk { read, next: None, .. } => self.lack(read, now),
            Asked::Offer { .. } => {}
        }
    }

    /// Nobody who was asked has it: it is fetched, unless it is for this gateway to know that another fetches it.
    fn lack(&mut self, read: Read, now: Now) {
        let tag = read.name.tag();
        if read.held {
            return self.give_up(&read);
        }
        if self.responsible(tag).is_some() {
            self.promises.make(tag, now);
            return self.give_up(&read);
        }
        match self.claims.join(tag, self.own, Waiter::Own(read), now) {
            Verdict::Fetch => self.give_up(&read),
            Verdict::Wait(time) => {
                self.stats.waited += 1;
                self.outputs.push_back(Output::Wait { ticket: read.ticket, time });
            }
        }
    }

    pub(super) fn give_up(&mut self, read: &Read) {
        self.answer(read, if read.held { Answer::Own } else { Answer::Absent });
    }

    pub(super) fn answer(&mut self, read: &Read, answer: Answer) {
        self.outputs.push_back(Output::Answer { ticket: read.ticket, answer });
    }

    /// Takes the bytes of a chunk as the answer to a read, if they are what its name says.
    pub(super) fn answer_if_right(&mut self, read: &Read, bytes: Bytes) -> bool {
        let right = bytes.len() == read.len as usize && self.key.matches(&read.name, &bytes);
        if right {
            self.stats.found += 1;
            self.stats.found_bytes += bytes.len() as u64;
            self.answer(read, Answer::Found(bytes));
        }
        right
    }

    pub(super) fn handle_chunk(&mut self, from: MemberId, request: u64, bytes: Option<Bytes>, now: Now) {
        let Some(waiting) = self.take_from(from, request) else { return };
        let Asked::Chunk { read, put_off, .. } = waiting.what else { return self.wrong(&waiting, now) };
        match bytes {
            Some(bytes) if self.answer_if_right(&read, bytes.clone()) => {
                self.stats.spared += u64::from(put_off);
                self.praise(&waiting, now);
            }
            Some(_) => {
                self.wrong(&waiting, now);
                self.go_on(waiting.what, now);
            }
            None => {
                self.stats.absent += 1;
                self.praise(&waiting, now);
                match put_off {
                    // It has waited enough.
                    true => self.give_up(&read),
                    false => self.go_on(waiting.what, now),
                }
            }
        }
    }

    /// A neighbour says that another fetches the chunk. It may say so once, or it could hold a reader up forever.
    pub(super) fn handle_wait(&mut self, from: MemberId, request: u64, time_ms: u32, now: Now) {
        let asked = self.waiting.get_mut(&request).filter(|waiting| waiting.member == from);
        let Some(waiting) = asked else { return };
        let Asked::Chunk { read, put_off: put_off @ false, .. } = &mut waiting.what else { return };
        let patience = self.members.get(&from).map_or(Now::ZERO, |member| member.patience());
        let time = Now::from_millis(time_ms.into()).min(MOST_WAIT) + patience;
        let (ticket, before) = (read.ticket, waiting.deadline);
        *put_off = true;
        waiting.deadline = now + time;
        self.deadlines.remove(&(before, request));
        self.deadlines.insert((now + time, request));
        self.stats.waited += 1;
        self.outputs.push_back(Output::Wait { ticket, time });
    }
}
