//! Waiting for what another member fetches.

use super::*;

/// A site of good members whose far side takes so long.
fn site_with_far(members: usize, far_ms: u64) -> Site {
    Site { far: Some(Now::from_millis(far_ms)), ..Site::new(&vec![Good; members]) }
}

#[test]
fn simultaneous_need_is_fetched_once() {
    let mut site = site_with_far(4, 80);
    let chunks: Vec<Bytes> = (0..50).map(chunk).collect();
    let asked = site.now;
    for (ticket, chunk) in chunks.iter().enumerate() {
        (0..4).for_each(|at| site.read(at, ticket as u64, chunk));
    }
    site.settle();
    assert_eq!(site.fetches, 50);
    for (ticket, chunk) in chunks.iter().enumerate() {
        let found = |at: usize| site.answer(at, ticket as u64) == &Answer::Found(chunk.clone());
        assert_eq!((0..4).filter(|at| found(*at)).count(), 3, "chunk {ticket}");
    }
    // Those who waited did so for the one fetch and some steps across the LAN.
    let last = site.answers.values().map(|(_, at)| *at).max().unwrap();
    assert!(last - asked <= Now::from_millis(80) + 10 * LATENCY, "{:?}", last - asked);
    let (waited, spared) = site
        .machines
        .iter()
        .map(|machine| machine.stats())
        .fold((0, 0), |sum, stats| (sum.0 + stats.waited, sum.1 + stats.spared));
    assert_eq!((waited, spared), (150, 150));
}

#[test]
fn unshared_chunk_reaches_waiters_only() {
    let (key, now) = (NameKey::new([1; 32]), Now::from_secs(9));
    let mut machine = Neighbourhood::new(MemberId(1), key.clone(), 1);
    (2..=3).for_each(|id| _ = machine.handle_up(MemberId(id)));
    let of = |machine: &Neighbourhood, whose| {
        let is = |chunk: &Bytes| machine.responsible(key.tag(chunk)) == whose;
        (0..).map(chunk).filter(is).take(2).collect::<Vec<_>>()
    };
    let (ours, theirs) = (of(&machine, None), of(&machine, Some(MemberId(2))));
    // The third waits for the second's fetch, and the second for this one's promise.
    for (from, request) in [(2, 7), (3, 8)] {
        machine.handle_served(MemberId(from), request, (key.name(&ours[0]), 2048), None, now);
    }
    machine.promises.make(key.tag(&theirs[0]), now);
    while machine.poll_output().is_some() {}
    let piece = |chunk: &Bytes| Piece { tag: key.tag(chunk), bytes: chunk.clone(), at: 0, is_shared: false };
    machine.offer(Shape::default(), ours.iter().chain(&theirs).map(piece).collect(), now);
    let outputs: Vec<Output> = std::iter::from_fn(|| machine.poll_output()).collect();
    let brought = GroupFrame::Chunk { request: 8, bytes: Some(ours[0].clone()) };
    let given = GroupFrame::Put { shape: Shape::default(), bytes: theirs[0].clone() };
    assert_eq!(outputs, [Output::Send(MemberId(3), brought), Output::Send(MemberId(2), given)]);
}

#[test]
fn waiter_fetches_after_departure_or_failure() {
    // The responsible member is the third, the first fetches, the second waits.
    let find = |site: &Site, from| {
        let ids = site.ids.clone();
        let is = |chunk: &Bytes| responsible(ids.iter().copied(), site.key.tag(chunk)) == Some(ids[2]);
        (from..).map(chunk).find(is).unwrap()
    };
    let mut site = Site::new(&[Good; 3]);
    let chunk = find(&site, 0);
    site.read(0, 1, &chunk);
    site.settle_until(|site| site.answers.contains_key(&(0, 1)));
    site.read(1, 2, &chunk);
    site.settle_until(|site| site.machines[1].stats().waited == 1);
    site.part(0, 2);
    let parted = site.now;
    site.settle_until(|site| site.answers.contains_key(&(1, 2)));
    // The first is its second in order, and is asked.
    assert_eq!(site.answers[&(1, 2)], (Answer::Absent, parted + 3 * LATENCY));
    // It never comes, and says nothing; who waited fetches it and brings it.
    let mut site = Site::new(&[Good; 3]);
    let chunk = find(&site, 1000);
    site.read(0, 1, &chunk);
    site.settle_until(|site| site.answers.contains_key(&(0, 1)));
    let asked = site.now;
    site.read(1, 2, &chunk);
    site.settle_until(|site| site.answers.contains_key(&(1, 2)));
    site.fetched(1, &chunk);
    site.settle();
    assert_eq!(site.machines[2].stats().taken, 1);
    let (answer, at) = &site.answers[&(1, 2)];
    assert_eq!(*answer, Answer::Absent);
    assert!(*at - asked <= Now::from_millis(510), "{:?}", *at - asked);
    assert_eq!(site.machines[1].stats().late, 0, "who had it wait is not to blame");
    // Nobody waits for its fetch, for some time.
    let other = find(&site, 2000);
    site.read(0, 3, &other);
    site.settle_until(|site| site.answers.contains_key(&(0, 3)));
    let asked = site.now;
    site.read(1, 4, &other);
    site.settle_until(|site| site.answers.contains_key(&(1, 4)));
    assert!(site.answers[&(1, 4)].1 - asked <= 4 * LATENCY);
}

#[test]
fn waiter_gets_a_chunk_found_elsewhere() {
    let mut site = site_with_far(4, 80);
    // The third member has just come and is responsible; the fourth was before, and has it.
    let order = |chunk: &Bytes| {
        let others = site.ids.iter().copied().filter(|id| *id != site.ids[2]);
        let tag = site.key.tag(chunk);
        (responsible(site.ids.iter().copied(), tag), responsible(others, tag))
    };
    let wanted = (Some(site.ids[2]), Some(site.ids[3]));
    let chunk = (0..).map(chunk).find(|chunk| order(chunk) == wanted).unwrap();
    let name = site.name(&chunk);
    site.stores[3].insert(name, chunk.clone());
    for at in [0, 1] {
        site.read(at, 1, &chunk);
        site.settle_until(|site| site.answers.contains_key(&(at, 1)));
        assert_eq!(*site.answer(at, 1), Answer::Found(chunk.clone()), "member {at}");
    }
    assert_eq!((site.machines[1].stats().waited, site.fetches), (1, 0));
}

#[test]
fn a_wait_is_heeded_once_and_bounded() {
    let mut machine = Neighbourhood::new(MemberId(1), NameKey::new([1; 32]), 1);
    let (other, now) = (MemberId(2), Now::from_secs(1));
    machine.handle_up(other);
    machine.read(Read { ticket: 5, name: Name([1; 20]), len: 2048, held: false }, now);
    for _ in 0..9 {
        machine.handle_frame(other, GroupFrame::Wait { request: 1, time_ms: u32::MAX }, now);
        machine.handle_frame(other, GroupFrame::Wait { request: 2, time_ms: 1 }, now);
    }
    let longest = claims::MOST_WAIT + Member::new().patience();
    assert_eq!(machine.poll_timeout(), Some(now + longest));
    let outputs: Vec<Output> = std::iter::from_fn(|| machine.poll_output()).collect();
    let waits = outputs.iter().filter(|output| matches!(output, Output::Wait { ticket: 5, .. })).count();
    assert_eq!(waits, 2, "one when it is asked, one when it is put off");
    machine.handle_timeout(now + longest);
    assert_eq!(machine.poll_output(), Some(Output::Answer { ticket: 5, answer: Answer::Absent }));
}

#[test]
fn postponed_chunks_hold_up_no_present_ones() {
    let mut site = site_with_far(3, 300);
    let theirs = |number: &u32| {
        responsible(site.ids.iter().copied(), site.key.tag(&chunk(*number))) == Some(site.ids[2])
    };
    let mut chunks = (0..).filter(theirs).map(chunk).take(MAX_ASKED + 1).collect::<Vec<_>>().into_iter();
    // One is there; the second member fetches the others, for which the first waits.
    let there = chunks.next().unwrap();
    let name = site.name(&there);
    site.stores[2].insert(name, there.clone());
    for (ticket, chunk) in (1..).zip(chunks) {
        let now = site.now;
        let waiter = claims::Waiter::Own(Read { ticket, name, len: 2048, held: false });
        let (by, tag) = (site.ids[1], site.key.tag(&chunk));
        site.machines[2].claims.join(tag, by, waiter, now);
        site.read(0, ticket, &chunk);
    }
    site.settle_until(|site| site.machines[0].stats().waited == MAX_ASKED as u64);
    assert_eq!(site.machines[0].members[&site.ids[2]].put_off, MAX_ASKED);
    let asked = site.now;
    site.read(0, 0, &there);
    site.settle_until(|site| site.answers.contains_key(&(0, 0)));
    let (answer, at) = &site.answers[&(0, 0)];
    assert!(*answer == Answer::Found(there));
    assert_eq!(*at, asked + LATENCY * 2);
    site.settle();
    for member in site.machines.iter().flat_map(|machine| machine.members.values()) {
        assert_eq!(
            (member.asked, member.asked_bytes, member.put_off, member.serving, member.waits),
            (0, 0, 0, 0, 0)
        );
    }
}

#[test]
fn postponed_chunks_are_bounded_at_both_ends() {
    let mut machine = Neighbourhood::new(MemberId(1), NameKey::new([1; 32]), 1);
    let (other, now, name) = (MemberId(2), Now::from_secs(1), Name([1; 20]));
    machine.handle_up(other);
    for ticket in 0..2 * MAX_PUT_OFF as u64 {
        machine.read(Read { ticket, name, len: 2048, held: false }, now);
        machine.handle_frame(other, GroupFrame::Wait { request: ticket + 1, time_ms: 9 }, now);
    }
    assert_eq!((machine.waiting.len(), machine.members[&other].put_off), (MAX_PUT_OFF, MAX_PUT_OFF));
    let outputs: Vec<Output> = std::iter::from_fn(|| machine.poll_output()).collect();
    let given_up = |output: &&Output| matches!(output, Output::Answer { answer: Answer::Absent, .. });
    assert_eq!(outputs.iter().filter(given_up).count(), MAX_PUT_OFF);
    machine.handle_timeout(now + Now::from_secs(9));
    assert_eq!((machine.waiting.len(), machine.members[&other].put_off), (0, 0));
    // The members told to wait, for a third one's fetch.
    let third = MemberId(3);
    machine.handle_up(third);
    let own = |first: &u8| machine.responsible(Name([*first; 20]).tag()).is_none();
    let name = Name([(0..).find(own).unwrap(); 20]);
    let mut ask = |from, request| {
        machine.handle_frame(from, GroupFrame::Get { request, name, len: 2048 }, now);
        machine.handle_served(from, request, (name, 2048), None, now);
        std::iter::from_fn(|| machine.poll_output())
            .filter(|output| matches!(output, Output::Send(..)))
            .last()
    };
    assert_eq!(ask(third, 1), Some(Output::Send(third, GroupFrame::Chunk { request: 1, bytes: None })));
    for request in 0..MAX_PUT_OFF as u64 {
        let Some(Output::Send(_, GroupFrame::Wait { .. })) = ask(other, request) else { panic!("{request}") };
    }
    assert_eq!(ask(other, 9999), Some(Output::Send(other, GroupFrame::Chunk { request: 9999, bytes: None })));
}

#[test]
fn answer_to_an_earlier_process_does_not_count() {
    let (other, now) = (MemberId(2), Now::from_secs(1));
    let start = |first_request| {
        let mut machine = Neighbourhood::new(MemberId(1), NameKey::new([1; 32]), first_request);
        machine.handle_up(other);
        machine.read(Read { ticket: 5, name: Name([1; 20]), len: 2048, held: false }, now);
        let request = std::iter::from_fn(|| machine.poll_output()).find_map(|output| match output {
            Output::Send(_, GroupFrame::Get { request, .. }) => Some(request),
            _ => None,
        });
        (machine, request.unwrap())
    };
    let (_, request) = start(7_000_000);
    let (mut machine, own) = start(u32::MAX);
    let bytes = Some(Bytes::from_static(b"another chunk"));
    machine.handle_frame(other, GroupFrame::Chunk { request, bytes }, now);
    assert_eq!((own, machine.stats().wrong), (u32::MAX.into(), 0));
    assert!(machine.can_ask(other, now) && machine.poll_output().is_none());
}

#[test]
fn vain_postponement_earns_no_trust() {
    let mut machine = Neighbourhood::new(MemberId(1), NameKey::new([1; 32]), 1);
    let (other, mut now) = (MemberId(2), Now::from_secs(9));
    machine.handle_up(other);
    let ask = |machine: &mut Neighbourhood, now| {
        machine.read(Read { ticket: 1, name: Name([1; 20]), len: 2048, held: false }, now);
        let sent = std::iter::from_fn(|| machine.poll_output()).find_map(|output| match output {
            Output::Send(_, GroupFrame::Get { request, .. }) => Some(request),
            _ => None,
        });
        sent.expect("it was asked")
    };
    for rest in [1, 2, 4, 8] {
        let request = ask(&mut machine, now);
        machine.handle_frame(other, GroupFrame::Wait { request, time_ms: 1000 }, now);
        machine.handle_frame(other, GroupFrame::Chunk { request, bytes: None }, now);
        let (request, bytes) = (ask(&mut machine, now), Some(Bytes::from_static(b"a lie")));
        machine.handle_frame(other, GroupFrame::Chunk { request, bytes }, now);
        now += Now::from_secs(rest) - Now::from_nanos(1);
        assert!(!machine.can_ask(other, now), "{rest} s");
        now += Now::from_nanos(1);
    }
}

#[test]
fn earlier_delivery_by_another_breaks_no_promise() {
    let (key, other, mut now) = (NameKey::new([1; 32]), MemberId(2), Now::from_secs(9));
    let mut machine = Neighbourhood::new(MemberId(1), key.clone(), 1);
    machine.handle_up(other);
    let ours = |chunk: &Bytes| machine.responsible(key.tag(chunk)).is_none();
    let chunks: Vec<Bytes> = (0..).map(chunk).filter(ours).take(2).collect();
    // This one fetches a chunk, and the other asks for it; says whether it is told to wait.
    let waits = |machine: &mut Neighbourhood, chunk: &Bytes, now| {
        let (name, len, ticket) = (key.name(chunk), chunk.len() as u32, 5);
        machine.read(Read { ticket, name, len, held: false }, now);
        let sent = |machine: &mut Neighbourhood| {
            std::iter::from_fn(|| machine.poll_output()).find_map(|output| match output {
                Output::Send(_, frame @ (GroupFrame::Get { .. } | GroupFrame::Wait { .. })) => Some(frame),
                _ => None,
            })
        };
        let Some(GroupFrame::Get { request, .. }) = sent(machine) else { panic!("it is not asked") };
        machine.handle_frame(other, GroupFrame::Chunk { request, bytes: None }, now);
        machine.handle_served(other, 7, (name, len), None, now);
        sent(machine).is_some()
    };
    assert!(waits(&mut machine, &chunks[0], now));
    // It waits in vain, fetches the chunk itself, and brings it.
    now += claims::MOST_WAIT;
    machine.handle_timeout(now);
    let put = GroupFrame::Put { shape: Shape::default(), bytes: chunks[0].clone() };
    machine.handle_frame(other, put, now);
    assert!(machine.claims.is_empty());
    now += Now::from_secs(60);
    machine.handle_timeout(now);
    assert!(waits(&mut machine, &chunks[1], now), "what this one fetches is still waited for");
}
