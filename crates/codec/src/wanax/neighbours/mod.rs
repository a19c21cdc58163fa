//! The gateways of one site and group, seen from one of them: who is asked for which chunk, and who is given which
//! [Wanax §3.3]; `docs/design/neighbours.md` says why so.
//!
//! The state machine knows no disk and no link. The shell tells which neighbours' links are up, hands in what they
//! send and what the codec wants read, and after each call carries out [`Neighbourhood::poll_output`].

mod announce;
mod member;
mod rendezvous;
mod stats;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;

use super::{Name, NameKey, Shape};
use crate::Now;
use crate::wire::{GroupFrame, Load, MAX_PEEK, Sought};

pub use announce::Announcer;
use member::Member;
pub use rendezvous::{MemberId, responsible};
pub use stats::NeighbourStats;

/// One gateway's view of its neighbours in one group.
#[derive(Debug)]
pub struct Neighbourhood {
    own: MemberId,
    key: NameKey,
    members: BTreeMap<MemberId, Member>,
    /// What was asked, by request.
    waiting: BTreeMap<u64, Waiting>,
    deadlines: BTreeSet<(Now, u64)>,
    next_request: u64,
    /// Bytes of chunks that are offered and were not answered.
    offered: usize,
    load: Load,
    told: Load,
    tell_at: Option<Now>,
    outputs: VecDeque<Output>,
    stats: NeighbourStats,
}

/// What the shell carries out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send a frame to a neighbour; if it cannot be sent, forget it.
    Send(MemberId, GroupFrame),
    /// Answers [`Neighbourhood::read`].
    Answer {
        /// The caller's.
        ticket: u64,
        /// What came of it.
        answer: Answer,
    },
    /// A neighbour asks which chunks are in the own store: [`Neighbourhood::handle_held`].
    Peek {
        /// The neighbour.
        from: MemberId,
        /// Its request.
        request: u64,
        /// The chunks.
        chunks: Vec<Sought>,
    },
    /// A neighbour asks for a chunk out of the own store, which is to match its name under the key of the group:
    /// [`Neighbourhood::handle_served`], in any case.
    Serve {
        /// The neighbour.
        from: MemberId,
        /// Its request.
        request: u64,
        /// The chunk.
        name: Name,
        /// Its length.
        len: u32,
    },
    /// A neighbour brought a chunk for the own store.
    Put {
        /// By which it was cut.
        shape: Shape,
        /// The chunk.
        bytes: Bytes,
    },
}

/// What came of reading a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A neighbour had it; compared with its name.
    Found(Bytes),
    /// It is to be read from the own store.
    Own,
    /// No neighbour that was asked has it.
    Absent,
}

/// A chunk to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// Comes back with the answer.
    pub ticket: u64,
    /// The chunk.
    pub name: Name,
    /// Its length.
    pub len: u32,
    /// Whether the own store has it.
    pub held: bool,
}

/// A chunk that is new in the own store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The first part of its name.
    pub tag: u64,
    /// Its bytes, as they are until it was offered and put.
    pub bytes: Bytes,
}

/// What was asked of a neighbour.
#[derive(Debug)]
struct Waiting {
    member: MemberId,
    asked_at: Now,
    deadline: Now,
    what: Asked,
}

#[derive(Debug)]
enum Asked {
    Chunk {
        read: Read,
        /// Who is asked next if it is not there.
        next: Option<MemberId>,
    },
    Offer {
        pieces: Vec<Piece>,
        shape: Shape,
    },
}

/// Chunks below this length are neither asked for nor offered nor announced.
pub const LEAST_SHARED: u32 = 2048;
/// The most neighbours.
pub const MAX_MEMBERS: usize = 64;
/// The most that is asked of one neighbour at a time, and served to one.
pub const MAX_ASKED: usize = 256;
/// The most bytes of chunks that are offered at a time.
pub const MAX_OFFERED: usize = 8 << 20;
/// The least time between two words on how busy the own disk is.
const TELL_EVERY: Now = Now::from_millis(50);

impl Load {
    /// Returns how long a read waits for the disk.
    pub fn wait(&self) -> Now {
        Now::from_micros(u64::from(self.service_us)).saturating_mul(self.queued.saturating_add(1))
    }
}

impl Neighbourhood {
    /// Starts without neighbours.
    pub fn new(own: MemberId, key: NameKey) -> Self {
        Self {
            own,
            key,
            members: BTreeMap::new(),
            waiting: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            next_request: 1,
            offered: 0,
            load: Load::default(),
            told: Load::default(),
            tell_at: None,
            outputs: VecDeque::new(),
            stats: NeighbourStats::default(),
        }
    }

    /// Returns the key of the group.
    pub fn key(&self) -> &NameKey {
        &self.key
    }

    /// Says whether any neighbour is up.
    pub fn is_alone(&self) -> bool {
        self.members.is_empty()
    }

    /// Returns what was counted so far.
    pub fn stats(&self) -> NeighbourStats {
        NeighbourStats { members: self.members.len() as u64, ..self.stats }
    }

    /// A neighbour's link came up, with the key of the group in both hellos. One too many is not asked for anything.
    pub fn handle_up(&mut self, id: MemberId) {
        if id != self.own && self.members.len() < MAX_MEMBERS && !self.members.contains_key(&id) {
            self.members.insert(id, Member::new());
            self.send(id, GroupFrame::Load(self.told));
        }
    }

    /// A neighbour's link went down. What was asked of it is asked of the next.
    pub fn handle_down(&mut self, id: MemberId, now: Now) {
        if self.members.remove(&id).is_none() {
            return;
        }
        let lost: Vec<u64> = self
            .waiting
            .iter()
            .filter(|(_, waiting)| waiting.member == id)
            .map(|(&request, _)| request)
            .collect();
        for request in lost {
            if let Some(waiting) = self.take(request) {
                self.go_on(waiting.what, now);
            }
        }
    }

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

    /// Offers chunks that are new in the own store to those that are responsible for them. What does not fit the bound
    /// on offers is not offered.
    pub fn offer(&mut self, shape: Shape, pieces: Vec<Piece>, now: Now) {
        let mut shares: BTreeMap<MemberId, Vec<Piece>> = BTreeMap::new();
        for piece in pieces {
            let Some(member) = self.responsible(piece.tag) else { continue };
            let fits = self.can_ask(member, now) && self.offered + piece.bytes.len() <= MAX_OFFERED;
            if !fits {
                self.stats.not_offered += 1;
                continue;
            }
            self.offered += piece.bytes.len();
            shares.entry(member).or_default().push(piece);
        }
        for (member, mut pieces) in shares {
            while !pieces.is_empty() {
                let rest = pieces.split_off(pieces.len().min(MAX_PEEK));
                let sought = |piece: &Piece| Sought { tag: piece.tag, len: piece.bytes.len() as u32 };
                let chunks = pieces.iter().map(sought).collect();
                let request = self.wait_for(member, Asked::Offer { pieces, shape }, now);
                self.send(member, GroupFrame::Peek { request, chunks });
                pieces = rest;
            }
        }
    }

    /// Takes a frame from a neighbour; one that is none, or not up, is not listened to.
    pub fn handle_frame(&mut self, from: MemberId, frame: GroupFrame, now: Now) {
        let Some(member) = self.members.get_mut(&from) else { return };
        match frame {
            GroupFrame::Peek { request, chunks } => {
                self.outputs.push_back(Output::Peek { from, request, chunks });
            }
            GroupFrame::Get { request, .. } if member.serving >= MAX_ASKED => {
                self.send(from, GroupFrame::Chunk { request, bytes: None });
            }
            GroupFrame::Get { request, name, len } => {
                member.serving += 1;
                self.outputs.push_back(Output::Serve { from, request, name, len });
            }
            GroupFrame::Put { shape, bytes } => {
                self.stats.taken += 1;
                self.outputs.push_back(Output::Put { shape, bytes });
            }
            GroupFrame::Load(load) => member.load = load,
            GroupFrame::Have { request, held } => self.handle_have(from, request, &held, now),
            GroupFrame::Chunk { request, bytes } => self.handle_chunk(from, request, bytes, now),
            // Hints are the link's.
            GroupFrame::Stored { .. } => {}
        }
    }

    /// Answers [`Output::Peek`].
    pub fn handle_held(&mut self, from: MemberId, request: u64, held: Vec<bool>) {
        self.send(from, GroupFrame::Have { request, held });
    }

    /// Answers [`Output::Serve`]: the chunk, or none.
    pub fn handle_served(&mut self, from: MemberId, request: u64, bytes: Option<Bytes>) {
        let Some(member) = self.members.get_mut(&from) else { return };
        member.serving = member.serving.saturating_sub(1);
        self.stats.served += u64::from(bytes.is_some());
        self.send(from, GroupFrame::Chunk { request, bytes });
    }

    /// Takes how busy the own disk is; neighbours are told at most every 50 ms.
    pub fn handle_load(&mut self, load: Load, now: Now) {
        self.load = load;
        if load != self.told {
            self.tell_at.get_or_insert(now);
        }
        self.tell(now);
    }

    /// Returns when [`Self::handle_timeout`] is to be called.
    pub fn poll_timeout(&self) -> Option<Now> {
        let answer = self.deadlines.first().map(|(deadline, _)| *deadline);
        answer.into_iter().chain(self.tell_at).min()
    }

    /// Gives up what was not answered in time.
    pub fn handle_timeout(&mut self, now: Now) {
        while let Some(&(deadline, request)) = self.deadlines.first()
            && deadline <= now
        {
            let Some(waiting) = self.take(request) else { continue };
            self.stats.late += 1;
            self.fail(&waiting, now);
            if let Asked::Chunk { read, .. } = waiting.what {
                self.give_up(&read);
            }
        }
        self.tell(now);
    }

    /// Takes what the shell is to do next.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }
}

impl Neighbourhood {
    /// Returns the neighbour that is responsible for a chunk, unless it is this gateway itself.
    fn responsible(&self, tag: u64) -> Option<MemberId> {
        let members = self.members.keys().copied().chain([self.own]);
        responsible(members, tag).filter(|id| *id != self.own)
    }

    fn can_ask(&self, id: MemberId, now: Now) -> bool {
        self.members.get(&id).is_some_and(|member| member.asked < MAX_ASKED && !member.rests(now))
    }

    fn is_less_busy(&self, id: MemberId, now: Now) -> bool {
        self.can_ask(id, now)
            && self.members.get(&id).is_some_and(|member| self.load.wait() > member.wait().saturating_mul(2))
    }

    fn ask(&mut self, read: Read, member: MemberId, next: Option<MemberId>, now: Now) {
        if !self.can_ask(member, now) {
            return self.go_on(Asked::Chunk { read, next }, now);
        }
        self.stats.asked += 1;
        let request = self.wait_for(member, Asked::Chunk { read, next }, now);
        self.send(member, GroupFrame::Get { request, name: read.name, len: read.len });
    }

    /// Goes on without an answer, or with one that says no.
    fn go_on(&mut self, what: Asked, now: Now) {
        match what {
            Asked::Chunk { read, next: Some(next) } => self.ask(read, next, None, now),
            Asked::Chunk { read, next: None } => self.give_up(&read),
            Asked::Offer { .. } => {}
        }
    }

    fn give_up(&mut self, read: &Read) {
        self.answer(read, if read.held { Answer::Own } else { Answer::Absent });
    }

    fn answer(&mut self, read: &Read, answer: Answer) {
        self.outputs.push_back(Output::Answer { ticket: read.ticket, answer });
    }

    fn send(&mut self, to: MemberId, frame: GroupFrame) {
        self.outputs.push_back(Output::Send(to, frame));
    }

    fn wait_for(&mut self, id: MemberId, what: Asked, now: Now) -> u64 {
        let request = self.next_request;
        self.next_request += 1;
        let patience = self.members.get_mut(&id).map_or(Now::ZERO, |member| {
            member.asked += 1;
            member.patience()
        });
        let deadline = now + patience;
        self.deadlines.insert((deadline, request));
        self.waiting.insert(request, Waiting { member: id, asked_at: now, deadline, what });
        request
    }

    /// Ends the wait for an answer.
    fn take(&mut self, request: u64) -> Option<Waiting> {
        let waiting = self.waiting.remove(&request)?;
        self.deadlines.remove(&(waiting.deadline, request));
        if let Some(member) = self.members.get_mut(&waiting.member) {
            member.asked = member.asked.saturating_sub(1);
        }
        if let Asked::Offer { pieces, .. } = &waiting.what {
            self.offered -= pieces.iter().map(|piece| piece.bytes.len()).sum::<usize>();
        }
        Some(waiting)
    }

    /// Ends the wait for an answer that came from `from`; none if it was not asked that.
    fn take_from(&mut self, from: MemberId, request: u64) -> Option<Waiting> {
        self.waiting.get(&request).filter(|waiting| waiting.member == from)?;
        self.take(request)
    }

    fn fail(&mut self, waiting: &Waiting, now: Now) {
        if let Some(member) = self.members.get_mut(&waiting.member) {
            member.failed(waiting.asked_at, now);
        }
    }

    fn handle_chunk(&mut self, from: MemberId, request: u64, bytes: Option<Bytes>, now: Now) {
        let Some(waiting) = self.take_from(from, request) else { return };
        let Asked::Chunk { read, .. } = &waiting.what else { return self.fail(&waiting, now) };
        let right = |bytes: &Bytes| bytes.len() == read.len as usize && self.key.matches(&read.name, bytes);
        match bytes {
            Some(bytes) if right(&bytes) => {
                self.stats.found += 1;
                self.stats.found_bytes += bytes.len() as u64;
                self.answer(&read.clone(), Answer::Found(bytes));
                self.praise(&waiting, now);
            }
            Some(_) => {
                self.stats.wrong += 1;
                self.fail(&waiting, now);
                self.go_on(waiting.what, now);
            }
            None => {
                self.stats.absent += 1;
                self.praise(&waiting, now);
                self.go_on(waiting.what, now);
            }
        }
    }

    fn praise(&mut self, waiting: &Waiting, now: Now) {
        if let Some(member) = self.members.get_mut(&waiting.member) {
            member.answered(waiting.asked_at, now);
        }
    }

    fn handle_have(&mut self, from: MemberId, request: u64, held: &[bool], now: Now) {
        let Some(waiting) = self.take_from(from, request) else { return };
        let Asked::Offer { pieces, shape } = &waiting.what else {
            self.fail(&waiting, now);
            return self.go_on(waiting.what, now);
        };
        if held.len() != pieces.len() {
            return self.fail(&waiting, now);
        }
        self.praise(&waiting, now);
        let missing =
            pieces.iter().zip(held).filter(|(_, held)| !**held).map(|(piece, _)| piece.bytes.clone());
        for bytes in missing {
            self.stats.given += 1;
            self.stats.given_bytes += bytes.len() as u64;
            self.outputs.push_back(Output::Send(from, GroupFrame::Put { shape: *shape, bytes }));
        }
    }

    /// Tells how busy the own disk is, if that is due.
    fn tell(&mut self, now: Now) {
        if self.tell_at.is_none_or(|at| now < at) {
            return;
        }
        self.tell_at = None;
        if self.load != self.told {
            self.told = self.load;
            self.tell_at = Some(now + TELL_EVERY);
            let members: Vec<MemberId> = self.members.keys().copied().collect();
            members.into_iter().for_each(|id| self.send(id, GroupFrame::Load(self.told)));
        }
    }
}
