//! Several gateways of one site on a virtual clock, some of which do not behave.

use std::collections::{BTreeMap, BTreeSet};

use oncewire_codec::wanax::LEAST_SOUGHT;
use oncewire_codec::wire::{Load, MAX_PEEK};

use super::*;

mod failing;
mod model;
mod searches;
mod waits;

/// How a member treats the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Good,
    /// Hears everything and says nothing.
    Dead,
    /// Takes as long as this for everything.
    Slow(u64),
    /// Serves other content than was asked for, and says it has everything.
    Liar,
    /// Claims everything, and then denies it.
    Denier,
    /// Answers what it was not asked, too.
    Babbler,
    /// Sends no more than so many bytes in a millisecond.
    Narrow(u64),
    /// Has no room for anything to send, and knows it.
    Full,
}

struct Site {
    now: Now,
    key: NameKey,
    ids: Vec<MemberId>,
    machines: Vec<Neighbourhood>,
    manners: Vec<Manner>,
    stores: Vec<BTreeMap<Name, Bytes>>,
    /// Frames under way: when, a number keeping order, from, to.
    under_way: BTreeMap<(Now, u64), (usize, usize, GroupFrame)>,
    sent: u64,
    /// When what members sent last has left them.
    free_at: Vec<Now>,
    /// How long the far side takes, if what is absent is fetched from there and offered.
    far: Option<Now>,
    far_under_way: BTreeMap<(Now, usize, u64), Bytes>,
    fetches: u64,
    /// What was read, by member and ticket.
    wanted: BTreeMap<(usize, u64), Bytes>,
    /// Answers by member and ticket.
    answers: BTreeMap<(usize, u64), (Answer, Now)>,
    /// What neighbours were said to have.
    surveyed: BTreeMap<(usize, u64), Vec<bool>>,
}

const LATENCY: Now = Now::from_micros(200);

impl Site {
    fn new(manners: &[Manner]) -> Self {
        let key = NameKey::new([7; 32]);
        let ids: Vec<MemberId> = (0..manners.len() as u8).map(|at| MemberId::of_key(&[at; 32])).collect();
        let mut site = Self {
            now: Now::from_secs(100),
            machines: ids.iter().map(|id| Neighbourhood::new(*id, key.clone(), 1)).collect(),
            stores: vec![BTreeMap::new(); ids.len()],
            manners: manners.to_vec(),
            key,
            ids,
            under_way: BTreeMap::new(),
            sent: 0,
            free_at: vec![Now::ZERO; manners.len()],
            far: None,
            far_under_way: BTreeMap::new(),
            fetches: 0,
            wanted: BTreeMap::new(),
            answers: BTreeMap::new(),
            surveyed: BTreeMap::new(),
        };
        for a in 0..site.ids.len() {
            for b in 0..site.ids.len() {
                let id = site.ids[b];
                site.machines[a].handle_up(id);
            }
        }
        site.settle();
        site
    }

    fn name(&self, chunk: &Bytes) -> Name {
        self.key.name(chunk)
    }

    /// Member `at` has fetched a chunk: it keeps it and offers it.
    fn fetched(&mut self, at: usize, chunk: &Bytes) {
        let name = self.name(chunk);
        self.stores[at].insert(name, chunk.clone());
        let now = self.now;
        self.machines[at].offer(
            Shape::default(),
            vec![Piece { tag: name.tag(), bytes: chunk.clone(), at: 0, is_shared: true }],
            now,
        );
        self.carry_out(at);
    }

    fn read(&mut self, at: usize, ticket: u64, chunk: &Bytes) {
        let name = self.name(chunk);
        let held = self.stores[at].contains_key(&name);
        self.wanted.insert((at, ticket), chunk.clone());
        let now = self.now;
        self.machines[at].read(Read { ticket, name, len: chunk.len() as u32, held }, now);
        self.carry_out(at);
    }

    fn carry_out(&mut self, at: usize) {
        let now = self.now;
        self.machines[at].look_around(now);
        while let Some(output) = self.machines[at].poll_output() {
            let manner = self.manners[at];
            match output {
                Output::Send(to, frame) => {
                    let to = self.ids.iter().position(|id| *id == to).unwrap();
                    self.send(at, to, frame);
                }
                Output::Answer { ticket, answer } => {
                    if let (Answer::Absent, Some(far)) = (&answer, self.far) {
                        let chunk = self.wanted[&(at, ticket)].clone();
                        self.far_under_way.insert((self.now + far, at, ticket), chunk);
                        self.fetches += 1;
                    }
                    let before = self.answers.insert((at, ticket), (answer, self.now));
                    assert_eq!(before, None, "member {at} answered ticket {ticket} twice");
                }
                Output::Surveyed { ticket, held } => drop(self.surveyed.insert((at, ticket), held)),
                Output::Peek { from, request, chunks } => {
                    let store = &self.stores[at];
                    let is_there = |sought: &Sought| store.keys().any(|name| name.tag() == sought.tag);
                    let says_all = matches!(manner, Manner::Liar | Manner::Denier);
                    let held = chunks.iter().map(|sought| says_all || is_there(sought)).collect();
                    self.machines[at].handle_held(from, request, held);
                }
                Output::Serve { from, request, name, len } => {
                    let chunk = match manner {
                        Manner::Liar => Some(Bytes::from(vec![0xee; len as usize])),
                        Manner::Denier => None,
                        _ => self.stores[at].get(&name).cloned(),
                    };
                    let now = self.now;
                    self.machines[at].handle_served(from, request, (name, len), chunk, now);
                }
                Output::Wait { .. } => {}
                Output::Put { bytes, .. } => {
                    self.stores[at].insert(self.key.name(&bytes), bytes);
                }
            }
        }
    }

    fn send(&mut self, from: usize, to: usize, frame: GroupFrame) {
        let delay = match self.manners[from] {
            Manner::Dead => return,
            Manner::Full => {
                let (to, now) = (self.ids[to], self.now);
                return self.machines[from].handle_unsent(to, frame, now);
            }
            Manner::Slow(ms) => Now::from_millis(ms),
            Manner::Narrow(bytes) => {
                let free =
                    self.free_at[from].max(self.now) + Now::from_micros(1000 * frame.size() as u64 / bytes);
                self.free_at[from] = free;
                free - self.now + LATENCY
            }
            _ => LATENCY,
        };
        if self.manners[from] == Manner::Babbler {
            for request in 0..4 {
                let frame = GroupFrame::Chunk { request, bytes: Some(Bytes::from_static(b"babble")) };
                self.deliver_at(self.now + delay, from, to, frame);
                self.deliver_at(
                    self.now + delay,
                    from,
                    to,
                    GroupFrame::Have { request, held: vec![true; 9] },
                );
            }
        }
        self.deliver_at(self.now + delay, from, to, frame);
    }

    fn deliver_at(&mut self, at: Now, from: usize, to: usize, frame: GroupFrame) {
        self.sent += 1;
        self.under_way.insert((at, self.sent), (from, to, frame));
    }

    /// Lets time pass until nobody waits and all frames have come: busy members speak for ever.
    fn settle(&mut self) {
        self.settle_until(|_| false);
    }

    /// As [`Self::settle`], or until something is so.
    fn settle_until(&mut self, is: impl Fn(&Self) -> bool) {
        (0..self.ids.len()).for_each(|at| self.carry_out(at));
        let mut last = None;
        while !is(self) {
            if self.nobody_waits() {
                let last = *last.get_or_insert(self.sent);
                if self.under_way.keys().all(|(_, number)| *number > last) {
                    return;
                }
            } else {
                last = None;
            }
            let frame = self.under_way.first_key_value().map(|((at, _), _)| *at);
            let timer = self.machines.iter().filter_map(Neighbourhood::poll_timeout).min();
            let far = self.far_under_way.first_key_value().map(|((at, ..), _)| *at);
            let Some(next) = frame.into_iter().chain(timer).chain(far).min() else { return };
            self.now = self.now.max(next);
            if far == Some(next)
                && let Some(((_, at, _), chunk)) = self.far_under_way.pop_first()
            {
                self.fetched(at, &chunk);
            } else if frame == Some(next)
                && let Some((_, (from, to, frame))) = self.under_way.pop_first()
            {
                let (from, now) = (self.ids[from], self.now);
                self.machines[to].handle_frame(from, frame, now);
                self.carry_out(to);
            } else {
                for at in 0..self.ids.len() {
                    let now = self.now;
                    self.machines[at].handle_timeout(now);
                    self.carry_out(at);
                }
            }
        }
    }

    /// Says whether all further frames are repetitions, or answered already.
    fn nobody_waits(&self) -> bool {
        let waits = |machine: &Neighbourhood| {
            !machine.deadlines.is_empty()
                || machine.claims.deadline().is_some()
                || !machine.telling.all_is_told()
        };
        self.far_under_way.is_empty() && !self.machines.iter().any(waits)
    }

    fn part(&mut self, a: usize, b: usize) {
        let now = self.now;
        for (at, gone) in [(a, b), (b, a)] {
            let gone = self.ids[gone];
            self.machines[at].handle_down(gone, now);
            self.carry_out(at);
        }
        self.under_way.retain(|_, (from, to, _)| ![(a, b), (b, a)].contains(&(*from, *to)));
    }

    fn answer(&self, at: usize, ticket: u64) -> &Answer {
        &self.answers[&(at, ticket)].0
    }
}

fn chunk(number: u32) -> Bytes {
    Bytes::from([number.to_le_bytes().as_slice(), &[number as u8; 2044]].concat())
}

/// A chunk that is not shared by itself.
fn small(number: u32) -> Bytes {
    chunk(number).slice(..1024)
}

fn root(number: u32) -> Bytes {
    Bytes::from([number.to_le_bytes().as_slice(), &[7; 65_532]].concat())
}

use Manner::*;

#[test]
fn large_request_comes_piece_by_piece_and_in_time() {
    // 10 MB at 8 MB/s, from one that was quick before.
    let mut site = Site::new(&[Good, Good]);
    let roots: Vec<Bytes> = (0..150).map(root).collect();
    for chunk in roots.iter().chain(&[chunk(1)]) {
        let name = site.name(chunk);
        site.stores[1].insert(name, chunk.clone());
    }
    for ticket in 0..20 {
        site.read(0, 1000 + ticket, &chunk(1));
        site.settle();
    }
    site.manners[1] = Narrow(8_000);
    for (ticket, root) in roots.iter().enumerate() {
        site.read(0, ticket as u64, root);
    }
    assert!(site.under_way.len() <= 1 + MAX_ASKED_BYTES / roots[0].len());
    site.settle();
    for (ticket, root) in roots.iter().enumerate() {
        assert_eq!(*site.answer(0, ticket as u64), Answer::Found(root.clone()), "{ticket}");
    }
    assert_eq!(site.machines[0].stats().late, 0);
}

#[test]
fn late_requests_are_avoided_without_blame() {
    // More than it brings in the time waited for, however steadily it does.
    let mut site = Site::new(&[Good, Narrow(8_000)]);
    let roots: Vec<Bytes> = (0..400).map(root).collect();
    for (ticket, root) in roots.iter().enumerate() {
        let name = site.name(root);
        site.stores[1].insert(name, root.clone());
        site.read(0, ticket as u64, root);
    }
    site.settle_until(|site| site.answers.len() == roots.len());
    let stats = site.machines[0].stats();
    assert!(stats.found > 0 && stats.found < 400, "{stats:?}");
    assert_eq!((stats.asked, stats.late), (stats.found, 0));
    site.read(0, 1000, &roots[0]);
    site.settle();
    assert!(matches!(site.answer(0, 1000), Answer::Found(_)), "it is asked again, and answers at once");
}

#[test]
fn slow_neighbour_is_not_waited_for() {
    let mut site = Site::new(&[Good, Narrow(100)]);
    let roots: Vec<Bytes> = (0..150).map(root).collect();
    for (ticket, root) in roots.iter().enumerate() {
        let name = site.name(root);
        site.stores[1].insert(name, root.clone());
        site.read(0, ticket as u64, root);
    }
    let asked = site.now;
    site.settle();
    let last = site.answers.values().map(|(_, at)| *at).max().unwrap();
    assert!(last - asked <= Now::from_secs(2), "{:?}", last - asked);
    assert!(site.answers.values().filter(|(answer, _)| *answer == Answer::Absent).count() > 100);
}

#[test]
fn survey_counts_silent_neighbours_as_holders() {
    let mut site = Site::new(&[Good; 4]);
    for number in 0..6 {
        let name = site.name(&small(number));
        site.stores[number as usize % 4].insert(name, small(number));
    }
    // Of what only the asking one has, nobody else says so.
    let chunks: Vec<Sought> =
        (0..8).map(|number| Sought { tag: site.name(&small(number)).tag(), len: 1024 }).collect();
    let survey = |site: &mut Site, ticket, chunks: &[Sought]| {
        let now = site.now;
        site.machines[0].survey(ticket, chunks, now);
        site.carry_out(0);
        site.settle();
        site.surveyed.remove(&(0, ticket)).unwrap()
    };
    let there = [false, true, true, true, false, true, false, false];
    assert_eq!(survey(&mut site, 1, &chunks), there);
    site.manners[3] = Dead;
    assert_eq!(survey(&mut site, 2, &chunks), [true; 8]);
    assert_eq!(survey(&mut site, 5, &chunks), [true; 8], "it rests, and may still have them");
    assert_eq!(site.machines[0].stats().wrong, 0);
    site.machines.iter_mut().for_each(|machine| {
        site.ids.iter().skip(1).for_each(|id| machine.handle_down(*id, site.now));
    });
    assert_eq!(survey(&mut site, 3, &chunks), [false; 8], "nobody is left");
    assert_eq!(survey(&mut site, 4, &vec![chunks[0]; MAX_PEEK + 1]), [true; MAX_PEEK + 1]);
}

#[test]
fn chunk_fetched_by_one_member_hits_at_all() {
    let mut site = Site::new(&[Good, Good, Good]);
    let chunks: Vec<Bytes> = (0..100).map(chunk).collect();
    chunks.iter().for_each(|chunk| site.fetched(0, chunk));
    site.settle();
    for (ticket, chunk) in chunks.iter().enumerate() {
        site.read(1, ticket as u64, chunk);
        site.read(2, ticket as u64, chunk);
    }
    site.settle();
    for (ticket, chunk) in chunks.iter().enumerate() {
        for at in [1, 2] {
            let answer = site.answer(at, ticket as u64).clone();
            match site.stores[at].contains_key(&site.name(chunk)) {
                true => assert_eq!(answer, Answer::Own),
                false => assert_eq!(answer, Answer::Found(chunk.clone())),
            }
        }
    }
    // Each chunk is where it was fetched, and at the first of the others.
    for (at, of_others) in [1, 2].map(|at| (at, site.ids[at])) {
        let is_first = |chunk: &&Bytes| {
            responsible(site.ids[1..].iter().copied(), site.key.tag(chunk)) == Some(of_others)
        };
        assert_eq!(site.stores[at].len(), chunks.iter().filter(is_first).count());
    }
}

#[test]
fn chunks_of_a_dead_member_are_at_others() {
    for members in 2..=4 {
        let mut site = Site::new(&vec![Good; members]);
        let chunks: Vec<Bytes> = (0..100).map(chunk).collect();
        chunks.iter().for_each(|chunk| site.fetched(0, chunk));
        site.settle();
        (1..members).for_each(|other| site.part(other, 0));
        for (ticket, chunk) in chunks.iter().enumerate() {
            site.read(1, ticket as u64, chunk);
        }
        site.settle();
        let lost = (0..100).filter(|ticket| *site.answer(1, *ticket) == Answer::Absent).count();
        assert_eq!(lost, 0, "of {members} members");
    }
}

#[test]
fn present_chunk_is_not_put_again() {
    let mut site = Site::new(&[Good, Good]);
    let chunk = (0..)
        .map(chunk)
        .find(|chunk| responsible(site.ids.iter().copied(), site.key.tag(chunk)) == Some(site.ids[1]));
    let chunk = chunk.unwrap();
    site.fetched(0, &chunk);
    site.settle();
    site.fetched(0, &chunk);
    site.settle();
    let stats = site.machines[0].stats();
    assert_eq!((stats.given, stats.given_bytes), (1, 2048));
    assert_eq!(site.machines[1].stats().taken, 1);
}

#[test]
fn chunk_is_found_after_its_responsible_member_changed() {
    let mut site = Site::new(&[Good, Good, Good]);
    site.part(0, 2);
    site.part(1, 2);
    let chunks: Vec<Bytes> = (0..50).map(chunk).collect();
    chunks.iter().for_each(|chunk| site.fetched(0, chunk));
    site.settle();
    let ids = site.ids.clone();
    for at in [0, 1] {
        site.machines[at].handle_up(ids[2]);
        site.machines[2].handle_up(ids[at]);
    }
    for (ticket, chunk) in chunks.iter().enumerate() {
        site.read(1, ticket as u64, chunk);
    }
    site.settle();
    assert!((0..50).all(|ticket| *site.answer(1, ticket) != Answer::Absent));
}

#[test]
fn request_to_a_leaving_neighbour_moves_on_at_once() {
    let mut site = Site::new(&[Good, Dead, Good]);
    let chunk = (0..).map(chunk).find(|chunk| {
        responsible(site.ids.iter().copied().skip(1), site.key.tag(chunk)) == Some(site.ids[1])
    });
    let chunk = chunk.unwrap();
    let name = site.name(&chunk);
    site.stores[2].insert(name, chunk.clone());
    let before = site.now;
    site.read(0, 1, &chunk);
    site.part(0, 1);
    site.settle();
    assert_eq!(site.answers[&(0, 1)].0, Answer::Found(chunk));
    assert_eq!(site.answers[&(0, 1)].1 - before, 2 * LATENCY);
}

#[test]
fn busy_disk_relies_on_the_responsible_neighbour_first() {
    let mut site = Site::new(&[Good, Good]);
    let chunks = (0..200)
        .map(chunk)
        .filter(|chunk| responsible(site.ids.iter().copied(), site.key.tag(chunk)) == Some(site.ids[1]));
    let chunks: Vec<Bytes> = chunks.take(4).collect();
    chunks.iter().for_each(|chunk| site.fetched(0, chunk));
    site.settle();
    site.read(0, 1, &chunks[0]);
    assert_eq!(site.answer(0, 1), &Answer::Own, "an idle disk reads for itself");
    let now = site.now;
    site.machines[0].handle_busy(Load { queued: 50, service_us: 10_000 }, 0, now);
    site.read(0, 2, &chunks[1]);
    site.settle();
    assert_eq!(site.answer(0, 2), &Answer::Found(chunks[1].clone()));
    // The neighbour is as busy.
    let now = site.now;
    site.machines[1].handle_busy(Load { queued: 50, service_us: 10_000 }, 0, now);
    site.settle();
    site.read(0, 3, &chunks[2]);
    assert_eq!(site.answer(0, 3), &Answer::Own);
    // Or says it is not, and does not answer.
    let now = site.now;
    site.machines[1].handle_busy(Load::default(), 0, now);
    site.settle();
    site.manners[1] = Dead;
    site.read(0, 4, &chunks[3]);
    site.settle();
    assert_eq!(site.answer(0, 4), &Answer::Own);
}

#[test]
fn only_sent_requests_count() {
    let mut machine = Neighbourhood::new(MemberId(1), NameKey::new([1; 32]), 1);
    let (first, second, now) = (MemberId(2), MemberId(3), Now::from_secs(1));
    [first, second].into_iter().for_each(|id| _ = machine.handle_up(id));
    let is_first = |tag| responsible([first, second], tag) == Some(first);
    let name = (0..).map(|byte| Name([byte; 20])).find(|name| is_first(name.tag())).unwrap();
    for ticket in 0..MAX_ASKED as u64 + 10 {
        machine.read(Read { ticket, name, len: 2048, held: false }, now);
    }
    let counted = |machine: &Neighbourhood| {
        let stats = machine.stats();
        [stats.asked, stats.absent, stats.late].map(|count| count as usize)
    };
    assert_eq!(counted(&machine), [MAX_ASKED, 0, 0], "ten wait for room");
    machine.handle_down(first, now);
    assert_eq!(counted(&machine), [2 * MAX_ASKED, 0, 0], "they wait for room at the second");
    machine.handle_timeout(now + Now::from_secs(9));
    assert_eq!(counted(&machine), [2 * MAX_ASKED, 0, MAX_ASKED]);
    let mut site = Site::new(&[Good; 3]);
    site.read(0, 1, &small(1));
    site.settle();
    assert_eq!(*site.answer(0, 1), Answer::Absent);
    assert_eq!(counted(&site.machines[0]), [0; 3]);
}

#[test]
fn stranger_is_refused_and_otherwise_unheard() {
    let mut machine = Neighbourhood::new(MemberId(1), NameKey::new([1; 32]), 1);
    let (stranger, now, name) = (MemberId(2), Now::from_secs(1), Name([1; 20]));
    let chunks = [1024, 2048].map(|len| Sought { tag: 1, len }).to_vec();
    let frames = [
        GroupFrame::Get { request: 5, name, len: 2048 },
        GroupFrame::Peek { request: 6, chunks },
        GroupFrame::Chunk { request: 1, bytes: Some(chunk(1)) },
        GroupFrame::Put { shape: Shape::default(), bytes: chunk(1) },
        GroupFrame::Pending { bytes: 9 },
    ];
    frames.into_iter().for_each(|frame| machine.handle_frame(stranger, frame, now));
    let outputs: Vec<Output> = std::iter::from_fn(|| machine.poll_output()).collect();
    let no = GroupFrame::Chunk { request: 5, bytes: None };
    let may_have = GroupFrame::Have { request: 6, held: vec![false, true] };
    assert_eq!(outputs, [no, may_have].map(|frame| Output::Send(stranger, frame)));
    assert_eq!(machine.stats(), NeighbourStats::default());
}

#[test]
fn asking_serving_offering_and_members_are_bounded() {
    let mut machine = Neighbourhood::new(MemberId(1), NameKey::new([1; 32]), 1);
    let up: Vec<u64> = (1..200).filter(|id| machine.handle_up(MemberId(*id))).collect();
    assert!(up.iter().copied().eq(2..2 + MAX_MEMBERS as u64), "{up:?}");
    assert_eq!(machine.stats().members, MAX_MEMBERS as u64);
    machine.handle_down(MemberId(7), Now::from_secs(1));
    assert!(machine.handle_up(MemberId(199)) && !machine.handle_up(MemberId(7)));
    let mut machine = Neighbourhood::new(MemberId(1), NameKey::new([1; 32]), 1);
    let (other, now) = (MemberId(2), Now::from_secs(1));
    machine.handle_up(other);
    let name = Name([1; 20]);
    for ticket in 0..(MAX_ASKED + MAX_WAITING) as u64 + 5 {
        machine.read(Read { ticket, name, len: 2048, held: false }, now);
    }
    for request in 0..MAX_ASKED as u64 + 5 {
        machine.handle_frame(other, GroupFrame::Get { request, name, len: 2048 }, now);
    }
    let outputs: Vec<Output> = std::iter::from_fn(|| machine.poll_output()).collect();
    let count = |wanted: fn(&Output) -> bool| outputs.iter().filter(|output| wanted(output)).count();
    assert_eq!(count(|output| matches!(output, Output::Send(_, GroupFrame::Get { .. }))), MAX_ASKED);
    assert_eq!(count(|output| matches!(output, Output::Answer { answer: Answer::Absent, .. })), 5);
    assert_eq!(count(|output| matches!(output, Output::Serve { .. })), MAX_ASKED);
    assert_eq!(count(|output| matches!(output, Output::Send(_, GroupFrame::Chunk { bytes: None, .. }))), 5);
    machine.handle_timeout(now + Now::from_secs(9));
    assert!(machine.waiting.is_empty() && machine.deadlines.is_empty());
    assert_eq!((machine.members[&other].asked_bytes, machine.members[&other].queued_bytes), (0, 0));
    // Offers.
    let mut machine = Neighbourhood::new(MemberId(1), NameKey::new([1; 32]), 1);
    machine.handle_up(other);
    let bytes = Bytes::from(vec![0; 65536]);
    let pieces: Vec<Piece> =
        (0..=255).map(|first| Piece { tag: first, bytes: bytes.clone(), at: 0, is_shared: true }).collect();
    let offers = 2 * pieces.len();
    machine.offer(Shape::default(), pieces.clone(), now);
    machine.offer(Shape::default(), pieces, now);
    assert_eq!(machine.offered, MAX_OFFERED);
    assert_eq!(machine.stats().not_offered as usize, offers - MAX_OFFERED / 65536);
    machine.handle_timeout(now + Now::from_secs(9));
    assert_eq!(machine.offered, 0);
}
