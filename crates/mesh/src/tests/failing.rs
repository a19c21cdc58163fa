//! Neighbours that are dead, or lie.

use super::*;

#[test]
fn dead_neighbour_costs_its_patience_once() {
    let mut site = Site::new(&[Good, Dead]);
    site.read(0, 1, &chunk(1));
    let before = site.now;
    site.settle();
    let (answer, at) = &site.answers[&(0, 1)];
    assert_eq!(*answer, Answer::Absent);
    assert!(*at - before <= Now::from_secs(1));
    // The next is answered at once.
    let now = site.now;
    site.read(0, 2, &chunk(2));
    assert_eq!(site.answers[&(0, 2)], (Answer::Absent, now));
    // Later it gets another chance.
    site.now += Now::from_secs(2);
    site.manners[1] = Good;
    let name = site.name(&chunk(3));
    site.stores[1].insert(name, chunk(3));
    site.read(0, 3, &chunk(3));
    site.settle();
    assert_eq!(site.answer(0, 3), &Answer::Found(chunk(3)));
}

#[test]
fn a_liar_is_found_out_and_the_next_is_asked() {
    let mut site = Site::new(&[Good, Liar, Good]);
    let chunk = (0..).map(chunk).find(|chunk| {
        responsible(site.ids.iter().copied().skip(1), site.key.tag(chunk)) == Some(site.ids[1])
    });
    let chunk = chunk.unwrap();
    let name = site.name(&chunk);
    site.stores[2].insert(name, chunk.clone());
    site.read(0, 1, &chunk);
    site.settle();
    assert_eq!(site.answer(0, 1), &Answer::Found(chunk.clone()));
    assert_eq!(site.machines[0].stats().wrong, 1);
    site.read(0, 2, &chunk);
    site.settle();
    assert_eq!(site.machines[0].stats().wrong, 1, "it rests");
    assert_eq!(site.answer(0, 2), &Answer::Found(chunk));
}

#[test]
fn liar_is_not_trusted_for_claims_or_return() {
    let mut machine = Neighbourhood::new(MemberId(1), NameKey::new([1; 32]), 1);
    let (other, mut now) = (MemberId(2), Now::from_secs(9));
    machine.handle_up(other);
    let theirs = (0..).find(|&tag| machine.responsible(tag).is_some()).unwrap();
    let request = |machine: &mut Neighbourhood| {
        let sent = std::iter::from_fn(|| machine.poll_output()).find_map(|output| match output {
            Output::Send(_, GroupFrame::Get { request, .. } | GroupFrame::Peek { request, .. }) => {
                Some(request)
            }
            _ => None,
        });
        sent.expect("it was asked")
    };
    for rest in [1, 2, 4, 8] {
        machine.read(Read { ticket: rest, name: Name([1; 20]), len: 2048, held: false }, now);
        let bytes = Some(Bytes::from_static(b"a lie"));
        let lie = GroupFrame::Chunk { request: request(&mut machine), bytes };
        machine.handle_frame(other, lie, now);
        now += Now::from_secs(rest) - Now::from_nanos(1);
        assert!(!machine.can_ask(other, now), "{rest} s");
        machine.handle_down(other, now);
        machine.handle_up(other);
        assert!(!machine.can_ask(other, now), "it hung up and came back after {rest} s");
        now += Now::from_nanos(1);
        machine.offer(
            Shape::default(),
            vec![Piece { tag: theirs, bytes: chunk(1), at: 0, is_shared: true }],
            now,
        );
        let have = GroupFrame::Have { request: request(&mut machine), held: vec![true] };
        machine.handle_frame(other, have, now);
    }
    assert_eq!(machine.stats().wrong, 4);
}
