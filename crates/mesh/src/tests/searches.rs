//! Looking for small chunks at all neighbours, some of them unreliable.

use super::*;

#[test]
fn small_chunks_are_found_with_one_question_per_neighbour() {
    let mut site = Site::new(&[Good; 5]);
    for number in 0..200 {
        let name = site.name(&small(number));
        if number < 150 {
            site.stores[1 + number as usize % 4].insert(name, small(number));
        }
        let now = site.now;
        site.machines[0].read(Read { ticket: number.into(), name, len: 1024, held: false }, now);
    }
    let (asked, sent) = (site.now, site.sent);
    site.carry_out(0);
    assert_eq!(site.sent - sent, 4);
    site.settle();
    for number in 0..200 {
        let found = if number < 150 { Answer::Found(small(number)) } else { Answer::Absent };
        assert_eq!(*site.answer(0, number.into()), found, "{number}");
    }
    let last = site.answers.values().map(|(_, at)| *at).max().unwrap();
    assert_eq!(last - asked, 4 * LATENCY);
    // One saying nothing holds up what nobody has, for its patience and no longer.
    site.manners[4] = Dead;
    site.read(0, 1000, &small(1000));
    let asked = site.now;
    site.settle();
    assert_eq!(*site.answer(0, 1000), Answer::Absent);
    assert!(site.answers[&(0, 1000)].1 - asked <= Now::from_secs(1));
    // Too small to be worth asking for.
    site.read(0, 1001, &small(1).slice(..LEAST_SOUGHT as usize - 1));
    assert_eq!(*site.answer(0, 1001), Answer::Absent);
}

/// A machine with two neighbours in search of small chunks, its requests, and their times.
struct Searching {
    machine: Neighbourhood,
    now: Now,
}

const FIRST: MemberId = MemberId(2);
const SECOND: MemberId = MemberId(3);

impl Searching {
    fn new() -> Self {
        let mut machine = Neighbourhood::new(MemberId(1), NameKey::new([7; 32]), 1);
        [FIRST, SECOND].into_iter().for_each(|id| _ = machine.handle_up(id));
        Self { machine, now: Now::from_secs(9) }
    }

    /// Looks for small chunks of these numbers; returns the request to each neighbour.
    fn search(&mut self, numbers: &[u32]) -> [u64; 2] {
        while self.machine.poll_output().is_some() {}
        for number in numbers {
            let name = self.machine.key.name(&small(*number));
            let read = Read { ticket: (*number).into(), name, len: 1024, held: false };
            self.machine.read(read, self.now);
        }
        self.machine.look_around(self.now);
        let outputs = self.outputs();
        [FIRST, SECOND].map(|id| {
            let asked = outputs.iter().find_map(|output| match output {
                Output::Send(to, GroupFrame::Peek { request, .. }) if *to == id => Some(*request),
                _ => None,
            });
            asked.expect("it was asked")
        })
    }

    fn outputs(&mut self) -> Vec<Output> {
        std::iter::from_fn(|| self.machine.poll_output()).collect()
    }

    /// A neighbour claims them; returns the requested neighbours, the requests, and the answers.
    fn hear(&mut self, from: MemberId, frame: GroupFrame) -> (Vec<(MemberId, u64)>, Vec<Answer>) {
        self.machine.handle_frame(from, frame, self.now);
        let (mut asked, mut answers) = (Vec::new(), Vec::new());
        for output in self.outputs() {
            match output {
                Output::Send(to, GroupFrame::Get { request, .. }) => asked.push((to, request)),
                Output::Answer { answer, .. } => answers.push(answer),
                _ => {}
            }
        }
        (asked, answers)
    }

    fn has(&mut self, from: MemberId, request: u64, held: bool) -> (Vec<(MemberId, u64)>, Vec<Answer>) {
        self.hear(from, GroupFrame::Have { request, held: vec![held] })
    }

    fn denies(&mut self, from: MemberId, request: u64) -> (Vec<(MemberId, u64)>, Vec<Answer>) {
        self.hear(from, GroupFrame::Chunk { request, bytes: None })
    }
}

#[test]
fn undelivered_chunk_is_asked_of_another() {
    // Both have said so when the first denies.
    let mut searching = Searching::new();
    let [first, second] = searching.search(&[1]);
    let (asked, _) = searching.has(FIRST, first, true);
    let [(FIRST, get)] = asked[..] else { panic!("{asked:?}") };
    assert_eq!(searching.has(SECOND, second, true), (vec![], vec![]));
    let (asked, answers) = searching.denies(FIRST, get);
    let [(SECOND, get)] = asked[..] else { panic!("{asked:?}, {answers:?}") };
    let bytes = Some(small(1));
    let brought = searching.hear(SECOND, GroupFrame::Chunk { request: get, bytes });
    assert_eq!(brought, (vec![], vec![Answer::Found(small(1))]));
    // Or the second says so only then.
    let [first, second] = searching.search(&[2]);
    let (asked, _) = searching.has(FIRST, first, true);
    assert_eq!(searching.denies(FIRST, asked[0].1), (vec![], vec![]), "the second may have it");
    let (asked, answers) = searching.has(SECOND, second, true);
    let [(SECOND, get)] = asked[..] else { panic!("{asked:?}, {answers:?}") };
    // There was no other holder.
    assert_eq!(searching.denies(SECOND, get), (vec![], vec![Answer::Absent]));
    // Or it says it has nothing.
    let [first, second] = searching.search(&[3]);
    let (asked, _) = searching.has(FIRST, first, true);
    searching.denies(FIRST, asked[0].1);
    assert_eq!(searching.has(SECOND, second, false), (vec![], vec![Answer::Absent]));
    assert!(searching.machine.searches.is_empty() && searching.machine.waiting.is_empty());
}

#[test]
fn only_constant_deniers_are_blamed() {
    let mut searching = Searching::new();
    let deny = |searching: &mut Searching, ticket| {
        let [first, second] = searching.search(&[ticket]);
        let (asked, _) = searching.has(FIRST, first, true);
        searching.has(SECOND, second, false);
        let (request, bytes) = (asked[0].1, Some(small(ticket)));
        match ticket.is_multiple_of(10) {
            true => searching.hear(FIRST, GroupFrame::Chunk { request, bytes }),
            false => searching.denies(FIRST, request),
        };
        searching.machine.can_ask(FIRST, searching.now)
    };
    // One in ten is there.
    assert!((1..100).all(|ticket| deny(&mut searching, ticket)));
    assert_eq!(searching.machine.stats().absent, 90);
    deny(&mut searching, 100);
    let denied = (1..100).take_while(|at| deny(&mut searching, 1000 * at + 1)).count();
    assert_eq!(denied, 15);
    // It is asked again later, and has one in vain then.
    for rest in [1, 2, 4] {
        searching.now += Now::from_secs(rest) - Now::from_nanos(1);
        assert!(!searching.machine.can_ask(FIRST, searching.now));
        searching.now += Now::from_nanos(1);
        assert!(!deny(&mut searching, 1));
    }
}

#[test]
fn chunk_claimed_by_all_is_found_at_its_holder() {
    for has in [1, 2] {
        let mut site = Site::new(&[Good; 3]);
        site.manners[3 - has] = Denier;
        for number in 0..100 {
            let name = site.name(&small(number));
            site.stores[has].insert(name, small(number));
            site.read(0, number.into(), &small(number));
            if number.is_multiple_of(10) {
                site.settle();
            }
        }
        site.settle();
        for number in 0..100 {
            assert_eq!(*site.answer(0, number.into()), Answer::Found(small(number)), "{number}");
        }
    }
}

#[test]
fn small_chunk_is_awaited_within_one_search() {
    let mut searching = Searching::new();
    // Each takes its time: its disk is busy, as it says.
    let start = searching.now;
    let load = GroupFrame::Load(Load { queued: 100, service_us: 9_000 });
    [FIRST, SECOND].into_iter().for_each(|from| _ = searching.hear(from, load.clone()));
    let [first, second] = searching.search(&[1, 2, 3]);
    searching.now = start + Now::from_millis(950);
    let (asked, _) = searching.hear(FIRST, GroupFrame::Have { request: first, held: vec![true; 3] });
    searching.hear(SECOND, GroupFrame::Have { request: second, held: vec![false; 3] });
    let [(FIRST, one), (FIRST, two), (FIRST, three)] = asked[..] else { panic!("{asked:?}") };
    // It brings one, so it has more time for the others, and puts those off at the end of it.
    let mut frames = VecDeque::from([
        (1900, GroupFrame::Chunk { request: one, bytes: Some(small(1)) }),
        (1950, GroupFrame::Wait { request: two, time_ms: u32::MAX }),
        (2850, GroupFrame::Wait { request: three, time_ms: u32::MAX }),
    ]);
    let mut answers = Vec::new();
    while answers.len() < 3 {
        let frame = frames.front().map(|(ms, _)| start + Now::from_millis(*ms));
        searching.now = frame.into_iter().chain(searching.machine.poll_timeout()).min().unwrap();
        let (_, heard) = match frame == Some(searching.now) {
            true => {
                let frame = frames.pop_front().unwrap().1;
                searching.hear(FIRST, frame)
            }
            false => {
                searching.machine.handle_timeout(searching.now);
                searching.hear(FIRST, load.clone())
            }
        };
        answers.extend(heard.into_iter().map(|answer| (answer, searching.now - start)));
    }
    assert_eq!(answers[0].0, Answer::Found(small(1)));
    assert_eq!(answers[1..], [(); 2].map(|()| (Answer::Absent, Now::from_secs(2))));
}
