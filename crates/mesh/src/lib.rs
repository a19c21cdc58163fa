//! The gateways of one site and group, seen from one of them: sources and receivers of each chunk [Wanax §3.3]; reasons
//! are in `docs/internals/neighbours.md`.
//!
//! The state machine knows no disk and no link. The shell reports neighbours' links, hands in their frames and the
//! codec's reads, and after each call carries out [`Neighbourhood::poll_output`].
//!
//! By subject: `asking` for chunks and `searching` for small ones, `surveying` all holders, `serving` others' requests,
//! `offering` news, `telling` the own load, `hearing` others' frames, `claims` of one fetch for all, `trust` lost by
//! failures, and `unsent` frames.

mod announce;
mod asking;
mod claims;
mod hearing;
mod member;
mod offering;
mod rendezvous;
mod searching;
mod serving;
mod stats;
mod surveying;
mod telling;
#[cfg(test)]
mod tests;
mod trust;
mod unsent;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use oncewire_codec::Now;
use oncewire_codec::wanax::{Name, NameKey, Shape};
use oncewire_codec::wire::{GroupFrame, Sought};

pub use announce::Announcer;
use claims::Claims;
pub use hearing::{HEARD_PER_SECOND, Hearing, TALK_PER_SECOND, refusal};
use member::Member;
use offering::Promises;
pub use rendezvous::{MemberId, responsible};
use searching::{Place, Searches};
pub use stats::NeighbourStats;
pub use surveying::MAX_SURVEYS;
use surveying::Surveys;
use telling::Telling;
use trust::Failures;

/// One gateway's view of its neighbours in one group.
#[derive(Debug)]
pub struct Neighbourhood {
    own: MemberId,
    key: NameKey,
    members: BTreeMap<MemberId, Member>,
    /// Members with bad answers, or none.
    failures: Failures,
    /// Requests under way.
    waiting: BTreeMap<u64, Waiting>,
    deadlines: BTreeSet<(Now, u64)>,
    next_request: u64,
    /// Small chunks looked for at all neighbours.
    searches: Searches,
    surveys: Surveys,
    /// Bytes of offered chunks without answer.
    offered: usize,
    /// What neighbours, or this gateway, fetch from the far side and are to bring here.
    claims: Claims,
    /// What this gateway fetches and is to bring to others.
    promises: Promises,
    telling: Telling,
    outputs: VecDeque<Output>,
    stats: NeighbourStats,
}

/// The shell's work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send a frame to a neighbour; if it cannot be sent, [`Neighbourhood::handle_unsent`].
    Send(MemberId, GroupFrame),
    /// Answers [`Neighbourhood::read`].
    Answer {
        /// The caller's.
        ticket: u64,
        /// The outcome.
        answer: Answer,
    },
    /// Answers [`Neighbourhood::survey`].
    Surveyed {
        /// The caller's.
        ticket: u64,
        /// Of each chunk, whether a neighbour has it, or may have and does not say.
        held: Vec<bool>,
    },
    /// The answer may take so long from now on; it comes in any case.
    Wait {
        /// The caller's.
        ticket: u64,
        /// How long.
        time: Now,
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
        /// The shape of its cut.
        shape: Shape,
        /// The chunk.
        bytes: Bytes,
    },
}

/// The outcome of reading a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A neighbour had it; compared with its name.
    Found(Bytes),
    /// It is to be read from the own store.
    Own,
    /// No neighbour asked has it.
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

/// A new chunk of the own store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The first part of its name.
    pub tag: u64,
    /// Its bytes, as they are until it was offered and put.
    pub bytes: Bytes,
    /// Its beginning in its block.
    pub at: u32,
    /// Whether it is offered; else it is only for those waiting for it.
    pub is_shared: bool,
}

/// A request to a neighbour.
#[derive(Debug)]
struct Waiting {
    member: MemberId,
    /// None until there is room for it at the neighbour.
    asked_at: Option<Now>,
    deadline: Now,
    asked: Asked,
}

#[derive(Debug)]
enum Asked {
    Chunk {
        read: Read,
        /// Who is asked next if it is not there.
        next: Option<MemberId>,
        /// When nobody is asked any more.
        until: Now,
        /// Where it is looked for, if the neighbour said in a search it has it.
        place: Option<Place>,
        /// Whether the neighbour said it takes its time.
        put_off: bool,
    },
    /// Which of some chunks it has, for the search of the number.
    Search(u64),
    /// The same, for the survey of the number.
    Survey(u64),
    Offer {
        pieces: Vec<Piece>,
        shape: Shape,
    },
}

impl Waiting {
    /// The bytes taking room at the neighbour until they have come.
    fn bytes(&self) -> usize {
        match &self.asked {
            Asked::Chunk { read, .. } => read.len as usize,
            _ => 0,
        }
    }

    /// Whether another is to bring it, so it takes no room at the neighbour.
    fn is_put_off(&self) -> bool {
        matches!(self.asked, Asked::Chunk { put_off: true, .. })
    }
}

/// The most neighbours.
pub const MAX_MEMBERS: usize = 64;
/// The most asked of one neighbour at a time, and served to one.
pub const MAX_ASKED: usize = 256;
/// The most chunks put off by one neighbour at a time, and put off for one: they hold up nothing else.
pub const MAX_PUT_OFF: usize = 1024;
/// The most bytes asked of one neighbour at a time, and a chunk more: enough for any LAN, and little enough for answers
/// to come soon after they were asked for.
pub const MAX_ASKED_BYTES: usize = 2 << 20;
/// The most chunks waiting for room at one neighbour.
pub const MAX_WAITING: usize = 4096;
/// The most bytes of chunks offered at a time.
pub const MAX_OFFERED: usize = 8 << 20;

impl Neighbourhood {
    /// Starts without neighbours. Requests are numbered from `first_request` on, to be drawn at random: an answer meant
    /// for an earlier process is then none to this one's.
    pub fn new(own: MemberId, key: NameKey, first_request: u32) -> Self {
        Self {
            own,
            key,
            members: BTreeMap::new(),
            failures: Failures::default(),
            waiting: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            next_request: first_request.into(),
            searches: Searches::default(),
            surveys: Surveys::default(),
            offered: 0,
            claims: Claims::default(),
            promises: Promises::default(),
            telling: Telling::default(),
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

    /// Returns the counters.
    pub fn stats(&self) -> NeighbourStats {
        NeighbourStats { members: self.members.len() as u64, ..self.stats }
    }

    /// A neighbour's link came up, with the key of the group in both hellos. Returns whether it is one now: one too many is
    /// not, and may become one when another has gone.
    pub fn handle_up(&mut self, id: MemberId) -> bool {
        let is_new = id != self.own && self.members.len() < MAX_MEMBERS && !self.members.contains_key(&id);
        if is_new {
            self.members.insert(id, Member::new());
            self.tell_first(id);
        }
        self.members.contains_key(&id)
    }

    /// A neighbour's link went down. Its requests go to the next.
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
                self.go_on(waiting.asked, now);
            }
        }
        self.lose_claims(id);
    }

    /// Takes a frame from a neighbour. One that is none, or not up, is not listened to, but told so if it asks: it may take
    /// this gateway for a neighbour.
    pub fn handle_frame(&mut self, from: MemberId, frame: GroupFrame, now: Now) {
        if !self.members.contains_key(&from) {
            return refusal(&frame).into_iter().for_each(|refusal| self.send(from, refusal));
        }
        match frame {
            GroupFrame::Peek { request, chunks } => {
                self.outputs.push_back(Output::Peek { from, request, chunks });
            }
            GroupFrame::Get { request, name, len } => self.handle_get(from, request, name, len),
            GroupFrame::Put { shape, bytes } => {
                self.stats.taken += 1;
                self.handle_brought(from, &bytes, now);
                self.outputs.push_back(Output::Put { shape, bytes });
            }
            GroupFrame::Load(load) => self.hear_load(from, load, now),
            GroupFrame::Pending { bytes } => self.hear_pending(from, bytes, now),
            GroupFrame::Have { request, held } => self.handle_have(from, request, &held, now),
            GroupFrame::Wait { request, time_ms } => self.handle_wait(from, request, time_ms, now),
            GroupFrame::Chunk { request, bytes } => self.handle_chunk(from, request, bytes, now),
            // Hints are the link's.
            GroupFrame::Stored { .. } => {}
        }
        self.ask_more(from, now);
    }

    /// Answers [`Output::Peek`].
    pub fn handle_held(&mut self, from: MemberId, request: u64, held: Vec<bool>) {
        self.send(from, GroupFrame::Have { request, held });
    }

    /// Returns when [`Self::handle_timeout`] is to be called.
    pub fn poll_timeout(&self) -> Option<Now> {
        let answer = self.deadlines.first().map(|(deadline, _)| *deadline);
        [answer, self.telling_timeout(), self.claims.deadline()].into_iter().flatten().min()
    }

    /// Gives up late requests, and does any other work due.
    pub fn handle_timeout(&mut self, now: Now) {
        while let Some(&(deadline, request)) = self.deadlines.first()
            && deadline <= now
        {
            if self.is_given_time(request, now) {
                continue;
            }
            let Some(waiting) = self.take(request) else { continue };
            self.stats.late += u64::from(waiting.asked_at.is_some());
            self.fail(&waiting, now);
            match waiting.asked {
                Asked::Chunk { read, .. } => self.give_up(&read),
                Asked::Search(id) => self.leave_search(id),
                Asked::Survey(id) => self.leave_survey(id, false),
                Asked::Offer { .. } => {}
            }
            self.ask_more(waiting.member, now);
        }
        self.end_claims(now);
        self.tell(now);
    }

    /// Takes the shell's next work.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }
}

impl Neighbourhood {
    /// Returns the neighbour responsible for a chunk, unless it is this gateway itself.
    fn responsible(&self, tag: u64) -> Option<MemberId> {
        let members = self.members.keys().copied().chain([self.own]);
        responsible(members, tag).filter(|id| *id != self.own)
    }

    fn can_ask(&self, id: MemberId, now: Now) -> bool {
        let has_place = |member: &Member| member.queue.len() < MAX_WAITING;
        self.members.get(&id).is_some_and(has_place) && !self.failures.rests(id, now)
    }

    fn can_offer(&self, id: MemberId, now: Now) -> bool {
        self.members.get(&id).is_some_and(|member| member.asked < MAX_ASKED) && !self.failures.rests(id, now)
    }

    fn send(&mut self, to: MemberId, frame: GroupFrame) {
        self.outputs.push_back(Output::Send(to, frame));
    }

    fn wait_for(&mut self, id: MemberId, asked: Asked, now: Now) -> u64 {
        let request = self.next_request;
        self.next_request += 1;
        let patience = self.members.get_mut(&id).map_or(Now::ZERO, |member| {
            member.asked += 1;
            member.patience()
        });
        let deadline = now + patience;
        self.deadlines.insert((deadline, request));
        self.waiting.insert(request, Waiting { member: id, asked_at: Some(now), deadline, asked });
        request
    }

    /// Ends the wait for an answer.
    fn take(&mut self, request: u64) -> Option<Waiting> {
        let waiting = self.waiting.remove(&request)?;
        self.deadlines.remove(&(waiting.deadline, request));
        if let Some(member) = self.members.get_mut(&waiting.member) {
            member.done(&waiting);
        }
        if let Asked::Offer { pieces, .. } = &waiting.asked {
            self.offered -= pieces.iter().map(|piece| piece.bytes.len()).sum::<usize>();
        }
        Some(waiting)
    }

    /// Ends the wait for an answer from `from`; none if it was not asked.
    fn take_from(&mut self, from: MemberId, request: u64) -> Option<Waiting> {
        self.waiting.get(&request).filter(|waiting| waiting.member == from && waiting.asked_at.is_some())?;
        self.take(request)
    }

    /// An answer was unlike the request.
    fn wrong(&mut self, waiting: &Waiting, now: Now) {
        self.stats.wrong += 1;
        self.fail(waiting, now);
    }

    fn fail(&mut self, waiting: &Waiting, now: Now) {
        // What was never asked is nobody's failure.
        if let Some(asked_at) = waiting.asked_at {
            self.failures.failed(waiting.member, asked_at, now);
        }
    }

    fn praise(&mut self, waiting: &Waiting, now: Now) {
        let Some(member) = self.members.get_mut(&waiting.member) else { return };
        match (&waiting.asked, waiting.asked_at) {
            (Asked::Chunk { put_off: false, .. }, Some(asked_at)) => member.answered(asked_at, now),
            // A postponed chunk took its time for another, and the index answers without the disk.
            _ => member.spoke(now),
        }
        // Words of its holdings show it is there, and not its deliveries.
        if matches!(waiting.asked, Asked::Chunk { .. }) {
            self.failures.forgive(waiting.member);
        }
    }
}
