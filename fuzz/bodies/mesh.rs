//! A site of gateways, with frames late, reordered or lost, and one liar.

#[allow(dead_code, reason = "a part of it is used here")]
pub(crate) mod script;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use oncewire_codec::Now;
use oncewire_codec::wanax::{Name, NameKey, Shape};
use oncewire_codec::wire::{Frame, GroupFrame, Load, Sought, take_frame};
use oncewire_mesh::{
    Announcer, Answer, MAX_ASKED, MAX_MEMBERS, MemberId, Neighbourhood, Output, Piece, Read,
};

use script::Script;

/// Every read is answered once, in bounded time and with the right bytes or none; requests to and from a member are
/// bounded; and nothing is left to wait for at the end.
pub(crate) fn neighbourhood(data: &[u8]) {
    let mut script = Script::new(data);
    let mut site = Site::new();
    for _ in 0..MAX_STEPS {
        let Some(what) = script.next() else { break };
        site.step(what, &mut script);
    }
    site.settle();
}

struct Site {
    now: Now,
    key: NameKey,
    members: Vec<Member>,
    /// Frames under way: from, to.
    under_way: Vec<(usize, usize, GroupFrame)>,
    next_ticket: u64,
}

struct Member {
    id: MemberId,
    machine: Neighbourhood,
    announcer: Announcer,
    store: BTreeMap<Name, Bytes>,
    /// Reads to be made for neighbours: from, request, name.
    serving: Vec<(MemberId, u64, Name, u32)>,
    /// Unanswered reads: the chunk, whether it was held, and the time of the request.
    reads: BTreeMap<u64, (u8, bool, Now)>,
    /// Unanswered surveys.
    surveys: BTreeSet<u64>,
    /// The liar's requests, less the answers.
    owed: usize,
}

impl Site {
    fn new() -> Self {
        let key = NameKey::new([7; 32]);
        let member = |at: u8| {
            let id = MemberId::of_key(&[at; 32]);
            Member {
                id,
                machine: Neighbourhood::new(id, key.clone(), 1),
                announcer: Announcer::default(),
                store: BTreeMap::new(),
                serving: Vec::new(),
                reads: BTreeMap::new(),
                surveys: BTreeSet::new(),
                owed: 0,
            }
        };
        let members = (0..=HONEST as u8).map(member).collect();
        let mut site = Self { now: Now::from_secs(100), key, members, under_way: Vec::new(), next_ticket: 0 };
        for a in 0..=HONEST {
            (0..=HONEST).for_each(|b| site.meet(a, b));
        }
        site
    }

    fn step(&mut self, what: u8, script: &mut Script<'_>) {
        let (at, pick) = (usize::from(what >> 4) % HONEST, script.below(256));
        match what % 16 {
            0 => self.read(at, pick as u8 % CHUNKS),
            1 => {
                self.read(at, pick as u8 % CHUNKS);
                self.survey(at, pick);
            }
            2 => self.fetch(at, pick as u8 % CHUNKS),
            3 => self.serve(at, pick, script.below(4)),
            4..=6 => self.deliver(pick),
            7 => {
                drop((!self.under_way.is_empty()).then(|| self.under_way.remove(pick % self.under_way.len())))
            }
            8 => self.pass(Now::from_millis(pick as u64 * [1, 40][script.below(2)])),
            9 => self.part(at, pick % (HONEST + 1)),
            10 => self.meet(at, pick % (HONEST + 1)),
            11 => {
                let load = Load { queued: pick as u32, service_us: script.wide() as u32 };
                let pending = u64::from(load.service_us) << 10;
                self.members[at].machine.handle_busy(load, pending, self.now);
                self.carry_out(at);
            }
            12 => self.deliver_all(),
            13 => {
                let len = pick.min(64);
                self.say_bytes(at, &[&[0x90 + what / 16 % 8, len as u8], script.bytes(len)].concat());
            }
            _ => self.say(at, pick, script),
        }
    }

    fn meet(&mut self, a: usize, b: usize) {
        if a != b {
            for (at, other) in [(a, b), (b, a)] {
                let id = self.members[other].id;
                self.members[at].machine.handle_up(id);
                assert!(self.members[at].machine.stats().members <= MAX_MEMBERS as u64);
                self.carry_out(at);
            }
        }
    }

    fn part(&mut self, a: usize, b: usize) {
        self.under_way.retain(|(from, to, _)| ![(a, b), (b, a)].contains(&(*from, *to)));
        for (at, other) in [(a, b), (b, a)] {
            let id = self.members[other].id;
            self.members[at].machine.handle_down(id, self.now);
            self.members[at].serving.retain(|(from, ..)| *from != id);
            if other == HONEST {
                self.members[at].owed = 0;
            }
            self.carry_out(at);
        }
    }

    fn read(&mut self, at: usize, number: u8) {
        let chunk = chunk(number);
        let (ticket, name) = (self.next_ticket, self.key.name(&chunk));
        self.next_ticket += 1;
        let member = &mut self.members[at];
        let held = member.store.contains_key(&name);
        member.reads.insert(ticket, (number, held, self.now));
        member.machine.read(Read { ticket, name, len: chunk.len() as u32, held }, self.now);
        self.carry_out(at);
    }

    fn survey(&mut self, at: usize, pick: usize) {
        let chunks: Vec<Sought> =
            (0..pick % 4).map(|tag| Sought { tag: tag as u64, len: 1 + pick as u32 }).collect();
        let member = &mut self.members[at];
        member.surveys.insert(self.next_ticket);
        member.machine.survey(self.next_ticket, &chunks, self.now);
        self.next_ticket += 1;
        self.carry_out(at);
    }

    /// The far side brought a chunk.
    fn fetch(&mut self, at: usize, number: u8) {
        let chunk = chunk(number);
        let name = self.key.name(&chunk);
        let member = &mut self.members[at];
        member.store.insert(name, chunk.clone());
        member.announcer.stored(Sought { tag: name.tag(), len: chunk.len() as u32 }, self.now);
        let piece = |bytes: Bytes| Piece { tag: self.key.name(&bytes).tag(), bytes, at: 0, is_shared: true };
        let part = piece(chunk.slice(..chunk.len().min(2048)));
        member.machine.offer(Shape::default(), vec![part, piece(chunk)], self.now);
        self.carry_out(at);
    }

    /// The own store answers a neighbour's question: rightly, or without the chunk, or with another.
    fn serve(&mut self, at: usize, pick: usize, how: usize) {
        let member = &mut self.members[at];
        if member.serving.is_empty() {
            return;
        }
        let (from, request, name, len) = member.serving.remove(pick % member.serving.len());
        let bytes = match how {
            0 => None,
            1 => Some(chunk(pick as u8)),
            _ => member.store.get(&name).cloned(),
        };
        member.machine.handle_served(from, request, (name, len), bytes, self.now);
        self.carry_out(at);
    }

    fn deliver(&mut self, pick: usize) {
        if !self.under_way.is_empty() {
            let (from, to, frame) = self.under_way.remove(pick % self.under_way.len());
            let from = self.members[from].id;
            self.members[to].machine.handle_frame(from, frame, self.now);
            self.carry_out(to);
        }
    }

    fn deliver_all(&mut self) {
        for _ in 0..MAX_DELIVERED {
            if self.under_way.is_empty() {
                return;
            }
            self.deliver(0);
        }
    }

    fn pass(&mut self, time: Now) {
        self.now += time;
        for at in 0..HONEST {
            let member = &mut self.members[at];
            member.machine.handle_timeout(self.now);
            assert!(member.machine.poll_timeout().is_none_or(|due| due > self.now), "time stands still");
            for frame in member.announcer.poll_frames(self.now) {
                assert!(matches!(frame, GroupFrame::Stored { .. }));
            }
            self.carry_out(at);
        }
    }

    /// The liar says a frame: a good one, or nearly.
    fn say(&mut self, to: usize, pick: usize, script: &mut Script<'_>) {
        let request = script.below(32) as u64;
        let bytes = chunk(pick as u8 % CHUNKS);
        let name = self.key.name(&bytes);
        let frame = match script.below(9) {
            0 => GroupFrame::Peek {
                request,
                chunks: (0..script.below(20)).map(|at| Sought { tag: at as u64, len: 1 }).collect(),
            },
            1 => GroupFrame::Have { request, held: vec![pick.is_multiple_of(2); script.below(4)] },
            2 => GroupFrame::Get { request, name, len: bytes.len() as u32 },
            3 => GroupFrame::Chunk { request, bytes: Some(bytes) },
            4 => GroupFrame::Chunk { request, bytes: None },
            5 => GroupFrame::Chunk { request, bytes: Some(bytes.slice(..pick.max(1))) },
            6 => GroupFrame::Wait { request, time_ms: (pick as u32) << script.below(24) },
            7 => GroupFrame::Put { shape: Shape::default(), bytes },
            _ if pick.is_multiple_of(2) => GroupFrame::Pending { bytes: u64::MAX >> (pick & 63) },
            _ => GroupFrame::Load(Load { queued: (pick as u32) << 24, service_us: u32::MAX }),
        };
        self.say_frame(to, frame);
    }

    /// Says bytes that may be no frame at all; the link would not hand them on.
    fn say_bytes(&mut self, to: usize, data: &[u8]) {
        if let Ok(Some((kind, body, _))) = take_frame(data)
            && let Ok(Frame::Group(frame)) = Frame::decode(kind, body)
        {
            self.say_frame(to, frame);
        }
    }

    fn say_frame(&mut self, to: usize, frame: GroupFrame) {
        let asks = matches!(frame, GroupFrame::Peek { .. } | GroupFrame::Get { .. });
        let from = self.members[HONEST].id;
        let member = &mut self.members[to];
        let before = member.owed + usize::from(asks);
        member.owed = before;
        member.machine.handle_frame(from, frame, self.now);
        self.carry_out(to);
    }

    fn carry_out(&mut self, at: usize) {
        self.members[at].machine.look_around(self.now);
        while let Some(output) = self.members[at].machine.poll_output() {
            match output {
                Output::Send(to, frame) => self.send(at, to, frame),
                Output::Answer { ticket, answer } => self.check(at, ticket, answer),
                Output::Surveyed { ticket, .. } => {
                    assert!(self.members[at].surveys.remove(&ticket), "a survey is answered twice");
                }
                Output::Wait { ticket, time } => {
                    assert!(self.members[at].reads.contains_key(&ticket) && time <= MOST_WAIT, "{time:?}");
                }
                Output::Peek { from, request, chunks } => {
                    let member = &mut self.members[at];
                    let held = |sought: &Sought| member.store.keys().any(|name| name.tag() == sought.tag);
                    let held = chunks.iter().map(held).collect();
                    member.machine.handle_held(from, request, held);
                }
                Output::Serve { from, request, name, len } => {
                    let serving = &mut self.members[at].serving;
                    serving.push((from, request, name, len));
                    let of_one = serving.iter().filter(|(asker, ..)| *asker == from).count();
                    assert!(of_one <= MAX_ASKED, "{of_one} are served to one");
                }
                Output::Put { bytes, .. } => {
                    let name = self.key.name(&bytes);
                    self.members[at].store.insert(name, bytes);
                }
            }
        }
    }

    fn send(&mut self, from: usize, to: MemberId, frame: GroupFrame) {
        let to = self.members.iter().position(|member| member.id == to).expect("it was met");
        if to < HONEST {
            return self.under_way.push((from, to, frame));
        }
        // Nobody is told more than it asked for, though it may be told to wait before.
        if matches!(frame, GroupFrame::Have { .. } | GroupFrame::Chunk { .. }) {
            let owed = &mut self.members[from].owed;
            *owed = owed.checked_sub(1).expect("an answer to nothing");
        }
    }

    fn check(&mut self, at: usize, ticket: u64, answer: Answer) {
        let (number, held, asked) = self.members[at].reads.remove(&ticket).expect("one answer to each read");
        match answer {
            Answer::Found(bytes) => assert_eq!(bytes, chunk(number)),
            Answer::Own => assert!(held),
            Answer::Absent => assert!(!held),
        }
        assert!(self.now.saturating_sub(asked) <= MOST_TIME, "{:?}", self.now - asked);
    }

    /// Everything arrives, all stores answer and have nothing more to do, until nobody waits for anything.
    fn settle(&mut self) {
        for at in 0..HONEST {
            self.members[at].machine.handle_busy(Load::default(), 0, self.now);
            self.carry_out(at);
        }
        for _ in 0..MAX_ROUNDS {
            self.deliver_all();
            for at in 0..HONEST {
                while !self.members[at].serving.is_empty() {
                    self.serve(at, 0, 3);
                }
            }
            let due = self.members.iter().filter_map(|member| member.machine.poll_timeout()).min();
            match due {
                Some(due) => self.pass(due.saturating_sub(self.now)),
                None if self.under_way.is_empty() => break,
                None => {}
            }
        }
        for member in &self.members {
            let all = member.reads.is_empty() && member.serving.is_empty() && member.surveys.is_empty();
            assert!(all, "somebody waits for ever");
            assert_eq!(member.machine.poll_timeout(), None);
        }
    }
}

/// Chunks, some of them below the shortest shared length.
fn chunk(number: u8) -> Bytes {
    Bytes::from(vec![number; 1500 + 100 * usize::from(number)])
}

/// Gateways without faults; one more is the liar.
const HONEST: usize = 3;
const CHUNKS: u8 = 24;
const MAX_STEPS: usize = 600;
const MAX_ROUNDS: usize = 4000;
const MAX_DELIVERED: usize = 4000;
/// A wait and the patience behind it.
const MOST_WAIT: Now = Now::from_secs(2);
/// Two neighbours, a second each, a wait of two more, and as much as one step skips.
const MOST_TIME: Now = Now::from_millis(4_000 + 255 * 40);
