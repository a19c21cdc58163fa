//! Reading: the neighbours asked for a chunk, and their answers.

use bytes::Bytes;
use oncewire_codec::Now;
use oncewire_codec::wanax::LEAST_SHARED;
use oncewire_codec::wire::GroupFrame;

use super::claims::{MOST_WAIT, Verdict, Waiter};
use super::member::Member;
use super::searching::{Place, Searches};
use super::{Answer, Asked, MAX_PUT_OFF, MemberId, Neighbourhood, Output, Read, Waiting, responsible};

impl Neighbourhood {
    /// Reads a chunk: from the own store, from a neighbour, or not at all.
    pub fn read(&mut self, read: Read, now: Now) {
        let tag = read.name.tag();
        if read.len < LEAST_SHARED {
            return match !read.held && Searches::are_for(read.len) && !self.is_alone() {
                true => self.searches.gather(read),
                false => self.give_up(&read),
            };
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
            && self
                .members
                .get(&id)
                .is_some_and(|member| self.telling.own.load.wait() > member.wait().saturating_mul(2))
    }

    pub(super) fn ask(&mut self, read: Read, member: MemberId, next: Option<MemberId>, now: Now) {
        self.ask_until(read, member, next, now + MOST_ASKING, None, now);
    }

    pub(super) fn ask_until(
        &mut self,
        read: Read,
        id: MemberId,
        next: Option<MemberId>,
        until: Now,
        place: Option<Place>,
        now: Now,
    ) {
        let asked = Asked::Chunk { read, next, until, place, put_off: false };
        let is_soon = |member: &Member| member.has_room() || member.expected() <= MOST_EXPECTED;
        if !self.can_ask(id, now) || !self.members.get(&id).is_some_and(is_soon) {
            return self.go_on(asked, now);
        }
        let request = self.next_request;
        self.next_request += 1;
        self.deadlines.insert((until, request));
        self.waiting.insert(request, Waiting { member: id, asked_at: None, deadline: until, asked });
        if let Some(place) = place {
            self.searches.asked(place, request);
        }
        if let Some(member) = self.members.get_mut(&id) {
            member.queued_bytes += read.len as usize;
            member.queue.push_back(request);
        }
        self.tell_wait(&read, until.saturating_sub(now));
        self.ask_more(id, now);
    }

    /// Asks a neighbour for the chunks in its queue, as far as there is room.
    pub(super) fn ask_more(&mut self, id: MemberId, now: Now) {
        let Some(member) = self.members.get_mut(&id) else { return };
        if self.failures.rests(id, now) {
            let queue = std::mem::take(&mut member.queue);
            let waiting: Vec<Waiting> = queue.into_iter().filter_map(|request| self.take(request)).collect();
            return waiting.into_iter().for_each(|waiting| self.go_on(waiting.asked, now));
        }
        let mut late = Vec::new();
        while member.has_room()
            && let Some(request) = member.queue.pop_front()
        {
            let Some(waiting) = self.waiting.get_mut(&request) else { continue };
            let Asked::Chunk { read, until, .. } = &waiting.asked else { continue };
            if now + member.answer_time() > *until {
                late.push(request);
                continue;
            }
            let frame = GroupFrame::Get { request, name: read.name, len: read.len };
            self.stats.asked += 1;
            member.done(waiting);
            member.asked += 1;
            member.asked_bytes += read.len as usize;
            self.deadlines.remove(&(waiting.deadline, request));
            waiting.asked_at = Some(now);
            waiting.deadline = (now + member.patience()).min(*until);
            self.deadlines.insert((waiting.deadline, request));
            self.outputs.push_back(Output::Send(id, frame));
        }
        // Asked now, they would be brought to nobody.
        for request in late {
            let Some(Waiting { asked: Asked::Chunk { read, .. }, .. }) = self.take(request) else { continue };
            self.give_up(&read);
        }
    }

    /// Notes another holder of a requested chunk, unless one is noted already.
    pub(super) fn ask_next(&mut self, request: u64, id: MemberId) {
        let waiting = self.waiting.get_mut(&request);
        if let Some(Waiting { asked: Asked::Chunk { next: next @ None, .. }, .. }) = waiting {
            *next = Some(id);
        }
    }

    /// Gives a late chunk more time while its neighbour brings others; says whether it did.
    pub(super) fn is_given_time(&mut self, request: u64, now: Now) -> bool {
        let Some(waiting) = self.waiting.get_mut(&request) else { return false };
        let (Asked::Chunk { until, put_off: false, .. }, Some(asked_at)) = (&waiting.asked, waiting.asked_at)
        else {
            return false;
        };
        let last = self.members.get(&waiting.member).map_or(now, |member| member.last_moment(asked_at));
        let deadline = last.min(*until);
        if deadline <= now {
            return false;
        }
        self.deadlines.remove(&(waiting.deadline, request));
        waiting.deadline = deadline;
        self.deadlines.insert((deadline, request));
        true
    }

    /// Says how long a chunk may take.
    pub(super) fn tell_wait(&mut self, read: &Read, time: Now) {
        self.outputs.push_back(Output::Wait { ticket: read.ticket, time });
    }

    /// Goes on without an answer, or with one saying no.
    pub(super) fn go_on(&mut self, asked: Asked, now: Now) {
        match asked {
            Asked::Chunk { read, next: Some(next), until, place, .. } => {
                self.ask_until(read, next, None, until, place, now)
            }
            Asked::Chunk { read, place: Some(place), .. } if self.searches.seek_again(place, read) => {}
            Asked::Chunk { read, .. } => self.lack(read, now),
            Asked::Search(id) => self.leave_search(id),
            Asked::Survey(id) => self.leave_survey(id, false),
            Asked::Offer { .. } => {}
        }
    }

    /// Nobody who was asked has it: it is fetched, unless it is for this gateway to know another fetches it.
    fn lack(&mut self, read: Read, now: Now) {
        let tag = read.name.tag();
        if read.held || read.len < LEAST_SHARED {
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
                self.tell_wait(&read, time);
            }
        }
    }

    pub(super) fn give_up(&mut self, read: &Read) {
        self.answer(read, if read.held { Answer::Own } else { Answer::Absent });
    }

    pub(super) fn answer(&mut self, read: &Read, answer: Answer) {
        self.outputs.push_back(Output::Answer { ticket: read.ticket, answer });
    }

    /// Takes the bytes of a chunk as the answer to a read, if they match its name.
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
        let Asked::Chunk { read, next, place, put_off, .. } = waiting.asked else {
            self.wrong(&waiting, now);
            return self.go_on(waiting.asked, now);
        };
        match bytes {
            Some(bytes) if self.answer_if_right(&read, bytes.clone()) => {
                self.stats.spared += u64::from(put_off);
                self.praise(&waiting, now);
                if let Some(member) = self.members.get_mut(&from) {
                    member.denied = 0;
                }
            }
            Some(_) => {
                self.wrong(&waiting, now);
                self.go_on(waiting.asked, now);
            }
            None => {
                self.stats.absent += 1;
                match place {
                    Some(_) => self.deny(&waiting, now),
                    // A vain wait for the chunk is no merit.
                    None if put_off => {}
                    None => self.praise(&waiting, now),
                }
                match (put_off, next) {
                    (true, None) => self.give_up(&read),
                    // Who was to bring it may have found it there, and brings nothing then.
                    _ => self.go_on(waiting.asked, now),
                }
            }
        }
    }

    /// A neighbour has no such chunk despite its word, or no time for it. That may be: an index is wrong at times, and
    /// disks and queues get full. It is no merit, and a failure if it goes on so.
    fn deny(&mut self, waiting: &Waiting, now: Now) {
        let Some(member) = self.members.get_mut(&waiting.member) else { return };
        member.denied = member.denied.saturating_add(1);
        if member.denied >= MAX_DENIED {
            self.fail(waiting, now);
        }
    }

    /// A neighbour says another fetches the chunk. It may say so once, or it could hold a reader up forever. If it says
    /// so of too many, the chunk is given up.
    pub(super) fn handle_wait(&mut self, from: MemberId, request: u64, time_ms: u32, now: Now) {
        let asked = self.waiting.get_mut(&request);
        let asked = asked.filter(|waiting| waiting.member == from && waiting.asked_at.is_some());
        let Some(waiting) = asked else { return };
        let Asked::Chunk { read, put_off: false, .. } = waiting.asked else { return };
        // Nobody fetches small chunks for others.
        if read.len < LEAST_SHARED {
            return;
        }
        let Some(member) = self.members.get_mut(&from) else { return };
        if member.put_off >= MAX_PUT_OFF {
            self.stats.absent += 1;
            self.take(request);
            return self.give_up(&read);
        }
        let time = Now::from_millis(time_ms.into()).min(MOST_WAIT) + member.patience();
        let (ticket, before) = (read.ticket, waiting.deadline);
        member.done(waiting);
        member.put_off += 1;
        if let Asked::Chunk { put_off, .. } = &mut waiting.asked {
            *put_off = true;
        }
        waiting.deadline = now + time;
        self.deadlines.remove(&(before, request));
        self.deadlines.insert((now + time, request));
        self.stats.waited += 1;
        self.outputs.push_back(Output::Wait { ticket, time });
    }
}

/// How long neighbours are asked for a chunk, all together.
pub(super) const MOST_ASKING: Now = Now::from_secs(2);
/// A neighbour at which it would be a chunk's turn later than this is not asked for it.
const MOST_EXPECTED: Now = Now::from_secs(1);
/// Who denies so many chunks in a row it said to have, and brings none, has failed.
const MAX_DENIED: u32 = 16;
